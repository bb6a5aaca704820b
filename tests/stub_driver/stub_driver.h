// Owns what tests may ask the stub driver: what was launched, and what is still held.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

/// One launch as the driver was told of it.
struct FusorStubLaunch {
  char entry[128];
  uint32_t grid[3], block[3], cluster[3];
  uint32_t shared_bytes;
  bool cooperative, programmatic;
  const void* stream;
  size_t argument_bytes;
  unsigned char arguments[4096];
};

extern "C" {
/// Launches since the last reset; those of a graph count when the graph is launched.
int64_t fusor_stub_launch_count();
/// The launch `back` before the last one (the last 64 are kept); false where there was none.
bool fusor_stub_last_launch(int back, FusorStubLaunch* launch);
/// Libraries that are loaded, and bytes of device memory that are allocated.
int64_t fusor_stub_libraries();
int64_t fusor_stub_device_bytes();
/// Libraries loaded so far; the primary context's retains so far, and those without a release.
int64_t fusor_stub_library_loads();
int64_t fusor_stub_context_retains();
int64_t fusor_stub_context_holds();
/// Forgets the launches.
void fusor_stub_reset();
/// Without it, launches are neither judged nor kept and cost next to nothing: for timing the library's own
/// share.
void fusor_stub_keep_launches(bool keep);
}

#ifdef FUSOR_STUB_DRIVER
namespace fusor::stub {

/// Makes this process use the stub as its driver. Call before the library first looks for one.
inline void use() { setenv("FUSOR_LIBCUDA", FUSOR_STUB_DRIVER, 1); }

/// An exported function of the stub, looked up at run time: a program linked against the stub would show the
/// stub's functions to a real driver, too.
template <class Function>
Function* function(const char* name) {
  return reinterpret_cast<Function*>(dlsym(dlopen(FUSOR_STUB_DRIVER, RTLD_NOW | RTLD_LOCAL), name));
}

inline int64_t launch_count() {
  return function<decltype(fusor_stub_launch_count)>("fusor_stub_launch_count")();
}
inline int64_t libraries() { return function<decltype(fusor_stub_libraries)>("fusor_stub_libraries")(); }
inline int64_t device_bytes() {
  return function<decltype(fusor_stub_device_bytes)>("fusor_stub_device_bytes")();
}
inline int64_t library_loads() {
  return function<decltype(fusor_stub_library_loads)>("fusor_stub_library_loads")();
}
inline int64_t context_retains() {
  return function<decltype(fusor_stub_context_retains)>("fusor_stub_context_retains")();
}
inline int64_t context_holds() {
  return function<decltype(fusor_stub_context_holds)>("fusor_stub_context_holds")();
}
inline void reset() { function<decltype(fusor_stub_reset)>("fusor_stub_reset")(); }
inline void keep_launches(bool keep) {
  function<decltype(fusor_stub_keep_launches)>("fusor_stub_keep_launches")(keep);
}
/// All zero where there was no such launch.
inline FusorStubLaunch last_launch(int back = 0) {
  FusorStubLaunch launch{};
  function<decltype(fusor_stub_last_launch)>("fusor_stub_last_launch")(back, &launch);
  return launch;
}

}  // namespace fusor::stub
#endif  // FUSOR_STUB_DRIVER
