// Mini-batches and normal numbers, bit by bit those that numpy draws: a number that Python derives is
// spread to a generator's state (numpy's SeedSequence), and the generator (PCG64) shuffles or draws.
//
// numpy makes a generator in Python, and for a device with a dozen samples this takes a fifth as long
// as its training. The noise on the update of such a device takes numpy as long as its training.
// Python compares some batches and numbers with numpy's before it uses these.
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
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
// numpy's PCG64.

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
    uint32_t value = bits() & mask;
    while (value > most) value = bits() & mask;
    return value;
  }

  // From 0 up to, but not including, 1.
  float fraction() { return (float)(bits() >> 8) * (1.0f / (1 << 24)); }

  // 32 random bits: the low half of a number, and then its high half.
  uint32_t bits() {
    has_half_ = !has_half_;
    if (!has_half_) return half_;
    uint64_t value = next();
    half_ = (uint32_t)(value >> 32);
    return (uint32_t)value;
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

  Wide state_ = 0, increment_;
  bool has_half_ = false;
  uint32_t half_ = 0;
};

constexpr int NUMBER = 8;  // words of a number, the low ones first

// numpy takes the high words away that are zero.
int words_of(const uint32_t* number) {
  int words = NUMBER;
  while (words > 1 && !number[words - 1]) words--;
  return words;
}

Generator generator_of(const uint32_t* words, int count) {
  uint64_t state[4];
  spread(words, count, state);
  return Generator(state);
}

// Of a branch of a number, named by two others.
Generator branch_of(const uint32_t* number, const uint64_t (&branch)[2]) {
  uint32_t words[NUMBER + 4] = {};
  int count = words_of(number);
  memcpy(words, number, count * sizeof *words);
  if (count < 4) count = 4;
  for (uint64_t value : branch) {
    words[count++] = (uint32_t)value;
    if (value >> 32) words[count++] = (uint32_t)(value >> 32);
  }
  return generator_of(words, count);
}

// ---------------------------------------------------------------------------------------------
// Normal numbers in single precision, by Marsaglia and Tsang's ziggurat: 256 layers of equal area
// cover the bell curve exp(-x^2 / 2). A point in a layer is mostly under the curve; otherwise a second
// number decides. The lowest layer has the tail.

constexpr int LAYERS = 256;
constexpr double EDGE = 3.6541528853610088;  // of the lowest layer, where the tail begins
constexpr double STEPS = 1 << 23;            // places in a layer

double height(double x) { return exp(-x * x / 2); }

struct Ziggurat {
  float step[LAYERS];      // width of a layer / STEPS
  uint32_t under[LAYERS];  // places below this one are under the curve
  float bottom[LAYERS];    // height of the curve where a layer ends

  Ziggurat() {
    const double area = EDGE * height(EDGE) + sqrt(M_PI / 2) * erfc(EDGE / sqrt(2));
    double x = area / height(EDGE), inner = EDGE;  // the lowest layer is as wide as one of its area
    set(0, x, inner, 1);
    for (int i = LAYERS - 1; i > 0; i--) {
      x = inner;
      inner = i > 1 ? sqrt(-2 * log(area / x + height(x))) : 0;
      set(i, x, inner, height(x));
    }
  }

  void set(int layer, double x, double inner, double low) {
    step[layer] = (float)(x / STEPS);
    under[layer] = (uint32_t)(inner / x * STEPS + 0.5);
    bottom[layer] = (float)low;
  }
};

const Ziggurat ziggurat;

// Beyond the lowest layer.
float tail(Generator& generator) {
  for (;;) {
    float beyond = (float)(-1 / EDGE) * log1pf(-generator.fraction());
    float y = -log1pf(-generator.fraction());
    if (y + y > beyond * beyond) return (float)EDGE + beyond;
  }
}

float normal(Generator& generator) {
  for (;;) {
    const uint32_t bits = generator.bits(), layer = bits % LAYERS, place = bits >> 9;
    const uint32_t sign = bits << 23 & 0x80000000;
    float x = (float)(int32_t)place * ziggurat.step[layer];
    uint32_t whole;
    memcpy(&whole, &x, sizeof whole);
    whole ^= sign;
    memcpy(&x, &whole, sizeof x);
    if (__builtin_expect(place < ziggurat.under[layer], 1)) return x;
    if (layer == 0) return place >> 8 & 1 ? -tail(generator) : tail(generator);
    const float low = ziggurat.bottom[layer], high = ziggurat.bottom[layer - 1];
    if ((high - low) * generator.fraction() + low < exp(-0.5 * x * x)) return x;
  }
}

