// Owns the graphs on which the rows engine is tested, each written in pointwise ops and reductions, one
// fusion.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "backend/planner/planner.h"
#include "core/device_info.h"
#include "frontend/graph_builder.h"
#include "tests/backend/devices.h"

namespace fusor::rows_cases {

using test::h200;

inline OutputOptions named(const char* name, DataType type) { return {.name = name, .type = type}; }

/// All ops of a graph but folded views, as one fusion.
inline Fusion whole(const Graph& graph) {
  const Graph expanded = expand(graph);
  const FoldedGraph folded = fold_views(expanded);
  std::vector<int> ops;
  for (size_t op = 0; op < expanded.ops.size(); ++op)
    if (!folded.folded[op]) ops.push_back(static_cast<int>(op));
  return make_fusion(expanded, folded, ops);
}

/// Softmax of `x` over `axis`.
inline Tensor softmax_of(GraphBuilder& g, const Tensor& x, int64_t axis) {
  const Tensor e = g.exp(g.sub(x, g.reduce(x, ReductionMode::max, {axis})));
  return g.div(e, g.reduce(e, ReductionMode::add, {axis}));
}

inline Graph softmax(DataType type, const Dims& dims, int64_t axis) {
  GraphBuilder g("softmax");
  const Tensor x = g.input("x", dims, type);
  g.output(softmax_of(g, x, axis), named("y", type));
  return g.finish();
}

/// The gradient of softmax by its result.
inline Graph softmax_bwd(DataType type, const Dims& dims, int64_t axis) {
  GraphBuilder g("softmax_bwd");
  const Tensor y = g.input("y", dims, type), dy = g.input("dy", dims, type);
  const Tensor inner = g.reduce(g.mul(y, dy), ReductionMode::add, {axis});
  g.output(g.mul(y, g.sub(dy, inner)), named("dx", type));
  return g.finish();
}

inline Dims last_axis_only(const Dims& dims) {
  Dims row = Dims::filled(dims.rank(), 1);
  row[dims.rank() - 1] = dims.back();
  return row;
}

/// (x - mean) / deviation * gamma + beta, with both statistics saved.
inline Graph layer_norm(DataType type, const Dims& dims) {
  GraphBuilder g("layer_norm");
  const int64_t axis = dims.rank() - 1;
  const Tensor x = g.input("x", dims, type);
  const Tensor gamma = g.input("gamma", last_axis_only(dims), type);
  const Tensor beta = g.input("beta", last_axis_only(dims), type);
  const Tensor mean = g.reduce(x, ReductionMode::avg, {axis});
  const Tensor centered = g.sub(x, mean);
  const Tensor variance = g.reduce(g.mul(centered, centered), ReductionMode::avg, {axis});
  const Tensor scale = g.rsqrt(g.add(variance, g.constant(1e-5, DataType::f32)));
  g.output(g.add(g.mul(g.mul(centered, scale), gamma), beta), named("y", type));
  g.output(mean, named("mean", DataType::f32));
  g.output(scale, named("inv_std", DataType::f32));
  return g.finish();
}

/// dx, dgamma and dbeta of layer norm, by its statistics.
inline Graph layer_norm_bwd(DataType type, const Dims& dims) {
  GraphBuilder g("layer_norm_bwd");
  const int64_t axis = dims.rank() - 1;
  Dims statistic = dims, others;
  statistic[dims.rank() - 1] = 1;
  for (int i = 0; i + 1 < dims.rank(); ++i) others.push_back(i);
  const Tensor x = g.input("x", dims, type), dy = g.input("dy", dims, type);
  const Tensor gamma = g.input("gamma", last_axis_only(dims), type);
  const Tensor mean = g.input("mean", statistic, DataType::f32);
  const Tensor scale = g.input("inv_std", statistic, DataType::f32);
  const Tensor normal = g.mul(g.sub(x, mean), scale);
  const Tensor wide = g.mul(dy, gamma);
  const Tensor sum = g.reduce(wide, ReductionMode::avg, {axis});
  const Tensor along = g.reduce(g.mul(wide, normal), ReductionMode::avg, {axis});
  g.output(g.mul(g.sub(g.sub(wide, sum), g.mul(normal, along)), scale), named("dx", type));
  g.output(g.reduce(g.mul(dy, normal), ReductionMode::add, others), named("dgamma", DataType::f32));
  g.output(g.reduce(dy, ReductionMode::add, others), named("dbeta", DataType::f32));
  return g.finish();
}

inline Graph rms_norm(DataType type, const Dims& dims) {
  GraphBuilder g("rms_norm");
  const int64_t axis = dims.rank() - 1;
  const Tensor x = g.input("x", dims, type), gamma = g.input("gamma", last_axis_only(dims), type);
  const Tensor square = g.reduce(g.mul(x, x), ReductionMode::avg, {axis});
  const Tensor scale = g.rsqrt(g.add(square, g.constant(1e-5, DataType::f32)));
  g.output(g.mul(g.mul(x, scale), gamma), named("y", type));
  return g.finish();
}

/// dx and dgamma of RMS norm.
inline Graph rms_norm_bwd(DataType type, const Dims& dims) {
  GraphBuilder g("rms_norm_bwd");
  const int64_t axis = dims.rank() - 1;
  Dims statistic = dims, others;
  statistic[dims.rank() - 1] = 1;
  for (int i = 0; i + 1 < dims.rank(); ++i) others.push_back(i);
  const Tensor x = g.input("x", dims, type), dy = g.input("dy", dims, type);
  const Tensor gamma = g.input("gamma", last_axis_only(dims), type);
  const Tensor scale = g.input("inv_rms", statistic, DataType::f32);
  const Tensor normal = g.mul(x, scale), wide = g.mul(dy, gamma);
  const Tensor along = g.reduce(g.mul(wide, normal), ReductionMode::avg, {axis});
  g.output(g.mul(g.sub(wide, g.mul(normal, along)), scale), named("dx", type));
  g.output(g.reduce(g.mul(dy, normal), ReductionMode::add, others), named("dgamma", DataType::f32));
  return g.finish();
}

/// h = x + residual, stored; RMS norm of h, quantised to fp8 by the largest size of its row.
inline Graph residual_norm_quantize(DataType type, const Dims& dims) {
  GraphBuilder g("residual_norm_quantize");
  const int64_t axis = dims.rank() - 1;
  const Tensor x = g.input("x", dims, type), residual = g.input("residual", dims, type);
  const Tensor gamma = g.input("gamma", last_axis_only(dims), type);
  const Tensor h = g.add(x, residual);
  const Tensor square = g.reduce(g.mul(h, h), ReductionMode::avg, {axis});
  const Tensor y = g.mul(g.mul(h, g.rsqrt(g.add(square, g.constant(1e-5, DataType::f32)))), gamma);
  const Tensor scale = g.div(g.reduce(y, ReductionMode::amax, {axis}), g.constant(448, DataType::f32));
  g.output(h, named("h", type));
  g.output(g.div(y, scale), named("q", DataType::f8_e4m3));
  g.output(scale, named("scale", DataType::f32));
  return g.finish();
}

/// A number a row less the labelled element of that row.
inline Graph labelled(DataType type, int64_t rows, int64_t classes) {
  GraphBuilder g("labelled");
  const Tensor x = g.input("x", {rows, classes}, type);
  const Tensor is_label = g.cmp_eq(g.gen_index(x, 1), g.input("label", {rows, 1}, DataType::i64));
  const Tensor picked =
      g.reduce(g.binary_select(x, g.constant(0, DataType::f32), is_label), ReductionMode::add, {1});
  g.output(g.sub(g.input("total", {rows, 1}, DataType::f32), picked), named("loss", DataType::f32));
  return g.finish();
}

/// -log softmax of the labelled element of each row.
inline Graph cross_entropy(DataType type, int64_t rows, int64_t classes) {
  GraphBuilder g("cross_entropy");
  const Tensor x = g.input("x", {rows, classes}, type);
  const Tensor label = g.input("label", {rows, 1}, DataType::i64);
  const Tensor largest = g.reduce(x, ReductionMode::max, {1});
  const Tensor sum = g.reduce(g.exp(g.sub(x, largest)), ReductionMode::add, {1});
  const Tensor is_label = g.cmp_eq(g.gen_index(x, 1), label);
  const Tensor picked =
      g.reduce(g.binary_select(x, g.constant(0, DataType::f32), is_label), ReductionMode::add, {1});
  g.output(g.sub(g.add(g.log(sum), largest), picked), named("loss", DataType::f32));
  return g.finish();
}

/// Strides of images, groups, channels of a group, pixels.
inline Strides strides_of_groups(const Dims& dims, bool channels_last) {
  const int64_t groups = dims[1], channels = dims[2], pixels = dims[3];
  return channels_last ? Strides{groups * channels * pixels, channels, 1, groups * channels}
                       : packed_strides(dims);
}

/// Group norm over (channels of a group, pixels), then swish; dims: images, groups, channels of a group,
/// pixels.
inline Graph group_norm(DataType type, const Dims& dims, bool channels_last) {
  GraphBuilder g("group_norm");
  const int64_t groups = dims[1], channels = dims[2];
  const Strides strides = strides_of_groups(dims, channels_last);
  const Tensor x = g.input("x", dims, type, TensorOptions{.strides = strides});
  const Tensor gamma = g.input("gamma", {1, groups, channels, 1}, type);
  const Tensor beta = g.input("beta", {1, groups, channels, 1}, type);
  const Tensor mean = g.reduce(x, ReductionMode::avg, {2, 3});
  const Tensor centered = g.sub(x, mean);
  const Tensor variance = g.reduce(g.mul(centered, centered), ReductionMode::avg, {2, 3});
  const Tensor scale = g.rsqrt(g.add(variance, g.constant(1e-5, DataType::f32)));
  const Tensor y = g.swish(g.add(g.mul(g.mul(centered, scale), gamma), beta));
  g.output(y, {.name = "y", .type = type, .strides = strides});
  return g.finish();
}

/// Group norm in training: y, swish of it, and both statistics of each group are stored. Results may lie
/// otherwise than x.
inline Graph group_norm_saved(DataType type, const Dims& dims, bool channels_last, bool results_last,
                              DataType statistic = DataType::f32) {
  GraphBuilder g("group_norm_saved");
  const int64_t groups = dims[1], channels = dims[2];
  const Strides strides = strides_of_groups(dims, results_last);
  const Tensor x = g.input("x", dims, type, TensorOptions{.strides = strides_of_groups(dims, channels_last)});
  const Tensor gamma = g.input("gamma", {1, groups, channels, 1}, type);
  const Tensor beta = g.input("beta", {1, groups, channels, 1}, type);
  const Tensor mean = g.reduce(x, ReductionMode::avg, {2, 3});
  const Tensor centered = g.sub(x, mean);
  const Tensor variance = g.reduce(g.mul(centered, centered), ReductionMode::avg, {2, 3});
  const Tensor scale = g.rsqrt(g.add(variance, g.constant(1e-5, DataType::f32)));
  const Tensor y = g.add(g.mul(g.mul(centered, scale), gamma), beta);
  g.output(y, {.name = "y", .type = type, .strides = strides});
  g.output(g.swish(y), {.name = "z", .type = type, .strides = strides});
  g.output(mean, named("mean", statistic));
  g.output(scale, named("inv_std", statistic));
  return g.finish();
}

/// dx of group norm, by its statistics.
inline Graph group_norm_bwd(DataType type, const Dims& dims, bool channels_last) {
  GraphBuilder g("group_norm_bwd");
  const int64_t n = dims[0], groups = dims[1], channels = dims[2];
  const Strides strides = strides_of_groups(dims, channels_last);
  const Tensor x = g.input("x", dims, type, TensorOptions{.strides = strides});
  const Tensor dy = g.input("dy", dims, type, TensorOptions{.strides = strides});
  const Tensor gamma = g.input("gamma", {1, groups, channels, 1}, type);
  const Tensor mean = g.input("mean", {n, groups, 1, 1}, DataType::f32);
  const Tensor scale = g.input("inv_std", {n, groups, 1, 1}, DataType::f32);
  const Tensor normal = g.mul(g.sub(x, mean), scale), wide = g.mul(dy, gamma);
  const Tensor sum = g.reduce(wide, ReductionMode::avg, {2, 3});
  const Tensor along = g.reduce(g.mul(wide, normal), ReductionMode::avg, {2, 3});
  g.output(g.mul(g.sub(g.sub(wide, sum), g.mul(normal, along)), scale),
           {.name = "dx", .type = type, .strides = strides});
  return g.finish();
}

/// Batch norm in training, with both statistics saved; dims: images, channels, pixels. `shift` is added to x.
inline Graph batch_norm(DataType type, const Dims& dims, bool channels_last, double shift = 0) {
  GraphBuilder g("batch_norm");
  const int64_t c = dims[1], pixels = dims[2];
  const Strides strides = channels_last ? Strides{pixels * c, 1, c} : packed_strides(dims);
  const Dims channels{1, c, 1};
  Tensor x = g.input("x", dims, type, TensorOptions{.strides = strides});
  if (shift != 0) x = g.add(x, g.constant(shift, DataType::f32));
  const NormResults norm =
      g.norm_fwd(x, {.norm = NormMode::batch_norm,
                     .scale = g.input("gamma", channels, DataType::f32),
                     .bias = g.input("beta", channels, DataType::f32),
                     .prev_running_mean = g.input("running_mean", channels, DataType::f32),
                     .prev_running_var = g.input("running_var", channels, DataType::f32)});
  g.output(norm.y, {.name = "y", .type = type, .strides = strides});
  g.output(norm.mean, named("mean", DataType::f32));
  g.output(norm.inv_std, named("inv_std", DataType::f32));
  g.output(norm.next_running_mean, named("next_mean", DataType::f32));
  g.output(norm.next_running_var, named("next_var", DataType::f32));
  return g.finish();
}

/// All gradients of batch norm in training and of the ReLU behind it.
inline Graph batch_norm_bwd(DataType type, const Dims& dims, bool channels_last) {
  GraphBuilder g("batch_norm_bwd");
  const int64_t c = dims[1], pixels = dims[2];
  const Strides strides = channels_last ? Strides{pixels * c, 1, c} : packed_strides(dims);
  const Dims channels{1, c, 1};
  const Tensor x = g.input("x", dims, type, TensorOptions{.strides = strides});
  const Tensor y = g.input("y", dims, type, TensorOptions{.strides = strides});
  const Tensor dy = g.relu_bwd(g.input("dy", dims, type, TensorOptions{.strides = strides}), y);
  const NormGradients gradients = g.norm_bwd(dy, x,
                                             {.norm = NormMode::batch_norm,
                                              .scale = g.input("gamma", channels, DataType::f32),
                                              .mean = g.input("mean", channels, DataType::f32),
                                              .inv_std = g.input("inv_std", channels, DataType::f32)});
  g.output(gradients.dx, {.name = "dx", .type = type, .strides = strides});
  g.output(gradients.dscale, named("dgamma", DataType::f32));
  g.output(gradients.dbias, named("dbeta", DataType::f32));
  return g.finish();
}

/// Norm over axes 1 and 2 of 4.
inline Graph middle_norm(DataType type, const Dims& dims) {
  GraphBuilder g("middle_norm");
  const Tensor x = g.input("x", dims, type);
  const Tensor mean = g.reduce(x, ReductionMode::avg, {1, 2});
  const Tensor centered = g.sub(x, mean);
  const Tensor variance = g.reduce(g.mul(centered, centered), ReductionMode::avg, {1, 2});
  g.output(g.mul(centered, g.rsqrt(g.add(variance, g.constant(1e-5, DataType::f32)))), named("y", type));
  return g.finish();
}

}  // namespace fusor::rows_cases
