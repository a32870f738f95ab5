// What Python sees of the kernels: plain structs and C functions, so that ctypes can call them.
//
// A worker owns the memory that training one unit at a time needs. It is made for one geometry of
// images, one normalisation and one number of classes, and must not be used by two threads at once.
#pragma once
#include <stdint.h>

// The number of this interface. Python loads no library with another one: raise it with every change
// of a struct or a function that Python sees.
#define CAMU_ABI 3

#define EXPORT extern "C" __attribute__((visibility("default")))

// The order matters: Python passes these numbers.
enum CamuNorm { CAMU_BATCH_NORM, CAMU_GROUP_NORM, CAMU_NO_NORM };

struct CamuGeometry {
  int32_t channels, side, kernel, padding;
};

struct CamuData {
  const uint8_t* images;   // (samples, channels, side, side)
  const int64_t* labels;
};

// Some devices' samples, one device after another.
struct CamuBatch {
  const int64_t* indices;  // of samples in the data
  const int32_t* sizes;    // samples of each device
  const double* shares;    // weight of each device's mean loss
  int32_t devices;
};

// The training of one unit. In `together` mode every update is one step on the members' weighted
// mean loss. Otherwise each member takes its own steps from the unit's state, and the results are
// averaged; `steps` says how many steps each member takes per update.
struct CamuJob {
  const float* parameters;
  const float* buffers;
  const float* anchor;      // of the proximal term
  const float* correction;  // added to every gradient, or null
  const int64_t* indices;   // in the order update, member, step
  const int32_t* sizes;     // samples of each (update, member, step)
  const int32_t* steps;     // of each member
  const double* shares;     // of each member; their sum is 1
  const float* rates;       // of each step in the order update, member; null: `rate` at all of them
  float* velocity;          // of the unit, or where members step apart of each; null: no momentum
  float* trained_parameters;
  float* trained_buffers;
  double* losses;           // one per update
  int32_t updates, members, together, nesterov;
  float rate, l2, proximal;
  float momentum, decay, clip;  // of the velocity, of the weights beside the gradient; largest norm
};

// The mini-batches that a unit asks for: in each update from `first` up to, but not including, `end`,
// every member takes `steps` batches or, with `epochs`, passes over its samples.
struct CamuWanted {
  int64_t members, first, end, steps, epochs;
};

enum CamuResult { CAMU_DONE = 0, CAMU_STOPPED = 1, CAMU_NO_MEMORY = 2 };

struct CamuWorker {
  virtual void end() = 0;  // frees the worker
  // Some units in their order. Those that start at the same place start from the same parameters.
  virtual int train(const CamuData&, const CamuJob* jobs, int count,
                    const volatile int32_t* stop) = 0;
  virtual int gradient(const CamuData&, const CamuBatch&, const float* parameters, float* gradient,
                       double* loss) = 0;
  virtual int evaluate(const CamuData&, int64_t first, int64_t count, const float* parameters,
                       const float* buffers, int64_t* right, double* loss) = 0;
};

double sum_of_squares(const float* numbers, int64_t count);  // bit by bit as numpy adds them

// One maker per instruction set; null if the geometry has no kernels, or if there is no memory.
typedef CamuWorker* (*CamuMaker)(CamuGeometry, int32_t norm, int32_t classes);
#ifdef __x86_64__
namespace avx2 {
CamuWorker* make(CamuGeometry, int32_t norm, int32_t classes);
}
namespace avx512 {
CamuWorker* make(CamuGeometry, int32_t norm, int32_t classes);
}
#else
namespace neon {
CamuWorker* make(CamuGeometry, int32_t norm, int32_t classes);
}
#endif
