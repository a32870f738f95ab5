// The training of a unit: steps, local updates, averages of members.
#pragma once
#include <new>

#include "network.h"

namespace CAMU_SET {

constexpr float MOMENTUM = 0.1f;  // of the running statistics, as in torch
constexpr int BUFFERS = 2 * CHANNELS;
constexpr int EVALUATION_SAMPLES = 128;

template <class Net>
class alignas(64) Worker : public CamuWorker {
 public:
  Worker(int norm, int classes) : net_(norm, classes), count_(net_.parameters()) {}

  // Memory for the state, the gradient, the start and the mean; false if there is none.
  bool reserve() {
    size_t floats = Memory::bytes_of<float>(count_), doubles = Memory::bytes_of<double>(count_);
    if (!memory_.reserve(3 * floats + doubles)) return false;
    state_ = memory_.cut<float>(count_);
    gradient_ = memory_.cut<float>(count_);
    unit_ = memory_.cut<float>(count_);
    mean_ = memory_.cut<double>(count_);
    return net_.reserve(PASS_SAMPLES);
  }

  void end() override {
    this->~Worker();
    free(this);
  }

  int train(const CamuData& data, const CamuJob& job, const volatile int32_t* stop) override {
    load(job.parameters, job.buffers);
    const int64_t* indices = job.indices;
    const int32_t* sizes = job.sizes;
    for (int update = 0; update < job.updates; update++) {
      int result = job.together ? update_together(data, job, indices, sizes, stop, update)
                                : update_apart(data, job, indices, sizes, stop, update);
      if (result != CAMU_DONE) return result;
    }
    memcpy(job.trained_parameters, state_, count_ * sizeof(float));
    if (net_.batch_norm()) memcpy(job.trained_buffers, buffers_, sizeof buffers_);
    return CAMU_DONE;
  }

  int gradient(const CamuData& data, const CamuBatch& batch, const float* parameters,
               float* gradient, double* loss) override {
    net_.begin(parameters);
    *loss = 0;
    if (!pass_all(data, batch, loss)) return CAMU_NO_MEMORY;
    if (gradient) net_.write(gradient);
    return CAMU_DONE;
  }

  int evaluate(const CamuData& data, int64_t first, int64_t count, const float* parameters,
               const float* buffers, int64_t* right, double* loss) override {
    net_.begin_evaluation(parameters);
    *right = 0;
    *loss = 0;
    for (int64_t done = 0; done < count; done += EVALUATION_SAMPLES) {
      int64_t rest = count - done;
      int here = rest < EVALUATION_SAMPLES ? (int)rest : EVALUATION_SAMPLES;
      *right += net_.evaluate(data, first + done, here, buffers, loss);
    }
    return CAMU_DONE;
  }

 private:
  void load(const float* parameters, const float* buffers) {
    memcpy(state_, parameters, count_ * sizeof(float));
    if (net_.batch_norm()) memcpy(buffers_, buffers, sizeof buffers_);
  }

  // One step on all members' batches.
  int update_together(const CamuData& data, const CamuJob& job, const int64_t*& indices,
                      const int32_t*& sizes, const volatile int32_t* stop, int update) {
    if (*stop) return CAMU_STOPPED;
    CamuBatch batch{indices, sizes, job.shares, job.members};
    if (!step(data, job, batch, &job.losses[update])) return CAMU_NO_MEMORY;
    for (int m = 0; m < job.members; m++) indices += sizes[m];
    sizes += job.members;
    return CAMU_DONE;
  }

