// Owns the steps of shrinking and the order in which they are tried.
#include "tools/fuzz/shrink.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "core/error.h"
#include "core/infer.h"
#include "tools/fuzz/values.h"

namespace fusor::fuzz {

namespace {

/// Ops and tensors that lead to no output, removed.
Graph without_dead(const Graph& graph) {
  std::vector<bool> wanted(graph.tensors.size(), false);
  for (size_t i = 0; i < graph.tensors.size(); ++i)
    wanted[i] = graph.tensors[i].memory == Memory::device && graph.producer(static_cast<int>(i)) >= 0;
  Graph kept = graph;
  kept.ops.clear();
  for (size_t i = graph.ops.size(); i-- > 0;) {
    const Op& op = graph.ops[i];
    const auto is_wanted = [&](int y) { return y >= 0 && wanted[static_cast<size_t>(y)]; };
    if (std::ranges::none_of(op.outputs, is_wanted)) continue;
    for (const int input : op.inputs)
      if (input >= 0) wanted[static_cast<size_t>(input)] = true;
    Op same = op;
    const std::vector<Role> results = roles(op.attributes).outputs;
    for (size_t y = 0; y < same.outputs.size(); ++y) {
      if (same.outputs[y] < 0 || is_wanted(same.outputs[y])) continue;
      if (results[y].optional) {
        same.outputs[y] = -1;
      } else {
        kept.tensors[static_cast<size_t>(same.outputs[y])].memory = Memory::device;
        wanted[static_cast<size_t>(same.outputs[y])] = true;
      }
    }
    kept.ops.insert(kept.ops.begin(), std::move(same));
  }
  const Graph named = kept;
  std::vector<int> renamed(graph.tensors.size(), -1);
  kept.tensors.clear();
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    if (!wanted[i]) continue;
    renamed[i] = static_cast<int>(kept.tensors.size());
    kept.tensors.push_back(named.tensors[i]);
  }
  for (Op& op : kept.ops)
    for (std::vector<int>* list : {&op.inputs, &op.outputs})
      for (int& each : *list)
        if (each >= 0) each = renamed[static_cast<size_t>(each)];
  return kept;
}

/// The result's dims of an op whose operands have shrunk; `old` is the graph before.
Dims given_dims(const Graph& old, const Graph& graph, const Op& op,
                const std::function<int64_t(int64_t)>& map) {
  const Dims& was = old.tensors[static_cast<size_t>(op.outputs[0])].dims;
  Dims dims = was;
  if (std::holds_alternative<Reduction>(op.attributes)) {
    const Dims& old_x = old.tensors[static_cast<size_t>(op.inputs[0])].dims;
    const Dims& x = graph.tensors[static_cast<size_t>(op.inputs[0])].dims;
    for (int i = 0; i < dims.rank(); ++i)
      dims[i] = was[i] == old_x[i] ? x[i] : x[i] % was[i] == 0 ? was[i] : 1;
    return dims;
  }
  const auto* conv = std::get_if<Conv>(&op.attributes);
  const bool told =
      std::holds_alternative<Reshape>(op.attributes) || (conv != nullptr && conv->pass != ConvPass::fprop);
  if (!told) return {};
  for (int64_t& extent : dims) extent = map(extent);
  return dims;
}

void clip(Slice& slice, const Dims& x) {
  for (int i = 0; i < x.rank(); ++i) {
    slice.limit[i] = std::min(slice.limit[i], x[i]);
    slice.start[i] = std::min(slice.start[i], slice.limit[i] - 1);
  }
}

/// Infers all results again, from inputs or attributes that have changed.
std::optional<Graph> inferred_again(const Graph& old, Graph graph,
                                    const std::function<int64_t(int64_t)>& map) {
  for (Op& op : graph.ops) {
    std::vector<const Tensor*> inputs;
    for (const int input : op.inputs)
      inputs.push_back(input < 0 ? nullptr : &graph.tensors[static_cast<size_t>(input)]);
    if (auto* slice = std::get_if<Slice>(&op.attributes)) clip(*slice, inputs[0]->dims);
    const Dims given = op.outputs.size() == 1 ? given_dims(old, graph, op, map) : Dims{};
    const std::vector<Inferred> all = infer_all(op.name, op.attributes, inputs, {&given, 1});
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      if (op.outputs[i] < 0) continue;
      Tensor& result = graph.tensors[static_cast<size_t>(op.outputs[i])];
      result.dims = all[i].dims;
      if (result.strides.rank() != all[i].dims.rank()) result.strides = all[i].strides;
      if (keeps_type(op.attributes)) result.type = all[i].type;
    }
  }
  return graph;
}

int64_t same(int64_t extent) { return extent; }

class Shrinker {
 public:
  Shrinker(Graph graph, const StillFails& still_fails, int trials)
      : graph_(std::move(graph)), still_fails_(still_fails), trials_(trials) {}

