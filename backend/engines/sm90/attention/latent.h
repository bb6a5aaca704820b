// Owns what the attention_latent engine knows of a fusion beside attention_decode's facts, its knobs, and
// what a setting of them settles.
#pragma once

#include <cstdint>
#include <variant>

#include "backend/engines/tiled/attention/decode.h"

namespace fusor::latent_attention {

using tiled_attention::DecodeProblem;

inline constexpr int64_t kTileRows = 64, kTileKeys = 64;

/// The fusion as decoding sees it, whose values are the first elements of its keys, or why it is none.
std::variant<DecodeProblem, Refusal> latent_problem_of(const Fusion& fusion, const DeviceInfo& device);

struct LatentKnobs {
  int64_t split = 1;  ///< parts of a tile's keys, one a block

  static void visit(auto& self, auto&& knob) { knob("split", self.split); }
};

/// Facts of a setting.
struct LatentSchedule {
  const DecodeProblem& decode;
  LatentKnobs knobs;
  int64_t stages = 0;  // 0: shared memory holds less than two

  LatentSchedule(const DecodeProblem& decode_, const LatentKnobs& knobs_);

  int64_t tiles() const { return ceil_div(decode.rows(), kTileRows); }  // of an entry
  int64_t all_tiles() const { return tiles() * decode.entries(); }
  int64_t line_bytes() const;    // of all lines of a row of keys
  int64_t shared_bytes() const;  // sizeof(Shared) in the kernel, or a little more
  int64_t workspace() const;
  /// Lanes that share the parts of a vector: each has four at once.
  int64_t finish_lanes() const;
};

Work cost(const LatentSchedule& schedule);
Lowered lower(const LatentSchedule& schedule);

}  // namespace fusor::latent_attention
