// The paper's CNN: two stages of convolution and pooling, and the head. A pass takes some samples
// forward and backward, and adds their gradients to those of the step.
#pragma once
#include <stdlib.h>

#include <type_traits>

#include "first.h"
#include "head.h"
#include "second.h"
#include "winograd.h"

namespace CAMU_SET {

// A pass takes devices until it has this many samples. Activations then stay in the second cache.
constexpr int PASS_SAMPLES = 192;

// Memory that is cut into arrays; it is zero at first, and grows but never shrinks.
class Memory {
 public:
  ~Memory() { free(begin_); }
  Memory() = default;
  Memory(const Memory&) = delete;
  bool reserve(size_t bytes) {
    free(begin_);
    begin_ = (char*)aligned_alloc(64, (bytes + 63) / 64 * 64);
    used_ = 0;
    if (begin_) memset(begin_, 0, bytes);
    return begin_ != nullptr;
  }
  template <class T>
  T* cut(size_t count) {
    T* part = (T*)(begin_ + used_);
    used_ += bytes_of<T>(count);
    return part;
  }
  template <class T>
  static constexpr size_t bytes_of(size_t count) {
    return (count * sizeof(T) + 63) / 64 * 64;
  }

 private:
  char* begin_ = nullptr;
  size_t used_ = 0;
};

template <int INPUTS, int SIDE, int KERNEL, int PADDING>
class alignas(64) Network {
 public:
  using First = Stage<INPUTS, 10, SIDE + 2 * PADDING, KERNEL>;
  using Second = Stage<10, CHANNELS, First::cells_in_row + 2 * PADDING, KERNEL>;
  using Top = Head<Second::cells>;

  Network(int norm, int classes) {
    top_.norm = norm;
    top_.classes = classes;
    top_.at = HeadOffsets(HEAD, norm, Top::FEATURES, classes);
  }

  int parameters() const { return top_.at.end; }
  bool batch_norm() const { return top_.norm == CAMU_BATCH_NORM; }
  const Top& top() const { return top_; }

  // Make room for passes of so many samples; false if there is no memory.
  bool reserve(int samples) {
    int blocks = (samples + LANES - 1) / LANES;
    if (blocks <= blocks_) return true;
    blocks_ = 0;
    size_t n = (size_t)blocks * LANES;
    size_t bytes = Memory::bytes_of<Vector>(blocks * Y) +
                   Memory::bytes_of<ByteVector>(blocks * W1) +
                   Memory::bytes_of<ByteVector>(blocks * W2) +
                   3 * Memory::bytes_of<float>(n * Top::WIDTH) +
                   2 * Memory::bytes_of<float>(n * HIDDEN_WIDTH) +
                   Memory::bytes_of<float>(n * 2 * CHANNELS) + Memory::bytes_of<float>(n) +
                   2 * Memory::bytes_of<int64_t>(n);
    if (!memory_.reserve(bytes)) return false;
    pooled_ = memory_.cut<Vector>(blocks * Y);
    first_winners_ = memory_.cut<ByteVector>(blocks * W1);
    second_winners_ = memory_.cut<ByteVector>(blocks * W2);
    rows_.features = memory_.cut<float>(n * Top::WIDTH);
    rows_.normalised = memory_.cut<float>(n * Top::WIDTH);
    rows_.gradients = memory_.cut<float>(n * Top::WIDTH);
    rows_.hidden = memory_.cut<float>(n * HIDDEN_WIDTH);
    rows_.hidden_gradients = memory_.cut<float>(n * HIDDEN_WIDTH);
    rows_.statistics = memory_.cut<float>(n * 2 * CHANNELS);
    rows_.scales = memory_.cut<float>(n);
    rows_.labels = memory_.cut<int64_t>(n);
    rows_.indices = memory_.cut<int64_t>(n);
    blocks_ = blocks;
    return true;
  }

  // Take over the weights of a step. They must stay where they are during the step.
  void pack(const float* parameters) {
    parameters_ = parameters;
    if constexpr (KERNEL == 5) {
      first_winograd_.begin(parameters);
      second_winograd_.begin(parameters + SECOND);
    } else {
      pack_forward<First>(parameters, first_weights_);
      pack_forward<Second>(parameters + SECOND, second_weights_);
    }
    top_.pack(parameters);
  }

