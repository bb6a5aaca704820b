// Owns the collecting of producers and consumers.
#include "core/graph_index.h"

#include <algorithm>
#include <numeric>

namespace fusor {

GraphIndex::GraphIndex(const Graph& graph)
    : producers_(graph.tensors.size(), -1), first_consumer_(graph.tensors.size() + 1, 0) {
  for (size_t i = graph.ops.size(); i-- > 0;)
    for (const int output : graph.ops[i].outputs)
      if (output >= 0) producers_[static_cast<size_t>(output)] = static_cast<int>(i);
  // An op that reads a tensor twice is one consumer: its later mentions are passed over.
  const auto for_each_reading = [&](auto&& visit) {
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      const std::vector<int>& inputs = graph.ops[i].inputs;
      for (auto input = inputs.begin(); input != inputs.end(); ++input)
        if (*input >= 0 && std::find(inputs.begin(), input, *input) == input)
          visit(static_cast<size_t>(*input), i);
    }
  };
  for_each_reading([&](size_t tensor, size_t) { ++first_consumer_[tensor + 1]; });
  std::partial_sum(first_consumer_.begin(), first_consumer_.end(), first_consumer_.begin());
  consumers_.resize(static_cast<size_t>(first_consumer_.back()));
  std::vector<int> next = first_consumer_;
  for_each_reading([&](size_t tensor, size_t op) {
    consumers_[static_cast<size_t>(next[tensor]++)] = static_cast<int>(op);
  });
}

}  // namespace fusor
