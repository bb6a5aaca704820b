// Owns the calls into NVTX, whose headers look for a profiler themselves: there is nothing to link or to
// open.
#include "codegen/nvtx.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

namespace fusor::nvtx {

Range::Range(const char* name) { nvtxRangePushA(name); }
Range::~Range() { nvtxRangePop(); }
void start() { nvtxInitialize(nullptr); }

}  // namespace fusor::nvtx

#else

namespace fusor::nvtx {

Range::Range(const char*) {}
Range::~Range() = default;
void start() {}

}  // namespace fusor::nvtx

#endif
