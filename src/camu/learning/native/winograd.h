// Convolutions of 5x5 with 2x2 max-pooling by fewer products, forward.
//
// Winograd's way computes two neighbouring outputs from six inputs by 6 products instead of 10.
// Inputs and weights are polynomials, their values at six points are multiplied, and the outputs
// follow from the products. A cell has two rows and two columns of outputs. A first stage goes this
// way along the rows, with 60 products per cell instead of 100. A second stage goes it along rows and
// columns, with 36: it has enough inputs and outputs to share the additions.
//
// The sums of neighbouring candidates are rounded in different ways. Where two of them are nearly
// equal, rounding could choose another winner, which hardly changes the maximum but does change the
// gradient. In training the winner of such a cell, one of a thousand, is found in double precision.
// In a first stage, looking for these cells takes the time that is gained, so it goes this way in
// evaluation only.
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
  auto even = g(0) + g(2) + g(4), odd = g(1) + g(3);
  auto outer_even = g(0) + 4.0 * g(2) + 16.0 * g(4), outer_odd = 2.0 * g(1) + 8.0 * g(3);
  write(0, g(0) * 0.25);
  write(1, (even + odd) * (-1.0 / 6));
  write(2, (even - odd) * (-1.0 / 6));
  write(3, (outer_even + outer_odd) * (1.0 / 24));
  write(4, (outer_even - outer_odd) * (1.0 / 24));
  write(5, g(4));
}

// Two neighbouring outputs from the products at the points.
INLINE void from_points(const Vector at[POINTS], Vector* first, Vector* second) {
  *first = at[0] + (at[1] + at[2]) + (at[3] + at[4]);
  *second = (at[1] - at[2]) + 2 * (at[3] - at[4]) + at[5];
}

// Two candidates are nearly equal if their distance is at most this part of the sum of the sizes of
// the weights times the largest input. The largest error of a candidate that was seen is 1.4e-7.
constexpr float NEAR = 4e-6f;

// The sum of the sizes of an output's weights.
template <class S>
INLINE float size_of(const float* weights) {
  constexpr int count = S::inputs * S::taps;
  Vector sizes{};
  for (int first = 0; first < count; first += LANES) {
    Vector some{};
    memcpy(&some, weights + first, (count - first < LANES ? count - first : LANES) * sizeof(float));
    sizes += larger(some, -some);
  }
  return sum(sizes);
}

// Whether all pixels under a cell are equal in each channel; `corner` is a lane of the first one.
template <class S>
static bool is_flat(const float* corner) {
  for (int i = 0; i < S::inputs; i++)
    for (int y = 0; y <= S::kernel; y++)
      for (int x = 0; x <= S::kernel; x++)
        if (corner[((i * S::side + y) * S::side + x) * LANES] !=
            corner[i * S::side * S::side * LANES])
          return false;
  return true;
}

// The winner of a cell in one lane, in double precision. The first of equal candidates wins.
template <class S>
ALONE static int8_t exact_winner(const float* corner, const float* weights) {
  if (is_flat<S>(corner)) return 0;
  double sums[4] = {};
  for (int i = 0; i < S::inputs; i++)
    for (int ky = 0; ky < S::kernel; ky++)
      for (int kx = 0; kx < S::kernel; kx++) {
        const float* upper = corner + ((i * S::side + ky) * S::side + kx) * LANES;
        const float* lower = upper + S::side * LANES;
        double weight = *weights++;
        sums[0] += weight * upper[0];
        sums[1] += weight * upper[LANES];
        sums[2] += weight * lower[0];
        sums[3] += weight * lower[LANES];
      }
  int8_t best = 0;
  for (int8_t c = 1; c < 4; c++)
    if (sums[c] > sums[best]) best = c;
  return best;
}

// The maximum of the candidates of a cell, and the winners. Those of the first `exact` lanes are
// right also where candidates are `near` each other. Sums of nothing but zeros are zero in any way.
template <class S>
INLINE Vector settled_winner(const Vector candidate[4], Vector near, int exact,
                             const Vector* corner, const float* weights, ByteVector* winner) {
  Vector second, best = winner_of(candidate, winner, &second);
  Vector limit = best == 0 && second == 0 ? all(-1) : near;
  unsigned doubtful = lanes_up_to(best - second, limit) & ((1u << exact) - 1);
  for (; doubtful; doubtful &= doubtful - 1) {
    int lane = __builtin_ctz(doubtful);
    ((int8_t*)winner)[lane] = exact_winner<S>((const float*)corner + lane, weights);
  }
  return best;
}

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
struct SecondCells {
  static_assert(S::kernel == 5, "the points are for kernels of 5x5");

