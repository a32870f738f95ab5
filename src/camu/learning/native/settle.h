// Winners of pooling cells that are right although candidates are rounded in different ways.
//
// Where two candidates are nearly equal, rounding could choose another winner, which hardly changes the
// maximum but does change the gradient. The winner of such a cell, one of a thousand, is found in double
// precision.
#pragma once
#include "stage.h"

namespace CAMU_SET {

// Two candidates are nearly equal if their distance is at most this part of the sum of the sizes of
// the weights times the largest input. The largest error of a candidate that was seen is 4e-7.
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

// The lanes, of those asked for, in which all pixels under a cell are equal in each channel.
template <class S>
ALONE static unsigned flat_lanes(const Vector* corner, unsigned asked) {
  for (int i = 0; i < S::inputs; i++, corner += S::pixels) {
    Vector least = corner[0], most = corner[0];
    for (int y = 0; y <= S::kernel; y++)
      for (int x = 0; x <= S::kernel; x++) {
        least = smaller(least, corner[y * S::side + x]);
        most = larger(most, corner[y * S::side + x]);
      }
    asked &= lanes_up_to(most, least);
    if (!asked) break;
  }
  return asked;
}

// The winner of a cell in one lane, in double precision. The first of equal candidates wins.
template <class S>
ALONE static int8_t exact_winner(const float* corner, const float* weights) {
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

template <class S>
ALONE static void settle(unsigned doubtful, const Vector* corner, const float* weights,
                         int8_t* winner) {
  const unsigned flat = flat_lanes<S>(corner, doubtful);
  for (; doubtful; doubtful &= doubtful - 1) {
    int lane = __builtin_ctz(doubtful);
    winner[lane] =
        flat >> lane & 1 ? 0 : exact_winner<S>((const float*)corner + lane, weights);
  }
}

// The maximum of the candidates of a cell, and the winners. Those of the first `exact` lanes are
// right also where candidates are `near` each other. Two zeros are sums of zeros, and equal.
template <class S>
INLINE Vector settled_winner(const Vector candidate[4], Vector near, int exact,
                             const Vector* corner, const float* weights, ByteVector* winner) {
  Vector second, best = winner_of(candidate, winner, &second);
  unsigned doubtful = lanes_up_to(best - second, near) & ((1u << exact) - 1);
  if (__builtin_expect(doubtful != 0, 0)) {
    doubtful &= ~lanes_up_to(larger(best, -second), Vector{});
    if (doubtful) settle<S>(doubtful, corner, weights, (int8_t*)winner);
  }
  return best;
}

}  // namespace CAMU_SET
