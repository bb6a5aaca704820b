// Owns the look-ups and the printing of engine configurations.
#include "core/engine_config.h"

#include <fmt/format.h>

namespace fusor {

int64_t EngineConfig::knob(std::string_view name, int64_t otherwise) const {
  for (const KnobSetting& setting : knobs)
    if (setting.name == name) return setting.value;
  return otherwise;
}

void EngineConfig::set(std::string_view name, int64_t value) {
  for (KnobSetting& setting : knobs) {
    if (setting.name != name) continue;
    setting.value = value;
    return;
  }
  knobs.push_back({std::string(name), value});
}

std::string to_string(const EngineConfig& config) {
  std::string text = config.engine;
  for (size_t i = 0; i < config.knobs.size(); ++i)
    text += fmt::format("{}{}={}", i == 0 ? "(" : ", ", config.knobs[i].name, config.knobs[i].value);
  return config.knobs.empty() ? text : text + ")";
}

}  // namespace fusor
