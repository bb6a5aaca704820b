// Owns Handle: a device and a stream.
#pragma once

#include <atomic>
#include <memory>

#include "backend/device_memory.h"
#include "core/device_info.h"

namespace fusor::cudnn {

struct Handle {
  static constexpr const char* kWhat = "handle";
  std::shared_ptr<const DeviceInfo> device;
  std::atomic<void*> stream{nullptr};

  /// Memory for calls that get none from the client: it grows, and is shared by all calls of the handle's
  /// thread.
  void* scratch(int64_t bytes) { return grown(scratch_, bytes); }
  /// More of it, for copies of operands that a call's results replace.
  void* copies(int64_t bytes) { return grown(copies_, bytes); }

 private:
  void* grown(DeviceMemory& memory, int64_t bytes);
  DeviceMemory scratch_, copies_;
};

std::shared_ptr<Handle> handle_at(const void* handle);
/// The device of the calling thread: the GPU of its context, or the CPU where there is no GPU. One value for
/// all that ask of one device.
std::shared_ptr<const DeviceInfo> current_device_info();

/// Has kernels read from `kernels` beside the library, where those lie that were compiled when it was built.
/// Every way into the library leads through a handle or a descriptor: plans without a device have no handle.
void find_shipped_kernels();

}  // namespace fusor::cudnn
