// Owns the graphs on which the window engine is tested: pooling of images, planned as one fusion.
#pragma once

#include <vector>

#include "backend/planner/planner.h"
#include "core/device_info.h"
#include "frontend/graph_builder.h"
#include "tests/backend/devices.h"

namespace fusor::window_cases {

using test::h200;

inline Strides strides_of(const Dims& dims, bool channels_last) {
  if (!channels_last) return packed_strides(dims);
  Strides strides = dims;
  int64_t step = dims[1];
  strides[1] = 1;
  for (int axis = dims.rank() - 1; axis >= 2; --axis) {
    strides[axis] = step;
    step *= dims[axis];
  }
  strides[0] = step;
  return strides;
}

struct Pool {
  ResampleOptions options;
  Dims x;
  DataType type = DataType::f16;
  bool channels_last = true;

  Dims y() const {
    Dims dims = x;
    for (int i = 0; i < options.window.rank(); ++i)
      dims[i + 2] = (x[i + 2] + options.pre_padding[i] + options.post_padding[i] - options.window[i]) /
                        options.stride[i] +
                    1;
    return dims;
  }
  /// Whether an element lies in more than one window.
  bool overlaps() const {
    for (int i = 0; i < options.window.rank(); ++i)
      if (options.window[i] > options.stride[i]) return true;
    return false;
  }
  Tensor input(GraphBuilder& g, const char* name, const Dims& dims, DataType of) const {
    return g.input(name, dims, of, TensorOptions{.strides = strides_of(dims, channels_last)});
  }
  void output(GraphBuilder& g, const Tensor& tensor, const char* name, const Dims& dims, DataType of) const {
    g.output(tensor, {.name = name, .type = of, .strides = strides_of(dims, channels_last)});
  }
};

inline Pool maximum(const Dims& x, int64_t window, int64_t stride, int64_t padding) {
  const Dims all = {window, window}, steps = {stride, stride}, paddings = {padding, padding};
  return {{.mode = ResampleMode::maxpool,
           .window = all,
           .stride = steps,
           .pre_padding = paddings,
           .post_padding = paddings},
          x};
}
inline Pool average(const Dims& x, int64_t window, int64_t stride, int64_t padding, bool counts_padding) {
  Pool pool = maximum(x, window, stride, padding);
  pool.options.mode =
      counts_padding ? ResampleMode::avgpool_include_padding : ResampleMode::avgpool_exclude_padding;
  return pool;
}

inline Graph forward(const Pool& pool, bool with_index = false) {
  GraphBuilder g("pool");
  const ResampleResults all = g.resample_fwd(pool.input(g, "x", pool.x, pool.type), pool.options);
  pool.output(g, all.y, "y", pool.y(), pool.type);
  if (with_index) pool.output(g, all.index, "index", pool.y(), DataType::i8);
  return g.finish();
}

/// By the index where `by_index`, else, of a maximum, by x.
inline Graph backward(const Pool& pool, bool by_index = false) {
  GraphBuilder g("pool_bwd");
  const Tensor dy = pool.input(g, "dy", pool.y(), pool.type);
  Tensor x, index;
  if (by_index) index = pool.input(g, "index", pool.y(), DataType::i8);
  if (!by_index && pool.options.mode == ResampleMode::maxpool) x = pool.input(g, "x", pool.x, pool.type);
  pool.output(g, g.resample_bwd(dy, pool.x, pool.options, x, index), "dx", pool.x, pool.type);
  return g.finish();
}

/// Images of `from` as images of `to`, bilinear, or the gradient of that; with a residual in front of the
/// end.
inline Graph interpolation(const Dims& from, const Dims& to, bool channels_last, bool is_backward = false) {
  GraphBuilder g("interpolation");
  const Pool layout{.options = {}, .x = from, .channels_last = channels_last};
  ResampleOptions options;
  options.mode = ResampleMode::bilinear;
  options.output_size = {to[2], to[3]};
  const Dims& read = is_backward ? to : from;
  const Dims& made = is_backward ? from : to;
  const Tensor x = layout.input(g, "x", read, layout.type);
  const Tensor y = is_backward ? g.resample_bwd(x, from, options, {}, {}) : g.resample_fwd(x, options).y;
  layout.output(g, g.add(y, layout.input(g, "residual", made, layout.type)), "y", made, layout.type);
  return g.finish();
}

/// Numbers stride * h + k of windows h and their places k, in [1, windows, places].
inline Tensor window_places(GraphBuilder& g, const Dims& dims, int64_t stride) {
  const Tensor like = g.input("like", dims, DataType::i32);
  return g.add(g.mul(g.gen_index(like, 1), g.constant(stride, DataType::i32)), g.gen_index(like, 2));
}
/// Every place of a window has a weight.
inline Graph weighted_windows() {
  GraphBuilder g("weighted");
  const Tensor x = g.input("x", {8, 34, 1}, DataType::f32), w = g.input("w", {8, 1, 3}, DataType::f32);
  const Tensor taken = g.gather(x, window_places(g, {1, 32, 3}, 1), {.axis = 1});
  g.output(g.reduce(g.mul(taken, w), ReductionMode::add, {2}), {.name = "y"});
  return g.finish();
}
/// x has extents along windows or their places beside the axis that is gathered.
inline Graph strided_windows(const Dims& x, int64_t axis) {
  GraphBuilder g("strided");
  const Tensor taken =
      g.gather(g.input("x", x, DataType::f32), window_places(g, {1, 32, 3}, 1), {.axis = axis});
  g.output(g.reduce(taken, ReductionMode::add, {2}), {.name = "y"});
  return g.finish();
}
/// The first two elements are none, which are no whole run.
inline Graph guarded_windows() {
  GraphBuilder g("guarded");
  const Tensor x = g.input("x", {8, 64, 1}, DataType::f32), place = window_places(g, {1, 32, 3}, 1);
  const Tensor fits = g.cmp_ge(place, g.constant(int64_t{2}, DataType::i32));
  const Tensor at = g.binary_select(place, g.constant(int64_t{-1}, DataType::i32), fits);
  g.output(g.reduce(g.gather(x, at, {.axis = 1}), ReductionMode::add, {2}), {.name = "y"});
  return g.finish();
}
/// A total is stored at every place of its window.
inline Graph spread_totals() {
  GraphBuilder g("spread");
  const Tensor x = g.input("x", {8, 34, 1}, DataType::f32);
  const Tensor taken = g.gather(x, window_places(g, {1, 32, 3}, 1), {.axis = 1});
  const Tensor total = g.reduce(taken, ReductionMode::add, {2});
  const Tensor b = g.input("b", {8, 32, 3}, DataType::f32, TensorOptions{.strides = Strides{32, 1, 0}});
  g.output(g.add(total, b), {.name = "y"});
  return g.finish();
}

/// The fusions that the graph is partitioned into.
inline std::vector<Fusion> fusions_of(const Graph& graph) {
  const Graph expanded = expand(graph);
  const FoldedGraph folded = fold_views(expanded);
  std::vector<Fusion> fusions;
  for (const std::vector<int>& ops : partition(expanded, folded))
    fusions.push_back(make_fusion(expanded, folded, ops));
  return fusions;
}

}  // namespace fusor::window_cases
