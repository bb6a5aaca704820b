// Owns the search for sums of products that are one product.
#include "backend/planner/rewrites/products/summed_products.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "backend/planner/kinds.h"
#include "backend/planner/rewrites/concatenations/parts.h"
#include "backend/planner/rewrites/views/unread_views.h"
#include "core/graph_index.h"
#include "core/ops/expansion.h"

namespace fusor {

namespace {

// A slice of a tensor along one axis, seen through transposes, the last first.
struct SeenSlice {
  int tensor = -1, axis = -1;
  Range range;
  std::vector<Dims> permutations = {};
};

class SummedProducts {
 public:
  SummedProducts(Graph& graph, Additions& additions) : graph_(graph), additions_(additions), index_(graph) {}

  bool run() {
    std::vector<Op> ops;
    std::vector<int> left;
    std::vector<bool> gone(graph_.ops.size(), false);
    std::vector<std::vector<Op>> instead(graph_.ops.size());
    for (size_t at = 0; at < graph_.ops.size(); ++at) {
      const auto products = products_of(static_cast<int>(at));
      if (!products) continue;
      auto [first, second] = *products;
      const auto b = joined_operand(first, second);
      if (!b) continue;
      if (b->second) std::swap(first, second);
      instead[at] = written(static_cast<int>(at), first, second, b->first);
      for (const int op : {first, second}) {
        gone[static_cast<size_t>(op)] = true;
        left.push_back(op_of(op).outputs[0]);
      }
    }
    if (left.empty()) return false;
    for (size_t at = 0; at < graph_.ops.size(); ++at) {
      if (!instead[at].empty())
        std::ranges::move(instead[at], std::back_inserter(ops));
      else if (!gone[at])
        ops.push_back(std::move(graph_.ops[at]));
    }
    for (const int tensor : left) leave_empty(graph_.tensors[static_cast<size_t>(tensor)]);
    graph_.ops = std::move(ops);
    drop_unread_views(graph_);
    return true;
  }

 private:
  const Tensor& tensor(int at) const { return graph_.tensors[static_cast<size_t>(at)]; }
  const Op& op_of(int at) const { return graph_.ops[static_cast<size_t>(at)]; }

  // The two products that the op adds, for which nobody else asks.
  std::optional<std::pair<int, int>> products_of(int at) const {
    const auto* const sum = std::get_if<Pointwise>(&op_of(at).attributes);
    if (sum == nullptr || sum->mode != PointwiseMode::add) return std::nullopt;
    const int first = index_.producer(op_of(at).inputs[0]), second = index_.producer(op_of(at).inputs[1]);
    if (first < 0 || second < 0 || first == second) return std::nullopt;
    for (const int product : {first, second}) {
      const auto* const matmul = std::get_if<Matmul>(&op_of(product).attributes);
      const int c = op_of(product).outputs[0];
      if (matmul == nullptr || matmul->compute != sum->compute || tensor(c).type != sum->compute ||
          !tensor(c).is_virtual() || index_.consumers(c).size() != 1 ||
          tensor(c).dims != tensor(op_of(at).outputs[0]).dims)
        return std::nullopt;
      const int a = op_of(product).inputs[0], b = op_of(product).inputs[1];
      if (element_count(tensor(a).dims) > element_count(tensor(b).dims)) return std::nullopt;
    }
    // Operands that are put side by side have the same other axes.
    const Tensor &a = tensor(op_of(first).inputs[0]), &other = tensor(op_of(second).inputs[0]);
    const int last = a.dims.rank() - 1;
    if (a.type != other.type || a.dims.rank() != other.dims.rank() || is_packed(a.type)) return std::nullopt;
    for (int axis = 0; axis < last; ++axis)
      if (a.dims[axis] != other.dims[axis]) return std::nullopt;
    return std::pair{first, second};
  }

  SeenSlice seen_slice(int at) const {
    SeenSlice seen{.tensor = at, .axis = tensor(at).dims.rank() - 2, .range = {}};
    for (;;) {
      const int producer = index_.producer(at);
      if (producer < 0) return {};
      const Op& op = op_of(producer);
      if (const auto* const transpose = std::get_if<Transpose>(&op.attributes)) {
        seen.permutations.push_back(transpose->permutation);
        seen.axis = static_cast<int>(transpose->permutation[seen.axis]);
        at = op.inputs[0];
        continue;
      }
      const auto part = part_taken(op, tensor(op.inputs[0]).dims);
      if (!part || part->axis != seen.axis) return {};
      seen.tensor = op.inputs[0];
      seen.range = part->range;
      return seen;
    }
  }

  // The slices of both second operands as one, and whether the second product has the first elements.
  std::optional<std::pair<SeenSlice, bool>> joined_operand(int first, int second) const {
    SeenSlice a = seen_slice(op_of(first).inputs[1]), b = seen_slice(op_of(second).inputs[1]);
    if (a.tensor < 0 || a.tensor != b.tensor || a.axis != b.axis || a.permutations != b.permutations)
      return std::nullopt;
    const bool swapped = b.range.second == a.range.first;
    if (swapped) std::swap(a, b);
    if (a.range.second != b.range.first) return std::nullopt;
    a.range.second = b.range.second;
    return std::pair{a, swapped};
  }

  std::vector<Op> written(int sum, int first, int second, const SeenSlice& b) {
    std::vector<Op> ops;
    const std::string name = op_of(sum).name;
    const int a = op_of(first).inputs[0], other = op_of(second).inputs[0];
    Dims shape = tensor(a).dims;
    const int last = shape.rank() - 1;
    shape[last] += tensor(other).dims[last];
    Op both{additions_.op_name(name + ".a"), Concatenate{.axis = last}, {a, other}, {}};
    both.outputs = {additions_.tensor(Tensor(tensor(a)), shape, both.name)};
    ops.push_back(both);
    int seen = b.tensor;
    if (b.range != Range{0, tensor(b.tensor).dims[b.axis]}) {
      ops.push_back(additions_.slice(b.tensor, b.axis, b.range.first, b.range.second, name + ".b"));
      seen = ops.back().outputs[0];
    }
    for (auto step = b.permutations.rbegin(); step != b.permutations.rend(); ++step) {
      const Dims& permutation = *step;
      Dims dims = permutation;
      for (int axis = 0; axis < dims.rank(); ++axis)
        dims[axis] = tensor(seen).dims[static_cast<int>(permutation[axis])];
      ops.push_back(additions_.view(Transpose{permutation}, seen, dims, name + ".b"));
      seen = ops.back().outputs[0];
    }
    ops.push_back({name, op_of(first).attributes, {both.outputs[0], seen}, op_of(sum).outputs});
    return ops;
  }

  Graph& graph_;
  Additions& additions_;
  const GraphIndex index_;
};

}  // namespace

bool join_products(Graph& graph, Additions& additions) {
  return std::ranges::count_if(graph.ops, is_matmul) > 1 && SummedProducts(graph, additions).run();
}

}  // namespace fusor
