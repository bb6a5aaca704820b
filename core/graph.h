// Owns Op and Graph: what the user said, and nothing about how it is carried out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

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

/// Tensors and ops; append order is topological order.
struct Graph {
  std::string name;
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
