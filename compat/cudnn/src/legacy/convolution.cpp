// Owns convolutions as single calls. There is one algorithm, the planner's: clients that ask for others get
// it as well.
#include <algorithm>

#include "compat/cudnn/src/legacy/cached_plan.h"
#include "compat/cudnn/src/translate/translator.h"

namespace fusor::cudnn {
namespace {

enum Number { kFirst, kSecond, kResult, kZ, kBias };

struct Convolution {
  ConvPass pass;
  TensorObject first, second, result;
  ConvolutionObject conv;

  PlanKey key(const char* call = "convolution") const {
    return PlanKey(call)
        .add(static_cast<int64_t>(pass))
        .add(first)
        .add(second)
        .add(result)
        .add(conv.padding)
        .add(conv.stride)
        .add(conv.dilation)
        .add(int64_t{conv.mode})
        .add(int64_t{conv.compute})
        .add(int64_t{conv.math});
  }
  Tensor sketch(Sketch& s) const {
    Conv attributes;
    attributes.pass = pass;
    attributes.pre_padding = attributes.post_padding = conv.padding;
    attributes.stride = conv.stride;
    attributes.dilation = conv.dilation;
    attributes.mode = conv.mode == CUDNN_CONVOLUTION ? ConvMode::convolution : ConvMode::cross_correlation;
    attributes.compute = sum_type_of(conv.compute);
    const std::array<Tensor, 2> operands{s.input(kFirst, first), s.input(kSecond, second)};
    const std::array<Dims, 1> given{result.dims};
    return s.g.op(attributes, operands, {.compute = attributes.compute}, given).front();
  }
  std::shared_ptr<const CallPlan> plan(const Handle& handle, double alpha = 1, double beta = 0) const {
    return plan_for(handle, key().add(alpha).add(beta), precision_of(conv.math),
                    [&](Sketch& s) { s.output(kResult, sketch(s), result, alpha, beta); });
  }
};

Dims read_numbers(const int* list, int count, const char* what, int64_t least) {
  const Dims numbers = read_dims(list, count, what);
  for (const int64_t number : numbers)
    if (number < least) refuse(CUDNN_STATUS_BAD_PARAM, "{}: {}; expected {} or more", what, number, least);
  return numbers;
}

TensorObject tensor_of(cudnnTensorDescriptor_t tensor) { return *object_at<TensorObject>(tensor); }
TensorObject tensor_of(cudnnFilterDescriptor_t filter) { return object_at<FilterObject>(filter)->tensor(); }

template <class First, class Second, class Result>
Convolution convolution_of(ConvPass pass, First first, Second second, Result result,
                           cudnnConvolutionDescriptor_t conv) {
  return {pass, tensor_of(first), tensor_of(second), tensor_of(result), *object_at<ConvolutionObject>(conv)};
}

template <class Perf>
void tell_algorithm(cudnnHandle_t handle, const Convolution& call, int requested, int* returned,
                    Perf* results, decltype(Perf::algo) algorithm) {
  if (requested < 1) refuse(CUDNN_STATUS_BAD_PARAM, "{} algorithms are asked for", requested);
  Perf& perf = place_of(results, "perfResults");
  const auto plan = call.plan(*handle_at(handle));
  perf = {};
  perf.algo = algorithm;
  perf.status = CUDNN_STATUS_SUCCESS;
  perf.time = static_cast<float>(plan->executable.plan().seconds * 1e3);
  perf.memory = workspace_of(*plan);
  perf.determinism = CUDNN_DETERMINISTIC;
  perf.mathType = plan->executable.plan().notes.tensor_cores ? CUDNN_TENSOR_OP_MATH : call.conv.math;
  place_of(returned, "returnedAlgoCount") = 1;
}

void tell_workspace(cudnnHandle_t handle, const Convolution& call, size_t* bytes) {
  place_of(bytes, "sizeInBytes") = workspace_of(*call.plan(*handle_at(handle)));
}

struct Pointers {
  const void *first, *second;
  void* result;
  void* workspace;
  size_t bytes;
};

void run(cudnnHandle_t handle, const Convolution& call, const void* alpha, const void* beta,
         const Pointers& at) {
  const auto object = handle_at(handle);
  const auto plan = call.plan(*object, factor_at(alpha, call.first.type), factor_at(beta, call.first.type));
  Bindings bindings;
  bindings.bind(kFirst, at.first).bind(kSecond, at.second).bind(kResult, at.result);
  bindings.bind(Sketch::held(kResult), at.result);
  run_call(*object, *plan, bindings, at.workspace, at.bytes);
}

Tensor activated(Sketch& s, const Tensor& x, const ActivationObject& activation) {
  if (activation.mode == CUDNN_ACTIVATION_IDENTITY) return x;
  if (activation.mode != CUDNN_ACTIVATION_RELU)
    refuse(CUDNN_STATUS_NOT_SUPPORTED, "a convolution with activation {}; ReLU and identity are supported",
           static_cast<int>(activation.mode));
  return s.g.relu(x);
}

void copy(Handle& handle, cudnnDataType_t type, int64_t count, const void* from, void* to) {
  if (from == to) return;
  const TensorObject all{type, {count}, {1}};
  const auto plan = plan_for(handle, PlanKey("copy").add(all), Precision::exact,
                             [&](Sketch& s) { s.output(kResult, s.g.identity(s.input(kFirst, all)), all); });
  run_call(handle, *plan, Bindings().bind(kFirst, from).bind(kResult, to));
}

}  // namespace
}  // namespace fusor::cudnn

