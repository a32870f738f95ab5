// The gradient of a second stage's inputs: winners only, input channels as lanes.
//
// A winner adds its gradient times the weights to the 5x5 inputs under it. Where these lie depends on
// the winner, so the sums would have to be read from memory and written again for each one. Instead,
// the weights have a border of zeros, and each cell adds to all 6x6 inputs that its candidates cover.
// The sums of a row of pixels then have fixed places in registers. The zeros take less time than the
// writing did, and a sum gets the same numbers in the same order: outputs, then cells, row by row.
//
// Ten channels are eight lanes and two more. Those of neighbouring pixels share a vector.
#pragma once
#include "second.h"

namespace CAMU_SET {

template <class S>
struct InputGradient {
  static_assert(S::side == 2 * S::cells_in_row + S::kernel - 1, "cells cover all pixels");

  void begin(const float* parameters) {
    for (int o = 0; o < S::outputs; o++)
      for (int ky = 0; ky < S::kernel; ky++) {
        float* row = weights + (o * (S::kernel + 2) + ky + 1) * weight_row;
        const float* from = parameters + o * S::inputs * S::taps + ky * S::kernel;
        for (int kx = 0; kx < S::kernel; kx++)
          for (int i = 0; i < MAIN; i++) row[(kx + 1) * MAIN + i] = from[i * S::taps + kx];
        pack_more(from + MAIN * S::taps, row + more_weights);
      }
  }

  // One block: the gradients of the cells of a sample are `gradient_row` apart.
  void add(const ByteVector* winners, const float* cell_gradients, long gradient_row,
           int samples) {
    find_shifts(winners);
    for (int first = 0; first < S::outputs; first += group)
      for (int s = 0; s < samples; s++)
        for (int y = 0; y < S::side; y++) add_row(cell_gradients + s * gradient_row, s, first, y);
  }

  // After a block: the gradients of one channel without the padding.
  CellValues of(int sample, int channel, int padding) const {
    const int y = sample * S::side + padding;
    if (channel < MAIN) return {main + y * main_row + padding * MAIN + channel, main_row, MAIN};
    return {more + y * more_row + padding * 2 + channel - MAIN, more_row, 2};
  }

 private:
  static constexpr int n = S::cells_in_row;
  static constexpr int group = 5;               // outputs whose weights stay in the first cache
  static constexpr int window = S::kernel + 1;  // side of what a cell's candidates cover
  static constexpr int main_row = S::side * MAIN, more_row = rounded_up(S::side * 2, MAIN);
  // A row of weights: those of the eight channels, with a border of one tap; then those of the other
  // two as four vectors, which begin 4 numbers before the window, with it, and 4 and 8 after that.
  // Each of these is there twice, for a winner on the right and on the left.
  static constexpr int more_weights = (S::kernel + 2) * MAIN;
  static constexpr int weight_row = more_weights + 4 * 2 * MAIN;

  static void pack_more(const float* from, float* to) {
    float padded[24] = {};  // from 6 numbers before the kernel on
    for (int kx = 0; kx < S::kernel; kx++)
      for (int i = 0; i < 2; i++) padded[6 + 2 * kx + i] = from[i * S::taps + kx];
    for (int k = 0; k < 4; k++)
      for (int left = 0; left < 2; left++)
        memcpy(to + (2 * k + left) * MAIN, padded + 4 * k + 2 * left, MAIN * sizeof(float));
  }

  // Where a cell's weights begin: the winner shifts the kernel inside the border.
  void find_shifts(const ByteVector* winners) {
    for (int i = 0; i < S::outputs * S::cells; i++) {
      const int8_t* winner = (const int8_t*)(winners + i);
      for (int s = 0; s < LANES; s++)
        shifts[s * S::outputs * S::cells + i] =
            (1 - (winner[s] >> 1)) * weight_row + (1 - (winner[s] & 1)) * MAIN;
    }
  }

  // One row of pixels of one sample, and one group of outputs. One to three rows of cells cover it.
  void add_row(const float* own, int s, int first, int y) {
    const int top = y > S::kernel ? (y - S::kernel + 1) / 2 : 0, bottom = y / 2 < n ? y / 2 : n - 1;
    if (bottom == top) add_cells<1>(own, s, first, y, top);
    if (bottom == top + 1) add_cells<2>(own, s, first, y, top);
    if (bottom == top + 2) add_cells<3>(own, s, first, y, top);
  }

  template <int ROWS>
  void add_cells(const float* own, int s, int first, int y, int top) {
    float* to = main + (s * S::side + y) * main_row;
    float* to_more = more + (s * S::side + y) * more_row;
    const int32_t* shift = shifts + s * S::outputs * S::cells;
    MainVector sums[S::side] = {}, more_sums[more_row / MAIN] = {};
    if (first > 0) {
      UNROLL for (int x = 0; x < S::side; x++) sums[x] = *(MainVector*)(to + x * MAIN);
      UNROLL for (int v = 0; v < more_row / MAIN; v++)
        more_sums[v] = *(MainVector*)(to_more + v * MAIN);
    }
    for (int o = first; o < first + group; o++)
      UNROLL for (int r = 0; r < ROWS; r++) {
        const float* row = weights + (o * (S::kernel + 2) + y - 2 * (top + r)) * weight_row;
        UNROLL for (int cx = 0; cx < n; cx++) {
          int cell = o * S::cells + (top + r) * n + cx;
          add_cell(own[cell], row + shift[cell], cx, sums, more_sums);
        }
      }
    UNROLL for (int x = 0; x < S::side; x++) *(MainVector*)(to + x * MAIN) = sums[x];
    UNROLL for (int v = 0; v < more_row / MAIN; v++)
      *(MainVector*)(to_more + v * MAIN) = more_sums[v];
  }

  INLINE void add_cell(float gradient, const float* weight, int cx, MainVector* sums,
                       MainVector* more_sums) {
    MainVector g = gradient - MainVector{};
    UNROLL for (int x = 0; x < window; x++)
      sums[2 * cx + x] += g * *(const MainVector*)(weight + x * MAIN);
    // The window begins at 4 cx, in the middle of a vector if cx is odd.
    UNROLL for (int k = 1 - cx % 2; k < 4 && 4 * k - 4 < 2 * window; k += 2)
      more_sums[(cx + k - 1) / 2] += g * *(const MainVector*)(weight + more_weights + 2 * k * MAIN);
  }

  alignas(64) float weights[S::outputs * (S::kernel + 2) * weight_row] = {};
  alignas(64) float main[LANES * S::side * main_row];  // [sample][pixel][channel]
  alignas(64) float more[LANES * S::side * more_row];  // [sample][row][pixel][other channel]
  int32_t shifts[LANES * S::outputs * S::cells];       // of each winner, in floats
};

}  // namespace CAMU_SET
