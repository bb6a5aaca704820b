// Owns the small layers as single calls: activation, softmax, pooling, and the descriptors of dropout.
#include <cstdint>
#include <limits>

#include "compat/cudnn/src/legacy/cached_plan.h"

namespace fusor::cudnn {
namespace {

enum Number { kX, kY, kDy, kDx };

struct Mode {
  PointwiseMode forward, backward;
  PointwiseOptions options;
};

Mode mode_of(const ActivationObject& activation) {
  using enum PointwiseMode;
  switch (activation.mode) {
    case CUDNN_ACTIVATION_SIGMOID:
      return {sigmoid, sigmoid_bwd, {}};
    case CUDNN_ACTIVATION_RELU:
      return {relu, relu_bwd, {}};
    case CUDNN_ACTIVATION_TANH:
      return {tanh, tanh_bwd, {}};
    case CUDNN_ACTIVATION_CLIPPED_RELU:
      return {relu, relu_bwd, {.upper_clip = activation.coefficient}};
    case CUDNN_ACTIVATION_ELU:
      return {elu, elu_bwd, {.elu_alpha = activation.coefficient}};
    case CUDNN_ACTIVATION_SWISH:
      return {swish, swish_bwd, {}};
    default:
      refuse(CUDNN_STATUS_NOT_SUPPORTED, "activation {} is not supported", static_cast<int>(activation.mode));
  }
}

ResampleOptions options_of(const PoolingObject& pooling) {
  ResampleOptions options;
  options.mode =
      pooling.mode == CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING   ? ResampleMode::avgpool_include_padding
      : pooling.mode == CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING ? ResampleMode::avgpool_exclude_padding
                                                                    : ResampleMode::maxpool;
  options.window = pooling.window;
  options.stride = pooling.stride;
  options.pre_padding = options.post_padding = pooling.padding;
  return options;
}

PlanKey key_of(const char* call, const PoolingObject& pooling) {
  return PlanKey(call)
      .add(int64_t{pooling.mode})
      .add(pooling.window)
      .add(pooling.padding)
      .add(pooling.stride);
}

void set_pooling(cudnnPoolingDescriptor_t pointer, cudnnPoolingMode_t mode, const Dims& window,
                 const Dims& padding, const Dims& stride) {
  const auto pooling = object_at<PoolingObject>(pointer);
  for (int i = 0; i < window.rank(); ++i)
    if (window[i] < 1 || stride[i] < 1 || padding[i] < 0)
      refuse(CUDNN_STATUS_BAD_PARAM, "pooling over windows {} by {} with padding {}", to_string(window),
             to_string(stride), to_string(padding));
  *pooling = {mode, window, padding, stride};
}

// A row of a softmax: one pixel's channels, or all of a sample.
Tensor rows(Sketch& s, const Tensor& x, cudnnSoftmaxMode_t mode) {
  return mode == CUDNN_SOFTMAX_MODE_CHANNEL ? x
                                            : s.g.reshape(x, {x.dims[0], element_count(x.dims) / x.dims[0]});
}

void expect_softmax(const TensorObject& x) {
  if (x.dims.rank() < 2) refuse(CUDNN_STATUS_BAD_PARAM, "softmax over {}", to_string(x.dims));
}

// The states begin on a multiple of their numbers' size.
std::byte* states_in(void* memory, size_t bytes) {
  constexpr size_t kStep = sizeof(int64_t);
  if (memory == nullptr) return nullptr;
  if (bytes < DropoutObject::kBytes + kStep)
    refuse(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "dropout states of {} bytes; {} are needed", bytes,
           DropoutObject::kBytes + kStep);
  auto* const start = static_cast<std::byte*>(memory);
  return start + (kStep - reinterpret_cast<uintptr_t>(memory) % kStep) % kStep;
}

std::byte* set_dropout(cudnnDropoutDescriptor_t dropout, float probability, void* memory, size_t bytes) {
  if (!(probability >= 0 && probability <= 1)) refuse(CUDNN_STATUS_BAD_PARAM, "dropout of {}", probability);
  const auto object = object_at<DropoutObject>(dropout);
  std::byte* const states = states_in(memory, bytes);
  object->probability = probability;
  if (states != nullptr) object->states = states;  // without them, those that were lent before stay
  return states;
}

void begin_states(Handle& handle, std::byte* states, int64_t seed) {
  enum Numbers { kSeed, kNext, kSeedIs, kNextIs };
  const auto plan = plan_for(handle, PlanKey("dropout states"), Precision::exact, [](Sketch& s) {
    s.keep(kSeed, s.scalar(kSeedIs, DataType::i64));
    s.keep(kNext, s.scalar(kNextIs, DataType::i64));
  });
  const int64_t next = 0;
  Bindings bindings;
  bindings.bind(kSeed, states).bind(kNext, states + DropoutObject::kNextOffset);
  run_call(handle, *plan, bindings.bind(kSeedIs, &seed).bind(kNextIs, &next));
}

}  // namespace
}  // namespace fusor::cudnn

