// Owns the replacement of composite ops by simpler ones.
#include "core/ops/expansion.h"

#include <algorithm>
#include <iterator>
#include <limits>

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
  Expander(const Graph& graph, const StaysWhole& stays_whole)
      : into_{.graph = graph,
              .open = std::vector<bool>(graph.tensors.size()),
              .op_names = {},
              .tensor_names = {},
              .uids = {},
              .stays_whole = stays_whole},
        asked_(graph.tensors.size()) {
    for (const Op& op : graph.ops) into_.op_names.insert(op.name);
    for (const Tensor& tensor : graph.tensors) {
      into_.tensor_names.insert(tensor.name);
      into_.uids.insert(tensor.uid);
    }
  }

  Graph run() {
    into_.asked = std::move(into_.graph.ops);
    into_.graph.ops.clear();
    for (const Op& op : into_.asked) append(op, 0);
    drop_unread();
    settle_types(into_.graph, into_.open);
    return std::move(into_.graph);
  }

 private:
  void append(const Op& op, int depth) {
    const bool stays = nature(op.attributes) != Nature::composite ||
                       (into_.stays_whole && into_.stays_whole(into_.graph, op));
    if (stays) {
      // Behind an expansion nothing is left out: optional operands at the end are not mentioned.
      std::vector<int>& inputs = into_.graph.ops.emplace_back(op).inputs;
      while (!inputs.empty() && inputs.back() < 0) inputs.pop_back();
      return;
    }
    if (depth == kMaxDepth)
      fail(ErrorKind::internal, "{} expands without an end", op_label(op.name, op.attributes));
    std::vector<Op> written;
    Expansion expansion(into_, op, written);
    std::visit(
        [&](const auto& family) {
          if constexpr (CompositeFamily<std::decay_t<decltype(family)>>) family.expand(expansion);
        },
        op.attributes);
    for (const Op& each : written) append(each, depth + 1);
  }

  // Takes out what families wrote for results that nobody wants, and what only operands that they do not read
  // were for.
  void drop_unread() {
    Graph& graph = into_.graph;
    std::vector<bool> used(graph.tensors.size(), false);
    for (size_t i = 0; i < asked_; ++i) used[i] = !graph.tensors[i].is_virtual();
    std::vector<Op> kept;
    for (size_t i = graph.ops.size(); i-- > 0;) {
      Op& op = graph.ops[i];
      const auto is_used = [&](int y) { return y >= 0 && used[static_cast<size_t>(y)]; };
      if (std::ranges::none_of(op.outputs, is_used)) continue;
      for (const int x : op.inputs)
        if (x >= 0) used[static_cast<size_t>(x)] = true;
      kept.push_back(std::move(op));
    }
    graph.ops.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
    for (size_t i = 0; i < asked_; ++i)
      if (!used[i]) leave_empty(graph.tensors[i]);
    std::fill_n(used.begin(), asked_, true);
    std::vector<int> places;
    std::vector<Tensor> tensors;
    std::vector<bool> open;
    for (size_t i = 0; i < used.size(); ++i) {
      places.push_back(used[i] ? static_cast<int>(tensors.size()) : -1);
      if (!used[i]) continue;
      tensors.push_back(std::move(graph.tensors[i]));
      open.push_back(into_.open[i]);
    }
    graph.tensors = std::move(tensors);
    into_.open = std::move(open);
    for (Op& op : graph.ops)
      for (std::vector<int>* list : {&op.inputs, &op.outputs})
        for (int& each : *list)
          if (each >= 0) each = places[static_cast<size_t>(each)];
  }

  ExpandedGraph into_;
  size_t asked_;  // tensors that the graph had before
};

}  // namespace

void leave_empty(Tensor& tensor) {
  tensor.memory = Memory::constant;
  tensor.dims = tensor.strides = {1};
  tensor.value = is_real(tensor.type) ? Scalar(0.0) : Scalar(int64_t{0});
}

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

size_t Expansion::place_of(const std::vector<Role>& roles, std::string_view name) {
  return static_cast<size_t>(std::ranges::find(roles, name, &Role::name) - roles.begin());
}

DataType Expansion::compute() const {
  const auto is_double = [&](int x) { return x >= 0 && type(x) == DataType::f64; };
  return std::ranges::any_of(op_.inputs, is_double) ? DataType::f64 : DataType::f32;
}

int Expansion::scalar(DataType type, Scalar value) {
  const auto [known, is_new] = scalars_.try_emplace({type, value}, -1);
  if (!is_new) return known->second;
  Tensor tensor;
  std::visit([&](auto number) { tensor.name = fmt::format("{}:{}", op_.name, number); }, value);
  tensor.type = type;
  tensor.dims = tensor.strides = {1};
  tensor.memory = Memory::constant;
  tensor.value = value;
  return known->second = add_tensor(std::move(tensor));
}

int Expansion::constant(double value) { return scalar(compute(), value); }

int Expansion::integer(int64_t value) {
  const bool is_short =
      value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max();
  return scalar(is_short ? DataType::i32 : DataType::i64, value);
}

int Expansion::op(Attributes attributes, std::span<const int> inputs, const Dims& given) {
  std::vector<const Tensor*> tensors;
  for (const int x : inputs)
    tensors.push_back(x < 0 ? nullptr : &into_.graph.tensors[static_cast<size_t>(x)]);
  set_compute(attributes, default_compute(attributes, tensors));
  return write(std::move(attributes), inputs, given);
}

