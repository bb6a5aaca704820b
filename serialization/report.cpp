// Owns the printing of reports.
#include "serialization/report.h"

#include "serialization/json_fields.h"

namespace fusor {

struct ReportWriter {
  static Json json(const Report& report) { return std::visit(ReportWriter{}, report.value_); }

  Json operator()(bool value) const { return value; }
  Json operator()(int64_t value) const { return value; }
  Json operator()(double value) const { return json_of(value); }
  Json operator()(const std::string& value) const { return value; }
  Json operator()(const Report::Members& members) const {
    Json object = Json::object();
    for (const auto& [key, member] : members) object[key] = json(member);
    return object;
  }
  Json operator()(const Report::List& elements) const {
    Json list = Json::array();
    for (const Report& element : elements) list.push_back(json(element));
    return list;
  }
};

Report::Report(const Dims& value) : value_(List{}) {
  for (const int64_t extent : value) add(extent);
}

Report::Report(const std::vector<std::string>& values) : value_(List{}) {
  for (const std::string& value : values) add(value);
}

Report::Report(DeviceKind value) : value_(json_of(value).get<std::string>()) {}

Report& Report::set(std::string_view key, Report value) {
  std::get<Members>(value_).emplace_back(key, std::move(value));
  return *this;
}

Report& Report::add(Report value) {
  std::get<List>(value_).push_back(std::move(value));
  return *this;
}

std::string to_json(const Report& report) { return print_json(ReportWriter::json(report)); }
std::string to_json_line(const Report& report) { return print_json_line(ReportWriter::json(report)); }

}  // namespace fusor
