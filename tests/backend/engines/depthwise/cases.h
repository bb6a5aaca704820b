// Owns the graphs on which the depthwise engine is tested: one depthwise convolution with neighbours, all in
// one fusion.
#pragma once

#include <optional>

#include "tests/backend/engines/tiled/cases.h"

namespace fusor::depthwise_cases {

using direct_cases::fusion_of;

struct Case {
  int spatial = 2;
  int64_t channels = 64, window = 3, stride = 1, dilation = 1, extent = 28, images = 4;
  ConvPass pass = ConvPass::fprop;
  DataType type = DataType::f16;
  Layout layout = Layout::nhwc;
  bool fused = false;                        // scale, bias, relu before; bias, relu after
  std::optional<Layout> result_layout = {};  // where it is another than `layout`
};

inline Graph graph(const Case& c) {
  GraphBuilder g("depthwise");
  const int64_t padding = c.dilation * (c.window - 1) / 2;
  const int64_t outputs = (c.extent + 2 * padding - c.dilation * (c.window - 1) - 1) / c.stride + 1;
  const auto dims = [&](int64_t images, int64_t channels, int64_t extent) {
    return direct_cases::spatial_dims(images, channels, c.spatial, extent);
  };
  const Dims x = dims(c.images, c.channels, c.extent), y = dims(c.images, c.channels, outputs),
             w = dims(c.channels, 1, c.window);
  const ConvOptions options{.padding = Dims::filled(c.spatial, padding),
                            .stride = Dims::filled(c.spatial, c.stride),
                            .dilation = Dims::filled(c.spatial, c.dilation)};
  const Tensor first = g.input("first", c.pass == ConvPass::fprop ? x : y, c.type, c.layout);
  const Tensor second = g.input("second", c.pass == ConvPass::wgrad ? x : w, c.type, c.layout);
  const auto per_channel = [&](const char* name) {
    return g.input(name, dims(1, c.channels, 1), DataType::f32);
  };
  const Tensor left =
      c.fused ? g.relu(g.sub(g.mul(first, per_channel("scale")), per_channel("shift"))) : first;
  Tensor result = c.pass == ConvPass::fprop   ? g.conv_fprop(left, second, options)
                  : c.pass == ConvPass::dgrad ? g.conv_dgrad(left, second, x, options)
                                              : g.conv_wgrad(left, second, w, options);
  if (c.fused)
    result = c.pass == ConvPass::wgrad ? g.mul(result, g.constant(0.5))
                                       : g.relu(g.add(result, per_channel("bias")));
  return g.finish(
      {g.output(result, {.name = "result", .type = c.type, .layout = c.result_layout.value_or(c.layout)})});
}

inline Fusion fusion(const Case& c) { return fusion_of(graph(c)); }

}  // namespace fusor::depthwise_cases
