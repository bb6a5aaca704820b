// Owns the weight gradient of the depthwise engine on tensor cores (codegen/device/depthwise/mma_wgrad.cuh):
// which fusions it takes, what follows from its knobs, its launches and its costs.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/engines/depthwise/lowering.h"

namespace fusor::depthwise {

/// Channels of 16 bits that are adjacent, in groups of 8, windows of one plane up to 7 x 7 with strides and
/// dilations of 1, no ops before the products.
bool can_multiply(const Problem& problem);

/// A setting, and what follows from it: octets are 8 results of a row, a warp multiplies two at a time.
struct MmaWgrad {
  const Problem& problem;
  Expr a, b, y;                  // with the vectors marked
  int64_t rows;                  // of x that a warp marches down
  int64_t split;                 // parts of the octets
  int64_t groups, width, lanes;  // of 8 channels: all, of a block; warps a group

  /// Reads `rows` and `split`, of which 0 is left to the schedule.
  MmaWgrad(const Problem& problem_, const Knobs& knobs);

  Lowered lowered() const;
  Work work() const;

 private:
  const SlidingAxis& vertical() const { return problem.axes[1]; }
  const SlidingAxis& last() const { return problem.last(); }
  int64_t tiles() const { return ceil_div(groups, width); }
  int64_t octets_at_once() const { return 2 * lanes; }
  int64_t octets_of_row() const { return ceil_div(last().results, 8); }
  int64_t parts_of_rows() const { return ceil_div(vertical().positions, rows); }
  int64_t columns() const { return problem.images() * parts_of_rows() * octets_of_row(); }
  int64_t columns_per_block() const;
  /// Rows of dy that come in front of a part's first row of x: those above the image are none.
  int64_t lead() const;
  int64_t taps() const { return vertical().window * last().window; }
  int64_t pairs() const { return ceil_div(last().window, 2); }
  int64_t blocks() const { return tiles() * split; }
  int64_t blocks_per_sm() const;
  int64_t split_for_device() const;
  int64_t parts() const { return split * lanes; }
  int64_t partial_bytes() const { return parts() * taps() * problem.view.entries * 4; }
  Launch parts_of_gradient() const;
};

inline Lowered lower(const MmaWgrad& schedule) { return schedule.lowered(); }
inline Work cost(const MmaWgrad& schedule) { return schedule.work(); }

}  // namespace fusor::depthwise
