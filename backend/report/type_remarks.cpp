// Owns the remarks on operands whose type makes a contraction dear on the tensor cores.
#include "backend/report/type_remarks.h"

#include <fmt/format.h>

#include "core/infer.h"
#include "core/open_types.h"

namespace fusor {

namespace {

// Whether `type` beside `other` takes a contraction in fp32 to parts of fp32. fp8 is exact in fp16.
bool needs_parts(DataType type, DataType other) {
  if (!is_narrow_real(other)) return false;
  if (type == DataType::f32) return true;
  return type == DataType::bf16 && other == DataType::f16;
}

}  // namespace

std::vector<std::string> type_remarks(const Graph& graph) {
  std::vector<std::string> remarks;
  if (graph.precision != Precision::exact) return remarks;
  for (const Op& op : graph.ops) {
    if (!is_contraction(op.attributes) || *compute_type(op.attributes) != DataType::f32) continue;
    for (size_t i = 0; i < 2; ++i) {
      const Tensor& tensor = graph.tensors[static_cast<size_t>(op.inputs[i])];
      const Tensor& other = graph.tensors[static_cast<size_t>(op.inputs[1 - i])];
      if (!needs_parts(tensor.type, other.type)) continue;
      remarks.push_back(
          fmt::format("{}: '{}' is {} beside {} '{}', which makes six products of one on the tensor cores; "
                      "remedy: type {} "
                      "for '{}', or allow_tf32",
                      op_label(op.name, op.attributes), tensor.name, to_string(tensor.type),
                      to_string(other.type), other.name, to_string(other.type), tensor.name));
    }
  }
  return remarks;
}

}  // namespace fusor
