// Owns the descriptions of operands: what engines are told of the buffer behind a tensor.
#include "backend/planner/fusion/fusion_operands.h"

namespace fusor {

int FusionOperands::operand_of_buffer(int buffer) {
  for (size_t i = 0; i < fusion_.operands.size(); ++i)
    if (fusion_.operands[i].tensor == buffer) return static_cast<int>(i);
  const Tensor& described = graph_.tensors[buffer];
  const int64_t alignment = described.is_virtual() ? 256 : described.alignment;
  fusion_.operands.push_back({buffer, described.stored_type(), described.memory, alignment,
                              span_elements(described.dims, described.strides), described.value});
  fusion_.operand_names.push_back(described.name);
  return static_cast<int>(fusion_.operands.size()) - 1;
}

DataType FusionOperands::stored_type(int tensor) const {
  return graph_.tensors[folded_.placements[tensor].buffer].stored_type();
}

}  // namespace fusor