using namespace fusor::cudnn;  // NOLINT(google-build-using-namespace)
using fusor::Precision;

extern "C" {

// --- activation --------------------------------------------------------------------------------------------

cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t* activation) {
  return guarded("cudnnCreateActivationDescriptor", [&] { create_object<ActivationObject>(activation); });
}

cudnnStatus_t cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t activation) {
  return guarded("cudnnDestroyActivationDescriptor",
                 [&] { registry<ActivationObject>().remove(activation); });
}

cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t activation, cudnnActivationMode_t mode,
                                           cudnnNanPropagation_t nan, double coefficient) {
  return guarded("cudnnSetActivationDescriptor", [&] {
    const auto object = object_at<ActivationObject>(activation);
    if (mode < CUDNN_ACTIVATION_SIGMOID || mode > CUDNN_ACTIVATION_SWISH)
      refuse(CUDNN_STATUS_BAD_PARAM, "{} is no activation", static_cast<int>(mode));
    *object = {mode, nan, coefficient};
  });
}

cudnnStatus_t cudnnGetActivationDescriptor(const cudnnActivationDescriptor_t activation,
                                           cudnnActivationMode_t* mode, cudnnNanPropagation_t* nan,
                                           double* coefficient) {
  return guarded("cudnnGetActivationDescriptor", [&] {
    const auto object = object_at<ActivationObject>(activation);
    place_of(mode, "mode") = object->mode;
    place_of(nan, "reluNanOpt") = object->nan;
    place_of(coefficient, "coef") = object->coefficient;
  });
}

cudnnStatus_t cudnnActivationForward(cudnnHandle_t handle, cudnnActivationDescriptor_t activation,
                                     const void* alpha, const cudnnTensorDescriptor_t x, const void* x_data,
                                     const void* beta, const cudnnTensorDescriptor_t y, void* y_data) {
  return guarded("cudnnActivationForward", [&] {
    const auto object = handle_at(handle);
    const ActivationObject kind = *object_at<ActivationObject>(activation);
    const TensorObject from = *object_at<TensorObject>(x), to = *object_at<TensorObject>(y);
    const double a = factor_at(alpha, from.type), b = factor_at(beta, from.type);
    const PlanKey key =
        PlanKey("activation").add(int64_t{kind.mode}).add(kind.coefficient).add(from).add(to).add(a).add(b);
    const auto plan = plan_for(*object, key, Precision::exact, [&](Sketch& s) {
      const Mode mode = mode_of(kind);
      s.output(kY, s.g.pointwise(mode.forward, {s.input(kX, from)}, mode.options), to, a, b);
    });
    run_call(*object, *plan, Bindings().bind(kX, x_data).bind(kY, y_data).bind(Sketch::held(kY), y_data));
  });
}

cudnnStatus_t cudnnActivationBackward(cudnnHandle_t handle, cudnnActivationDescriptor_t activation,
                                      const void* alpha, const cudnnTensorDescriptor_t, const void*,
                                      const cudnnTensorDescriptor_t dy, const void* dy_data,
                                      const cudnnTensorDescriptor_t x, const void* x_data, const void* beta,
                                      const cudnnTensorDescriptor_t dx, void* dx_data) {
  return guarded("cudnnActivationBackward", [&] {
    const auto object = handle_at(handle);
    const ActivationObject kind = *object_at<ActivationObject>(activation);
    const TensorObject from = *object_at<TensorObject>(x), gradient = *object_at<TensorObject>(dy),
                       to = *object_at<TensorObject>(dx);
    const double a = factor_at(alpha, from.type), b = factor_at(beta, from.type);
    const PlanKey key = PlanKey("activation backward")
                            .add(int64_t{kind.mode})
                            .add(kind.coefficient)
                            .add(from)
                            .add(gradient)
                            .add(to)
                            .add(a)
                            .add(b);
    const auto plan = plan_for(*object, key, Precision::exact, [&](Sketch& s) {
      const Mode mode = mode_of(kind);
      s.output(kDx, s.g.pointwise(mode.backward, {s.input(kDy, gradient), s.input(kX, from)}, mode.options),
               to, a, b);
    });
    Bindings bindings;
    bindings.bind(kX, x_data).bind(kDy, dy_data).bind(kDx, dx_data).bind(Sketch::held(kDx), dx_data);
    run_call(*object, *plan, bindings);
  });
}

