// 5x5 convolutions with 2x2 max-pooling by Winograd's F(4, 5) (transforms.h): the forward pass of both
// stages, and the gradient of the second stage's inputs.
//
// The first stage applies it along rows only, with 40 multiplications per pooling cell and input instead
// of 100. The second stage applies it to rows and columns, with 16: it has enough inputs and outputs to
// share the additions of the transforms.
#pragma once
#include "transforms.h"
#include "argmax_ties.h"

namespace CAMU_SET {

// ---------------------------------------------------------------------------------------------
// The first stage: transforms along the rows.

template <class S>
struct FirstWinograd {
  static_assert(S::kernel == 5, "the points are for kernels of 5x5");
  static_assert(S::cells_in_row % 2 == 0, "tiles are whole");

  void begin(const float* given) {
    parameters = given;
    for (int o = 0; o < S::outputs; o++) {
      near[o] = TIE_TOLERANCE * sum_of_magnitudes<S>(parameters + o * rows * S::kernel);
      for (int r = 0; r < rows; r++) {
        const float* row = parameters + (o * rows + r) * S::kernel;
        transform_weights([&](int k) { return (double)row[k]; },
                          [&](int p, double value) {
                            weights[(p * rows + r) * S::outputs + o] = (float)value;
                          });
      }
    }
  }

  // x is [input][row][column], in [0, 1]; the output and the winners are [output][cell]. The winners
  // of the first `exact` lanes are right, also where candidates are nearly equal.
  template <bool WINNERS>
  void forward(const Vector* x, const float* bias, int exact, Vector* out, ByteVector* winners) {
    for (int y = 0; y < S::kernel - 1; y++) transform_line<WINNERS>(x, y);
    for (int cy = 0; cy < n; cy++) {
      transform_line<WINNERS>(x, 2 * cy + 4);
      transform_line<WINNERS>(x, 2 * cy + 5);
      if (WINNERS) find_zeros(cy);
      for (int tile = 0; tile < tiles; tile++) {
        for (int p = 0; p < POINTS; p++)
          for (int first = 0; first < S::outputs; first += group) multiply(cy, tile, p, first);
        for (int o = 0; o < S::outputs; o++) {
          const int place = o * S::cells + cy * n + 2 * tile;
          finish<WINNERS>(x + 2 * cy * S::side + TILE * tile, tile, o, bias[o], exact, out + place,
                          winners + place);
        }
      }
    }
  }

 private:
  static constexpr int n = S::cells_in_row, tiles = n / 2;
  static constexpr int rows = S::inputs * S::kernel;  // of the weights of an output
  static constexpr int group = LANES == 16 ? 10 : 5;  // outputs in registers, two sums each
  static constexpr int WINDOW = S::kernel + 1;        // lines that a row of cells needs

  Vector* line(int y) { return lines + y % WINDOW * S::inputs * tiles * POINTS; }

  template <bool WINNERS>
  void transform_line(const Vector* x, int y) {
    for (int tile = 0; tile < tiles; tile++) {
      IntVector* bits = joined[y % WINDOW] + TILE * tile;
      for (int i = 0; i < S::inputs; i++) {
        const Vector* from = x + (i * S::side + y) * S::side + TILE * tile;
        transform_inputs(from, line(y) + (i * tiles + tile) * POINTS);
        if (WINNERS) join((const IntVector*)from, i > 0, bits);
      }
    }
  }

  // The bits of the pixels under a row of the kernel, for each output of a tile.
  INLINE void join(const IntVector d[POINTS], bool add, IntVector bits[TILE]) {
    IntVector centre = d[3] | d[4], left = centre | d[1] | d[2], right = centre | d[5] | d[6];
    const IntVector own[] = {left | d[0], left | d[5], right | d[2], right | d[7]};
    UNROLL for (int c = 0; c < TILE; c++) bits[c] = add ? bits[c] | own[c] : own[c];
  }

