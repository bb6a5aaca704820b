// Owns the rules of every op: which operands it takes and what it gives.
#include "core/infer.h"

#include <algorithm>
#include <array>
#include <limits>

#include "core/fail.h"

namespace fusor {

namespace {

/// One call of infer(): what the rules of all ops look at.
struct Call {
  std::string label;
  std::span<const Tensor* const> inputs;
  const Dims& given;

  const Tensor& input(size_t i) const { return *inputs[i]; }
};

/// Dims under the name of their role in the op: "x", "dw".
struct Role {
  std::string_view name;
  const Dims& dims;
};

void expect_operands(const Call& call, size_t expected) {
  if (call.inputs.size() != expected)
    fail("{}: takes {} operand{}, got {}", call.label, expected, expected == 1 ? "" : "s",
         call.inputs.size());
}

void refuse_scalars(const Call& call) {
  for (const Tensor* input : call.inputs)
    if (input->is_scalar())
      fail("{}: '{}' is a by-value scalar; only pointwise ops take those", call.label, input->name);
}

void expect_compute(const Call& call, DataType compute) {
  if (!is_compute_type(compute))
    fail("{}: {} is not a compute type; choose fp32, fp64, int32 or int64", call.label, to_string(compute));
}

void expect_real_compute(const Call& call, DataType compute) {
  if (!is_real(compute))
    fail("{}: is defined for real numbers, not for compute type {}; choose fp32 or fp64", call.label,
         to_string(compute));
}

void expect_extents(const Call& call, const Role& role) {
  for (int64_t extent : role.dims)
    if (extent < 1) fail("{}: {} {} has an extent below 1", call.label, role.name, to_string(role.dims));
}

/// A list attribute has one entry for each of `count` axes.
void expect_entries(const Call& call, std::string_view list_name, const Dims& list, int count,
                    std::string_view axes) {
  if (list.rank() != count)
    fail("{}: {} {} has {} entries; it needs one for each of the {} {}", call.label, list_name,
         to_string(list), list.rank(), count, axes);
}

void expect_axis(const Call& call, int64_t axis, const Tensor& x) {
  if (axis < 0 || axis >= x.dims.rank())
    fail("{}: axis {} is out of range for '{}' {}", call.label, axis, x.name, to_string(x.dims));
}

/// Refuses results whose span no pointer arithmetic could hold, whatever their type.
void expect_addressable(const Call& call, const Dims& dims) {
  int64_t bytes = 8;
  for (int64_t extent : dims)
    if (__builtin_mul_overflow(bytes, extent, &bytes) || bytes > kMaxTensorBytes)
      fail("{}: a result of dims {} takes more than 2^48 bytes", call.label, to_string(dims));
}

Inferred finish(const Call& call, const Dims& dims, DataType type, const Dims* like_dims,
                const Strides* like_strides) {
  if (!call.given.empty() && call.given != dims)
    fail("{}: the result has dims {}, the operands give {}", call.label, to_string(call.given),
         to_string(dims));
  expect_addressable(call, dims);
  const bool follow = like_dims != nullptr && like_dims->rank() == dims.rank();
  return {dims, follow ? packed_strides_like(dims, *like_dims, *like_strides) : packed_strides(dims), type};
}

Inferred in_order_of(const Call& call, const Dims& dims, DataType type, const Tensor& like) {
  return finish(call, dims, type, &like.dims, &like.strides);
}

Inferred in_row_major(const Call& call, const Dims& dims, DataType type) {
  return finish(call, dims, type, nullptr, nullptr);
}

// --- pointwise ---------------------------------------------------------------------------------------------

DataType index_type(int64_t extent) {
  return extent - 1 > std::numeric_limits<int32_t>::max() ? DataType::i64 : DataType::i32;
}

void expect_parameters(const Call& call, const Pointwise& op) {
  const bool clips = op.mode == PointwiseMode::relu || op.mode == PointwiseMode::relu_bwd;
  if (clips && !(op.lower_clip <= op.upper_clip))
    fail("{}: lower_clip {} is above upper_clip {}", call.label, op.lower_clip, op.upper_clip);
  if (op.mode == PointwiseMode::softplus && op.softplus_beta == 0) fail("{}: softplus_beta is 0", call.label);
}

Dims broadcast_all(const Call& call) {
  Dims dims = call.input(0).dims;
  for (const Tensor* input : call.inputs)
    if (!broadcast_dims(dims, input->dims, dims))
      fail("{}: '{}' {} does not broadcast against {}", call.label, input->name, to_string(input->dims),
           to_string(dims));
  return dims;
}

Inferred infer_op(const Call& call, const Pointwise& op) {
  const PointwiseInfo& row = info(op.mode);
  expect_operands(call, static_cast<size_t>(row.inputs));
  expect_compute(call, op.compute);
  expect_parameters(call, op);
  DataType type = op.compute;
  if (row.domain == PointwiseDomain::real) expect_real_compute(call, op.compute);
  if (row.domain == PointwiseDomain::compare || row.domain == PointwiseDomain::logical) type = DataType::b8;
  if (row.domain == PointwiseDomain::index) {
    if (is_real(op.compute))
      fail("{}: gives integers, not compute type {}; choose int32 or int64", call.label,
           to_string(op.compute));
    expect_axis(call, op.axis, call.input(0));
    type = index_type(call.input(0).dims[static_cast<int>(op.axis)]);
  }
  const Dims dims = broadcast_all(call);
  for (const Tensor* input : call.inputs)
    if (input->dims == dims) return in_order_of(call, dims, type, *input);
  return in_row_major(call, dims, type);
}

// --- reduction ---------------------------------------------------------------------------------------------

bool needs_reals(ReductionMode mode) { return mode == ReductionMode::avg || mode == ReductionMode::norm2; }

Inferred infer_op(const Call& call, const Reduction& op) {
  expect_operands(call, 1);
  refuse_scalars(call);
  expect_compute(call, op.compute);
  if (needs_reals(op.mode)) expect_real_compute(call, op.compute);
  const Tensor& x = call.input(0);
  const Dims& dims = call.given;
  if (dims.rank() != x.dims.rank())
    fail("{}: result dims {} and '{}' {} have different ranks", call.label, to_string(dims), x.name,
         to_string(x.dims));
  for (int i = 0; i < dims.rank(); ++i)
    if (dims[i] < 1 || x.dims[i] % dims[i] != 0)
      fail("{}: axis {}: the result's extent {} does not divide {} of '{}'", call.label, i, dims[i],
           x.dims[i], x.name);
  return in_order_of(call, dims, op.compute, x);
}

// --- matmul ------------------------------------------------------------------------------------------------

Dims batch_of(const Dims& dims) { return Dims({dims.begin(), static_cast<size_t>(dims.rank() - 2)}); }

Inferred infer_op(const Call& call, const Matmul& op) {
  expect_operands(call, 2);
  refuse_scalars(call);
  expect_compute(call, op.compute);
  const Dims& a = call.input(0).dims;
  const Dims& b = call.input(1).dims;
  if (a.rank() < 2) fail("{}: a {} is a vector; reshape it to [1, {}]", call.label, to_string(a), a[0]);
  if (b.rank() < 2) fail("{}: b {} is a vector; reshape it to [{}, 1]", call.label, to_string(b), b[0]);
  const int64_t k = b[b.rank() - 2];
  if (a.back() != k)
    fail("{}: a {} has k={}, b {} has k={}", call.label, to_string(a), a.back(), to_string(b), k);
  Dims dims;
  if (!broadcast_dims(batch_of(a), batch_of(b), dims))
    fail("{}: batch dims {} of a and {} of b do not broadcast", call.label, to_string(batch_of(a)),
         to_string(batch_of(b)));
  dims.push_back(a[a.rank() - 2]);
  dims.push_back(b.back());
  return in_row_major(call, dims, op.compute);
}

// --- convolution -------------------------------------------------------------------------------------------

void expect_conv_lists(const Call& call, const Conv& op, int spatial) {
  struct List {
    std::string_view name;
    const Dims& values;
    int64_t least;
  };
  const std::array lists{List{"pre_padding", op.pre_padding, 0}, List{"post_padding", op.post_padding, 0},
                         List{"stride", op.stride, 1}, List{"dilation", op.dilation, 1}};
  for (const List& list : lists) {
    expect_entries(call, list.name, list.values, spatial, "spatial dims");
    for (int64_t value : list.values)
      if (value < list.least || value > std::numeric_limits<int32_t>::max())
        fail("{}: {} {} has an entry outside {} to 2147483647", call.label, list.name, to_string(list.values),
             list.least);
  }
}

void expect_channels(const Call& call, const Conv& op, const Role& x, const Role& w) {
  const int64_t c = x.dims[1];
  const int64_t c_per_group = w.dims[1];
  if (c % c_per_group != 0)
    fail("{}: {} has C={}, {} expects C={} or a multiple of it", call.label, x.name, c, w.name, c_per_group);
  const int64_t groups = conv_groups(op, x.dims, w.dims);
  if (w.dims[0] % groups != 0)
    fail("{}: K={} of {} is not divisible by the {} groups (C={} of {} / C={} of {})", call.label, w.dims[0],
         w.name, groups, c, x.name, c_per_group, w.name);
}

/// Dims of y in the forward direction, after checking all that the three passes have in common.
Dims forward_dims(const Call& call, const Conv& op, const Role& x, const Role& w) {
  const int rank = x.dims.rank();
  if (rank < 3 || rank > 5)
    fail("{}: {} {} has rank {}; a convolution takes N, C and 1 to 3 spatial dims", call.label, x.name,
         to_string(x.dims), rank);
  if (w.dims.rank() != rank)
    fail("{}: {} {} and {} {} have different ranks", call.label, x.name, to_string(x.dims), w.name,
         to_string(w.dims));
  expect_extents(call, x);
  expect_extents(call, w);
  expect_conv_lists(call, op, rank - 2);
  expect_channels(call, op, x, w);
  Dims y{x.dims[0], w.dims[0]};
  for (int i = 0; i < rank - 2; ++i) {
    const int64_t padded = x.dims[i + 2] + op.pre_padding[i] + op.post_padding[i];
    const int64_t window = w.dims[i + 2];
    // Divided, not multiplied: the dilated window of an untrusted file may not fit int64.
    if (window - 1 > (padded - 1) / op.dilation[i])
      fail("{}: spatial dim {}: a window of {} with dilation {} does not fit the padded extent {}",
           call.label, i, window, op.dilation[i], padded);
    y.push_back((padded - op.dilation[i] * (window - 1) - 1) / op.stride[i] + 1);
  }
  return y;
}

/// The backward passes are told their result's dims: in the forward direction these must give dy.
void expect_dy(const Call& call, const Role& x, const Role& w, const Dims& forward) {
  const Dims& dy = call.input(0).dims;
  if (forward != dy)
    fail("{}: {} {} and {} {} give y {} in the forward direction, dy is {}", call.label, x.name,
         to_string(x.dims), w.name, to_string(w.dims), to_string(forward), to_string(dy));
}

Inferred infer_op(const Call& call, const Conv& op) {
  expect_operands(call, 2);
  refuse_scalars(call);
  expect_compute(call, op.compute);
  const Tensor& first = call.input(0);
  const Dims& second = call.input(1).dims;
  if (op.pass == ConvPass::fprop)
    return in_order_of(call, forward_dims(call, op, {"x", first.dims}, {"w", second}), op.compute, first);
  const bool dgrad = op.pass == ConvPass::dgrad;
  const Role x{dgrad ? "dx" : "x", dgrad ? call.given : second};
  const Role w{dgrad ? "w" : "dw", dgrad ? second : call.given};
  expect_dy(call, x, w, forward_dims(call, op, x, w));
  return in_order_of(call, call.given, op.compute, first);
}

// --- ops that only move elements ---------------------------------------------------------------------------

Inferred infer_op(const Call& call, const Reshape&) {
  expect_operands(call, 1);
  refuse_scalars(call);
  const Tensor& x = call.input(0);
  if (call.given.empty()) fail("{}: the dims of the result are missing", call.label);
  expect_extents(call, {"dims", call.given});
  expect_addressable(call, call.given);
  if (element_count(call.given) != element_count(x.dims))
    fail("{}: '{}' {} has {} elements, dims {} have {}", call.label, x.name, to_string(x.dims),
         element_count(x.dims), to_string(call.given), element_count(call.given));
  return in_row_major(call, call.given, x.type);
}

Inferred infer_op(const Call& call, const Transpose& op) {
  expect_operands(call, 1);
  refuse_scalars(call);
  const Tensor& x = call.input(0);
  Dims sorted = op.permutation;
  std::sort(sorted.begin(), sorted.end());
  bool permutes = sorted.rank() == x.dims.rank();
  for (int i = 0; i < sorted.rank(); ++i) permutes = permutes && sorted[i] == i;
  if (!permutes)
    fail("{}: {} is not a permutation of the {} axes of '{}'", call.label, to_string(op.permutation),
         x.dims.rank(), x.name);
  Dims dims;
  for (int64_t axis : op.permutation) dims.push_back(x.dims[static_cast<int>(axis)]);
  return in_row_major(call, dims, x.type);
}

Inferred infer_op(const Call& call, const Slice& op) {
  expect_operands(call, 1);
  refuse_scalars(call);
  const Tensor& x = call.input(0);
  expect_entries(call, "start", op.start, x.dims.rank(), "axes");
  expect_entries(call, "limit", op.limit, x.dims.rank(), "axes");
  expect_entries(call, "step", op.step, x.dims.rank(), "axes");
  Dims dims;
  for (int i = 0; i < x.dims.rank(); ++i) {
    if (op.start[i] < 0 || op.start[i] >= op.limit[i] || op.limit[i] > x.dims[i])
      fail("{}: axis {}: start {} and limit {} do not keep 0 <= start < limit <= {}", call.label, i,
           op.start[i], op.limit[i], x.dims[i]);
    if (op.step[i] < 1) fail("{}: axis {}: step {} is less than 1", call.label, i, op.step[i]);
    dims.push_back((op.limit[i] - op.start[i] - 1) / op.step[i] + 1);
  }
  return in_order_of(call, dims, x.type, x);
}

Inferred infer_op(const Call& call, const Concatenate& op) {
  if (call.inputs.empty()) fail("{}: takes 1 operand or more, got 0", call.label);
  refuse_scalars(call);
  const Tensor& first = call.input(0);
  expect_axis(call, op.axis, first);
  const int axis = static_cast<int>(op.axis);
  Dims dims = first.dims;
  for (const Tensor* next : call.inputs.subspan(1)) {
    if (next->type != first.type)
      fail("{}: '{}' is {}, '{}' is {}; the types must be equal", call.label, first.name,
           to_string(first.type), next->name, to_string(next->type));
    Dims others = next->dims;
    if (others.rank() == dims.rank()) others[axis] = first.dims[axis];
    if (others != first.dims)
      fail("{}: '{}' {} and '{}' {} may differ in axis {} alone", call.label, first.name,
           to_string(first.dims), next->name, to_string(next->dims), axis);
    dims[axis] += next->dims[axis];
    expect_addressable(call, dims);
  }
  return in_order_of(call, dims, first.type, first);
}

bool defined_for_reals_only(const Attributes& attributes) {
  if (const auto* op = std::get_if<Pointwise>(&attributes))
    return info(op->mode).domain == PointwiseDomain::real;
  if (const auto* op = std::get_if<Reduction>(&attributes)) return needs_reals(op->mode);
  return false;
}

}  // namespace

Inferred infer(const std::string& op_name, const Attributes& attributes,
               std::span<const Tensor* const> inputs, const Dims& given) {
  const Call call{op_label(op_name, attributes), inputs, given};
  return std::visit([&](const auto& op) { return infer_op(call, op); }, attributes);
}

DataType default_compute(const Attributes& attributes, std::span<const Tensor* const> inputs) {
  const auto* pointwise = std::get_if<Pointwise>(&attributes);
  if (pointwise != nullptr && pointwise->mode == PointwiseMode::gen_index) {
    const int64_t axis = pointwise->axis;
    const bool known = !inputs.empty() && axis >= 0 && axis < inputs[0]->dims.rank();
    return known ? index_type(inputs[0]->dims[static_cast<int>(axis)]) : DataType::i32;
  }
  const auto any_is = [&](auto&& property) {
    return std::ranges::any_of(inputs, [&](const Tensor* input) { return property(input->type); });
  };
  if (any_is([](DataType type) { return type == DataType::f64; })) return DataType::f64;
  if (defined_for_reals_only(attributes) || any_is(is_real)) return DataType::f32;
  return any_is([](DataType type) { return type == DataType::i64; }) ? DataType::i64 : DataType::i32;
}

int64_t conv_groups(const Conv& /*conv*/, const Dims& x, const Dims& w) { return x[1] / w[1]; }

std::string op_label(const std::string& op_name, const Attributes& attributes) {
  const bool reduces = std::holds_alternative<Reduction>(attributes);
  return fmt::format("{}{} '{}'", short_name(attributes), reduces ? " reduction" : "", op_name);
}

bool keeps_type(const Attributes& attributes) {
  return is_view(attributes) || std::holds_alternative<Concatenate>(attributes);
}

}  // namespace fusor
