// Owns the search for gathers that may come in front of pointwise ops.
#include "backend/planner/rewrites/gathers/early_gathers.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/planner/kinds.h"
#include "backend/planner/rewrites/views/unread_views.h"
#include "core/attributes.h"
#include "core/dims.h"
#include "core/graph_index.h"

namespace fusor {

namespace {

// Ops that are computed again on what is taken, and tensors that it is taken from, at most.
constexpr size_t kMostTakenOps = 16, kMostSources = 4;

// What one gather takes: the ops that make it, and the tensors in memory that these read along the axis.
struct Way {
  std::set<int> ops, sources;
};

class EarlyGathers {
 public:
  EarlyGathers(Graph& graph, Additions& additions) : graph_(graph), additions_(additions), index_(graph) {}

  bool run() {
    std::vector<bool> moves(graph_.ops.size(), false);
    for (size_t i = 0; i < graph_.ops.size(); ++i) moves[i] = may_move(graph_.ops[i]);
    if (std::ranges::find(moves, true) == moves.end()) return false;
    given_ = std::move(graph_.ops);
    for (size_t i = 0; i < given_.size(); ++i) {
      if (moves[i])
        append_early(given_[i]);
      else
        ops_.push_back(given_[i]);
    }
    graph_.ops = std::move(ops_);
    drop_unread_views(graph_, passed_);
    return true;
  }

 private:
  const Tensor& tensor(int at) const { return graph_.tensors[static_cast<size_t>(at)]; }
  const Op& op(int at) const {
    return given_.empty() ? graph_.ops[static_cast<size_t>(at)] : given_[static_cast<size_t>(at)];
  }
  static int axis_of(const Op& gather) { return static_cast<int>(std::get<Gather>(gather.attributes).axis); }

  // ---- What may move ----

  bool may_move(const Op& gather) const {
    if (!is_gather(gather)) return false;
    const Tensor &x = tensor(gather.inputs[0]), &y = tensor(gather.outputs[0]);
    Way way;
    return is_stored_for_gathers(graph_, index_, gather.inputs[0]) && !is_packed(x.type) &&
           element_count(y.dims) < element_count(x.dims) &&
           find_way(gather.inputs[0], x.dims.rank() - axis_of(gather), way);
  }

  // Finds what makes the value, whose axis is the `from_last`-th from the back on; false where that is too
  // much, or does not lie in memory.
  bool find_way(int value, int from_last, Way& way) const {
    if (is_the_same(value, from_last) || way.sources.contains(value)) return true;
    const int producer = index_.producer(value);
    if (producer >= 0 && is_recomputable(producer)) {
      if (!way.ops.insert(producer).second) return true;
      return way.ops.size() <= kMostTakenOps && std::ranges::all_of(op(producer).inputs, [&](int input) {
               return find_way(input, from_last, way);
             });
    }
    way.sources.insert(value);
    return way.sources.size() <= kMostSources && lies_in_memory(value) && !is_packed(tensor(value).type);
  }

  // Whether the value is the same all along the axis.
  bool is_the_same(int value, int from_last) const {
    const Dims& dims = tensor(value).dims;
    return tensor(value).is_scalar() || dims.rank() < from_last || dims[dims.rank() - from_last] == 1;
  }

  // Coordinates and random numbers belong to an element's place.
  bool is_recomputable(int producer) const {
    const Op& made = op(producer);
    const auto* const pointwise = std::get_if<Pointwise>(&made.attributes);
    return pointwise != nullptr && tensor(made.outputs[0]).is_virtual() &&
           pointwise->mode != PointwiseMode::gen_index && pointwise->mode != PointwiseMode::philox;
  }

  bool lies_in_memory(int value) const {
    const int producer = index_.producer(value);
    if (!tensor(value).is_virtual()) return true;
    return producer >= 0 && is_view(op(producer).attributes) &&
           !std::holds_alternative<Concatenate>(op(producer).attributes) &&
           lies_in_memory(op(producer).inputs[0]);
  }

  // ---- Moves ----

  // One gather's elements, as they are computed anew.
  struct Taken {
    const Op& gather;
    int index, axis, from_last;
    std::map<int, int> known = {};  // by tensor
  };

