// Owns the ops that are added to a graph so that all of it can be planned: copies where no placement says
// what a view or a concatenation means, reshapes where a grouped reduction has too many axes, and identities
// where packed elements enter contractions or leave ops that are not pointwise.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "backend/planner/fold_views.h"
#include "backend/planner/partition/softmax_maximum.h"
#include "backend/planner/rewrites/additions.h"
#include "backend/planner/rewrites/concatenations/appended_rows.h"
#include "backend/planner/rewrites/concatenations/joined_slices.h"
#include "backend/planner/rewrites/concatenations/late_concatenations.h"
#include "backend/planner/rewrites/concatenations/nested_concatenations.h"
#include "backend/planner/rewrites/gathers/early_gathers.h"
#include "backend/planner/rewrites/gathers/gathers_as_totals.h"
#include "backend/planner/rewrites/gathers/reshaped_gathers.h"
#include "backend/planner/rewrites/identities.h"
#include "backend/planner/rewrites/layouts/channels_last.h"
#include "backend/planner/rewrites/layouts/result_layout.h"
#include "backend/planner/rewrites/products/distributed_products.h"
#include "backend/planner/rewrites/products/patch_products.h"
#include "backend/planner/rewrites/products/row_order.h"
#include "backend/planner/rewrites/products/short_products.h"
#include "backend/planner/rewrites/products/sliced_products.h"
#include "backend/planner/rewrites/products/split_batches.h"
#include "backend/planner/rewrites/products/split_rows.h"
#include "backend/planner/rewrites/products/summed_batches.h"
#include "backend/planner/rewrites/products/summed_products.h"
#include "backend/planner/rewrites/reductions/early_totals.h"
#include "backend/planner/rewrites/reductions/parted_rows.h"
#include "backend/planner/rewrites/reductions/repeated_maxima.h"
#include "backend/planner/rewrites/reductions/separate_columns.h"
#include "backend/planner/rewrites/reductions/unmerged_axes.h"
#include "backend/planner/rewrites/repeated_values.h"
#include "backend/planner/rewrites/views/early_views.h"
#include "backend/planner/rewrites/views/late_views.h"
#include "backend/planner/rewrites/views/shared_views.h"
#include "backend/planner/rewrites/views/short_views.h"
#include "core/dims.h"
#include "core/infer.h"
#include "core/ops/expansion.h"

namespace fusor {

namespace {

// Writes the ops of a graph anew, with others between them. Tensors keep their indices.
class Expander {
 public:
  explicit Expander(Graph graph) : graph_(std::move(graph)), additions_(graph_) {}

  // Writes in another way what costs kernels as it stands.
  void rewrite() {
    simplify_reductions();
    shorten_maxima();
    drop_repeated_maxima(graph_);
    sum_batches_inside(graph_, additions_);
    distribute_products(graph_, additions_);
    reshape_gathers(graph_, additions_);
    move_gathers_in_front(graph_, additions_);
    write_gathers_as_totals(graph_, additions_);
    simplify_views();
    write_short_products(graph_, additions_);
    read_appended_rows(graph_, additions_);
    lay_out();
    // Patches are multiplied as they lie for the convolution.
    if (!multiply_patches(graph_, additions_)) return;
    simplify_views();
    lay_out();
  }

  void lay_out() {
    lay_out_results(graph_);
    lay_channels_last(graph_, additions_);
  }

  // Each step may make room for another: they take turns until nothing changes.
  void simplify_views() {
    constexpr int kMostRounds = 64;
    for (int round = 0; round < kMostRounds; ++round) {
      bool changes = drop_identities(graph_);
      changes = share_views(graph_) || changes;
      changes = shorten_views(graph_, additions_) || changes;
      changes = order_rows(graph_, additions_) || changes;
      changes = join_slices(graph_, additions_) || changes;
      changes = separate_columns(graph_, additions_) || changes;
      changes = join_products(graph_, additions_) || changes;
      changes = split_batches(graph_, additions_) || changes;
      changes = unmerge_axes(graph_, additions_) || changes;
      changes = move_totals_in_front(graph_, additions_) || changes;
      changes = move_views_behind(graph_, additions_) || changes;
      changes = split_rows(graph_, additions_) || changes;
      changes = move_views_in_front(graph_, additions_) || changes;
      changes = slice_products(graph_, additions_) || changes;
      changes = move_concatenations_behind(graph_, additions_) || changes;
      changes = part_rows(graph_, additions_) || changes;
      if (!changes) return;
    }
  }

