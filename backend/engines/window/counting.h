// Owns the numbers that nodes of an Expr are: whole constants, and what the host counts at a coordinate.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/expr.h"
#include "core/fusion.h"

namespace fusor {

/// The number that a node is, where it is a whole constant.
std::optional<int64_t> whole_constant(const Fusion& fusion, const Node& node);

/// Numbers of the nodes that loads take elements through, at a coordinate.
class WindowCounting {
 public:
  WindowCounting(const Fusion& fusion, const Expr& expr);

  int64_t at(int node) const { return numbers_[static_cast<size_t>(node)]; }
  void count(const Dims& at);

 private:
  int64_t computed(const Node& node) const;

  const Expr& expr_;
  std::vector<int64_t> numbers_;
};

}  // namespace fusor