  // Which candidates of a row of cells have a nonzero pixel. The others are exactly zero, but the
  // transforms leave rounding errors of neighbouring pixels in them, and many cells would be near-ties.
  void find_zeros(int cy) {
    for (int c = 0; c < 2 * n; c++) {
      IntVector inner{};
      UNROLL for (int y = 1; y < S::kernel; y++) inner |= joined[(2 * cy + y) % WINDOW][c];
      seen[0][c] = (inner | joined[2 * cy % WINDOW][c]) != 0;
      seen[1][c] = (inner | joined[(2 * cy + S::kernel) % WINDOW][c]) != 0;
    }
  }

  // Products at a point, summed over inputs and rows of the kernel.
  void multiply(int cy, int tile, int p, int first) {
    Vector sums[group][2];
    UNROLL for (int o = 0; o < group; o++) sums[o][0] = sums[o][1] = Vector{};
    const float* weight = weights + p * rows * S::outputs + first;
    for (int i = 0; i < S::inputs; i++) {
      Vector x[WINDOW];
      UNROLL for (int y = 0; y < WINDOW; y++)
        x[y] = line(2 * cy + y)[(i * tiles + tile) * POINTS + p];
      UNROLL for (int ky = 0; ky < S::kernel; ky++, weight += S::outputs)
        UNROLL for (int o = 0; o < group; o++) {
          sums[o][0] += all(weight[o]) * x[ky];
          sums[o][1] += all(weight[o]) * x[ky + 1];
        }
    }
    UNROLL for (int o = 0; o < group; o++)
      UNROLL for (int y = 0; y < 2; y++) products[((first + o) * 2 + y) * POINTS + p] = sums[o][y];
  }

  // The two cells of a tile, from the products of one output.
  template <bool WINNERS>
  INLINE_MEMBER void finish(const Vector* corner, int tile, int output, float bias, int exact,
                            Vector* out, ByteVector* winners) const {
    Vector rows_of_tile[2][TILE];
    UNROLL for (int y = 0; y < 2; y++) {
      transform_outputs(products + (2 * output + y) * POINTS, rows_of_tile[y]);
      UNROLL for (int c = 0; WINNERS && c < TILE; c++)
        rows_of_tile[y][c] = (Vector)((IntVector)rows_of_tile[y][c] & seen[y][TILE * tile + c]);
    }
    UNROLL for (int c = 0; c < 2; c++) {
      const Vector *above = rows_of_tile[0] + 2 * c, *below = rows_of_tile[1] + 2 * c;
      const Vector candidates[] = {above[0], above[1], below[0], below[1]};
      Vector most = maximum_of(candidates);
      if (WINNERS)
        most = argmax_with_ties<S>(candidates, all(near[output]), exact, corner + 2 * c,
                                 parameters + output * rows * S::kernel, winners + c);
      out[c] = most + all(bias);
    }
  }

  Vector lines[WINDOW * S::inputs * tiles * POINTS];  // the last six, [line][input][tile][point]
  IntVector joined[WINDOW][2 * n];  // bits of the pixels under a row of the kernel, by line
  IntVector seen[2][2 * n];         // whether a candidate has a pixel that is not zero
  Vector products[S::outputs * 2 * POINTS];   // of a tile, [output][row][point]
  float weights[POINTS * rows * S::outputs];  // [point][input and row][output]
  float near[S::outputs];
  const float* parameters;
};

// ---------------------------------------------------------------------------------------------
// The second stage: transforms along rows and columns, so 8x8 points; the tiles of a row of cells are
// computed together.

template <class S>
struct SecondWinograd {
  static_assert(S::kernel == 5, "the points are for kernels of 5x5");

  void begin(const float* given) {
    parameters = given;
    for (int o = 0; o < S::outputs; o++)
      near[o] = TIE_TOLERANCE * sum_of_magnitudes<S>(parameters + o * S::inputs * S::taps);
    for (int o = 0; o < S::outputs; o++)
      for (int i = 0; i < S::inputs; i++)
        for (int t = 0; t < S::taps; t++)
          transposed[t * kernels + (o / group * S::inputs + i) * group + o % group] = *given++;
    for (int k = 0; k < kernels; k += LANES / 2) pack(k);
  }

