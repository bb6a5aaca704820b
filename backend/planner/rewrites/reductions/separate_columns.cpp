// Owns the search for concatenations of rows and columns that may be computed apart, and their writing.
#include "backend/planner/rewrites/reductions/separate_columns.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/planner/kinds.h"
#include "backend/planner/rewrites/concatenations/parts.h"
#include "backend/planner/rewrites/views/unread_views.h"
#include "core/attributes.h"
#include "core/graph_index.h"
#include "core/ops/expansion.h"

namespace fusor {

namespace {

// Parts of a row at most, and ops from the concatenation to what ends it.
constexpr size_t kMostColumns = 4, kMostOpsOnParts = 64;

// What the writing of all concatenations leaves to do.
struct Written {
  std::map<int, int> stands;  // for the results of slices
  std::set<int> made;         // results of ops on parts, which may have no reader
  std::vector<int> left;      // tensors that nothing writes any more
};

// A concatenation, and the ops that are written anew for its parts.
class SeparateColumns {
 public:
  // `taken`: ops that other concatenations have taken, by place.
  SeparateColumns(Graph& graph, Additions& additions, const GraphIndex& index, const std::vector<bool>& taken,
                  int op)
      : graph_(graph), additions_(additions), index_(index), taken_(taken), concatenation_(op) {}

  // Finds the parts and the ops up to totals and slices; false where another op reads what is made of them.
  bool find() {
    if (taken_[static_cast<size_t>(concatenation_)] || !find_parts()) return false;
    std::vector<int> waiting{whole_};
    while (!waiting.empty()) {
      const int value = waiting.back();
      waiting.pop_back();
      if (!tensor(value).is_virtual() || is_packed(tensor(value).type)) return false;
      for (const int reader : index_.consumers(value)) {
        if (ops_.contains(reader)) continue;
        if (taken_[static_cast<size_t>(reader)] || ops_.size() == kMostOpsOnParts || !may_be_apart(reader))
          return false;
        ops_.insert(reader);
        if (is_pointwise(op_of(reader))) {
          values_.insert(result(reader));
          waiting.push_back(result(reader));
        }
      }
    }
    return std::ranges::any_of(ops_, [&](int op) { return is_reduction(op_of(op)); }) &&
           std::ranges::all_of(ops_, [&](int op) { return reads_only_parts(op); });
  }

  // Writes the parts to the places of the ops that they replace, and marks these.
  void write(std::vector<std::vector<Op>>& instead, std::vector<bool>& gone, Written& all) {
    parts_[whole_] = {op_of(concatenation_).inputs.begin(), op_of(concatenation_).inputs.end()};
    ops_.insert(concatenation_);
    for (const int op : ops_) {
      if (is_pointwise(op_of(op))) write_parts(op, all.made);
      if (is_reduction(op_of(op))) write_total(op);
      if (std::holds_alternative<Slice>(op_of(op).attributes)) all.stands[result(op)] = part_read(op);
      instead[static_cast<size_t>(op)] = std::exchange(written_, {});
      gone[static_cast<size_t>(op)] = true;
      if (!is_reduction(op_of(op))) all.left.push_back(result(op));
    }
  }

 private:
  const Tensor& tensor(int at) const { return graph_.tensors[static_cast<size_t>(at)]; }
  const Dims& dims(int at) const { return tensor(at).dims; }
  const Op& op_of(int at) const { return graph_.ops[static_cast<size_t>(at)]; }
  int result(int op) const { return op_of(op).outputs[0]; }

  bool find_parts() {
    const Op& op = op_of(concatenation_);
    whole_ = op.outputs[0];
    values_.insert(whole_);
    axis_ = static_cast<int>(std::get<Concatenate>(op.attributes).axis);
    if (op.inputs.size() < 2 || op.inputs.size() > kMostColumns) return false;
    int rows = 0;
    int64_t start = 0;
    for (const int input : op.inputs) {
      const int64_t extent = dims(input)[axis_];
      if (extent != 1) {
        rows_ = ranges_.size();
        ++rows;
      }
      ranges_.emplace_back(start, start + extent);
      start += extent;
    }
    return rows == 1;
  }

  bool is_apart(int at) const { return values_.contains(at); }

  // The concatenated axis among those of another tensor; -1 where the tensor is the same for all along it.
  int axis_of(int at) const {
    const int axis = axis_ - (dims(whole_).rank() - dims(at).rank());
    return tensor(at).is_scalar() || axis < 0 || dims(at)[axis] == 1 ? -1 : axis;
  }

  // ---- What may be computed apart ----

  bool may_be_apart(int op) const {
    const Op& described = op_of(op);
    if (const auto* const pointwise = std::get_if<Pointwise>(&described.attributes))
      return pointwise->mode != PointwiseMode::gen_index && dims(result(op)).rank() == dims(whole_).rank() &&
             axis_of(result(op)) >= 0;
    if (const auto* const reduction = std::get_if<Reduction>(&described.attributes))
      return reduction->mode != ReductionMode::avg && joined_by(reduction->mode).has_value() && is_total(op);
    return range_read(op).has_value() && tensor(result(op)).is_virtual();
  }

  // Whether the reduction is over the concatenated axis alone.
  bool is_total(int op) const {
    Dims rows = dims(op_of(op).inputs[0]);
    if (rows.rank() != dims(whole_).rank()) return false;
    rows[axis_] = 1;
    return dims(result(op)) == rows;
  }