  // Adds the ops without which some op cannot be carried out.
  Graph complete() {
    separate_packed();
    split_reductions();
    copy_concatenated();
    copy_reshaped();
    return std::move(graph_);
  }

 private:
  // An identity op in front of operand `operand` of `op`, giving a row-major virtual copy.
  Op copy_before(Op& op, int operand) {
    const int x = op.inputs[operand];
    Op identity;
    identity.name = additions_.op_name(fmt::format("{}.x{}", op.name, operand));
    const Tensor model = graph_.tensors[x];
    identity.attributes = Pointwise{.mode = PointwiseMode::identity, .compute = carrier(model.type)};
    identity.inputs = {x};
    identity.outputs = {additions_.tensor(model, model.dims, identity.name)};
    op.inputs[operand] = identity.outputs[0];
    return identity;
  }

  // ---- Packed elements ----

  // A reduction of no axis is an identity, which fusions take in. cudnn-frontend writes one in front of a
  // softmax with a sink.
  void simplify_reductions() {
    for (Op& op : graph_.ops) {
      const auto* reduction = std::get_if<Reduction>(&op.attributes);
      if (reduction == nullptr || !keeps_values(reduction->mode) ||
          graph_.tensors[op.inputs[0]].dims != graph_.tensors[op.outputs[0]].dims)
        continue;
      op.attributes = Pointwise{.mode = PointwiseMode::identity, .compute = reduction->compute};
    }
  }

  // True of modes that give the only element of a row back as it is.
  static bool keeps_values(ReductionMode mode) {
    return mode == ReductionMode::add || mode == ReductionMode::mul || mode == ReductionMode::min ||
           mode == ReductionMode::max || mode == ReductionMode::avg;
  }

  // The largest of all probabilities of a softmax needs one number a row: attention keeps these, and no
  // matrix of probabilities. cudnn-frontend asks for it with fp8.
  void shorten_maxima() {
    const auto is_exp = [](const Op& op) {
      const auto* pointwise = std::get_if<Pointwise>(&op.attributes);
      return pointwise != nullptr && pointwise->mode == PointwiseMode::exp;
    };
    if (std::ranges::none_of(graph_.ops, is_exp)) return;
    const GraphIndex index(graph_);
    std::map<size_t, SoftmaxMaximum> found;  // by op
    for (size_t i = 0; i < graph_.ops.size(); ++i)
      if (const auto maximum = softmax_maximum(graph_, index, graph_.ops[i])) found.emplace(i, *maximum);
    if (found.empty()) return;
    std::vector<Op> ops;
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      Op op = graph_.ops[i];
      if (const auto maximum = found.find(i); maximum != found.end())
        op.inputs[0] = add_maximum_of_rows(maximum->second, op.name, ops);
      ops.push_back(std::move(op));
    }
    graph_.ops = std::move(ops);
  }

  // The largest probability of each row, by the softmax's own steps.
  int add_maximum_of_rows(const SoftmaxMaximum& maximum, const std::string& name, std::vector<Op>& ops) {
    int value = maximum.largest;
    const Dims rows = dims(value);
    for (const int step : maximum.steps) {
      Op of_rows = graph_.ops[static_cast<size_t>(step)];
      of_rows.name = additions_.op_name(fmt::format("{}.{}", name, of_rows.name));
      of_rows.inputs[0] = value;
      value = additions_.tensor(Tensor(graph_.tensors[of_rows.outputs[0]]), rows, of_rows.name);
      of_rows.outputs = {value};
      ops.push_back(std::move(of_rows));
    }
    return value;
  }

