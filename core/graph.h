// Owns Op and Graph: what the user said, and nothing about how it is carried out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/api.h"
#include "core/attributes.h"
#include "core/tensor.h"

namespace fusor {

/// One operation. inputs and outputs are indices into Graph::tensors.
struct Op {
  std::string name;  ///< unique in its graph
  Attributes attributes;
  std::vector<int> inputs, outputs;
  friend bool operator==(const Op&, const Op&) = default;
};

/// What engines may do to the numbers of a graph beyond its types; each allows what those before it do.
/// strict: nothing. exact, the default: operands are multiplied as they are, fp32 perhaps as the sum of three
/// bf16, with an error like that of fp32; a softmax in front of a matmul may be divided by its sum behind
/// that product, its exponentials rounded to the operand's type; a matmul with a sum of softmaxes may be a
/// sum of matmuls; without a softmax, scores are taken to be finite where a mask multiplies them by zeros;
/// gradients of attention's scores may be scaled behind the product that reads them. allow_tf32: matmuls and
/// convolutions summed in fp32 may round fp32 operands to TF32 (10 mantissa bits) on their way to the tensor
/// cores. allow_short_sums: products of fp8 may be summed 128 at a time with the 13 mantissa bits that
/// Hopper's tensor cores keep.
enum class Precision : uint8_t { strict, exact, allow_tf32, allow_short_sums };

FUSOR_API std::string_view to_string(Precision precision);

/// Tensors and ops; append order is topological order.
struct FUSOR_API Graph {
  std::string name;
  Precision precision = Precision::exact;
  std::vector<Tensor> tensors;
  std::vector<Op> ops;

  /// Index of the op that writes `tensor`, or -1 for a graph input.
  int producer(int tensor) const;
  /// Ops that read `tensor`, in order.
  std::vector<int> consumers(int tensor) const;
  /// Index of the tensor, or -1.
  int find(std::string_view tensor_name) const;
  int find_uid(int64_t uid) const;
  friend bool operator==(const Graph&, const Graph&) = default;
};

}  // namespace fusor
