// Owns the translation of pointwise ops and reductions.
#include <algorithm>
#include <limits>

#include "compat/cudnn/src/translate/translator.h"

namespace fusor::cudnn {

namespace {

struct ModeRow {
  cudnnPointwiseMode_t theirs;
  PointwiseMode ours;
};

constexpr ModeRow kModes[] = {
    {CUDNN_POINTWISE_ADD, PointwiseMode::add},
    {CUDNN_POINTWISE_ADD_SQUARE, PointwiseMode::add_square},
    {CUDNN_POINTWISE_DIV, PointwiseMode::div},
    {CUDNN_POINTWISE_MAX, PointwiseMode::max},
    {CUDNN_POINTWISE_MIN, PointwiseMode::min},
    {CUDNN_POINTWISE_MOD, PointwiseMode::mod},
    {CUDNN_POINTWISE_MUL, PointwiseMode::mul},
    {CUDNN_POINTWISE_POW, PointwiseMode::pow},
    {CUDNN_POINTWISE_SUB, PointwiseMode::sub},
    {CUDNN_POINTWISE_ABS, PointwiseMode::abs},
    {CUDNN_POINTWISE_CEIL, PointwiseMode::ceil},
    {CUDNN_POINTWISE_COS, PointwiseMode::cos},
    {CUDNN_POINTWISE_EXP, PointwiseMode::exp},
    {CUDNN_POINTWISE_FLOOR, PointwiseMode::floor},
    {CUDNN_POINTWISE_LOG, PointwiseMode::log},
    {CUDNN_POINTWISE_NEG, PointwiseMode::neg},
    {CUDNN_POINTWISE_RSQRT, PointwiseMode::rsqrt},
    {CUDNN_POINTWISE_SIN, PointwiseMode::sin},
    {CUDNN_POINTWISE_SQRT, PointwiseMode::sqrt},
    {CUDNN_POINTWISE_TAN, PointwiseMode::tan},
    {CUDNN_POINTWISE_ERF, PointwiseMode::erf},
    {CUDNN_POINTWISE_IDENTITY, PointwiseMode::identity},
    {CUDNN_POINTWISE_RECIPROCAL, PointwiseMode::reciprocal},
    {CUDNN_POINTWISE_RELU_FWD, PointwiseMode::relu},
    {CUDNN_POINTWISE_TANH_FWD, PointwiseMode::tanh},
    {CUDNN_POINTWISE_SIGMOID_FWD, PointwiseMode::sigmoid},
    {CUDNN_POINTWISE_ELU_FWD, PointwiseMode::elu},
    {CUDNN_POINTWISE_GELU_FWD, PointwiseMode::gelu},
    {CUDNN_POINTWISE_SOFTPLUS_FWD, PointwiseMode::softplus},
    {CUDNN_POINTWISE_SWISH_FWD, PointwiseMode::swish},
    {CUDNN_POINTWISE_GELU_APPROX_TANH_FWD, PointwiseMode::gelu_tanh},
    {CUDNN_POINTWISE_RELU_BWD, PointwiseMode::relu_bwd},
    {CUDNN_POINTWISE_TANH_BWD, PointwiseMode::tanh_bwd},
    {CUDNN_POINTWISE_SIGMOID_BWD, PointwiseMode::sigmoid_bwd},
    {CUDNN_POINTWISE_ELU_BWD, PointwiseMode::elu_bwd},
    {CUDNN_POINTWISE_GELU_BWD, PointwiseMode::gelu_bwd},
    {CUDNN_POINTWISE_SOFTPLUS_BWD, PointwiseMode::softplus_bwd},
    {CUDNN_POINTWISE_SWISH_BWD, PointwiseMode::swish_bwd},
    {CUDNN_POINTWISE_GELU_APPROX_TANH_BWD, PointwiseMode::gelu_tanh_bwd},
    {CUDNN_POINTWISE_CMP_EQ, PointwiseMode::cmp_eq},
    {CUDNN_POINTWISE_CMP_NEQ, PointwiseMode::cmp_neq},
    {CUDNN_POINTWISE_CMP_GT, PointwiseMode::cmp_gt},
    {CUDNN_POINTWISE_CMP_GE, PointwiseMode::cmp_ge},
    {CUDNN_POINTWISE_CMP_LT, PointwiseMode::cmp_lt},
    {CUDNN_POINTWISE_CMP_LE, PointwiseMode::cmp_le},
    {CUDNN_POINTWISE_LOGICAL_AND, PointwiseMode::logical_and},
    {CUDNN_POINTWISE_LOGICAL_OR, PointwiseMode::logical_or},
    {CUDNN_POINTWISE_LOGICAL_NOT, PointwiseMode::logical_not},
    {CUDNN_POINTWISE_GEN_INDEX, PointwiseMode::gen_index},
    {CUDNN_POINTWISE_BINARY_SELECT, PointwiseMode::binary_select},
};

PointwiseMode mode_of(cudnnPointwiseMode_t theirs) {
  const auto row = std::ranges::find(kModes, theirs, &ModeRow::theirs);
  if (row == std::end(kModes))
    refuse(CUDNN_STATUS_NOT_SUPPORTED, "pointwise mode {} is not supported", static_cast<int>(theirs));
  return row->ours;
}

bool is_backward(cudnnPointwiseMode_t mode) {
  return mode >= CUDNN_POINTWISE_RELU_BWD && mode <= CUDNN_POINTWISE_GELU_APPROX_TANH_BWD;
}

// The compute type that was asked for, where the mode is defined on it.
DataType compute_of(const Descriptor& pointwise, PointwiseMode mode) {
  const DataType asked =
      part_type_of(pointwise.get<cudnnDataType_t>(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT));
  const DataType compute = carrier(asked);
  return info(mode).domain == PointwiseDomain::real && !is_real(compute) ? DataType::f32 : compute;
}

Pointwise attributes_of(const Descriptor& pointwise) {
  Pointwise attributes;
  attributes.mode = mode_of(pointwise.get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE));
  attributes.compute = compute_of(pointwise, attributes.mode);
  const auto put = [&](std::string_view field, double& value, cudnnBackendAttributeName_t name) {
    if (attributes.has(field)) value = pointwise.real(name, value);
  };
  put("lower_clip", attributes.lower_clip, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP);
  put("upper_clip", attributes.upper_clip, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP);
  put("lower_clip_slope", attributes.lower_clip_slope, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE);
  put("elu_alpha", attributes.elu_alpha, CUDNN_ATTR_POINTWISE_ELU_ALPHA);
  put("softplus_beta", attributes.softplus_beta, CUDNN_ATTR_POINTWISE_SOFTPLUS_BETA);
  put("swish_beta", attributes.swish_beta, CUDNN_ATTR_POINTWISE_SWISH_BETA);
  // Clients say "no clip" by the largest number of some type.
  constexpr double kLargest = std::numeric_limits<float>::max();
  if (attributes.upper_clip >= kLargest) attributes.upper_clip = std::numeric_limits<double>::infinity();
  if (attributes.lower_clip <= -kLargest) attributes.lower_clip = -std::numeric_limits<double>::infinity();
  if (attributes.mode == PointwiseMode::gen_index)
    attributes.axis = pointwise.get<int64_t>(CUDNN_ATTR_POINTWISE_AXIS, 0);
  return attributes;
}

// Rows of scores that are masked whole have a maximum of -inf and a sum of 0: their probabilities are 0, not
// the NaN that -inf - (-inf) and 0 / 0 would be.
constexpr double kLeastScore = -3e38;

Tensor of_masked_rows(Translator& t, PointwiseMode mode, const Tensor& divisor) {
  GraphBuilder& g = t.builder();
  if (mode == PointwiseMode::sub && t.is_row_maximum(divisor)) return g.max(divisor, g.constant(kLeastScore));
  if (mode == PointwiseMode::div && t.is_row_sum(divisor))
    return g.binary_select(divisor, g.constant(1), g.cmp_neq(divisor, g.constant(0)));
  return divisor;
}

// A reduction whose result's dims the client left out has those of its operand; the op that reads it says by
// its own result which axes it means (the maximum of scores beside a sink).
Tensor as_read(Translator& t, const Tensor& x, const TensorFacts& made) {
  const std::optional<ReductionMode> mode = t.reduction_of(x);
  if (!mode || x.dims.rank() != made.dims.rank()) return x;
  Dims dims = x.dims;
  for (int i = 0; i < dims.rank(); ++i)
    if (made.dims[i] == 1) dims[i] = 1;
  return dims == x.dims ? x : t.builder().reduce_to(x, *mode, dims);
}

// A number for each row that is taken from all scores of the row: statistics of the forward pass, or a sum.
// Rows behind a length have -inf for statistics, and anything for a sum: their probabilities and gradients
// are 0 all the same.
Tensor of_rows_with_lengths(Translator& t, const Descriptor& op, const Tensor& x, const Tensor& b) {
  const int last = b.dims.rank() - 1;
  if (!t.has_lengths || !is_real(b.type) || b.is_scalar() || x.dims.rank() != b.dims.rank() ||
      b.dims[last] != 1 || x.dims[last] == 1)
    return b;
  GraphBuilder& g = t.builder();
  if (!Translator::facts(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC).is_virtual)
    return g.max(b, g.constant(kLeastScore));
  return t.is_row_maximum(b) ? b : g.binary_select(b, g.constant(0), g.cmp_eq(b, b));
}

// The statistics of rows behind a length are -inf. Beside a sink they do not become so by themselves.
Tensor of_rows_that_exist(Translator& t, const Pointwise& attributes, const Tensor& a, const Tensor& b,
                          const TensorFacts& made, const Tensor& stats) {
  if (attributes.mode != PointwiseMode::add || made.is_virtual || t.row_lengths.name.empty() ||
      made.dims.rank() < 4 || made.dims.back() != 1 || t.is_logarithm(a) == t.is_logarithm(b) ||
      t.is_row_maximum(t.is_logarithm(a) ? b : a))
    return stats;
  GraphBuilder& g = t.builder();
  const int rows = made.dims.rank() - 2;
  return g.binary_select(stats, g.constant(-std::numeric_limits<double>::infinity()),
                         g.cmp_lt(t.numbers_along(rows, made.dims.rank(), made.dims[rows]), t.row_lengths));
}

// sink [1, h, 1, 1] - stats [b, h, s, 1], both in memory; heads may be two axes.
bool subtracts_stats_of_sink(const Descriptor& op) {
  const TensorFacts sink = Translator::facts(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
                    stats = Translator::facts(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
  const int rank = stats.dims.rank();
  if (sink.is_virtual || stats.is_virtual || sink.dims.rank() != rank || rank < 4) return false;
  Dims of_heads = stats.dims;
  of_heads[0] = of_heads[rank - 2] = 1;
  return sink.dims == of_heads && stats.dims[rank - 1] == 1;
}

// Rows without a key, whose statistics are -inf, give a sink no gradient.
Tensor stats_beside_sink(Translator& t, const Tensor& stats) {
  GraphBuilder& g = t.builder();
  return g.binary_select(stats, g.constant(-kLeastScore), g.cmp_gt(stats, g.constant(kLeastScore)));
}

Tensor forward(Translator& t, const Descriptor& op, const Pointwise& attributes, const TensorFacts& made) {
  const double alpha1 = op.real(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, 1),
               alpha2 = op.real(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, 1);
  const Tensor x = t.in(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
  if (attributes.mode == PointwiseMode::gen_index) {
    Attributes index = attributes;
    std::get<Pointwise>(index).compute = index_type(made.dims[static_cast<int>(attributes.axis)]);
    return t.op(index, {x}, made);
  }
  const int operands = info(attributes.mode).inputs;
  if (operands == 1) return t.op(attributes, {t.scaled(x, alpha1)}, made);
  Tensor b = t.in(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
  if (attributes.mode == PointwiseMode::sub)
    b = t.has_matmul && subtracts_stats_of_sink(op) ? stats_beside_sink(t, b)
                                                    : of_rows_with_lengths(t, op, x, b);
  if (attributes.mode == PointwiseMode::mul && Translator::has(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC)) {
    const TensorFacts scale = Translator::facts(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    if (t.pattern.scales.contains(scale.uid) && alpha2 == 1) b = t.presumed_positive(scale);
  }
  if (operands == 3) return t.op(attributes, {x, b, t.in(op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC)}, made);
  const Tensor y = t.op(
      attributes,
      {t.scaled(as_read(t, x, made), alpha1), t.scaled(of_masked_rows(t, attributes.mode, b), alpha2)}, made);
  return of_rows_that_exist(t, attributes, x, b, made, y);
}

void follow_sink(Translator& t, const Descriptor& op, PointwiseMode mode, const Tensor& y) {
  const auto step = [&](cudnnBackendAttributeName_t operand) {
    return Translator::has(op, operand) ? t.sink_step(t.in(op, operand)) : 0;
  };
  const auto x = CUDNN_ATTR_OPERATION_POINTWISE_XDESC, b = CUDNN_ATTR_OPERATION_POINTWISE_BDESC;
  if (mode == PointwiseMode::sub && t.has_matmul && subtracts_stats_of_sink(op)) t.note_sink_step(y, 1);
  if (mode == PointwiseMode::exp && step(x) == 1) t.note_sink_step(y, 2);
  if (mode == PointwiseMode::mul && (step(x) == 2 || step(b) == 2)) t.note_sink_step(y, 3);
}

ReductionMode reduction_of(cudnnReduceTensorOp_t theirs) {
  constexpr ReductionMode kOurs[] = {ReductionMode::add,   ReductionMode::mul,   ReductionMode::min,
                                     ReductionMode::max,   ReductionMode::amax,  ReductionMode::avg,
                                     ReductionMode::norm1, ReductionMode::norm2, ReductionMode::mul_no_zeros};
  return kOurs[static_cast<size_t>(theirs)];
}

}  // namespace

void translate_pointwise(Translator& t, const Descriptor& op) {
  const Descriptor& pointwise = *op.child(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  const Pointwise attributes = attributes_of(pointwise);
  if (is_backward(pointwise.get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE))) {
    const TensorFacts made = Translator::facts(op, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC);
    const Tensor dy = t.scaled(t.in(op, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC),
                               op.real(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, 1));
    const Tensor x = t.in(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
    t.out(op, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, t.op(attributes, {dy, x}, made));
    return;
  }
  const TensorFacts made = Translator::facts(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
  if (attributes.mode == PointwiseMode::gen_index &&
      (attributes.axis < 0 || attributes.axis >= made.dims.rank()))
    refuse(CUDNN_STATUS_BAD_PARAM, "POINTWISE_AXIS {} is no axis of {}", attributes.axis,
           to_string(made.dims));
  const Tensor y = forward(t, op, attributes, made);
  if (attributes.mode == PointwiseMode::log) t.note_logarithm(y);
  follow_sink(t, op, attributes.mode, y);
  t.out(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
}

void translate_reduction(Translator& t, const Descriptor& op) {
  const Descriptor& reduction = *op.child(CUDNN_ATTR_OPERATION_REDUCTION_DESC);
  Reduction attributes;
  attributes.mode = reduction_of(reduction.get<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR));
  attributes.compute = carrier(data_type_of(reduction.get<cudnnDataType_t>(CUDNN_ATTR_REDUCTION_COMP_TYPE)));
  if (attributes.needs_reals() && !is_real(attributes.compute)) attributes.compute = DataType::f32;
  const TensorFacts made = Translator::facts(op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
  const Tensor x = t.in(op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
  Tensor y = t.op(attributes, {x}, made);
  // The graph that clients write gives the gradient of the sink with the other sign, and they expect the
  // right one.
  if (attributes.mode == ReductionMode::add && t.sink_step(x) == 3 && !made.is_virtual) y = t.scaled(y, -1);
  t.out(op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
  if (made.is_virtual || t.is_read(made.uid))
    t.note_reduction(made.is_virtual ? y : t.in(op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC), attributes.mode);
}

}  // namespace fusor::cudnn
