// Owns the stub profiler: NVTX loads it by NVTX_INJECTION64_PATH and is given functions that keep what they
// are told.
#include "tests/stub_nvtx/stub_nvtx.h"

#include <nvtx3/nvToolsExt.h>

#include <cstring>
#include <mutex>

namespace {

// Fixed, so that runs under this profiler allocate nothing either; names that do not fit are left out.
constexpr size_t kRoom = 1 << 14;
char all[kRoom];
size_t used = 0;
int open_ranges = 0;
std::mutex guard;  // of all of these: many threads run plans

int push(const char* name) {
  const std::lock_guard lock(guard);
  const size_t size = std::strlen(name);
  if (used + size + 2 <= kRoom) {
    std::memcpy(all + used, name, size);
    all[used + size] = '\n';
    used += size + 1;
    all[used] = '\0';
  }
  return open_ranges++;
}

int pop() {
  const std::lock_guard lock(guard);
  return --open_ranges;
}

}  // namespace

extern "C" {

const char* fusor_stub_nvtx_ranges() { return all; }
int fusor_stub_nvtx_depth() { return open_ranges; }
void fusor_stub_nvtx_reset() {
  used = 0;
  open_ranges = 0;
  all[0] = '\0';
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  if (callbacks == nullptr) return 0;
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 0 ||
      size <= NVTX_CBID_CORE_RangePop)
    return 0;
  *table[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(&push);
  *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(&pop);
  return 1;
}
}