  // Contractions, and ops between two, read elements that have addresses, and who writes packed ones writes
  // whole bytes: both are made by identities, which fusions take in or are cut at.
  void separate_packed() {
    const auto is_packed_tensor = [](const Tensor& tensor) { return is_packed(tensor.type); };
    if (std::ranges::none_of(graph_.tensors, is_packed_tensor)) return;
    std::vector<int> reads(graph_.tensors.size(), 0);
    for (const Op& op : graph_.ops)
      for (const int input : op.inputs) ++reads[static_cast<size_t>(input)];
    const std::vector<bool> between = ops_between_contractions(), in_memory = packed_in_memory();
    std::map<int, int> unpacked_operands, unpacked_beside;
    std::vector<Op> ops;
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      Op& op = graph_.ops[i];
      if (is_contraction(op.attributes))
        unpack_operands(op, in_memory, unpacked_operands, ops);
      else if (between[i] && std::holds_alternative<Pointwise>(op.attributes))
        unpack_operands(op, in_memory, unpacked_beside, ops);
      ops.push_back(std::move(op));
      pack_result(ops, reads);
    }
    graph_.ops = std::move(ops);
  }

  // Per op: whether it waits for a contraction, and a contraction for it. Chains compute such ops between
  // their products, and load what these read element by element.
  std::vector<bool> ops_between_contractions() const {
    std::vector<bool> behind(graph_.tensors.size(), false), before(graph_.tensors.size(), false);
    const auto any = [](const std::vector<bool>& marked, const auto& tensors) {
      return std::ranges::any_of(tensors, [&](int tensor) { return marked[static_cast<size_t>(tensor)]; });
    };
    const auto mark = [](std::vector<bool>& marked, const auto& tensors) {
      for (const int tensor : tensors) marked[static_cast<size_t>(tensor)] = true;
    };
    for (const Op& op : graph_.ops)
      if (is_contraction(op.attributes) || any(behind, op.inputs)) mark(behind, op.outputs);
    for (auto op = graph_.ops.rbegin(); op != graph_.ops.rend(); ++op)
      if (is_contraction(op->attributes) || any(before, op->outputs)) mark(before, op->inputs);
    std::vector<bool> between;
    for (const Op& op : graph_.ops) between.push_back(any(behind, op.inputs) && any(before, op.outputs));
    return between;
  }

  // Per tensor: whether it has packed elements that lie in the user's memory, as they are or seen through
  // views.
  std::vector<bool> packed_in_memory() const {
    std::vector<bool> found;
    for (const Tensor& tensor : graph_.tensors)
      found.push_back(is_packed(tensor.type) && !tensor.is_virtual() && !tensor.is_scalar());
    for (const Op& op : graph_.ops)
      if (is_view(op.attributes) && found[static_cast<size_t>(op.inputs[0])])
        found[static_cast<size_t>(op.outputs[0])] = true;
    return found;
  }

  void unpack_operands(Op& op, const std::vector<bool>& in_memory, std::map<int, int>& made,
                       std::vector<Op>& ops) {
    for (int& input : op.inputs) {
      if (!in_memory[static_cast<size_t>(input)]) continue;
      const Tensor model = graph_.tensors[input];
      auto known = made.find(input);
      if (known == made.end()) {
        ops.push_back(identity(op.name + ".unpack", input, unpacked(model.type)));
        known = made.emplace(input, ops.back().outputs[0]).first;
      }
      input = known->second;
    }
  }

  // Packs the result of the last op: a contraction's or a reduction's values are rounded behind it; a
  // reshape's or a transpose's in front of it, from where they are written in place; other ops' go through a
  // virtual tensor, whose elements may be stored one by one.
  void pack_result(std::vector<Op>& ops, const std::vector<int>& reads) {
    Op& op = ops.back();
    const int y = op.outputs[0];
    const Tensor model = graph_.tensors[y];
    if (!is_packed(model.type)) return;
    const bool is_sum = is_contraction(op.attributes) || std::holds_alternative<Reduction>(op.attributes);
    if ((model.is_virtual() && !is_sum) || std::holds_alternative<Scatter>(op.attributes)) return;
    if (std::holds_alternative<Pointwise>(op.attributes) && reads[static_cast<size_t>(y)] == 0) return;
    const bool is_placed =
        std::holds_alternative<Reshape>(op.attributes) || std::holds_alternative<Transpose>(op.attributes);
    if (is_placed && !graph_.tensors[op.inputs[0]].is_scalar()) return pack_operand(ops, reads);
    Op last = identity(op.name + ".pack", y, is_sum ? *compute_type(op.attributes) : model.type);
    std::swap(last.inputs, last.outputs);
    std::get<Pointwise>(last.attributes).compute = carrier(graph_.tensors[last.inputs[0]].type);
    op.outputs = last.inputs;
    ops.push_back(std::move(last));
  }

