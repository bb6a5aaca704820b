// Owns the step from a row of the benchmark suite to a Graph, and what the row costs at least.
#pragma once

#include "core/device_info.h"
#include "core/graph.h"
#include "serialization/bench_cases.h"

namespace fusor::command {

/// The case as a graph. Inputs are called a, b (matmuls), x, w, dy (convolutions), and after the steps that
/// read them: bias, scale, residual ...; the result is "y". Throws Error{bad_input} that names the case.
Graph graph_of(const BenchCase& bench_case);

/// The case with other extents, for counting what shapes share: its batch (of matmuls: m) times 1, 1/2, 3/4,
/// 5/4 or 2, and every spatial extent (m) plus 0, 1, 7 or 13. Variant 0 is the case itself.
inline constexpr int kVariants = 20;
BenchCase variant_of(const BenchCase& bench_case, int variant);

/// What no implementation can avoid.
struct CaseCost {
  double flops = 0;  ///< of the contractions, padding counted as if it were there
  double bytes = 0;  ///< every input and output once
};
CaseCost cost_of(const Graph& graph);
/// The same of a case and its graph, where what masks hide is known.
CaseCost cost_of(const BenchCase& bench_case, const Graph& graph);
/// Seconds of the dearer of the two at the device's measured rates (TF32 half of fp16's, fp8 and int8
/// double).
double floor_seconds(const BenchCase& bench_case, const CaseCost& cost, const DeviceInfo& device);

}  // namespace fusor::command
