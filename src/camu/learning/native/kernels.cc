// The kernels for one instruction set. The build compiles this file once per set, with
// -DCAMU_SET=avx2, avx512 or neon: the sets have namespaces of their own, because the linker would take
// functions of the same name for copies of each other.
#include "training.h"

namespace CAMU_SET {

template <class Net>
CamuWorker* made(int32_t norm, int32_t classes) {
  void* place = aligned_alloc(64, sizeof(Worker<Net>));
  if (!place) return nullptr;
  memset(place, 0, sizeof(Worker<Net>));
  auto* worker = new (place) Worker<Net>(norm, classes);
  if (worker->reserve()) return worker;
  worker->end();
  return nullptr;
}

CamuWorker* make(CamuGeometry g, int32_t norm, int32_t classes) {
  auto is = [&](int channels, int side, int kernel, int padding) {
    return g.channels == channels && g.side == side && g.kernel == kernel && g.padding == padding;
  };
  if (classes < 1 || classes > MOST_CLASSES || norm < CAMU_BATCH_NORM || norm > CAMU_NO_NORM)
    return nullptr;
  if (is(1, 28, 5, 0)) return made<Network<1, 28, 5, 0>>(norm, classes);  // MNIST
  if (is(1, 8, 3, 1)) return made<Network<1, 8, 3, 1>>(norm, classes);    // digits
  if (is(3, 32, 5, 0)) return made<Network<3, 32, 5, 0>>(norm, classes);  // CIFAR
  return nullptr;
}

}  // namespace CAMU_SET