  Graph run() {
    for (bool smaller = true; smaller && trials_ > 0;) {
      smaller = drop_outputs();
      smaller = cut_ops() || smaller;
      smaller = bypass_ops() || smaller;
      smaller = shrink_extents() || smaller;
      smaller = simplify_places() || smaller;
      smaller = simplify_types() || smaller;
      smaller = simplify_attributes() || smaller;
    }
    return graph_;
  }

 private:
  /// Takes the graph that `change` makes of this one, if it is another, valid, and fails.
  template <class Change>
  bool attempt(Change&& change) {
    if (trials_ <= 0) return false;
    Graph next;
    try {
      std::optional<Graph> changed = change(graph_);
      if (!changed) return false;
      next = without_dead(*changed);
      if (next == graph_) return false;
      validate(next);
    } catch (const Error&) {
      return false;
    }
    if (!is_well_conditioned(next)) return false;
    --trials_;
    if (!still_fails_(next)) return false;
    graph_ = std::move(next);
    return true;
  }

  bool drop_outputs() {
    bool smaller = false;
    for (size_t i = graph_.tensors.size(); i-- > 0;) {
      if (i >= graph_.tensors.size()) continue;
      smaller = attempt([i](Graph graph) -> std::optional<Graph> {
                  if (graph.producer(static_cast<int>(i)) < 0 || graph.tensors[i].is_virtual()) return {};
                  graph.tensors[i].memory = Memory::workspace;
                  return graph;
                }) ||
                smaller;
    }
    return smaller;
  }

  /// An op's result becomes an input, or its input becomes the output in its place.
  bool cut_ops() {
    bool smaller = false;
    for (size_t i = graph_.ops.size(); i-- > 0;) {
      for (int filling = 0; filling < kFillings && i < graph_.ops.size(); ++filling)
        smaller = attempt([&](Graph graph) -> std::optional<Graph> {
                    const std::vector<int> results = graph.ops[i].outputs;
                    graph.ops.erase(graph.ops.begin() + static_cast<int64_t>(i));
                    for (const int y : results) {
                      if (y < 0) continue;
                      Tensor& tensor = graph.tensors[static_cast<size_t>(y)];
                      tensor.memory = Memory::device;
                      tensor.alignment = 16;
                      tensor.name += std::string(".") + std::string(to_string(static_cast<Filling>(filling)));
                    }
                    return graph;
                  }) ||
                  smaller;
      if (i >= graph_.ops.size()) continue;
      smaller = attempt([&](Graph graph) -> std::optional<Graph> {
                  const Op op = graph.ops[i];
                  for (const int y : op.outputs)
                    if (y >= 0 && !graph.consumers(y).empty()) return {};
                  graph.ops.erase(graph.ops.begin() + static_cast<int64_t>(i));
                  for (const int input : op.inputs)
                    if (input >= 0 && graph.producer(input) >= 0)
                      graph.tensors[static_cast<size_t>(input)].memory = Memory::device;
                  return graph;
                }) ||
                smaller;
    }
    return smaller;
  }

  /// Readers of an op's result read one of its operands instead.
  bool bypass_ops() {
    bool smaller = false;
    for (size_t i = graph_.ops.size(); i-- > 0;)
      for (size_t operand = 0; i < graph_.ops.size() && operand < graph_.ops[i].inputs.size(); ++operand)
        smaller = attempt([&](Graph graph) -> std::optional<Graph> {
                    const int x = graph.ops[i].inputs[operand], y = graph.ops[i].outputs[0];
                    if (x < 0 || graph.ops[i].outputs.size() > 1 || graph.consumers(y).empty()) return {};
                    for (Op& op : graph.ops) std::ranges::replace(op.inputs, y, x);
                    graph.tensors[static_cast<size_t>(y)].memory = Memory::workspace;
                    return inferred_again(graph_, graph, same);
                  }) ||
                  smaller;
    return smaller;
  }

  /// Every axis of this extent, or one axis of one input, made shorter.
  bool shrink_extents() {
    bool smaller = false;
    std::set<int64_t, std::greater<>> extents;
    for (const Tensor& tensor : graph_.tensors) extents.insert(tensor.dims.begin(), tensor.dims.end());
    for (const int64_t extent : extents) {
      int64_t now = extent;
      for (bool again = extent > 1; again;) {
        again = false;
        for (const int64_t next : {int64_t{1}, int64_t{2}, now / 8, now / 2, now - 1})
          if (!again && next >= 1 && next < now &&
              attempt([&](const Graph& graph) { return resized(graph, now, next); })) {
            smaller = again = true;
            now = next;
          }
      }
    }
    for (size_t i = 0; i < graph_.tensors.size(); ++i)
      for (int axis = 0; i < graph_.tensors.size() && axis < graph_.tensors[i].dims.rank(); ++axis)
        for (const int64_t next :
             {int64_t{1}, graph_.tensors[i].dims[axis] / 2, graph_.tensors[i].dims[axis] - 1})
          smaller = attempt([&](Graph graph) -> std::optional<Graph> {
                      if (i >= graph.tensors.size() || graph.producer(static_cast<int>(i)) >= 0) return {};
                      int64_t& extent = graph.tensors[i].dims[axis];
                      if (next < 1 || next >= extent) return {};
                      extent = next;
                      return inferred_again(graph_, graph, same);
                    }) ||
                    smaller;
    return smaller;
  }

