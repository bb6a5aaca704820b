// Owns the search for concatenations that pointwise ops need not wait for.
#include "backend/planner/rewrites/concatenations/late_concatenations.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "backend/planner/kinds.h"
#include "backend/planner/rewrites/views/unread_views.h"
#include "core/attributes.h"
#include "core/graph_index.h"
#include "core/ops/expansion.h"

namespace fusor {

namespace {

// Pointwise ops that are computed on the parts of one concatenation, at most, and others in front of them.
constexpr size_t kMostSteps = 32;
constexpr int kMostBeside = 4;

class LateConcatenation {
 public:
  // `gone`: ops that other concatenations have taken, by place.
  LateConcatenation(Graph& graph, Additions& additions, const GraphIndex& index,
                    const std::vector<bool>& gone, int op)
      : graph_(graph),
        additions_(additions),
        index_(index),
        taken_(gone),
        concatenation_(graph.ops[static_cast<size_t>(op)]) {
    whole_ = concatenation_.outputs[0];
    axis_ = static_cast<int>(std::get<Concatenate>(concatenation_.attributes).axis);
    gone_.push_back(op);
  }

  // Finds the ops on the way to the last value that may be computed in parts; false where there are none.
  bool find_way() {
    const auto is_free = [&](int part) {
      return !tensor(part).is_virtual() || is_view_result(part) || only_reader(part) >= 0;
    };
    if (concatenation_.inputs.size() < 2 || !std::ranges::all_of(concatenation_.inputs, is_free))
      return false;
    for (int at = whole_; way_.size() < kMostSteps;) {
      const int reader = only_reader(at);
      if (reader < 0 || !is_computable(reader, at, kMostBeside)) break;
      way_.push_back(reader);
      at = op_of(reader).outputs[0];
      last_ = at;
    }
    return !way_.empty();
  }

  // Writes the parts' ops to the place of the last op of the way, and marks the ops that they replace.
  void write(std::vector<std::vector<Op>>& behind, std::vector<bool>& gone) {
    std::vector<int> results;
    int64_t start = 0;
    for (const int tensor : concatenation_.inputs) {
      Part part{tensor, start, start + dims(tensor)[axis_], {}};
      start = part.limit;
      results.push_back(part_of(last_, part));
    }
    const Op& last = op_of(way_.back());
    written_.push_back({additions_.op_name(last.name + ".out"), concatenation_.attributes, results, {last_}});
    behind[static_cast<size_t>(way_.back())] = std::move(written_);
    for (const int op : gone_) {
      gone[static_cast<size_t>(op)] = true;
      const int y = op_of(op).outputs[0];
      if (y != last_) leave_empty(graph_.tensors[static_cast<size_t>(y)]);
    }
  }

 private:
  const Tensor& tensor(int at) const { return graph_.tensors[static_cast<size_t>(at)]; }
  const Dims& dims(int at) const { return tensor(at).dims; }
  const Op& op_of(int at) const { return graph_.ops[static_cast<size_t>(at)]; }

  bool is_view_result(int at) const {
    const int producer = index_.producer(at);
    return producer >= 0 && is_view(op_of(producer).attributes);
  }
  int only_reader(int value) const {
    const auto readers = index_.consumers(value);
    return readers.size() == 1 && tensor(value).is_virtual() ? readers[0] : -1;
  }

  // The concatenated axis among those of another tensor; -1 where the tensor is the same for all along it.
  int axis_of(int at) const {
    const int axis = axis_ - (dims(whole_).rank() - dims(at).rank());
    return tensor(at).is_scalar() || axis < 0 || dims(at)[axis] == 1 ? -1 : axis;
  }

  // ---- What may be computed in parts ----

  bool is_computable(int op, int from, int depth) const {
    const Op& described = op_of(op);
    const auto* const pointwise = std::get_if<Pointwise>(&described.attributes);
    const int y = described.outputs[0];
    return pointwise != nullptr && pointwise->mode != PointwiseMode::gen_index &&
           !taken_[static_cast<size_t>(op)] && dims(y) == dims(whole_) && !is_packed(tensor(y).type) &&
           std::ranges::all_of(described.inputs, [&](int input) {
             return input == from || axis_of(input) < 0 || is_sliced(input) || is_beside(input, depth);
           });
  }

