// Owns what can be said of a device without looking for one.
#include "core/device_info.h"

#include <fmt/format.h>

#include <cmath>

namespace fusor {

namespace {

// Far above any device: arithmetic with these stays within its types.
constexpr int kMostPerDevice = 65536;
constexpr int64_t kMostBytes = int64_t{1} << 50;

// Looks at one field after the other, and keeps the first problem.
struct Check {
  std::optional<DeviceProblem> found = std::nullopt;

  template <class... Values>
  void note(std::string_view key, fmt::format_string<Values...> why, Values&&... values) {
    if (!found) found = {std::string(key), fmt::format(why, std::forward<Values>(values)...)};
  }
  void operator()(std::string_view key, double value) {
    if (!std::isfinite(value) || value < 0) note(key, "expected a finite number of 0 or more, got {}", value);
  }
  void operator()(std::string_view key, int64_t value) {
    if (value < 0 || value > kMostBytes) note(key, "expected 0 to {}, got {}", kMostBytes, value);
  }
  void operator()(std::string_view, int) {}
  void operator()(std::string_view, DeviceKind) {}
  void operator()(std::string_view, const std::string&) {}

  void positive(std::string_view key, double value) {
    if (!(value > 0)) note(key, "expected more than 0, got {}", value);
  }
  void count(std::string_view key, int value) {
    if (value <= 0 || value > kMostPerDevice) note(key, "expected 1 to {}, got {}", kMostPerDevice, value);
  }
};

}  // namespace

std::optional<DeviceProblem> problem_with(const DeviceInfo& device) {
  Check check;
  DeviceInfo::visit(device, check);
  check.count("sm_count", device.sm_count);
  check.positive("dram_bytes_per_s", device.dram_bytes_per_s);
  check.positive("l2_bytes_per_s", device.l2_bytes_per_s);
  check.positive("fp32_flops", device.fp32_flops);
  if (device.is_cpu()) return check.found;
  // Ten times the major and the minor number: __CUDA_ARCH__, ten times this, is an int.
  if (device.compute_capability <= 0 || device.compute_capability > 999)
    check.note("compute_capability", "expected 1 to 999, got {}", device.compute_capability);
  check.positive("shared_per_block", static_cast<double>(device.shared_per_block));
  check.count("max_threads_per_sm", device.max_threads_per_sm);
  return check.found;
}

std::string DeviceInfo::target() const {
  // From Hopper on, a generation's own instructions (wgmma, TMA forms) need its 'a' target.
  return fmt::format("sm_{}{}", compute_capability, compute_capability >= 90 ? "a" : "");
}

}  // namespace fusor
