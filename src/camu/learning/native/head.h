// Everything after the convolutions: normalisation, 50 hidden units, classes, cross-entropy.
//
// Here a row is a sample: its features lie side by side, channel by channel, padded with zeros to a
// whole number of vectors. Weights are given as the flat parameters of the model.
#pragma once
#include <math.h>
#include <string.h>

#include "kernels.h"
#include "products.h"

namespace CAMU_SET {

constexpr int CHANNELS = 20;  // that the convolutions give
constexpr int HIDDEN = 50;
constexpr int HIDDEN_WIDTH = 64;  // a row of hidden units, padded
constexpr int GROUPS = 4;         // of channels, in group norm
constexpr float EPSILON = 1e-5f;  // in the normalisations, as in torch
constexpr int MOST_CLASSES = 256;

// Where the parts of the head begin in the flat parameters; gamma and beta only with a norm.
struct HeadOffsets {
  int gamma, beta, hidden, hidden_bias, output, output_bias, end;

  HeadOffsets(int begin, int norm, int features, int classes) {
    gamma = begin;
    beta = gamma + (norm == CAMU_NO_NORM ? 0 : CHANNELS);
    hidden = beta + (norm == CAMU_NO_NORM ? 0 : CHANNELS);
    hidden_bias = hidden + HIDDEN * features;
    output = hidden_bias + HIDDEN;
    output_bias = output + classes * HIDDEN;
    end = output_bias + classes;
  }
};

// The rows of one pass. Memory belongs to the network.
struct PassRows {
  float *features, *normalised, *gradients;  // of each sample, WIDTH apart
  float *hidden, *hidden_gradients;          // HIDDEN_WIDTH apart
  float* statistics;                         // mean and inverse deviation per device or sample
  float* scales;                             // weight of each sample's loss
  int64_t *labels, *indices;                 // of each sample, in the data

  // The same from another row on.
  PassRows from(long row, long width) const {
    return {features + row * width, normalised + row * width, gradients + row * width,
            hidden + row * HIDDEN_WIDTH, hidden_gradients + row * HIDDEN_WIDTH,
            statistics + row * 2 * CHANNELS, scales + row, labels + row, indices + row};
  }
};

template <int POSITIONS>
struct alignas(64) Head {
  static constexpr int FEATURES = CHANNELS * POSITIONS;
  static constexpr int WIDTH = rounded_up(FEATURES, 16);

  // Weights of the present step, and sums of gradients since its beginning.
  float hidden_columns[FEATURES * HIDDEN_WIDTH];  // hidden weights, transposed
  float hidden_bias[HIDDEN_WIDTH];
  float output[MOST_CLASSES * HIDDEN_WIDTH];
  float hidden_sums[HIDDEN * WIDTH];
  float hidden_bias_sums[HIDDEN_WIDTH];
  float output_sums[MOST_CLASSES * HIDDEN_WIDTH];
  float output_bias_sums[MOST_CLASSES];
  float gamma_sums[CHANNELS], beta_sums[CHANNELS], input_sums[CHANNELS];
  double means[CHANNELS], variances[CHANNELS];  // of the devices, weighted
  // One value per feature, for vectors of features.
  float column_a[WIDTH], column_b[WIDTH], column_c[WIDTH], column_d[WIDTH];

  bool fresh;  // nothing was added to hidden_sums, and they are not zero but old
  int norm, classes;
  HeadOffsets at{0, 0, 0, 0};
  const float* parameters;

  void pack(const float* given) {
    parameters = given;
    for (int j = 0; j < HIDDEN_WIDTH; j += LANES)
      for (int q = 0; q < FEATURES; q += LANES) transpose_hidden(j, q);
    memset(hidden_bias, 0, sizeof hidden_bias);
    memcpy(hidden_bias, parameters + at.hidden_bias, HIDDEN * sizeof(float));
    memset(output, 0, classes * HIDDEN_WIDTH * sizeof(float));
    for (int c = 0; c < classes; c++)
      memcpy(output + c * HIDDEN_WIDTH, parameters + at.output + c * HIDDEN,
             HIDDEN * sizeof(float));
  }

