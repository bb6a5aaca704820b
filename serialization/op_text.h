// Owns what is said of a kind of op: formula, shapes, types, errors.
#pragma once

#include <string>

#include "core/attributes.h"

namespace fusor {

/// In plain text, a line each. Operands and results have the names of their roles.
struct OpText {
  std::string formula;
  std::string shapes;
  std::string types;
  std::string errors;  ///< what the builder and the readers of files refuse
};

/// Of a pointwise op the formula is made from that of core/pointwise.def; of a family that a program
/// registered all are empty.
OpText op_text(const Attributes& kind);

}  // namespace fusor
