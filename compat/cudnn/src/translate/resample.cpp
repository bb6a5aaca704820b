// Owns the translation of pooling and interpolation.
#include "compat/cudnn/src/translate/translator.h"

namespace fusor::cudnn {

namespace {

Dims whole_numbers(const Descriptor& part, cudnnBackendAttributeName_t attribute, int spatial) {
  Dims list;
  for (const cudnnFraction_t& fraction : part.list<cudnnFraction_t>(attribute)) {
    if (fraction.denominator == 0 || fraction.numerator % fraction.denominator != 0)
      refuse(CUDNN_STATUS_NOT_SUPPORTED, "{}: {}/{} is not a whole number", part.row().find(attribute)->words,
             fraction.numerator, fraction.denominator);
    if (list.rank() < spatial) list.push_back(fraction.numerator / fraction.denominator);
  }
  if (list.rank() < spatial)
    refuse(CUDNN_STATUS_BAD_PARAM, "{} has {} entries for {} spatial dims", part.row().find(attribute)->words,
           list.rank(), spatial);
  return list;
}

ResampleMode mode_of(cudnnResampleMode_t mode) {
  switch (static_cast<int>(mode)) {
    case CUDNN_RESAMPLE_NEAREST:
      return ResampleMode::nearest;
    case CUDNN_RESAMPLE_BILINEAR:
      return ResampleMode::bilinear;
    case CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING:
      return ResampleMode::avgpool_include_padding;
    case CUDNN_RESAMPLE_MAXPOOL:
      return ResampleMode::maxpool;
    default:
      return ResampleMode::avgpool_exclude_padding;
  }
}

bool pads(const Dims& padding) {
  for (const int64_t width : padding)
    if (width != 0) return true;
  return false;
}

ResampleOptions options_of(const Descriptor& resample, const Dims& x, const Dims& y) {
  const auto spatial = static_cast<int>(resample.get<int64_t>(CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS));
  if (spatial < 1 || spatial > 3 || spatial != x.rank() - 2)
    refuse(CUDNN_STATUS_NOT_SUPPORTED_SHAPE, "a resample of {} spatial dims over {}", spatial, to_string(x));
  ResampleOptions options;
  options.mode = mode_of(resample.get<cudnnResampleMode_t>(CUDNN_ATTR_RESAMPLE_MODE));
  if (options.mode == ResampleMode::nearest || options.mode == ResampleMode::bilinear) {
    for (int i = 2; i < y.rank(); ++i) options.output_size.push_back(y[i]);
    return options;
  }
  options.window = whole_numbers(resample, CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, spatial);
  options.stride = whole_numbers(resample, CUDNN_ATTR_RESAMPLE_STRIDES, spatial);
  options.pre_padding = whole_numbers(resample, CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, spatial);
  options.post_padding = whole_numbers(resample, CUDNN_ATTR_RESAMPLE_POST_PADDINGS, spatial);
  const auto padding = resample.get<cudnnPaddingMode_t>(CUDNN_ATTR_RESAMPLE_PADDING_MODE, CUDNN_ZERO_PAD);
  const bool is_padded = pads(options.pre_padding) || pads(options.post_padding);
  const bool is_maximum = options.mode == ResampleMode::maxpool;
  if (is_padded && padding == CUDNN_EDGE_VAL_PAD)
    refuse(CUDNN_STATUS_NOT_SUPPORTED_PADDING, "padding by the edge's values is not supported");
  if (is_padded && is_maximum && padding == CUDNN_ZERO_PAD)
    refuse(CUDNN_STATUS_NOT_SUPPORTED_PADDING, "a maximum over padding of zeros is not supported; -inf is");
  return options;
}

void expect_plain(double alpha, double beta) {
  if (alpha != 1 || beta != 0)
    refuse(CUDNN_STATUS_NOT_SUPPORTED, "a resample with factors {} and {}; 1 and 0 are supported", alpha,
           beta);
}

}  // namespace

void translate_resample_forward(Translator& t, const Descriptor& op) {
  expect_plain(op.real(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_ALPHA, 1),
               op.real(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_BETA, 0));
  const Tensor x = t.in(op, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC);
  const TensorFacts made = Translator::facts(op, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC);
  ResampleOptions options = options_of(*op.child(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC), x.dims, made.dims);
  options.type = Translator::asked_type(made);
  const ResampleResults results = t.builder().resample_fwd(x, options);
  t.out(op, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, results.y);
  if (Translator::has(op, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC))
    t.out(op, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC, results.index);
}

void translate_resample_backward(Translator& t, const Descriptor& op) {
  expect_plain(op.real(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_ALPHA, 1),
               op.real(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_BETA, 0));
  const Tensor dy = t.in(op, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC);
  const TensorFacts made = Translator::facts(op, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC);
  ResampleOptions options = options_of(*op.child(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC), made.dims, dy.dims);
  options.type = Translator::asked_type(made);
  const bool is_maximum = options.mode == ResampleMode::maxpool;
  const bool has_index = Translator::has(op, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_IDXDESC);
  const Tensor x = is_maximum && !has_index ? t.in(op, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_XDESC) : Tensor{};
  const Tensor index =
      is_maximum && has_index ? t.in(op, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_IDXDESC) : Tensor{};
  t.out(op, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC,
        t.builder().resample_bwd(dy, made.dims, options, x, index));
}

}  // namespace fusor::cudnn
