// Owns handles and their calls.
#include "compat/cudnn/src/handle.h"

#include <dlfcn.h>

#include <filesystem>
#include <map>
#include <mutex>

#include "codegen/cuda_driver.h"
#include "codegen/kernel_cache.h"
#include "compat/cudnn/src/registry.h"
#include "compat/cudnn/src/status.h"

namespace fusor::cudnn {

std::shared_ptr<Handle> handle_at(const void* handle) { return registry<Handle>().find(handle); }

void* Handle::grown(DeviceMemory& memory, int64_t bytes) {
  if (bytes > memory.bytes()) {
    if (memory.get() != nullptr) synchronize(*device, stream);  // earlier calls may still use it
    memory = DeviceMemory(*device, bytes);
  }
  return memory.get();
}

std::shared_ptr<const DeviceInfo> current_device_info() {
  static std::mutex mutex;
  static auto& known = *new std::map<int, std::shared_ptr<const DeviceInfo>>;
  const int ordinal = cuda::available() ? cuda::current_device() : -1;
  const std::scoped_lock lock(mutex);
  auto& device = known[ordinal];
  if (!device) device = std::make_shared<const DeviceInfo>(DeviceInfo::current());
  return device;
}

void find_shipped_kernels() {
  [[maybe_unused]] static const bool once = [] {
    Dl_info library{};
    if (dladdr(reinterpret_cast<const void*>(&cudnnCreate), &library) == 0) return false;
    const std::filesystem::path folder = std::filesystem::path(library.dli_fname).parent_path() / "kernels";
    std::error_code error;
    if (std::filesystem::is_directory(folder, error)) set_shipped_kernels(folder);
    return true;
  }();
}

}  // namespace fusor::cudnn

using namespace fusor::cudnn;  // NOLINT(google-build-using-namespace): the C interface speaks of nothing else

extern "C" {

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  return guarded("cudnnCreate", [&] {
    if (handle == nullptr) refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the place of the handle is null");
    auto fresh = std::make_shared<Handle>();
    find_shipped_kernels();
    fresh->device = current_device_info();
    *handle = static_cast<cudnnHandle_t>(registry<Handle>().add(std::move(fresh)));
  });
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  return guarded("cudnnDestroy", [&] { registry<Handle>().remove(handle); });
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return guarded("cudnnSetStream", [&] { handle_at(handle)->stream = stream; });
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  return guarded("cudnnGetStream", [&] {
    const auto object = handle_at(handle);
    if (stream == nullptr) refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the place of the stream is null");
    *stream = static_cast<cudaStream_t>(object->stream.load());
  });
}

}  // extern "C"
