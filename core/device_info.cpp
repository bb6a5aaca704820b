// Owns what can be said of a device without looking for one.
#include "core/device_info.h"

#include <fmt/format.h>

namespace fusor {

std::string DeviceInfo::target() const {
  // From Hopper on, a generation's own instructions (wgmma, TMA forms) need its 'a' target.
  return fmt::format("sm_{}{}", compute_capability, compute_capability >= 90 ? "a" : "");
}

}  // namespace fusor
