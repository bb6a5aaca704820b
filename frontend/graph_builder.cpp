// Owns GraphBuilder: names, uids and defaults around core/infer.h.
#include "frontend/graph_builder.h"

#include <algorithm>
#include <cmath>

#include "core/convert.h"
#include "core/fail.h"
#include "core/infer.h"
#include "core/open_types.h"

namespace fusor {

namespace {

std::string result_name(const std::string& op_name, const Attributes& attributes, size_t result = 0) {
  return fmt::format("{}:{}", op_name, roles(attributes).outputs[result].name);
}

/// Takes the optional results that nobody asked for out of the graph.
void drop_unused_results(Graph& graph) {
  std::vector<bool> used(graph.tensors.size(), false), optional(graph.tensors.size(), false);
  for (const Op& op : graph.ops) {
    for (const int x : op.inputs)
      if (x >= 0) used[static_cast<size_t>(x)] = true;
    const std::vector<Role> results = roles(op.attributes).outputs;
    for (size_t i = 0; i < op.outputs.size(); ++i)
      if (results[i].optional) optional[static_cast<size_t>(op.outputs[i])] = true;
  }
  std::vector<int> places;
  std::vector<Tensor> kept;
  for (size_t i = 0; i < used.size(); ++i) {
    const bool drop = optional[i] && !used[i] && graph.tensors[i].is_virtual();
    places.push_back(drop ? -1 : static_cast<int>(kept.size()));
    if (!drop) kept.push_back(std::move(graph.tensors[i]));
  }
  graph.tensors = std::move(kept);
  for (Op& op : graph.ops)
    for (std::vector<int>* list : {&op.inputs, &op.outputs})
      for (int& tensor : *list)
        if (tensor >= 0) tensor = places[static_cast<size_t>(tensor)];
}

/// Negative axes count from the back; one that is out of range either way stays as the user said it.
int64_t from_front(int64_t axis, int rank) { return axis < 0 && axis + rank >= 0 ? axis + rank : axis; }

/// The number as an element of `type` holds it: integers in the scalar's integer form.
Scalar constant_value(double value, DataType type) {
  if (is_real(type)) return value;
  constexpr double kLimit = 9223372036854775808.0;  // 2^63
  if (std::trunc(value) != value || value < -kLimit || value >= kLimit)
    fail("constant {}: is not a whole number of type {}", value, to_string(type));
  const auto whole = static_cast<int64_t>(value);
  if (info(type).kind == NumberKind::integer && round_to(type, whole) != whole)
    fail("constant {}: is not a number of type {}, in which it would be {}", whole, to_string(type),
         round_to(type, whole));
  return whole;
}

Dims or_filled(const Dims& list, int rank, int64_t value) {
  return list.empty() ? Dims::filled(rank, value) : list;
}

// Composites compute in fp32, or in fp64 where an operand is fp64, whatever else is asked for.
void expect_own_compute(const std::string& label, DataType asked, DataType by_operands) {
  const DataType own = by_operands == DataType::f64 ? DataType::f64 : DataType::f32;
  if (asked != own && asked != by_operands)
    fail("{}: computes in {}, as its operands say, not in {}; convert them with identity", label,
         to_string(own), to_string(asked));
}

}  // namespace

GraphBuilder::GraphBuilder(std::string name, Precision precision) {
  origin_.graph = std::make_shared<const std::string>(name);
  graph_.name = std::move(name);
  graph_.precision = precision;
}

// --- tensors -----------------------------------------------------------------------------------------------

Tensor GraphBuilder::input(const std::string& name, const Dims& dims, DataType type, Layout layout) {
  return input(name, dims, type, TensorOptions{.layout = layout});
}

Tensor GraphBuilder::input(const std::string& name, const Dims& dims, DataType type,
                           const TensorOptions& options) {
  // Checked before packing, which needs extents whose product fits.
  const Strides strides = options.strides.value_or(Dims::filled(dims.rank(), 1));
  Tensor tensor{
      .name = name, .uid = options.uid.value_or(next_uid()), .type = type, .dims = dims, .strides = strides};
  tensor.alignment = options.alignment;
  validate(tensor);
  if (!options.strides) tensor.strides = packed_strides(dims, options.layout);
  return add_tensor(std::move(tensor), type);
}

Tensor GraphBuilder::scalar(const std::string& name, DataType type) {
  Tensor tensor{.name = name, .uid = next_uid(), .type = type, .dims = {1}, .strides = {1}};
  tensor.memory = Memory::host;
  validate(tensor);
  return add_tensor(std::move(tensor), type);
}

Tensor GraphBuilder::constant(double value, DataType type) {
  const Scalar number = constant_value(value, type);
  std::string name;
  do name = fmt::format("const{}", ++taken_.constants);
  while (taken_.names.contains(name));
  Tensor tensor{.name = name, .uid = next_uid(), .type = type, .dims = {1}, .strides = {1}};
  tensor.memory = Memory::constant;
  tensor.value = number;
  return add_tensor(std::move(tensor), type);
}

Tensor GraphBuilder::add_tensor(Tensor tensor, DataType stored_type, bool is_open) {
  const std::string asker = fmt::format("tensor '{}'", tensor.name);
  expect_free_name(asker, tensor.name);
  expect_free_uid(asker, tensor.uid);
  const auto index = static_cast<int>(records_.size());
  taken_.names.emplace(tensor.name, index);
  taken_.uids.emplace(tensor.uid, index);
  records_.push_back({tensor.uid, tensor.name, stored_type, is_open});
  graph_.tensors.push_back(std::move(tensor));
  return returned(graph_.tensors.back());
}

Tensor GraphBuilder::returned(Tensor tensor) const {
  tensor.origin = origin_;
  return tensor;
}

void GraphBuilder::expect_free_name(const std::string& asker, const std::string& name) const {
  if (taken_.names.contains(name)) fail("{}: the name '{}' is taken", asker, name);
}

void GraphBuilder::expect_free_uid(const std::string& asker, int64_t uid) const {
  const auto found = taken_.uids.find(uid);
  if (found != taken_.uids.end())
    fail("{}: uid {} is taken by tensor '{}'", asker, uid,
         graph_.tensors[static_cast<size_t>(found->second)].name);
}

int64_t GraphBuilder::next_uid() const {
  int64_t uid = static_cast<int64_t>(records_.size()) + 1;
  while (taken_.uids.contains(uid)) ++uid;
  return uid;
}

int GraphBuilder::index_of(const std::string& asker, const Tensor& tensor) const {
  if (tensor.origin.graph != origin_.graph)
    fail("{}: tensor '{}' {} belongs to {}, not to graph '{}'", asker, tensor.name, to_string(tensor.dims),
         tensor.origin.graph ? fmt::format("graph '{}' of another builder", *tensor.origin.graph)
                             : std::string("no builder"),
         graph_.name);
  if (const auto found = taken_.uids.find(tensor.uid); found != taken_.uids.end()) {
    const auto i = static_cast<size_t>(found->second);
    const Tensor& ours = graph_.tensors[i];
    const bool as_it_is = ours.uid == tensor.uid && ours.name == tensor.name;
    const bool as_it_was = records_[i].first_uid == tensor.uid && records_[i].first_name == tensor.name;
    if ((as_it_is || as_it_was) && ours.dims == tensor.dims) return found->second;
  }
  fail("{}: tensor '{}' {} with uid {} does not belong to graph '{}'", asker, tensor.name,
       to_string(tensor.dims), tensor.uid, graph_.name);
}

// --- ops ---------------------------------------------------------------------------------------------------

std::string GraphBuilder::fresh_op_name(const std::string& asked, const Attributes& attributes) const {
  if (!asked.empty()) {
    if (taken_.ops.contains(asked)) fail("{}: another op has that name", op_label(asked, attributes));
    return asked;
  }
  size_t number = graph_.ops.size() + 1;
  std::string name = fmt::format("{}{}", short_name(attributes), number);
  while (taken_.ops.contains(name) || taken_.names.contains(result_name(name, attributes)))
    name = fmt::format("{}{}", short_name(attributes), ++number);
  return name;
}

std::vector<Tensor> GraphBuilder::append_all(const std::string& name, Attributes attributes,
                                             std::span<const Tensor> operands, std::optional<DataType> type,
                                             std::optional<DataType> compute, std::span<const Dims> given) {
  const std::string op_name = fresh_op_name(name, attributes);
  const std::string label = op_label(op_name, attributes);
  fill_omitted(attributes, operands.empty() ? 0 : operands[0].dims.rank());
  std::vector<int> inputs;
  std::vector<const Tensor*> tensors;
  for (const Tensor& operand : operands) {
    inputs.push_back(operand.name.empty() ? -1 : index_of(label, operand));
    tensors.push_back(inputs.back() < 0 ? nullptr : &graph_.tensors[static_cast<size_t>(inputs.back())]);
  }
  const DataType own = default_compute(attributes, tensors);
  const bool has_compute = set_compute(attributes, compute.value_or(own));
  if (compute && !has_compute && !keeps_type(attributes)) expect_own_compute(label, *compute, own);
  const std::vector<Inferred> inferred = infer_all(op_name, attributes, tensors, given);
  const bool moves = keeps_type(attributes);
  if (moves) {
    if (compute) fail("{}: only moves elements; it has no compute type", label);
    if (type && *type != inferred[0].type)
      fail("{}: moves elements of type {}; convert with identity to get {}", label,
           to_string(inferred[0].type), to_string(*type));
  }
  const bool left_open =
      !type &&
      (!moves || std::ranges::all_of(inputs, [&](int x) { return is_open(static_cast<size_t>(x)); }));
  for (size_t i = 0; i < inferred.size(); ++i) {
    const std::string result = result_name(op_name, attributes, i);
    expect_free_name(fmt::format("tensor '{}'", result), result);
  }
  Op op{op_name, attributes, inputs, {}};
  const std::vector<Role> result_roles = roles(attributes).outputs;
  std::vector<Tensor> results;
  for (size_t i = 0; i < inferred.size(); ++i) {
    const bool own_type = result_roles[i].own_type;
    const std::optional<DataType> said = own_type ? inferred[i].type : type;
    Tensor result{.name = result_name(op_name, attributes, i),
                  .uid = next_uid(),
                  .type = said.value_or(inferred[i].type),
                  .dims = inferred[i].dims,
                  .strides = inferred[i].strides};
    result.memory = Memory::workspace;
    const DataType stored = said ? *said : stored_type(attributes, inferred[i].type, inputs);
    results.push_back(add_tensor(std::move(result), stored, left_open && !own_type));
    records_.back().is_written = true;
    records_.back().is_moved = moves;
    op.outputs.push_back(static_cast<int>(graph_.tensors.size()) - 1);
  }
  for (const int x : inputs)
    if (moves && x >= 0) records_[static_cast<size_t>(x)].is_moved = true;
  taken_.ops.insert(op.name);
  graph_.ops.push_back(std::move(op));
  return results;
}

void GraphBuilder::forget_last_op() {
  for (size_t i = graph_.ops.back().outputs.size(); i-- > 0;) {
    taken_.names.erase(graph_.tensors.back().name);
    taken_.uids.erase(graph_.tensors.back().uid);
    graph_.tensors.pop_back();
    records_.pop_back();
  }
  taken_.ops.erase(graph_.ops.back().name);
  graph_.ops.pop_back();
}

Tensor GraphBuilder::append(const std::string& name, Attributes attributes, std::span<const Tensor> operands,
                            std::optional<DataType> type, std::optional<DataType> compute,
                            const Dims& given) {
  return append_all(name, std::move(attributes), operands, type, compute, {&given, 1}).front();
}

std::vector<Tensor> GraphBuilder::op(const Attributes& attributes, std::span<const Tensor> operands,
                                     const OpOptions& options, std::span<const Dims> given) {
  return append_all(options.name, attributes, operands, options.type, options.compute, given);
}

DataType GraphBuilder::stored_type(const Attributes& attributes, DataType result,
                                   std::span<const int> inputs) const {
  std::vector<OperandType> operands;
  for (const int input : inputs) {
    if (input < 0) continue;
    const auto i = static_cast<size_t>(input);
    operands.push_back({records_[i].stored_type, is_open(i), graph_.tensors[i].is_scalar()});
  }
  return fusor::stored_type(attributes, result, operands);
}

Tensor GraphBuilder::pointwise(PointwiseMode mode, std::span<const Tensor> operands,
                               const PointwiseOptions& options) {
  Pointwise op{.mode = mode};
  op.lower_clip = options.lower_clip;
  op.upper_clip = options.upper_clip;
  op.lower_clip_slope = options.lower_clip_slope;
  op.elu_alpha = options.elu_alpha;
  op.softplus_beta = options.softplus_beta;
  op.swish_beta = options.swish_beta;
  return append(options.name, op, operands, options.type, options.compute);
}

Tensor GraphBuilder::gen_index(const Tensor& x, int64_t axis, const PointwiseOptions& options) {
  const Pointwise op{.mode = PointwiseMode::gen_index, .axis = axis};
  return append(options.name, op, {x}, options.type, options.compute);
}

Tensor GraphBuilder::reduce(const Tensor& x, ReductionMode mode, const Dims& axes, const OpOptions& options) {
  if (axes.empty()) return reduce_to(x, mode, Dims::filled(x.dims.rank(), 1), options);
  const Reduction op{.mode = mode};
  Dims dims = x.dims;
  for (int64_t axis : axes) {
    const int64_t place = from_front(axis, dims.rank());
    if (place < 0 || place >= dims.rank())
      fail("{}: axis {} is out of range for '{}' {}", op_label(fresh_op_name(options.name, op), op), axis,
           x.name, to_string(x.dims));
    dims[static_cast<int>(place)] = 1;
  }
  return reduce_to(x, mode, dims, options);
}

Tensor GraphBuilder::reduce_to(const Tensor& x, ReductionMode mode, const Dims& dims,
                               const OpOptions& options) {
  return append(options.name, Reduction{.mode = mode}, {x}, options.type, options.compute, dims);
}

Tensor GraphBuilder::matmul(const Tensor& a, const Tensor& b, const OpOptions& options) {
  return append(options.name, Matmul{}, {a, b}, options.type, options.compute);
}

Tensor GraphBuilder::scatter(const Tensor& x, const Tensor& index, const Dims& dims,
                             const ScatterOptions& options) {
  return append(options.name, Scatter{options.axis}, {x, index}, options.type, {}, dims);
}

Tensor GraphBuilder::gather(const Tensor& x, const Tensor& index, const GatherOptions& options) {
  return append(options.name, Gather{options.axis}, {x, index}, options.type, {});
}

Tensor GraphBuilder::append_conv(ConvPass pass, std::initializer_list<Tensor> operands,
                                 const ConvOptions& options, const Dims& given) {
  Conv op;
  op.pass = pass;
  if (!options.padding.empty() && !(options.pre_padding.empty() && options.post_padding.empty()))
    fail("{}: give padding, or pre_padding and post_padding, not both",
         op_label(fresh_op_name(options.name, op), op));
  const int spatial = std::max(0, operands.begin()->dims.rank() - 2);
  const Dims both = or_filled(options.padding, spatial, 0);
  op.pre_padding = options.padding.empty() ? or_filled(options.pre_padding, spatial, 0) : both;
  op.post_padding = options.padding.empty() ? or_filled(options.post_padding, spatial, 0) : both;
  op.stride = or_filled(options.stride, spatial, 1);
  op.dilation = or_filled(options.dilation, spatial, 1);
  op.mode = options.mode;
  op.groups = options.groups;
  return append(options.name, op, operands, options.type, options.compute, given);
}

Tensor GraphBuilder::conv_fprop(const Tensor& x, const Tensor& w, const ConvOptions& options) {
  return append_conv(ConvPass::fprop, {x, w}, options);
}

Tensor GraphBuilder::conv_dgrad(const Tensor& dy, const Tensor& w, const Dims& dx_dims,
                                const ConvOptions& options) {
  return append_conv(ConvPass::dgrad, {dy, w}, options, dx_dims);
}

Tensor GraphBuilder::conv_wgrad(const Tensor& dy, const Tensor& x, const Dims& dw_dims,
                                const ConvOptions& options) {
  return append_conv(ConvPass::wgrad, {dy, x}, options, dw_dims);
}

Tensor GraphBuilder::reshape(const Tensor& x, const Dims& dims, const OpOptions& options) {
  return append(options.name, Reshape{}, {x}, options.type, options.compute, dims);
}

Tensor GraphBuilder::transpose(const Tensor& x, const Dims& permutation, const OpOptions& options) {
  return append(options.name, Transpose{permutation}, {x}, options.type, options.compute);
}

Tensor GraphBuilder::slice(const Tensor& x, const Dims& start, const Dims& limit, const Dims& step,
                           const OpOptions& options) {
  const Slice op{start, limit, or_filled(step, x.dims.rank(), 1)};
  return append(options.name, op, {x}, options.type, options.compute);
}

Tensor GraphBuilder::concatenate(std::span<const Tensor> xs, int64_t axis, const OpOptions& options) {
  return append(options.name, Concatenate{axis}, xs, options.type, options.compute);
}

// --- outputs -----------------------------------------------------------------------------------------------

bool GraphBuilder::needs_conversion(size_t tensor, DataType type) const {
  const Record& record = records_[tensor];
  return !record.is_written || (record.is_moved && type != graph_.tensors[tensor].type);
}

Tensor GraphBuilder::as_output(Tensor tensor, DataType type, const OutputOptions& options) const {
  const std::string asker = fmt::format("output '{}'", options.name.empty() ? tensor.name : options.name);
  if (!options.name.empty() && options.name != tensor.name) {
    expect_free_name(asker, options.name);
    tensor.name = options.name;
  }
  if (options.uid && *options.uid != tensor.uid) {
    expect_free_uid(asker, *options.uid);
    tensor.uid = *options.uid;
  }
  tensor.type = type;
  tensor.memory = Memory::device;
  tensor.alignment = options.alignment;
  if (options.layout) tensor.strides = packed_strides(tensor.dims, *options.layout);
  if (options.strides) tensor.strides = *options.strides;
  validate_written(tensor);
  return tensor;
}

Tensor GraphBuilder::output(const Tensor& result, const OutputOptions& options) {
  const auto index = static_cast<size_t>(index_of("output", result));
  if (records_[index].is_output) fail("output: tensor '{}' is an output already", graph_.tensors[index].name);
  const DataType type = options.type.value_or(records_[index].stored_type);
  size_t stored = index;
  if (needs_conversion(index, type)) {
    append({}, Pointwise{.mode = PointwiseMode::identity}, {result}, type, {});
    stored = records_.size() - 1;
  }
  Tensor& tensor = graph_.tensors[stored];
  try {
    tensor = as_output(tensor, type, options);
  } catch (const Error&) {
    if (stored != index) forget_last_op();
    throw;
  }
  taken_.names.emplace(tensor.name, static_cast<int>(stored));
  taken_.uids.emplace(tensor.uid, static_cast<int>(stored));
  records_[stored].stored_type = type;
  records_[stored].is_output = records_[index].is_output = true;
  return returned(tensor);
}

Graph GraphBuilder::finish(std::span<const Tensor> outputs) {
  GraphBuilder next = *this;
  for (const Tensor& result : outputs)
    if (!next.records_[static_cast<size_t>(next.index_of("finish", result))].is_output) next.output(result);
  Graph graph = next.settled();
  validate(graph);
  *this = std::move(next);
  return graph;
}

Graph GraphBuilder::settled() const {
  Graph graph = graph_;
  std::vector<bool> open;
  for (size_t i = 0; i < records_.size(); ++i) open.push_back(is_open(i));
  settle_types(graph, open);
  drop_unused_results(graph);
  return graph;
}

}  // namespace fusor
