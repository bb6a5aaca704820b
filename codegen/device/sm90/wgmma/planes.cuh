// Owns the tensor-core contraction of sm_90a for a wgrad of planes with windows.
// The kernel is drawn in sm90/wgmma/product.cuh.
#include "fusor_generated.cuh"

#include "codegen/device/sm90/load/planes.cuh"

struct Loader {
  struct Raw {};
  enum : bool { kHasRaw = false };
  template <class Params, class Shared>
  FUSOR_DEVICE void load(const Params& p, Shared& shared) {
    if (threadIdx.x == 0) load_planes(p.a, p.b[0], p.operands, p.schedule, shared.stages);
  }
};

#include "codegen/device/sm90/wgmma/product.cuh"
