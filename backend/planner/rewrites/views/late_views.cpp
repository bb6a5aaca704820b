// Owns the search for views that pointwise ops need not wait for.
#include "backend/planner/rewrites/views/late_views.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "backend/planner/fold_views.h"
#include "backend/planner/kinds.h"
#include "backend/planner/planner.h"
#include "backend/planner/rewrites/views/reshaped.h"
#include "backend/planner/rewrites/views/unread_views.h"
#include "core/dims.h"
#include "core/graph_index.h"

namespace fusor {

namespace {

class LateViews {
 public:
  LateViews(Graph& graph, Additions& additions)
      : graph_(graph),
        additions_(additions),
        index_(graph),
        known_(graph.tensors.size()),
        made_by_(known_, -1),
        is_led_(known_, false),
        given_(std::move(graph.ops)) {
    for (const Op& op : given_) note_leads(op);
    is_led_given_ = is_led_;
  }

  // Whether anything was moved.
  bool run() {
    for (const Op& given : given_) {
      Op op = given;
      std::vector<Op> behind;
      for (int view = view_in_front(op); view >= 0; view = view_in_front(op)) move(op, view, behind);
      append(std::move(op));
      for (; !behind.empty(); behind.pop_back()) append(std::move(behind.back()));
    }
    graph_.ops = std::move(ops_);
    if (moves_) drop_unread_views(graph_);
    return moves_;
  }

 private:
  // ---- Tensors ----

  const Tensor& tensor(int at) const { return graph_.tensors[static_cast<size_t>(at)]; }
  const Dims& dims(int at) const { return tensor(at).dims; }
  bool is_led(int at) const { return is_led_[static_cast<size_t>(at)]; }
  // The view whose result the tensor is; null where it is none.
  const Op* view_of(int at) const {
    const int place = made_by_[static_cast<size_t>(at)];
    if (place < 0 || !is_view(ops_[static_cast<size_t>(place)].attributes)) return nullptr;
    return &ops_[static_cast<size_t>(place)];
  }

  // A contraction leads to its result, and on to what is made of that by element, in totals or as a view of
  // all of it: what reads a part of it reads memory.
  void note_leads(const Op& op) {
    const auto leads = [&](int input) {
      return input >= 0 && is_led(input) && (!is_pointwise(op) || dims(input) == dims(op.outputs[0]));
    };
    const bool passes = is_reshape(op) || is_transpose(op) || is_pointwise(op) || is_reduction(op);
    const bool is_led_now =
        is_contraction(op.attributes) || (passes && std::ranges::any_of(op.inputs, leads));
    for (const int y : op.outputs)
      if (y >= 0) is_led_[static_cast<size_t>(y)] = is_led_now;
  }

  void append(Op op) {
    made_by_.resize(graph_.tensors.size(), -1);
    is_led_.resize(graph_.tensors.size(), false);
    note_leads(op);
    for (const int y : op.outputs)
      if (y >= 0) made_by_[static_cast<size_t>(y)] = static_cast<int>(ops_.size());
    ops_.push_back(std::move(op));
  }

  // ---- Shapes ----

  // Dims that broadcast to those of the view's result, as ones that broadcast to those of its operand.
  std::optional<Dims> before(const Dims& given, const Op& view) const {
    const Dims& after = dims(view.outputs[0]);
    if (is_reshape(view)) return reshaped(given, after, dims(view.inputs[0]));
    if (given.rank() > after.rank()) return std::nullopt;
    const Dims& permutation = std::get<Transpose>(view.attributes).permutation;
    Dims found = Dims::filled(after.rank(), 1);
    for (int i = 0; i < given.rank(); ++i) {
      const int axis = after.rank() - given.rank() + i;
      found[static_cast<int>(permutation[axis])] = given[i];
    }
    return found;
  }

  // Whether the op's tensors have such dims. Pointwise ops that count along an axis stay, and reductions come
  // in front of reshapes alone.
  bool has_shapes_before(const Op& op, const Op& view) const {
    const auto* const pointwise = std::get_if<Pointwise>(&op.attributes);
    const bool may_move = pointwise != nullptr ? pointwise->mode != PointwiseMode::gen_index
                                               : is_reduction(op) && is_reshape(view);
    // A number has no more axes than the shape in front of the view.
    const auto is_shaped = [&](int at) {
      return tensor(at).is_scalar() ? dims(at).rank() <= dims(view.inputs[0]).rank()
                                    : before(dims(at), view).has_value();
    };
    return may_move && is_shaped(op.outputs[0]) && std::ranges::all_of(op.inputs, is_shaped);
  }

