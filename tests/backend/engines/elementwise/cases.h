// Owns the graphs on which the elementwise engine is tested, one fusion each.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/device_info.h"
#include "frontend/graph_builder.h"
#include "tests/backend/devices.h"
#include "tests/backend/planner/whole_fusion.h"

namespace fusor::elementwise_cases {

using test::h200;

using test::fusion_of;

/// gelu(x * y + z) * y, or its like for integers.
inline Fusion chain(DataType type, const Dims& dims) {
  GraphBuilder g;
  const Tensor x = g.input("x", dims, type), y = g.input("y", dims, type), z = g.input("z", dims, type);
  const Tensor sum = g.add(g.mul(x, y), z);
  return fusion_of(g.finish({g.output(g.mul(is_real(type) ? g.gelu(sum) : g.relu(sum), y), {.type = type})}));
}

/// x + b, b along the last axis only.
inline Fusion bias(DataType type, const Dims& dims) {
  GraphBuilder g;
  Dims row = Dims::filled(dims.rank(), 1);
  row[dims.rank() - 1] = dims.back();
  const Tensor x = g.input("x", dims, type), b = g.input("b", row, type);
  return fusion_of(g.finish({g.relu(g.add(x, b))}));
}

inline Fusion aligned(int64_t bytes) {
  GraphBuilder g;
  const Tensor x = g.input("x", {64, 128}, DataType::bf16, TensorOptions{.alignment = bytes});
  return fusion_of(g.finish({g.output(g.relu(x), {.alignment = bytes})}));
}

inline Fusion to_nhwc(DataType type, const Dims& dims) {
  GraphBuilder g;
  const Tensor x = g.input("x", dims, type);
  g.output(g.identity(x), {.type = type, .layout = Layout::nhwc});
  return fusion_of(g.finish());
}

inline Fusion to_nchw(DataType type, const Dims& dims) {
  GraphBuilder g;
  const Tensor x = g.input("x", dims, type, Layout::nhwc);
  g.output(g.identity(x), {.type = type, .layout = Layout::nchw});
  return fusion_of(g.finish());
}

/// relu(x + b) of channels, from NHWC to NCHW or the other way.
inline Fusion biased_layout(DataType type, const Dims& dims, Layout from, Layout to) {
  GraphBuilder g;
  const Tensor x = g.input("x", dims, type, from), b = g.input("b", {1, dims[1], 1, 1}, type);
  g.output(g.relu(g.add(x, b)), {.type = type, .layout = to});
  return fusion_of(g.finish());
}

/// relu(x + r) * s with x and r NCHW, s and the result NHWC.
inline Fusion mixed_layouts(DataType type, const Dims& dims) {
  GraphBuilder g;
  const Tensor x = g.input("x", dims, type), r = g.input("r", dims, type);
  const Tensor s = g.input("s", dims, type, Layout::nhwc);
  g.output(g.mul(g.relu(g.add(x, r)), s), {.type = type, .layout = Layout::nhwc});
  return fusion_of(g.finish());
}

inline Fusion reduction(DataType type, const Dims& dims, const Dims& axes,
                        ReductionMode mode = ReductionMode::add) {
  GraphBuilder g;
  return fusion_of(g.finish({g.reduce(g.input("x", dims, type), mode, axes)}));
}

/// x * x stored, and its sum, largest magnitude and norm over the axes, in one pass.
inline Fusion statistics(DataType type, const Dims& dims, const Dims& axes) {
  GraphBuilder g;
  const Tensor x = g.input("x", dims, type);
  const Tensor square = g.mul(x, x);
  return fusion_of(
      g.finish({g.output(square, {.type = type}), g.reduce(square, ReductionMode::add, axes),
                g.reduce(x, ReductionMode::amax, axes), g.reduce(x, ReductionMode::norm2, axes)}));
}

/// Eight axes that nothing merges: every operand walks them in another order.
inline Fusion rank_eight(DataType type) {
  GraphBuilder g;
  const Dims dims{2, 3, 2, 3, 2, 3, 2, 5};
  Strides reversed = Dims::filled(8, 0);
  int64_t stride = 1;
  for (int axis = 0; axis < 8; ++axis) {
    reversed[axis] = stride;
    stride *= dims[axis];
  }
  const Tensor x = g.input("x", dims, type);
  const Tensor y = g.input("y", dims, type, TensorOptions{.strides = reversed});
  return fusion_of(g.finish({g.output(g.add(x, y), {.type = type})}));
}

/// A chain of `ops` additions and multiplications.
inline Fusion long_chain(int ops) {
  GraphBuilder g;
  const Tensor x = g.input("x", {1024, 1024}, DataType::bf16), y = g.input("y", {1024, 1024}, DataType::bf16);
  Tensor sum = x;
  for (int i = 0; i < ops; ++i) sum = i % 2 == 0 ? g.add(sum, y) : g.mul(sum, x);
  return fusion_of(g.finish({g.output(sum, {.type = DataType::bf16})}));
}

/// Rotary positions of neighbouring pairs, (a, b) -> (a cos - b sin, a sin + b cos), in rows of x.
inline Graph rotary_pairs(DataType type, const Dims& x, DataType angles = DataType::f32) {
  GraphBuilder g("rotary_pairs");
  Dims pairs = x, half = x;
  pairs[1] /= 2;
  pairs.push_back(2);
  half[1] /= 2;
  half.push_back(1);
  const Tensor all = g.reshape(g.input("x", x, type), pairs);
  const auto part = [&](int64_t which) {
    return g.slice(all, {0, 0, which}, {x[0], half[1], which + 1}, {});
  };
  const Tensor a = part(0), b = part(1);
  const Tensor cosine = g.input("cosine", {1, half[1], 1}, angles),
               sine = g.input("sine", {1, half[1], 1}, angles);
  const PointwiseOptions rounded{.type = type};
  const Tensor first = g.sub(g.mul(a, cosine), g.mul(b, sine), rounded);
  const Tensor second = g.add(g.mul(a, sine), g.mul(b, cosine), rounded);
  g.output(g.reshape(g.concatenate({first, second}, 2), x), {.name = "y", .type = type});
  return g.finish();
}

/// Products of neighbours in rows of x, and of the two behind them: two pairs of one operand.
inline Graph neighbouring_pairs(DataType type, const Dims& x) {
  GraphBuilder g("neighbouring_pairs");
  const Tensor all = g.input("x", x, type);
  const auto every_other = [&](int64_t first) {
    return g.slice(all, {0, first}, {x[0], x[1] - 3 + first}, {1, 2});
  };
  const Tensor sum = g.add(g.mul(every_other(0), every_other(1)), g.mul(every_other(2), every_other(3)));
  g.output(sum, {.name = "y", .type = type});
  return g.finish();
}

/// The one fusion of a graph whose views are folded.
inline Fusion planned_fusion(const Graph& graph) {
  const Graph planned = expand(graph);
  const FoldedGraph folded = fold_views(planned);
  return make_fusion(planned, folded, partition(planned, folded).at(0));
}

/// One fusion for every kernel and every way through it.
inline std::vector<std::pair<std::string, Fusion>> every_variant(DataType type = DataType::bf16) {
  return {{"chain", chain(type, {8192, 8192})},
          {"chain with a tail", chain(type, {1000003})},
          {"chain with wide indices", chain(type, {1 << 16, 1 << 16})},
          {"bias", bias(type, {16384, 8192})},
          {"bias with odd rows", bias(type, {16383, 8190})},
          {"bias with scalar rows", bias(type, {16383, 8191})},
          {"rank 8", rank_eight(type)},
          {"transpose", to_nhwc(type, {256, 64, 64, 64})},
          {"transpose with tails", to_nhwc(type, {37, 53, 7, 9})},
          {"planes", to_nhwc(type, {128, 256, 14, 14})},
          {"odd planes", to_nhwc(type, {128, 512, 7, 7})},
          {"planes from channels", to_nchw(type, {128, 256, 14, 14})},
          {"odd planes from channels", to_nchw(type, {128, 512, 7, 7})},
          {"planes with a bias", biased_layout(type, {128, 256, 14, 14}, Layout::nchw, Layout::nhwc)},
          {"pairs", planned_fusion(rotary_pairs(type, {4096, 128}))},
          {"two pairs", planned_fusion(neighbouring_pairs(type, {4096, 128}))},
          {"odd pairs", planned_fusion(rotary_pairs(type, {4096, 130}))},
          {"transpose of two", mixed_layouts(type, {16, 64, 28, 28})},
          {"rows", reduction(type, {8192, 8192}, {1})},
          {"short rows", reduction(type, {100000, 24}, {1})},
          {"odd rows", reduction(type, {511, 8191}, {1})},
          {"whole sum", reduction(type, {1 << 26}, {0})},
          {"whole sum with a tail", reduction(type, {(1 << 26) + 3}, {0})},
          {"channels", reduction(type, {128, 64, 56, 56}, {0, 2, 3})},
          {"columns", reduction(type, {8192, 8192}, {0})},
          {"few columns", reduction(type, {1 << 20, 4}, {0})},
          {"statistics of rows", statistics(type, {4096, 4096}, {1})},
          {"statistics of columns", statistics(type, {4096, 4096}, {0})}};
}

}  // namespace fusor::elementwise_cases
