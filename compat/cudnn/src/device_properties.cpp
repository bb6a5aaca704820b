// Owns the making of device properties.
#include "compat/cudnn/src/device_properties.h"

#include "codegen/cuda_driver.h"
#include "compat/cudnn/src/handle.h"
#include "serialization/serialization.h"

namespace fusor::cudnn {

namespace {

std::shared_ptr<const DeviceInfo> device_numbered(int32_t ordinal) {
  const int count = cuda::available() ? cuda::device_count() : 1;
  if (ordinal < 0 || ordinal >= count)
    refuse(CUDNN_STATUS_BAD_PARAM, "DEVICEPROP_DEVICE_ID {} is not in 0 to {}", ordinal, count - 1);
  return current_device_info();
}

}  // namespace

void finalize_device_properties(Descriptor& d) {
  auto state = std::make_shared<DeviceState>();
  if (const Value* text = d.find(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION))
    state->device = std::make_shared<const DeviceInfo>(device_from_json(text->bytes));
  else if (d.has(CUDNN_ATTR_DEVICEPROP_HANDLE))
    state->device = handle_at(d.get<void*>(CUDNN_ATTR_DEVICEPROP_HANDLE))->device;
  else
    state->device = device_numbered(d.get<int32_t>(CUDNN_ATTR_DEVICEPROP_DEVICE_ID));
  d.set_state(std::move(state));
}

Value device_text(const Descriptor& d) {
  const std::string text = to_json(*d.state_as<DeviceState>()->device);
  return {CUDNN_TYPE_CHAR, static_cast<int64_t>(text.size()), text, {}};
}

}  // namespace fusor::cudnn
