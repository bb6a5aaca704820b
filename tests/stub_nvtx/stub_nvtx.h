// Owns a profiler that keeps the names of NVTX ranges, for tests of what profilers are shown.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <vector>

extern "C" {
/// Names of the ranges pushed since the last reset, each followed by a newline.
const char* fusor_stub_nvtx_ranges();
/// Ranges that were pushed and not popped since the last reset; other libraries (NVRTC) push theirs, too.
int fusor_stub_nvtx_depth();
void fusor_stub_nvtx_reset();
}

namespace fusor::stub_nvtx {

#ifdef FUSOR_STUB_NVTX
/// Makes this process's NVTX find the stub. Call before the library first loads a plan.
inline void use() { setenv("NVTX_INJECTION64_PATH", FUSOR_STUB_NVTX, 1); }
inline bool listens() { return true; }

template <class Function>
Function* function(const char* name) {
  return reinterpret_cast<Function*>(dlsym(dlopen(FUSOR_STUB_NVTX, RTLD_NOW | RTLD_LOCAL), name));
}
inline void reset() { function<decltype(fusor_stub_nvtx_reset)>("fusor_stub_nvtx_reset")(); }
inline int depth() { return function<decltype(fusor_stub_nvtx_depth)>("fusor_stub_nvtx_depth")(); }
inline std::vector<std::string> ranges() {
  const std::string text = function<decltype(fusor_stub_nvtx_ranges)>("fusor_stub_nvtx_ranges")();
  std::vector<std::string> names;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    names.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return names;
}
#else
inline void use() {}
inline bool listens() { return false; }
inline void reset() {}
inline int depth() { return 0; }
inline std::vector<std::string> ranges() { return {}; }
#endif

}  // namespace fusor::stub_nvtx
