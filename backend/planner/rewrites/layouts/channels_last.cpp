// Owns the search for activations that may lie channels last.
#include "backend/planner/rewrites/layouts/channels_last.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "backend/planner/fold_views.h"
#include "backend/planner/kinds.h"
#include "core/dims.h"
#include "core/graph_index.h"

namespace fusor {

namespace {

bool is_convolution(const Op& op) { return std::holds_alternative<Conv>(op.attributes); }

// The tensor of a convolution's filters.
int filters_of(const Op& op) {
  return std::get<Conv>(op.attributes).pass == ConvPass::wgrad ? op.outputs[0] : op.inputs[1];
}

// Whether coordinates lead to the same places by both.
bool are_alike(const Dims& dims, const Strides& a, const Strides& b) {
  for (int axis = 0; axis < dims.rank(); ++axis)
    if (dims[axis] != 1 && a[axis] != b[axis]) return false;
  return true;
}

// Tensors that lie in one order, from a first one on.
class Together {
 public:
  Together(const Graph& graph, const GraphIndex& index) : graph_(graph), index_(index) {}

  // Whether all that is tied to the activation may lie channels last.
  bool find(int activation) {
    if (!take(activation, packed_strides(dims(activation), Layout::nhwc))) return false;
    for (size_t next = 0; next < open_.size(); ++next)
      if (!follow(open_[next])) return false;
    return true;
  }
  const std::map<int, Strides>& strides() const { return strides_; }

 private:
  const Tensor& tensor(int at) const { return graph_.tensors[static_cast<size_t>(at)]; }
  const Dims& dims(int at) const { return tensor(at).dims; }
  const Op& op_of(int at) const { return graph_.ops[static_cast<size_t>(at)]; }

  bool is_given(int at) const { return index_.producer(at) < 0; }

  bool take(int at, const Strides& strides) {
    const auto [known, is_new] = strides_.try_emplace(at, strides);
    if (!is_new) return are_alike(dims(at), known->second, strides);
    if (is_packed(tensor(at).type)) return false;
    if (!tensor(at).is_virtual()) return are_alike(dims(at), tensor(at).strides, strides);
    open_.push_back(at);
    return true;
  }

  bool follow(int at) {
    const int producer = index_.producer(at);
    if (producer >= 0 && !tie(op_of(producer), at)) return false;
    return std::ranges::all_of(index_.consumers(at), [&](int reader) { return tie(op_of(reader), at); });
  }

  // Takes what the op ties to one of its tensors.
  bool tie(const Op& op, int from) {
    if (is_transpose(op) || is_reshape(op)) return tie_view(op, from);
    if (is_convolution(op)) return tie_channels(op, from);
    if (is_contraction(op.attributes)) return true;
    // A concatenation copies the tensors of the user's that it reads.
    const bool copies = std::holds_alternative<Concatenate>(op.attributes);
    const auto all = [&](const auto& tensors) {
      return std::ranges::all_of(tensors, [&](int other) {
        return other < 0 || other == from || (copies && is_given(other)) || tie_equal(other, from);
      });
    };
    return all(op.inputs) && all(op.outputs);
  }

  // Tensors of as many axes follow the order, but for those that are the same for all channels, or for all
  // that is not channels: they have none.
  bool tie_equal(int other, int from) {
    if (tensor(other).is_scalar() || dims(other).rank() != dims(from).rank() || !is_image(other)) return true;
    return take(other, packed_strides_like(dims(other), dims(from), strides_.at(from)));
  }
  bool is_image(int at) const {
    const Dims& all = dims(at);
    return all.rank() > 2 && all[1] != 1 &&
           std::any_of(all.begin() + 2, all.end(), [](int64_t extent) { return extent != 1; });
  }

  bool tie_view(const Op& view, int from) {
    Placement seen;
    if (from == view.inputs[0]) {
      const int y = view.outputs[0];
      return view_placement(graph_, view, {from, 0, strides_.at(from)}, seen) && take(y, seen.strides);
    }
    return inverse_view(graph_, view, {from, 0, strides_.at(from)}, seen) &&
           take(view.inputs[0], seen.strides);
  }

  // A convolution of one channel a group reads and writes one order.
  bool tie_channels(const Op& op, int from) {
    const int filters = filters_of(op);
    if (dims(filters)[1] != 1 || from == filters) return true;
    const auto follows = [&](int other) {
      return other == filters || other == from || take(other, packed_strides(dims(other), Layout::nhwc));
    };
    return std::ranges::all_of(op.inputs, follows) && std::ranges::all_of(op.outputs, follows);
  }

