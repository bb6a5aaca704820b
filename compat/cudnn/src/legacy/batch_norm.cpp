// Owns batch norm as single calls.
#include "compat/cudnn/src/ahead.h"
#include "compat/cudnn/src/legacy/batch_norm_call.h"
#include "compat/cudnn/src/translate/translator.h"
#include "compat/cudnn/src/workspace.h"

namespace fusor::cudnn {
namespace {

using namespace batch_norm;  // NOLINT(google-build-using-namespace)

// Statistics of every activation are those of a channel where there is one pixel.
void expect_channels(cudnnBatchNormMode_t mode, const TensorObject& x) {
  if (mode != CUDNN_BATCHNORM_PER_ACTIVATION) return;
  for (int i = 2; i < x.dims.rank(); ++i)
    if (x.dims[i] != 1)
      refuse(CUDNN_STATUS_NOT_SUPPORTED, "batch norm of each activation of {} is not supported",
             to_string(x.dims));
}

void expect_relu(cudnnBatchNormOps_t ops, cudnnActivationDescriptor_t activation) {
  if (ops < CUDNN_BATCHNORM_OPS_BN || ops > CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION)
    refuse(CUDNN_STATUS_BAD_PARAM, "{} are no ops of a batch norm", static_cast<int>(ops));
  if (ops == CUDNN_BATCHNORM_OPS_BN) return;
  const cudnnActivationMode_t mode = object_at<ActivationObject>(activation)->mode;
  if (mode != CUDNN_ACTIVATION_RELU)
    refuse(CUDNN_STATUS_NOT_SUPPORTED, "batch norm joined with activation {}; ReLU is supported",
           static_cast<int>(mode));
}

After after_of(cudnnBatchNormOps_t ops, cudnnActivationDescriptor_t activation, cudnnTensorDescriptor_t z) {
  expect_relu(ops, activation);
  After after{ops, {}};
  if (after.adds()) after.z = *object_at<TensorObject>(z);
  return after;
}

void expect_plain(const void* alpha, const void* beta, cudnnDataType_t type) {
  if (factor_at(alpha, type) != 1 || factor_at(beta, type) != 0)
    refuse(CUDNN_STATUS_NOT_SUPPORTED, "batch norm with factors other than 1 and 0");
}

// Bytes of one statistic of the batch, rounded up.
int64_t statistic_bytes(const Forward& call) {
  const TensorObject& channels = call.channels;
  const int64_t bytes =
      span_elements(channels.dims, channels.strides) * byte_size(data_type_of(channels.type));
  return (bytes + 255) / 256 * 256;
}

// Where the plan is made now, the kernels of the gradients are compiled next.
std::shared_ptr<const CallPlan> plan_of(const Forward& call, const Handle& handle) {
  bool is_new = false;
  auto plan = plan_for(handle, call.key(), Precision::exact, [&](Sketch& s) {
    call.sketch(s);
    is_new = true;
  });
  if (is_new && call.saves) {
    note_training();
    plan_ahead(handle, Precision::exact, [backward = call.gradients()](Sketch& s) { backward.sketch(s); });
  }
  return plan;
}

std::shared_ptr<const CallPlan> update_of(const Forward& call, const Handle& handle) {
  return plan_for(handle, PlanKey("bn running").add(call.channels), Precision::exact,
                  [&](Sketch& s) { call.sketch_update(s); });
}

std::shared_ptr<const CallPlan> plan_of(const Backward& call, const Handle& handle) {
  return plan_for(handle, call.key(), Precision::exact, [&](Sketch& s) { call.sketch(s); });
}

size_t workspace_of(const Forward& call, const Handle& handle) {
  return workspace_of(*plan_of(call, handle)) + static_cast<size_t>(2 * statistic_bytes(call) + 256);
}

Forward forward_of(cudnnBatchNormMode_t mode, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t y,
                   cudnnTensorDescriptor_t channels) {
  Forward call{*object_at<TensorObject>(x),
               *object_at<TensorObject>(y),
               *object_at<TensorObject>(channels),
               true,
               true,
               {}};
  expect_channels(mode, call.x);
  return call;
}

Backward backward_of(cudnnBatchNormMode_t mode, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t dy,
                     cudnnTensorDescriptor_t dx, cudnnTensorDescriptor_t channels) {
  const Backward call{*object_at<TensorObject>(x),
                      *object_at<TensorObject>(dy),
                      *object_at<TensorObject>(dx),
                      *object_at<TensorObject>(channels),
                      true,
                      {},
                      {}};
  expect_channels(mode, call.x);
  return call;
}

Backward joined(Backward call, const After& after, cudnnTensorDescriptor_t y) {
  call.after = after;
  if (after.activates()) call.y = *object_at<TensorObject>(y);
  return call;
}

struct Room {
  void* workspace = nullptr;
  size_t bytes = 0;
};

struct ForwardPointers {
  const void *x, *scale, *bias;
  void *y, *running_mean, *running_variance, *mean, *inverse;
  double factor, epsilon;
  const void* z = nullptr;
};

void run_forward(cudnnHandle_t handle, Forward call, const ForwardPointers& at, Room room) {
  const auto object = handle_at(handle);
  call.has_running = at.running_mean != nullptr && at.running_variance != nullptr;
  call.saves = at.mean != nullptr && at.inverse != nullptr;
  const size_t needed = workspace_of(call, *object);
  if (room.workspace == nullptr || room.bytes < needed)
    room = {object->scratch(static_cast<int64_t>(needed)), needed};
  // The batch's statistics lie in front, the plan's workspace behind them.
  auto* const batch_mean = static_cast<std::byte*>(aligned(room.workspace));
  auto* const batch_variance = batch_mean + statistic_bytes(call);
  auto* const rest = batch_variance + statistic_bytes(call);
  const size_t rest_bytes = room.bytes - static_cast<size_t>(rest - static_cast<std::byte*>(room.workspace));
  const auto factor = static_cast<float>(at.factor), epsilon = static_cast<float>(at.epsilon);
  Bindings bindings;
  bindings.bind(kX, at.x).bind(kY, at.y).bind(kScale, at.scale).bind(kBias, at.bias).bind(kMean, at.mean);
  bindings.bind(kInverse, at.inverse).bind(kEpsilon, &epsilon);
  if (call.after.adds()) bindings.bind(kZ, at.z);
  bindings.bind(kBatchMean, batch_mean).bind(kBatchVariance, batch_variance);
  run_call(*object, *plan_of(call, *object), bindings, rest, rest_bytes);
  if (!call.has_running) return;
  Bindings running;
  running.bind(kRunningMean, at.running_mean).bind(kNextMean, at.running_mean).bind(kBatchMean, batch_mean);
  running.bind(kRunningVariance, at.running_variance).bind(kNextVariance, at.running_variance);
  running.bind(kBatchVariance, batch_variance).bind(kFactor, &factor);
  run_call(*object, *update_of(call, *object), running);
}

struct BackwardPointers {
  const void *x, *dy, *scale, *mean, *inverse;
  void *dx, *dscale, *dbias;
  double epsilon;
  const void* y = nullptr;
  void* dz = nullptr;
};

void run_backward(cudnnHandle_t handle, Backward call, const BackwardPointers& at, const Room& room) {
  const auto object = handle_at(handle);
  call.has_saved = at.mean != nullptr && at.inverse != nullptr;
  const auto epsilon = static_cast<float>(at.epsilon);
  Bindings bindings;
  bindings.bind(kX, at.x).bind(kDy, at.dy).bind(kDx, at.dx).bind(kScale, at.scale).bind(kMean, at.mean);
  bindings.bind(kInverse, at.inverse)
      .bind(kDscale, at.dscale)
      .bind(kDbias, at.dbias)
      .bind(kEpsilon, &epsilon);
  if (call.after.activates()) bindings.bind(kY, at.y);
  if (call.after.adds()) bindings.bind(kDz, at.dz);
  run_call(*object, *plan_of(call, *object), bindings, room.workspace, room.bytes);
}

}  // namespace
}  // namespace fusor::cudnn

