// Owns the checks of JsonReader.
#include "serialization/json_reader.h"

#include <algorithm>
#include <limits>

#include "core/tensor.h"

namespace fusor {

void JsonReader::expected(std::string_view what) const {
  refuse("expected {}, got {}", what,
         value_->is_structured() ? value_->type_name() : in_quotes(value_->dump()));
}

void JsonReader::expect_keys(std::span<const std::string_view> known) const {
  if (!value_->is_object()) expected("an object");
  for (const auto& [key, item] : value_->items())
    if (std::ranges::find(known, key) == known.end())
      refuse("unknown key {}; known: {}", in_quotes(key), fmt::join(known, ", "));
}

std::vector<std::string> JsonReader::keys() const {
  if (!value_->is_object()) expected("an object");
  std::vector<std::string> keys;
  for (const auto& [key, item] : value_->items()) keys.push_back(key);
  return keys;
}

bool JsonReader::has(std::string_view key) const { return value_->is_object() && value_->contains(key); }

JsonReader JsonReader::at(std::string_view key) const {
  if (!value_->is_object()) expected("an object");
  const auto found = value_->find(std::string(key));
  if (found == value_->end()) refuse("'{}' is missing", key);
  return {*found, fmt::format("{}{}{}", path_, path_.empty() ? "" : ".", key)};
}

size_t JsonReader::size() const {
  if (!value_->is_array()) expected("a list");
  return value_->size();
}

JsonReader JsonReader::at(size_t index) const {
  return {(*value_)[index], fmt::format("{}[{}]", path_, index)};
}

bool JsonReader::boolean() const {
  if (!value_->is_boolean()) expected("true or false");
  return value_->get<bool>();
}

int64_t JsonReader::integer() const {
  if (!value_->is_number_integer()) expected("an integer");
  if (value_->is_number_unsigned() &&
      value_->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    expected("an integer below 2^63");
  return value_->get<int64_t>();
}

int JsonReader::small_integer(int least) const {
  const int64_t value = integer();
  if (value < least || value > std::numeric_limits<int>::max())
    refuse("expected an integer from {} to {}, got {}", least, std::numeric_limits<int>::max(), value);
  return static_cast<int>(value);
}

double JsonReader::real() const {
  if (value_->is_number()) return value_->get<double>();
  if (value_->is_string()) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const auto& word = value_->get_ref<const std::string&>();
    if (word == "inf") return kInfinity;
    if (word == "-inf") return -kInfinity;
    if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
  }
  expected("a number, \"inf\", \"-inf\" or \"nan\"");
}

const std::string& JsonReader::text() const {
  if (!value_->is_string()) expected("text");
  return value_->get_ref<const std::string&>();
}

std::string JsonReader::name() const {
  const std::string& name = text();
  if (name.empty() || name.size() > kLongestName)
    refuse("expected a name of 1 to {} bytes, got {} bytes", kLongestName, name.size());
  for (const char c : name)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      refuse("name {} has a control character", in_quotes(name));
  return name;
}

Dims JsonReader::dims() const {
  if (size() > static_cast<size_t>(kMaxRank)) refuse("a tensor has up to {} dims; got {}", kMaxRank, size());
  Dims dims;
  for (size_t i = 0; i < size(); ++i) dims.push_back(at(i).integer());
  return dims;
}

size_t JsonReader::one_of(std::span<const std::string_view> names) const {
  const auto found = std::ranges::find(names, std::string_view(text()));
  if (found == names.end()) refuse("{} is not one of {}", in_quotes(text()), fmt::join(names, ", "));
  return static_cast<size_t>(found - names.begin());
}

}  // namespace fusor