using namespace fusor::cudnn;  // NOLINT(google-build-using-namespace)
using fusor::ConvPass;

extern "C" {

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* conv) {
  return guarded("cudnnCreateConvolutionDescriptor", [&] { create_object<ConvolutionObject>(conv); });
}

cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t conv) {
  return guarded("cudnnDestroyConvolutionDescriptor", [&] { registry<ConvolutionObject>().remove(conv); });
}

cudnnStatus_t cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t conv, int count,
                                              const int padding[], const int stride[], const int dilation[],
                                              cudnnConvolutionMode_t mode, cudnnDataType_t compute) {
  return guarded("cudnnSetConvolutionNdDescriptor", [&] {
    const auto object = object_at<ConvolutionObject>(conv);
    if (count < 1 || count > 3) refuse(CUDNN_STATUS_NOT_SUPPORTED, "a convolution of {} spatial dims", count);
    const auto paddings = read_numbers(padding, count, "padA", 0),
               strides = read_numbers(stride, count, "filterStrideA", 1),
               dilations = read_numbers(dilation, count, "dilationA", 1);
    object->padding = paddings;
    object->stride = strides;
    object->dilation = dilations;
    object->mode = mode;
    object->compute = compute;
  });
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t conv, int pad_h, int pad_w, int u,
                                              int v, int dilation_h, int dilation_w,
                                              cudnnConvolutionMode_t mode, cudnnDataType_t compute) {
  const int padding[] = {pad_h, pad_w}, stride[] = {u, v}, dilation[] = {dilation_h, dilation_w};
  return cudnnSetConvolutionNdDescriptor(conv, 2, padding, stride, dilation, mode, compute);
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t conv, cudnnMathType_t math) {
  return guarded("cudnnSetConvolutionMathType", [&] { object_at<ConvolutionObject>(conv)->math = math; });
}

// Groups follow from the channels of the tensors; a count that says otherwise is refused when the graph is
// built.
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t conv, int groups) {
  return guarded("cudnnSetConvolutionGroupCount", [&] {
    if (groups < 1) refuse(CUDNN_STATUS_BAD_PARAM, "{} groups", groups);
    object_at<ConvolutionObject>(conv)->groups = groups;
  });
}

cudnnStatus_t cudnnGetConvolutionNdForwardOutputDim(const cudnnConvolutionDescriptor_t conv,
                                                    const cudnnTensorDescriptor_t x,
                                                    const cudnnFilterDescriptor_t w, int count, int dims[]) {
  return guarded("cudnnGetConvolutionNdForwardOutputDim", [&] {
    const auto object = object_at<ConvolutionObject>(conv);
    const auto input = object_at<TensorObject>(x);
    const auto filter = object_at<FilterObject>(w);
    const int rank = input->dims.rank();
    if (count != rank || filter->dims.rank() != rank || object->padding.rank() != rank - 2)
      refuse(CUDNN_STATUS_BAD_PARAM, "ranks {}, {} and {} do not fit", count, rank, filter->dims.rank());
    place_of(dims, "tensorOutputDimA") = static_cast<int>(input->dims[0]);
    dims[1] = static_cast<int>(filter->dims[0]);
    for (int i = 0; i < rank - 2; ++i) {
      const int64_t window = (filter->dims[i + 2] - 1) * object->dilation[i] + 1;
      dims[i + 2] =
          static_cast<int>((input->dims[i + 2] + 2 * object->padding[i] - window) / object->stride[i] + 1);
    }
  });
}

