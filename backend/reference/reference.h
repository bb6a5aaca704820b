// Owns the CPU evaluator's two readings: the Oracle (float64 throughout) and the CPU device (the graph's
// compute types).
#pragma once

#include <span>
#include <vector>

#include "core/fusion.h"
#include "core/graph.h"

namespace fusor {

/// oracle: float64 for reals and int64 for integers at every step, naive loops, one op at a time; values are
/// rounded only where they are stored, to the type of the tensor. device: the ops' compute types, blocked,
/// all cores.
enum class Reading { oracle, device };

/// Carries out one fusion. `operands[i]` is the first element of the buffer of fusion.operands[i] (for
/// Memory::host the scalar itself; ignored for constants). Values between nodes are rounded to the nodes'
/// types in both readings.
void evaluate(const Fusion& fusion, std::span<void* const> operands, Reading reading);
/// The CPU device's reading, with about `most` elements of the largest value between two products at a time
/// (backend/reference/slices.h).
void evaluate_in_slices(const Fusion& fusion, std::span<void* const> operands, int64_t most);

/// Evaluates a whole graph op by op in the oracle's reading. `tensors[i]` is the host buffer of
/// graph.tensors[i] (laid out by its strides) for device and host tensors; virtual ones may be null and are
/// held inside.
void evaluate_graph(const Graph& graph, std::span<void* const> tensors);

/// A sample of elements of one tensor, by demand: only what the sample needs is evaluated. `elements` are
/// row-major linear indices into the tensor's dims; returns their values (rounded to the tensor's type). Of
/// an element that no op writes, what the memory holds; `written` says which are.
std::vector<double> evaluate_sample(const Graph& graph, std::span<void* const> tensors, int tensor,
                                    std::span<const int64_t> elements, std::vector<bool>* written = nullptr);

}  // namespace fusor
