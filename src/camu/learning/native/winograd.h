// Convolutions of 5x5 with 2x2 max-pooling by fewer products, forward only: for evaluation.
//
// Winograd's way computes two neighbouring outputs from six inputs by 6 products instead of 10.
// Inputs and weights are polynomials, their values at six points are multiplied, and the outputs
// follow from the products. A cell has two rows and two columns of outputs. A first stage goes this
// way along the rows, with 60 products per cell instead of 100. A second stage goes it along rows and
// columns, with 36: it has enough inputs and outputs to share the additions.
//
// The sums are other ones than in training, and so are their last bits. Where candidates of a cell
// are nearly equal, another one may win. This hardly changes the maximum, but it would change the
// gradient, so training takes the direct way.
#pragma once
#include "stage.h"

namespace CAMU_SET {

// The points are 0, 1, -1, 2, -2 and infinity.
constexpr int POINTS = 6;

// Six neighbouring inputs at the points.
INLINE void to_points(const Vector d[POINTS], Vector at[POINTS]) {
  Vector even = d[4] - 4 * d[2], odd = d[3] - 4 * d[1];
  Vector outer_even = d[4] - d[2], outer_odd = d[3] - d[1];
  at[0] = 4 * (d[0] - d[2]) + outer_even;
  at[1] = even + odd;
  at[2] = even - odd;
  at[3] = outer_even + 2 * outer_odd;
  at[4] = outer_even - 2 * outer_odd;
  at[5] = (d[5] - d[3]) - 4 * outer_odd;
}

// Five neighbouring weights g(k) at the points, divided by what the inputs there are too large.
template <class Read, class Write>
INLINE void weights_to_points(Read g, Write write) {
  double even = g(0) + g(2) + g(4), odd = g(1) + g(3);
  double outer_even = g(0) + 4 * g(2) + 16 * g(4), outer_odd = 2 * g(1) + 8 * g(3);
  write(0, g(0) / 4);
  write(1, (even + odd) / -6);
  write(2, (even - odd) / -6);
  write(3, (outer_even + outer_odd) / 24);
  write(4, (outer_even - outer_odd) / 24);
  write(5, g(4));
}

// Two neighbouring outputs from the products at the points.
INLINE void from_points(const Vector at[POINTS], Vector* first, Vector* second) {
  *first = at[0] + (at[1] + at[2]) + (at[3] + at[4]);
  *second = (at[1] - at[2]) + 2 * (at[3] - at[4]) + at[5];
}

INLINE Vector larger(Vector a, Vector b) { return a > b ? a : b; }

// ---------------------------------------------------------------------------------------------
// A first stage: the points are along the rows, and the sums of a cell stay in registers.

template <class S>
struct FirstMaxima {
  static_assert(S::kernel == 5, "the points are for kernels of 5x5");

  void begin(const float* parameters) {
    for (int o = 0; o < S::outputs; o++)
      for (int r = 0; r < rows; r++) {
        const float* row = parameters + (o * rows + r) * S::kernel;
        float* to = weights + (o / group * rows + r) * POINTS * group + o % group;
        weights_to_points([&](int k) { return (double)row[k]; },
                          [&](int p, double value) { to[p * group] = (float)value; });
      }
  }

  // x is [input][row][column]; the output is [output][cell].
  void forward(const Vector* x, const float* bias, Vector* out) {
    for (int y = 0; y < S::kernel - 1; y++) turn_line(x, y);
    for (int cy = 0; cy < n; cy++) {
      turn_line(x, 2 * cy + 4);
      turn_line(x, 2 * cy + 5);
      const Vector* window[WINDOW];
      for (int y = 0; y < WINDOW; y++) window[y] = line(2 * cy + y);
      for (int cx = 0; cx < n; cx++)
        for (int first = 0; first < S::outputs; first += group)
          add_cell(window, cx, first, bias, out + first * S::cells + cy * n + cx);
    }
  }

 private:
  static constexpr int n = S::cells_in_row;
  static constexpr int rows = S::inputs * S::kernel;  // of the weights of an output
  static constexpr int group = LANES == 16 ? 2 : 1;   // outputs in registers, 12 sums each
  static constexpr int WINDOW = 6;                    // lines that a row of cells needs

  Vector* line(int y) { return lines + y % WINDOW * S::inputs * n * POINTS; }

  void turn_line(const Vector* x, int y) {
    for (int i = 0; i < S::inputs; i++)
      for (int cx = 0; cx < n; cx++)
        to_points(x + (i * S::side + y) * S::side + 2 * cx,
                  line(y) + (i * n + cx) * POINTS);
  }

  void add_cell(const Vector* const window[], int cx, int first, const float* bias,
                Vector* out) const {
    Vector sums[group][2][POINTS];
    UNROLL for (int o = 0; o < group; o++)
      UNROLL for (int y = 0; y < 2; y++)
        UNROLL for (int p = 0; p < POINTS; p++) sums[o][y][p] = Vector{};
    const float* weight = weights + first * rows * POINTS;
    for (int i = 0; i < S::inputs; i++)
      UNROLL for (int ky = 0; ky < S::kernel; ky++) {
        const Vector* upper = window[ky] + (i * n + cx) * POINTS;
        const Vector* lower = window[ky + 1] + (i * n + cx) * POINTS;
        UNROLL for (int p = 0; p < POINTS; p++) {
          Vector a = upper[p], b = lower[p];
          UNROLL for (int o = 0; o < group; o++) {
            Vector own = all(*weight++);
            sums[o][0][p] += own * a;
            sums[o][1][p] += own * b;
          }
        }
      }
    UNROLL for (int o = 0; o < group; o++) {
      Vector candidate[4];
      from_points(sums[o][0], candidate, candidate + 1);
      from_points(sums[o][1], candidate + 2, candidate + 3);
      out[o * S::cells] = larger(larger(candidate[0], candidate[1]),
                                 larger(candidate[2], candidate[3])) + all(bias[first + o]);
    }
  }

