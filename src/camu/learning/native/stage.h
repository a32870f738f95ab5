// A convolution with 2x2 max-pooling, forward and backward.
//
// Forward, the lanes of a vector are LANES samples: whatever the number of channels, no lane is
// wasted, and the maximum of a pooling cell is taken in registers. Only the maximum and the number
// of the winning candidate (0 to 3, row by row) are stored.
//
// Backward, three of four candidates have no gradient. The weight gradient of a first stage, whose
// input has one or three channels, is still computed densely with samples as lanes (DenseGradient). A
// second stage turns the lanes to input channels, and visits the winners only (SparseGradient). The
// gradient of its inputs is in inputs.h.
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

// The maximum of the four candidates of a cell; the first of equal ones wins, as in torch.
INLINE Vector winner_of(const Vector candidate[4], ByteVector* winner) {
  IntVector left = candidate[0] >= candidate[1], lower_left = candidate[2] >= candidate[3];
  Vector upper = left ? candidate[0] : candidate[1];
  Vector lower = lower_left ? candidate[2] : candidate[3];
  IntVector zero{};
  IntVector upper_number = left ? zero : zero + 1;
  IntVector lower_number = lower_left ? zero + 2 : zero + 3;
  IntVector is_upper = upper >= lower;
  *winner = __builtin_convertvector(is_upper ? upper_number : lower_number, ByteVector);
  return is_upper ? upper : lower;
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
ALONE static void forward(const Vector* x, const float* packed, const float* bias, Vector* out,
                          ByteVector* winners) {
  constexpr int n = S::cells_in_row, out_side = n + 2 * PADDING;
  constexpr int group_weights = FORWARD_OUTPUTS * S::inputs * S::taps;
  for (int cy = 0; cy < n; cy++)
    for (int cx = 0; cx < n; cx++)
      for (int group = 0; group < S::outputs / FORWARD_OUTPUTS; group++) {
        Vector sums[FORWARD_OUTPUTS][4];
        forward_cell<S>(x + 2 * cy * S::side + 2 * cx, packed + group * group_weights, sums);
        UNROLL for (int o = 0; o < FORWARD_OUTPUTS; o++) {
          int channel = group * FORWARD_OUTPUTS + o;
          ByteVector* winner = winners + channel * S::cells + cy * n + cx;
          // The bias is the same for all candidates, so it may follow the maximum.
          out[(channel * out_side + cy + PADDING) * out_side + cx + PADDING] =
              winner_of(sums[o], winner) + all(bias[channel]);
        }
      }
}

// ---------------------------------------------------------------------------------------------
// The weight gradient of a first stage: all candidates of one row of cells, samples as lanes.

constexpr int DENSE_OUTPUTS = LANES == 16 ? 5 : 2;

template <class S>
struct DenseGradient {
  Vector row[DENSE_OUTPUTS * 4 * S::cells_in_row];  // gradients of the candidates of a row
  Vector weights[S::weights];                       // sums over the samples of a lane
  Vector biases[S::outputs];

  void reset() {
    memset(weights, 0, sizeof weights);
    memset(biases, 0, sizeof biases);
  }

  // gradients is [output][cell].
  void add(const Vector* x, const Vector* gradients, const ByteVector* winners) {
    for (int o = 0; o < S::outputs; o++)
      for (int c = 0; c < S::cells; c++) biases[o] += gradients[o * S::cells + c];
    for (int first = 0; first < S::outputs; first += DENSE_OUTPUTS)
      for (int cy = 0; cy < S::cells_in_row; cy++) {
        unpool_row(gradients, winners, first, cy);
        for (int input = 0; input < S::inputs; input++)
          for (int ky = 0; ky < S::kernel; ky++) add_row(x, first, cy, input, ky);
      }
  }

  // Torch's order of weights; `to` is added to nothing.
  void write(float* to_weights, float* to_biases) const {
    sums_of(weights, S::weights, to_weights);
    sums_of(biases, S::outputs, to_biases);
  }

 private:
  static constexpr int width = 2 * S::cells_in_row;

  void unpool_row(const Vector* gradients, const ByteVector* winners, int first, int cy) {
    for (int o = 0; o < DENSE_OUTPUTS; o++)
      for (int cx = 0; cx < S::cells_in_row; cx++) {
        int cell = (first + o) * S::cells + cy * S::cells_in_row + cx;
        IntVector winner = __builtin_convertvector(winners[cell], IntVector);
        Vector value = gradients[cell], zero{};
        Vector* upper = row + o * 2 * width + 2 * cx;
        upper[0] = winner == 0 ? value : zero;
        upper[1] = winner == 1 ? value : zero;
        upper[width] = winner == 2 ? value : zero;
        upper[width + 1] = winner == 3 ? value : zero;
      }
  }

  // One row of the kernel, DENSE_OUTPUTS channels.
  ALONE void add_row(const Vector* x, int first, int cy, int input, int ky) {
    Vector sums[DENSE_OUTPUTS][S::kernel];
    Vector* target = weights + (first * S::inputs + input) * S::taps + ky * S::kernel;
    constexpr int next = S::inputs * S::taps;
    UNROLL for (int o = 0; o < DENSE_OUTPUTS; o++)
      UNROLL for (int k = 0; k < S::kernel; k++) sums[o][k] = target[o * next + k];
    for (int y = 0; y < 2; y++) {
      const Vector* pixels = x + (input * S::side + 2 * cy + y + ky) * S::side;
      const Vector* candidates = row + y * width;
#pragma GCC unroll 4
      for (int u = 0; u < width; u++)
        UNROLL for (int o = 0; o < DENSE_OUTPUTS; o++) {
          Vector gradient = candidates[o * 2 * width + u];
          UNROLL for (int k = 0; k < S::kernel; k++) sums[o][k] += gradient * pixels[u + k];
        }
    }
    UNROLL for (int o = 0; o < DENSE_OUTPUTS; o++)
      UNROLL for (int k = 0; k < S::kernel; k++) target[o * next + k] = sums[o][k];
  }
};

// ---------------------------------------------------------------------------------------------
// The weight gradient of a second stage, winners only, input channels as lanes.

template <class S>
struct SparseGradient {
  static constexpr int width = rounded_up(S::inputs, 16);  // of a pixel, in floats
  static constexpr int used = (S::inputs + LANES - 1) / LANES;
  // Sums that are held in registers: the whole kernel, or one row of it.
  static constexpr int tile_taps = LANES == 16 ? S::taps : S::kernel;

  float inputs[LANES * S::pixels * width];      // [sample][pixel][channel]
  int32_t places[LANES * S::outputs * S::cells];  // first input of each winner, in floats
  float weights[S::outputs * S::taps * width];    // gradient as [output][tap][channel]

  void reset() { memset(weights, 0, sizeof weights); }

  // One block: x is [input][pixel] with samples as lanes; the gradients of the cells of a sample are
  // `gradient_row` apart. also(sample, output, gradients, places) is called for the winners of each.
  template <class Also>
  void add(const Vector* x, const ByteVector* winners, const float* cell_gradients,
           long gradient_row, int samples, Also also) {
    turn_inputs(x);
    find_places(winners);
    for (int s = 0; s < samples; s++)
      for (int o = 0; o < S::outputs; o++) {
        const float* own = cell_gradients + s * gradient_row + o * S::cells;
        const int32_t* at = places + (s * S::outputs + o) * S::cells;
        add_weights(inputs + s * S::pixels * width, own, at, o);
        also(s, o, own, at);
      }
  }

  // Torch's order of weights. Squares of the matrix [tap][channel] of an output are turned; the last
  // one begins earlier, so that it ends with the taps.
  void write(float* to) const {
    constexpr int size = S::taps < LANES ? S::taps : LANES;
    for (int o = 0; o < S::outputs; o++, to += S::inputs * S::taps)
      for (int t = 0; t < S::taps; t += size) {
        const int first = t + size <= S::taps ? t : S::taps - size;
        for (int v = 0; v < used; v++) write_square(o, first, size, v * LANES, to);
      }
  }

 private:
  void write_square(int output, int first, int size, int channel, float* to) const {
    const float* from = weights + (output * S::taps + first) * width + channel;
    transpose([&](int t) { return t < size ? load(from + t * width) : Vector{}; },
              [&](int i, Vector taps) {
                if (channel + i < S::inputs)
                  memcpy(to + (channel + i) * S::taps + first, &taps, size * sizeof(float));
              });
  }

  void turn_inputs(const Vector* x) {
    for (int q = 0; q < S::pixels; q++)
      UNROLL for (int v = 0; v < used; v++)
        transpose(
            [&](int i) {
              int channel = v * LANES + i;
              return channel < S::inputs ? x[channel * S::pixels + q] : Vector{};
            },
            [&](int s, Vector channels) {
              *(Vector*)(inputs + (s * S::pixels + q) * width + v * LANES) = channels;
            });
  }

  void find_places(const ByteVector* winners) {
    for (int o = 0; o < S::outputs; o++)
      for (int c = 0; c < S::cells; c++) {
        const int8_t* winner = (const int8_t*)(winners + o * S::cells + c);
        int corner = 2 * (c / S::cells_in_row) * S::side + 2 * (c % S::cells_in_row);
        for (int s = 0; s < LANES; s++)
          places[(s * S::outputs + o) * S::cells + c] =
              (corner + (winner[s] >> 1) * S::side + (winner[s] & 1)) * width;
      }
  }

  static constexpr int tap_offset(int t) {
    return (t / S::kernel * S::side + t % S::kernel) * width;
  }

  // For each winner: gradient of the weights += gradient of the cell * inputs under the kernel.
  INLINE void add_tile(const float* pixels, const float* own, const int32_t* at, float* target,
                       int first) {
    Vector sums[tile_taps][used];
    UNROLL for (int t = 0; t < tile_taps; t++)
      UNROLL for (int v = 0; v < used; v++)
        sums[t][v] = *(Vector*)(target + (first + t) * width + v * LANES);
    const float* shifted = pixels + tap_offset(first);
    for (int c = 0; c < S::cells; c++) {
      Vector gradient = all(own[c]);
      UNROLL for (int t = 0; t < tile_taps; t++)
        UNROLL for (int v = 0; v < used; v++)
          sums[t][v] +=
              gradient * *(const Vector*)(shifted + at[c] + tap_offset(t) + v * LANES);
    }
    UNROLL for (int t = 0; t < tile_taps; t++)
      UNROLL for (int v = 0; v < used; v++)
        *(Vector*)(target + (first + t) * width + v * LANES) = sums[t][v];
  }

  ALONE void add_weights(const float* pixels, const float* own, const int32_t* at, int output) {
    for (int first = 0; first < S::taps; first += tile_taps)
      add_tile(pixels, own, at, weights + output * S::taps * width, first);
  }
};

}  // namespace CAMU_SET
