// Owns the translation of block scales and of matmuls by experts.
#include "compat/cudnn/src/translate/translator.h"

namespace fusor::cudnn {

namespace {

// A scale for each element: the element of `scale` at the coordinate divided by the block, along every axis
// that has blocks.
Tensor spread(Translator& t, Tensor scale, const Dims& x) {
  GraphBuilder& g = t.builder();
  if (scale.dims.rank() != x.rank())
    refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "block scales {} of a tensor {}", to_string(scale.dims),
           to_string(x));
  for (int i = 0; i < x.rank(); ++i) {
    if (scale.dims[i] == x[i] || scale.dims[i] == 1) continue;
    const int64_t block = (x[i] + scale.dims[i] - 1) / scale.dims[i];
    const Tensor index = t.numbers_along(i, x.rank(), x[i]);
    scale = g.gather(scale, g.div(index, t.number(block), Translator::whole()), {.axis = i});
  }
  return scale;
}

// The one axis along which there are blocks.
int block_axis(const Dims& x, const Dims& scale) {
  int axis = -1;
  for (int i = 0; i < x.rank() && i < scale.rank(); ++i) {
    if (scale[i] == x[i]) continue;
    if (axis >= 0)
      refuse(CUDNN_STATUS_NOT_SUPPORTED, "blocks of two axes are not quantised: {} with scales {}",
             to_string(x), to_string(scale));
    axis = i;
  }
  return axis < 0 ? x.rank() - 1 : axis;
}

Tensor without_batch(Translator& t, const Tensor& x, int rank) {
  Dims dims = x.dims;
  while (dims.rank() > rank && dims[0] == 1) dims.erase(0);
  return t.reshaped(x, dims);
}

// Weights of every group of tokens: each entry of a batch has groups of all experts.
Tensor for_groups(Translator& t, const Tensor& weights, int64_t groups) {
  if (groups <= weights.dims[0] || groups % weights.dims[0] != 0) return weights;
  const std::vector<Tensor> copies(static_cast<size_t>(groups / weights.dims[0]), weights);
  return t.builder().concatenate(copies, 0);
}

}  // namespace

void translate_block_scale_quantize(Translator& t, const Descriptor& op) {
  const Tensor x = t.in(op, CUDNN_ATTR_OPERATION_BLOCK_SCALE_QUANTIZE_XDESC);
  const TensorFacts y = Translator::facts(op, CUDNN_ATTR_OPERATION_BLOCK_SCALE_QUANTIZE_YDESC),
                    scale = Translator::facts(op, CUDNN_ATTR_OPERATION_BLOCK_SCALE_QUANTIZE_SCALE_DESC);
  BlockScaleOptions options;
  options.block_size = op.get<int32_t>(CUDNN_ATTR_OPERATION_BLOCK_SCALE_QUANTIZE_BLOCK_SIZE);
  options.axis = block_axis(x.dims, scale.dims);
  options.y_type = y.type;
  options.scale_type = scale.type;
  const BlockScaleResults made = t.builder().block_scale_quantize(x, options);
  t.out(op, CUDNN_ATTR_OPERATION_BLOCK_SCALE_QUANTIZE_YDESC, made.y);
  t.out(op, CUDNN_ATTR_OPERATION_BLOCK_SCALE_QUANTIZE_SCALE_DESC, made.scale);
}

void translate_block_scale_dequantize(Translator& t, const Descriptor& op) {
  if (op.get<bool>(CUDNN_ATTR_OPERATION_BLOCK_SCALE_DEQUANTIZE_NEG_SCALE, false))
    refuse(CUDNN_STATUS_NOT_SUPPORTED, "block scales that are negated are not supported");
  const Tensor x = t.in(op, CUDNN_ATTR_OPERATION_BLOCK_SCALE_DEQUANTIZE_XDESC);
  const Tensor scale = spread(t, t.in(op, CUDNN_ATTR_OPERATION_BLOCK_SCALE_DEQUANTIZE_SCALE_DESC), x.dims);
  const TensorFacts made = Translator::facts(op, CUDNN_ATTR_OPERATION_BLOCK_SCALE_DEQUANTIZE_YDESC);
  t.out(op, CUDNN_ATTR_OPERATION_BLOCK_SCALE_DEQUANTIZE_YDESC,
        t.op(Pointwise{.mode = PointwiseMode::mul}, {x, scale}, made));
}

void translate_moe(Translator& t, const Descriptor& op) {
  MoeOptions options;
  switch (op.get<cudnnMoeGroupedMatmulMode_t>(CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_MODE)) {
    case CUDNN_MOE_GROUPED_MATMUL_MODE_NONE:
      options.mode = TokenMode::none;
      break;
    case CUDNN_MOE_GROUPED_MATMUL_MODE_GATHER:
      options.mode = TokenMode::gather;
      break;
    default:
      options.mode = TokenMode::scatter;
  }
  const Tensor tokens = without_batch(t, t.in(op, CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_TOKEN_DESC), 2);
  const Tensor first = t.in(op, CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_FIRST_TOKEN_OFFSET_DESC);
  const Tensor weights =
      for_groups(t, t.in(op, CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_WEIGHT_DESC), element_count(first.dims));
  const Tensor index = t.in(op, CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_TOKEN_INDEX_DESC);
  if (!index.name.empty()) options.token_index = t.reshaped(index, {element_count(index.dims)});
  options.top_k = op.get<int32_t>(CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_TOP_K, 1);
  const TensorFacts made = Translator::facts(op, CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_OUTPUT_DESC);
  options.type = Translator::asked_type(made);
  t.out(op, CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_OUTPUT_DESC,
        t.builder().moe_grouped_matmul(tokens, weights, t.reshaped(first, {weights.dims[0], 1, 1}), options));
}

}  // namespace fusor::cudnn