  void reset() {
    fresh = true;
    memset(hidden_bias_sums, 0, sizeof hidden_bias_sums);
    memset(output_sums, 0, classes * HIDDEN_WIDTH * sizeof(float));
    memset(output_bias_sums, 0, sizeof output_bias_sums);
    memset(gamma_sums, 0, sizeof gamma_sums);
    memset(beta_sums, 0, sizeof beta_sums);
    memset(input_sums, 0, sizeof input_sums);
    memset(means, 0, sizeof means);
    memset(variances, 0, sizeof variances);
  }

  // The gradient without that of the hidden weights.
  void write(float* gradient) const {
    if (norm != CAMU_NO_NORM) {
      memcpy(gradient + at.gamma, gamma_sums, sizeof gamma_sums);
      memcpy(gradient + at.beta, beta_sums, sizeof beta_sums);
    }
    memcpy(gradient + at.hidden_bias, hidden_bias_sums, HIDDEN * sizeof(float));
    for (int c = 0; c < classes; c++)
      memcpy(gradient + at.output + c * HIDDEN, output_sums + c * HIDDEN_WIDTH,
             HIDDEN * sizeof(float));
    memcpy(gradient + at.output_bias, output_bias_sums, classes * sizeof(float));
  }

  // ------------------------------------------------------------------ normalisation, forward

  // A device's samples by their own mean and variance; both enter the running statistics.
  void normalise_device(PassRows& rows, int first, int samples, int device, double share) {
    float* mean = rows.statistics + device * 2 * CHANNELS;
    float* inverse = mean + CHANNELS;
    const float count = (float)samples * POSITIONS;
    const float* x = rows.features + (long)first * WIDTH;
    column_sums(samples, column_a, [&](long i) { return load(x + i); });
    for (int c = 0; c < CHANNELS; c++) mean[c] = sum(column_a + c * POSITIONS, POSITIONS) / count;
    spread(mean, column_b);
    column_sums(samples, column_a, [&](long i) {
      Vector d = load(x + i) - load(column_b + i % WIDTH);
      return d * d;
    });
    for (int c = 0; c < CHANNELS; c++) {
      float variance = sum(column_a + c * POSITIONS, POSITIONS) / count;
      inverse[c] = 1 / sqrtf(variance + EPSILON);
      means[c] += share * mean[c];
      variances[c] += count > 1 ? share * variance * (count / (count - 1)) : 0;
    }
    scale_rows(rows, first, samples, mean, inverse);
  }

  // By the running statistics, for evaluation; buffers are the means, then the variances.
  void normalise_running(PassRows& rows, int samples, const float* buffers) {
    float inverse[CHANNELS];
    for (int c = 0; c < CHANNELS; c++) inverse[c] = 1 / sqrtf(buffers[CHANNELS + c] + EPSILON);
    scale_rows(rows, 0, samples, buffers, inverse);
  }

  // Each sample by the mean and variance of each group of channels.
  void normalise_groups(PassRows& rows, int samples) {
    constexpr int size = FEATURES / GROUPS;
    for (int s = 0; s < samples; s++) {
      const float* x = rows.features + (long)s * WIDTH;
      float mean[CHANNELS], inverse[CHANNELS];
      for (int g = 0; g < GROUPS; g++) {
        float centre = sum(x + g * size, size) / size;
        for (int i = 0; i < size; i++) {
          float d = x[g * size + i] - centre;
          column_a[i] = d * d;
        }
        float scale = 1 / sqrtf(sum(column_a, size) / size + EPSILON);
        for (int c = g * CHANNELS / GROUPS; c < (g + 1) * CHANNELS / GROUPS; c++) {
          mean[c] = centre;
          inverse[c] = scale;
        }
        rows.statistics[(long)s * 2 * CHANNELS + g] = centre;
        rows.statistics[(long)s * 2 * CHANNELS + CHANNELS + g] = scale;
      }
      scale_rows(rows, s, 1, mean, inverse);
    }
  }

  // ----------------------------------------------------------------- normalisation, backward
  // Gradients of the normalised features become gradients of the features, in place.

