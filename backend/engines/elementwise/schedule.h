// Owns the problem and the schedule of a fusion without anchors: which kernel carries out one of its Exprs,
// over which axes in which order, and how many threads, vectors and blocks it takes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/device_info.h"
#include "core/fusion.h"
#include "core/lowered.h"

namespace fusor {

/// Shared memory that every device gives a block without being asked.
inline constexpr int64_t kStaticSharedBytes = 48 * 1024;

/// The settings that a caller may ask for; one left out is the schedule's choice. What cannot be had is
/// lowered to what can: a vector that alignment forbids, a split of a reduction that is too short for it.
struct ElementwiseKnobs {
  std::optional<int64_t> vector = {};   ///< elements a vector
  std::optional<int64_t> threads = {};  ///< a block
  std::optional<int64_t> unroll = {};   ///< vectors that a thread has in flight
  /// Loads across the stores' direction go through shared memory: 1 in tiles, 2 in planes.
  std::optional<int64_t> stage = {};
  std::optional<int64_t> splits = {};  ///< parts of a reduction

  static void visit(auto& self, auto&& knob) {
    knob("vector", self.vector);
    knob("threads", self.threads);
    knob("unroll", self.unroll);
    knob("stage", self.stage);
    knob("splits", self.splits);
  }
};

/// Facts of one Expr.
struct ElementwiseSite {
  Expr expr;             ///< simplified
  uint32_t reduced = 0;  ///< axes
  int vector_axis = 0;
  int staged_axis = -1;  ///< the loads' direction where it is another; -1: nothing to stage
  int index_bits = 32;
  bool short_forms = false;
};

/// Facts of a fusion without anchors.
struct ElementwiseProblem {
  const Fusion& fusion;
  const DeviceInfo& device;
  std::vector<ElementwiseSite> sites;

  ElementwiseProblem(const Fusion& fusion, const DeviceInfo& device);
};

struct ElementwiseSchedule {
  enum class Variant : uint8_t { plain, transpose, planes, rows, columns };
  Variant variant = Variant::plain;
  KernelSite y;                    ///< kept axes, then reduced ones; transpose, planes: f, v last
  std::vector<KernelSite> staged;  ///< transpose: X0 and X1, over the axes of y; planes: X0
  int index_bits = 32;
  int64_t vector = 1, threads = 256, unroll = 1;
  int unroll_axis = -1;     ///< plain: vectors in flight are neighbours along it; -1: a block's width apart
  int kept = 0;             ///< rows, columns: axes that are not reduced
  int64_t group = 1;        ///< rows: threads a row; columns: vectors a block is wide
  int64_t splits = 1;       ///< rows, columns
  int64_t chunk = 0;        ///< vectors (rows) or steps (columns) of a split
  bool can_stage = false;   ///< whether the transposing kernel would do
  bool has_planes = false;  ///< whether that of small planes would do
  bool run_loads = false;   ///< planes: the loads run through them, along f; else the stores, along v
  int64_t channels = 0;     ///< planes: those of a tile

  const Dims& domain() const { return y.expr.domain; }
  int last() const { return domain().rank() - 1; }
  /// The axis of a plane's positions, and that of the channels.
  int plane_axis() const { return last() - (run_loads ? 1 : 0); }
  int channel_axis() const { return last() - (run_loads ? 0 : 1); }
  /// Dynamic shared memory.
  int64_t shared_bytes() const;
  bool stages() const { return variant == Variant::transpose || variant == Variant::planes; }
  bool reduces() const { return variant == Variant::rows || variant == Variant::columns; }
  /// Product of the extents of the axes [first, end), the vector axis counted in vectors.
  int64_t vectors(int first, int end) const;
  /// Blocks along x; blocks along y are the splits.
  int64_t blocks() const;
};

/// A schedule for one of the problem's sites.
ElementwiseSchedule schedule_elementwise(const ElementwiseProblem& problem, size_t site,
                                         const ElementwiseKnobs& knobs);

}  // namespace fusor
