// The training of a unit: steps, local updates, averages of members.
#pragma once
#include <math.h>

#include <new>

#include "network.h"

namespace CAMU_SET {

constexpr float MOMENTUM = 0.1f;  // of the running statistics, as in torch
constexpr double CLIP_MARGIN = 1e-6;  // is added to a norm that is clipped, as in torch
constexpr int BUFFERS = 2 * CHANNELS;
constexpr int EVALUATION_SAMPLES = 128;

template <class Net>
class alignas(64) Worker : public CamuWorker {
 public:
  Worker(int norm, int classes) : net_(norm, classes), count_(net_.parameters()) {}

  // Memory for the start, the state, the gradient in parts and whole, a unit and the mean; false if
  // there is none.
  bool reserve() {
    size_t floats = Memory::bytes_of<float>(count_), doubles = Memory::bytes_of<double>(count_);
    if (!memory_.reserve(5 * floats + doubles)) return false;
    start_ = memory_.cut<float>(count_);
    state_ = memory_.cut<float>(count_);
    gradient_ = memory_.cut<float>(count_);
    unit_ = memory_.cut<float>(count_);
    whole_ = memory_.cut<float>(count_);
    mean_ = memory_.cut<double>(count_);
    return net_.reserve(PASS_SAMPLES);
  }

  void end() override {
    this->~Worker();
    free(this);
  }

  int train(const CamuData& data, const CamuJob* jobs, int count,
            const volatile int32_t* stop) override {
    int result = CAMU_DONE;
    for (int i = 0, some; i < count && result == CAMU_DONE; i += some) {
      if (*stop) return CAMU_STOPPED;
      if (i == 0 || jobs[i].parameters != jobs[i - 1].parameters) take_start(jobs[i].parameters);
      some = in_one_pass(jobs + i, count - i);
      result = some > 1 ? train_units(data, jobs + i, some) : train_unit(data, jobs[i], stop);
      if (some == 0) some = 1;
    }
    return result;
  }

  int gradient(const CamuData& data, const CamuBatch& batch, const float* parameters,
               float* gradient, double* loss) override {
    packed_ = nullptr;
    net_.pack(parameters);
    net_.reset();
    *loss = 0;
    if (!pass_all(data, batch, loss)) return CAMU_NO_MEMORY;
    if (!gradient) return CAMU_DONE;
    net_.gradient(gradient_, [&](int first, const float* values, int count) {
      memcpy(gradient + first, values, count * sizeof(float));
    });
    return CAMU_DONE;
  }

