// Owns the replacement of composite ops by simpler ones.
#include "core/ops/expansion.h"

#include <algorithm>

#include "core/fail.h"
#include "core/infer.h"
#include "core/open_types.h"

namespace fusor {

namespace {

// Deeper nesting is a family that expands into itself.
constexpr int kMaxDepth = 32;

/// Walks the ops in order; what a composite writes is walked in its place.
class Expander {
 public:
  explicit Expander(const Graph& graph) : into_{graph, std::vector<bool>(graph.tensors.size()), {}, {}, {}} {
    for (const Op& op : graph.ops) into_.op_names.insert(op.name);
    for (const Tensor& tensor : graph.tensors) {
      into_.tensor_names.insert(tensor.name);
      into_.uids.insert(tensor.uid);
    }
  }

  Graph run() {
    const std::vector<Op> ops = std::move(into_.graph.ops);
    into_.graph.ops.clear();
    for (const Op& op : ops) append(op, 0);
    settle_types(into_.graph, into_.open);
    return std::move(into_.graph);
  }

 private:
  void append(const Op& op, int depth) {
    const auto* composite = std::get_if<Composite>(&op.attributes);
    if (composite == nullptr) {
      into_.graph.ops.push_back(op);
      return;
    }
    if (depth == kMaxDepth)
      fail(ErrorKind::internal, "{} expands without an end", op_label(op.name, op.attributes));
    std::vector<Op> written;
    Expansion expansion(into_, op, written);
    composite->expand(expansion);
    for (const Op& each : written) append(each, depth + 1);
  }

  ExpandedGraph into_;
};

}  // namespace

int Expansion::add_tensor(Tensor tensor) {
  while (!into_.tensor_names.insert(tensor.name).second) tensor.name += "'";
  tensor.uid = static_cast<int64_t>(into_.graph.tensors.size()) + 1;
  while (!into_.uids.insert(tensor.uid).second) ++tensor.uid;
  into_.open.push_back(tensor.is_virtual());
  into_.graph.tensors.push_back(std::move(tensor));
  return static_cast<int>(into_.graph.tensors.size()) - 1;
}

std::string Expansion::fresh_name() {
  std::string name = fmt::format("{}.{}", op_.name, written_.size() + 1);
  while (!into_.op_names.insert(name).second) name += "'";
  return name;
}

int Expansion::constant(double value) {
  Tensor tensor{.name = fmt::format("{}:{}", op_.name, value), .dims = {1}, .strides = {1}};
  tensor.memory = Memory::constant;
  tensor.value = value;
  return add_tensor(std::move(tensor));
}

int Expansion::op(Attributes attributes, std::initializer_list<int> inputs, const Dims& given) {
  std::vector<const Tensor*> tensors;
  for (const int x : inputs)
    tensors.push_back(x < 0 ? nullptr : &into_.graph.tensors[static_cast<size_t>(x)]);
  set_compute(attributes, default_compute(attributes, tensors));
  const std::string name = fresh_name();
  const Inferred inferred = infer(name, attributes, tensors, given);
  Tensor y{.name = fmt::format("{}:{}", name, roles(attributes).outputs[0].name),
           .type = inferred.type,
           .dims = inferred.dims,
           .strides = inferred.strides};
  y.memory = Memory::workspace;
  const int made = add_tensor(std::move(y));
  written_.push_back({name, std::move(attributes), inputs, {made}});
  return made;
}

int Expansion::reduce(ReductionMode mode, int x, int64_t axis) {
  Dims reduced = dims(x);
  reduced[static_cast<int>(axis)] = 1;
  return op(Reduction{.mode = mode}, {x}, reduced);
}

void Expansion::result(size_t role, int value) {
  Op identity;
  identity.name = fresh_name();
  const int y = op_.outputs[role];
  const DataType type = into_.graph.tensors[static_cast<size_t>(value)].type;
  identity.attributes = Pointwise{.mode = PointwiseMode::identity, .compute = carrier(type)};
  identity.inputs = {value};
  identity.outputs = {y};
  written_.push_back(std::move(identity));
}

Graph expand_composites(const Graph& graph) {
  const auto is_composite = [](const Op& op) { return nature(op.attributes) == Nature::composite; };
  if (std::ranges::none_of(graph.ops, is_composite)) return graph;
  return Expander(graph).run();
}

}  // namespace fusor
