// Owns EngineConfig: which engine carries out a fusion and how its knobs stand. The only part of a choice
// that is saved.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/api.h"

namespace fusor {

/// A named integer and the values that an engine offers for it.
struct Knob {
  std::string name;
  std::vector<int64_t> values;
};

struct KnobSetting {
  std::string name;
  int64_t value = 0;
  friend bool operator==(const KnobSetting&, const KnobSetting&) = default;
};

struct FUSOR_API EngineConfig {
  std::string engine;
  int revision = 1;
  std::vector<KnobSetting> knobs;

  /// The setting, or `otherwise` where the config does not have it.
  int64_t knob(std::string_view name, int64_t otherwise) const;
  void set(std::string_view name, int64_t value);
  friend bool operator==(const EngineConfig&, const EngineConfig&) = default;
};

/// "direct(tile_m=64, tile_n=64)"
FUSOR_API std::string to_string(const EngineConfig& config);

}  // namespace fusor