  // Whether strides show the tensor in the shape before the view.
  bool is_seen_before(int at, const Op& view) const {
    if (is_transpose(view)) return true;
    const auto strides = strides_of(at);
    Strides ignored;
    return strides && reshape_strides(dims(at), *strides, *before(dims(at), view), ignored);
  }

  // Where the elements lie in the buffer that views show; nothing where no strides say it.
  std::optional<Strides> strides_of(int at) const {
    const Op* const view = view_of(at);
    if (view == nullptr) return tensor(at).strides;
    const auto strides = strides_of(view->inputs[0]);
    Placement seen;
    if (!strides || !view_placement(graph_, *view, {view->inputs[0], 0, *strides}, seen)) return std::nullopt;
    return seen.strides;
  }

  // ---- What may move ----

  // The first view among the op's operands that may come behind it, as a place in ops_; -1 where none may.
  int view_in_front(const Op& op) const {
    for (const int input : op.inputs)
      if (const Op* const view = input < 0 ? nullptr : view_of(input);
          view != nullptr && may_wait(*view) && is_computable_before(op, *view))
        return made_by_[static_cast<size_t>(input)];
    return -1;
  }

  bool may_wait(const Op& view) const {
    const int x = view.inputs[0], y = view.outputs[0];
    if ((!is_reshape(view) && !is_transpose(view)) || tensor(x).is_scalar() ||
        std::cmp_greater_equal(y, known_))
      return false;
    // An output is stored through the view, or where it is, if strides show it there.
    if (!tensor(y).is_virtual() && !is_seen_before(y, view)) return false;
    if (is_led(x)) return leads_to_one_value(view);
    if (is_reshape(view) && comes_from_memory(x) && meets_contraction(view)) return true;
    const auto readers = index_.consumers(y);
    return readers.size() == 1 && is_pointwise(given_[static_cast<size_t>(readers[0])]) &&
           tensor(x).is_virtual() && view_of(x) == nullptr && is_reshape(view) &&
           (joins_axes(view) || drops_places(view));
  }

  // Whether the tensor lies in memory, or is made of such ones in front of views that have moved.
  bool comes_from_memory(int at) const {
    return std::cmp_greater_equal(at, known_) || index_.producer(at) < 0 || !tensor(at).is_virtual();
  }

  // Whether pointwise ops lead from the view's result to where they meet what a contraction gives, behind
  // such a view: they are part of its fusion where they are computed in the shape in front.
  bool meets_contraction(const Op& view) const {
    constexpr size_t kMostOps = 32;
    std::vector<int> open{view.outputs[0]}, passed;
    for (size_t next = 0; next < open.size(); ++next)
      for (const int reader : index_.consumers(open[next])) {
        const Op& op = given_[static_cast<size_t>(reader)];
        if (!is_pointwise(op) || std::ranges::find(passed, reader) != passed.end() ||
            !has_shapes_before(op, view))
          continue;
        if (std::ranges::any_of(op.inputs, [&](int input) { return is_given_by_contraction(input, view); }))
          return true;
        passed.push_back(reader);
        if (passed.size() > kMostOps) return false;
        open.push_back(op.outputs[0]);
      }
    return false;
  }
  // Whether the tensor is a view like this one of what a contraction leads to, or made of one by element.
  bool is_given_by_contraction(int at, const Op& view) const {
    constexpr size_t kMostValues = 32;
    std::vector<int> open{at};
    for (size_t next = 0; next < open.size() && next < kMostValues; ++next) {
      const int value = open[next], maker = index_.producer(value);
      if (maker < 0 || !is_led_given_[static_cast<size_t>(value)] || dims(value) != dims(view.outputs[0]))
        continue;
      const Op& op = given_[static_cast<size_t>(maker)];
      if (op.attributes == view.attributes && dims(op.inputs[0]) == dims(view.inputs[0])) return true;
      if (!is_pointwise(op)) continue;
      for (const int input : op.inputs)
        if (std::ranges::find(open, input) == open.end()) open.push_back(input);
    }
    return false;
  }

