// Owns the rewrite of layouts: operands and results that TMA cannot walk are packed in scratch,
// and groups of few channels are joined into blocks.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "backend/engines/repack/repack.h"

namespace fusor {

/// What of a fusion is packed.
struct Packing {
  std::array<bool, 2> sites{};  ///< which of the operands' sites
  /// Convolution: neighbouring groups that are carried out as one, whose filter is zero off the diagonal of
  /// blocks. An infinity or NaN of one of them then reaches the results of all.
  int64_t joined = 1;

  bool is_empty() const { return !sites[0] && !sites[1] && joined == 1; }
};

/// Joined groups pack the filter, and wgrad finishes later.
Repacked pack_layouts(const Fusion& fusion, const Contraction& view, const Packing& packing, ResultPath way);
/// The ways out that differ for this fusion, so packed; the first is direct, but for a wgrad of joined
/// groups.
std::vector<ResultPath> result_paths(const Fusion& fusion, const Contraction& view, int64_t joined);
/// How many neighbouring groups make one whose channels come in whole blocks, or all of them; 1 where groups
/// are such blocks already, are depthwise or cannot be joined.
int64_t joined_groups(const Fusion& fusion, const Contraction& view, int64_t block);

}  // namespace fusor
