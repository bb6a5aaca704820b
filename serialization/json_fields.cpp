// Owns the JSON forms of single fields.
#include "serialization/json_fields.h"

#include <array>
#include <cmath>

namespace fusor {

namespace {

constexpr std::array kDataTypes = std::to_array<std::string_view>({
#define FUSOR_DTYPE(id, name, bits, kind, device) name,
#include "core/dtype.def"
#undef FUSOR_DTYPE
});

constexpr std::array<std::string_view, 2> kDeviceKinds = {"cpu", "cuda"};

template <class Enum>
void read_enum(const JsonReader& from, std::span<const std::string_view> names, Enum& to) {
  to = static_cast<Enum>(from.one_of(names));
}

/// The names of the first `count` values of an enum with a to_string().
template <class Enum>
std::vector<std::string_view> enum_names(int count) {
  std::vector<std::string_view> names;
  names.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) names.push_back(to_string(static_cast<Enum>(i)));
  return names;
}

}  // namespace

Json json_of(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

Json json_of(const Dims& value) {
  Json list = Json::array();
  for (const int64_t extent : value) list.push_back(extent);
  return list;
}

Json json_of(DataType value) { return to_string(value); }
Json json_of(PointwiseMode value) { return to_string(value); }
Json json_of(ReductionMode value) { return to_string(value); }
Json json_of(ConvMode value) { return to_string(value); }
Json json_of(Precision value) { return to_string(value); }
Json json_of(DeviceKind value) { return kDeviceKinds[static_cast<size_t>(value)]; }

void read_field(const JsonReader& from, DataType& to) { read_enum(from, kDataTypes, to); }
void read_field(const JsonReader& from, PointwiseMode& to) {
  read_enum(from, enum_names<PointwiseMode>(pointwise_mode_count()), to);
}
void read_field(const JsonReader& from, ReductionMode& to) {
  read_enum(from, enum_names<ReductionMode>(reduction_mode_count()), to);
}
void read_field(const JsonReader& from, ConvMode& to) { read_enum(from, enum_names<ConvMode>(2), to); }
void read_field(const JsonReader& from, Precision& to) { read_enum(from, enum_names<Precision>(4), to); }
void read_field(const JsonReader& from, DeviceKind& to) { read_enum(from, kDeviceKinds, to); }

}  // namespace fusor
