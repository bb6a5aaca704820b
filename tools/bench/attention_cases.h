// Owns the cases of attention: the op and its gradients, scores written by hand, as a model asks for them.
#pragma once

#include "core/graph.h"
#include "serialization/bench_cases.h"

namespace fusor::command {

/// The graph of a case with is_attention(). Throws Error{bad_input} that names a step of scores it does not
/// know.
Graph attention_graph_of(const BenchCase& bench_case);

/// Fills an input that cannot be random: a page table (each page once, in no order), the document of each
/// position, lengths of sequences and where they begin. False where the tensor is none of these.
bool fill_attention_input(const BenchCase& bench_case, const Graph& graph, size_t tensor, void* data);

/// Positions of sequence i of a ragged operand of these dims: (i + 1) / sequences of the most, rounded up.
int64_t ragged_length(const Dims& dims, int64_t sequence);
/// The first position of document i of the case: (i / documents)^2 of all, rounded down.
int64_t document_start(const BenchCase& bench_case, int64_t document);

/// Operations of the products of a case (two, of its gradients five), of the scores that its masks leave.
double attention_flops(const BenchCase& bench_case);
/// The same of an op sdpa_fwd or sdpa_bwd; 0 of other ops.
double attention_flops(const Graph& graph, const Op& op);

}  // namespace fusor::command