// --- forward -----------------------------------------------------------------------------------------------

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                     const cudnnFilterDescriptor_t w,
                                                     const cudnnConvolutionDescriptor_t conv,
                                                     const cudnnTensorDescriptor_t y, const int requested,
                                                     int* returned, cudnnConvolutionFwdAlgoPerf_t* results) {
  return guarded("cudnnGetConvolutionForwardAlgorithm_v7", [&] {
    tell_algorithm(handle, convolution_of(ConvPass::fprop, x, w, y, conv), requested, returned, results,
                   CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM);
  });
}

cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                     const void*, const cudnnFilterDescriptor_t w,
                                                     const void*, const cudnnConvolutionDescriptor_t conv,
                                                     const cudnnTensorDescriptor_t y, void*,
                                                     const int requested, int* returned,
                                                     cudnnConvolutionFwdAlgoPerf_t* results, void*, size_t) {
  return cudnnGetConvolutionForwardAlgorithm_v7(handle, x, w, conv, y, requested, returned, results);
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                      const cudnnFilterDescriptor_t w,
                                                      const cudnnConvolutionDescriptor_t conv,
                                                      const cudnnTensorDescriptor_t y,
                                                      cudnnConvolutionFwdAlgo_t, size_t* bytes) {
  return guarded("cudnnGetConvolutionForwardWorkspaceSize",
                 [&] { tell_workspace(handle, convolution_of(ConvPass::fprop, x, w, y, conv), bytes); });
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha,
                                      const cudnnTensorDescriptor_t x, const void* x_data,
                                      const cudnnFilterDescriptor_t w, const void* w_data,
                                      const cudnnConvolutionDescriptor_t conv, cudnnConvolutionFwdAlgo_t,
                                      void* workspace, size_t bytes, const void* beta,
                                      const cudnnTensorDescriptor_t y, void* y_data) {
  return guarded("cudnnConvolutionForward", [&] {
    run(handle, convolution_of(ConvPass::fprop, x, w, y, conv), alpha, beta,
        {x_data, w_data, y_data, workspace, bytes});
  });
}

cudnnStatus_t cudnnConvolutionBiasActivationForward(
    cudnnHandle_t handle, const void* alpha1, const cudnnTensorDescriptor_t x, const void* x_data,
    const cudnnFilterDescriptor_t w, const void* w_data, const cudnnConvolutionDescriptor_t conv,
    cudnnConvolutionFwdAlgo_t, void* workspace, size_t bytes, const void* alpha2,
    const cudnnTensorDescriptor_t z, const void* z_data, const cudnnTensorDescriptor_t bias,
    const void* bias_data, const cudnnActivationDescriptor_t activation, const cudnnTensorDescriptor_t y,
    void* y_data) {
  return guarded("cudnnConvolutionBiasActivationForward", [&] {
    const auto object = handle_at(handle);
    const Convolution call = convolution_of(ConvPass::fprop, x, w, y, conv);
    const double alpha = factor_at(alpha1, call.first.type), beta = factor_at(alpha2, call.first.type);
    const TensorObject residual = *object_at<TensorObject>(z), channels = *object_at<TensorObject>(bias);
    const ActivationObject after = *object_at<ActivationObject>(activation);
    const PlanKey key = call.key("convolution, bias, activation")
                            .add(alpha)
                            .add(beta)
                            .add(residual)
                            .add(channels)
                            .add(int64_t{after.mode});
    const auto plan = plan_for(*object, key, precision_of(call.conv.math), [&](Sketch& s) {
      fusor::Tensor sum = call.sketch(s);
      if (alpha != 1) sum = s.g.mul(sum, s.g.constant(alpha));
      if (beta != 0) sum = s.g.add(sum, s.g.mul(s.input(kZ, residual), s.g.constant(beta)));
      s.output(kResult, activated(s, s.g.add(sum, s.input(kBias, channels)), after), call.result);
    });
    Bindings bindings;
    bindings.bind(kFirst, x_data)
        .bind(kSecond, w_data)
        .bind(kResult, y_data)
        .bind(kZ, z_data)
        .bind(kBias, bias_data);
    run_call(*object, *plan, bindings, workspace, bytes);
  });
}

// --- the gradient of the input -----------------------------------------------------------------------------

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t conv, const cudnnTensorDescriptor_t dx, const int requested,
    int* returned, cudnnConvolutionBwdDataAlgoPerf_t* results) {
  return guarded("cudnnGetConvolutionBackwardDataAlgorithm_v7", [&] {
    tell_algorithm(handle, convolution_of(ConvPass::dgrad, dy, w, dx, conv), requested, returned, results,
                   CUDNN_CONVOLUTION_BWD_DATA_ALGO_1);
  });
}

cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithmEx(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w, const void*, const cudnnTensorDescriptor_t dy,
    const void*, const cudnnConvolutionDescriptor_t conv, const cudnnTensorDescriptor_t dx, void*,
    const int requested, int* returned, cudnnConvolutionBwdDataAlgoPerf_t* results, void*, size_t) {
  return cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, w, dy, conv, dx, requested, returned, results);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t handle,
                                                           const cudnnFilterDescriptor_t w,
                                                           const cudnnTensorDescriptor_t dy,
                                                           const cudnnConvolutionDescriptor_t conv,
                                                           const cudnnTensorDescriptor_t dx,
                                                           cudnnConvolutionBwdDataAlgo_t, size_t* bytes) {
  return guarded("cudnnGetConvolutionBackwardDataWorkspaceSize",
                 [&] { tell_workspace(handle, convolution_of(ConvPass::dgrad, dy, w, dx, conv), bytes); });
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           const cudnnFilterDescriptor_t w, const void* w_data,
                                           const cudnnTensorDescriptor_t dy, const void* dy_data,
                                           const cudnnConvolutionDescriptor_t conv,
                                           cudnnConvolutionBwdDataAlgo_t, void* workspace, size_t bytes,
                                           const void* beta, const cudnnTensorDescriptor_t dx,
                                           void* dx_data) {
  return guarded("cudnnConvolutionBackwardData", [&] {
    run(handle, convolution_of(ConvPass::dgrad, dy, w, dx, conv), alpha, beta,
        {dy_data, w_data, dx_data, workspace, bytes});
  });
}

// --- the gradient of the filter ----------------------------------------------------------------------------

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t conv, const cudnnFilterDescriptor_t dw, const int requested,
    int* returned, cudnnConvolutionBwdFilterAlgoPerf_t* results) {
  return guarded("cudnnGetConvolutionBackwardFilterAlgorithm_v7", [&] {
    tell_algorithm(handle, convolution_of(ConvPass::wgrad, dy, x, dw, conv), requested, returned, results,
                   CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1);
  });
}

cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithmEx(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const void*, const cudnnTensorDescriptor_t dy,
    const void*, const cudnnConvolutionDescriptor_t conv, const cudnnFilterDescriptor_t dw, void*,
    const int requested, int* returned, cudnnConvolutionBwdFilterAlgoPerf_t* results, void*, size_t) {
  return cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, x, dy, conv, dw, requested, returned, results);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t handle,
                                                             const cudnnTensorDescriptor_t x,
                                                             const cudnnTensorDescriptor_t dy,
                                                             const cudnnConvolutionDescriptor_t conv,
                                                             const cudnnFilterDescriptor_t dw,
                                                             cudnnConvolutionBwdFilterAlgo_t, size_t* bytes) {
  return guarded("cudnnGetConvolutionBackwardFilterWorkspaceSize",
                 [&] { tell_workspace(handle, convolution_of(ConvPass::wgrad, dy, x, dw, conv), bytes); });
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                             const cudnnTensorDescriptor_t x, const void* x_data,
                                             const cudnnTensorDescriptor_t dy, const void* dy_data,
                                             const cudnnConvolutionDescriptor_t conv,
                                             cudnnConvolutionBwdFilterAlgo_t, void* workspace, size_t bytes,
                                             const void* beta, const cudnnFilterDescriptor_t dw,
                                             void* dw_data) {
  return guarded("cudnnConvolutionBackwardFilter", [&] {
    run(handle, convolution_of(ConvPass::wgrad, dy, x, dw, conv), alpha, beta,
        {dy_data, x_data, dw_data, workspace, bytes});
  });
}

// Filters of int8 vectors are read as they are declared, so that their reordering is a copy.
cudnnStatus_t cudnnReorderFilterAndBias(cudnnHandle_t handle, const cudnnFilterDescriptor_t filter,
                                        cudnnReorderType_t, const void* data, void* reordered_data,
                                        int has_bias, const void* bias, void* reordered_bias) {
  return guarded("cudnnReorderFilterAndBias", [&] {
    const auto object = handle_at(handle);
    const auto w = object_at<FilterObject>(filter);
    if (w->type != CUDNN_DATA_INT8x32)
      refuse(CUDNN_STATUS_NOT_SUPPORTED, "a filter of data type {} is not reordered; INT8x32 is",
             static_cast<int>(w->type));
    copy(*object, CUDNN_DATA_INT8, fusor::element_count(w->dims), data, reordered_data);
    if (has_bias != 0) copy(*object, CUDNN_DATA_FLOAT, w->dims[0], bias, reordered_bias);
  });
}

}  // extern "C"
