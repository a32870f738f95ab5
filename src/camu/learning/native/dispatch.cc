// The C functions of the library, and the choice of an instruction set. Compiled without any
// special instructions, so that it runs on every processor.
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

// The number of the interface. Writes the sizes of the structs that Python fills, for a comparison.
EXPORT int32_t camu_abi(int64_t sizes[5]) {
  const int64_t own[] = {sizeof(CamuGeometry), sizeof(CamuData), sizeof(CamuBatch),
                         sizeof(CamuJob), sizeof(CamuWanted)};
  memcpy(sizes, own, sizeof own);
  return CAMU_ABI;
}

// The compiler and its version: other compilers may round differently.
EXPORT const char* camu_compiler() { return __VERSION__; }

// A worker, or null if there are no kernels for this geometry or no memory.
EXPORT void* camu_worker(const char* set, const CamuGeometry* geometry, int32_t norm,
                         int32_t classes) {
  if (!supports(set)) return nullptr;
  CamuMaker make = strcmp(set, "avx512") ? avx2::make : avx512::make;
  return make(*geometry, norm, classes);
}

EXPORT void camu_free(void* worker) {
  if (worker) ((CamuWorker*)worker)->end();
}

// Train some units, one after another; the last ones are not trained if it is stopped. The parameters
// of a call do not change during it, so those at the same address are the same.
EXPORT int32_t camu_train_units(void* worker, const CamuData* data, const CamuJob* jobs,
                                int32_t count, const volatile int32_t* stop) {
  return ((CamuWorker*)worker)->train(*data, jobs, count, stop);
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