  // x is [input][row][column]; the output and the winners are [output][cell]. The winners of the
  // first `exact` lanes are right, also where candidates are nearly equal.
  template <bool WINNERS>
  void forward(const Vector* x, const float* bias, int exact, Vector* out, ByteVector* winners) {
    Vector largest{};
    for (int i = 0; WINNERS && i < S::inputs * S::pixels; i++)
      largest = larger(largest, larger(x[i], -x[i]));
    for (int ty = 0; ty < tiles; ty++) {
      for (int i = 0; i < S::inputs; i++) transform_input(x + i * S::pixels, TILE * ty, i);
      for (int row = 0; row < POINTS; row++)
        for (int first = 0; first < S::outputs; first += group) {
          multiply_row(row, first);
          inverse_transform_columns(row, first);
        }
      for (int o = 0; o < S::outputs; o++)
        for (int tx = 0; tx < tiles; tx++)
          finish<WINNERS>(x, all(near[o]) * largest, bias[o], exact, o, ty, tx, out, winners);
    }
  }

  // The gradients of the inputs, [input][row][column], from those of the cells, [output][cell].
  void backward(const Vector* cells, const ByteVector* winners, Vector* x) {
    for (int ty = 0; ty < tiles; ty++) {
      for (int o = 0; o < S::outputs; o++)
        for (int tx = 0; tx < tiles; tx++) transform_gradient(cells, winners, o, ty, tx);
      for (int point = 0; point < POINTS * POINTS; point++)
        for (int first = 0; first < S::inputs; first += input_group) multiply_back(point, first);
      for (int i = 0; i < S::inputs; i++) inverse_transform(i, TILE * ty, x + i * S::pixels);
    }
  }

 private:
  // The last tile of a row or column may be half outside.
  static constexpr int n = S::cells_in_row, tiles = (n + 1) / 2;
  // Outputs that share the inputs in registers: a sum for each tile of the row.
  static constexpr int group = LANES == 16 ? (tiles == 2 ? 10 : 5) : 4;
  static_assert(S::outputs % group == 0, "groups of outputs are whole");
  static constexpr int input_group = LANES == 16 && tiles == 2 ? 10 : 5;  // the same, backward

  static constexpr int kernels = S::outputs * S::inputs;
  typedef float Half __attribute__((vector_size(LANES * 2), aligned(4), may_alias));
  typedef double DoubleVector __attribute__((vector_size(LANES * 4), may_alias));
  static_assert(kernels % (LANES / 2) == 0, "packed without a rest");

  // Some kernels, as lanes, at the points of columns and then of rows.
  void pack(int first) {
    DoubleVector rows[POINTS][S::kernel];
    UNROLL for (int x = 0; x < S::kernel; x++)
      transform_weights(
          [&](int y) {
            const float* from = transposed + (y * S::kernel + x) * kernels + first;
            return __builtin_convertvector(*(const Half*)from, DoubleVector);
          },
          [&](int p, DoubleVector value) { rows[p][x] = value; });
    UNROLL for (int y = 0; y < POINTS; y++)
      transform_weights([&](int x) { return rows[y][x]; },
                        [&](int p, DoubleVector value) {
                          float* to = weights + (y * POINTS + p) * kernels + first;
                          *(Half*)to = __builtin_convertvector(value, Half);
                        });
  }

