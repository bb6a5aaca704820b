// Owns the search for totals that may be taken in front of views, and their rewriting.
#include "backend/planner/rewrites/reductions/early_totals.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "backend/planner/kinds.h"
#include "backend/planner/rewrites/views/unread_views.h"
#include "core/graph_index.h"

namespace fusor {

namespace {

// By axis, whether a reduction takes it away.
using Axes = std::vector<bool>;

// The axes of `before` that a reduction of a reshape's result takes away; nothing where it takes a part of
// one. Axes of both that have as many elements together are looked at at once:
//
//     before   | 32  197 | 768 |          after   | 6304 | 12  64 |
std::optional<Axes> before_reshape(const Axes& reduced, const Dims& before, const Dims& after) {
  Axes found(static_cast<size_t>(before.rank()), false);
  int from = 0, to = 0;
  while (from < before.rank() || to < after.rank()) {
    const int first = from;
    int64_t elements = 1, elements_after = 1;
    bool any_reduced = false, any_kept = false;
    do {
      const bool takes_after = to < after.rank() && (elements_after <= elements || from == before.rank());
      if (!takes_after) {
        elements *= before[from++];
        continue;
      }
      const bool is_reduced = reduced[static_cast<size_t>(to)];
      if (after[to] != 1) (is_reduced ? any_reduced : any_kept) = true;
      elements_after *= after[to++];
    } while (elements != elements_after);
    if (any_reduced && any_kept) return std::nullopt;
    for (int axis = first; axis < from; ++axis) found[static_cast<size_t>(axis)] = any_reduced;
  }
  return found;
}

// The same of a transpose; nothing where axes that stay change places.
std::optional<Axes> before_transpose(const Axes& reduced, const Dims& before, const Dims& permutation) {
  Axes found(static_cast<size_t>(before.rank()), false);
  const int added = permutation.rank() - before.rank();  // axes of one element in front
  int64_t last = -1;
  for (int i = 0; i < permutation.rank(); ++i) {
    const int64_t axis = permutation[i] - added;
    if (axis < 0 || before[static_cast<int>(axis)] == 1) continue;
    if (reduced[static_cast<size_t>(i)])
      found[static_cast<size_t>(axis)] = true;
    else if (axis < std::exchange(last, axis))
      return std::nullopt;
  }
  return found;
}

class EarlyTotals {
 public:
  EarlyTotals(Graph& graph, Additions& additions) : graph_(graph), additions_(additions), index_(graph) {}

  // Whether any total was moved.
  bool run() {
    bool moves = false;
    std::vector<Op> ops;
    for (const Op& op : graph_.ops) {
      const std::optional<Origin> origin = is_reduction(op) ? origin_of(op) : std::nullopt;
      moves = moves || origin;
      if (origin)
        append_early(op, *origin, ops);
      else
        ops.push_back(op);
    }
    if (!moves) return false;
    graph_.ops = std::move(ops);
    drop_unread_views(graph_);
    return true;
  }

 private:
  // A computed value that views show, and what of it is added up.
  struct Origin {
    int value;
    Axes reduced;
  };

  const Tensor& tensor(int at) const { return graph_.tensors[static_cast<size_t>(at)]; }
  const Dims& dims(int at) const { return tensor(at).dims; }
  const Op* maker_of(int value) const {
    const int producer = index_.producer(value);
    return producer < 0 ? nullptr : &graph_.ops[static_cast<size_t>(producer)];
  }

  std::optional<Origin> origin_of(const Op& total) const {
    const Dims &from = dims(total.inputs[0]), &to = dims(total.outputs[0]);
    if (from.rank() != to.rank() || element_count(from) == 0) return std::nullopt;
    Origin origin{total.inputs[0], {}};
    for (int axis = 0; axis < from.rank(); ++axis) origin.reduced.push_back(from[axis] != to[axis]);
    const Op* maker = maker_of(origin.value);
    for (; maker != nullptr && is_moved_view(*maker); maker = maker_of(origin.value)) {
      auto reduced = before(*maker, origin.reduced);
      if (!reduced) return std::nullopt;
      origin = {maker->inputs[0], *std::move(reduced)};
    }
    const bool is_new = origin.value != total.inputs[0];
    const bool moves = is_new && maker != nullptr && is_made_with_totals(*maker) && is_kept(origin.value) &&
                       !is_needed_again(total.outputs[0]);
    return moves ? std::optional(origin) : std::nullopt;
  }

  bool is_moved_view(const Op& op) const {
    return (is_reshape(op) || is_transpose(op)) && tensor(op.outputs[0]).is_virtual() &&
           !tensor(op.inputs[0]).is_scalar() && !is_packed(tensor(op.inputs[0]).type);
  }

  std::optional<Axes> before(const Op& view, const Axes& reduced) const {
    const Dims& given = dims(view.inputs[0]);
    if (is_reshape(view)) return before_reshape(reduced, given, dims(view.outputs[0]));
    return before_transpose(reduced, given, std::get<Transpose>(view.attributes).permutation);
  }

  // Whether pointwise ops make the op's result of totals, as those of a norm or its gradient do: other totals
  // may share their pass. What a contraction makes is added up behind it.
  bool is_made_with_totals(const Op& op, int depth = 12) const {
    if (!is_pointwise(op) || depth == 0) return false;
    return std::ranges::any_of(op.inputs, [&](int input) {
      const Op* maker = input < 0 ? nullptr : maker_of(input);
      while (maker != nullptr && is_moved_view(*maker)) maker = maker_of(maker->inputs[0]);
      return maker != nullptr && (is_reduction(*maker) || is_made_with_totals(*maker, depth - 1));
    });
  }

  // Whether a total goes on to elements that it is a total of, as the mean of a norm does: what works on the
  // same rows stays in one shape.
  bool is_needed_again(int total) const {
    return std::ranges::any_of(index_.consumers(total), [&](int reader) {
      const int y = graph_.ops[static_cast<size_t>(reader)].outputs[0];
      return y >= 0 && (element_count(dims(y)) > element_count(dims(total)) || is_needed_again(y));
    });
  }

  // Whether the value is stored for others than the totals.
  bool is_kept(int value) const { return !tensor(value).is_virtual() || has_reader_beside_totals(value); }
  bool has_reader_beside_totals(int value) const {
    for (const int reader : index_.consumers(value)) {
      const Op& op = graph_.ops[static_cast<size_t>(reader)];
      if (is_moved_view(op) ? has_reader_beside_totals(op.outputs[0]) : !is_reduction(op)) return true;
    }
    return false;
  }

  void append_early(Op total, const Origin& origin, std::vector<Op>& ops) {
    const int result = total.outputs[0];
    Dims shape = dims(origin.value);
    for (int axis = 0; axis < shape.rank(); ++axis)
      if (origin.reduced[static_cast<size_t>(axis)]) shape[axis] = 1;
    total.inputs[0] = origin.value;
    if (shape == dims(result)) {
      ops.push_back(std::move(total));
      return;
    }
    const int early = additions_.tensor(Tensor(tensor(result)), shape, total.name);
    Op view{additions_.op_name(total.name + ".out"), Reshape{}, {early}, {result}};
    total.outputs[0] = early;
    ops.push_back(std::move(total));
    ops.push_back(std::move(view));
  }

  Graph& graph_;
  Additions& additions_;
  GraphIndex index_;  // of the ops as they were given
};

}  // namespace

bool move_totals_in_front(Graph& graph, Additions& additions) { return EarlyTotals(graph, additions).run(); }

}  // namespace fusor
