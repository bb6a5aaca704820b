// Owns device <-> JSON.
#include "serialization/documents.h"
#include "serialization/json_fields.h"
#include "serialization/serialization.h"

namespace fusor {

namespace {

// Constants of the time model that older plans and profiles lack: the defaults say nothing.
bool is_optional(std::string_view key) { return key.starts_with("line_cost_"); }

void check_device(const JsonReader& object, const DeviceInfo& device) {
  object.at("name").name();
  if (const auto problem = problem_with(device)) object.at(problem->key).refuse("{}", problem->why);
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
