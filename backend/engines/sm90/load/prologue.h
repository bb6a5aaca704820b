// Owns how operands of a matmul that pass ops before they are multiplied look to the wgmma engine: the tensor
// that TMA brings as it is stored, and the ops that threads pass it through
// (codegen/device/sm90/load/prologue.cuh).
#pragma once

#include <cstdint>
#include <optional>

#include "backend/engines/contraction/product.h"
#include "backend/engines/sm90/copy/tensor_maps.h"
#include "core/expr.h"
#include "core/fusion.h"

namespace fusor {

/// Elements that pass the ops together.
inline constexpr int64_t kPrologueVector = 8;

struct PrologueOperand {
  CopiedOperand stored;  ///< in lines of 64 elements, along k or across it
  Expr ops;              ///< of which the stored elements are anchor 0
  int vector_axis = 0;   ///< of the ops' domain: along the lines
};

/// The first operand of a matmul, or the second one, for tiles of `extent` lines. Nothing for convolutions
/// and siblings, and sums in another type than fp32; where no ops come before the operand, or what they yield
/// is neither fp16 nor bf16; and where TMA cannot walk the largest tensor that they read (the
/// first of such), finds parts of vectors there, or elements that the kernel does not know.
std::optional<PrologueOperand> prologue_operand(const Fusion& fusion, const Contraction& view, bool second,
                                                int64_t extent);

}  // namespace fusor
