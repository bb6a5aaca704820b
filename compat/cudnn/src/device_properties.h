// Owns device properties: a device as a value, so that plans are made without it.
#pragma once

#include <memory>

#include "compat/cudnn/src/descriptor.h"
#include "core/device_info.h"

namespace fusor::cudnn {

struct DeviceState : State {
  std::shared_ptr<const DeviceInfo> device;
};

void finalize_device_properties(Descriptor& d);
/// Its text, from which another process makes the same device.
Value device_text(const Descriptor& d);

}  // namespace fusor::cudnn
