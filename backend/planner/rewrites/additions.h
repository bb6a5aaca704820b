// Owns Additions: tensors and ops that passes add to a graph, under names and uids that are free.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>

#include "core/graph.h"

namespace fusor {

/// Refers to the graph; names and uids are those that it has at first.
class Additions {
 public:
  explicit Additions(Graph& graph);

  /// "name", or that with as many ' as make it free.
  std::string op_name(std::string name);
  /// A virtual tensor like `model`, packed, of the given dims, for the result of an op called `op`.
  int tensor(const Tensor& model, const Dims& dims, const std::string& op);
  /// A scalar that is known now.
  int constant(double value, DataType type);
  /// A view of tensor `x`, called "name" or so, whose result is new and has that shape. The caller places it.
  Op view(Attributes attributes, int x, const Dims& shape, const std::string& name);
  /// Such a view of the coordinates from `start` up to `limit` along an axis.
  Op slice(int x, int axis, int64_t start, int64_t limit, const std::string& name);
  /// Gives an op the compute type that its operands ask for.
  void set_default_compute(Op& op) const;

 private:
  Graph& graph_;
  std::unordered_set<std::string> op_names_, tensor_names_;
  std::unordered_set<int64_t> uids_;
  int64_t next_uid_ = 1;
};

}  // namespace fusor
