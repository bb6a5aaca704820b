// Owns device <-> JSON.
#include <cmath>

#include "serialization/documents.h"
#include "serialization/json_fields.h"
#include "serialization/serialization.h"

namespace fusor {

namespace {

// Far above any device: arithmetic with these stays within its types.
constexpr int64_t kMostPerDevice = 65536, kMostBytes = int64_t{1} << 50;

/// Refuses figures that are negative, infinite, NaN or beyond any device.
struct RangeCheck {
  const JsonReader& object;

  void operator()(std::string_view key, double value) const {
    if (!std::isfinite(value) || value < 0)
      object.at(key).refuse("expected a finite number of 0 or more, got {}", value);
  }
  void operator()(std::string_view key, int64_t value) const {
    if (value < 0 || value > kMostBytes) object.at(key).refuse("expected 0 to {}, got {}", kMostBytes, value);
  }
  void operator()(std::string_view, int) const {}
  void operator()(std::string_view, DeviceKind) const {}
  void operator()(std::string_view, const std::string&) const {}
};

void expect_positive(const JsonReader& object, std::string_view key, double value) {
  if (!(value > 0)) object.at(key).refuse("expected more than 0, got {}", value);
}

void expect_count(const JsonReader& object, std::string_view key, int value) {
  if (value <= 0 || value > kMostPerDevice)
    object.at(key).refuse("expected 1 to {}, got {}", kMostPerDevice, value);
}

// Constants of the time model that older plans and profiles lack: the defaults say nothing.
bool is_optional(std::string_view key) { return key.starts_with("line_cost_"); }

void check_device(const JsonReader& object, const DeviceInfo& device) {
  object.at("name").name();
  DeviceInfo::visit(device, RangeCheck{object});
  expect_count(object, "sm_count", device.sm_count);
  expect_positive(object, "dram_bytes_per_s", device.dram_bytes_per_s);
  expect_positive(object, "l2_bytes_per_s", device.l2_bytes_per_s);
  expect_positive(object, "fp32_flops", device.fp32_flops);
  if (device.is_cpu()) return;
  // Ten times the major and the minor number: __CUDA_ARCH__, ten times this, is an int.
  if (device.compute_capability <= 0 || device.compute_capability > 999)
    object.at("compute_capability").refuse("expected 1 to 999, got {}", device.compute_capability);
  expect_positive(object, "shared_per_block", static_cast<double>(device.shared_per_block));
  expect_count(object, "max_threads_per_sm", device.max_threads_per_sm);
}

}  // namespace

void write_device(Json& object, const DeviceInfo& device) { write_fields(object, device); }

DeviceInfo parse_device(const JsonReader& object, std::initializer_list<std::string_view> more_keys) {
  std::vector<std::string_view> known(more_keys);
  append_field_names<DeviceInfo>(known);
  object.expect_keys(known);
  DeviceInfo device;
  DeviceInfo::visit(device, [&object](std::string_view key, auto& field) {
    if (!is_optional(key) || object.has(key)) read_field(object.at(key), field);
  });
  check_device(object, device);
  return device;
}

std::string to_json(const DeviceInfo& device) {
  Json document = {{"format", kFormatNumber}};
  write_device(document, device);
  return print_json(document);
}

DeviceInfo device_from_json(std::string_view text) {
  const Json document = parse_json(text);
  const JsonReader reader(document);
  expect_header(reader, "");
  return parse_device(reader, {"format"});
}

}  // namespace fusor
