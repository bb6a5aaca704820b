// Owns the search for rows that are read in parts, and their writing.
#include "backend/planner/rewrites/reductions/parted_rows.h"

#include <algorithm>
#include <bit>
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

// Parts of a row at most, and ops from memory to its slices.
constexpr size_t kMostEqualParts = 4, kMostOpsOfRow = 48;

// A value whose rows are read in parts, and the ops that are written anew for it.
class PartedValue {
 public:
  // `taken`: ops that other values have taken, by place.
  PartedValue(Graph& graph, Additions& additions, const GraphIndex& index, const std::vector<bool>& taken,
              int value)
      : graph_(graph), additions_(additions), index_(index), taken_(taken), value_(value) {}

  // Finds the parts and the ops from memory to them; false where the value stays as it is.
  bool find() {
    if (!find_parts() || !visit(index_.producer(value_), kMostOpsOfRow)) return false;
    bool has_totals = false;
    for (const int op : way_) {
      has_totals = has_totals || is_total(op);
      if (is_wide(result(op)) && result(op) != value_ && !is_read_on_way(result(op))) return false;
    }
    std::ranges::sort(way_);
    return has_totals;
  }

  // Writes the parts to the places of the ops that they replace, and marks these and the slices. `stands`:
  // what stands for the result of each slice.
  void write(std::vector<std::vector<Op>>& instead, std::vector<bool>& gone, std::map<int, int>& stands) {
    std::vector<int> left;
    for (const int op : way_) {
      if (!is_wide(result(op)) && !is_total(op)) continue;
      if (is_total(op)) {
        write_total(op);
      } else {
        write_parts(op);
        left.push_back(result(op));
      }
      instead[static_cast<size_t>(op)] = std::exchange(written_, {});
      gone[static_cast<size_t>(op)] = true;
    }
    for (const auto& [slice, part] : slices_) {
      stands[result(slice)] = part_of(value_, part);
      gone[static_cast<size_t>(slice)] = true;
      left.push_back(result(slice));
    }
    for (const int tensor : left) leave_empty(graph_.tensors[static_cast<size_t>(tensor)]);
  }

 private:
  const Tensor& tensor(int at) const { return graph_.tensors[static_cast<size_t>(at)]; }
  const Dims& dims(int at) const { return tensor(at).dims; }
  const Op& op_of(int at) const { return graph_.ops[static_cast<size_t>(at)]; }
  int result(int op) const { return op_of(op).outputs[0]; }

  // The parted axis among those of another tensor; -1 where the tensor is the same for all along it.
  int axis_of(int at) const {
    const int axis = axis_ - (rank_ - dims(at).rank());
    return tensor(at).is_scalar() || axis < 0 || dims(at)[axis] != extent_ ? -1 : axis;
  }
  bool is_wide(int at) const { return axis_of(at) >= 0; }
  bool is_total(int op) const { return is_reduction(op_of(op)) && is_wide(op_of(op).inputs[0]); }

  // ---- What is read in parts ----

  bool find_parts() {
    const auto readers = index_.consumers(value_);
    if (!tensor(value_).is_virtual() || is_packed(tensor(value_).type) || readers.size() < 2) return false;
    std::set<Range> ranges;
    for (const int reader : readers) {
      const auto part = part_taken(op_of(reader), dims(value_));
      if (!part || !tensor(result(reader)).is_virtual() || (axis_ >= 0 && part->axis != axis_)) return false;
      axis_ = part->axis;
      ranges.insert(part->range);
    }
    rank_ = dims(value_).rank();
    extent_ = dims(value_)[axis_];
    ranges_.assign(ranges.begin(), ranges.end());
    for (const int reader : readers)
      slices_.emplace_back(
          reader,
          std::ranges::find(ranges_, part_taken(op_of(reader), dims(value_))->range) - ranges_.begin());
    return are_all_of_row();
  }

