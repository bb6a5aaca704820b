// Owns the wgrad on which tests run a kernel of planes on the host.
#pragma once

#include "frontend/graph_builder.h"
#include "tests/support/conv_dims.h"

namespace fusor::test {

struct WgradTypes {
  DataType type = DataType::f32, result = DataType::f32;
  Layout layout = Layout::nchw;  ///< of dy and x
  Precision precision = Precision::allow_tf32;
};

/// dw, in the order of the filter, of the convolution of x with w.
inline Graph wgrad_graph(const Dims& x, const Dims& w, const ConvOptions& options, const WgradTypes& types) {
  GraphBuilder g("wgrad", types.precision);
  const Tensor dy = g.input("dy", conv_output_dims(x, w, options), types.type, types.layout);
  g.output(g.conv_wgrad(dy, g.input("x", x, types.type, types.layout), w, options),
           {.name = "dw", .type = types.result, .layout = Layout::nchw});
  return g.finish();
}

}  // namespace fusor::test
