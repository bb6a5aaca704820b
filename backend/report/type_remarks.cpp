// Owns the remarks on operands whose type keeps a contraction off the tensor cores, or makes it dear there.
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

// Whether no tensor core multiplies elements of this type, while it does those of the type beside it.
bool is_too_wide(DataType type, DataType other) {
  if (type == DataType::f64) return other != DataType::f64;
  if (type == DataType::i64 || type == DataType::i32) return byte_size(other) < byte_size(type);
  return false;
}

// Says how the contraction runs because of the type; empty where the type costs nothing. A result of the
// graph's own may be exact in a narrower type, which engines find out.
std::string consequence(DataType type, DataType other, DataType compute, Precision precision, bool is_made) {
  if (is_too_wide(type, other) && !is_made)
    return fmt::format("runs on CUDA cores: no tensor core multiplies {}", to_string(type));
  if (compute != DataType::f32 || !needs_parts(type, other)) return "";
  if (precision == Precision::exact) return "takes six bf16 products on the tensor cores";
  if (precision == Precision::strict) return "runs on CUDA cores: strict splits no fp32 into parts";
  return "";
}

}  // namespace

std::vector<std::string> type_remarks(const Graph& graph) {
  std::vector<std::string> remarks;
  for (const Op& op : graph.ops) {
    if (!is_contraction(op.attributes)) continue;
    for (size_t i = 0; i < 2; ++i) {
      const Tensor& tensor = graph.tensors[static_cast<size_t>(op.inputs[i])];
      const Tensor& other = graph.tensors[static_cast<size_t>(op.inputs[1 - i])];
      const std::string becomes = consequence(tensor.type, other.type, *compute_type(op.attributes),
                                              graph.precision, graph.producer(op.inputs[i]) >= 0);
      if (becomes.empty()) continue;
      const bool can_round = needs_parts(tensor.type, other.type) && graph.precision == Precision::exact;
      remarks.push_back(fmt::format("{} {}, for '{}' is {} beside {} '{}'; fix: declare '{}' as {}{}",
                                    op_label(op.name, op.attributes), becomes, tensor.name,
                                    to_string(tensor.type), to_string(other.type), other.name, tensor.name,
                                    to_string(other.type), can_round ? ", or precision allow_tf32" : ""));
    }
  }
  return remarks;
}

}  // namespace fusor
