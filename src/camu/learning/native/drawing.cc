// Permutations of devices' samples, bit by bit those that numpy draws: a number that Python derives is
// spread to a generator's state (numpy's SeedSequence), and the generator (PCG64) shuffles.
//
// numpy makes a generator in Python, and for a device with a dozen samples this takes a fifth as long
// as its training. Python compares some permutations with numpy's before it uses these.
#include <stdint.h>
#include <string.h>

#include "kernels.h"

namespace {

typedef unsigned __int128 Wide;

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

// For each device, its samples in the order of one pass. `numbers` has eight words for each, the low
// ones first. numpy takes the high words away that are zero.
EXPORT void camu_draw_orders(const uint32_t* numbers, const int64_t* const* samples,
                             const int64_t* sizes, int32_t count, int64_t* to) {
  for (int32_t i = 0; i < count; i++, numbers += 8) {
    int words = 8;
    while (words > 1 && !numbers[words - 1]) words--;
    uint64_t state[4];
    spread(numbers, words, state);
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