// ---------------------------------------------------------------------------------------------
// Mini-batches, as data/batches.py cuts them.

// A member of a unit, and the order of its samples in the pass of its next step.
struct Member {
  int64_t device, held, size, per_pass, steps, next, pass;
  int64_t* order;

  // Writes the next mini-batch, which begins a new pass where the last one is used up; returns its
  // size.
  int64_t take(const uint32_t* number, const int64_t* samples, int64_t* to) {
    const int64_t begin = next % per_pass * size, left = held - begin;
    if (pass != next / per_pass) {
      pass = next / per_pass;
      shuffle(branch_of(number, {(uint64_t)device, (uint64_t)pass}), samples);
    }
    next++;
    const int64_t taken = size < left ? size : left;
    memcpy(to, order + begin, (size_t)taken * sizeof *to);
    return taken;
  }

  void shuffle(Generator generator, const int64_t* samples) {
    memcpy(order, samples, (size_t)held * sizeof *order);
    for (int64_t last = held - 1; last > 0; last--) {
      int64_t other = generator.up_to((uint32_t)last), kept = order[other];
      order[other] = order[last];
      order[last] = kept;
    }
  }
};

}  // namespace

// The mini-batches of units, in the order unit, update, member, step. `samples` and `held` have an
// entry per device; `devices` and `batch_sizes` one per member of each unit. Writes the steps per update
// of each member, the numbers of batches, samples and members of each unit, and the sizes and samples of
// the batches. Returns 1 if out of memory.
EXPORT int32_t camu_draw_batches(const uint32_t* number, const int64_t* const* samples,
                                 const int64_t* held, const CamuWanted* units, int32_t count,
                                 const int64_t* devices, const int64_t* batch_sizes, int32_t* steps,
                                 int64_t* counts, int32_t* sizes, int64_t* indices) {
  for (int32_t u = 0; u < count; u++, units++, counts += 3) {
    const int64_t n = units->members;
    int64_t all = 0;
    for (int64_t m = 0; m < n; m++) all += held[devices[m]];
    Member* members = (Member*)malloc((size_t)n * sizeof *members + (size_t)all * sizeof *indices);
    if (!members) return 1;
    int64_t* order = (int64_t*)(members + n);
    for (int64_t m = 0; m < n; m++) {
      const int64_t own = held[devices[m]], size = batch_sizes[m], per_pass = (own + size - 1) / size;
      steps[m] = (int32_t)(units->steps * (units->epochs ? per_pass : 1));
      members[m] = {devices[m], own, size, per_pass, steps[m], units->first * steps[m], -1, order};
      order += own;
    }
    const int32_t* first_size = sizes;
    const int64_t* first_index = indices;
    for (int64_t update = units->first; update < units->end; update++)
      for (Member* member = members; member < members + n; member++)
        for (int64_t step = 0; step < member->steps; step++) {
          *sizes = (int32_t)member->take(number, samples[member->device], indices);
          indices += *sizes++;
        }
    counts[0] = sizes - first_size;
    counts[1] = indices - first_index;
    counts[2] = n;
    free(members);
    devices += n;
    batch_sizes += n;
    steps += n;
  }
  return 0;
}

// What a model was changed by, and normal noise on it. Its standard deviation is `scale`, or with
// `relative` that part of the root mean square of the change. Returns the sum of squares of the result.
EXPORT double camu_noisy_change(const float* model, const float* start, int64_t count,
                                const uint32_t* number, double scale, int32_t relative, float* to) {
  for (int64_t i = 0; i < count; i++) to[i] = start ? model[i] - start[i] : model[i];
  if (relative) scale *= sqrt(sum_of_squares(to, count) / (double)count);
  const float deviation = (float)scale;
  Generator generator = generator_of(number, words_of(number));
  for (int64_t i = 0; i < count; i++) to[i] += normal(generator) * deviation;
  return sum_of_squares(to, count);
}
