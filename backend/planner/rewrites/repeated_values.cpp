// Owns the writing of repeated values into a graph, as far as its groups then take them.
#include "backend/planner/rewrites/repeated_values.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "backend/planner/kinds.h"
#include "backend/planner/partition/late_values.h"
#include "backend/planner/planner.h"
#include "backend/planner/rewrites/additions.h"
#include "backend/planner/rewrites/unread_views.h"

namespace fusor {

namespace {

// A graph with repeated values, and where they are.
struct Repeated {
  Graph graph;
  // Per value: the place of its last op, and of one that reads it.
  std::vector<std::pair<int, int>> places;
};

Repeated with_repeats(const Graph& given, const std::vector<RepeatedValue>& values) {
  Repeated made{given, std::vector<std::pair<int, int>>(values.size())};
  Graph& graph = made.graph;
  Additions additions(graph);
  std::map<int, std::vector<size_t>> read_by;  // by op: the values that it reads
  for (size_t i = 0; i < values.size(); ++i)
    for (const int reader : values[i].readers) read_by[reader].push_back(i);
  std::vector<std::map<int, int>> again(
      values.size());  // by tensor: what stands for it; empty before its first use
  std::vector<Op> ops;
  for (int at = 0; at < std::ssize(given.ops); ++at) {
    Op op = given.ops[static_cast<size_t>(at)];
    for (const size_t value : read_by[at]) {
      std::map<int, int>& stands = again[value];
      if (stands.empty()) {
        for (const int repeated : values[value].ops) {
          Op repeat = given.ops[static_cast<size_t>(repeated)];
          const int y = repeat.outputs[0];
          repeat.name = additions.op_name(repeat.name + ".again");
          for (int& input : repeat.inputs)
            if (const auto found = stands.find(input); found != stands.end()) input = found->second;
          const Tensor model = graph.tensors[static_cast<size_t>(y)];
          repeat.outputs = {additions.tensor(model, model.dims, repeat.name)};
          graph.tensors[static_cast<size_t>(repeat.outputs[0])].strides = model.strides;
          stands[y] = repeat.outputs[0];
          ops.push_back(std::move(repeat));
        }
        made.places[value].first = static_cast<int>(std::ssize(ops)) - 1;
      }
      made.places[value].second = static_cast<int>(std::ssize(ops));
      const int y = given.ops[static_cast<size_t>(values[value].ops.back())].outputs[0];
      std::ranges::replace(op.inputs, y, stands.at(y));
    }
    ops.push_back(std::move(op));
  }
  graph.ops = std::move(ops);
  return made;
}

// Whether some value may have readers in several groups.
bool has_shared_values(const Graph& graph) {
  const GraphIndex index(graph);
  return std::ranges::any_of(graph.ops, [&](const Op& op) {
    return is_pointwise(op) && graph.tensors[static_cast<size_t>(op.outputs[0])].is_virtual() &&
           index.consumers(op.outputs[0]).size() > 1;
  });
}

}  // namespace

void repeat_values(Graph& graph) {
  if (!has_shared_values(graph)) return;
  // A repeated value may be one that others wait for.
  constexpr int kMostRounds = 8;
  for (int round = 0; round < kMostRounds; ++round) {
    const FoldedGraph folded = fold_views(graph);
    std::vector<RepeatedValue> values = values_to_repeat(graph, folded, partition(graph, folded));
    while (!values.empty()) {
      Repeated made = with_repeats(graph, values);
      const FoldedGraph made_folded = fold_views(made.graph);
      std::vector<int> group_of(made.graph.ops.size(), -1);
      const auto groups = partition(made.graph, made_folded);
      for (size_t group = 0; group < groups.size(); ++group)
        for (const int op : groups[group]) group_of[static_cast<size_t>(op)] = static_cast<int>(group);
      std::vector<RepeatedValue> taken;
      for (size_t i = 0; i < values.size(); ++i)
        if (group_of[static_cast<size_t>(made.places[i].first)] ==
            group_of[static_cast<size_t>(made.places[i].second)])
          taken.push_back(values[i]);
      if (taken.size() == values.size()) {
        // Values that no group reads where they were made go.
        std::set<int> repeated;
        for (const RepeatedValue& value : values)
          for (const int op : value.ops) repeated.insert(graph.ops[static_cast<size_t>(op)].outputs[0]);
        graph = std::move(made.graph);
        drop_unread_views(graph, repeated);
        break;
      }
      values = std::move(taken);
    }
    if (values.empty()) return;
  }
}

}  // namespace fusor
