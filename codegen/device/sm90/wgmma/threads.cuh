// Owns the tensor-core contraction of sm_90a for matmuls of which threads load an operand or both.
// The kernel is drawn in sm90/wgmma/product.cuh.
#include "fusor_generated.cuh"

#include "codegen/device/sm90/load/threads.cuh"

struct Loader {
  struct Raw {};
  enum : bool { kHasRaw = false };
  template <class Params, class Shared>
  FUSOR_DEVICE void load(const Params& p, Shared& shared) {
    load_by_threads(p, shared.stages);
  }
};

#include "codegen/device/sm90/wgmma/product.cuh"
