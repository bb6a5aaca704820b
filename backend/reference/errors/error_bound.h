// Owns the tolerance of verify: how far a right run may be from the oracle.
#pragma once

#include <vector>

#include "backend/reference/errors/magnitude.h"
#include "core/graph.h"
#include "core/plan.h"

namespace fusor::reference {

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
