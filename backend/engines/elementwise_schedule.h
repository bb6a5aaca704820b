// Owns the schedule of a fusion without anchors: which kernel carries out one of its Exprs, over which axes
// in which order, and how many threads, vectors and blocks it takes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/device_info.h"
#include "core/fusion.h"
#include "core/lowered.h"

namespace fusor {

/// What a caller may ask for; 0 (stage: -1) leaves the choice to the schedule. What cannot be had is lowered
/// to what can: a vector that alignment forbids, a split of a reduction that is too short for it.
struct ElementwiseKnobs {
  int64_t vector = 0;   ///< elements a vector
  int64_t threads = 0;  ///< a block
  int64_t unroll = 0;   ///< vectors that a thread has in flight
  int64_t stage = -1;   ///< 1: loads across the stores' direction go through shared memory
  int64_t splits = 0;   ///< parts of a reduction
};

struct ElementwiseSchedule {
  enum class Variant : uint8_t { plain, transpose, rows, columns };
  Variant variant = Variant::plain;
  KernelSite y;                    ///< kept axes, then reduced ones; transpose: f, v last
  std::vector<KernelSite> staged;  ///< transpose: X0 and X1, over the axes of y
  int index_bits = 32;
  int64_t vector = 1, threads = 256, unroll = 1;
  int unroll_axis = -1;    ///< plain: vectors in flight are neighbours along it; -1: a block's width apart
  int kept = 0;            ///< rows, columns: axes that are not reduced
  int64_t group = 1;       ///< rows: threads a row; columns: vectors a block is wide
  int64_t splits = 1;      ///< rows, columns
  int64_t chunk = 0;       ///< vectors (rows) or steps (columns) of a split
  bool can_stage = false;  ///< whether the transposing kernel would do

  const Dims& domain() const { return y.expr.domain; }
  int last() const { return domain().rank() - 1; }
  bool reduces() const { return variant == Variant::rows || variant == Variant::columns; }
  /// Product of the extents of the axes [first, end), the vector axis counted in vectors.
  int64_t vectors(int first, int end) const;
  /// Blocks along x; blocks along y are the splits.
  int64_t blocks() const;
};

/// The schedule of fusion.after[expr]; `fusion` has no anchors.
ElementwiseSchedule schedule_elementwise(const Fusion& fusion, int expr, const ElementwiseKnobs& knobs,
                                         const DeviceInfo& device);

/// The mask that all true reductions of the Expr share. Where they differ: nothing, and `differing` is the
/// result whose mask is not that of the first.
std::optional<uint32_t> shared_reduction_mask(const Expr& expr, int* differing = nullptr);

}  // namespace fusor