  void pack_operand(std::vector<Op>& ops, const std::vector<int>& reads) {
    const int x = ops.back().inputs[0];
    const auto writes_x = [&](const Op& op) { return op.outputs[0] == x; };
    const auto producer = std::ranges::find_if(ops, writes_x);
    if (producer != ops.end() && graph_.tensors[x].is_virtual() && reads[static_cast<size_t>(x)] == 1) {
      const auto* const pointwise = std::get_if<Pointwise>(&producer->attributes);
      if (pointwise != nullptr && pointwise->mode == PointwiseMode::identity) return;
    }
    ops.insert(ops.end() - 1, identity(ops.back().name + ".pack", x, graph_.tensors[x].type));
    ops.back().inputs[0] = (ops.end() - 2)->outputs[0];
  }

  // An identity op from `tensor` to a new virtual tensor of another type.
  Op identity(const std::string& name, int tensor, DataType type) {
    Op op;
    op.name = additions_.op_name(name);
    Tensor model = graph_.tensors[tensor];
    op.attributes = Pointwise{.mode = PointwiseMode::identity, .compute = carrier(model.type)};
    model.type = type;
    model.alignment = std::max(model.alignment, byte_size(type));
    op.inputs = {tensor};
    op.outputs = {additions_.tensor(model, model.dims, op.name)};
    return op;
  }

  // ---- Concatenations ----

  // A concatenated tensor is written in place by its producer: it must be virtual, no view, and nowhere else
  // so placed. A concatenation that is part of another one has the places of that.
  void copy_concatenated() {
    const std::map<int, Nest> nests = nested_concatenations(graph_);
    std::map<std::pair<int, int>, int> parts;  // by concatenation and place among its operands
    std::vector<bool> placed(graph_.tensors.size(), false);
    std::vector<Op> ops;
    for (int i = 0; i < static_cast<int>(graph_.ops.size()); ++i) {
      Op& op = graph_.ops[i];
      if (std::holds_alternative<Concatenate>(op.attributes)) {
        const auto nested = nests.find(i);
        const Nest nest = nested == nests.end() ? Nest{i, 0} : nested->second;
        for (int k = 0; k < static_cast<int>(op.inputs.size()); ++k) {
          const auto part = parts.find({nest.outer, nest.first + k});
          if (part != parts.end()) {
            op.inputs[k] = part->second;
            continue;
          }
          const int x = op.inputs[k];
          if (!graph_.tensors[x].is_virtual() || placed[x]) ops.push_back(copy_before(op, k));
          placed.resize(graph_.tensors.size(), false);
          placed[op.inputs[k]] = true;
          parts.emplace(std::pair(nest.outer, nest.first + k), op.inputs[k]);
        }
      }
      ops.push_back(std::move(op));
    }
    graph_.ops = std::move(ops);
  }

  // ---- Reshapes ----

  // A reshape that is neither folded nor expressible as strides over its operand reads a row-major copy
  // instead.
  void copy_reshaped() {
    const auto is_reshape = [](const Op& op) { return std::holds_alternative<Reshape>(op.attributes); };
    if (std::ranges::none_of(graph_.ops, is_reshape)) return;
    FoldedGraph folded = unfolded(graph_);
    fold_backward(graph_, folded);
    std::vector<Op> ops;
    for (int i = 0; i < static_cast<int>(graph_.ops.size()); ++i) {
      fold_into_operand(graph_, i, folded);
      Op& op = graph_.ops[i];
      Placement ignored;
      if (is_reshape(op) && !folded.folded[i] && !graph_.tensors[op.inputs[0]].is_scalar() &&
          !view_placement(graph_, op, folded.placements[op.inputs[0]], ignored)) {
        ops.push_back(copy_before(op, 0));
        const int copy = op.inputs[0];
        folded.placements.push_back({copy, 0, graph_.tensors[copy].strides});
        if (!fold_into_result(graph_, i, folded)) fold_into_operand(graph_, i, folded);
      }
      ops.push_back(std::move(op));
    }
    graph_.ops = std::move(ops);
  }

  // ---- Grouped reductions ----

