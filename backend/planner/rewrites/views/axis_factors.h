// Owns AxisFactors: what reshapes and transposes make of the axes of a tensor.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "backend/planner/rewrites/additions.h"
#include "core/graph.h"
#include "core/graph_index.h"

namespace fusor {

/// The axes of a value behind reshapes and transposes of a tensor, the root, each as a row of factors of the
/// root's axes. [b, s, h d] behind a reshape to [b, s, h, d], a transpose to [s, b, h, d] and a reshape to
/// [s b, h d] is {{s, b}, {h, d}}.
class AxisFactors {
 public:
  /// `is_packed`: the root's axes follow each other in memory without gaps.
  AxisFactors(const Dims& root, bool is_packed);

  void transpose(const Dims& permutation);
  /// False, and the value is not to be used further, where an axis cuts a factor in no whole parts.
  bool reshape(const Dims& shape);

  /// The value's axes, as factors; of an axis of extent 1 there are none.
  const std::vector<std::vector<int>>& axes() const { return axes_; }
  int64_t extent(int factor) const { return extents_[static_cast<size_t>(factor)]; }
  int64_t extent(const std::vector<int>& run) const;
  /// Where a factor stands among all of the root, from the slowest on.
  int place(int factor) const;
  /// Pairs of factors that are neighbours in an axis of the value and not in the root, or in an axis of it
  /// where it is not packed: no strides show them where the root lies in memory.
  std::vector<std::pair<int, int>> strange_pairs() const;
  /// Those that are neighbours in an axis of the value and not in one of the root: no strides show them where
  /// the root lies in another order.
  std::vector<std::pair<int, int>> joined_pairs() const;
  /// Whether two factors are one axis of the root, side by side in this order.
  bool are_neighbours(int factor, int next) const;

 private:
  void split(int factor, int64_t outer);

  bool is_packed_;
  std::vector<int64_t> extents_;        // by factor
  std::vector<std::vector<int>> root_;  // factors of each axis of the root
  std::vector<std::vector<int>> axes_;  // and of each axis of the value
};

/// A value, and the tensor in front of the reshapes and transposes that lead to it.
struct SeenAxes {
  int root;
  AxisFactors axes;
  bool passes_strange_pairs;  ///< some value on the way has a strange pair that this one has not
  bool passes_joined_pairs;   ///< or a joined one
};

/// As the graph's ops have it; nothing where the value is no reshape or transpose of another.
std::optional<SeenAxes> seen_axes(const Graph& graph, const GraphIndex& index, int value);

/// Appends the views that lead from `root` to the groups of factors, which become the axes of `shape`, as one
/// reshape, one transpose and one reshape, as far as they are needed. The last one's result is `result`, or
/// a new tensor where that is -1. Returns the result: `root` where nothing is to be done and `result` is -1.
int append_views(std::vector<Op>& ops, Additions& additions, const Graph& graph, int root,
                 const AxisFactors& factors, const std::vector<std::vector<int>>& axes, const Dims& shape,
                 const std::string& name, int result = -1);

}  // namespace fusor