  // Equal parts, one after the other, as many as halves or quarters are exact.
  bool are_all_of_row() const {
    const auto count = static_cast<int64_t>(ranges_.size());
    if (count < 2 || ranges_.size() > kMostEqualParts || !std::has_single_bit(ranges_.size()) ||
        extent_ % count != 0)
      return false;
    for (int64_t i = 0; i < count; ++i)
      if (ranges_[static_cast<size_t>(i)] != Range{extent_ / count * i, extent_ / count * (i + 1)})
        return false;
    return true;
  }

  // ---- The way from memory ----

  // Takes the op and those in front of it, as far as they make values of rows; false where one does not.
  bool visit(int op, size_t depth) {
    if (op < 0 || depth == 0 || !is_computable(op) || taken_[static_cast<size_t>(op)]) return false;
    for (const int input : op_of(op).inputs) {
      const int producer = index_.producer(input);
      // Ops that another value took in this pass have no results left: the next pass reads their parts.
      if (producer >= 0 && taken_[static_cast<size_t>(producer)]) return false;
      if (lies_in_memory(input) || std::ranges::find(way_, producer) != way_.end()) continue;
      if (!visit(producer, depth - 1)) return false;
    }
    way_.push_back(op);
    return way_.size() <= kMostOpsOfRow;
  }

  bool is_computable(int op) const {
    const Op& described = op_of(op);
    if (is_packed(tensor(result(op)).type) || dims(result(op)).rank() != rank_) return false;
    if (const auto* const pointwise = std::get_if<Pointwise>(&described.attributes))
      return pointwise->mode != PointwiseMode::gen_index && !is_epilogue(op) &&
             (is_wide(result(op)) ||
              std::ranges::none_of(described.inputs, [&](int x) { return is_wide(x); }));
    const auto* const reduction = std::get_if<Reduction>(&described.attributes);
    return reduction != nullptr && (!is_wide(described.inputs[0]) ||
                                    (dims(result(op))[axis_] == 1 && joined_by(reduction->mode).has_value()));
  }

  // Whether the tensor is stored however its readers are written: the user's, a contraction's, a view of
  // such.
  bool lies_in_memory(int at) const {
    const int producer = index_.producer(at);
    return tensor(at).is_scalar() || producer < 0 || (!tensor(at).is_virtual() && is_wide(at)) ||
           !(is_pointwise(op_of(producer)) || is_reduction(op_of(producer))) || is_epilogue(producer);
  }

  // Whether a contraction computes the op behind its product.
  bool is_epilogue(int op, size_t depth = kMostOpsOfRow) const {
    return depth > 0 && is_pointwise(op_of(op)) && std::ranges::any_of(op_of(op).inputs, [&](int input) {
             const int producer = index_.producer(input);
             if (producer < 0 || !tensor(input).is_virtual() || index_.consumers(input).size() != 1)
               return false;
             const Op& made = op_of(producer);
             if (is_view(made.attributes)) return leads_from_contraction(made.inputs[0]);
             return is_contraction(made.attributes) || is_epilogue(producer, depth - 1);
           });
  }
  // Whether a contraction makes the value, seen through views that nobody else reads.
  bool leads_from_contraction(int at) const {
    for (;;) {
      const int producer = index_.producer(at);
      if (producer < 0 || !tensor(at).is_virtual() || index_.consumers(at).size() != 1) return false;
      const Op& made = op_of(producer);
      if (!is_view(made.attributes)) return is_contraction(made.attributes);
      at = made.inputs[0];
    }
  }

  bool is_read_on_way(int at) const {
    return tensor(at).is_virtual() && std::ranges::all_of(index_.consumers(at), [&](int reader) {
             return std::ranges::find(way_, reader) != way_.end();
           });
  }

  // ---- Parts ----

  int part_of(int at, size_t part) {
    if (!is_wide(at)) return at;
    auto& [known, parts] = *parts_.try_emplace(at, ranges_.size(), -1).first;
    if (parts[part] < 0) parts[part] = sliced(at, part);
    return parts[part];
  }

  int sliced(int at, size_t part) {
    const auto& [start, limit] = ranges_[part];
    const std::string& reader = op_of(index_.producer(value_)).name;
    written_.push_back(additions_.slice(at, axis_of(at), start, limit, reader + ".in"));
    return written_.back().outputs[0];
  }

