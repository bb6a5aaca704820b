// Owns tuning table <-> JSON.
#include <cmath>

#include "serialization/documents.h"
#include "serialization/json_fields.h"
#include "serialization/serialization.h"

namespace fusor {

namespace {

Json measured_json(const MeasuredConfig& measured) {
  Json object = Json::object();
  write_config(object, measured.config);
  object["seconds"] = json_of(measured.seconds);
  object["low"] = json_of(measured.low);
  object["high"] = json_of(measured.high);
  return object;
}

Json fusion_json(const TunedFusion& fusion) {
  Json configs = Json::array();
  for (const MeasuredConfig& measured : fusion.configs) configs.push_back(measured_json(measured));
  return {{"device", fusion.device},
          {"key", fusion.key},
          {"about", fusion.about},
          {"configs", std::move(configs)}};
}

double parse_seconds(const JsonReader& from) {
  const double seconds = from.real();
  if (!std::isfinite(seconds) || seconds <= 0) from.refuse("expected a time above 0, got {}", seconds);
  return seconds;
}

MeasuredConfig parse_measured(const JsonReader& object) {
  object.expect_keys({"engine", "revision", "knobs", "seconds", "low", "high"});
  return {parse_config(object), parse_seconds(object.at("seconds")), parse_seconds(object.at("low")),
          parse_seconds(object.at("high"))};
}

TunedFusion parse_fusion(const JsonReader& object) {
  object.expect_keys({"device", "key", "about", "configs"});
  TunedFusion fusion{object.at("device").name(), object.at("key").name(), object.at("about").text(), {}};
  const JsonReader configs = object.at("configs");
  if (configs.size() == 0) configs.refuse("expected one measurement or more");
  for (size_t i = 0; i < configs.size(); ++i) fusion.configs.push_back(parse_measured(configs.at(i)));
  return fusion;
}

}  // namespace

std::string to_json(const TuningTable& table) {
  Json fusions = Json::array();
  for (const auto& [place, fusion] : table.fusions()) fusions.push_back(fusion_json(fusion));
  return print_json({{"format", kFormatNumber}, {"kind", "tuning"}, {"fusions", std::move(fusions)}});
}

TuningTable tuning_from_json(std::string_view text) {
  const Json document = parse_json(text);
  const JsonReader reader(document);
  expect_header(reader, "tuning");
  reader.expect_keys({"format", "kind", "fusions"});
  const JsonReader fusions = reader.at("fusions");
  TuningTable table;
  for (size_t i = 0; i < fusions.size(); ++i) table.put(parse_fusion(fusions.at(i)));
  return table;
}

}  // namespace fusor
