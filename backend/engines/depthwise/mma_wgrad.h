// Owns the weight gradient of the depthwise engine on tensor cores (codegen/device/depthwise/mma_wgrad.cuh):
// what follows from its knobs, its launches and its costs.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/engines/depthwise/octets.h"

namespace fusor::depthwise {

/// A setting, and what follows from it: octets are 8 results of a row, a warp multiplies two at a time.
struct MmaWgrad {
  const Problem& problem;
  Expr a, b, y;   // with the vectors marked
  int64_t split;  // parts of the rows of x
  OctetDeal deal;

  /// Reads `split` alone, of which 0 is left to the schedule.
  MmaWgrad(const Problem& problem_, const Knobs& knobs);

  Lowered lowered() const;
  Work work() const;

 private:
  const SlidingAxis& vertical() const { return problem.axes[1]; }
  const SlidingAxis& last() const { return problem.last(); }
  // Rows of x, those of octets that are multiplied at once counted together.
  int64_t rows() const { return deal.turns() * vertical().positions; }
  int64_t rows_per_block() const { return ceil_div(rows(), split); }
  double rows_in_front() const;
  int64_t taps() const { return vertical().window * last().window; }
  int64_t pairs() const { return ceil_div(last().window, 2); }
  int64_t blocks() const { return deal.tiles() * split; }
  int64_t blocks_per_sm() const;
  int64_t split_for_device() const;
  double slower() const;
  int64_t parts() const { return split * deal.lanes; }
  int64_t partial_bytes() const { return parts() * taps() * problem.view.entries * 4; }
  Launch parts_of_gradient() const;
};

inline Lowered lower(const MmaWgrad& schedule) { return schedule.lowered(); }
inline Work cost(const MmaWgrad& schedule) { return schedule.work(); }

}  // namespace fusor::depthwise
