// A convolution with 2x2 max-pooling, forward.
//
// The lanes of a vector are LANES samples: whatever the number of channels, no lane is wasted, and
// the maximum of a pooling cell is taken in registers. Only the maximum and the number of the winning
// candidate (0 to 3, row by row) are stored.
//
// In the gradients of the weights, three of four candidates have no part, and only the winners are
// visited, sample by sample: first.h and second.h.
#pragma once
#include <string.h>

#include "vectors.h"

namespace CAMU_SET {

// Sizes of one stage. SIDE includes the padding.
template <int INPUTS, int OUTPUTS, int SIDE, int KERNEL>
struct Stage {
  static constexpr int inputs = INPUTS, outputs = OUTPUTS, side = SIDE, kernel = KERNEL;
  static constexpr int pixels = SIDE * SIDE;
  static constexpr int taps = KERNEL * KERNEL;
  static constexpr int cells_in_row = (SIDE - KERNEL + 1) / 2;
  static constexpr int cells = cells_in_row * cells_in_row;
  static constexpr int weights = OUTPUTS * INPUTS * taps;
};

// Output channels that share the inputs in registers: four sums each.
constexpr int FORWARD_OUTPUTS = LANES == 16 ? 5 : 2;

// Weights in the order in which the forward pass reads them: [group][input][tap][output of group].
template <class S>
INLINE void pack_forward(const float* weights, float* packed) {
  for (int group = 0; group < S::outputs; group += FORWARD_OUTPUTS)
    for (int t = 0; t < S::inputs * S::taps; t++)
      for (int o = 0; o < FORWARD_OUTPUTS; o++)
        *packed++ = weights[(group + o) * S::inputs * S::taps + t];
}

INLINE Vector maximum_of(const Vector candidate[4]) {
  return larger(larger(candidate[0], candidate[1]), larger(candidate[2], candidate[3]));
}

// The maximum of the four candidates of a cell, the second largest, and which one won; the first of
// equal ones wins, as in torch.
INLINE Vector winner_of(const Vector candidate[4], ByteVector* winner, Vector* second) {
  IntVector left = candidate[0] >= candidate[1], lower_left = candidate[2] >= candidate[3];
  Vector upper = larger(candidate[0], candidate[1]), lower = larger(candidate[2], candidate[3]);
  Vector upper_loser = smaller(candidate[0], candidate[1]);
  Vector lower_loser = smaller(candidate[2], candidate[3]);
  IntVector zero{};
  IntVector is_upper = upper >= lower;
  IntVector upper_number = left ? zero : zero + 1;
  IntVector lower_number = lower_left ? zero + 2 : zero + 3;
  *winner = __builtin_convertvector(is_upper ? upper_number : lower_number, ByteVector);
  *second = larger(smaller(upper, lower), is_upper ? upper_loser : lower_loser);
  return larger(upper, lower);
}

// One cell, FORWARD_OUTPUTS channels.
template <class S>
INLINE void forward_cell(const Vector* corner, const float* packed,
                         Vector sums[FORWARD_OUTPUTS][4]) {
  UNROLL for (int o = 0; o < FORWARD_OUTPUTS; o++)
    UNROLL for (int c = 0; c < 4; c++) sums[o][c] = Vector{};
  for (int input = 0; input < S::inputs; input++)
    for (int ky = 0; ky < S::kernel; ky++) {
      const Vector* upper = corner + (input * S::side + ky) * S::side;
      const Vector* lower = upper + S::side;
      UNROLL for (int kx = 0; kx < S::kernel; kx++) {
        Vector a = upper[kx], b = upper[kx + 1], c = lower[kx], d = lower[kx + 1];
        UNROLL for (int o = 0; o < FORWARD_OUTPUTS; o++) {
          Vector weight = all(packed[kx * FORWARD_OUTPUTS + o]);
          sums[o][0] += weight * a;
          sums[o][1] += weight * b;
          sums[o][2] += weight * c;
          sums[o][3] += weight * d;
        }
      }
      packed += S::kernel * FORWARD_OUTPUTS;
    }
}

// x is [input][row][column]; the output has rows of `out_side` with a border of PADDING.
template <class S, int PADDING>
NOINLINE static void forward(const Vector* x, const float* packed, const float* bias, Vector* out,
                          ByteVector* winners) {
  constexpr int n = S::cells_in_row, out_side = n + 2 * PADDING;
  constexpr int group_weights = FORWARD_OUTPUTS * S::inputs * S::taps;
  for (int cy = 0; cy < n; cy++)
    for (int cx = 0; cx < n; cx++)
      for (int group = 0; group < S::outputs / FORWARD_OUTPUTS; group++) {
        Vector sums[FORWARD_OUTPUTS][4];
        forward_cell<S>(x + 2 * cy * S::side + 2 * cx, packed + group * group_weights, sums);
        Vector second;
        UNROLL for (int o = 0; o < FORWARD_OUTPUTS; o++) {
          int channel = group * FORWARD_OUTPUTS + o;
          ByteVector* winner = winners + channel * S::cells + cy * n + cx;
          // The bias is the same for all candidates, so it may follow the maximum.
          out[(channel * out_side + cy + PADDING) * out_side + cx + PADDING] =
              winner_of(sums[o], winner, &second) + all(bias[channel]);
        }
      }
}

// The winners of LANES samples.
INLINE IntVector widened(const ByteVector* winners) {
#ifdef __AVX512F__
  return (IntVector)_mm512_cvtepi8_epi32(_mm_load_si128((const __m128i*)winners));
#elif defined(__AVX2__)
  return (IntVector)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)winners));
#else
  return __builtin_convertvector(*winners, IntVector);
#endif
}

// The gradients of the inputs, [input][row][column], from those of the cells, [output][cell]. The
// sums of a row of pixels, for two inputs, stay in registers.
template <class S>
NOINLINE static void backward(const Vector* cells, const ByteVector* winners, const float* weights,
                           Vector* x) {
  constexpr int n = S::cells_in_row, inputs = 2;
  Vector dense[S::outputs][2 * n][2 * n];  // zero where a candidate did not win
  for (int place = 0; place < S::outputs * S::cells; place++) {
    const int o = place / S::cells, cy = place % S::cells / n, cx = place % S::cells % n;
    for (int c = 0; c < 4; c++)
      dense[o][2 * cy + c / 2][2 * cx + c % 2] =
          widened(winners + place) == c ? cells[place] : Vector{};
  }
  for (int first = 0; first < S::inputs; first += inputs)
    for (int y = 0; y < S::side; y++) {
      Vector sums[inputs][S::side] = {};
      for (int o = 0; o < S::outputs; o++)
        for (int ky = 0; ky < S::kernel; ky++) {
          if (y < ky || y - ky >= 2 * n) continue;
          const float* weight = weights + (o * S::inputs + first) * S::taps + ky * S::kernel;
          UNROLL for (int c = 0; c < 2 * n; c++)
            UNROLL for (int kx = 0; kx < S::kernel; kx++)
              UNROLL for (int i = 0; i < inputs; i++)
                sums[i][c + kx] += all(weight[i * S::taps + kx]) * dense[o][y - ky][c];
        }
      UNROLL for (int i = 0; i < inputs; i++)
        UNROLL for (int c = 0; c < S::side; c++)
          x[((first + i) * S::side + y) * S::side + c] = sums[i][c];
    }
}

}  // namespace CAMU_SET