  // The part of which the slice reads elements, and which.
  std::optional<std::pair<size_t, Range>> range_read(int op) const {
    const auto part = part_taken(op_of(op), dims(op_of(op).inputs[0]));
    if (!part || part->axis != axis_) return std::nullopt;
    for (size_t i = 0; i < ranges_.size(); ++i)
      if (ranges_[i].first <= part->range.first && part->range.second <= ranges_[i].second)
        return std::pair{i,
                         Range{part->range.first - ranges_[i].first, part->range.second - ranges_[i].first}};
    return std::nullopt;
  }

  // Other operands are the same along the axis, or lie in memory, where slices of them are read.
  bool reads_only_parts(int op) const {
    return std::ranges::all_of(op_of(op).inputs, [&](int input) {
      return is_apart(input) || axis_of(input) < 0 ||
             (index_.producer(input) < 0 && !is_packed(tensor(input).type));
    });
  }

  // ---- Parts ----

  int part_of(int at, size_t part) {
    if (axis_of(at) < 0 && !is_apart(at)) return at;
    auto& parts = parts_.try_emplace(at, ranges_.size(), -1).first->second;
    if (parts[part] < 0) {
      const auto& [start, limit] = ranges_[part];
      written_.push_back(additions_.slice(at, axis_of(at), start, limit, op_of(concatenation_).name + ".in"));
      parts[part] = written_.back().outputs[0];
    }
    return parts[part];
  }

  void write_parts(int op, std::set<int>& made) {
    std::vector<int> parts;
    for (size_t part = 0; part < ranges_.size(); ++part) {
      Dims shape = dims(result(op));
      shape[axis_] = ranges_[part].second - ranges_[part].first;
      parts.push_back(append(op, part, Tensor(tensor(result(op))), shape));
      made.insert(parts.back());
    }
    parts_.insert_or_assign(result(op), std::move(parts));
  }

  int append(int op, size_t part, const Tensor& model, const Dims& shape) {
    Op written = op_of(op);
    for (int& input : written.inputs) input = part_of(input, part);
    written.name = additions_.op_name(written.name + ".part");
    written.outputs = {additions_.tensor(model, shape, written.name)};
    written_.push_back(written);
    return written.outputs[0];
  }

  // The total of the rows, joined by one column after the other in the type of the sum, and rounded once.
  void write_total(int op) {
    const Op described = op_of(op);
    const auto& reduction = std::get<Reduction>(described.attributes);
    Tensor model = tensor(result(op));
    model.type = reduction.compute;
    model.alignment = std::max(model.alignment, byte_size(model.type));
    int total = append(op, rows_, model, dims(result(op)));
    size_t left = ranges_.size() - 1;
    for (size_t part = 0; part < ranges_.size(); ++part) {
      if (part == rows_) continue;
      Op joined;
      joined.name = additions_.op_name(described.name + ".joined");
      joined.attributes = Pointwise{.mode = *joined_by(reduction.mode), .compute = reduction.compute};
      joined.inputs = {total, part_of(described.inputs[0], part)};
      total = --left == 0 ? result(op) : additions_.tensor(model, dims(result(op)), joined.name);
      joined.outputs = {total};
      written_.push_back(joined);
    }
  }

  // What stands for the result of the slice: a part, or a slice of it.
  int part_read(int op) {
    const auto [part, range] = *range_read(op);
    const int whole = part_of(op_of(op).inputs[0], part);
    if (range == Range{0, ranges_[part].second - ranges_[part].first}) return whole;
    written_.push_back(additions_.slice(whole, axis_, range.first, range.second, op_of(op).name));
    return written_.back().outputs[0];
  }

  Graph& graph_;
  Additions& additions_;
  const GraphIndex& index_;
  const std::vector<bool>& taken_;
  const int concatenation_;
  int whole_ = -1, axis_ = 0;
  size_t rows_ = 0;  // the part that is no column
  std::vector<Range> ranges_;
  std::set<int> values_;                   // what has parts: the concatenation, and what is made of it
  std::set<int> ops_;                      // that read it
  std::map<int, std::vector<int>> parts_;  // by tensor
  std::vector<Op> written_;
};

}  // namespace

bool separate_columns(Graph& graph, Additions& additions) {
  const auto concatenates = [](const Op& op) { return std::holds_alternative<Concatenate>(op.attributes); };
  if (std::ranges::none_of(graph.ops, concatenates)) return false;
  const GraphIndex index(graph);
  std::vector<std::vector<Op>> instead(graph.ops.size());
  std::vector<bool> gone(graph.ops.size(), false);
  Written written;
  bool changes = false;
  for (size_t at = 0; at < graph.ops.size(); ++at) {
    if (!concatenates(graph.ops[at])) continue;
    SeparateColumns columns(graph, additions, index, gone, static_cast<int>(at));
    if (!columns.find()) continue;
    columns.write(instead, gone, written);
    changes = true;
  }
  if (!changes) return false;
  std::vector<Op> ops;
  for (size_t at = 0; at < graph.ops.size(); ++at) {
    if (!gone[at]) ops.push_back(std::move(graph.ops[at]));
    std::ranges::move(instead[at], std::back_inserter(ops));
  }
  for (Op& op : ops)
    for (int& input : op.inputs)
      if (const auto found = written.stands.find(input); found != written.stands.end()) input = found->second;
  for (const int tensor : written.left) leave_empty(graph.tensors[static_cast<size_t>(tensor)]);
  graph.ops = std::move(ops);
  drop_unread_views(graph, written.made);
  return true;
}

}  // namespace fusor
