// Owns spatial transformers as single calls: grids of coordinates from affine maps, and images sampled there.
#include "compat/cudnn/src/legacy/cached_plan.h"

namespace fusor::cudnn {
namespace {

enum Number { kTheta, kGrid, kX, kY, kDy, kDx, kDgrid, kDtheta };

GridSampleOptions sampling() { return {.align_corners = true}; }

TransformerObject transformer_at(cudnnSpatialTransformerDescriptor_t pointer) {
  TransformerObject transformer = *object_at<TransformerObject>(pointer);
  if (transformer.dims.rank() != 4)
    refuse(CUDNN_STATUS_NOT_SUPPORTED, "a spatial transformer of {} dims; 4 are supported",
           transformer.dims.rank());
  return transformer;
}

TensorObject packed(cudnnDataType_t type, const Dims& dims) { return {type, dims, packed_strides(dims)}; }
TensorObject theta_of(const TransformerObject& t) { return packed(t.type, {t.dims[0], 2, 3}); }
TensorObject grid_of(const TransformerObject& t) {
  return packed(t.type, {t.dims[0], t.dims[2], t.dims[3], 2});
}

// Coordinates from -1 to 1 along an axis of the result.
Tensor coordinate(Sketch& s, int64_t extent, int axis) {
  Dims dims{1, 1};
  dims[axis] = extent;
  const Tensor index =
      s.g.op(Pointwise{.mode = PointwiseMode::gen_index, .compute = DataType::i32, .axis = axis},
             std::array<Tensor, 1>{s.g.constant(0, DataType::i32)}, {.type = DataType::i32},
             std::array<Dims, 1>{dims})
          .front();
  const double last = extent > 1 ? static_cast<double>(extent - 1) : 1;
  return s.g.sub(s.g.mul(index, s.g.constant(2 / last), {.compute = DataType::f32}), s.g.constant(1));
}

// The points [rows * columns, 3] that an affine map takes: column, row, 1.
Tensor points(Sketch& s, const TransformerObject& t) {
  const int64_t rows = t.dims[2], columns = t.dims[3];
  const auto spread = [&](const Tensor& x) {
    const Tensor whole = s.g.op(Pointwise{.mode = PointwiseMode::identity}, std::array<Tensor, 1>{x}, {},
                                std::array<Dims, 1>{Dims{rows, columns}})
                             .front();
    return s.g.reshape(whole, {rows * columns, 1});
  };
  return s.g.concatenate(
      {spread(coordinate(s, columns, 1)), spread(coordinate(s, rows, 0)), spread(s.g.constant(1))}, 1);
}

PlanKey key_of(const char* call, const TransformerObject& t) {
  return PlanKey(call).add(int64_t{t.type}).add(t.dims);
}

}  // namespace
}  // namespace fusor::cudnn

using namespace fusor::cudnn;  // NOLINT(google-build-using-namespace)
using fusor::Precision;

