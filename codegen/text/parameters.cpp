// Owns the order of a kernel's parameters: what is declared is put at once.
#include "codegen/text/parameters.h"

#include <fmt/format.h>

#include <memory>

#include "codegen/text/expr_emitter.h"
#include "codegen/text/site_fields.h"
#include "core/fast_divisor.h"

namespace fusor {

std::string Parameters::path(std::string_view name) const {
  if (scope_.empty() || name.empty()) return scope_ + std::string(name);
  return fmt::format("{}.{}", scope_, name);
}

std::string Parameters::element_path(const std::string& scope, std::string_view name, size_t i) {
  return fmt::format("{}{}{}[{}]", scope, scope.empty() ? "" : ".", name, i);
}

void Parameters::declare(std::string_view name, std::string_view type, int count) {
  const bool is_member = !scope_.empty();
  fields_.push_back({path(name), is_member ? std::string() : std::string(type), count,
                     static_cast<int>(block_.bytes().size())});
}

void Parameters::index(std::string_view name, int64_t value) {
  declare(name, "alignas(8) Index");
  block_.put_int(value);
}

void Parameters::wide(std::string_view name, int64_t value) {
  declare(name, "i64");
  block_.put_int(value);
}

void Parameters::wide(std::string_view name, std::span<const int64_t> values) {
  declare(name, "i64", static_cast<int>(values.size()));
  for (const int64_t value : values) block_.put_int(value);
}

void Parameters::real(std::string_view name, double value) {
  declare(name, "alignas(8) float");
  block_.put_float(value);
}

void Parameters::given_real(std::string_view name, int operand, double least, double factor) {
  declare(name, "alignas(8) float");
  block_.put_scaled(operand, least, factor);
}

void Parameters::divisor(std::string_view name, int64_t value) {
  declare(name, "FastDivisor");
  FastDivisor::of(value, index_bits_).put(block_);
}

void Parameters::divisors(std::string_view name, std::span<const int64_t> values) {
  declare(name, "FastDivisor", static_cast<int>(values.size()));
  for (const int64_t value : values) FastDivisor::of(value, index_bits_).put(block_);
}

void Parameters::pointer(std::string_view name, std::string_view element, int operand, int64_t byte_offset) {
  declare(name, fmt::format("{}*", element));
  block_.put_pointer(Patch::Kind::operand, operand, byte_offset);
}

void Parameters::scratch(std::string_view name, std::string_view element, int index, int64_t byte_offset) {
  declare(name, fmt::format("{}*", element));
  block_.put_pointer(Patch::Kind::scratch, index, byte_offset);
}

void Parameters::tensor_map(std::string_view name, const TensorMap& map, int operand, int64_t byte_offset) {
  declare(name, "TensorMap");
  block_.put_tensor_map(map, operand, byte_offset);
}

// A struct without fields has a size all the same.
void Parameters::site(std::string_view name, const KernelSite& site, const Fusion& fusion) {
  const bool is_empty = site_fields(site).empty();
  declare(name, fmt::format("{}{}::Args", is_empty ? "alignas(8) " : "", site.name));
  if (is_empty) block_.put_int(0);
  write_arguments(block_, site, fusion);
}

void Parameters::move_to(KernelSource source, Launch& launch) {
  // Maps, which come first, stay on multiples of their alignment.
  const int room = block_.maps().empty() ? 8 : int{kTensorMapAlignment};
  block_.make_room(room);
  for (ParameterField& field : fields_) field.at += room;
  fields_.insert(fields_.begin(), {"turn", "alignas(8) u32", 0, 0});
  launch.turn_at = 0;
  source.parameters = std::move(fields_);
  launch.source = std::make_shared<const KernelSource>(std::move(source));
  launch.arguments = std::move(block_);
}

}  // namespace fusor
