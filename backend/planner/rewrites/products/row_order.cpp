// Owns the search for matmuls whose rows are turned, and their rewriting.
#include "backend/planner/rewrites/products/row_order.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/planner/kinds.h"
#include "backend/planner/rewrites/views/axis_factors.h"
#include "backend/planner/rewrites/views/unread_views.h"
#include "core/graph_index.h"

namespace fusor {

namespace {

// A matmul's first operand: its tensor in memory's order, and the rows in it.
struct TurnedRows {
  SeenAxes seen;
  std::vector<std::vector<int>> rows;  // two axes, in the root's order
};

class RowOrder {
 public:
  RowOrder(Graph& graph, Additions& additions) : graph_(graph), additions_(additions), index_(graph) {}

  bool run() {
    std::map<size_t, TurnedRows> found;  // by op
    for (size_t i = 0; i < graph_.ops.size(); ++i)
      if (auto turned = turned_rows(graph_.ops[i])) found.emplace(i, *std::move(turned));
    if (found.empty()) return false;
    const std::vector<Op> given = std::move(graph_.ops);
    for (size_t i = 0; i < given.size(); ++i)
      if (const auto turned = found.find(i); turned != found.end())
        append(given[i], turned->second);
      else
        ops_.push_back(given[i]);
    graph_.ops = std::move(ops_);
    drop_unread_views(graph_);
    return true;
  }

 private:
  const Dims& dims(int tensor) const { return graph_.tensors[static_cast<size_t>(tensor)].dims; }

  std::optional<TurnedRows> turned_rows(const Op& op) const {
    if (!is_matmul(op) || op.inputs.size() != 2 || !is_one_matrix(op.inputs[1]) || is_kept(op.outputs[0]))
      return std::nullopt;
    auto seen = seen_axes(graph_, index_, op.inputs[0]);
    if (!seen) return std::nullopt;
    std::vector<int> rows;
    const std::vector<std::vector<int>>& axes = seen->axes.axes();
    for (size_t axis = 0; axis + 1 < axes.size(); ++axis)
      rows.insert(rows.end(), axes[axis].begin(), axes[axis].end());
    const auto place = [&](int factor) { return seen->axes.place(factor); };
    if (std::ranges::is_sorted(rows, {}, place)) return std::nullopt;
    std::ranges::sort(rows, {}, place);
    std::vector<std::vector<int>> together;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (i == 0 || !seen->axes.are_neighbours(rows[i - 1], rows[i])) together.emplace_back();
      together.back().push_back(rows[i]);
    }
    if (together.size() != 2 || !stay_together(together, axes)) return std::nullopt;
    return TurnedRows{*std::move(seen), std::move(together)};
  }

  // The product's axes are whole runs of these.
  static bool stay_together(const std::vector<std::vector<int>>& runs,
                            const std::vector<std::vector<int>>& axes) {
    std::vector<int> order;
    for (size_t axis = 0; axis + 1 < axes.size(); ++axis)
      order.insert(order.end(), axes[axis].begin(), axes[axis].end());
    std::vector<int> turned = runs[1];
    turned.insert(turned.end(), runs[0].begin(), runs[0].end());
    return order == turned;
  }

  bool is_one_matrix(int tensor) const {
    const Dims& shape = dims(tensor);
    for (int axis = 0; axis < shape.rank() - 2; ++axis)
      if (shape[axis] != 1) return false;
    return shape.rank() >= 2;
  }

  // Whether the value, or what pointwise ops alone make of it, is an output in the shape that it has.
  bool is_kept(int value) const {
    if (!graph_.tensors[static_cast<size_t>(value)].is_virtual()) return true;
    return std::ranges::any_of(index_.consumers(value), [&](int reader) {
      const Op& op = graph_.ops[static_cast<size_t>(reader)];
      return is_pointwise(op) && dims(op.outputs[0]) == dims(value) && is_kept(op.outputs[0]);
    });
  }

  void append(const Op& given, const TurnedRows& turned) {
    const AxisFactors& factors = turned.seen.axes;
    const int64_t first = factors.extent(turned.rows[0]), second = factors.extent(turned.rows[1]);
    const Dims a = dims(given.inputs[0]), b = dims(given.inputs[1]);
    const int64_t k = a[a.rank() - 1], n = b[b.rank() - 1];
    Op product = given;
    const std::string name = given.name;
    product.inputs[0] = append_views(ops_, additions_, graph_, turned.seen.root, factors,
                                     {turned.rows[0], turned.rows[1], factors.axes().back()},
                                     {first, second, k}, name + ".in");
    if (b.rank() > 2) {
      ops_.push_back(additions_.view(Reshape{}, given.inputs[1], {k, n}, name + ".in"));
      product.inputs[1] = ops_.back().outputs[0];
    }
    const int y = given.outputs[0];
    const Tensor model = graph_.tensors[static_cast<size_t>(y)];
    const int ordered = additions_.tensor(model, {first, second, n}, name);
    product.outputs = {ordered};
    ops_.push_back(std::move(product));
    append_turned(ordered, {second, first, n}, y, name + ".out");
  }

  // The product with its rows in the order of before, as `y`.
  void append_turned(int product, const Dims& turned, int y, const std::string& name) {
    const Transpose turn{{1, 0, 2}};
    if (dims(y) == turned) {
      ops_.push_back({additions_.op_name(name), turn, {product}, {y}});
      return;
    }
    ops_.push_back(additions_.view(turn, product, turned, name));
    const int apart = ops_.back().outputs[0];
    ops_.push_back({additions_.op_name(name), Reshape{}, {apart}, {y}});
  }

  Graph& graph_;
  Additions& additions_;
  GraphIndex index_;
  std::vector<Op> ops_;
};

}  // namespace

bool order_rows(Graph& graph, Additions& additions) {
  return std::ranges::any_of(graph.ops, is_matmul) && std::ranges::any_of(graph.ops, is_transpose) &&
         RowOrder(graph, additions).run();
}

}  // namespace fusor
