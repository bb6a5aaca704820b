// Owns the convolutions on which several engines of Hopper are tested on the GPU: a case, its words, and the
// wgrads of it.
#pragma once

#include <ostream>
#include <string>

#include "frontend/graph_builder.h"
#include "tests/support/conv_dims.h"

namespace fusor {

struct ConvCase {
  Dims x, w;
  ConvOptions options;
};

// The words of no two cases of a test are the same: they name tests.
inline std::string words(const ConvCase& c) {
  std::string text = to_string(c.x) + " * " + to_string(c.w);
  const auto add = [&](const char* name, const Dims& dims) {
    if (!dims.empty()) text += std::string(" ") + name + " " + to_string(dims);
  };
  add("padding", c.options.padding);
  add("before", c.options.pre_padding);
  add("behind", c.options.post_padding);
  add("stride", c.options.stride);
  add("dilation", c.options.dilation);
  if (c.options.mode == ConvMode::convolution) text += " mirrored";
  return text;
}
inline void PrintTo(const ConvCase& c, std::ostream* out) { *out << words(c); }
inline Dims output_dims(const ConvCase& c) { return test::conv_output_dims(c.x, c.w, c.options); }

inline Graph wgrad_of(const ConvCase& c, DataType type = DataType::f32, DataType result = DataType::f32,
                      Layout layout = Layout::nchw) {
  GraphBuilder g("wgrad", Precision::allow_tf32);
  const Tensor dy = g.input("dy", output_dims(c), type, layout), x = g.input("x", c.x, type, layout);
  g.output(g.conv_wgrad(dy, x, c.w, c.options), {.type = result});
  return g.finish();
}

/// The result by filters, through an epilogue that reads and rounds, to another layout.
inline Graph scaled_and_accumulated_wgrad(const ConvCase& c) {
  GraphBuilder g("wgrad", Precision::allow_tf32);
  const Tensor dy = g.input("dy", output_dims(c), DataType::f32), x = g.input("x", c.x, DataType::f32);
  const Tensor dw = g.conv_wgrad(dy, x, c.w, c.options);
  const Tensor scaled = g.mul(dw, g.input("scale", {c.w[0], 1, 1, 1}, DataType::f32));
  g.output(g.add(scaled, g.input("before", c.w, DataType::f32)),
           {.type = DataType::f16, .layout = Layout::nhwc});
  return g.finish();
}

}  // namespace fusor