using namespace fusor::cudnn;  // NOLINT(google-build-using-namespace)

extern "C" {

cudnnStatus_t cudnnDeriveBNTensorDescriptor(cudnnTensorDescriptor_t derived, const cudnnTensorDescriptor_t x,
                                            cudnnBatchNormMode_t mode) {
  return guarded("cudnnDeriveBNTensorDescriptor", [&] {
    const TensorObject from = *object_at<TensorObject>(x);
    fusor::Dims dims = from.dims;
    for (int i = 0; i < dims.rank(); ++i)
      if (i == 0 || (i > 1 && mode != CUDNN_BATCHNORM_PER_ACTIVATION)) dims[i] = 1;
    const cudnnDataType_t type = from.type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    *object_at<TensorObject>(derived) = {type, dims, fusor::packed_strides(dims)};
  });
}

cudnnStatus_t cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t ops, const cudnnTensorDescriptor_t x,
    const cudnnTensorDescriptor_t z, const cudnnTensorDescriptor_t y, const cudnnTensorDescriptor_t channels,
    const cudnnActivationDescriptor_t activation, size_t* size) {
  return guarded("cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize", [&] {
    const auto object = handle_at(handle);
    Forward call = forward_of(mode, x, y, channels);
    call.after = after_of(ops, activation, z);
    size_t& most = place_of(size, "sizeInBytes");
    most = workspace_of(call, *object);
  });
}