  // Whether pointwise ops make one value of the view's result, which then is all that others read: as many
  // tensors are stored as before. Where totals are on the way, nobody but views and contractions may read it:
  // what works on the same rows stays in one shape.
  bool leads_to_one_value(const Op& view) const {
    constexpr int kMostOps = 32;
    std::vector<int> passed, open{view.outputs[0]};
    bool reduces = false;
    const auto is_passed = [&](int op) { return std::ranges::find(passed, op) != passed.end(); };
    const auto works_on_rows = [&](int op) {
      const Op& described = given_[static_cast<size_t>(op)];
      return is_pointwise(described) || is_reduction(described);
    };
    for (int step = 0; step < kMostOps; ++step) {
      // The first reader waits for no other.
      int next = -1;
      for (const int value : open)
        for (const int reader : index_.consumers(value))
          if (!is_passed(reader) && (next < 0 || reader < next)) next = reader;
      if (next < 0 || !has_shapes_before(given_[static_cast<size_t>(next)], view)) return false;
      passed.push_back(next);
      reduces = reduces || is_reduction(given_[static_cast<size_t>(next)]);
      open.push_back(given_[static_cast<size_t>(next)].outputs[0]);
      std::erase_if(open, [&](int value) { return std::ranges::all_of(index_.consumers(value), is_passed); });
      if (open.size() > 1) continue;
      if (!open.empty() && loses_views(open[0], view)) return false;
      if (!reduces || open.empty() || std::ranges::none_of(index_.consumers(open[0]), works_on_rows))
        return true;
    }
    return false;
  }

  // Whether views of the value need a copy if it comes from behind the view, but not where it is.
  bool loses_views(int value, const Op& view) const {
    return are_views_shown(value, nullptr) && !are_views_shown(value, &view);
  }

  // Whether strides show the views of a value that is row-major, or is so in front of a view; or else the one
  // way of views behind it says where the value must lie.
  bool are_views_shown(int value, const Op* in_front) const {
    Placement seen{value, 0, packed_strides(dims(value))};
    const bool is_placed =
        in_front == nullptr ||
        view_placement(graph_, *in_front, {-1, 0, packed_strides(dims(in_front->inputs[0]))}, seen);
    return (is_placed && shows_views(value, seen.strides)) || leads_back(value, in_front);
  }

  bool shows_views(int value, const Strides& strides, int depth = 8) const {
    return depth > 0 && std::ranges::all_of(index_.consumers(value), [&](int reader) {
             const Op& op = given_[static_cast<size_t>(reader)];
             Placement seen;
             return !is_view(op.attributes) || (view_placement(graph_, op, {value, 0, strides}, seen) &&
                                                shows_views(op.outputs[0], seen.strides, depth - 1));
           });
  }

  bool leads_back(int value, const Op* in_front) const {
    std::vector<const Op*> views;
    if (in_front != nullptr) views.push_back(in_front);
    for (auto readers = index_.consumers(value); readers.size() == 1 && tensor(value).is_virtual() &&
                                                 is_view(given_[static_cast<size_t>(readers[0])].attributes);
         readers = index_.consumers(value)) {
      views.push_back(&given_[static_cast<size_t>(readers[0])]);
      value = views.back()->outputs[0];
    }
    Placement seen{value, 0,
                   tensor(value).is_virtual() ? packed_strides(dims(value)) : tensor(value).strides};
    return std::ranges::all_of(views.rbegin(), views.rend(), [&](const Op* view) {
      const Placement result = seen;
      return inverse_view(graph_, *view, result, seen);
    });
  }

  // The extents beside those of one.
  static Dims extents(const Dims& dims) {
    Dims found;
    for (const int64_t extent : dims)
      if (extent != 1) found.push_back(extent);
    return found;
  }
  bool joins_axes(const Op& reshape) const {
    return extents(dims(reshape.inputs[0])).rank() > extents(dims(reshape.outputs[0])).rank();
  }
  // Whether the view takes away nothing but axes that totals left at one, such as the places of windows.
  bool drops_places(const Op& reshape) const {
    return extents(dims(reshape.inputs[0])) == extents(dims(reshape.outputs[0])) &&
           is_of_totals(reshape.inputs[0]);
  }
  // Whether the tensor is a total, or made of one by element, as the deviation that a norm divides by.
  bool is_of_totals(int at, int depth = 8) const {
    const int maker = made_by_[static_cast<size_t>(at)];
    if (maker < 0 || depth == 0) return false;
    const Op& op = ops_[static_cast<size_t>(maker)];
    return is_reduction(op) ||
           (is_pointwise(op) && std::ranges::any_of(op.inputs, [&](int input) {
              return input >= 0 && dims(input) == dims(at) && is_of_totals(input, depth - 1);
            }));
  }