  void device_backward(PassRows& rows, int first, int samples, int device) {
    const float* mean = rows.statistics + device * 2 * CHANNELS;
    const float* inverse = mean + CHANNELS;
    const float count = (float)samples * POSITIONS;
    const float* x = rows.features + (long)first * WIDTH;
    float* g = rows.gradients + (long)first * WIDTH;
    spread(mean, column_b);
    spread(inverse, column_c);
    auto standard = [&](long i) {
      return (load(x + i) - load(column_b + i % WIDTH)) * load(column_c + i % WIDTH);
    };
    float beta[CHANNELS], gamma[CHANNELS], slope[CHANNELS];
    column_sums(samples, column_a, [&](long i) { return load(g + i); });
    for (int c = 0; c < CHANNELS; c++) beta[c] = sum(column_a + c * POSITIONS, POSITIONS);
    column_sums(samples, column_a, [&](long i) { return load(g + i) * standard(i); });
    for (int c = 0; c < CHANNELS; c++) gamma[c] = sum(column_a + c * POSITIONS, POSITIONS);
    for (int c = 0; c < CHANNELS; c++) {
      beta_sums[c] += beta[c];
      gamma_sums[c] += gamma[c];
      slope[c] = parameters[at.gamma + c] * inverse[c];
      beta[c] /= count;
      gamma[c] /= count;
    }
    spread(beta, column_a);
    spread(gamma, column_d);
    for (long s = 0; s < samples; s++)
      for (int q = 0; q < WIDTH; q += LANES) {
        long i = s * WIDTH + q;
        store(g + i, load(g + i) - load(column_a + q) - standard(i) * load(column_d + q));
      }
    spread(slope, column_a);
    for (long s = 0; s < samples; s++)
      for (int q = 0; q < WIDTH; q += LANES)
        store(g + s * WIDTH + q, load(g + s * WIDTH + q) * load(column_a + q));
  }

  void groups_backward(PassRows& rows, int samples) {
    constexpr int size = FEATURES / GROUPS, channels = CHANNELS / GROUPS;
    const float *gammas = parameters + at.gamma;
    for (int s = 0; s < samples; s++) {
      const float* x = rows.features + (long)s * WIDTH;
      float* g = rows.gradients + (long)s * WIDTH;
      const float* centre = rows.statistics + (long)s * 2 * CHANNELS;
      for (int group = 0; group < GROUPS; group++) {
        float mean = centre[group], scale = centre[CHANNELS + group], plain = 0, projected = 0;
        for (int c = group * channels; c < (group + 1) * channels; c++) {
          float beta = 0, gamma = 0;
          for (int i = c * POSITIONS; i < (c + 1) * POSITIONS; i++) {
            beta += g[i];
            gamma += g[i] * ((x[i] - mean) * scale);
          }
          beta_sums[c] += beta;
          gamma_sums[c] += gamma;
          plain += gammas[c] * beta;
          projected += gammas[c] * gamma;
        }
        plain /= size;
        projected /= size;
        for (int c = group * channels; c < (group + 1) * channels; c++)
          for (int i = c * POSITIONS; i < (c + 1) * POSITIONS; i++)
            g[i] = scale * (gammas[c] * g[i] - plain - (x[i] - mean) * scale * projected);
      }
    }
  }

  // The bias of the last convolution has the sum of the gradients of its channel.
  void add_input_sums(const PassRows& rows, int samples) {
    column_sums(samples, column_a, [&](long i) { return load(rows.gradients + i); });
    for (int c = 0; c < CHANNELS; c++) input_sums[c] += sum(column_a + c * POSITIONS, POSITIONS);
  }

  // ------------------------------------------------------------------------------ classifier

  void forward_hidden(PassRows& rows, int samples) {
    multiply({rows.normalised, WIDTH, 1}, hidden_columns, HIDDEN_WIDTH, samples, FEATURES,
             HIDDEN_WIDTH, {rows.hidden, HIDDEN_WIDTH}, false);
    for (long s = 0; s < samples; s++)
      for (int j = 0; j < HIDDEN_WIDTH; j += LANES) {
        Vector value = load(rows.hidden + s * HIDDEN_WIDTH + j) + load(hidden_bias + j);
        store(rows.hidden + s * HIDDEN_WIDTH + j, value > 0 ? value : Vector{});
      }
  }

