// Owns the tolerance of verify: how far a right run may be from the oracle.
#pragma once

#include <limits>
#include <vector>

#include "core/graph.h"
#include "core/plan.h"

namespace fusor::reference {

/// Lines along an axis of fewer elements say more about single elements than about sums.
inline constexpr int64_t kLongLine = 32;

/// Size of a tensor's finite values.
struct Magnitude {
  double largest = 0;
  double rms = 0;
  /// Values that differ: equal ones have equal errors. Many where nobody has counted.
  double distinct = std::numeric_limits<double>::infinity();
  double smallest = 0;  ///< of the absolute values that are not 0
  double lowest = -1, highest = 1;
  /// By axis, over its lines: the largest root mean square, and the largest absolute mean. 0 where the axis
  /// is short, empty where nobody has looked.
  std::vector<double> lines = {}, drifts = {};
};

/// An error of up to `absolute` + `relative` * |want|.
struct Bound {
  double absolute = 0, relative = 0;
};

/// Bound of the error that a right run may have in `output`, beside the rounding to the output's own
/// type. `magnitudes[i]`: of graph.tensors[i] by the oracle. `notes` of the plan:
/// contractions summed in fp32 may have rounded their fp32 operands to TF32, or cut them off, and summed fp8
/// as Hopper's tensor cores do.
Bound error_bound(const Graph& graph, int output, const std::vector<bool>& cone,
                  const std::vector<Magnitude>& magnitudes, const Notes& notes = {});
/// The same where only the output's own values are known: errors are taken as parts of them throughout.
Bound error_bound(const Graph& graph, int output, const std::vector<bool>& cone, const Magnitude& magnitude,
                  const Notes& notes = {});

}  // namespace fusor::reference