  // The windows of a row of tiles, at the points of columns and then of rows.
  void transform_input(const Vector* x, int top, int input) {
    Vector rows[POINTS][TILE * tiles + TILE] = {};
    for (int column = 0; column < S::side; column++) {
      Vector d[POINTS], at[POINTS];
      UNROLL for (int y = 0; y < POINTS; y++)
        d[y] = top + y < S::side ? x[(top + y) * S::side + column] : Vector{};
      transform_inputs(d, at);
      UNROLL for (int y = 0; y < POINTS; y++) rows[y][column] = at[y];
    }
    for (int y = 0; y < POINTS; y++)
      UNROLL for (int tx = 0; tx < tiles; tx++) {
        Vector at[POINTS];
        transform_inputs(rows[y] + TILE * tx, at);
        UNROLL for (int p = 0; p < POINTS; p++)
          inputs[((y * POINTS + p) * S::inputs + input) * tiles + tx] = at[p];
      }
  }

  // Products at a row of points, summed over the inputs, for one group of outputs.
  void multiply_row(int row, int first) {
    for (int p = 0; p < POINTS; p++) {
      int point = row * POINTS + p;
      multiply(inputs + point * S::inputs * tiles,
               weights + point * kernels + first * S::inputs, products + p * group * tiles);
    }
  }

  static void multiply(const Vector* x, const float* weight, Vector* to) {
    Vector sums[group][tiles];
    UNROLL for (int o = 0; o < group; o++)
      UNROLL for (int tx = 0; tx < tiles; tx++) sums[o][tx] = Vector{};
    UNROLL for (int i = 0; i < S::inputs; i++)
      UNROLL for (int o = 0; o < group; o++)
        UNROLL for (int tx = 0; tx < tiles; tx++)
          sums[o][tx] += all(weight[i * group + o]) * x[i * tiles + tx];
    UNROLL for (int o = 0; o < group; o++)
      UNROLL for (int tx = 0; tx < tiles; tx++) to[o * tiles + tx] = sums[o][tx];
  }

  void inverse_transform_columns(int row, int first) {
    for (int i = 0; i < group * tiles; i++) {
      Vector at[POINTS], out[TILE];
      UNROLL for (int p = 0; p < POINTS; p++) at[p] = products[p * group * tiles + i];
      transform_outputs(at, out);
      UNROLL for (int x = 0; x < TILE; x++)
        columns[((row * TILE + x) * S::outputs + first) * tiles + i] = out[x];
    }
  }

  INLINE_MEMBER void inverse_transform_rows(int i, Vector outputs[TILE][TILE]) const {
    UNROLL for (int x = 0; x < TILE; x++) {
      Vector at[POINTS], out[TILE];
      UNROLL for (int p = 0; p < POINTS; p++)
        at[p] = columns[(p * TILE + x) * S::outputs * tiles + i];
      transform_outputs(at, out);
      UNROLL for (int y = 0; y < TILE; y++) outputs[y][x] = out[y];
    }
  }

  // The four cells of a tile; those outside are left out.
  template <bool WINNERS>
  INLINE_MEMBER void finish(const Vector* x, Vector near, float bias, int exact, int o, int ty,
                            int tx, Vector* out, ByteVector* winners) const {
    Vector outputs[TILE][TILE];
    inverse_transform_rows(o * tiles + tx, outputs);
    UNROLL for (int cell = 0; cell < 4; cell++) {
      const int cy = 2 * ty + cell / 2, cx = 2 * tx + cell % 2, place = o * S::cells + cy * n + cx;
      if (cy >= n || cx >= n) continue;
      const Vector *above = outputs[cell / 2 * 2] + cell % 2 * 2, *below = above + TILE;
      const Vector candidates[] = {above[0], above[1], below[0], below[1]};
      Vector most = maximum_of(candidates);
      if (WINNERS)
        most = argmax_with_ties<S>(candidates, near, exact, x + 2 * cy * S::side + 2 * cx,
                                 parameters + o * S::inputs * S::taps, winners + place);
      out[place] = most + all(bias);
    }
  }

