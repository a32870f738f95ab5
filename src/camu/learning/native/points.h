// Winograd's way: four neighbouring outputs of a kernel of five from eight inputs by 8 products instead
// of 20.
//
// Inputs and weights are polynomials. Their values at eight points are multiplied, and the outputs
// follow from the products.
#pragma once
#include "vectors.h"

namespace CAMU_SET {

// The points are 0, 1, -1, 2, -2, 1/2, -1/2 and infinity.
constexpr int POINTS = 8;
constexpr int TILE = 4;  // outputs that follow from them

// Eight neighbouring inputs at the points.
INLINE void to_points(const Vector d[POINTS], Vector at[POINTS]) {
  at[0] = (d[0] - d[6]) + 5.25f * (d[4] - d[2]);
  at[7] = (d[7] - d[1]) + 5.25f * (d[3] - d[5]);
  Vector even = (d[2] + d[6]) - 4.25f * d[4], odd = (d[1] + d[5]) - 4.25f * d[3];
  at[1] = even + odd;
  at[2] = even - odd;
  even = d[6] + 0.25f * d[2] - 1.25f * d[4];
  odd = d[5] + 0.25f * d[1] - 1.25f * d[3];
  at[3] = even + 2 * odd;
  at[4] = even - 2 * odd;
  even = d[6] + 4 * d[2] - 5 * d[4];
  odd = d[5] + 4 * d[1] - 5 * d[3];
  at[5] = even + 0.5f * odd;
  at[6] = even - 0.5f * odd;
}

// Five neighbouring weights g(k) at the points, divided by what the inputs there are too large.
template <class Read, class Write>
INLINE void weights_to_points(Read g, Write write) {
  write(0, g(0) * 1.0);
  auto even = g(0) + g(2) + g(4), odd = g(1) + g(3);
  write(1, (even + odd) * (-2.0 / 9));
  write(2, (even - odd) * (-2.0 / 9));
  even = g(0) + 4.0 * g(2) + 16.0 * g(4), odd = 2.0 * g(1) + 8.0 * g(3);
  write(3, (even + odd) * (1.0 / 90));
  write(4, (even - odd) * (1.0 / 90));
  even = 16.0 * g(0) + 4.0 * g(2) + g(4), odd = 8.0 * g(1) + 2.0 * g(3);
  write(5, (even + odd) * (2.0 / 45));
  write(6, (even - odd) * (2.0 / 45));
  write(7, g(4) * 1.0);
}

// Four neighbouring outputs from the products at the points.
INLINE void from_points(const Vector at[POINTS], Vector out[TILE]) {
  Vector even = at[1] + at[2], odd = at[1] - at[2];
  Vector outer_even = at[3] + at[4], outer_odd = at[3] - at[4];
  Vector inner_even = at[5] + at[6], inner_odd = at[5] - at[6];
  out[0] = (at[0] + even) + (outer_even + inner_even);
  out[1] = odd + 2 * outer_odd + 0.5f * inner_odd;
  out[2] = even + 4 * outer_even + 0.25f * inner_even;
  out[3] = (odd + at[7]) + 8 * outer_odd + 0.125f * inner_odd;
}

// The other way round, for gradients: what four outputs give to the points, and what the points give
// to eight inputs.
INLINE void gradient_to_points(const Vector out[TILE], Vector at[POINTS]) {
  Vector even = out[0] + out[2], odd = out[1] + out[3];
  at[0] = out[0];
  at[1] = even + odd;
  at[2] = even - odd;
  even = out[0] + 4 * out[2], odd = out[1] + 4 * out[3];
  at[3] = even + 2 * odd;
  at[4] = even - 2 * odd;
  even = out[0] + 0.25f * out[2], odd = out[1] + 0.25f * out[3];
  at[5] = even + 0.5f * odd;
  at[6] = even - 0.5f * odd;
  at[7] = out[3];
}

INLINE void gradient_from_points(const Vector at[POINTS], Vector d[POINTS]) {
  Vector even = at[1] + at[2], odd = at[1] - at[2];
  Vector outer_even = at[3] + at[4], outer_odd = 2 * (at[3] - at[4]);
  Vector inner_even = at[5] + at[6], inner_odd = 0.5f * (at[5] - at[6]);
  d[0] = at[0];
  d[1] = (odd - at[7]) + (0.25f * outer_odd + 4 * inner_odd);
  d[2] = (even - 5.25f * at[0]) + (0.25f * outer_even + 4 * inner_even);
  d[3] = (5.25f * at[7] - 4.25f * odd) - (1.25f * outer_odd + 5 * inner_odd);
  d[4] = (5.25f * at[0] - 4.25f * even) - (1.25f * outer_even + 5 * inner_even);
  d[5] = (odd - 5.25f * at[7]) + (outer_odd + inner_odd);
  d[6] = (even - at[0]) + (outer_even + inner_even);
  d[7] = at[7];
}

}  // namespace CAMU_SET
