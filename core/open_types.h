// Owns the rule that gives a type to every tensor whose type nobody said, once the whole graph is known. It
// looks at the graph alone, so that neither the order of calls nor a partition changes a result.
//
// The stored type of a tensor is its own where that was said. Else it is the promoted type of what its op
// reads, each operand at its stored type; a contraction reads an open operand in the type that it takes
// beside the other. Where that would lose the kind of the numbers - real results of integers, sums of
// integers, numbers from bool8 - it is the compute type. Then:
//  1. an output whose type nobody said has its stored type;
//  2. an operand of a contraction in fp32 takes the 16- or 8-bit real type of the operand beside it; fp16 and
//     bf16 stay what they are beside fp8; of two open operands each takes its own stored type where that is
//     so narrow, else the other's. Contractions that ask for different types get none;
//  3. everything else stays in its compute type.
// Tensors that views and concatenations tie together are settled as one.
#pragma once

#include <span>
#include <vector>

#include "core/graph.h"

namespace fusor {

/// The narrower type that holds the values of both as well as a type can: fp64 > fp32 > fp16, bf16 > fp8, a
/// real above every integer, int64 > int32 > int8, uint8, bool8 below all. Two of one rank give the next one
/// up: fp16 and bf16 fp32, the two fp8 fp16, int8 and uint8 int32.
DataType promoted(DataType a, DataType b);

/// Whether contractions run on the tensor cores with operands of this type: real, 16 or 8 bits.
bool is_narrow_real(DataType type);

/// One operand as the rule sees it: its type, or while it is open its stored type so far.
struct OperandType {
  DataType type = DataType::f32;
  bool open = false;
  bool scalar = false;  ///< by value: counts only where all operands are
};

/// The stored type of one result. `attributes` have their compute type; `result` is the type that infer()
/// gives a virtual result.
DataType stored_type(const Attributes& attributes, DataType result, std::span<const OperandType> operands);

/// Gives every tensor with open[tensor] its type. The open ones are results of ops and have the type that
/// infer() gives; the ops stand in topological order.
void settle_types(Graph& graph, const std::vector<bool>& open);

}  // namespace fusor