// --- softmax -----------------------------------------------------------------------------------------------

cudnnStatus_t cudnnSoftmaxForward(cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algorithm,
                                  cudnnSoftmaxMode_t mode, const void* alpha, const cudnnTensorDescriptor_t x,
                                  const void* x_data, const void* beta, const cudnnTensorDescriptor_t y,
                                  void* y_data) {
  return guarded("cudnnSoftmaxForward", [&] {
    const auto object = handle_at(handle);
    const TensorObject from = *object_at<TensorObject>(x), to = *object_at<TensorObject>(y);
    expect_softmax(from);
    const double a = factor_at(alpha, from.type), b = factor_at(beta, from.type);
    const bool log = algorithm == CUDNN_SOFTMAX_LOG;
    const PlanKey key =
        PlanKey("softmax").add(int64_t{log}).add(int64_t{mode}).add(from).add(to).add(a).add(b);
    const auto plan = plan_for(*object, key, Precision::exact, [&](Sketch& s) {
      const fusor::Tensor made = s.g.softmax(rows(s, s.input(kX, from), mode), {.axis = 1, .log = log}).y;
      s.output(kY, s.g.reshape(made, to.dims), to, a, b);
    });
    run_call(*object, *plan, Bindings().bind(kX, x_data).bind(kY, y_data).bind(Sketch::held(kY), y_data));
  });
}

cudnnStatus_t cudnnSoftmaxBackward(cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algorithm,
                                   cudnnSoftmaxMode_t mode, const void* alpha,
                                   const cudnnTensorDescriptor_t y, const void* y_data,
                                   const cudnnTensorDescriptor_t dy, const void* dy_data, const void* beta,
                                   const cudnnTensorDescriptor_t dx, void* dx_data) {
  return guarded("cudnnSoftmaxBackward", [&] {
    const auto object = handle_at(handle);
    const TensorObject from = *object_at<TensorObject>(y), gradient = *object_at<TensorObject>(dy),
                       to = *object_at<TensorObject>(dx);
    expect_softmax(from);
    const double a = factor_at(alpha, from.type), b = factor_at(beta, from.type);
    const bool log = algorithm == CUDNN_SOFTMAX_LOG;
    const PlanKey key = PlanKey("softmax backward")
                            .add(int64_t{log})
                            .add(int64_t{mode})
                            .add(from)
                            .add(gradient)
                            .add(to)
                            .add(a)
                            .add(b);
    const auto plan = plan_for(*object, key, Precision::exact, [&](Sketch& s) {
      const fusor::Tensor made = s.g.softmax_bwd(rows(s, s.input(kDy, gradient), mode),
                                                 rows(s, s.input(kY, from), mode), {.axis = 1, .log = log})
                                     .dx;
      s.output(kDx, s.g.reshape(made, to.dims), to, a, b);
    });
    Bindings bindings;
    bindings.bind(kY, y_data).bind(kDy, dy_data).bind(kDx, dx_data).bind(Sketch::held(kDx), dx_data);
    run_call(*object, *plan, bindings);
  });
}

// --- pooling -----------------------------------------------------------------------------------------------

cudnnStatus_t cudnnCreatePoolingDescriptor(cudnnPoolingDescriptor_t* pooling) {
  return guarded("cudnnCreatePoolingDescriptor", [&] { create_object<PoolingObject>(pooling); });
}

cudnnStatus_t cudnnDestroyPoolingDescriptor(cudnnPoolingDescriptor_t pooling) {
  return guarded("cudnnDestroyPoolingDescriptor", [&] { registry<PoolingObject>().remove(pooling); });
}

cudnnStatus_t cudnnSetPooling2dDescriptor(cudnnPoolingDescriptor_t pooling, cudnnPoolingMode_t mode,
                                          cudnnNanPropagation_t, int window_height, int window_width,
                                          int vertical_padding, int horizontal_padding, int vertical_stride,
                                          int horizontal_stride) {
  return guarded("cudnnSetPooling2dDescriptor", [&] {
    set_pooling(pooling, mode, {window_height, window_width}, {vertical_padding, horizontal_padding},
                {vertical_stride, horizontal_stride});
  });
}

cudnnStatus_t cudnnSetPoolingNdDescriptor(cudnnPoolingDescriptor_t pooling, const cudnnPoolingMode_t mode,
                                          const cudnnNanPropagation_t, int count, const int window[],
                                          const int padding[], const int stride[]) {
  return guarded("cudnnSetPoolingNdDescriptor", [&] {
    set_pooling(pooling, mode, read_dims(window, count, "windowDimA"), read_dims(padding, count, "paddingA"),
                read_dims(stride, count, "strideA"));
  });
}

