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
  void* scratch(int64_t bytes);

 private:
  DeviceMemory scratch_;
};

std::shared_ptr<Handle> handle_at(const void* handle);
/// The device of the calling thread: the GPU of its context, or the CPU where there is no GPU. One value for
/// all that ask of one device.
std::shared_ptr<const DeviceInfo> current_device_info();

}  // namespace fusor::cudnn
