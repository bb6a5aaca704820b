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
#include "backend/planner/rewrites/views/unread_views.h"

namespace fusor {

namespace {

// A graph with repeated values, and where they are.
struct Repeated {
  Graph graph;
  // Per value: the place of its last op, and of one that reads it.
  std::vector<std::pair<int, int>> places;
};

class Repeater {
 public:
  Repeater(const Graph& given, const std::vector<RepeatedValue>& values)
      : given_(given),
        values_(values),
        made_{given, std::vector<std::pair<int, int>>(values.size())},
        additions_(made_.graph),
        stands_(values.size()) {}

  // A value is made again in front of the first of its readers.
  Repeated run() && {
    std::map<int, std::vector<size_t>> read_by;  // by op: the values that it reads
    for (size_t i = 0; i < values_.size(); ++i)
      for (const int reader : values_[i].readers) read_by[reader].push_back(i);
    for (int at = 0; at < std::ssize(given_.ops); ++at) {
      Op op = given_.ops[static_cast<size_t>(at)];
      for (const size_t value : read_by[at]) read_again(value, op);
      ops_.push_back(std::move(op));
    }
    made_.graph.ops = std::move(ops_);
    return std::move(made_);
  }

 private:
  int place() const { return static_cast<int>(std::ssize(ops_)); }

  void read_again(size_t value, Op& reader) {
    if (stands_[value].empty()) {
      for (const int op : values_[value].ops) ops_.push_back(again(op, stands_[value]));
      made_.places[value].first = place() - 1;
    }
    made_.places[value].second = place();
    const int y = given_.ops[static_cast<size_t>(values_[value].ops.back())].outputs[0];
    std::ranges::replace(reader.inputs, y, stands_[value].at(y));
  }

  Op again(int op, std::map<int, int>& stands) {
    Op repeat = given_.ops[static_cast<size_t>(op)];
    repeat.name = additions_.op_name(repeat.name + ".again");
    for (int& input : repeat.inputs)
      if (const auto found = stands.find(input); found != stands.end()) input = found->second;
    int& y = repeat.outputs[0];
    const Tensor model = made_.graph.tensors[static_cast<size_t>(y)];
    const int stand = additions_.tensor(model, model.dims, repeat.name);
    made_.graph.tensors[static_cast<size_t>(stand)].strides = model.strides;
    stands[y] = stand;
    y = stand;
    return repeat;
  }

  const Graph& given_;
  const std::vector<RepeatedValue>& values_;
  Repeated made_;
  Additions additions_;
  std::vector<std::map<int, int>>
      stands_;  // per value, by tensor: what stands for it; empty before its first use
  std::vector<Op> ops_;
};

// The values that their readers' groups take.
std::vector<RepeatedValue> taken(const std::vector<RepeatedValue>& values, const Repeated& made) {
  std::vector<int> group_of(made.graph.ops.size(), -1);
  const auto groups = partition(made.graph, fold_views(made.graph));
  for (size_t group = 0; group < groups.size(); ++group)
    for (const int op : groups[group]) group_of[static_cast<size_t>(op)] = static_cast<int>(group);
  std::vector<RepeatedValue> found;
  for (size_t i = 0; i < values.size(); ++i)
    if (group_of[static_cast<size_t>(made.places[i].first)] ==
        group_of[static_cast<size_t>(made.places[i].second)])
      found.push_back(values[i]);
  return found;
}

// Repeats what groups take; whether there was anything.
bool repeat_once(Graph& graph) {
  const FoldedGraph folded = fold_views(graph);
  std::vector<RepeatedValue> values = values_to_repeat(graph, folded, partition(graph, folded));
  while (!values.empty()) {
    Repeated made = Repeater(graph, values).run();
    std::vector<RepeatedValue> kept = taken(values, made);
    if (kept.size() == values.size()) {
      // Values that no group reads where they were made go.
      std::set<int> repeated;
      for (const RepeatedValue& value : values)
        for (const int op : value.ops) repeated.insert(graph.ops[static_cast<size_t>(op)].outputs[0]);
      graph = std::move(made.graph);
      drop_unread_views(graph, repeated);
      return true;
    }
    values = std::move(kept);
  }
  return false;
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
  for (int round = 0; round < kMostRounds && repeat_once(graph); ++round) {
  }
}

}  // namespace fusor
