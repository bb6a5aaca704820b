// Owns the tolerance of verify: how far a right run may be from the oracle.
#pragma once

#include <limits>
#include <vector>

#include "core/graph.h"
#include "core/plan.h"

namespace fusor::reference {

/// Size of a tensor's finite values.
struct Magnitude {
  double largest = 0;
  double rms = 0;
  /// Values that differ: equal ones have equal errors. Many where nobody has counted.
  double distinct = std::numeric_limits<double>::infinity();
};

/// Bound of the absolute error that a right run may have in `output`, beside the rounding to the output's own
/// type. `magnitudes[i]`: of graph.tensors[i] by the oracle. `notes` of the plan:
/// contractions summed in fp32 may have rounded their fp32 operands to TF32, or cut them off, and summed fp8
/// as Hopper's tensor cores do.
double error_bound(const Graph& graph, int output, const std::vector<bool>& cone,
                   const std::vector<Magnitude>& magnitudes, const Notes& notes = {});
/// The same where only the output's own values are known: errors are taken relative to them throughout.
double error_bound(const Graph& graph, int output, const std::vector<bool>& cone, const Magnitude& magnitude,
                   const Notes& notes = {});

}  // namespace fusor::reference
