// The weight gradient of a first stage: winners only, the taps of a row of the kernel as lanes.
//
// An input with one or three channels has too few of them for lanes. A row of the kernel has five
// taps (or three), and the pixels under it lie side by side, so it takes one vector of eight numbers;
// what its last lanes add up is not used. A winner costs as many products as the kernel has rows.
#pragma once
#include "stage.h"

namespace CAMU_SET {

constexpr int ROW = 8;  // lanes of a row of the kernel
typedef float RowVector __attribute__((vector_size(ROW * 4), may_alias));
typedef float LooseRow __attribute__((vector_size(ROW * 4), aligned(4), may_alias));

template <class S, int PADDING>
struct FirstGradient {
  FirstGradient() {
    for (int cx = 0; cx < n; cx++)
      for (int winner = 0; winner < 4; winner++) {
        int x = 2 * cx + winner % 2;
        places[cx * 4 + winner] = winner / 2 * pitch + x + (x % 16 > 16 - ROW ? copy : 0);
      }
  }

  void reset() {
    memset(weights, 0, sizeof weights);
    memset(biases, 0, sizeof biases);
  }

  // The pixels of one sample, in [0, 1], inside the padding.
  void take(const uint8_t* image) {
    for (int row = 0; row < S::inputs * inner; row++, image += inner) {
      float* to = pixels + (row / inner * S::side + row % inner + PADDING) * pitch + PADDING;
      UNROLL for (int first = 0; first < inner; first += LANES) {
        // The last vector of a row begins earlier, so that it ends with the row.
        const int x = first + LANES <= inner || first == 0 ? first : inner - LANES;
        uint8_t bytes[LANES] = {};
        memcpy(bytes, image + x, inner < LANES ? inner : LANES);
        store(to + x, load_pixels(bytes));
        store(to + copy + x, load_pixels(bytes));
      }
    }
  }

  // The gradients of that sample's cells in one output. The winners of its cells are LANES apart.
  NOINLINE void add(int output, const float* gradients, const int8_t* winners) {
    RowVector sums[sets][rows] = {};
    float totals[sets] = {};
    for (int cy = 0; cy < n; cy++)
      for (int cx = 0; cx < n; cx += sets)
        UNROLL for (int set = 0; set < sets; set++) {
          int cell = cy * n + cx + set;
          float gradient = gradients[cell];
          const float* window =
              pixels + 2 * cy * pitch + places[(cx + set) * 4 + winners[cell * LANES]];
          totals[set] += gradient;
          UNROLL for (int r = 0; r < rows; r++)
            sums[set][r] += gradient * *(const LooseRow*)(window + row_offset(r));
        }
    UNROLL for (int set = 0; set < sets; set++) biases[output] += totals[set];
    RowVector* to = weights + output * rows;
    UNROLL for (int set = 0; set < sets; set++)
      UNROLL for (int r = 0; r < rows; r++) to[r] += sums[set][r];
  }

  // Torch's order of weights.
  void write(float* to_weights, float* to_biases) const {
    for (int r = 0; r < S::outputs * rows; r++)
      for (int k = 0; k < S::kernel; k++) to_weights[r * S::kernel + k] = weights[r][k];
    memcpy(to_biases, biases, sizeof biases);
  }

 private:
  static constexpr int n = S::cells_in_row, inner = S::side - 2 * PADDING;
  static constexpr int rows = S::inputs * S::kernel;  // of the kernel, in all channels
  static constexpr int sets = S::inputs == 1 ? 2 : 1;  // of sums, so that additions need not wait
  static constexpr int pitch = rounded_up(S::side + ROW - S::kernel, 16);
  // A second copy of the pixels lies half a line of the cache further on: in one of the two, a
  // vector lies within a line.
  static constexpr int copy = rounded_up(S::inputs * S::side * pitch, 16) + ROW;
  static_assert(S::kernel <= ROW && n % sets == 0, "a row of the kernel fits, sets are whole");

  static constexpr int row_offset(int r) {
    return (r / S::kernel * S::side + r % S::kernel) * pitch;
  }

  alignas(64) float pixels[copy + rounded_up(S::inputs * S::side * pitch, 16) + 16] = {};
  RowVector weights[S::outputs * rows];  // [output][input][row of the kernel], ROW taps
  float biases[S::outputs];
  int32_t places[n * 4];  // of the winners of a row of cells, in pixels
};

}  // namespace CAMU_SET
