// Owns the GPUs for which tests plan, by the profiles that the library carries.
#pragma once

#include <string_view>

#include "core/device_info.h"

namespace fusor::test {

inline const DeviceInfo& h200() {
  static const DeviceInfo device = DeviceInfo::named("H200");
  return device;
}

/// "A100" or "H200".
inline const DeviceInfo& device_named(std::string_view name) {
  static const DeviceInfo a100 = DeviceInfo::named("A100");
  return name == "A100" ? a100 : h200();
}

}  // namespace fusor::test
