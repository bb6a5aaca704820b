// Owns the search for matmuls whose rows were merged, and their rewriting.
#include "backend/planner/rewrites/products/split_rows.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/planner/kinds.h"
#include "backend/planner/rewrites/views/reshaped.h"
#include "backend/planner/rewrites/views/unread_views.h"
#include "core/graph_index.h"

namespace fusor {

namespace {

// Ops between a matmul and a reshape of its rows, at most.
constexpr size_t kMostOpsBetween = 32;

class SplitRows {
 public:
  SplitRows(Graph& graph, Additions& additions)
      : graph_(graph), additions_(additions), index_(graph), given_(std::move(graph.ops)) {}

  // Whether any matmul was split.
  bool run() {
    std::map<int, std::vector<int>> steps_of;  // by reshape: the matmul and the steps up to it
    for (size_t i = 0; i < given_.size(); ++i)
      if (auto steps = steps_in_front(given_[i])) steps_of.emplace(given_[i].outputs[0], *std::move(steps));
    for (const Op& op : given_) {
      const auto steps = steps_of.find(op.outputs[0]);
      if (steps == steps_of.end())
        ops_.push_back(op);
      else
        append_split(steps->second, op);
    }
    graph_.ops = std::move(ops_);
    if (steps_of.empty()) return false;
    drop_unread_views(graph_, passed_);
    return true;
  }

 private:
  const Tensor& tensor(int at) const { return graph_.tensors[static_cast<size_t>(at)]; }
  const Dims& dims(int at) const { return tensor(at).dims; }
  const Op& op(int at) const { return given_[static_cast<size_t>(at)]; }

  // ---- What may be split ----

  // The matmul and the pointwise ops behind it whose rows the reshape splits, in order; nothing where there
  // is none, or where all that meets the reshape's result has a shape in front of it as well.
  std::optional<std::vector<int>> steps_in_front(const Op& reshape) const {
    if (!is_reshape(reshape) || !splits_rows(reshape) || !meets_parts_of_rows(reshape)) return std::nullopt;
    std::vector<int> steps;
    for (int value = reshape.inputs[0]; steps.size() < kMostOpsBetween;) {
      const int producer = index_.producer(value);
      if (producer < 0 || !tensor(value).is_virtual() || index_.consumers(value).size() != 1)
        return std::nullopt;
      steps.insert(steps.begin(), producer);
      if (is_matmul(op(producer))) return is_plain(op(producer)) ? std::optional(steps) : std::nullopt;
      value = stepped_from(op(producer), reshape);
      if (value < 0) return std::nullopt;
    }
    return std::nullopt;
  }

  // [m, n] to [..., m', n].
  bool splits_rows(const Op& reshape) const {
    const Dims &whole = dims(reshape.inputs[0]), &split = dims(reshape.outputs[0]);
    return whole.rank() == 2 && split.rank() > 2 && split[split.rank() - 1] == whole[1] &&
           tensor(reshape.outputs[0]).is_virtual();
  }

  // Whether a pointwise op behind the reshape reads what broadcasts along some of the split axes alone.
  bool meets_parts_of_rows(const Op& reshape) const {
    const Dims &whole = dims(reshape.inputs[0]), &split = dims(reshape.outputs[0]);
    return std::ranges::any_of(index_.consumers(reshape.outputs[0]), [&](int reader) {
      return is_pointwise(op(reader)) && dims(op(reader).outputs[0]) == split &&
             std::ranges::any_of(op(reader).inputs, [&](int input) {
               return !tensor(input).is_scalar() && !reshaped(dims(input), split, whole);
             });
    });
  }

  bool is_plain(const Op& matmul) const {
    return matmul.inputs.size() == 2 && std::ranges::all_of(matmul.inputs, [&](int input) {
             return dims(input).rank() == 2 && !is_packed(tensor(input).type);
           });
  }

  // The operand of a pointwise op that is as large as its result, where all others have a shape beside the
  // split rows; -1 for any other op.
  int stepped_from(const Op& step, const Op& reshape) const {
    const auto* const pointwise = std::get_if<Pointwise>(&step.attributes);
    if (pointwise == nullptr || pointwise->mode == PointwiseMode::gen_index) return -1;
    const Dims &whole = dims(step.outputs[0]), &split = dims(reshape.outputs[0]);
    int from = -1;
    for (const int input : step.inputs) {
      if (is_packed(tensor(input).type)) return -1;
      if (from < 0 && is_made_for_one(input) && dims(input) == whole)
        from = input;
      else if (!tensor(input).is_scalar() && !reshaped(dims(input), whole, split))
        return -1;
    }
    return from;
  }

  bool is_made_for_one(int value) const {
    const int producer = index_.producer(value);
    return producer >= 0 && tensor(value).is_virtual() && index_.consumers(value).size() == 1 &&
           (is_pointwise(op(producer)) || is_matmul(op(producer)));
  }

  // ---- Rewriting ----

  void append_split(const std::vector<int>& steps, const Op& reshape) {
    const Dims& split = dims(reshape.outputs[0]);
    int from = -1, made = -1;
    for (const int step : steps) {
      Op next = op(step);
      const int whole = next.outputs[0];
      if (from < 0)
        next.inputs[0] = with_rows(next.inputs[0], split, next.name);
      else
        for (int& input : next.inputs)
          input = input == from ? made : beside(input, dims(whole), split, next.name);
      from = whole;
      made = step == steps.back() ? reshape.outputs[0]
                                  : additions_.tensor(Tensor(tensor(whole)), split, next.name);
      next.outputs = {made};
      ops_.push_back(std::move(next));
      passed_.insert(whole);
    }
  }

  int with_rows(int operand, const Dims& split, const std::string& reader) {
    Dims shape = split;
    shape[shape.rank() - 1] = dims(operand)[1];
    return add_view(operand, shape, reader);
  }

  int beside(int operand, const Dims& whole, const Dims& split, const std::string& reader) {
    if (tensor(operand).is_scalar()) return operand;
    return add_view(operand, *reshaped(dims(operand), whole, split), reader);
  }

  int add_view(int operand, const Dims& shape, const std::string& reader) {
    if (dims(operand) == shape) return operand;
    ops_.push_back(additions_.view(Reshape{}, operand, shape, reader + ".in"));
    return ops_.back().outputs[0];
  }

  Graph& graph_;
  Additions& additions_;
  GraphIndex index_;  // of the ops as they were given
  std::vector<Op> given_, ops_;
  std::set<int> passed_;  // values that others make in the split shape
};

}  // namespace

bool split_rows(Graph& graph, Additions& additions) {
  return std::ranges::any_of(graph.ops, is_matmul) && std::ranges::any_of(graph.ops, is_reshape) &&
         SplitRows(graph, additions).run();
}

}  // namespace fusor