  // Grouped reductions split axes in two. Where there are not enough axes for that, neighbours that are all
  // kept, or all reduced, are reshaped into one first; several split axes are reduced one after another.
  void split_reductions() {
    std::vector<Op> ops;
    for (Op& op : graph_.ops) add_reduction(std::move(op), ops);
    graph_.ops = std::move(ops);
  }

  const Dims& dims(int tensor) const { return graph_.tensors[tensor].dims; }

  static bool is_split(const Dims& from, const Dims& to, int axis) {
    return to[axis] != 1 && to[axis] != from[axis];
  }

  static int split_axes(const Dims& from, const Dims& to) {
    int count = 0;
    for (int i = 0; i < from.rank(); ++i) count += is_split(from, to, i) ? 1 : 0;
    return count;
  }

  bool has_too_many_axes(const Op& op) const {
    if (!std::holds_alternative<Reduction>(op.attributes)) return false;
    const Dims &from = dims(op.inputs[0]), &to = dims(op.outputs[0]);
    return from.rank() + split_axes(from, to) > kMaxRank;
  }

  // The same reduction over fewer axes.
  struct Merged {
    Dims from, to;
  };
  static Merged merged(const Dims& from, const Dims& to) {
    Merged axes;
    enum class Role { none, kept, reduced, split };
    Role last = Role::none;
    for (int i = 0; i < from.rank(); ++i) {
      if (from[i] == 1) continue;
      const Role role = is_split(from, to, i) ? Role::split : to[i] == 1 ? Role::reduced : Role::kept;
      if (role == last && role != Role::split) {
        axes.from[axes.from.rank() - 1] *= from[i];
        axes.to[axes.to.rank() - 1] *= to[i];
      } else {
        axes.from.push_back(from[i]);
        axes.to.push_back(to[i]);
      }
      last = role;
    }
    return axes;
  }

  void add_reduction(Op op, std::vector<Op>& ops) {
    if (!has_too_many_axes(op)) {
      ops.push_back(std::move(op));
      return;
    }
    const int x = op.inputs[0], y = op.outputs[0];
    const Dims from = dims(x), to = dims(y);
    Merged axes = merged(from, to);
    if (axes.from.rank() + split_axes(axes.from, axes.to) > kMaxRank) {
      // All split axes but the last one first.
      Dims between = to;
      int last = from.rank() - 1;
      while (!is_split(from, to, last)) --last;
      between[last] = from[last];
      Op first = op;
      first.name = additions_.op_name(op.name + ".groups");
      const Tensor model = computed(op);
      first.outputs = {additions_.tensor(model, between, first.name)};
      op.inputs[0] = first.outputs[0];
      add_reduction(std::move(first), ops);
      add_reduction(std::move(op), ops);
      return;
    }
    Op before{additions_.op_name(op.name + ".in"), Reshape{}, {x}, {}};
    before.outputs = {additions_.tensor(Tensor(graph_.tensors[x]), axes.from, before.name)};
    Op after{additions_.op_name(op.name + ".out"), Reshape{}, {}, {y}};
    after.inputs = {additions_.tensor(Tensor(graph_.tensors[y]), axes.to, after.name + ".x")};
    op.inputs = before.outputs;
    op.outputs = after.inputs;
    ops.push_back(std::move(before));
    ops.push_back(std::move(op));
    ops.push_back(std::move(after));
  }

  // What partial results are held in.
  Tensor computed(const Op& op) const {
    Tensor model = graph_.tensors[op.outputs[0]];
    model.type = std::get<Reduction>(op.attributes).compute;
    return model;
  }

  Graph graph_;
  Additions additions_;
};

}  // namespace

Graph expand(const Graph& graph, const StaysWhole& stays_whole) {
  Graph simpler = expand_composites(graph, stays_whole);
  for (Op& op : simpler.ops)  // the channels say it, and what plans is to look the same either way
    if (auto* conv = std::get_if<Conv>(&op.attributes)) conv->groups = 0;
  Expander expander(std::move(simpler));
  expander.rewrite();
  Graph complete = expander.complete();
  repeat_values(complete);
  return complete;
}

Graph expand_as_written(const Graph& graph) { return Expander(expand_composites(graph)).complete(); }

}  // namespace fusor
