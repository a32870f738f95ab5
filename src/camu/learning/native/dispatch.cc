// The C functions of the library, and the choice of an instruction set. Compiled without any
// special instructions, so that it runs on every processor.
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

static bool supports(const char* set) {
  __builtin_cpu_init();
  if (!strcmp(set, "avx512")) return __builtin_cpu_supports("x86-64-v4");
  if (!strcmp(set, "avx2")) return __builtin_cpu_supports("x86-64-v3");
  return false;
}

// 1 if this processor has the instruction set "avx2" or "avx512".
EXPORT int32_t camu_supports(const char* set) { return supports(set); }

// The compiler and its version: other compilers may round differently.
EXPORT const char* camu_compiler() { return __VERSION__; }

// Results of units come and go. glibc would give their memory back and take it again page by page,
// which is a tenth of a round of small units. So it keeps up to 256 MiB that are free.
static void keep_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
#endif
}

// A worker, or null if there are no kernels for this geometry or no memory.
EXPORT void* camu_worker(const char* set, const CamuGeometry* geometry, int32_t norm,
                         int32_t classes) {
  if (!supports(set)) return nullptr;
  keep_memory();
  CamuMaker make = strcmp(set, "avx512") ? avx2::make : avx512::make;
  return make(*geometry, norm, classes);
}

EXPORT void camu_free(void* worker) {
  if (worker) ((CamuWorker*)worker)->end();
}

// The job of a unit; `arrays` moves on to the next one.
static CamuJob take_job(const CamuUnit& unit, CamuArrays* arrays) {
  const CamuArrays own = *arrays;
  const int64_t batches = own.counts[0], samples = own.counts[1], members = own.counts[2];
  arrays->indices += samples;
  arrays->sizes += batches;
  arrays->steps += members;
  arrays->counts += 3;
  arrays->shares += members;
  arrays->trained_parameters += own.parameters;
  arrays->trained_buffers += own.buffers;
  arrays->losses += unit.updates;
  return {unit.parameters, unit.buffers, unit.anchor,   unit.correction,
          own.indices,     own.sizes,    own.steps,     own.shares,
          unit.updates,    (int)members, unit.together, unit.rate,
          unit.l2,         unit.proximal, own.trained_parameters, own.trained_buffers,
          own.losses};
}

// Train some units, one after another; the last ones are not trained if it is stopped. The parameters
// of a call do not change during it, so those at the same place are the same.
EXPORT int32_t camu_train_units(void* worker, const CamuData* data, const CamuUnit* units,
                                int32_t count, const CamuArrays* arrays,
                                const volatile int32_t* stop) {
  CamuJob* jobs = (CamuJob*)malloc((size_t)count * sizeof(CamuJob));
  if (!jobs) return CAMU_NO_MEMORY;
  CamuArrays rest = *arrays;
  for (int32_t u = 0; u < count; u++) jobs[u] = take_job(units[u], &rest);
  int32_t result = ((CamuWorker*)worker)->train(*data, jobs, count, stop);
  free(jobs);
  return result;
}

// The gradient of the weighted mean loss of some devices; only the loss if `gradient` is null.
EXPORT int32_t camu_gradient(void* worker, const CamuData* data, const CamuBatch* batch,
                             const float* parameters, float* gradient, double* loss) {
  return ((CamuWorker*)worker)->gradient(*data, *batch, parameters, gradient, loss);
}

EXPORT int32_t camu_evaluate(void* worker, const CamuData* data, int64_t first, int64_t count,
                             const float* parameters, const float* buffers, int64_t* right,
                             double* loss) {
  return ((CamuWorker*)worker)->evaluate(*data, first, count, parameters, buffers, right, loss);
}
