// Owns fprop and dgrad of the depthwise engine on tensor cores (codegen/device/depthwise/mma_march.cuh): what
// follows from the fusion, its launch and its costs.
#pragma once

#include <cstdint>

#include "backend/engines/depthwise/octets.h"

namespace fusor::depthwise {

/// A schedule: steps are pairs of rows, runs are parts of the images of all octets that a block multiplies at
/// once.
struct MmaMarch {
  const Problem& problem;
  Expr a, b, y;  // with the vectors marked
  OctetDeal deal;
  int64_t steps = 1, runs_per_block = 1;  // of a run, without those before its results; of a block

  explicit MmaMarch(const Problem& problem_);

  Lowered lowered() const;
  Work work() const;

 private:
  // Steps of a warp over all runs of one turn: all, and those that multiply.
  struct Steps {
    int64_t all = 0, multiplied = 0;
  };

  const SlidingAxis& vertical() const { return problem.axes[1]; }
  const SlidingAxis& last() const { return problem.last(); }
  int64_t start_row() const { return vertical().start - (vertical().window % 2 == 0 ? 1 : 0); }
  int64_t lead() const { return vertical().window / 2; }
  int64_t pairs() const { return ceil_div(vertical().results, 2); }
  int64_t parts() const { return ceil_div(pairs(), steps); }
  int64_t runs() const { return deal.turns() * parts(); }
  int64_t blocks() const { return deal.tiles() * ceil_div(runs(), runs_per_block); }
  int64_t blocks_per_sm() const;
  Steps steps_of_turn() const;
  double steps_of_busiest(double of_run) const;
  void settle_runs();
  double products_of_step() const;
  double issued_of_step() const;
};

inline Lowered lower(const MmaMarch& schedule) { return schedule.lowered(); }
inline Work cost(const MmaMarch& schedule) { return schedule.work(); }

}  // namespace fusor::depthwise
