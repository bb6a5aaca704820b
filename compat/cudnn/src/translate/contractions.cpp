// Owns the translation of matmuls and convolutions.
#include "compat/cudnn/src/translate/translator.h"

namespace fusor::cudnn {

namespace {

DataType compute_of(const Descriptor& part, cudnnBackendAttributeName_t attribute) {
  return sum_type_of(part.get<cudnnDataType_t>(attribute));
}

Dims list_of(const Descriptor& part, cudnnBackendAttributeName_t attribute, int64_t count) {
  const std::vector<int64_t> list = part.list<int64_t>(attribute);
  if (static_cast<int64_t>(list.size()) < count)
    refuse(CUDNN_STATUS_BAD_PARAM, "{} has {} entries for {} spatial dims", part.row().find(attribute)->words,
           list.size(), count);
  return Dims(std::span(list).first(static_cast<size_t>(count)));
}

Conv conv_of(const Descriptor& conv, ConvPass pass) {
  const auto spatial = conv.get<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
  if (spatial < 1 || spatial > 3)
    refuse(CUDNN_STATUS_NOT_SUPPORTED_SHAPE, "a convolution of {} spatial dims; 1 to 3 are supported",
           spatial);
  Conv attributes;
  attributes.pass = pass;
  attributes.pre_padding = list_of(conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, spatial);
  attributes.post_padding = list_of(conv, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, spatial);
  attributes.stride = list_of(conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, spatial);
  attributes.dilation = list_of(conv, CUDNN_ATTR_CONVOLUTION_DILATIONS, spatial);
  const bool mirrors =
      conv.get<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) == CUDNN_CONVOLUTION;
  attributes.mode = mirrors ? ConvMode::convolution : ConvMode::cross_correlation;
  attributes.compute = compute_of(conv, CUDNN_ATTR_CONVOLUTION_COMP_TYPE);
  return attributes;
}

struct ConvNames {
  cudnnBackendAttributeName_t first, second, result, conv, alpha, beta;
};

void translate_conv(Translator& t, const Descriptor& op, ConvPass pass, const ConvNames& names) {
  const double beta = op.real(names.beta, 0);
  if (beta != 0)
    refuse(CUDNN_STATUS_NOT_SUPPORTED,
           "{} is {}: a convolution that adds to what its result held is not supported",
           op.row().find(names.beta)->words, beta);
  const TensorFacts made = Translator::facts(op, names.result);
  const Tensor y =
      t.op(conv_of(*op.child(names.conv), pass), {t.in(op, names.first), t.in(op, names.second)}, made);
  t.out(op, names.result, t.scaled(y, op.real(names.alpha, 1)));
}

// Batches where one operand has a multiple of the other's entries: groups of neighbours share an entry. The
// axis is split, so that the shared part is an axis of one entry.
struct Groups {
  int axis = -1;
  int64_t entries = 1, of_a = 1, of_b = 1;
};

Groups groups_of(const Dims& a, const Dims& b) {
  for (int i = 0; i < a.rank() - 2; ++i) {
    if (a[i] == b[i] || a[i] == 1 || b[i] == 1) continue;
    const int64_t entries = std::min(a[i], b[i]);
    if (std::max(a[i], b[i]) % entries != 0)
      refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "batches {} and {} of a matmul do not fit", to_string(a),
             to_string(b));
    return {i, entries, a[i] / entries, b[i] / entries};
  }
  return {};
}

Tensor split(Translator& t, const Tensor& x, const Groups& groups, int64_t members) {
  Dims dims = x.dims;
  dims[groups.axis] = groups.entries;
  dims.insert(groups.axis + 1, members);
  return t.reshaped(x, dims);
}

// Lengths of a matmul whose batch was split.
Tensor lengths_of(Translator& t, const Descriptor& op, cudnnBackendAttributeName_t name,
                  const Groups& groups) {
  const Tensor lengths = t.in(op, name);
  if (lengths.name.empty() || groups.axis < 0 || lengths.dims.rank() <= groups.axis) return lengths;
  if (lengths.dims[groups.axis] == 1) return split(t, lengths, {groups.axis, 1, 1, 1}, 1);
  return split(t, lengths, groups, lengths.dims[groups.axis] / groups.entries);
}

// Rows behind a length are 0.
Tensor with_rows(Translator& t, const Tensor& c, const Tensor& lengths) {
  GraphBuilder& g = t.builder();
  const int axis = c.dims.rank() - 2;
  return g.binary_select(c, g.constant(0),
                         g.cmp_lt(t.numbers_along(axis, c.dims.rank(), c.dims[axis]), lengths),
                         {.type = c.type});
}

Tensor product(Translator& t, const Descriptor& op, const Tensor& a, const Tensor& b, const Groups& groups,
               const TensorFacts& made) {
  const Descriptor& matmul = *op.child(CUDNN_ATTR_OPERATION_MATMUL_DESC);
  const Tensor m = lengths_of(t, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, groups),
               n = lengths_of(t, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, groups),
               k = lengths_of(t, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, groups);
  const bool has_lengths = !t.hides_missing_rows && (!m.name.empty() || !n.name.empty() || !k.name.empty());
  const Tensor rows = t.in(op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC);
  if (t.row_lengths.name.empty()) t.row_lengths = rows;
  if (!has_lengths) {
    const Tensor c = t.op(Matmul{compute_of(matmul, CUDNN_ATTR_MATMUL_COMP_TYPE)}, {a, b}, made);
    const bool is_of_scores =
        t.pattern.of_scores.contains(Translator::facts(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC).uid);
    return t.presumes || m.name.empty() || !is_of_scores ? c : with_rows(t, c, m);
  }
  MatmulLengths attributes;
  attributes.padding = matmul.get<double>(CUDNN_ATTR_MATMUL_PADDING_VALUE, 0.0);
  return t.op(attributes, {a, b, m, n, k}, made);
}

}  // namespace

void translate_conv_forward(Translator& t, const Descriptor& op) {
  translate_conv(
      t, op, ConvPass::fprop,
      {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA});
}

void translate_conv_backward_data(Translator& t, const Descriptor& op) {
  translate_conv(
      t, op, ConvPass::dgrad,
      {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA});
}

void translate_conv_backward_filter(Translator& t, const Descriptor& op) {
  translate_conv(
      t, op, ConvPass::wgrad,
      {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA});
}

void translate_matmul(Translator& t, const Descriptor& op) {
  Tensor a = t.in(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC), b = t.in(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
  TensorFacts declared = Translator::facts(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
  // Gradients on their way to a result are converted, or summed over heads, as they are.
  if (t.pattern.between.contains(declared.uid)) {
    declared.is_virtual = true;
    declared.type = DataType::f32;
  }
  const Groups groups = a.dims.rank() == b.dims.rank() ? groups_of(a.dims, b.dims) : Groups{};
  TensorFacts made = declared;
  if (groups.axis >= 0) {
    a = split(t, a, groups, groups.of_a);
    b = split(t, b, groups, groups.of_b);
    made.dims[groups.axis] = groups.entries;
    made.dims.insert(groups.axis + 1, std::max(groups.of_a, groups.of_b));
  }
  const Tensor c = product(t, op, a, b, groups, made);
  if (declared.is_virtual)
    t.out(declared, c);
  else
    t.out(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
}

}  // namespace fusor::cudnn
