// Owns graph -> ONNX, for viewers: the wire format of protobuf is written by hand, so that nothing is linked
// for it.
#pragma once

#include <string>

#include "core/plan.h"

namespace fusor {

/// A model whose ops are of the domain "fusor": the attributes of graph files, and "fusion" (from 1) and
/// "engine" of the op.
std::string onnx_model(const Candidate& choice);

}  // namespace fusor