  // Before a step: the sums of gradients and statistics are zero.
  void reset() {
    reset_convolutions();
    top_.reset();
  }

  // Devices, one after another; with batch norm each is normalised by its own samples.
  double train(const CamuData& data, const CamuBatch& batch) {
    const int samples = gather(data, batch, 0);
    convolve(data, samples, true);
    const double loss = head(rows_, samples, batch);
    convolve_backward(data, 0, samples, samples);
    return loss;
  }

  // One step from the same weights for each of several units, in one pass. `done(unit, loss)` follows
  // the head of a unit, and `visit` takes its gradient: that of the head, and later the others.
  template <class Done, class Visit>
  void train_units(const CamuData& data, const CamuBatch* units, int count, float* room, Done done,
                   Visit visit) {
    int samples = 0, ends[PASS_SAMPLES];
    for (int u = 0; u < count; u++) ends[u] = samples += gather(data, units[u], samples);
    convolve(data, samples, true);
    for (int u = 0, first = 0; u < count; first = ends[u++]) {
      top_.reset();
      done(u, head(rows_.from(first, Top::WIDTH), ends[u] - first, units[u]));
      head_gradient(room, [&](int at, const float* values, int n) { visit(u, at, values, n); });
    }
    reset_convolutions();
    for (int u = 0, first = 0; u < count; first = ends[u++]) {
      convolve_backward(data, first, ends[u], samples);
      write_convolutions(room);
      visit(u, 0, room, CONVOLUTIONS);
      reset_convolutions();
    }
  }

  // The gradient of the step, part by part: visit(first parameter, gradients, count).
  template <class Visit>
  void gradient(float* room, Visit visit) {
    write_convolutions(room);
    visit(0, room, CONVOLUTIONS);
    head_gradient(room, visit);
  }

  // How many samples are classified rightly, and the sum of their losses.
  int evaluate(const CamuData& data, int64_t first, int samples, const float* buffers,
               double* loss) {
    for (int i = 0; i < samples; i++) {
      rows_.labels[i] = data.labels[first + i];
      rows_.indices[i] = first + i;
    }
    convolve(data, samples, false);
    if (batch_norm())
      top_.normalise_running(rows_, samples, buffers);
    else
      normalise(rows_, samples, {});
    top_.forward_hidden(rows_, samples);
    int right = 0;
    float logits[MOST_CLASSES];
    for (int s = 0; s < samples; s++) {
      float normaliser = top_.logits_of(rows_.hidden + (long)s * HIDDEN_WIDTH, logits);
      *loss += normaliser - logits[rows_.labels[s]];
      int best = 0;
      for (int c = 1; c < top_.classes; c++)
        if (logits[c] > logits[best]) best = c;
      right += best == rows_.labels[s];
    }
    return right;
  }

 private:
  static constexpr int IMAGE = INPUTS * SIDE * SIDE;
  static constexpr int SECOND = First::weights + First::outputs;  // in the flat parameters
  static constexpr int HEAD = SECOND + Second::weights + CHANNELS;
  // Vectors of a block: padded images, padded outputs of the first stage, winners.
  static constexpr size_t X = INPUTS * First::pixels, Y = 10 * Second::pixels;
  static constexpr size_t W1 = 10 * First::cells, W2 = CHANNELS * Second::cells;
  static constexpr int GRADIENTS = rounded_up(10 * First::cells, LANES);  // of a sample, first stage

  static constexpr int CONVOLUTIONS = SECOND + Second::weights;  // parameters without the last bias

  // Labels, places and weights of samples, from row `first` on; returns how many there are.
  int gather(const CamuData& data, const CamuBatch& batch, int first) {
    int row = first;
    for (int d = 0; d < batch.devices; d++)
      for (int i = 0; i < batch.sizes[d]; i++, row++) {
        rows_.indices[row] = batch.indices[row - first];
        rows_.labels[row] = data.labels[rows_.indices[row]];
        rows_.scales[row] = (float)(batch.shares[d] / batch.sizes[d]);
      }
    return row - first;
  }

