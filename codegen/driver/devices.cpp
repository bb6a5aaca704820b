// Owns what the driver says of devices, and their contexts.
#include "codegen/cuda_driver.h"

#ifdef FUSOR_WITH_CUDA

#include <array>
#include <map>
#include <mutex>
#include <string_view>

#include "codegen/driver/table.h"

namespace fusor::cuda {

namespace {

std::string_view architecture_of(int capability) {
  if (capability >= 100) return "Blackwell";
  if (capability >= 90) return "Hopper";
  if (capability == 89) return "Ada";
  if (capability >= 80) return "Ampere";
  if (capability >= 75) return "Turing";
  return capability >= 70 ? "Volta" : "older than Volta";
}

std::string device_name(CUdevice device) {
  std::array<char, 256> text{};
  check(driver().cuDeviceGetName(text.data(), static_cast<int>(text.size()) - 1, device), "name device {}",
        device);
  const std::string_view name(text.data());
  constexpr std::string_view kMaker = "NVIDIA ";
  return std::string(name.starts_with(kMaker) ? name.substr(kMaker.size()) : name);
}

}  // namespace

DeviceInfo describe(int ordinal) {
  CUdevice device = 0;
  check(driver().cuDeviceGet(&device, ordinal), "get device {} of {}", ordinal, device_count());
  DeviceInfo info;
  info.name = device_name(device);
  info.compute_capability = 10 * attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                            attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  info.architecture = architecture_of(info.compute_capability);
  info.sm_count = attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  info.shared_per_block = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  info.shared_per_sm = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  info.registers_per_sm = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  info.max_threads_per_sm = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  info.l2_bytes = attribute(device, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  size_t memory = 0;
  check(driver().cuDeviceTotalMem_v2(&memory, device), "read the memory size of device {}", ordinal);
  info.memory_bytes = static_cast<int64_t>(memory);
  info.clock_hz = 1e3 * attribute(device, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  info.source = fmt::format("the driver's attributes ({})", driver_version());
  return info;
}

std::shared_ptr<void> primary_context(CUdevice device) {
  static auto& mutex = *new std::mutex;
  static auto& contexts = *new std::map<CUdevice, std::weak_ptr<void>>;
  const std::scoped_lock lock(mutex);
  std::weak_ptr<void>& known = contexts[device];
  if (std::shared_ptr<void> context = known.lock()) return context;
  CUcontext made = nullptr;
  check(driver().cuDevicePrimaryCtxRetain(&made, device), "make a context on device {}", device);
  std::shared_ptr<void> context(made, [device](void*) { driver().cuDevicePrimaryCtxRelease_v2(device); });
  known = context;
  return context;
}

// Without a context cuCtxGetDevice fails, and tools that watch the driver report that as the program's error.
int current_device() {
  CUcontext context = nullptr;
  CUdevice device = 0;
  const bool has_context = driver().cuCtxGetCurrent(&context) == CUDA_SUCCESS && context != nullptr;
  return has_context && driver().cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : 0;
}

ContextScope::ContextScope() {
  CUcontext context = nullptr;
  if (driver().cuCtxGetCurrent(&context) == CUDA_SUCCESS && context != nullptr) return;
  CUdevice device = 0;
  check(driver().cuDeviceGet(&device, current_device()), "get device {}", current_device());
  held_ = primary_context(device);
  check(driver().cuCtxPushCurrent_v2(static_cast<CUcontext>(held_.get())), "use the context of device {}",
        current_device());
}

ContextScope::~ContextScope() {
  CUcontext context = nullptr;
  if (held_) driver().cuCtxPopCurrent_v2(&context);
}

bool adopt_context() {
  CUcontext context = nullptr;
  if (driver().cuCtxGetCurrent(&context) == CUDA_SUCCESS && context != nullptr) return false;
  make_current(0);
  return true;
}

void make_current(int ordinal) {
  CUdevice device = 0;
  check(driver().cuDeviceGet(&device, ordinal), "get device {} of {}", ordinal, device_count());
  static auto& mutex = *new std::mutex;
  static auto& held = *new std::map<CUdevice, std::shared_ptr<void>>;
  const std::scoped_lock lock(mutex);
  std::shared_ptr<void>& context = held[device];
  if (!context) context = primary_context(device);
  check(driver().cuCtxSetCurrent(static_cast<CUcontext>(context.get())), "use the context of device {}",
        ordinal);
}

}  // namespace fusor::cuda

#endif  // FUSOR_WITH_CUDA