  // Each member from the unit's state by steps of its own, then their mean.
  int update_apart(const CamuData& data, const CamuJob& job, const int64_t*& indices,
                   const int32_t*& sizes, const volatile int32_t* stop, int update) {
    double mean_buffers[BUFFERS] = {}, loss = 0;
    memcpy(unit_, state_, count_ * sizeof(float));
    float unit_buffers[BUFFERS];
    memcpy(unit_buffers, buffers_, sizeof buffers_);
    memset(mean_, 0, count_ * sizeof(double));
    for (int m = 0; m < job.members; m++) {
      load(unit_, unit_buffers);
      double member_loss = 0;
      for (int s = 0; s < job.steps[m]; s++) {
        if (*stop) return CAMU_STOPPED;
        const double whole = 1;
        double step_loss;
        if (!step(data, job, {indices, sizes, &whole, 1}, &step_loss)) return CAMU_NO_MEMORY;
        member_loss += step_loss / job.steps[m];
        indices += *sizes++;
      }
      loss += job.shares[m] * member_loss;
      for (int i = 0; i < count_; i++) mean_[i] += job.shares[m] * state_[i];
      for (int i = 0; i < BUFFERS; i++) mean_buffers[i] += job.shares[m] * buffers_[i];
    }
    job.losses[update] = loss;
    if (job.members == 1) return CAMU_DONE;
    for (int i = 0; i < count_; i++) state_[i] = (float)mean_[i];
    for (int i = 0; i < BUFFERS; i++) buffers_[i] = (float)mean_buffers[i];
    return CAMU_DONE;
  }

  bool step(const CamuData& data, const CamuJob& job, CamuBatch batch, double* loss) {
    net_.begin(state_);
    *loss = 0;
    if (!pass_all(data, batch, loss)) return false;
    net_.write(gradient_);
    move_statistics();
    move(job, gradient_, state_);
    return true;
  }

  // A loop for each term, so that all of them are vectors.
  void move(const CamuJob& job, float* __restrict gradient, float* __restrict state) const {
    const float rate = job.rate, l2 = job.l2, proximal = job.proximal;
    for (int i = 0; i < count_; i++) gradient[i] += l2 * state[i];
    if (proximal != 0)
      for (int i = 0; i < count_; i++) gradient[i] += proximal * (state[i] - job.anchor[i]);
    if (job.correction)
      for (int i = 0; i < count_; i++) gradient[i] += job.correction[i];
    for (int i = 0; i < count_; i++) state[i] -= rate * gradient[i];
  }

  // Running statistics move as if each device had moved its own and the results were averaged.
  void move_statistics() {
    if (!net_.batch_norm()) return;
    for (int c = 0; c < CHANNELS; c++) {
      float* mean = buffers_ + c;
      float* variance = buffers_ + CHANNELS + c;
      *mean = (1 - MOMENTUM) * *mean + MOMENTUM * (float)net_.top().means[c];
      *variance = (1 - MOMENTUM) * *variance + MOMENTUM * (float)net_.top().variances[c];
    }
  }

  // All samples of a step, in passes of bounded size. With batch norm a device stays whole.
  bool pass_all(const CamuData& data, const CamuBatch& batch, double* loss) {
    const int64_t* indices = batch.indices;
    for (int d = 0; d < batch.devices;) {
      int samples = batch.sizes[d], devices = 1;
      if (!net_.batch_norm() && samples > PASS_SAMPLES) {
        pass_pieces(data, indices, samples, batch.shares[d], loss);
      } else {
        while (d + devices < batch.devices && samples + batch.sizes[d + devices] <= PASS_SAMPLES)
          samples += batch.sizes[d + devices++];
        if (!net_.reserve(samples)) return false;
        *loss += net_.train(data, indices, batch.sizes + d, batch.shares + d, devices);
      }
      indices += samples;
      d += devices;
    }
    return true;
  }

  void pass_pieces(const CamuData& data, const int64_t* indices, int samples, double share,
                   double* loss) {
    for (int done = 0; done < samples; done += PASS_SAMPLES) {
      int here = samples - done < PASS_SAMPLES ? samples - done : PASS_SAMPLES;
      *loss += net_.train_piece(data, indices + done, here, (float)(share / samples));
    }
  }

  Net net_;
  int count_;
  Memory memory_;
  float *state_, *gradient_, *unit_;
  double* mean_;
  float buffers_[BUFFERS] = {};
};

}  // namespace CAMU_SET