  // Forward and backward; returns the loss, and leaves gradients of the features.
  double head(PassRows rows, int samples, const CamuBatch& batch) {
    normalise(rows, samples, batch);
    top_.forward_hidden(rows, samples);
    const double loss = top_.loss_and_gradients(rows, samples);
    top_.hidden_backward(rows, samples);
    normalise_backward(rows, samples, batch);
    top_.add_input_sums(rows, samples);
    return loss;
  }

  // Only the backward pass needs winners.
  void convolve(const CamuData& data, int samples, bool backward) {
    for (int block = 0; block * LANES < samples; block++) {
      int here = samples - block * LANES < LANES ? samples - block * LANES : LANES;
      load_images(block, here,
                  [&](int s) { return data.images + rows_.indices[s] * IMAGE; });
      if (backward)
        convolve_block<true>(block, here);
      else
        convolve_block<false>(block, 0);
      for (int q = 0; q < Top::FEATURES; q += LANES) transpose_features(block, q);
    }
  }

  // Kernels of 3x3 take the direct way: their images are small.
  template <bool WINNERS>
  void convolve_block(int block, int exact) {
    const float* bias = parameters_ + First::weights;
    const float* second_bias = parameters_ + SECOND + Second::weights;
    Vector* x = pooled_ + block * Y;
    ByteVector *won = first_winners_ + block * W1, *second_won = second_winners_ + block * W2;
    if constexpr (KERNEL == 5) {
      static_assert(PADDING == 0, "the cells are written without a border");
      first_winograd_.template forward<WINNERS>(images_, bias, exact, x, won);
      second_winograd_.template forward<WINNERS>(x, second_bias, exact, cells_, second_won);
    } else {
      forward<First, PADDING>(images_, first_weights_, bias, x, won);
      forward<Second, 0>(x, second_weights_, second_bias, cells_, second_won);
    }
  }

  // Bytes of LANES images become vectors of one pixel each, in [0, 1], inside the padding.
  template <class Image>
  void load_images(int block, int here, Image image) {
    const uint8_t* from[LANES];
    for (int s = 0; s < LANES; s++) from[s] = s < here ? image(block * LANES + s) : nullptr;
    for (int i = 0; i < IMAGE; i += LANES)
      transpose([&](int s) { return from[s] ? load_pixels(from[s] + i) : Vector{}; },
                [&](int p, Vector pixel) { images_[padded_place(i + p)] = pixel; });
  }

  static constexpr int padded_place(int pixel) {
    int row = pixel / SIDE, column = pixel % SIDE;  // rows of all channels
    int channel = row / SIDE, y = row % SIDE;
    return (channel * First::side + y + PADDING) * First::side + column + PADDING;
  }

  void transpose_features(int block, int q) {
    float* to = rows_.features + (long)block * LANES * Top::WIDTH + q;
    transpose([&](int i) { return q + i < Top::FEATURES ? cells_[q + i] : Vector{}; },
              [&](int s, Vector features) { store(to + (long)s * Top::WIDTH, features); });
  }

  void normalise(PassRows rows, int samples, const CamuBatch& batch) {
    if (top_.norm == CAMU_GROUP_NORM) top_.normalise_groups(rows, samples);
    if (top_.norm == CAMU_NO_NORM)
      memcpy(rows.normalised, rows.features, sizeof(float) * samples * Top::WIDTH);
    for (int d = 0, first = 0; batch_norm() && d < batch.devices; first += batch.sizes[d++])
      top_.normalise_device(rows, first, batch.sizes[d], d, batch.shares[d]);
  }

  void normalise_backward(PassRows rows, int samples, const CamuBatch& batch) {
    if (top_.norm == CAMU_GROUP_NORM) top_.groups_backward(rows, samples);
    for (int d = 0, first = 0; batch_norm() && d < batch.devices; first += batch.sizes[d++])
      top_.device_backward(rows, first, batch.sizes[d], d);
  }

