// Owns the calls on descriptors of tensors and filters.
#include <algorithm>

#include "compat/cudnn/src/legacy/objects.h"
#include "compat/cudnn/src/translate/translator.h"

namespace fusor::cudnn {

Dims read_dims(const int* list, int count, const char* what) {
  if (list == nullptr) refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "{} is null", what);
  if (count < 0 || count > kMaxRank)
    refuse(CUDNN_STATUS_BAD_PARAM, "{}: {} entries; 0 to 8 are supported", what, count);
  Dims dims;
  for (int i = 0; i < count; ++i) dims.push_back(list[i]);
  return dims;
}

Dims strides_of(cudnnTensorFormat_t format, const Dims& dims) {
  if (format == CUDNN_TENSOR_NCHW_VECT_C)
    refuse(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT, "vectors of channels are not supported");
  return packed_strides(dims, format == CUDNN_TENSOR_NHWC ? Layout::nhwc : Layout::row_major);
}

TensorObject FilterObject::tensor() const { return {type, dims, strides_of(format, dims)}; }

namespace {

void expect_extents(const Dims& dims, const char* what) {
  for (const int64_t extent : dims)
    if (extent < 1) refuse(CUDNN_STATUS_BAD_PARAM, "{} {} has an extent below 1", what, to_string(dims));
}

void set_tensor(cudnnTensorDescriptor_t pointer, cudnnDataType_t type, const Dims& dims,
                const Dims& strides) {
  const auto tensor = object_at<TensorObject>(pointer);
  data_type_of(type);
  if (dims.empty()) refuse(CUDNN_STATUS_BAD_PARAM, "a tensor without dims");
  expect_extents(dims, "a tensor");
  *tensor = {type, dims, strides};
}

void set_filter(cudnnFilterDescriptor_t pointer, cudnnDataType_t type, cudnnTensorFormat_t format,
                const Dims& dims) {
  const auto filter = object_at<FilterObject>(pointer);
  const bool is_vector = type == CUDNN_DATA_INT8x4 || type == CUDNN_DATA_INT8x32;
  data_type_of(is_vector ? CUDNN_DATA_INT8 : type);
  if (dims.rank() < 3) refuse(CUDNN_STATUS_BAD_PARAM, "a filter of {} dims", dims.rank());
  expect_extents(dims, "a filter");
  *filter = {type, format, dims};
}

template <class Value>
void tell(Value* place, Value value) {
  if (place != nullptr) *place = value;
}

void tell_dims(int* place, const Dims& dims, int most) {
  if (place == nullptr) return;
  for (int i = 0; i < std::min(dims.rank(), most); ++i) place[i] = static_cast<int>(dims[i]);
}

}  // namespace
}  // namespace fusor::cudnn

using namespace fusor::cudnn;  // NOLINT(google-build-using-namespace)
using fusor::Dims;

extern "C" {

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* tensor) {
  return guarded("cudnnCreateTensorDescriptor", [&] { create_object<TensorObject>(tensor); });
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor) {
  return guarded("cudnnDestroyTensorDescriptor", [&] { registry<TensorObject>().remove(tensor); });
}

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
  return guarded("cudnnSetTensor4dDescriptor", [&] {
    const Dims dims{n, c, h, w};
    set_tensor(tensor, type, dims, strides_of(format, dims));
  });
}

cudnnStatus_t cudnnSetTensor4dDescriptorEx(cudnnTensorDescriptor_t tensor, cudnnDataType_t type, int n, int c,
                                           int h, int w, int n_stride, int c_stride, int h_stride,
                                           int w_stride) {
  return guarded("cudnnSetTensor4dDescriptorEx", [&] {
    set_tensor(tensor, type, {n, c, h, w}, {n_stride, c_stride, h_stride, w_stride});
  });
}

cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t tensor, cudnnDataType_t type, int count,
                                         const int dims[], const int strides[]) {
  return guarded("cudnnSetTensorNdDescriptor", [&] {
    set_tensor(tensor, type, read_dims(dims, count, "dimA"), read_dims(strides, count, "strideA"));
  });
}

cudnnStatus_t cudnnSetTensorNdDescriptorEx(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                           cudnnDataType_t type, int count, const int list[]) {
  return guarded("cudnnSetTensorNdDescriptorEx", [&] {
    const Dims dims = read_dims(list, count, "dimA");
    expect_extents(dims, "a tensor");
    set_tensor(tensor, type, dims, strides_of(format, dims));
  });
}

cudnnStatus_t cudnnGetTensorNdDescriptor(const cudnnTensorDescriptor_t tensor, int requested,
                                         cudnnDataType_t* type, int* count, int dims[], int strides[]) {
  return guarded("cudnnGetTensorNdDescriptor", [&] {
    const auto object = object_at<TensorObject>(tensor);
    tell(type, object->type);
    tell(count, object->dims.rank());
    tell_dims(dims, object->dims, requested);
    tell_dims(strides, object->strides, requested);
  });
}

cudnnStatus_t cudnnGetTensorSizeInBytes(const cudnnTensorDescriptor_t tensor, size_t* size) {
  return guarded("cudnnGetTensorSizeInBytes", [&] {
    const auto object = object_at<TensorObject>(tensor);
    place_of(size, "size") = static_cast<size_t>(fusor::span_elements(object->dims, object->strides) *
                                                 fusor::byte_size(data_type_of(object->type)));
  });
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* filter) {
  return guarded("cudnnCreateFilterDescriptor", [&] { create_object<FilterObject>(filter); });
}

cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter) {
  return guarded("cudnnDestroyFilterDescriptor", [&] { registry<FilterObject>().remove(filter); });
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  return guarded("cudnnSetFilter4dDescriptor", [&] { set_filter(filter, type, format, {k, c, h, w}); });
}

cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int count, const int dims[]) {
  return guarded("cudnnSetFilterNdDescriptor",
                 [&] { set_filter(filter, type, format, read_dims(dims, count, "filterDimA")); });
}

cudnnStatus_t cudnnGetFilterNdDescriptor(const cudnnFilterDescriptor_t filter, int requested,
                                         cudnnDataType_t* type, cudnnTensorFormat_t* format, int* count,
                                         int dims[]) {
  return guarded("cudnnGetFilterNdDescriptor", [&] {
    const auto object = object_at<FilterObject>(filter);
    tell(type, object->type);
    tell(format, object->format);
    tell(count, object->dims.rank());
    tell_dims(dims, object->dims, requested);
  });
}

}  // extern "C"
