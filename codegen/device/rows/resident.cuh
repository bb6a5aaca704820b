// Owns the kernel of rows that all blocks of a grid share, which run at once (rows/meetings.cuh): every
// element is computed from shared memory by the thread that copied it there, and stored.
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"

#define FUSOR_METHOD __device__ __forceinline__
#include "codegen/device/rows/meetings.cuh"

extern "C" __global__ void __launch_bounds__(kThreads, Config::blocks)
    rows_resident(const __grid_constant__ Params p) {
  extern __shared__ __align__(16) char memory[];
  __shared__ __align__(16) char exchanged[kExchanged];
  enter_launch();
  Resident own;
  own.run(p, memory, exchanged);
  if constexpr (Y::kStoresElements) {
    if (own.exists)
      own.holder.template each<false>(p, own.first, own.at, false, [&](int, int count, const Held& held) {
        Y::finish<kVector>(p.y, own.at, count, held, Y::fixed<kVector>(p.y, own.at, count), own.row);
      });
  }
  own.finish_own_rows(p);
}
