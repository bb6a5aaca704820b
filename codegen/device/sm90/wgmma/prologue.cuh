// Owns the tensor-core contraction of sm_90a for matmuls of which threads apply a prologue to an operand or
// both. The kernel is drawn in sm90/wgmma/product.cuh.
#include "fusor_generated.cuh"

#include "codegen/device/sm90/load/prologue.cuh"

struct Loader {
  using Raw = RawStages;
  enum : bool { kHasRaw = true };
  template <class Params, class Shared>
  FUSOR_DEVICE void load(const Params& p, Shared& shared) {
    load_through_prologues(p, shared.stages, shared.raw);
  }
};

#include "codegen/device/sm90/wgmma/product.cuh"
