// Owns the contractions on which several engines are tested on the GPU: odd sizes, strides, paddings, groups,
// ranks, and all that may follow.
#pragma once

#include <fmt/format.h>

#include <string>

#include "frontend/graph_builder.h"

namespace fusor::contraction_cases {

struct PaddedConv {
  Dims x, w;
  Dims pre, post, stride, dilation;
};

inline const PaddedConv kConvs[] = {
    {{2, 8, 9, 11}, {16, 8, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {{1, 5, 13, 7}, {7, 5, 3, 2}, {0, 1}, {2, 0}, {2, 1}, {1, 1}},
    {{2, 12, 10, 10}, {18, 4, 3, 3}, {2, 2}, {2, 2}, {1, 2}, {2, 2}},
    {{2, 24, 8, 9}, {24, 1, 5, 5}, {2, 2}, {2, 2}, {2, 1}, {1, 1}},
    {{3, 3, 32, 32}, {33, 3, 7, 7}, {3, 3}, {3, 3}, {2, 2}, {1, 1}},
    {{2, 64, 14, 14}, {64, 64, 1, 1}, {0, 0}, {0, 0}, {1, 1}, {1, 1}},
    {{2, 64, 15, 15}, {40, 64, 1, 1}, {0, 0}, {0, 0}, {2, 2}, {1, 1}},
    {{2, 6, 50}, {8, 6, 4}, {3}, {0}, {1}, {1}},
    {{2, 6, 50}, {6, 1, 4}, {3}, {0}, {3}, {2}},
    {{1, 4, 5, 6, 7}, {6, 4, 3, 2, 3}, {1, 0, 1}, {1, 1, 1}, {1, 1, 2}, {1, 1, 1}},
    {{1, 8, 6, 6, 6}, {8, 2, 3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {2, 2, 2}, {1, 2, 1}},
};

inline ConvOptions options_of(const PaddedConv& c, ConvMode mode) {
  return {
      .pre_padding = c.pre, .post_padding = c.post, .stride = c.stride, .dilation = c.dilation, .mode = mode};
}

inline Dims y_dims(const PaddedConv& c) {
  Dims y{c.x[0], c.w[0]};
  for (int i = 0; i < c.pre.rank(); ++i)
    y.push_back((c.x[i + 2] + c.pre[i] + c.post[i] - c.dilation[i] * (c.w[i + 2] - 1) - 1) / c.stride[i] + 1);
  return y;
}

inline Graph convolution(const PaddedConv& c, ConvPass pass, DataType type, Layout layout, ConvMode mode,
                         Precision precision = Precision::exact) {
  GraphBuilder g("conv", precision);
  Tensor y;
  if (pass == ConvPass::fprop)
    y = g.conv_fprop(g.input("x", c.x, type, layout), g.input("w", c.w, type, layout), options_of(c, mode));
  else if (pass == ConvPass::dgrad)
    y = g.conv_dgrad(g.input("dy", y_dims(c), type, layout), g.input("w", c.w, type, layout), c.x,
                     options_of(c, mode));
  else
    y = g.conv_wgrad(g.input("dy", y_dims(c), type, layout), g.input("x", c.x, type, layout), c.w,
                     options_of(c, mode));
  g.output(y, {.type = is_real(type) ? type : DataType::i32});
  return g.finish();
}

inline std::string to_string(const PaddedConv& c, ConvPass pass, DataType type, Layout layout) {
  return fmt::format("{} {} x {} w {} {}", fusor::to_string(pass), fusor::to_string(type),
                     fusor::to_string(c.x), fusor::to_string(c.w), layout == Layout::nhwc ? "nhwc" : "nchw");
}

/// Two biases, two real stores and a comparison, a residual, a scalar.
inline Graph everything_after_a_matmul(int64_t m, int64_t n, int64_t k) {
  GraphBuilder g("fused");
  const Tensor a = g.input("a", {m, k}, DataType::bf16);
  const Tensor b = g.input("b", {k, n}, DataType::bf16);
  const Tensor row = g.input("row", {1, n}, DataType::f32);
  const Tensor column = g.input("column", {m, 1}, DataType::bf16);
  const Tensor residual = g.input("residual", {m, n}, DataType::bf16);
  const Tensor pre = g.add(g.mul(g.matmul(a, b), column), row);
  g.output(pre, {.name = "pre", .type = DataType::bf16});
  g.output(g.add(g.gelu(pre), g.mul(residual, g.scalar("scale", DataType::f32))), {.type = DataType::bf16});
  g.output(g.cmp_gt(pre, g.constant(0)));
  return g.finish();
}

}  // namespace fusor::contraction_cases
