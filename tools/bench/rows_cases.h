// Owns the suite's cases of rows: softmax, norms and their like, written in pointwise ops and reductions.
#pragma once

#include "core/graph.h"
#include "serialization/bench_cases.h"

namespace fusor::command {

/// The graph of a case with is_rows().
Graph rows_graph_of(const BenchCase& bench_case);

}  // namespace fusor::command