  Dims shape_of_part(int at) const {
    Dims shape = dims(at);
    shape[axis_of(at)] = ranges_[0].second;
    return shape;
  }

  void write_parts(int op) {
    const int y = result(op);
    std::vector<int> made;
    for (size_t part = 0; part < ranges_.size(); ++part)
      made.push_back(append(op, part, Tensor(tensor(y)), shape_of_part(y)));
    parts_.insert_or_assign(y, std::move(made));
  }

  int append(int op, size_t part, const Tensor& model, const Dims& shape) {
    Op written = op_of(op);
    for (int& input : written.inputs) input = part_of(input, part);
    written.name = additions_.op_name(written.name + ".part");
    written.outputs = {additions_.tensor(model, shape, written.name)};
    written_.push_back(written);
    return written.outputs[0];
  }

  // Totals of the parts, joined in the type of the sum, and rounded once.
  void write_total(int op) {
    const Op described = op_of(op);
    const Reduction reduction = std::get<Reduction>(described.attributes);
    const int y = described.outputs[0];
    const Dims shape = dims(y);
    Tensor model = tensor(y);
    model.type = reduction.compute;
    int total = -1;
    for (size_t part = 0; part < ranges_.size(); ++part) {
      const int own = append(op, part, model, shape);
      const bool is_last = part + 1 == ranges_.size() && reduction.mode != ReductionMode::avg;
      total = total < 0 ? own : join(*joined_by(reduction.mode), {total, own}, is_last ? y : -1, described);
    }
    if (reduction.mode != ReductionMode::avg) return;
    const int share = additions_.constant(1.0 / static_cast<double>(ranges_.size()), reduction.compute);
    join(PointwiseMode::mul, {total, share}, y, described);
  }

  // Into `to`; -1: a tensor like the first input.
  int join(PointwiseMode mode, const std::vector<int>& inputs, int to, const Op& total) {
    const Tensor model = tensor(inputs[0]);
    Op joined;
    joined.name = additions_.op_name(total.name + ".joined");
    joined.attributes = Pointwise{.mode = mode, .compute = model.type};
    joined.inputs = {inputs.begin(), inputs.end()};
    joined.outputs = {to >= 0 ? to : additions_.tensor(model, model.dims, joined.name)};
    written_.push_back(joined);
    return joined.outputs[0];
  }

  Graph& graph_;
  Additions& additions_;
  const GraphIndex& index_;
  const std::vector<bool>& taken_;
  const int value_;
  int axis_ = -1, rank_ = 0;
  int64_t extent_ = 0;
  std::vector<Range> ranges_;
  std::vector<std::pair<int, size_t>> slices_;  // ops, and which part each takes
  std::vector<int> way_;                        // ops from memory to the value
  std::map<int, std::vector<int>> parts_;       // by tensor
  std::vector<Op> written_;
};

}  // namespace

bool part_rows(Graph& graph, Additions& additions) {
  if (std::ranges::none_of(graph.ops, is_reduction)) return false;
  const GraphIndex index(graph);
  std::vector<std::vector<Op>> instead(graph.ops.size());
  std::vector<bool> gone(graph.ops.size(), false);
  std::map<int, int> stands;
  for (size_t at = 0; at < graph.ops.size(); ++at) {
    if (!is_pointwise(graph.ops[at])) continue;
    PartedValue value(graph, additions, index, gone, graph.ops[at].outputs[0]);
    if (!value.find()) continue;
    value.write(instead, gone, stands);
  }
  if (stands.empty()) return false;
  std::vector<Op> ops;
  for (size_t at = 0; at < graph.ops.size(); ++at) {
    if (!gone[at]) ops.push_back(std::move(graph.ops[at]));
    std::ranges::move(instead[at], std::back_inserter(ops));
  }
  for (Op& op : ops)
    for (int& input : op.inputs)
      if (const auto found = stands.find(input); found != stands.end()) input = found->second;
  graph.ops = std::move(ops);
  drop_unread_views(graph);
  return true;
}

}  // namespace fusor
