// The C functions of the library, and the choice of an instruction set. Compiled without any
// special instructions, so that it runs on every processor.
#include <string.h>

#include "kernels.h"

// The maker of workers with this instruction set; null where the processor has no such instructions.
static CamuMaker maker(const char* set) {
#ifdef __x86_64__
  __builtin_cpu_init();
  if (!strcmp(set, "avx512") && __builtin_cpu_supports("x86-64-v4")) return avx512::make;
  if (!strcmp(set, "avx2") && __builtin_cpu_supports("x86-64-v3")) return avx2::make;
#else
  if (!strcmp(set, "neon")) return neon::make;  // every processor of this kind has it
#endif
  return nullptr;
}

// 1 if this processor has the instruction set "avx2", "avx512" or "neon".
EXPORT int32_t camu_supports(const char* set) { return maker(set) != nullptr; }

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
  CamuMaker make = maker(set);
  return make ? make(*geometry, norm, classes) : nullptr;
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
