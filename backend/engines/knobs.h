// Owns the way between an engine's knobs, a struct, and a config, which has names and integers only.
//
// A struct of knobs has `static void visit(auto& self, auto&& knob)`, which calls knob(name, self.field) for
// every field, in the order of the config. A field is an int64_t, with the value that stands where a config
// does not name it, or a std::optional<int64_t>, which a config may leave out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "backend/engines/engine.h"

namespace fusor {

template <class Knobs>
Knobs knobs_of(const EngineConfig& config) {
  Knobs knobs;
  Knobs::visit(knobs, [&]<class Field>(std::string_view name, Field& field) {
    if constexpr (std::is_same_v<Field, int64_t>) {
      field = config.knob(name, field);
    } else {
      for (const KnobSetting& setting : config.knobs)
        if (setting.name == name) field = setting.value;
    }
  });
  return knobs;
}

template <class Knobs>
EngineConfig config_of(const Engine& engine, const Knobs& knobs) {
  EngineConfig config{std::string(engine.name()), engine.revision(), {}};
  Knobs::visit(knobs, [&]<class Field>(std::string_view name, const Field& field) {
    if constexpr (std::is_same_v<Field, int64_t>)
      config.knobs.push_back({std::string(name), field});
    else if (field)
      config.knobs.push_back({std::string(name), *field});
  });
  return config;
}

}  // namespace fusor
