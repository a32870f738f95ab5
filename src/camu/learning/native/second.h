// The weight gradient of a second stage: winners only, input channels as lanes.
//
// Ten channels are eight lanes and two more. The two more of the pixels under a row of the kernel,
// ten numbers, share a vector of their own. They are copied side by side for every place that a
// winner may have, once for each sample.
#pragma once
#include "first.h"

namespace CAMU_SET {

constexpr int MAIN = 8;  // channels that are lanes
typedef float MainVector __attribute__((vector_size(MAIN * 4), may_alias));

template <class S>
struct SecondGradient {
  static_assert(S::inputs == MAIN + 2, "eight channels and two more");

  void reset() {
    memset(main_sums, 0, sizeof main_sums);
    memset(more_sums, 0, sizeof more_sums);
  }

  // One block: x is [input][pixel] with samples as lanes.
  void begin(const Vector* x, const ByteVector* winners) {
    turn_inputs(x);
    find_places(winners);
  }

  // A sample of the block, and the gradients of its cells.
  void add(int s, const float* cell_gradients) {
    copy_windows(s);
    for (int o = 0; o < S::outputs; o++)
      add_output(main + s * S::pixels * MAIN, cell_gradients + o * S::cells,
                 places + (s * S::outputs + o) * S::cells, o);
  }

  // Torch's order of weights.
  void write(float* to) const {
    for (int o = 0; o < S::outputs; o++, to += S::inputs * S::taps)
      for (int t = 0; t < S::taps; t++) {
        for (int i = 0; i < MAIN; i++)
          to[i * S::taps + t] = main_sums[(o * S::taps + t) * MAIN + i];
        for (int i = 0; i < 2; i++)
          to[(MAIN + i) * S::taps + t] =
              more_sums[(o * S::kernel + t / S::kernel) * window + t % S::kernel * 2 + i];
      }
  }

 private:
  static constexpr int vectors = (2 * S::kernel + LANES - 1) / LANES;  // of a window
  static constexpr int window = vectors * LANES;
  static constexpr int more_row = rounded_up(2 * S::side, LANES) + LANES;
  // Rows of the kernel whose sums are held in registers.
  static constexpr int tile = LANES == 16 ? S::kernel : 1;

  void turn_inputs(const Vector* x) {
    for (int q = 0; q < S::pixels; q++)
      for (int first = 0; first < S::inputs; first += LANES)
        transpose(
            [&](int i) {
              return first + i < S::inputs ? x[(first + i) * S::pixels + q] : Vector{};
            },
            [&](int s, Vector channels) { put_channels(s, q, first, channels); });
  }

  // From channel `first` on, of one pixel of one sample.
  INLINE_MEMBER void put_channels(int s, int q, int first, Vector channels) {
    const float* from = (const float*)&channels;
    if (first == 0) memcpy(main + (s * S::pixels + q) * MAIN, from, MAIN * sizeof(float));
    if (first + LANES > MAIN)
      memcpy(more + (s * S::side + q / S::side) * more_row + q % S::side * 2, from + MAIN - first,
             2 * sizeof(float));
  }

  void find_places(const ByteVector* winners) {
    for (int o = 0; o < S::outputs; o++)
      for (int c = 0; c < S::cells; c++) {
        const int8_t* winner = (const int8_t*)(winners + o * S::cells + c);
        int corner = 2 * (c / S::cells_in_row) * S::side + 2 * (c % S::cells_in_row);
        for (int s = 0; s < LANES; s++)
          places[(s * S::outputs + o) * S::cells + c] =
              (corner + (winner[s] >> 1) * S::side + (winner[s] & 1)) * MAIN;
      }
  }

  void copy_windows(int s) {
    for (int y = 0; y < S::side; y++)
      for (int x = 0; x < 2 * S::cells_in_row; x++)
        UNROLL for (int v = 0; v < vectors; v++)
          store(windows + (y * S::side + x) * window + v * LANES,
                load(more + (s * S::side + y) * more_row + 2 * x + v * LANES));
  }

  // For each winner: gradient of the weights += gradient of the cell * inputs under the kernel.
  ALONE void add_output(const float* pixels, const float* own, const int32_t* at, int output) {
    for (int first = 0; first < S::kernel; first += tile) add_rows(pixels, own, at, output, first);
  }

  INLINE_MEMBER void add_rows(const float* pixels, const float* own, const int32_t* at, int output,
                              int first) {
    MainVector* to = (MainVector*)main_sums + output * S::taps + first * S::kernel;
    Vector* to_more = (Vector*)more_sums + (output * S::kernel + first) * vectors;
    MainVector sums[tile][S::kernel];
    Vector others[tile][vectors];
    UNROLL for (int y = 0; y < tile; y++) {
      UNROLL for (int x = 0; x < S::kernel; x++) sums[y][x] = to[y * S::kernel + x];
      UNROLL for (int v = 0; v < vectors; v++) others[y][v] = to_more[y * vectors + v];
    }
    for (int c = 0; c < S::cells; c++) {
      Vector gradient = all(own[c]);
      const float* main_at = pixels + at[c] + first * S::side * MAIN;
      const float* more_at = windows + at[c] * (window / MAIN) + first * S::side * window;
      UNROLL for (int y = 0; y < tile; y++) {
        UNROLL for (int x = 0; x < S::kernel; x++)
          sums[y][x] +=
              main_part(gradient) * *(const MainVector*)(main_at + (y * S::side + x) * MAIN);
        UNROLL for (int v = 0; v < vectors; v++)
          others[y][v] += gradient * *(const Vector*)(more_at + y * S::side * window + v * LANES);
      }
    }
    UNROLL for (int y = 0; y < tile; y++) {
      UNROLL for (int x = 0; x < S::kernel; x++) to[y * S::kernel + x] = sums[y][x];
      UNROLL for (int v = 0; v < vectors; v++) to_more[y * vectors + v] = others[y][v];
    }
  }

  static_assert(window % MAIN == 0 && (LANES == 16 || LANES == MAIN), "vectors of two sizes");
  INLINE MainVector main_part(Vector v) {
#ifdef __AVX512F__
    return (MainVector)_mm512_castps512_ps256((__m512)v);
#else
    return v;
#endif
  }

  alignas(64) float main[LANES * S::pixels * MAIN];          // [sample][pixel][channel]
  alignas(64) float more[LANES * S::side * more_row];        // [sample][row][pixel][other channel]
  alignas(64) float windows[S::pixels * window];             // [pixel][tap of a row][other channel]
  alignas(64) float main_sums[S::outputs * S::taps * MAIN];  // [output][tap][channel]
  alignas(64) float more_sums[S::outputs * S::kernel * window];  // [output][row][tap][other channel]
  int32_t places[LANES * S::outputs * S::cells];  // first input of each winner, in floats of `main`
};

}  // namespace CAMU_SET
