// Owns the descriptors of single calls: plain values behind pointers that are checked.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "compat/cudnn/include/cudnn.h"
#include "compat/cudnn/src/registry.h"
#include "core/data_type.h"
#include "core/dims.h"

namespace fusor::cudnn {

struct TensorObject {
  static constexpr const char* kWhat = "tensor descriptor";
  using Pointer = cudnnTensorDescriptor_t;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  Dims dims, strides;
};

struct FilterObject {
  static constexpr const char* kWhat = "filter descriptor";
  using Pointer = cudnnFilterDescriptor_t;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW;
  Dims dims;
  /// As a tensor in memory.
  TensorObject tensor() const;
};

struct ActivationObject {
  static constexpr const char* kWhat = "activation descriptor";
  using Pointer = cudnnActivationDescriptor_t;
  cudnnActivationMode_t mode = CUDNN_ACTIVATION_IDENTITY;
  cudnnNanPropagation_t nan = CUDNN_NOT_PROPAGATE_NAN;
  double coefficient = 0;
};

struct PoolingObject {
  static constexpr const char* kWhat = "pooling descriptor";
  using Pointer = cudnnPoolingDescriptor_t;
  cudnnPoolingMode_t mode = CUDNN_POOLING_MAX;
  Dims window, padding, stride;
};

struct ConvolutionObject {
  static constexpr const char* kWhat = "convolution descriptor";
  using Pointer = cudnnConvolutionDescriptor_t;
  Dims padding, stride, dilation;
  cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
  int groups = 1;
};

struct DropoutObject {
  static constexpr const char* kWhat = "dropout descriptor";
  using Pointer = cudnnDropoutDescriptor_t;
  float probability = 0;
  /// The client's memory: the seed, then how many layers have drawn random numbers. On the device, so that
  /// every launch of a CUDA graph draws others.
  std::byte* states = nullptr;
  static constexpr size_t kNextOffset = sizeof(int64_t);
  static constexpr size_t kBytes = 2 * sizeof(int64_t);
};

struct TransformerObject {
  static constexpr const char* kWhat = "spatial transformer descriptor";
  using Pointer = cudnnSpatialTransformerDescriptor_t;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  Dims dims;  ///< of the result: [N, C, rows, columns]
};

template <class Object>
std::shared_ptr<Object> object_at(const void* pointer) {
  return registry<Object>().find(pointer);
}

template <class Object>
void create_object(typename Object::Pointer* place) {
  if (place == nullptr)
    refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the place of the {} is null", Object::kWhat);
  *place = static_cast<typename Object::Pointer>(registry<Object>().add(std::make_shared<Object>()));
}

template <class Value>
Value& place_of(Value* pointer, const char* what) {
  if (pointer == nullptr) refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "{} is null", what);
  return *pointer;
}

/// `count` numbers of an array of the client; throws where it is null, or where they are more than a tensor
/// has axes.
Dims read_dims(const int* list, int count, const char* what);
/// Strides of a packed tensor in that order.
Dims strides_of(cudnnTensorFormat_t format, const Dims& dims);

}  // namespace fusor::cudnn
