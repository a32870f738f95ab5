// Permutations of devices' samples, bit by bit those that numpy draws: a number is hashed from a text
// (SHA-256), spread to a generator's state (numpy's SeedSequence), and the generator (PCG64) shuffles.
//
// In Python this takes longer than training a device with a dozen samples takes two cores. Python
// compares some permutations with numpy's before it uses these.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "kernels.h"

namespace {

typedef unsigned __int128 Wide;

// ---------------------------------------------------------------------------------------------
// SHA-256 of a short text.

const uint32_t ROUNDS[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t turned(uint32_t x, int bits) { return x >> bits | x << (32 - bits); }

void add_block(uint32_t state[8], const uint8_t* block) {
  uint32_t w[64], v[8];
  for (int i = 0; i < 16; i++)
    w[i] = (uint32_t)block[4 * i] << 24 | block[4 * i + 1] << 16 | block[4 * i + 2] << 8 |
           block[4 * i + 3];
  for (int i = 16; i < 64; i++) {
    uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (turned(a, 7) ^ turned(a, 18) ^ a >> 3) + w[i - 7] +
           (turned(b, 17) ^ turned(b, 19) ^ b >> 10);
  }
  memcpy(v, state, sizeof v);
  for (int i = 0; i < 64; i++) {
    uint32_t e = v[4], a = v[0];
    uint32_t one = v[7] + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + ((e & v[5]) ^ (~e & v[6])) +
                   ROUNDS[i] + w[i];
    uint32_t two = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) +
                   ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
    memmove(v + 1, v, 7 * sizeof *v);
    v[4] += one;
    v[0] = one + two;
  }
  for (int i = 0; i < 8; i++) state[i] += v[i];
}

// The hash as eight words of a large number, the high ones first.
void hash(const char* text, size_t length, uint32_t state[8]) {
  const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                             0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  memcpy(state, start, sizeof start);
  size_t done = 0;
  for (; done + 64 <= length; done += 64) add_block(state, (const uint8_t*)text + done);
  uint8_t rest[128] = {};
  size_t left = length - done, padded = left < 56 ? 64 : 128;
  memcpy(rest, text + done, left);
  rest[left] = 0x80;
  for (int i = 0; i < 8; i++) rest[padded - 1 - i] = (uint8_t)(length * 8 >> 8 * i);
  for (size_t block = 0; block < padded; block += 64) add_block(state, rest + block);
}

// ---------------------------------------------------------------------------------------------
// numpy's SeedSequence: from a large number, given in words with the low ones first.

struct Mixer {
  uint32_t constant, factor;

  uint32_t operator()(uint32_t value) {
    value ^= constant;
    constant *= factor;
    value *= constant;
    return value ^ value >> 16;
  }
};

uint32_t mixed(uint32_t x, uint32_t y) {
  uint32_t result = 0xca01f9dd * x - 0x4973f715 * y;
  return result ^ result >> 16;
}

void spread(const uint32_t* words, int count, uint64_t state[4]) {
  Mixer mixer{0x43b0d7e5, 0x931e8875};
  uint32_t pool[4];
  for (int i = 0; i < 4; i++) pool[i] = mixer(i < count ? words[i] : 0);
  for (int from = 0; from < 4; from++)
    for (int to = 0; to < 4; to++)
      if (from != to) pool[to] = mixed(pool[to], mixer(pool[from]));
  for (int from = 4; from < count; from++)
    for (int to = 0; to < 4; to++) pool[to] = mixed(pool[to], mixer(words[from]));
  Mixer last{0x8b51f9dd, 0x58f38ded};
  for (int i = 0; i < 4; i++) {
    uint64_t low = last(pool[2 * i % 4]), high = last(pool[(2 * i + 1) % 4]);
    state[i] = high << 32 | low;
  }
}

// ---------------------------------------------------------------------------------------------
// numpy's PCG64, and its shuffle.

class Generator {
 public:
  explicit Generator(const uint64_t seed[4]) {
    increment_ = ((Wide)seed[2] << 64 | seed[3]) << 1 | 1;
    step();
    state_ += (Wide)seed[0] << 64 | seed[1];
    step();
  }

  // A whole number from 0 to `most`: as many bits as that has, until they are not larger.
  uint32_t up_to(uint32_t most) {
    const uint32_t mask = 0xffffffff >> __builtin_clz(most);
    uint32_t value = next_half() & mask;
    while (value > most) value = next_half() & mask;
    return value;
  }

 private:
  void step() {
    const Wide factor = (Wide)0x2360ed051fc65da4 << 64 | 0x4385df649fccf645;
    state_ = state_ * factor + increment_;
  }

  uint64_t next() {
    step();
    uint64_t high = (uint64_t)(state_ >> 64), value = high ^ (uint64_t)state_;
    int bits = (int)(high >> 58);
    return value >> bits | value << (-bits & 63);
  }

  // The low half of a number, and then its high half.
  uint32_t next_half() {
    has_half_ = !has_half_;
    if (!has_half_) return half_;
    uint64_t value = next();
    half_ = (uint32_t)(value >> 32);
    return (uint32_t)value;
  }

  Wide state_ = 0, increment_;
  bool has_half_ = false;
  uint32_t half_ = 0;
};

}  // namespace

// For each device, its samples in the order of one pass. `wanted` has the numbers of the devices and
// then those of the passes. The text that is hashed is `prefix`, at most 200 characters, the device's
// number and, after the first pass, that of the pass.
EXPORT void camu_draw_orders(const char* prefix, const int64_t* wanted,
                             const int64_t* const* samples, const int64_t* sizes, int32_t count,
                             int64_t* to) {
  for (int32_t i = 0; i < count; i++) {
    long long device = wanted[i], pass = wanted[count + i];
    char text[256];
    int length = pass ? snprintf(text, sizeof text, "%s\x1f%lld\x1f%lld", prefix, device, pass)
                      : snprintf(text, sizeof text, "%s\x1f%lld", prefix, device);
    uint32_t digest[8], words[8];
    hash(text, (size_t)length, digest);
    int used = 8;
    for (int w = 0; w < 8; w++) words[w] = digest[7 - w];
    while (used > 1 && !words[used - 1]) used--;
    uint64_t state[4];
    spread(words, used, state);
    Generator generator(state);
    memcpy(to, samples[i], (size_t)sizes[i] * sizeof *to);
    for (int64_t last = sizes[i] - 1; last > 0; last--) {
      int64_t other = generator.up_to((uint32_t)last), kept = to[other];
      to[other] = to[last];
      to[last] = kept;
    }
    to += sizes[i];
  }
}
