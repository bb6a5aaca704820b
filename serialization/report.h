// Owns Report: a JSON document under construction, for those who write JSON without knowing its library.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/device_info.h"
#include "core/dims.h"

namespace fusor {

/// A JSON value that can be built and printed, not read. Keys keep the order in which they were added.
class Report {
 public:
  using Members = std::vector<std::pair<std::string, Report>>;
  using List = std::vector<Report>;

  static Report object() { return Report(Members{}); }
  static Report list() { return Report(List{}); }
  Report(bool value) : value_(value) {}
  Report(int value) : value_(int64_t{value}) {}
  Report(int64_t value) : value_(value) {}
  Report(double value) : value_(value) {}
  Report(const char* value) : value_(std::string(value)) {}
  Report(std::string_view value) : value_(std::string(value)) {}
  Report(std::string value) : value_(std::move(value)) {}
  Report(const Dims& value);
  Report(const std::vector<std::string>& values);
  Report(DeviceKind value);

  /// Adds a member to an object; for chains.
  Report& set(std::string_view key, Report value);
  /// Adds every field that `value` names in visit().
  template <class T>
  Report& set_fields(const T& value) {
    T::visit(value, [this](std::string_view key, const auto& field) { set(key, Report(field)); });
    return *this;
  }
  /// Adds an element to a list.
  Report& add(Report value);

 private:
  explicit Report(Members members) : value_(std::move(members)) {}
  explicit Report(List list) : value_(std::move(list)) {}
  friend struct ReportWriter;

  std::variant<bool, int64_t, double, std::string, Members, List> value_;
};

/// Indented JSON; inf and nan are strings.
std::string to_json(const Report& report);
/// The same on one line, for streams of documents.
std::string to_json_line(const Report& report);

}  // namespace fusor
