// Owns the fused convolution with which engines' GPU tests begin.
#pragma once

#include "frontend/graph_builder.h"
#include "tests/support/conv_dims.h"

namespace fusor {

/// relu(conv + bias), all of one type and layout.
inline Graph fprop_bias_relu(const Dims& x_dims, const Dims& w_dims, const ConvOptions& options,
                             DataType type, Layout layout) {
  GraphBuilder g("fprop");
  const Tensor x = g.input("x", x_dims, type, layout), w = g.input("w", w_dims, type, layout);
  const Tensor bias = g.input("bias", test::channel_dims(x_dims.rank(), w_dims[0]), type);
  g.output(g.relu(g.add(g.conv_fprop(x, w, options), bias)), {.layout = layout});
  return g.finish();
}

}  // namespace fusor
