// The argmax of 2x2 max-pooling, recomputed in double precision for near-ties.
//
// Winograd's transforms round the four candidates of a cell in different ways. If two of them are nearly
// equal, rounding could select the wrong one, which hardly changes the maximum but changes the gradient.
// About one cell in a thousand is such a near-tie.
#pragma once
#include "stage.h"

namespace CAMU_SET {

// Two candidates are a near-tie if they differ by at most this fraction of (sum of |weights|) * (largest
// |input|), which bounds a candidate. The largest rounding error that was seen is 4e-7 of it.
constexpr float TIE_TOLERANCE = 4e-6f;

// The sum of the absolute values of an output's weights.
template <class S>
INLINE float sum_of_magnitudes(const float* weights) {
  constexpr int count = S::inputs * S::taps;
  Vector sizes{};
  for (int first = 0; first < count; first += LANES) {
    Vector some{};
    memcpy(&some, weights + first, (count - first < LANES ? count - first : LANES) * sizeof(float));
    sizes += larger(some, -some);
  }
  return sum(sizes);
}

// The subset of the `asked` lanes in which, channel by channel, all pixels under a cell are equal.
template <class S>
NOINLINE static unsigned flat_lanes(const Vector* corner, unsigned asked) {
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
NOINLINE static int8_t exact_winner(const float* corner, const float* weights) {
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
NOINLINE static void resolve_ties(unsigned undecided, const Vector* corner, const float* weights,
                         int8_t* winner) {
  const unsigned flat = flat_lanes<S>(corner, undecided);
  for (; undecided; undecided &= undecided - 1) {
    int lane = __builtin_ctz(undecided);
    winner[lane] =
        flat >> lane & 1 ? 0 : exact_winner<S>((const float*)corner + lane, weights);
  }
}

// Returns the maximum of a cell's candidates and writes the argmax of each lane. In the first `exact`
// lanes, candidates that differ by at most `near` are compared in double precision. Two zero candidates
// come from all-zero inputs, so they tie and the first one wins.
template <class S>
INLINE Vector argmax_with_ties(const Vector candidate[4], Vector near, int exact,
                             const Vector* corner, const float* weights, ByteVector* winner) {
  Vector second, best = winner_of(candidate, winner, &second);
  unsigned undecided = lanes_up_to(best - second, near) & ((1u << exact) - 1);
  if (__builtin_expect(undecided != 0, 0)) {
    undecided &= ~lanes_up_to(larger(best, -second), Vector{});
    if (undecided) resolve_ties<S>(undecided, corner, weights, (int8_t*)winner);
  }
  return best;
}

}  // namespace CAMU_SET
