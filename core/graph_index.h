// Owns GraphIndex: the look-ups in a graph, made once for passes that ask often.
#pragma once

#include <span>
#include <vector>

#include "core/graph.h"

namespace fusor {

/// Who writes and who reads each tensor of a graph, collected once: for passes that ask often. It holds
/// indices only, and speaks of the graph as it was.
class GraphIndex {
 public:
  GraphIndex() = default;
  explicit GraphIndex(const Graph& graph);
  /// As Graph::producer.
  int producer(int tensor) const { return producers_[static_cast<size_t>(tensor)]; }
  /// As Graph::consumers.
  std::span<const int> consumers(int tensor) const {
    const auto first = static_cast<size_t>(first_consumer_[static_cast<size_t>(tensor)]);
    const auto last = static_cast<size_t>(first_consumer_[static_cast<size_t>(tensor) + 1]);
    return std::span(consumers_).subspan(first, last - first);
  }

 private:
  std::vector<int> producers_;       // per tensor
  std::vector<int> first_consumer_;  // per tensor, and the end
  std::vector<int> consumers_;       // of all tensors, one after another
};

}  // namespace fusor
