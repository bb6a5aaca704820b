// Owns TuningTable: what measurements said of fusions on devices.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/engine_config.h"

namespace fusor {

/// A way to carry out a fusion, and its measured time.
struct MeasuredConfig {
  EngineConfig config;
  double seconds = 0;        ///< the median
  double low = 0, high = 0;  ///< the true median lies between them with 95 % confidence
};

/// What was measured of one fusion on one device.
struct TunedFusion {
  std::string device;                   ///< DeviceInfo::name
  std::string key;                      ///< heuristics/tuning.h: structure, extents, strides and types
  std::string about;                    ///< its ops, for readers of the file
  std::vector<MeasuredConfig> configs;  ///< best first
};

/// Fusions by device and key.
class TuningTable {
 public:
  /// Replaces what is there of the same fusion and device.
  void put(TunedFusion fusion) {
    std::pair place(fusion.device, fusion.key);
    fusions_.insert_or_assign(std::move(place), std::move(fusion));
  }
  const TunedFusion* find(const std::string& device, const std::string& key) const {
    const auto found = fusions_.find(std::pair(device, key));
    return found == fusions_.end() ? nullptr : &found->second;
  }
  bool empty() const { return fusions_.empty(); }
  size_t size() const { return fusions_.size(); }
  /// In a fixed order.
  const std::map<std::pair<std::string, std::string>, TunedFusion>& fusions() const { return fusions_; }

 private:
  std::map<std::pair<std::string, std::string>, TunedFusion> fusions_;
};

}  // namespace fusor
