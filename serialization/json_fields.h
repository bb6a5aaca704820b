// Owns the JSON forms of single fields, and of any struct that names its fields in visit().
#pragma once

#include <string_view>
#include <vector>

#include "core/attributes.h"
#include "core/device_info.h"
#include "core/graph.h"
#include "serialization/json_reader.h"

namespace fusor {

inline Json json_of(bool value) { return value; }
inline Json json_of(int value) { return value; }
inline Json json_of(int64_t value) { return value; }
/// inf and nan are strings: JSON has no numbers for them.
Json json_of(double value);
inline Json json_of(const std::string& value) { return value; }
Json json_of(const Dims& value);
Json json_of(DataType value);
Json json_of(PointwiseMode value);
/// An enum with to_string() and enum_count(), as those of the attributes in core/ops/.
template <class Enum>
requires requires(Enum value) { enum_count(value); }
Json json_of(Enum value) { return to_string(value); }
Json json_of(ReductionMode value);
Json json_of(ConvMode value);
Json json_of(DeviceKind value);
Json json_of(Precision value);

inline void read_field(const JsonReader& from, bool& to) { to = from.boolean(); }
inline void read_field(const JsonReader& from, int& to) { to = from.small_integer(0); }
inline void read_field(const JsonReader& from, int64_t& to) { to = from.integer(); }
inline void read_field(const JsonReader& from, double& to) { to = from.real(); }
inline void read_field(const JsonReader& from, std::string& to) { to = from.text(); }
inline void read_field(const JsonReader& from, Dims& to) { to = from.dims(); }
void read_field(const JsonReader& from, DataType& to);
void read_field(const JsonReader& from, PointwiseMode& to);
void read_field(const JsonReader& from, ReductionMode& to);
void read_field(const JsonReader& from, ConvMode& to);
void read_field(const JsonReader& from, DeviceKind& to);
void read_field(const JsonReader& from, Precision& to);
template <class Enum>
requires requires(Enum value) { enum_count(value); }
void read_field(const JsonReader& from, Enum& to) {
  std::vector<std::string_view> names;
  for (int i = 0; i < enum_count(to); ++i) names.push_back(to_string(static_cast<Enum>(i)));
  to = static_cast<Enum>(from.one_of(names));
}

/// Adds every field to `object`.
template <class T>
void write_fields(Json& object, const T& value) {
  T::visit(value,
           [&object](std::string_view key, const auto& field) { object[std::string(key)] = json_of(field); });
}

template <class T>
void append_field_names(std::vector<std::string_view>& names) {
  T value;
  T::visit(value, [&names](std::string_view key, const auto&) { names.push_back(key); });
}

/// Reads every field; all must be there.
template <class T>
void read_fields(const JsonReader& object, T& value) {
  T::visit(value, [&object](std::string_view key, auto& field) { read_field(object.at(key), field); });
}

}  // namespace fusor
