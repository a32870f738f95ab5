// Vector registers as values, and the transposition of a square of them. What the compiler's own
// vectors do well enough is written with them, for any processor; the rest has intrinsics on x86-64.
#pragma once
#ifdef __x86_64__
#include <immintrin.h>
#endif
#include <stdint.h>
#include <string.h>

namespace CAMU_SET {

#ifdef __AVX512F__
constexpr int LANES = 16;
#else
constexpr int LANES = 8;
#endif

typedef float Vector __attribute__((vector_size(LANES * 4), may_alias));
typedef float LooseVector __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t IntVector __attribute__((vector_size(LANES * 4), may_alias));
typedef int8_t ByteVector __attribute__((vector_size(LANES), may_alias));
typedef uint8_t Pixels __attribute__((vector_size(LANES), aligned(1), may_alias));

#define INLINE static inline __attribute__((always_inline))
#define INLINE_MEMBER inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 32")
// For functions whose loops need all registers: inlined, the compiler would spill some of their sums.
#define NOINLINE __attribute__((noinline))

INLINE Vector all(float value) { return value - Vector{}; }
#ifdef __AVX512F__  // gcc 12 does not always see a maximum in a > b ? a : b.
INLINE Vector larger(Vector a, Vector b) { return (Vector)_mm512_max_ps((__m512)a, (__m512)b); }
INLINE Vector smaller(Vector a, Vector b) { return (Vector)_mm512_min_ps((__m512)a, (__m512)b); }
#elif defined(__AVX2__)
INLINE Vector larger(Vector a, Vector b) { return (Vector)_mm256_max_ps((__m256)a, (__m256)b); }
INLINE Vector smaller(Vector a, Vector b) { return (Vector)_mm256_min_ps((__m256)a, (__m256)b); }
#else
INLINE Vector larger(Vector a, Vector b) { return a > b ? a : b; }
INLINE Vector smaller(Vector a, Vector b) { return a < b ? a : b; }
#endif
INLINE Vector load(const float* from) { return *(const LooseVector*)from; }
INLINE void store(float* to, Vector value) { *(LooseVector*)to = value; }

constexpr int rounded_up(int value, int multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// The quotient as a division would round it, for whole numbers up to 255, but quicker: what a product
// with 1/255 lacks is added.
INLINE Vector divided_by_255(Vector v) {
  Vector rough = v * (1.0f / 255);
  return rough + (v - rough * 255) * (1.0f / 255);
}

// LANES pixels, in [0, 1]. Written by hand, because gcc 12 converts bytes to floats one by one.
INLINE Vector load_pixels(const uint8_t* from) {
#ifdef __AVX512F__
  __m512i whole = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)from));
  return divided_by_255((Vector)_mm512_cvtepi32_ps(whole));
#elif defined(__AVX2__)
  __m256i whole = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)from));
  return divided_by_255((Vector)_mm256_cvtepi32_ps(whole));
#else
  return divided_by_255(__builtin_convertvector(*(const Pixels*)from, Vector));
#endif
}

INLINE float sum(Vector v) {
  float total = 0;
  for (int i = 0; i < LANES; i++) total += v[i];
  return total;
}

// A bit for each lane in which `a` is not larger than `b`.
INLINE unsigned lanes_up_to(Vector a, Vector b) {
#ifdef __AVX512F__
  return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LE_OQ);
#elif defined(__AVX2__)
  return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_LE_OQ));
#else
  IntVector up_to = a <= b;
  unsigned bits = 0;
  UNROLL for (int i = 0; i < LANES; i++) bits |= (unsigned)(up_to[i] & 1) << i;
  return bits;
#endif
}

// The sum of `count` numbers, in an order that depends on `count` alone.
INLINE float sum(const float* values, int count) {
  Vector total{};
  int i = 0;
  for (; i + LANES <= count; i += LANES) total += load(values + i);
  float result = sum(total);
  for (; i < count; i++) result += values[i];
  return result;
}

#ifdef __AVX512F__
// Row i comes from `read(i)`, column j goes to `write(j, vector)`.
template <class Read, class Write>
INLINE void transpose(Read read, Write write) {
  __m512 r[16], t[16];
  UNROLL for (int i = 0; i < 16; i++) r[i] = (__m512)read(i);
  UNROLL for (int i = 0; i < 8; i++) {
    t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  UNROLL for (int i = 0; i < 4; i++) {
    r[4 * i] = (__m512)_mm512_unpacklo_pd((__m512d)t[4 * i], (__m512d)t[4 * i + 2]);
    r[4 * i + 1] = (__m512)_mm512_unpackhi_pd((__m512d)t[4 * i], (__m512d)t[4 * i + 2]);
    r[4 * i + 2] = (__m512)_mm512_unpacklo_pd((__m512d)t[4 * i + 1], (__m512d)t[4 * i + 3]);
    r[4 * i + 3] = (__m512)_mm512_unpackhi_pd((__m512d)t[4 * i + 1], (__m512d)t[4 * i + 3]);
  }
  UNROLL for (int i = 0; i < 4; i++) {
    t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
  }
  UNROLL for (int i = 0; i < 4; i++) {
    write(i, (Vector)_mm512_shuffle_f32x4(t[i], t[i + 8], 0x88));
    write(i + 4, (Vector)_mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88));
    write(i + 8, (Vector)_mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd));
    write(i + 12, (Vector)_mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd));
  }
}
#elif defined(__AVX2__)
template <class Read, class Write>
INLINE void transpose(Read read, Write write) {
  __m256 r[8], t[8];
  UNROLL for (int i = 0; i < 8; i++) r[i] = (__m256)read(i);
  UNROLL for (int i = 0; i < 4; i++) {
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  UNROLL for (int i = 0; i < 2; i++) {
    r[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
    r[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
    r[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
    r[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
  }
  UNROLL for (int i = 0; i < 4; i++) {
    write(i, (Vector)_mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    write(i + 4, (Vector)_mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}
#else
typedef float Quad __attribute__((vector_size(16), may_alias));
struct Halves {
  Quad half[2];
};

// Four squares of four: those beside the diagonal change places.
template <class Read, class Write>
INLINE void transpose(Read read, Write write) {
  Quad r[2][8], t[2][2][4];  // [columns][row]; [columns][rows][column]
  UNROLL for (int i = 0; i < 8; i++) {
    Vector row = read(i);
    Halves halves;
    memcpy(&halves, &row, sizeof row);
    UNROLL for (int h = 0; h < 2; h++) r[h][i] = halves.half[h];
  }
  UNROLL for (int h = 0; h < 2; h++)
    UNROLL for (int v = 0; v < 2; v++) {
      const Quad* q = r[h] + 4 * v;
      Quad a = __builtin_shufflevector(q[0], q[1], 0, 4, 1, 5);
      Quad b = __builtin_shufflevector(q[0], q[1], 2, 6, 3, 7);
      Quad c = __builtin_shufflevector(q[2], q[3], 0, 4, 1, 5);
      Quad d = __builtin_shufflevector(q[2], q[3], 2, 6, 3, 7);
      t[h][v][0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
      t[h][v][1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
      t[h][v][2] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
      t[h][v][3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
    }
  UNROLL for (int j = 0; j < 8; j++) {
    Halves halves = {{t[j / 4][0][j % 4], t[j / 4][1][j % 4]}};
    Vector column;
    memcpy(&column, &halves, sizeof column);
    write(j, column);
  }
}
#endif

}  // namespace CAMU_SET
