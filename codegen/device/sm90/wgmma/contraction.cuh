// Owns the tensor-core contraction of sm_90a whose operands TMA loads: boxes of lines, or of pixels.
// The kernel is drawn in sm90/wgmma/product.cuh.
#include "fusor_generated.cuh"

#include "codegen/device/sm90/load/boxes.cuh"

struct Loader {
  struct Raw {};
  enum : bool { kHasRaw = false };
  template <class Params, class Shared>
  FUSOR_DEVICE void load(const Params& p, Shared& shared) {
    const bool ahead = Config::given != 0 && p.turn == kReadsAhead;
    if (threadIdx.x == 0) ::load(p.a, p.b, p.operands, p.schedule, shared.stages, ahead);
  }
  template <class Params, class Shared>
  FUSOR_DEVICE void load_ahead(const Params& p, Shared& shared) {
    ::load_ahead(p.a, p.b, p.operands, p.schedule, shared.stages);
  }
};

#include "codegen/device/sm90/wgmma/product.cuh"