  // Logits of one sample; returns the logarithm of the sum of their exponentials.
  float logits_of(const float* hidden, float* logits) const {
    float most = -INFINITY, total = 0;
    for (int c = 0; c < classes; c++) {
      Vector products{};
      for (int j = 0; j < HIDDEN_WIDTH; j += LANES)
        products += load(hidden + j) * load(output + c * HIDDEN_WIDTH + j);
      logits[c] = sum(products) + parameters[at.output_bias + c];
      if (logits[c] > most) most = logits[c];
    }
    for (int c = 0; c < classes; c++) total += expf(logits[c] - most);
    return logf(total) + most;
  }

  // The weighted loss; leaves the gradients of the hidden units in the rows.
  double loss_and_gradients(PassRows& rows, int samples) {
    double loss = 0;
    float logits[MOST_CLASSES];
    for (long s = 0; s < samples; s++) {
      const float* hidden = rows.hidden + s * HIDDEN_WIDTH;
      const float scale = rows.scales[s], normaliser = logits_of(hidden, logits);
      loss += (double)scale * (normaliser - logits[rows.labels[s]]);
      Vector back[HIDDEN_WIDTH / LANES] = {};
      for (int c = 0; c < classes; c++) {
        float g = scale * (expf(logits[c] - normaliser) - (c == rows.labels[s]));
        output_bias_sums[c] += g;
        for (int v = 0; v < HIDDEN_WIDTH / LANES; v++) {
          float* sums = output_sums + c * HIDDEN_WIDTH + v * LANES;
          store(sums, load(sums) + g * load(hidden + v * LANES));
          back[v] += g * load(output + c * HIDDEN_WIDTH + v * LANES);
        }
      }
      for (int v = 0; v < HIDDEN_WIDTH / LANES; v++) {
        Vector active = load(hidden + v * LANES) > 0 ? back[v] : Vector{};
        store(rows.hidden_gradients + s * HIDDEN_WIDTH + v * LANES, active);
        float* sums = hidden_bias_sums + v * LANES;
        store(sums, load(sums) + active);
      }
    }
    return loss;
  }

  // Gradients of the hidden weights, and of the normalised features.
  void hidden_backward(PassRows& rows, int samples) {
    multiply({rows.hidden_gradients, 1, HIDDEN_WIDTH}, rows.normalised, WIDTH, HIDDEN, samples,
             WIDTH, {hidden_sums, WIDTH}, !fresh);
    fresh = false;
    multiply({rows.hidden_gradients, HIDDEN_WIDTH, 1}, parameters + at.hidden, FEATURES, samples,
             HIDDEN, WIDTH, {rows.gradients, WIDTH}, false);
  }

 private:
  void transpose_hidden(int j, int q) {
    const float* from = parameters + at.hidden + q;
    transpose([&](int i) { return j + i < HIDDEN ? load(from + (j + i) * FEATURES) : Vector{}; },
              [&](int i, Vector units) {
                if (q + i < FEATURES) store(hidden_columns + (q + i) * HIDDEN_WIDTH + j, units);
              });
  }

  // normalised = (features - mean) * inverse * gamma + beta, per channel.
  void scale_rows(PassRows& rows, int first, int samples, const float* mean,
                  const float* inverse) {
    float scale[CHANNELS];
    for (int c = 0; c < CHANNELS; c++) scale[c] = inverse[c] * parameters[at.gamma + c];
    spread(mean, column_b);
    spread(scale, column_c);
    spread(parameters + at.beta, column_d);
    for (long s = first; s < first + samples; s++)
      for (int q = 0; q < WIDTH; q += LANES) {
        long i = s * WIDTH + q;
        Vector centred = load(rows.features + i) - load(column_b + q);
        store(rows.normalised + i, centred * load(column_c + q) + load(column_d + q));
      }
  }

  static void spread(const float* channels, float* columns) {
    for (int c = 0; c < CHANNELS; c++)
      for (int i = 0; i < POSITIONS; i++) columns[c * POSITIONS + i] = channels[c];
    for (int i = FEATURES; i < WIDTH; i++) columns[i] = 0;
  }

  // Sums over rows, feature by feature; term(i) is a vector at the i-th number of the rows.
  template <class Term>
  static void column_sums(int samples, float* to, Term term) {
    for (int q = 0; q < WIDTH; q += LANES) {
      Vector total{};
      for (long s = 0; s < samples; s++) total += term(s * WIDTH + q);
      store(to + q, total);
    }
  }
};

}  // namespace CAMU_SET