  Vector lines[WINDOW * S::inputs * n * POINTS];  // the last six, [line][input][cell][point]
  float weights[S::outputs * rows * POINTS];  // [group][input and row][point][output of group]
};

// ---------------------------------------------------------------------------------------------
// A second stage: the points are a square of 6x6, and the cells of a row are computed together.

template <class S>
struct SecondMaxima {
  static_assert(S::kernel == 5, "the points are for kernels of 5x5");

  void begin(const float* parameters) {
    for (int o = 0; o < S::outputs; o++)
      for (int i = 0; i < S::inputs; i++)
        pack(parameters + (o * S::inputs + i) * S::taps,
             weights + (o / group * S::inputs + i) * group + o % group);
  }

  // x is [input][row][column]; the output is [output][cell].
  void forward(const Vector* x, const float* bias, Vector* out) {
    for (int cy = 0; cy < n; cy++) {
      for (int i = 0; i < S::inputs; i++) turn_input(x + (i * S::side + 2 * cy) * S::side, i);
      for (int row = 0; row < POINTS; row++)
        for (int first = 0; first < S::outputs; first += group) {
          multiply_row(row, first);
          turn_columns(row, first);
        }
      for (int o = 0; o < S::outputs; o++)
        for (int cx = 0; cx < n; cx++)
          out[o * S::cells + cy * n + cx] = maximum(o * n + cx) + all(bias[o]);
    }
  }

 private:
  static constexpr int n = S::cells_in_row;
  // Outputs that share the inputs in registers: a sum for each cell of the row.
  static constexpr int group = LANES == 16 ? 20 / n : 2;
  static_assert(S::outputs % group == 0, "groups of outputs are whole");

  static void pack(const float* kernel, float* to) {
    double rows[POINTS][S::kernel];
    for (int x = 0; x < S::kernel; x++)
      weights_to_points([&](int y) { return (double)kernel[y * S::kernel + x]; },
                        [&](int p, double value) { rows[p][x] = value; });
    for (int y = 0; y < POINTS; y++)
      weights_to_points([&](int x) { return rows[y][x]; },
                        [&](int p, double value) {
                          to[(y * POINTS + p) * S::outputs * S::inputs] = (float)value;
                        });
  }

  // The windows of a row of cells, at the points of columns and then of rows.
  void turn_input(const Vector* x, int input) {
    Vector rows[POINTS][2 * n + 4];
    for (int column = 0; column < 2 * n + 4; column++) {
      Vector d[POINTS], at[POINTS];
      UNROLL for (int y = 0; y < POINTS; y++) d[y] = x[y * S::side + column];
      to_points(d, at);
      UNROLL for (int y = 0; y < POINTS; y++) rows[y][column] = at[y];
    }
    for (int y = 0; y < POINTS; y++)
      UNROLL for (int cx = 0; cx < n; cx++) {
        Vector at[POINTS];
        to_points(rows[y] + 2 * cx, at);
        UNROLL for (int p = 0; p < POINTS; p++)
          inputs[((y * POINTS + p) * S::inputs + input) * n + cx] = at[p];
      }
  }

  // Products at a row of points, summed over the inputs, for one group of outputs.
  void multiply_row(int row, int first) {
    for (int p = 0; p < POINTS; p++) {
      int point = row * POINTS + p;
      multiply(inputs + point * S::inputs * n,
               weights + (point * S::outputs + first) * S::inputs, products + p * group * n);
    }
  }

  static void multiply(const Vector* x, const float* weight, Vector* to) {
    Vector sums[group][n];
    UNROLL for (int o = 0; o < group; o++)
      UNROLL for (int cx = 0; cx < n; cx++) sums[o][cx] = Vector{};
    UNROLL for (int i = 0; i < S::inputs; i++)
      UNROLL for (int o = 0; o < group; o++)
        UNROLL for (int cx = 0; cx < n; cx++)
          sums[o][cx] += all(weight[i * group + o]) * x[i * n + cx];
    UNROLL for (int o = 0; o < group; o++)
      UNROLL for (int cx = 0; cx < n; cx++) to[o * n + cx] = sums[o][cx];
  }

  void turn_columns(int row, int first) {
    for (int i = 0; i < group * n; i++) {
      Vector at[POINTS];
      UNROLL for (int p = 0; p < POINTS; p++) at[p] = products[p * group * n + i];
      Vector* to = columns + (row * 2 * S::outputs + first) * n + i;
      from_points(at, to, to + S::outputs * n);
    }
  }

  Vector maximum(int i) const {
    Vector most[2];
    UNROLL for (int x = 0; x < 2; x++) {
      Vector at[POINTS], upper, lower;
      UNROLL for (int p = 0; p < POINTS; p++) at[p] = columns[(p * 2 + x) * S::outputs * n + i];
      from_points(at, &upper, &lower);
      most[x] = larger(upper, lower);
    }
    return larger(most[0], most[1]);
  }

  Vector inputs[POINTS * POINTS * S::inputs * n];  // [point][input][cell]
  Vector products[POINTS * group * n];             // [point of a row][output of group][cell]
  Vector columns[POINTS * 2 * S::outputs * n];     // [row of points][column][output][cell]
  float weights[POINTS * POINTS * S::outputs * S::inputs];  // [point][group][input][output of group]
};

}  // namespace CAMU_SET