extern "C" {

cudnnStatus_t cudnnCreateSpatialTransformerDescriptor(cudnnSpatialTransformerDescriptor_t* transformer) {
  return guarded("cudnnCreateSpatialTransformerDescriptor",
                 [&] { create_object<TransformerObject>(transformer); });
}

cudnnStatus_t cudnnDestroySpatialTransformerDescriptor(cudnnSpatialTransformerDescriptor_t transformer) {
  return guarded("cudnnDestroySpatialTransformerDescriptor",
                 [&] { registry<TransformerObject>().remove(transformer); });
}

cudnnStatus_t cudnnSetSpatialTransformerNdDescriptor(cudnnSpatialTransformerDescriptor_t transformer,
                                                     cudnnSamplerType_t sampler, cudnnDataType_t type,
                                                     const int count, const int dims[]) {
  return guarded("cudnnSetSpatialTransformerNdDescriptor", [&] {
    if (sampler != CUDNN_SAMPLER_BILINEAR)
      refuse(CUDNN_STATUS_BAD_PARAM, "{} is no sampler", static_cast<int>(sampler));
    *object_at<TransformerObject>(transformer) = {type, read_dims(dims, count, "dimA")};
  });
}

cudnnStatus_t cudnnSpatialTfGridGeneratorForward(cudnnHandle_t handle,
                                                 const cudnnSpatialTransformerDescriptor_t transformer,
                                                 const void* theta, void* grid) {
  return guarded("cudnnSpatialTfGridGeneratorForward", [&] {
    const auto object = handle_at(handle);
    const TransformerObject t = transformer_at(transformer);
    const auto plan = plan_for(*object, key_of("grid", t), Precision::exact, [&](Sketch& s) {
      const fusor::Tensor maps = s.g.transpose(s.input(kTheta, theta_of(t)), {0, 2, 1});
      s.output(kGrid, s.g.matmul(points(s, t), maps), grid_of(t));
    });
    run_call(*object, *plan, Bindings().bind(kTheta, theta).bind(kGrid, grid));
  });
}

cudnnStatus_t cudnnSpatialTfGridGeneratorBackward(cudnnHandle_t handle,
                                                  const cudnnSpatialTransformerDescriptor_t transformer,
                                                  const void* dgrid, void* dtheta) {
  return guarded("cudnnSpatialTfGridGeneratorBackward", [&] {
    const auto object = handle_at(handle);
    const TransformerObject t = transformer_at(transformer);
    const auto plan = plan_for(*object, key_of("grid backward", t), Precision::exact, [&](Sketch& s) {
      const fusor::Tensor gradient =
          s.g.reshape(s.input(kDgrid, grid_of(t)), {t.dims[0], t.dims[2] * t.dims[3], 2});
      s.output(kDtheta, s.g.matmul(s.g.transpose(gradient, {0, 2, 1}), points(s, t)), theta_of(t));
    });
    run_call(*object, *plan, Bindings().bind(kDgrid, dgrid).bind(kDtheta, dtheta));
  });
}

cudnnStatus_t cudnnSpatialTfSamplerForward(cudnnHandle_t handle,
                                           cudnnSpatialTransformerDescriptor_t transformer, const void* alpha,
                                           const cudnnTensorDescriptor_t x, const void* x_data,
                                           const void* grid, const void* beta, cudnnTensorDescriptor_t y,
                                           void* y_data) {
  return guarded("cudnnSpatialTfSamplerForward", [&] {
    const auto object = handle_at(handle);
    const TransformerObject t = transformer_at(transformer);
    const TensorObject from = *object_at<TensorObject>(x), to = *object_at<TensorObject>(y);
    const double a = factor_at(alpha, from.type), b = factor_at(beta, from.type);
    const PlanKey key = key_of("sampler", t).add(from).add(to).add(a).add(b);
    const auto plan = plan_for(*object, key, Precision::exact, [&](Sketch& s) {
      s.output(kY, s.g.grid_sample(s.input(kX, from), s.input(kGrid, grid_of(t)), sampling()), to, a, b);
    });
    Bindings bindings;
    bindings.bind(kX, x_data).bind(kGrid, grid).bind(kY, y_data).bind(Sketch::held(kY), y_data);
    run_call(*object, *plan, bindings);
  });
}

cudnnStatus_t cudnnSpatialTfSamplerBackward(
    cudnnHandle_t handle, cudnnSpatialTransformerDescriptor_t transformer, const void* alpha,
    const cudnnTensorDescriptor_t x, const void* x_data, const void* beta, const cudnnTensorDescriptor_t dx,
    void* dx_data, const void* alpha_of_grid, const cudnnTensorDescriptor_t dy, const void* dy_data,
    const void* grid, const void* beta_of_grid, void* dgrid) {
  return guarded("cudnnSpatialTfSamplerBackward", [&] {
    const auto object = handle_at(handle);
    const TransformerObject t = transformer_at(transformer);
    const TensorObject from = *object_at<TensorObject>(x), to = *object_at<TensorObject>(dx),
                       gradient = *object_at<TensorObject>(dy);
    const double a = factor_at(alpha, from.type), b = factor_at(beta, from.type),
                 c = factor_at(alpha_of_grid, from.type), d = factor_at(beta_of_grid, from.type);
    const PlanKey key =
        key_of("sampler backward", t).add(from).add(to).add(gradient).add(a).add(b).add(c).add(d);
    const auto plan = plan_for(*object, key, Precision::exact, [&](Sketch& s) {
      const fusor::GridSampleGradients made = s.g.grid_sample_bwd(s.input(kDy, gradient), s.input(kX, from),
                                                                  s.input(kGrid, grid_of(t)), sampling());
      s.output(kDx, made.dx, to, a, b);
      s.output(kDgrid, made.dgrid, grid_of(t), c, d);
    });
    Bindings bindings;
    bindings.bind(kX, x_data).bind(kGrid, grid).bind(kDy, dy_data).bind(kDx, dx_data).bind(kDgrid, dgrid);
    bindings.bind(Sketch::held(kDx), dx_data).bind(Sketch::held(kDgrid), dgrid);
    run_call(*object, *plan, bindings);
  });
}

}  // extern "C"
