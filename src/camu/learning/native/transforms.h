// The transforms of Winograd's F(4, 5): 4 outputs of a 5-tap filter from 8 inputs with 8 multiplications
// instead of 20 (Lavin and Gray, "Fast algorithms for convolutional neural networks", 2016).
//
// Inputs and weights are taken as polynomials and evaluated at eight points; the values are multiplied
// point by point, and an inverse transform gives the outputs.
#pragma once
#include "vectors.h"

namespace CAMU_SET {

// The points are 0, 1, -1, 2, -2, 1/2, -1/2 and infinity.
constexpr int POINTS = 8;
constexpr int TILE = 4;  // neighbouring outputs of one transform

// The input transform: eight neighbouring inputs, evaluated at the points.
INLINE void transform_inputs(const Vector d[POINTS], Vector at[POINTS]) {
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

// The weight transform: the five taps g(k), evaluated at the points and scaled by the inverse of the
// input transform's factor.
template <class Read, class Write>
INLINE void transform_weights(Read g, Write write) {
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

// The inverse transform: four neighbouring outputs from the products at the points.
INLINE void transform_outputs(const Vector at[POINTS], Vector out[TILE]) {
  Vector even = at[1] + at[2], odd = at[1] - at[2];
  Vector outer_even = at[3] + at[4], outer_odd = at[3] - at[4];
  Vector inner_even = at[5] + at[6], inner_odd = at[5] - at[6];
  out[0] = (at[0] + even) + (outer_even + inner_even);
  out[1] = odd + 2 * outer_odd + 0.5f * inner_odd;
  out[2] = even + 4 * outer_even + 0.25f * inner_even;
  out[3] = (odd + at[7]) + 8 * outer_odd + 0.125f * inner_odd;
}

// For gradients, the adjoints (transposed matrices) of the inverse and of the input transform: from the
// gradients of four outputs to the points, and from the points to the gradients of eight inputs.
INLINE void adjoint_of_outputs(const Vector out[TILE], Vector at[POINTS]) {
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

INLINE void adjoint_of_inputs(const Vector at[POINTS], Vector d[POINTS]) {
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