cudnnStatus_t cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t ops, const cudnnTensorDescriptor_t x,
    const cudnnTensorDescriptor_t y, const cudnnTensorDescriptor_t dy, const cudnnTensorDescriptor_t dz,
    const cudnnTensorDescriptor_t dx, const cudnnTensorDescriptor_t channels,
    const cudnnActivationDescriptor_t activation, size_t* size) {
  return guarded("cudnnGetBatchNormalizationBackwardExWorkspaceSize", [&] {
    const auto object = handle_at(handle);
    const Backward call = joined(backward_of(mode, x, dy, dx, channels), after_of(ops, activation, dz), y);
    place_of(size, "sizeInBytes") = workspace_of(*plan_of(call, *object));
  });
}

// Nothing is kept from the forward pass for the backward one.
cudnnStatus_t cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t, cudnnBatchNormOps_t ops,
    const cudnnActivationDescriptor_t activation, const cudnnTensorDescriptor_t x, size_t* size) {
  return guarded("cudnnGetBatchNormalizationTrainingExReserveSpaceSize", [&] {
    expect_relu(ops, activation);
    handle_at(handle);
    object_at<TensorObject>(x);
    place_of(size, "sizeInBytes") = 0;
  });
}

cudnnStatus_t cudnnBatchNormalizationForwardTrainingEx(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t ops, const void* alpha,
    const void* beta, const cudnnTensorDescriptor_t x_descriptor, const void* x,
    const cudnnTensorDescriptor_t z_descriptor, const void* z, const cudnnTensorDescriptor_t y_descriptor,
    void* y, const cudnnTensorDescriptor_t channels, const void* scale, const void* bias, double factor,
    void* running_mean, void* running_variance, double epsilon, void* mean, void* inverse,
    cudnnActivationDescriptor_t activation, void* workspace, size_t bytes, void*, size_t) {
  return guarded("cudnnBatchNormalizationForwardTrainingEx", [&] {
    Forward call = forward_of(mode, x_descriptor, y_descriptor, channels);
    call.after = after_of(ops, activation, z_descriptor);
    expect_plain(alpha, beta, call.x.type);
    run_forward(handle, call,
                {x, scale, bias, y, running_mean, running_variance, mean, inverse, factor, epsilon, z},
                {workspace, bytes});
  });
}

cudnnStatus_t cudnnBatchNormalizationForwardTraining(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void* alpha, const void* beta,
    const cudnnTensorDescriptor_t x_descriptor, const void* x, const cudnnTensorDescriptor_t y_descriptor,
    void* y, const cudnnTensorDescriptor_t channels, const void* scale, const void* bias, double factor,
    void* running_mean, void* running_variance, double epsilon, void* mean, void* inverse) {
  return guarded("cudnnBatchNormalizationForwardTraining", [&] {
    const Forward call = forward_of(mode, x_descriptor, y_descriptor, channels);
    expect_plain(alpha, beta, call.x.type);
    run_forward(handle, call,
                {x, scale, bias, y, running_mean, running_variance, mean, inverse, factor, epsilon}, {});
  });
}