int Expansion::write(Attributes attributes, std::span<const int> inputs, const Dims& given) {
  std::vector<const Tensor*> tensors;
  for (const int x : inputs)
    tensors.push_back(x < 0 ? nullptr : &into_.graph.tensors[static_cast<size_t>(x)]);
  const std::string name = fresh_name();
  const Inferred inferred = infer(name, attributes, tensors, given);
  Tensor y{.name = fmt::format("{}:{}", name, roles(attributes).outputs[0].name),
           .type = inferred.type,
           .dims = inferred.dims,
           .strides = inferred.strides};
  y.memory = Memory::workspace;
  const int made = add_tensor(std::move(y));
  written_.push_back({name, std::move(attributes), {inputs.begin(), inputs.end()}, {made}});
  return made;
}

int Expansion::cast(int value, DataType to) {
  const int rounded = identity(value);
  into_.graph.tensors[static_cast<size_t>(rounded)].type = to;
  into_.open[static_cast<size_t>(rounded)] = false;
  return rounded;
}

int Expansion::index(const Dims& dims, int64_t axis) {
  Pointwise op{.mode = PointwiseMode::gen_index, .compute = index_type(dims[static_cast<int>(axis)])};
  op.axis = axis;
  const int start = integer(0);
  return write(op, {&start, 1}, dims);
}

int Expansion::reduce(ReductionMode mode, int x, int64_t axis) {
  Dims reduced = dims(x);
  reduced[static_cast<int>(axis)] = 1;
  return op(Reduction{.mode = mode}, {x}, reduced);
}

int Expansion::slice(int x, int64_t axis, int64_t start, int64_t limit) {
  const Dims whole = dims(x);
  Slice op{Dims::filled(whole.rank(), 0), whole, Dims::filled(whole.rank(), 1)};
  op.start[static_cast<int>(axis)] = start;
  op.limit[static_cast<int>(axis)] = limit;
  return this->op(op, {x});
}

// In fp64 where one of them is: a concatenation only moves elements.
int Expansion::concatenate(const std::vector<int>& xs, int64_t axis) {
  if (xs.size() == 1) return xs[0];
  std::vector<int> parts = xs;
  if (std::ranges::any_of(xs, [&](int x) { return type(x) == DataType::f64; }))
    for (int& part : parts)
      if (type(part) != DataType::f64) part = cast(part, DataType::f64);
  return op(Concatenate{axis}, parts);
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

void Expansion::result_of(std::string_view role, Attributes attributes, std::initializer_list<int> inputs) {
  const int y = op_.outputs[place_of(roles_.outputs, role)];
  written_.push_back({fresh_name(), std::move(attributes), inputs, {y}});
}

int Expansion::rounded_total(int value, DataType type) {
  const Op& last = written_.back();
  if (last.outputs[0] != value || !std::holds_alternative<Reduction>(last.attributes))
    return cast(value, type);
  into_.graph.tensors[static_cast<size_t>(value)].type = type;
  into_.open[static_cast<size_t>(value)] = false;
  return value;
}

std::vector<const Op*> Expansion::readers(int value) const {
  std::vector<const Op*> found;
  for (const Op& op : into_.asked)
    if (std::ranges::find(op.inputs, value) != op.inputs.end()) found.push_back(&op);
  return found;
}

namespace {

const Op* writer_among(const std::vector<Op>& ops, int value) {
  const auto found = std::find_if(ops.rbegin(), ops.rend(), [&](const Op& op) {
    return std::ranges::find(op.outputs, value) != op.outputs.end();
  });
  return found == ops.rend() ? nullptr : &*found;
}

}  // namespace

const Op* Expansion::asked_writer(int value) const { return writer_among(into_.asked, value); }

const Op* Expansion::writer(int value) const { return writer_among(into_.graph.ops, value); }

int Expansion::paired(int x, int first) {
  const Tensor from = into_.graph.tensors[static_cast<size_t>(x)];
  Dims dims;
  Strides strides;
  for (int axis = 0; axis < from.dims.rank(); ++axis) {
    dims.push_back(from.dims[axis]);
    strides.push_back(from.strides[axis]);
    if (axis < first) continue;
    dims.push_back(1);
    strides.push_back(from.strides[axis]);
  }
  const int reshaped = reshape(x, dims);
  into_.graph.tensors[static_cast<size_t>(reshaped)].strides = packed_strides_like(dims, dims, strides);
  return reshaped;
}

void Expansion::reshaped_result(std::string_view role, int value) {
  if (!wants(role)) return;
  const int y = op_.outputs[place_of(roles_.outputs, role)];
  if (dims(value) == dims(y)) return result(role, value);
  // Elements are only moved from there on.
  const int moved = type(value) == type(y) ? value : cast(value, type(y));
  written_.push_back({fresh_name(), Reshape{}, {moved}, {y}});
}

void Expansion::reduced_result(std::string_view role, ReductionMode mode, int x) {
  if (!wants(role)) return;
  const Dims shown = result_dims(role);
  Dims reduced = shown;
  while (reduced.rank() < dims(x).rank()) reduced.insert(0, 1);
  if (reduced == shown) {
    Attributes reduction = Reduction{.mode = mode};
    const Tensor* operand = &into_.graph.tensors[static_cast<size_t>(x)];
    set_compute(reduction, default_compute(reduction, {&operand, 1}));
    result_of(role, std::move(reduction), {x});
    return;
  }
  reshaped_result(role, rounded_total(reduce_to(mode, x, reduced), result_type(role)));
}

Graph expand_composites(const Graph& graph, const StaysWhole& stays_whole) {
  const auto is_composite = [](const Op& op) { return nature(op.attributes) == Nature::composite; };
  if (std::ranges::none_of(graph.ops, is_composite)) return graph;
  return Expander(graph, stays_whole).run();
}

}  // namespace fusor
