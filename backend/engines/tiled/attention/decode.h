// Owns what the attention_decode engine knows of a fusion beside attention_mma's facts, its knobs, and what a
// setting of them settles.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "backend/engines/tiled/attention/problem.h"

namespace fusor::tiled_attention {

/// A bound that a number moves which only the device knows, the same for all heads that share keys: the
/// length of a sequence, say. It is the last of its kind in the problem's bounds but for other limits.
struct Limit {
  enum class Of { lower, upper, queries };
  Of of = Of::upper;
  int64_t place = 0;  ///< in the list of bounds; of queries: what is added
  Expr number;
};

inline constexpr size_t kMostLimits = 4;  // of codegen/device/tiled/attention/decode.cuh

/// Queries of all heads that share keys and values are rows of one tile.
struct DecodeProblem {
  Problem problem;
  attention::Bounds fixed = {};  ///< the problem's bounds without those of limits
  std::vector<Limit> limits = {};
  std::vector<int64_t> shares;  ///< heads that share an entry of the keys, by batch axis
  int64_t heads = 1;            ///< of a group: the product of them

  int64_t rows() const { return problem.queries * heads; }  // of an entry
  int64_t entries() const { return problem.entries() / heads; }
};

/// What a kernel's tiles hold: elements of a head, and queries of heads that share keys.
struct DecodeSizes {
  int64_t most_head = kMostHead;
  int64_t most_rows = 128;  // with more, the products count, not the keys' bytes
};

/// The fusion as decoding sees it, or why it does not.
std::variant<DecodeProblem, Refusal> decode_problem_of(const Fusion& fusion, const DeviceInfo& device,
                                                       const DecodeSizes& sizes = {});

struct DecodeKnobs {
  int64_t warps = 8;       ///< of a block
  int64_t row_blocks = 1;  ///< blocks of 16 rows of a tile
  int64_t tile_k = 16;     ///< keys that a warp takes at once
  int64_t split = 1;       ///< parts of a tile's keys, one a block
  int64_t cluster = 0;     ///< the parts' blocks are a cluster, else they meet in the workspace

  static void visit(auto& self, auto&& knob) {
    knob("warps", self.warps);
    knob("row_blocks", self.row_blocks);
    knob("tile_k", self.tile_k);
    knob("split", self.split);
    knob("cluster", self.cluster);
  }
};

/// Facts of a setting.
struct DecodeSchedule {
  const DecodeProblem& decode;
  DecodeKnobs knobs;
  int64_t blocks_per_sm = 1;
  int64_t stages = 0;  // 0: shared memory holds less than two

  DecodeSchedule(const DecodeProblem& decode_, const DecodeKnobs& knobs_);

  int64_t tile_rows() const { return 16 * knobs.row_blocks; }
  int64_t tiles() const { return ceil_div(decode.rows(), tile_rows()); }  // of an entry
  int64_t all_tiles() const { return tiles() * decode.entries(); }
  int64_t threads() const { return 32 * knobs.warps; }
  int64_t stage_bytes() const;   // of a warp
  int64_t part_bytes() const;    // sizeof(Part) in the kernel
  int64_t shared_bytes() const;  // sizeof(Shared) in the kernel
  int64_t workspace() const;
  bool fits() const;
};

/// Takes limits out of the score: what it hides, tiles do not see. Rows of keys and values that a prologue
/// clears behind the same limit are loaded as they are.
void take_limits(DecodeProblem& decode);

/// sizeof(Part) in codegen/device/tiled/attention/packed_rows.cuh, of so many rows.
int64_t part_bytes(const DecodeProblem& decode, int64_t rows);

/// Sites, config values and extents of kernels whose tiles have packed rows: those that `Problem` has, and
/// limits, tiles and parts.
std::vector<KernelSite> sites_of(const DecodeProblem& decode);
void append_limits(std::vector<ConfigValue>& config, const DecodeProblem& decode);
void append_rows(Parameters& p, const DecodeProblem& decode, int64_t tiles, int64_t parts);
inline constexpr int64_t kFinishLanes = 8;
/// Sets the grid of a launch of decode_finish: `tiles` tiles of `tile_rows` rows in all, `lanes` of which
/// share the parts of a vector.
void set_finish_grid(Launch& launch, const DecodeProblem& decode, int64_t tiles, int64_t tile_rows,
                     int64_t lanes = kFinishLanes);

Work cost(const DecodeSchedule& schedule);
Lowered lower(const DecodeSchedule& schedule);

}  // namespace fusor::tiled_attention