  void append_early(const Op& gather) {
    const int rank = tensor(gather.inputs[0]).dims.rank(), axis = axis_of(gather);
    Taken taken{gather, gather.inputs[1], axis, rank - axis};
    const int value = taken_of(gather.inputs[0], taken);
    const int inside = append_is_inside(taken, tensor(gather.inputs[0]).dims[axis]);
    const int zero = additions_.constant(0, tensor(value).type);
    Op last{additions_.op_name(gather.name + ".inside"),
            Pointwise{.mode = PointwiseMode::binary_select},
            {value, zero, inside},
            gather.outputs};
    additions_.set_default_compute(last);
    ops_.push_back(std::move(last));
  }

  int taken_of(int value, Taken& taken) {
    if (is_the_same(value, taken.from_last)) return value;
    const auto [known, is_new] = taken.known.try_emplace(value, -1);
    if (!is_new) return known->second;
    const int producer = index_.producer(value);
    const int made =
        producer >= 0 && is_recomputable(producer) ? computed(op(producer), taken) : gathered(value, taken);
    return taken.known[value] = made;
  }

  int computed(const Op& given, Taken& taken) {
    passed_.insert(given.outputs[0]);
    Op made = given;
    Dims dims{1};
    for (int& input : made.inputs) {
      input = taken_of(input, taken);
      Dims joined;
      if (broadcast_dims(dims, tensor(input).dims, joined)) dims = joined;
    }
    made.name = additions_.op_name(taken.gather.name + "." + given.name);
    made.outputs = {additions_.tensor(Tensor(tensor(given.outputs[0])), dims, made.name)};
    ops_.push_back(std::move(made));
    return ops_.back().outputs[0];
  }

  int gathered(int value, const Taken& taken) {
    const int rank = tensor(taken.index).dims.rank();
    Dims whole = tensor(value).dims;
    while (whole.rank() < rank) whole.insert(0, 1);
    if (whole != tensor(value).dims) {
      ops_.push_back(additions_.view(Reshape{}, value, whole, taken.gather.name + ".x"));
      value = ops_.back().outputs[0];
    }
    Dims dims = tensor(taken.index).dims;
    for (int axis = 0; axis < rank; ++axis)
      if (axis != taken.axis && dims[axis] == 1) dims[axis] = whole[axis];
    Op made{
        additions_.op_name(taken.gather.name + ".early"), taken.gather.attributes, {value, taken.index}, {}};
    made.outputs = {additions_.tensor(Tensor(tensor(value)), dims, made.name)};
    ops_.push_back(std::move(made));
    return ops_.back().outputs[0];
  }

  // Whether the index lies inside of the extent: outside of it, a gather reads 0.
  int append_is_inside(const Taken& taken, int64_t extent) {
    const DataType type = tensor(taken.index).type;
    const auto compare = [&](PointwiseMode mode, int64_t with, const char* part) {
      return append_condition(mode, {taken.index, additions_.constant(static_cast<double>(with), type)},
                              taken.gather.name + part);
    };
    const int first = compare(PointwiseMode::cmp_ge, 0, ".from_first");
    const int last = compare(PointwiseMode::cmp_lt, extent, ".to_last");
    return append_condition(PointwiseMode::logical_and, {first, last}, taken.gather.name + ".is_inside");
  }

  int append_condition(PointwiseMode mode, std::initializer_list<int> inputs, const std::string& name) {
    Op made{additions_.op_name(name), Pointwise{.mode = mode}, inputs, {}};
    additions_.set_default_compute(made);
    Tensor model = tensor(made.inputs[0]);
    model.type = DataType::b8;
    made.outputs = {additions_.tensor(model, Dims(model.dims), made.name)};
    ops_.push_back(std::move(made));
    return ops_.back().outputs[0];
  }

  Graph& graph_;
  Additions& additions_;
  GraphIndex index_;  // of the ops as they were given
  std::vector<Op> given_, ops_;
  std::set<int> passed_;  // results of ops that gathers came in front of
};

}  // namespace

bool is_stored_for_gathers(const Graph& graph, const GraphIndex& index, int tensor) {
  const int producer = index.producer(tensor);
  if (producer < 0 || !graph.tensors[static_cast<size_t>(tensor)].is_virtual() ||
      !is_pointwise(graph.ops[static_cast<size_t>(producer)]))
    return false;
  return std::ranges::all_of(index.consumers(tensor), [&](int reader) {
    const Op& op = graph.ops[static_cast<size_t>(reader)];
    return is_pointwise(op) || is_reduction(op) || (is_gather(op) && op.inputs[1] != tensor);
  });
}

bool move_gathers_in_front(Graph& graph, Additions& additions) {
  return std::ranges::any_of(graph.ops, is_gather) && EarlyGathers(graph, additions).run();
}

}  // namespace fusor