cudnnStatus_t cudnnBatchNormalizationForwardInference(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void* alpha, const void* beta,
    const cudnnTensorDescriptor_t x_descriptor, const void* x, const cudnnTensorDescriptor_t y_descriptor,
    void* y, const cudnnTensorDescriptor_t channels, const void* scale, const void* bias, const void* mean,
    const void* variance, double epsilon) {
  return guarded("cudnnBatchNormalizationForwardInference", [&] {
    const Forward call = forward_of(mode, x_descriptor, y_descriptor, channels);
    expect_plain(alpha, beta, call.x.type);
    const auto object = handle_at(handle);
    const PlanKey key = PlanKey("bn inference").add(call.x).add(call.y).add(call.channels);
    const auto plan = plan_for(*object, key, fusor::Precision::exact, [&](Sketch& s) {
      fusor::NormOptions norm{.norm = fusor::NormMode::batch_norm, .phase = fusor::NormPhase::inference};
      norm.scale = s.input(kScale, call.channels);
      norm.bias = s.input(kBias, call.channels);
      norm.prev_running_mean = s.input(kRunningMean, call.channels);
      norm.prev_running_var = s.input(kRunningVariance, call.channels);
      norm.epsilon_scalar = s.scalar(kEpsilon);
      s.output(kY, s.g.norm_fwd(s.input(kX, call.x), norm).y, call.y);
    });
    const auto small = static_cast<float>(epsilon);
    Bindings bindings;
    bindings.bind(kX, x).bind(kY, y).bind(kScale, scale).bind(kBias, bias).bind(kRunningMean, mean);
    bindings.bind(kRunningVariance, variance).bind(kEpsilon, &small);
    run_call(*object, *plan, bindings);
  });
}

cudnnStatus_t cudnnBatchNormalizationBackward(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void* alpha, const void* beta,
    const void* alpha_of_weights, const void* beta_of_weights, const cudnnTensorDescriptor_t x_descriptor,
    const void* x, const cudnnTensorDescriptor_t dy_descriptor, const void* dy,
    const cudnnTensorDescriptor_t dx_descriptor, void* dx, const cudnnTensorDescriptor_t channels,
    const void* scale, void* dscale, void* dbias, double epsilon, const void* mean, const void* inverse) {
  return guarded("cudnnBatchNormalizationBackward", [&] {
    const Backward call = backward_of(mode, x_descriptor, dy_descriptor, dx_descriptor, channels);
    expect_plain(alpha, beta, call.x.type);
    expect_plain(alpha_of_weights, beta_of_weights, call.x.type);
    run_backward(handle, call, {x, dy, scale, mean, inverse, dx, dscale, dbias, epsilon}, {});
  });
}

cudnnStatus_t cudnnBatchNormalizationBackwardEx(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t ops, const void* alpha,
    const void* beta, const void* alpha_of_weights, const void* beta_of_weights,
    const cudnnTensorDescriptor_t x_descriptor, const void* x, const cudnnTensorDescriptor_t y_descriptor,
    const void* y, const cudnnTensorDescriptor_t dy_descriptor, const void* dy,
    const cudnnTensorDescriptor_t dz_descriptor, void* dz, const cudnnTensorDescriptor_t dx_descriptor,
    void* dx, const cudnnTensorDescriptor_t channels, const void* scale, const void*, void* dscale,
    void* dbias, double epsilon, const void* mean, const void* inverse,
    cudnnActivationDescriptor_t activation, void* workspace, size_t bytes, void*, size_t) {
  return guarded("cudnnBatchNormalizationBackwardEx", [&] {
    const Backward call = joined(backward_of(mode, x_descriptor, dy_descriptor, dx_descriptor, channels),
                                 after_of(ops, activation, dz_descriptor), y_descriptor);
    expect_plain(alpha, beta, call.x.type);
    expect_plain(alpha_of_weights, beta_of_weights, call.x.type);
    run_backward(handle, call, {x, dy, scale, mean, inverse, dx, dscale, dbias, epsilon, y, dz},
                 {workspace, bytes});
  });
}

}  // extern "C"
