// Owns the computation of rows in the parts that others read of them.
#pragma once

#include "backend/planner/rewrites/additions.h"
#include "core/graph.h"

namespace fusor {

/// Computes a row in equal parts where its readers take it apart, with totals over all of them. Rotary
/// positions behind a norm, whose halves are exchanged, are one pass over the rows then:
///
///     x [n, 2 d] -> mul x x -> average -> rsqrt -> mul x -> slices [n, d], [n, d]
///
///     x slices a, b -> mul a a -> average --.
///                      mul b b -> average -> add, halve -> rsqrt -> mul a, mul b
///
/// The values between what lies in memory and the slices have no other readers, and totals over the parted
/// axis are among them: without these, nothing would be saved. Tensors keep their indices. Whether anything
/// changed.
bool part_rows(Graph& graph, Additions& additions);

}  // namespace fusor
