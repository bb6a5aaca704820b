// Owns the evaluation of an Expr over its whole domain: block by block, on all cores.
#pragma once

#include <span>

#include "backend/reference/reference.h"
#include "core/expr.h"

namespace fusor::reference {

/// The first element of what an Access names; for scalars, the scalar.
struct Buffer {
  DataType type = DataType::f32;
  void* data = nullptr;
};

/// Carries out every store of `expr`, which has no input nodes: phase after phase, a walk for each set of
/// reduced axes. The same bits for any number of threads.
void evaluate_expression(const Expr& expr, std::span<const Buffer> buffers, Reading reading);

}  // namespace fusor::reference
