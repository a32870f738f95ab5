// The weight gradient of the second stage. Only winners of pooling cells have a gradient, so it visits
// them one by one, with input channels as lanes.
//
// The ten input channels are split into eight, which are the lanes of one vector per pixel (channels8),
// and two (channels2). The channels2 of the five pixels under a row of the kernel, ten numbers, share a
// vector; they are copied side by side for every place that a winner may have, once for each sample.
#pragma once
#include "first.h"

namespace CAMU_SET {

constexpr int EIGHT = 8;  // channels that are lanes of one vector
typedef float Vector8 __attribute__((vector_size(EIGHT * 4), may_alias));

template <class S>
struct SecondGradient {
  static_assert(S::inputs == EIGHT + 2, "eight channels and two channels2");

  void reset() {
    memset(sums8, 0, sizeof sums8);
    memset(sums2, 0, sizeof sums2);
  }

  // One block: x is [input][pixel] with samples as lanes.
  void begin(const Vector* x, const ByteVector* winners) {
    transpose_inputs(x);
    find_places(winners);
  }

  // A sample of the block, and the gradients of its cells.
  void add(int s, const float* cell_gradients) {
    copy_windows(s);
    for (int o = 0; o < S::outputs; o++)
      add_output(channels8 + s * S::pixels * EIGHT, cell_gradients + o * S::cells,
                 places + (s * S::outputs + o) * S::cells, o);
  }

  // Torch's order of weights.
  void write(float* to) const {
    for (int o = 0; o < S::outputs; o++, to += S::inputs * S::taps)
      for (int t = 0; t < S::taps; t++) {
        for (int i = 0; i < EIGHT; i++)
          to[i * S::taps + t] = sums8[(o * S::taps + t) * EIGHT + i];
        for (int i = 0; i < 2; i++)
          to[(EIGHT + i) * S::taps + t] =
              sums2[(o * S::kernel + t / S::kernel) * window + t % S::kernel * 2 + i];
      }
  }

 private:
  static constexpr int vectors = (2 * S::kernel + LANES - 1) / LANES;  // of a window
  static constexpr int window = vectors * LANES;
  static constexpr int row2 = rounded_up(2 * S::side, LANES) + LANES;
  // Rows of the kernel whose sums are held in registers.
  static constexpr int tile = LANES == 16 ? S::kernel : 1;

  void transpose_inputs(const Vector* x) {
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
    if (first == 0) memcpy(channels8 + (s * S::pixels + q) * EIGHT, from, EIGHT * sizeof(float));
    if (first + LANES > EIGHT)
      memcpy(channels2 + (s * S::side + q / S::side) * row2 + q % S::side * 2, from + EIGHT - first,
             2 * sizeof(float));
  }

  void find_places(const ByteVector* winners) {
    for (int o = 0; o < S::outputs; o++)
      for (int c = 0; c < S::cells; c++) {
        const int8_t* winner = (const int8_t*)(winners + o * S::cells + c);
        int corner = 2 * (c / S::cells_in_row) * S::side + 2 * (c % S::cells_in_row);
        for (int s = 0; s < LANES; s++)
          places[(s * S::outputs + o) * S::cells + c] =
              (corner + (winner[s] >> 1) * S::side + (winner[s] & 1)) * EIGHT;
      }
  }

  void copy_windows(int s) {
    for (int y = 0; y < S::side; y++)
      for (int x = 0; x < 2 * S::cells_in_row; x++)
        UNROLL for (int v = 0; v < vectors; v++)
          store(windows + (y * S::side + x) * window + v * LANES,
                load(channels2 + (s * S::side + y) * row2 + 2 * x + v * LANES));
  }

  // For each winner: gradient of the weights += gradient of the cell * inputs under the kernel.
  NOINLINE void add_output(const float* pixels, const float* own, const int32_t* at, int output) {
    for (int first = 0; first < S::kernel; first += tile) add_rows(pixels, own, at, output, first);
  }

  INLINE_MEMBER void add_rows(const float* pixels, const float* own, const int32_t* at, int output,
                              int first) {
    Vector8* to = (Vector8*)sums8 + output * S::taps + first * S::kernel;
    Vector* to2 = (Vector*)sums2 + (output * S::kernel + first) * vectors;
    Vector8 sums[tile][S::kernel];
    Vector others[tile][vectors];
    UNROLL for (int y = 0; y < tile; y++) {
      UNROLL for (int x = 0; x < S::kernel; x++) sums[y][x] = to[y * S::kernel + x];
      UNROLL for (int v = 0; v < vectors; v++) others[y][v] = to2[y * vectors + v];
    }
    for (int c = 0; c < S::cells; c++) {
      Vector gradient = all(own[c]);
      const float* at8 = pixels + at[c] + first * S::side * EIGHT;
      const float* at2 = windows + at[c] * (window / EIGHT) + first * S::side * window;
      UNROLL for (int y = 0; y < tile; y++) {
        UNROLL for (int x = 0; x < S::kernel; x++)
          sums[y][x] +=
              first_eight(gradient) * *(const Vector8*)(at8 + (y * S::side + x) * EIGHT);
        UNROLL for (int v = 0; v < vectors; v++)
          others[y][v] += gradient * *(const Vector*)(at2 + y * S::side * window + v * LANES);
      }
    }
    UNROLL for (int y = 0; y < tile; y++) {
      UNROLL for (int x = 0; x < S::kernel; x++) to[y * S::kernel + x] = sums[y][x];
      UNROLL for (int v = 0; v < vectors; v++) to2[y * vectors + v] = others[y][v];
    }
  }

  static_assert(window % EIGHT == 0 && (LANES == 16 || LANES == EIGHT), "vectors of two sizes");
  INLINE Vector8 first_eight(Vector v) {
#ifdef __AVX512F__
    return (Vector8)_mm512_castps512_ps256((__m512)v);
#else
    return v;
#endif
  }

  alignas(64) float channels8[LANES * S::pixels * EIGHT];          // [sample][pixel][channel]
  alignas(64) float channels2[LANES * S::side * row2];        // [sample][row][pixel][other channel]
  alignas(64) float windows[S::pixels * window];             // [pixel][tap of a row][other channel]
  alignas(64) float sums8[S::outputs * S::taps * EIGHT];  // [output][tap][channel]
  alignas(64) float sums2[S::outputs * S::kernel * window];  // [output][row][tap][other channel]
  int32_t places[LANES * S::outputs * S::cells];  // first input of each winner, in floats of `main`
};

}  // namespace CAMU_SET