  bool is_computable_before(const Op& op, const Op& view) const {
    const int z = op.outputs[0];
    if (!has_shapes_before(op, view) || is_packed(tensor(z).type)) return false;
    if (!tensor(z).is_virtual() && !is_seen_before(z, view)) return false;
    return std::ranges::all_of(op.inputs, [&](int input) {
      if (tensor(input).is_scalar() || input == view.outputs[0] || twin_of(input, view) >= 0) return true;
      return !is_packed(tensor(input).type) && !is_led(input) && is_seen_before(input, view);
    });
  }

  // The tensor in front of another such view, whose result `at` is, in the shape before this one; -1 where
  // there is none.
  int twin_of(int at, const Op& view) const {
    const Op* const other = view_of(at);
    if (other == nullptr || other->attributes != view.attributes || tensor(other->inputs[0]).is_scalar() ||
        before(dims(at), view) != dims(other->inputs[0]))
      return -1;
    return other->inputs[0];
  }

  // ---- Moves ----

  // Computes the op in front of the view, behind which its result comes then.
  void move(Op& op, int view, std::vector<Op>& behind) {
    moves_ = true;
    const Op moved = ops_[static_cast<size_t>(view)];
    const int z = op.outputs[0];
    const Dims shape = *before(dims(z), moved);
    for (int& input : op.inputs) input = seen_before(input, moved, op.name);
    Op late{additions_.op_name(op.name + ".out"), moved.attributes, {}, {z}};
    late.inputs = {additions_.tensor(Tensor(tensor(z)), shape, late.name + ".x")};
    // Behind a reshape, the elements lie as they did: channels that were last stay last.
    Tensor& early = graph_.tensors[static_cast<size_t>(late.inputs[0])];
    if (Strides strides; is_reshape(moved) && reshape_strides(dims(z), tensor(z).strides, shape, strides))
      early.strides = strides;
    op.outputs = late.inputs;
    behind.push_back(std::move(late));
  }

  int seen_before(int at, const Op& view, const std::string& reader) {
    if (at == view.outputs[0]) return view.inputs[0];
    if (tensor(at).is_scalar()) return at;
    if (const int twin = twin_of(at, view); twin >= 0) return twin;
    const Dims shape = *before(dims(at), view);
    if (is_reshape(view)) return add_view(Reshape{}, at, shape, reader);
    const Transpose& after = std::get<Transpose>(view.attributes);
    Dims whole = dims(at);
    while (whole.rank() < after.permutation.rank()) whole.insert(0, 1);
    Transpose inverse = after;
    for (int i = 0; i < whole.rank(); ++i) inverse.permutation[static_cast<int>(after.permutation[i])] = i;
    return add_view(inverse, add_view(Reshape{}, at, whole, reader), shape, reader);
  }

  int add_view(Attributes attributes, int at, const Dims& to, const std::string& reader) {
    if (std::holds_alternative<Reshape>(attributes) && dims(at) == to) return at;
    append(additions_.view(std::move(attributes), at, to, reader + ".in"));
    return ops_.back().outputs[0];
  }

  Graph& graph_;
  Additions& additions_;
  GraphIndex index_;                // of the ops as they were given
  size_t known_;                    // tensors that it knows
  std::vector<int> made_by_;        // per tensor: the place of its op in ops_, or -1
  std::vector<bool> is_led_;        // per tensor: whether a contraction leads to it
  std::vector<bool> is_led_given_;  // the same of the ops as they were given
  std::vector<Op> given_, ops_;
  bool moves_ = false;
};

}  // namespace

bool move_views_behind(Graph& graph, Additions& additions) {
  const auto may_move = [](const Op& op) { return is_reshape(op) || is_transpose(op); };
  return std::ranges::any_of(graph.ops, may_move) && LateViews(graph, additions).run();
}

}  // namespace fusor