  // The weight gradients of some of the pass's samples, which are visited in their order.
  void convolve_backward(const CamuData& data, int first, int end, int samples) {
    for (int here = first; here < end;) {
      const int block = here / LANES, next = (block + 1) * LANES < end ? (block + 1) * LANES : end;
      if (here % LANES == 0) begin_block(block, samples);
      for (int s = here; s < next; s++)
        second_.add(s % LANES, rows_.gradients + (long)s * Top::WIDTH);
      for (int s = here; s < next; s++) {
        first_.take(data.images + rows_.indices[s] * IMAGE);
        const int8_t* won = (const int8_t*)(first_winners_ + block * W1) + s % LANES;
        for (int o = 0; o < First::outputs; o++)
          first_.add(o, first_gradients_ + s % LANES * GRADIENTS + o * First::cells,
                     won + o * First::cells * LANES);
      }
      here = next;
    }
  }

  // What the samples of a block share: gradients of the first stage's cells, inputs of the second.
  void begin_block(int block, int samples) {
    int here = samples - block * LANES < LANES ? samples - block * LANES : LANES;
    const ByteVector* winners = second_winners_ + block * W2;
    const float* gradients = rows_.gradients + (long)block * LANES * Top::WIDTH;
    second_.begin(pooled_ + block * Y, winners);
    for (int q = 0; q < Top::FEATURES; q += LANES) transpose_gradients(gradients, here, q);
    if constexpr (KERNEL == 5)
      second_winograd_.backward(cells_, winners, pooled_gradients_);
    else
      backward<Second>(cells_, winners, parameters_ + SECOND, pooled_gradients_);
    for (int q = 0; q < 10 * First::cells; q += LANES) transpose_pooled(q);
  }

  void reset_convolutions() {
    first_.reset();
    second_.reset();
  }

  void write_convolutions(float* to) const {
    first_.write(to, to + First::weights);
    second_.write(to + SECOND);
  }

  // The hidden weights are most of the parameters, and are visited where they are. `room` takes the
  // others.
  template <class Visit>
  void head_gradient(float* room, Visit visit) {
    memcpy(room + CONVOLUTIONS, top_.input_sums, sizeof top_.input_sums);
    top_.write(room);
    if (top_.fresh) memset(top_.hidden_sums, 0, sizeof top_.hidden_sums);
    const int hidden = top_.at.hidden, rest = top_.at.hidden_bias;
    visit(CONVOLUTIONS, room + CONVOLUTIONS, hidden - CONVOLUTIONS);
    for (int j = 0; j < HIDDEN; j++)
      visit(hidden + j * Top::FEATURES, top_.hidden_sums + j * Top::WIDTH, (int)Top::FEATURES);
    visit(rest, room + rest, parameters() - rest);
  }

  // Gradients of the cells of the second stage, with samples as lanes; zero where there is no sample.
  void transpose_gradients(const float* from, int here, int q) {
    transpose([&](int s) { return s < here ? load(from + s * Top::WIDTH + q) : Vector{}; },
              [&](int i, Vector cell) {
                if (q + i < Top::FEATURES) cells_[q + i] = cell;
              });
  }

  // Gradients of the cells of the first stage, sample by sample, without the padding.
  void transpose_pooled(int q) {
    transpose(
        [&](int i) {
          const int channel = (q + i) / First::cells, cell = (q + i) % First::cells;
          const int y = cell / First::cells_in_row, x = cell % First::cells_in_row;
          if (channel >= 10) return Vector{};
          return pooled_gradients_[(channel * Second::side + y + PADDING) * Second::side + x +
                                   PADDING];
        },
        [&](int s, Vector cells) { store(first_gradients_ + s * GRADIENTS + q, cells); });
  }

  Vector images_[X] = {};  // of one block, with padding
  Vector cells_[W2];       // outputs of the second stage, one block
  float first_weights_[First::weights], second_weights_[Second::weights];
  FirstGradient<First, PADDING> first_;
  SecondGradient<Second> second_;
  Vector pooled_gradients_[Y];  // of one block, with padding
  alignas(64) float first_gradients_[LANES * GRADIENTS];
  Top top_;
  struct Nothing {};
  std::conditional_t<KERNEL == 5, FirstWinograd<First>, Nothing> first_winograd_;
  std::conditional_t<KERNEL == 5, SecondWinograd<Second>, Nothing> second_winograd_;

  Memory memory_;
  int blocks_ = 0;
  Vector* pooled_;
  ByteVector *first_winners_, *second_winners_;
  PassRows rows_;
  const float* parameters_;
};

}  // namespace CAMU_SET
