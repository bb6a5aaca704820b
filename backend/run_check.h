// Owns FUSOR_CHECK: what is not finite among the tensors of a run, told on stderr.
#pragma once

#include <span>
#include <string>

#include "core/plan.h"

namespace fusor {

/// A line for each real tensor of the graph that holds NaN or infinity after a run: inputs first, then
/// outputs in the order of the fusions that store them, each with its counts and its first such element.
/// Empty where all are finite. `pointers[i]`: the memory of graph.tensors[i] on the plan's device, or null.
std::string not_finite(const Plan& plan, std::span<void* const> pointers);

/// Waits for the stream and writes not_finite() to stderr. Does nothing while the stream is captured into a
/// CUDA graph.
void check_run(const Plan& plan, std::span<void* const> pointers, void* stream);

}  // namespace fusor
