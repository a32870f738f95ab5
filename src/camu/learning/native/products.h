// Products of small matrices: C (+)= A B, with the rows of B and C as vectors.
//
// A is read entry by entry, so that its rows may also be columns of another matrix.
#pragma once
#include "vectors.h"

namespace CAMU_SET {

struct Matrix {
  const float* entries;
  long row, column;  // distance of neighbours in memory
};

struct Rows {
  float* entries;
  long row;
};

template <int ROWS, int VECTORS>
INLINE void multiply_tile(Matrix a, const float* b, long b_row, int depth, Rows c, bool add) {
  Vector sums[ROWS][VECTORS];
  UNROLL for (int i = 0; i < ROWS; i++)
    UNROLL for (int v = 0; v < VECTORS; v++)
      sums[i][v] = add ? load(c.entries + i * c.row + v * LANES) : Vector{};
  for (int k = 0; k < depth; k++) {
    Vector right[VECTORS];
    UNROLL for (int v = 0; v < VECTORS; v++) right[v] = load(b + k * b_row + v * LANES);
    UNROLL for (int i = 0; i < ROWS; i++) {
      Vector left = all(a.entries[i * a.row + k * a.column]);
      UNROLL for (int v = 0; v < VECTORS; v++) sums[i][v] += left * right[v];
    }
  }
  UNROLL for (int i = 0; i < ROWS; i++)
    UNROLL for (int v = 0; v < VECTORS; v++)
      store(c.entries + i * c.row + v * LANES, sums[i][v]);
}

// As many sums as the registers hold, beside a row of B and an entry of A.
constexpr int TILE_VECTORS = 4;
constexpr int TILE_ROWS = LANES == 16 ? 6 : 3;

template <int VECTORS>
INLINE void multiply_columns(Matrix a, const float* b, long b_row, int rows, int depth, Rows c,
                             bool add) {
  int i = 0;
  for (; i + TILE_ROWS <= rows; i += TILE_ROWS)
    multiply_tile<TILE_ROWS, VECTORS>({a.entries + i * a.row, a.row, a.column}, b, b_row, depth,
                                      {c.entries + i * c.row, c.row}, add);
  for (; i < rows; i++)
    multiply_tile<1, VECTORS>({a.entries + i * a.row, a.row, a.column}, b, b_row, depth,
                              {c.entries + i * c.row, c.row}, add);
}

// `width` is the number of columns of B and C, a multiple of LANES.
static void multiply(Matrix a, const float* b, long b_row, int rows, int depth, int width, Rows c,
                     bool add) {
  int j = 0;
  for (; j + TILE_VECTORS * LANES <= width; j += TILE_VECTORS * LANES)
    multiply_columns<TILE_VECTORS>(a, b + j, b_row, rows, depth, {c.entries + j, c.row}, add);
  for (; j < width; j += LANES)
    multiply_columns<1>(a, b + j, b_row, rows, depth, {c.entries + j, c.row}, add);
}

}  // namespace CAMU_SET
