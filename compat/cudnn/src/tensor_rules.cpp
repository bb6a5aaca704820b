// Owns the checks behind finalize of small descriptors.
#include "compat/cudnn/src/tensor_rules.h"

namespace fusor::cudnn {

void finalize_tensor(Descriptor& d) {
  const auto dims = d.list<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  const auto strides = d.list<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  if (dims.size() != strides.size())
    refuse(CUDNN_STATUS_BAD_PARAM, "a tensor of {} dims has {} strides", dims.size(), strides.size());
  for (const int64_t extent : dims)
    if (extent < 1) refuse(CUDNN_STATUS_BAD_PARAM, "a tensor has the extent {}", extent);
  for (const int64_t stride : strides)
    if (stride < 0) refuse(CUDNN_STATUS_NOT_SUPPORTED, "a tensor has the stride {}", stride);
  const auto alignment = d.get<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 16);
  if (alignment < 1) refuse(CUDNN_STATUS_BAD_PARAM, "a tensor has the alignment {}", alignment);
}

void finalize_convolution(Descriptor& d) {
  const auto spatial = d.get<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
  for (const auto name : {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS,
                          CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES})
    if (d.find(name)->count != spatial)
      refuse(CUDNN_STATUS_BAD_PARAM, "{} has {} entries for {} spatial dims", d.row().find(name)->words,
             d.find(name)->count, spatial);
}

void finalize_pointwise_operation(Descriptor& d) {
  const auto mode = d.child(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)
                        ->get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
  const auto expect = [&](cudnnBackendAttributeName_t name) {
    if (!d.has(name))
      refuse(CUDNN_STATUS_BAD_PARAM, "pointwise mode {} needs {}", static_cast<int>(mode),
             d.row().find(name)->words);
  };
  const bool is_backward = mode >= CUDNN_POINTWISE_RELU_BWD && mode <= CUDNN_POINTWISE_GELU_APPROX_TANH_BWD;
  expect(CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
  expect(is_backward ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC : CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
  if (is_backward) expect(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC);
  const bool has_two = mode < CUDNN_POINTWISE_SQRT || mode == CUDNN_POINTWISE_ADD_SQUARE ||
                       (mode >= CUDNN_POINTWISE_ADD_SQUARE && mode <= CUDNN_POINTWISE_SUB) ||
                       mode == CUDNN_POINTWISE_ATAN2 ||
                       (mode >= CUDNN_POINTWISE_CMP_EQ && mode <= CUDNN_POINTWISE_LOGICAL_OR) ||
                       mode == CUDNN_POINTWISE_BINARY_SELECT;
  if (has_two) expect(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
  if (mode == CUDNN_POINTWISE_BINARY_SELECT) expect(CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
}

}  // namespace fusor::cudnn