  // Whether the tensor lies in memory, where slices of it are read, or would have to for its other readers.
  bool is_sliced(int at) const {
    return !is_packed(tensor(at).type) &&
           (index_.producer(at) < 0 || !tensor(at).is_virtual() || is_view_result(at) || is_taken_apart(at));
  }
  bool is_taken_apart(int at) const {
    const auto slices = std::ranges::count_if(index_.consumers(at), [&](int reader) {
      return std::holds_alternative<Slice>(op_of(reader).attributes);
    });
    return slices > 0 && slices + 1 == std::ssize(index_.consumers(at));
  }

  // Whether the tensor is the value of a pointwise op for this use alone, made of such.
  bool is_beside(int at, int depth) const {
    return depth > 0 && only_reader(at) >= 0 && is_pointwise(op_of(index_.producer(at))) &&
           is_computable(index_.producer(at), -1, depth - 1);
  }

  // ---- Parts ----

  // A part of the concatenation: its tensor, the coordinates that it takes, and the tensors of the graph as
  // far as they were made for these.
  struct Part {
    int tensor = -1;
    int64_t start = 0, limit = 0;
    std::map<int, int> made = {};
  };

  int part_of(int at, Part& part) {
    if (at == whole_) return part.tensor;
    if (axis_of(at) < 0) return at;
    if (const auto known = part.made.find(at); known != part.made.end()) return known->second;
    const int producer = index_.producer(at);
    const bool is_on_way = producer >= 0 && std::ranges::find(way_, producer) != way_.end();
    const int made = is_on_way || !is_sliced(at) ? computed_part(producer, part) : sliced(at, part);
    part.made.emplace(at, made);
    return made;
  }

  int computed_part(int op, Part& part) {
    if (std::ranges::find(gone_, op) == gone_.end()) gone_.push_back(op);
    Op computed = op_of(op);
    for (int& input : computed.inputs) input = part_of(input, part);
    const int y = computed.outputs[0];
    computed.name = additions_.op_name(computed.name + ".part");
    computed.outputs = {additions_.tensor(Tensor(tensor(y)), shape_of(y, part), computed.name)};
    written_.push_back(computed);
    return computed.outputs[0];
  }

  int sliced(int at, const Part& part) {
    written_.push_back(
        additions_.slice(at, axis_of(at), part.start, part.limit, concatenation_.name + ".in"));
    return written_.back().outputs[0];
  }

  Dims shape_of(int at, const Part& part) const {
    Dims shape = dims(at);
    shape[axis_of(at)] = part.limit - part.start;
    return shape;
  }

  Graph& graph_;
  Additions& additions_;
  const GraphIndex& index_;
  const std::vector<bool>& taken_;  // per op: whether another concatenation took it
  const Op concatenation_;
  int whole_ = -1, last_ = -1, axis_ = 0;
  std::vector<int> way_;   // ops from the concatenation to the last value
  std::vector<int> gone_;  // ops that others are written for
  std::vector<Op> written_;
};

}  // namespace

bool move_concatenations_behind(Graph& graph, Additions& additions) {
  const auto concatenates = [](const Op& op) { return std::holds_alternative<Concatenate>(op.attributes); };
  if (std::ranges::none_of(graph.ops, concatenates)) return false;
  const GraphIndex index(graph);
  std::vector<std::vector<Op>> behind(graph.ops.size());
  std::vector<bool> gone(graph.ops.size(), false);
  bool moves = false;
  for (size_t at = 0; at < graph.ops.size(); ++at) {
    if (!concatenates(graph.ops[at])) continue;
    LateConcatenation late(graph, additions, index, gone, static_cast<int>(at));
    if (!late.find_way()) continue;
    late.write(behind, gone);
    moves = true;
  }
  if (!moves) return false;
  std::vector<Op> ops;
  for (size_t at = 0; at < graph.ops.size(); ++at) {
    if (!gone[at]) ops.push_back(std::move(graph.ops[at]));
    std::ranges::move(behind[at], std::back_inserter(ops));
  }
  graph.ops = std::move(ops);
  drop_unread_views(graph);
  return true;
}

}  // namespace fusor