  int evaluate(const CamuData& data, int64_t first, int64_t count, const float* parameters,
               const float* buffers, int64_t* right, double* loss) override {
    packed_ = nullptr;
    net_.pack(parameters);
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
  // How many units fit into one pass: those with one step from the same parameters, whose gradient
  // is taken part by part.
  static int in_one_pass(const CamuJob* jobs, int count) {
    int samples = 0, i = 0;
    for (; i < count; i++) {
      const CamuJob& job = jobs[i];
      if (!job.together || job.updates != 1 || job.parameters != jobs[0].parameters) break;
      if (job.velocity || job.clip > 0) break;
      for (int m = 0; m < job.members; m++) samples += job.sizes[m];
      if (samples > PASS_SAMPLES) break;
    }
    return i;
  }

  int train_units(const CamuData& data, const CamuJob* jobs, int count) {
    CamuBatch units[PASS_SAMPLES];
    for (int u = 0; u < count; u++)
      units[u] = {jobs[u].indices, jobs[u].sizes, jobs[u].shares, jobs[u].members};
    pack_start();
    net_.train_units(
        data, units, count, gradient_,
        [&](int u, double loss) {
          jobs[u].losses[0] = loss;
          take_buffers(jobs[u]);
          move_statistics();
          give_buffers(jobs[u]);
        },
        [&](int u, int first, const float* gradient, int n) {
          const CamuJob& job = jobs[u];
          const float rate = job.rates ? *job.rates : job.rate;
          move(job, {rate, nullptr}, first, gradient, n, start_, job.trained_parameters);
        });
    return CAMU_DONE;
  }

  int train_unit(const CamuData& data, const CamuJob& job, const volatile int32_t* stop) {
    take_buffers(job);
    int result = job.together ? train_together(data, job, stop) : train_apart(data, job, stop);
    if (result == CAMU_DONE) give_buffers(job);
    return result;
  }

  void take_buffers(const CamuJob& job) {
    if (net_.batch_norm()) memcpy(buffers_, job.buffers, sizeof buffers_);
  }

  void give_buffers(const CamuJob& job) const {
    if (net_.batch_norm()) memcpy(job.trained_buffers, buffers_, sizeof buffers_);
  }

  void pack_start() {
    if (packed_ != start_) net_.pack(start_);
    packed_ = start_;
  }

  // A copy, because numpy's memory is not aligned. Its packed weights serve all units from there.
  void take_start(const float* parameters) {
    memcpy(start_, parameters, count_ * sizeof(float));
    packed_ = nullptr;
  }

  // In each update one step on all members' batches. The last one goes to the result at once.
  int train_together(const CamuData& data, const CamuJob& job, const volatile int32_t* stop) {
    const int64_t* indices = job.indices;
    const int32_t* sizes = job.sizes;
    const float* from = start_;
    for (int update = 0; update < job.updates; update++) {
      if (*stop) return CAMU_STOPPED;
      float* to = update + 1 < job.updates ? state_ : job.trained_parameters;
      CamuBatch batch{indices, sizes, job.shares, job.members};
      Turn turn{job.rates ? job.rates[update] : job.rate, job.velocity};
      if (!step(data, job, turn, batch, &job.losses[update], from, to)) return CAMU_NO_MEMORY;
      for (int m = 0; m < job.members; m++) indices += sizes[m];
      sizes += job.members;
      from = to;
    }
    return CAMU_DONE;
  }

  int train_apart(const CamuData& data, const CamuJob& job, const volatile int32_t* stop) {
    const int64_t* indices = job.indices;
    const int32_t* sizes = job.sizes;
    const float* rates = job.rates;
    memcpy(state_, start_, count_ * sizeof(float));
    for (int update = 0; update < job.updates; update++) {
      int result = update_apart(data, job, indices, sizes, rates, stop, update);
      if (result != CAMU_DONE) return result;
    }
    memcpy(job.trained_parameters, state_, count_ * sizeof(float));
    return CAMU_DONE;
  }

  // Each member from the unit's state by steps of its own, then their mean.
  int update_apart(const CamuData& data, const CamuJob& job, const int64_t*& indices,
                   const int32_t*& sizes, const float*& rates, const volatile int32_t* stop,
                   int update) {
    double mean_buffers[BUFFERS] = {}, loss = 0;
    memcpy(unit_, state_, count_ * sizeof(float));
    float unit_buffers[BUFFERS];
    memcpy(unit_buffers, buffers_, sizeof buffers_);
    memset(mean_, 0, count_ * sizeof(double));
    for (int m = 0; m < job.members; m++) {
      memcpy(state_, unit_, count_ * sizeof(float));
      memcpy(buffers_, unit_buffers, sizeof buffers_);
      double member_loss = 0;
      for (int s = 0; s < job.steps[m]; s++) {
        if (*stop) return CAMU_STOPPED;
        const double whole = 1;
        double step_loss;
        Turn turn{rates ? *rates++ : job.rate, job.velocity ? job.velocity + m * count_ : nullptr};
        if (!step(data, job, turn, {indices, sizes, &whole, 1}, &step_loss, state_, state_))
          return CAMU_NO_MEMORY;
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

  // What a step has for itself: its rate, and the velocity of who takes it.
  struct Turn {
    float rate;
    float* velocity;
  };

  // From some parameters to others, or in place.
  bool step(const CamuData& data, const CamuJob& job, Turn turn, CamuBatch batch, double* loss,
            const float* from, float* to) {
    if (from == start_) {
      pack_start();
    } else {
      net_.pack(from);
      packed_ = from;
    }
    net_.reset();
    *loss = 0;
    if (!pass_all(data, batch, loss)) return false;
    if (job.clip > 0) {
      const float scale = whole_gradient(job, from);
      move_by_method(job, turn, scale, false, 0, whole_, count_, from, to);
    } else {
      net_.gradient(gradient_, [&](int first, const float* gradient, int count) {
        move(job, turn, first, gradient, count, from, to);
      });
    }
    move_statistics();
    return true;
  }

  // Puts the gradient with the pull of the proximal term together, and gives the factor that clips
  // it.
  float whole_gradient(const CamuJob& job, const float* from) {
    net_.gradient(gradient_, [&](int first, const float* gradient, int count) {
      for (int i = 0; i < count; i++) {
        float g = gradient[i];
        if (job.proximal != 0) g += job.proximal * (from[first + i] - job.anchor[first + i]);
        whole_[first + i] = g;
      }
    });
    const double factor = job.clip / (sqrt(sum_of_squares(whole_, count_)) + CLIP_MARGIN);
    return factor < 1 ? (float)factor : 1;
  }

  // Some parameters against their gradient.
  static void move(const CamuJob& job, Turn turn, int first, const float* gradient, int count,
                   const float* from, float* to) {
    if (turn.velocity || job.decay != 0)
      move_by_method(job, turn, 1, true, first, gradient, count, from, to);
    else if (job.proximal == 0 && !job.correction)
      move_by<false>(job, turn.rate, first, gradient, count, from, to);
    else
      move_by<true>(job, turn.rate, first, gradient, count, from, to);
  }

  // With momentum, decay of the weights or a clipped gradient, to which `pull` is not added again.
  static void move_by_method(const CamuJob& job, Turn turn, float scale, bool pull, int first,
                             const float* gradient, int count, const float* from, float* to) {
    const float rate = turn.rate, l2 = job.l2, momentum = job.momentum;
    const float proximal = pull ? job.proximal : 0, left = (float)(1 - (double)rate * job.decay);
    float* velocity = turn.velocity ? turn.velocity + first : nullptr;
    from += first;
    to += first;
#pragma GCC ivdep
    for (int i = 0; i < count; i++) {
      float g = scale * gradient[i] + l2 * from[i];
      if (proximal != 0) g += proximal * (from[i] - job.anchor[first + i]);
      if (job.correction) g += job.correction[first + i];
      if (velocity) {
        velocity[i] = momentum * velocity[i] + g;
        g = job.nesterov ? g + momentum * velocity[i] : velocity[i];
      }
      to[i] = left * from[i] - rate * g;
    }
  }

  // OTHERS: there are a proximal term or corrections.
  template <bool OTHERS>
  static void move_by(const CamuJob& job, float rate, int first, const float* gradient, int count,
                      const float* from, float* to) {
    const float l2 = job.l2, proximal = job.proximal;
    from += first;
    to += first;
#pragma GCC ivdep
    for (int i = 0; i < count; i++) {
      float g = gradient[i] + l2 * from[i];
      if (OTHERS && proximal != 0) g += proximal * (from[i] - job.anchor[first + i]);
      if (OTHERS && job.correction) g += job.correction[first + i];
      to[i] = from[i] - rate * g;
    }
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
        *loss += net_.train(data, {indices, batch.sizes + d, batch.shares + d, devices});
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
      const double part = share * here / samples;
      *loss += net_.train(data, {indices + done, &here, &part, 1});
    }
  }

  Net net_;
  int count_;
  Memory memory_;
  float *start_, *state_, *gradient_, *unit_, *whole_;
  const float* packed_ = nullptr;  // whose weights the network has, if they are the start's
  double* mean_;
  float buffers_[BUFFERS] = {};
};

}  // namespace CAMU_SET
