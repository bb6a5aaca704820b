// Owns GraphBuilder: names, uids and defaults around core/infer.h.
#include "frontend/graph_builder.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "core/infer.h"

namespace fusor {

namespace {

/// The role of the result in core's vocabulary of ops.
std::string_view result_role(const Attributes& attributes) {
  if (std::holds_alternative<Matmul>(attributes)) return "c";
  if (const auto* conv = std::get_if<Conv>(&attributes); conv != nullptr && conv->pass != ConvPass::fprop)
    return conv->pass == ConvPass::dgrad ? "dx" : "dw";
  return "y";
}

std::string result_name(const std::string& op_name, const Attributes& attributes) {
  return fmt::format("{}:{}", op_name, result_role(attributes));
}

/// Negative axes count from the back; one that is out of range either way stays as the user said it.
int64_t from_front(int64_t axis, int rank) { return axis < 0 && axis + rank >= 0 ? axis + rank : axis; }

/// The number as an element of `type` holds it: integers in the scalar's integer form.
Scalar constant_value(double value, DataType type) {
  if (is_real(type)) return value;
  constexpr double kLimit = 9223372036854775808.0;  // 2^63
  if (std::trunc(value) != value || value < -kLimit || value >= kLimit)
    fail("constant {}: is not a whole number of type {}", value, to_string(type));
  return static_cast<int64_t>(value);
}

void set_compute(Attributes& attributes, DataType compute) {
  std::visit(
      [&](auto& op) {
        if constexpr (requires { op.compute; }) op.compute = compute;
      },
      attributes);
}

Dims or_filled(const Dims& list, int rank, int64_t value) {
  return list.empty() ? Dims::filled(rank, value) : list;
}

}  // namespace

GraphBuilder::GraphBuilder(std::string name, Precision precision) {
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
  const Strides strides = options.strides.value_or(Dims::filled(dims.rank(), 0));
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
  int number = 1;
  std::string name = "const1";
  while (graph_.find(name) >= 0) name = fmt::format("const{}", ++number);
  Tensor tensor{.name = name, .uid = next_uid(), .type = type, .dims = {1}, .strides = {1}};
  tensor.memory = Memory::constant;
  tensor.value = constant_value(value, type);
  return add_tensor(std::move(tensor), type);
}

Tensor GraphBuilder::add_tensor(Tensor tensor, DataType stored_type) {
  const std::string asker = fmt::format("tensor '{}'", tensor.name);
  expect_free_name(asker, tensor.name);
  expect_free_uid(asker, tensor.uid);
  records_.push_back({tensor.uid, tensor.name, stored_type});
  graph_.tensors.push_back(std::move(tensor));
  return graph_.tensors.back();
}

void GraphBuilder::expect_free_name(const std::string& asker, const std::string& name) const {
  const bool held =
      std::ranges::any_of(records_, [&](const Record& record) { return record.first_name == name; });
  if (held || graph_.find(name) >= 0) fail("{}: the name '{}' is taken", asker, name);
}

void GraphBuilder::expect_free_uid(const std::string& asker, int64_t uid) const {
  for (size_t i = 0; i < records_.size(); ++i)
    if (records_[i].first_uid == uid || graph_.tensors[i].uid == uid)
      fail("{}: uid {} is taken by tensor '{}'", asker, uid, graph_.tensors[i].name);
}

int64_t GraphBuilder::next_uid() const {
  const auto taken = [&](int64_t uid) {
    return graph_.find_uid(uid) >= 0 ||
           std::ranges::any_of(records_, [&](const Record& record) { return record.first_uid == uid; });
  };
  int64_t uid = static_cast<int64_t>(records_.size()) + 1;
  while (taken(uid)) ++uid;
  return uid;
}

int GraphBuilder::index_of(const std::string& asker, const Tensor& tensor) const {
  for (size_t i = 0; i < records_.size(); ++i) {
    const Tensor& ours = graph_.tensors[i];
    const bool as_it_is = ours.uid == tensor.uid && ours.name == tensor.name;
    const bool as_it_was = records_[i].first_uid == tensor.uid && records_[i].first_name == tensor.name;
    if ((as_it_is || as_it_was) && ours.dims == tensor.dims) return static_cast<int>(i);
  }
  fail("{}: tensor '{}' {} with uid {} does not belong to graph '{}'", asker, tensor.name,
       to_string(tensor.dims), tensor.uid, graph_.name);
}

// --- ops ---------------------------------------------------------------------------------------------------

std::string GraphBuilder::fresh_op_name(const std::string& asked, const Attributes& attributes) const {
  const auto taken = [&](const std::string& name) {
    return std::ranges::any_of(graph_.ops, [&](const Op& op) { return op.name == name; });
  };
  if (!asked.empty()) {
    if (taken(asked)) fail("{}: another op has that name", op_label(asked, attributes));
    return asked;
  }
  size_t number = graph_.ops.size() + 1;
  std::string name = fmt::format("{}{}", short_name(attributes), number);
  while (taken(name) || graph_.find(result_name(name, attributes)) >= 0)
    name = fmt::format("{}{}", short_name(attributes), ++number);
  return name;
}

Tensor GraphBuilder::append(const std::string& name, Attributes attributes, std::span<const Tensor> operands,
                            std::optional<DataType> type, std::optional<DataType> compute,
                            const Dims& given) {
  const std::string op_name = fresh_op_name(name, attributes);
  const std::string label = op_label(op_name, attributes);
  std::vector<int> inputs;
  std::vector<const Tensor*> tensors;
  for (const Tensor& operand : operands) {
    inputs.push_back(index_of(label, operand));
    tensors.push_back(&graph_.tensors[static_cast<size_t>(inputs.back())]);
  }
  set_compute(attributes, compute.value_or(default_compute(attributes, tensors)));
  const Inferred inferred = infer(op_name, attributes, tensors, given);
  if (keeps_type(attributes)) {
    if (compute) fail("{}: only moves elements; it has no compute type", label);
    if (type && *type != inferred.type)
      fail("{}: moves elements of type {}; convert with identity to get {}", label, to_string(inferred.type),
           to_string(*type));
  }
  Tensor result{.name = result_name(op_name, attributes),
                .uid = next_uid(),
                .type = type.value_or(inferred.type),
                .dims = inferred.dims,
                .strides = inferred.strides};
  result.memory = Memory::workspace;
  result = add_tensor(std::move(result), type ? *type : stored_type(attributes, inputs));
  graph_.ops.push_back({op_name, attributes, inputs, {static_cast<int>(graph_.tensors.size()) - 1}});
  return result;
}

DataType GraphBuilder::stored_type(const Attributes& attributes, std::span<const int> inputs) const {
  const auto is_array = [&](int input) { return !graph_.tensors[static_cast<size_t>(input)].is_scalar(); };
  const auto first = std::ranges::find_if(inputs, is_array);
  const DataType stored =
      records_[static_cast<size_t>(first != inputs.end() ? *first : inputs[0])].stored_type;
  if (keeps_type(attributes)) return stored;

  const DataType compute = *compute_type(attributes);
  const auto* pointwise = std::get_if<Pointwise>(&attributes);
  if (pointwise != nullptr) {
    const PointwiseDomain domain = info(pointwise->mode).domain;
    if (domain == PointwiseDomain::compare || domain == PointwiseDomain::logical) return DataType::b8;
    if (domain == PointwiseDomain::index) return compute;
    const bool picks =
        pointwise->mode == PointwiseMode::identity || pointwise->mode == PointwiseMode::binary_select;
    if (picks && stored == DataType::b8) return stored;
  }
  const auto* reduction = std::get_if<Reduction>(&attributes);
  const bool picks_one = reduction != nullptr &&
                         (reduction->mode == ReductionMode::min || reduction->mode == ReductionMode::max);
  const bool accumulates = pointwise == nullptr && !picks_one;
  const bool changes_kind = is_real(stored) != is_real(compute) || stored == DataType::b8;
  return changes_kind || (accumulates && !is_real(compute)) ? compute : stored;
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
  const Pointwise op{.mode = PointwiseMode::gen_index, .axis = from_front(axis, x.dims.rank())};
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
  const Concatenate op{xs.empty() ? axis : from_front(axis, xs[0].dims.rank())};
  return append(options.name, op, xs, options.type, options.compute);
}

// --- outputs -----------------------------------------------------------------------------------------------

bool GraphBuilder::needs_conversion(int tensor, DataType type) const {
  const int producer = graph_.producer(tensor);
  if (producer < 0) return true;
  const auto moves = [&](int op) { return keeps_type(graph_.ops[static_cast<size_t>(op)].attributes); };
  return type != graph_.tensors[static_cast<size_t>(tensor)].type &&
         (moves(producer) || std::ranges::any_of(graph_.consumers(tensor), moves));
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
  if (!needs_conversion(static_cast<int>(index), type)) {
    graph_.tensors[index] = as_output(graph_.tensors[index], type, options);
    records_[index].stored_type = type;
    records_[index].is_output = true;
    return graph_.tensors[index];
  }
  GraphBuilder next = *this;
  next.append({}, Pointwise{.mode = PointwiseMode::identity}, {result}, type, {});
  next.graph_.tensors.back() = as_output(next.graph_.tensors.back(), type, options);
  next.records_.back().is_output = true;
  next.records_[index].is_output = true;
  *this = std::move(next);
  return graph_.tensors.back();
}

Graph GraphBuilder::finish(std::span<const Tensor> outputs) {
  GraphBuilder next = *this;
  for (const Tensor& result : outputs)
    if (!next.records_[static_cast<size_t>(next.index_of("finish", result))].is_output) next.output(result);
  validate(next.graph_);
  *this = std::move(next);
  return graph_;
}

}  // namespace fusor