  std::optional<Graph> resized(Graph graph, int64_t from, int64_t to) const {
    const auto map = [=](int64_t extent) { return extent == from ? to : extent; };
    for (size_t i = 0; i < graph.tensors.size(); ++i)
      if (graph.producer(static_cast<int>(i)) < 0)
        for (int64_t& extent : graph.tensors[i].dims) extent = map(extent);
    return inferred_again(graph_, graph, map);
  }

  bool simplify_places() {
    bool smaller = attempt([](Graph graph) -> std::optional<Graph> {
      for (Tensor& tensor : graph.tensors) tensor.strides = packed_strides(tensor.dims);
      return graph;
    });
    for (size_t i = 0; i < graph_.tensors.size(); ++i) {
      smaller = attempt([&](Graph graph) -> std::optional<Graph> {
                  if (i >= graph.tensors.size()) return {};
                  graph.tensors[i].strides = packed_strides(graph.tensors[i].dims);
                  return graph;
                }) ||
                smaller;
      smaller = attempt([&](Graph graph) -> std::optional<Graph> {
                  if (i >= graph.tensors.size()) return {};
                  graph.tensors[i].alignment = 16;
                  return graph;
                }) ||
                smaller;
    }
    return smaller;
  }

  bool simplify_types() {
    bool smaller = attempt([](Graph graph) -> std::optional<Graph> {
      graph.precision = Precision::exact;
      return graph;
    });
    for (size_t i = 0; i < graph_.tensors.size(); ++i)
      smaller = attempt([&](Graph graph) -> std::optional<Graph> {
                  if (i >= graph.tensors.size() || graph.tensors[i].memory == Memory::constant) return {};
                  graph.tensors[i].type = DataType::f32;
                  graph.tensors[i].alignment = std::max<int64_t>(graph.tensors[i].alignment, 4);
                  return inferred_again(graph_, graph, same);
                }) ||
                smaller;
    for (size_t i = 0; i < graph_.ops.size(); ++i)
      smaller = attempt([&](Graph graph) -> std::optional<Graph> {
                  if (i >= graph.ops.size()) return {};
                  std::visit(
                      [](auto& op) {
                        if constexpr (requires { op.compute; }) op.compute = DataType::f32;
                      },
                      graph.ops[i].attributes);
                  return inferred_again(graph_, graph, same);
                }) ||
                smaller;
    return smaller;
  }

  template <class Change>
  bool change_op(size_t i, Change&& change) {
    return attempt([&](Graph graph) -> std::optional<Graph> {
      if (i >= graph.ops.size()) return {};
      change(graph.ops[i].attributes);
      return inferred_again(graph_, graph, same);
    });
  }

  bool simplify_attributes() {
    bool smaller = false;
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      smaller = change_op(i,
                          [](Attributes& attributes) {
                            auto* op = std::get_if<Pointwise>(&attributes);
                            if (op != nullptr)
                              *op = Pointwise{.mode = op->mode, .compute = op->compute, .axis = op->axis};
                          }) ||
                smaller;
      for (const PointwiseMode mode : {PointwiseMode::identity, PointwiseMode::neg, PointwiseMode::add})
        smaller = change_op(i,
                            [&](Attributes& attributes) {
                              auto* op = std::get_if<Pointwise>(&attributes);
                              // Only toward the front of the list, so that it ends.
                              if (op != nullptr && info(op->mode).inputs == info(mode).inputs &&
                                  op->mode != PointwiseMode::identity)
                                op->mode = mode;
                            }) ||
                  smaller;
      const auto each_list = [&](Dims Conv::*list, int64_t value) {
        smaller = change_op(i,
                            [&](Attributes& attributes) {
                              auto* op = std::get_if<Conv>(&attributes);
                              if (op != nullptr) op->*list = Dims::filled((op->*list).rank(), value);
                            }) ||
                  smaller;
      };
      each_list(&Conv::pre_padding, 0);
      each_list(&Conv::post_padding, 0);
      each_list(&Conv::stride, 1);
      each_list(&Conv::dilation, 1);
      smaller = change_op(i,
                          [](Attributes& attributes) {
                            if (auto* op = std::get_if<Conv>(&attributes))
                              op->mode = ConvMode::cross_correlation;
                          }) ||
                smaller;
    }
    return smaller;
  }

  Graph graph_;
  const StillFails& still_fails_;
  int trials_;
};

}  // namespace

Graph shrink(const Graph& graph, const StillFails& still_fails, int trials) {
  return Shrinker(graph, still_fails, trials).run();
}

}  // namespace fusor::fuzz