  void begin(const float* given) {
    parameters = given;
    for (int o = 0; o < S::outputs; o++)
      near[o] = NEAR * size_of<S>(parameters + o * S::inputs * S::taps);
    for (int o = 0; o < S::outputs; o++)
      for (int i = 0; i < S::inputs; i++)
        for (int t = 0; t < S::taps; t++)
          turned[t * kernels + (o / group * S::inputs + i) * group + o % group] = *given++;
    for (int k = 0; k < kernels; k += LANES / 2) pack(k);
  }

  // x is [input][row][column]; the output and the winners are [output][cell]. The winners of the
  // first `exact` lanes are right, also where candidates are nearly equal.
  void forward(const Vector* x, const float* bias, int exact, Vector* out, ByteVector* winners) {
    Vector largest{};
    for (int i = 0; i < S::inputs * S::pixels; i++) largest = larger(largest, larger(x[i], -x[i]));
    for (int cy = 0; cy < n; cy++) {
      for (int i = 0; i < S::inputs; i++) turn_input(x + (i * S::side + 2 * cy) * S::side, i);
      for (int row = 0; row < POINTS; row++)
        for (int first = 0; first < S::outputs; first += group) {
          multiply_row(row, first);
          turn_columns(row, first);
        }
      for (int o = 0; o < S::outputs; o++)
        for (int cx = 0; cx < n; cx++) {
          Vector candidates[4];
          turn_rows(o * n + cx, candidates);
          int cell = o * S::cells + cy * n + cx;
          out[cell] = settled_winner<S>(candidates, all(near[o]) * largest, exact,
                                        x + 2 * cy * S::side + 2 * cx,
                                        parameters + o * S::inputs * S::taps,
                                        winners + cell) + all(bias[o]);
        }
    }
  }

 private:
  static constexpr int n = S::cells_in_row;
  // Outputs that share the inputs in registers: a sum for each cell of the row.
  static constexpr int group = LANES == 16 ? 20 / n : 2;
  static_assert(S::outputs % group == 0, "groups of outputs are whole");

  static constexpr int kernels = S::outputs * S::inputs;
  typedef float Half __attribute__((vector_size(LANES * 2), aligned(4), may_alias));
  typedef double DoubleVector __attribute__((vector_size(LANES * 4), may_alias));
  static_assert(kernels % (LANES / 2) == 0, "packed without a rest");

  // Some kernels, as lanes, at the points of columns and then of rows.
  void pack(int first) {
    DoubleVector rows[POINTS][S::kernel];
    UNROLL for (int x = 0; x < S::kernel; x++)
      weights_to_points(
          [&](int y) {
            const float* from = turned + (y * S::kernel + x) * kernels + first;
            return __builtin_convertvector(*(const Half*)from, DoubleVector);
          },
          [&](int p, DoubleVector value) { rows[p][x] = value; });
    UNROLL for (int y = 0; y < POINTS; y++)
      weights_to_points([&](int x) { return rows[y][x]; },
                        [&](int p, DoubleVector value) {
                          float* to = weights + (y * POINTS + p) * kernels + first;
                          *(Half*)to = __builtin_convertvector(value, Half);
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
               weights + point * kernels + first * S::inputs, products + p * group * n);
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

  INLINE_MEMBER void turn_rows(int i, Vector candidates[4]) const {
    UNROLL for (int x = 0; x < 2; x++) {
      Vector at[POINTS];
      UNROLL for (int p = 0; p < POINTS; p++) at[p] = columns[(p * 2 + x) * S::outputs * n + i];
      from_points(at, candidates + x, candidates + 2 + x);
    }
  }

  Vector inputs[POINTS * POINTS * S::inputs * n];  // [point][input][cell]
  Vector products[POINTS * group * n];             // [point of a row][output of group][cell]
  Vector columns[POINTS * 2 * S::outputs * n];     // [row of points][column][output][cell]
  float weights[POINTS * POINTS * S::outputs * S::inputs];  // [point][group][input][output of group]
  float turned[S::taps * kernels];  // [tap][group][input][output of group]
  float near[S::outputs];
  const float* parameters;
};

}  // namespace CAMU_SET