  // The gradients of the candidates of a tile, at the points of rows and then of columns.
  void transform_gradient(const Vector* cells, const ByteVector* winners, int o, int ty, int tx) {
    Vector rows[TILE][POINTS];
    UNROLL for (int half = 0; half < 2; half++) {
      Vector lines[2][TILE];
      UNROLL for (int side = 0; side < 2; side++) {
        const int cy = 2 * ty + half, cx = 2 * tx + side, place = o * S::cells + cy * n + cx;
        const bool inside = cy < n && cx < n;
        Vector g = inside ? cells[place] : Vector{};
        IntVector winner = inside ? widened(winners + place) : IntVector{};
        UNROLL for (int c = 0; c < 4; c++)
          lines[c / 2][2 * side + c % 2] = winner == c ? g : Vector{};
      }
      UNROLL for (int y = 0; y < 2; y++) adjoint_of_outputs(lines[y], rows[2 * half + y]);
    }
    UNROLL for (int x = 0; x < POINTS; x++) {
      Vector column[TILE], at[POINTS];
      UNROLL for (int y = 0; y < TILE; y++) column[y] = rows[y][x];
      adjoint_of_outputs(column, at);
      UNROLL for (int y = 0; y < POINTS; y++)
        gradients[((y * POINTS + x) * S::outputs + o) * tiles + tx] = at[y];
    }
  }

  // Products at a point, summed over the outputs.
  void multiply_back(int point, int first) {
    Vector sums[input_group][tiles];
    UNROLL for (int i = 0; i < input_group; i++)
      UNROLL for (int tx = 0; tx < tiles; tx++) sums[i][tx] = Vector{};
    const Vector* g = gradients + point * S::outputs * tiles;
    for (int o = 0; o < S::outputs; o++) {
      const float* weight =
          weights + point * kernels + (o / group * S::inputs + first) * group + o % group;
      UNROLL for (int i = 0; i < input_group; i++)
        UNROLL for (int tx = 0; tx < tiles; tx++)
          sums[i][tx] += all(weight[i * group]) * g[o * tiles + tx];
    }
    UNROLL for (int i = 0; i < input_group; i++)
      UNROLL for (int tx = 0; tx < tiles; tx++)
        inputs[(point * S::inputs + first + i) * tiles + tx] = sums[i][tx];
  }

  // The gradients of the inputs: the adjoint transform along rows and then along columns. Neighbouring
  // windows overlap by half.
  void inverse_transform(int input, int top, Vector* x) {
    Vector rows[POINTS][TILE * tiles + TILE];
    for (int y = 0; y < POINTS; y++)
      UNROLL for (int tx = 0; tx < tiles; tx++) {
        Vector at[POINTS], d[POINTS];
        UNROLL for (int p = 0; p < POINTS; p++)
          at[p] = inputs[((y * POINTS + p) * S::inputs + input) * tiles + tx];
        adjoint_of_inputs(at, d);
        UNROLL for (int c = 0; c < POINTS; c++) {
          Vector& to = rows[y][TILE * tx + c];
          to = tx > 0 && c < TILE ? to + d[c] : d[c];
        }
      }
    for (int column = 0; column < S::side; column++) {
      Vector at[POINTS], d[POINTS];
      UNROLL for (int y = 0; y < POINTS; y++) at[y] = rows[y][column];
      adjoint_of_inputs(at, d);
      UNROLL for (int y = 0; y < POINTS; y++) {
        if (top + y >= S::side) continue;
        Vector& to = x[(top + y) * S::side + column];
        to = top > 0 && y < TILE ? to + d[y] : d[y];
      }
    }
  }

  Vector inputs[POINTS * POINTS * S::inputs * tiles];      // [point][input][tile]
  Vector gradients[POINTS * POINTS * S::outputs * tiles];  // [point][output][tile]
  Vector products[POINTS * group * tiles];             // [point of a row][output of group][tile]
  Vector columns[POINTS * TILE * S::outputs * tiles];  // [row of points][column][output][tile]
  float weights[POINTS * POINTS * S::outputs * S::inputs];  // [point][group][input][output of group]
  float transposed[S::taps * kernels];  // [tap][group][input][output of group]
  float near[S::outputs];
  const float* parameters;
};

}  // namespace CAMU_SET