  const Graph& graph_;
  const GraphIndex& index_;
  std::map<int, Strides> strides_;
  std::vector<int> open_;
};

// The activations that tensor cores multiply.
std::vector<int> activations_of(const Op& op, const Graph& graph) {
  if (!is_convolution(op) || graph.tensors[static_cast<size_t>(filters_of(op))].dims[1] == 1) return {};
  std::vector<int> found{op.inputs[0]};
  if (std::get<Conv>(op.attributes).pass == ConvPass::wgrad && op.inputs[1] != op.inputs[0])
    found.push_back(op.inputs[1]);
  std::erase_if(found, [&](int at) {
    const Tensor& tensor = graph.tensors[static_cast<size_t>(at)];
    return is_packed(tensor.type) || byte_size(tensor.type) > 2 || tensor.dims.rank() < 3;
  });
  return found;
}

void lay_virtual_activations(Graph& graph) {
  const GraphIndex index(graph);
  std::vector<bool> is_known(graph.tensors.size(), false);
  for (const Op& op : graph.ops)
    for (const int activation : activations_of(op, graph)) {
      if (is_known[static_cast<size_t>(activation)] ||
          !graph.tensors[static_cast<size_t>(activation)].is_virtual())
        continue;
      Together together(graph, index);
      const bool may_change = together.find(activation);
      for (const auto& [tensor, strides] : together.strides()) {
        is_known[static_cast<size_t>(tensor)] = true;
        Tensor& changed = graph.tensors[static_cast<size_t>(tensor)];
        if (may_change && changed.is_virtual() && !are_alike(changed.dims, changed.strides, strides))
          changed.strides = strides;
      }
    }
}

// Whether several taps read each element of a tensor of the user's that does not lie channels last.
bool has_window_over_planes(const Op& op, const Graph& graph, int activation) {
  const Tensor& tensor = graph.tensors[static_cast<size_t>(activation)];
  const Dims& filter = graph.tensors[static_cast<size_t>(filters_of(op))].dims;
  return tensor.memory == Memory::device && element_count(filter) > filter[0] * filter[1] &&
         are_alike(tensor.dims, tensor.strides, packed_strides(tensor.dims)) &&
         !are_alike(tensor.dims, tensor.strides, packed_strides(tensor.dims, Layout::nhwc));
}

Op copied_channels_last(Graph& graph, Additions& additions, int tensor) {
  const Tensor model = graph.tensors[static_cast<size_t>(tensor)];
  Op copy;
  copy.name = additions.op_name(model.name + ".last");
  copy.attributes = Pointwise{.mode = PointwiseMode::identity, .compute = carrier(model.type)};
  copy.inputs = {tensor};
  copy.outputs = {additions.tensor(model, model.dims, copy.name)};
  graph.tensors[static_cast<size_t>(copy.outputs[0])].strides = packed_strides(model.dims, Layout::nhwc);
  return copy;
}

void share_copies_of_planes(Graph& graph, Additions& additions) {
  const GraphIndex index(graph);
  const auto for_each_read = [&](const Op& op, auto body) {
    for (const int activation : activations_of(op, graph))
      if (index.producer(activation) < 0 && has_window_over_planes(op, graph, activation)) body(activation);
  };
  std::map<int, int> readers, copies;  // by tensor
  for (const Op& op : graph.ops) for_each_read(op, [&](int activation) { ++readers[activation]; });
  if (std::ranges::none_of(readers, [](const auto& one) { return one.second > 1; })) return;
  std::vector<Op> ops;
  for (Op& op : graph.ops) {
    for_each_read(op, [&](int activation) {
      if (readers.at(activation) < 2) return;
      const auto [copy, is_new] = copies.try_emplace(activation, -1);
      if (is_new) {
        ops.push_back(copied_channels_last(graph, additions, activation));
        copy->second = ops.back().outputs[0];
      }
      std::ranges::replace(op.inputs, activation, copy->second);
    });
    ops.push_back(std::move(op));
  }
  graph.ops = std::move(ops);
}

}  // namespace

void lay_channels_last(Graph& graph, Additions& additions) {
  if (std::ranges::none_of(graph.ops, is_convolution)) return;
  lay_virtual_activations(graph);
  share_copies_of_planes(graph, additions);
}

}  // namespace fusor
