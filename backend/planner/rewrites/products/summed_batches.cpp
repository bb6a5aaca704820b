// Owns the search for products that are summed over their batch.
#include "backend/planner/rewrites/products/summed_batches.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/planner/kinds.h"
#include "backend/planner/rewrites/views/seen_in_memory.h"
#include "backend/planner/rewrites/views/unread_views.h"
#include "core/dims.h"
#include "core/graph_index.h"

namespace fusor {

namespace {

class SummedBatches {
 public:
  SummedBatches(Graph& graph, Additions& additions)
      : graph_(graph), additions_(additions), index_(graph), given_(std::move(graph.ops)) {}

  // Whether any sum went inside.
  bool run() {
    for (const Op& op : given_) {
      if (const auto summed = axes_summed(op))
        append_product(op, *summed);
      else
        ops_.push_back(op);
    }
    graph_.ops = std::move(ops_);
    if (replaced_.empty()) return false;
    drop_unread_views(graph_, replaced_);
    return true;
  }

 private:
  const Tensor& tensor(int at) const { return graph_.tensors[static_cast<size_t>(at)]; }
  const Dims& dims(int at) const { return tensor(at).dims; }
  const Op& product_of(const Op& sum) const {
    return given_[static_cast<size_t>(index_.producer(sum.inputs[0]))];
  }

  // ---- What may go inside ----

  // The batch axes that the op sums a product over; nothing where it is no such sum.
  std::optional<Dims> axes_summed(const Op& sum) const {
    const auto* const reduction = std::get_if<Reduction>(&sum.attributes);
    if (reduction == nullptr || reduction->mode != ReductionMode::add || reduction->compute != DataType::f32)
      return std::nullopt;
    const int product = sum.inputs[0], producer = index_.producer(product);
    if (producer < 0 || !is_plain(given_[static_cast<size_t>(producer)])) return std::nullopt;
    const Dims &from = dims(product), &to = dims(sum.outputs[0]);
    Dims axes;
    for (int axis = 0; axis < from.rank(); ++axis) {
      if (from[axis] == to[axis]) continue;
      if (to[axis] != 1 || axis + 2 >= from.rank()) return std::nullopt;
      axes.push_back(axis);
    }
    const auto is_walked = [&](int i) { return summed_view(product_of(sum).inputs[i], i, axes).has_value(); };
    return !axes.empty() && is_walked(0) && is_walked(1) ? std::optional(axes) : std::nullopt;
  }

  bool is_plain(const Op& product) const {
    const auto* const matmul = std::get_if<Matmul>(&product.attributes);
    if (matmul == nullptr || matmul->compute != DataType::f32 || product.inputs.size() != 2) return false;
    const Tensor& result = tensor(product.outputs[0]);
    return result.is_virtual() && result.type == DataType::f32 &&
           index_.consumers(product.outputs[0]).size() == 1 &&
           std::ranges::all_of(product.inputs, [&](int input) {
             return dims(input).rank() == result.dims.rank() && !is_packed(tensor(input).type);
           });
  }

  // How operand `place` of a matmul looks with the axes in front of its steps.
  struct View {
    Dims permutation, shape;
  };

  // Nothing where an axis is not the operand's, or where no strides show it so.
  std::optional<View> summed_view(int value, int place, const Dims& axes) const {
    const Dims& given = dims(value);
    const int rank = given.rank(), steps = place == 0 ? rank - 1 : rank - 2, others = 2 * rank - 3 - steps;
    View view;
    int64_t count = given[steps];
    for (int axis = 0; axis + 2 < rank; ++axis)
      if (std::ranges::find(axes, axis) == axes.end()) {
        view.permutation.push_back(axis);
        view.shape.push_back(given[axis]);
      } else if (given[axis] == 1) {
        return std::nullopt;
      } else {
        count *= given[axis];
      }
    const auto push_steps = [&] {
      for (const int64_t axis : axes) view.permutation.push_back(axis);
      view.permutation.push_back(steps);
      view.shape.push_back(count);
    };
    const auto push_others = [&] {
      view.permutation.push_back(others);
      view.shape.push_back(given[others]);
    };
    if (place == 0) push_others();
    push_steps();
    if (place == 1) push_others();
    return is_shown(value, view) ? std::optional(view) : std::nullopt;
  }

  bool is_shown(int value, const View& view) const {
    const auto seen = seen_in_memory(graph_, given_, index_, value);
    if (!seen) return false;
    Dims between;
    Strides strides, ignored;
    for (const int64_t axis : view.permutation) {
      between.push_back(dims(value)[static_cast<int>(axis)]);
      strides.push_back(seen->strides[static_cast<int>(axis)]);
    }
    return reshape_strides(between, strides, view.shape, ignored);
  }

  // ---- Rewriting ----

  void append_product(const Op& sum, const Dims& axes) {
    Op product = product_of(sum);
    const int whole = product.outputs[0];
    for (int i = 0; i < 2; ++i) {
      const View view = *summed_view(product.inputs[i], i, axes);
      product.inputs[i] = seen_as(product.inputs[i], view, product.name);
    }
    const int rank = dims(product.inputs[0]).rank();
    Dims shape = dims(product.inputs[0]);
    shape[rank - 1] = dims(product.inputs[1])[rank - 1];
    product.outputs = {additions_.tensor(Tensor(tensor(whole)), shape, sum.name)};
    replaced_.insert(whole);
    const int made = product.outputs[0];
    ops_.push_back(std::move(product));
    if (tensor(sum.outputs[0]).type == DataType::f32)
      ops_.push_back({sum.name, Reshape{}, {made}, sum.outputs});
    else
      append_rounded(sum, made);
  }

  int seen_as(int value, const View& view, const std::string& reader) {
    Dims between;
    for (const int64_t axis : view.permutation) between.push_back(dims(value)[static_cast<int>(axis)]);
    ops_.push_back(additions_.view(Transpose{view.permutation}, value, between, reader + ".in"));
    ops_.push_back(additions_.view(Reshape{}, ops_.back().outputs[0], view.shape, reader + ".in"));
    return ops_.back().outputs[0];
  }

  // The sum as another type in its shape.
  void append_rounded(const Op& sum, int product) {
    ops_.push_back(additions_.view(Reshape{}, product, dims(sum.outputs[0]), sum.name + ".in"));
    const Pointwise identity{.mode = PointwiseMode::identity, .compute = DataType::f32};
    ops_.push_back({sum.name, identity, {ops_.back().outputs[0]}, sum.outputs});
  }

  Graph& graph_;
  Additions& additions_;
  GraphIndex index_;  // of the ops as they were given
  std::vector<Op> given_, ops_;
  std::set<int> replaced_;  // products of single entries
};

}  // namespace

bool sum_batches_inside(Graph& graph, Additions& additions) {
  return std::ranges::any_of(graph.ops, is_matmul) && std::ranges::any_of(graph.ops, is_reduction) &&
         SummedBatches(graph, additions).run();
}

}  // namespace fusor
