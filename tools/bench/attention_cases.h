// Owns the cases of attention: the op and its gradients, as a model asks for them.
#pragma once

#include "core/graph.h"
#include "serialization/bench_cases.h"

namespace fusor::command {

/// The graph of a case with is_attention().
Graph attention_graph_of(const BenchCase& bench_case);

/// Fills a case's page table: each page once, in no order. False where the tensor is none.
bool shuffle_pages(const Graph& graph, size_t tensor, void* table);

/// Operations of the products of sdpa_fwd (two) or sdpa_bwd (five), of the scores that its masks leave; 0 of
/// other ops.
double attention_flops(const Graph& graph, const Op& op);

}  // namespace fusor::command