cudnnStatus_t cudnnPoolingForward(cudnnHandle_t handle, const cudnnPoolingDescriptor_t pooling,
                                  const void* alpha, const cudnnTensorDescriptor_t x, const void* x_data,
                                  const void* beta, const cudnnTensorDescriptor_t y, void* y_data) {
  return guarded("cudnnPoolingForward", [&] {
    const auto object = handle_at(handle);
    const PoolingObject kind = *object_at<PoolingObject>(pooling);
    const TensorObject from = *object_at<TensorObject>(x), to = *object_at<TensorObject>(y);
    const double a = factor_at(alpha, from.type), b = factor_at(beta, from.type);
    const PlanKey key = key_of("pooling", kind).add(from).add(to).add(a).add(b);
    const auto plan = plan_for(*object, key, Precision::exact, [&](Sketch& s) {
      s.output(kY, s.g.resample_fwd(s.input(kX, from), options_of(kind)).y, to, a, b);
    });
    run_call(*object, *plan, Bindings().bind(kX, x_data).bind(kY, y_data).bind(Sketch::held(kY), y_data));
  });
}

cudnnStatus_t cudnnPoolingBackward(cudnnHandle_t handle, const cudnnPoolingDescriptor_t pooling,
                                   const void* alpha, const cudnnTensorDescriptor_t, const void*,
                                   const cudnnTensorDescriptor_t dy, const void* dy_data,
                                   const cudnnTensorDescriptor_t x, const void* x_data, const void* beta,
                                   const cudnnTensorDescriptor_t dx, void* dx_data) {
  return guarded("cudnnPoolingBackward", [&] {
    const auto object = handle_at(handle);
    const PoolingObject kind = *object_at<PoolingObject>(pooling);
    const TensorObject from = *object_at<TensorObject>(x), gradient = *object_at<TensorObject>(dy),
                       to = *object_at<TensorObject>(dx);
    const double a = factor_at(alpha, from.type), b = factor_at(beta, from.type);
    const PlanKey key = key_of("pooling backward", kind).add(from).add(gradient).add(to).add(a).add(b);
    const auto plan = plan_for(*object, key, Precision::exact, [&](Sketch& s) {
      const fusor::ResampleOptions options = options_of(kind);
      const fusor::Tensor image =
          options.mode == fusor::ResampleMode::maxpool ? s.input(kX, from) : fusor::Tensor{};
      s.output(kDx, s.g.resample_bwd(s.input(kDy, gradient), to.dims, options, image), to, a, b);
    });
    Bindings bindings;
    bindings.bind(kX, x_data).bind(kDy, dy_data).bind(kDx, dx_data).bind(Sketch::held(kDx), dx_data);
    run_call(*object, *plan, bindings);
  });
}

// --- dropout -----------------------------------------------------------------------------------------------

cudnnStatus_t cudnnCreateDropoutDescriptor(cudnnDropoutDescriptor_t* dropout) {
  return guarded("cudnnCreateDropoutDescriptor", [&] { create_object<DropoutObject>(dropout); });
}

cudnnStatus_t cudnnDestroyDropoutDescriptor(cudnnDropoutDescriptor_t dropout) {
  return guarded("cudnnDestroyDropoutDescriptor", [&] { registry<DropoutObject>().remove(dropout); });
}

cudnnStatus_t cudnnDropoutGetStatesSize(cudnnHandle_t handle, size_t* bytes) {
  return guarded("cudnnDropoutGetStatesSize", [&] {
    handle_at(handle);
    place_of(bytes, "sizeInBytes") = DropoutObject::kBytes + sizeof(int64_t);
  });
}

cudnnStatus_t cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t dropout, cudnnHandle_t handle,
                                        float probability, void* states, size_t bytes,
                                        unsigned long long seed) {
  return guarded("cudnnSetDropoutDescriptor", [&] {
    const auto object = handle_at(handle);
    std::byte* const start = set_dropout(dropout, probability, states, bytes);
    if (start != nullptr) begin_states(*object, start, static_cast<int64_t>(seed));
  });
}

cudnnStatus_t cudnnRestoreDropoutDescriptor(cudnnDropoutDescriptor_t dropout, cudnnHandle_t handle,
                                            float probability, void* states, size_t bytes,
                                            unsigned long long) {
  return guarded("cudnnRestoreDropoutDescriptor", [&] {
    handle_at(handle);
    set_dropout(dropout, probability, states, bytes);
  });
}

}  // extern "C"
