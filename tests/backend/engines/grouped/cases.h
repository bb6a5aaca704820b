// Owns the graphs on which the grouped engine is tested: one convolution in groups with neighbours, all in
// one fusion.
#pragma once

#include "tests/backend/engines/tiled/cases.h"

namespace fusor::grouped_cases {

using direct_cases::fusion_of;

struct Case {
  int spatial = 2;
  int64_t groups = 4, in = 24, out = 24;  // channels of a group
  int64_t window = 3, stride = 1, dilation = 1, extent = 28, images = 8;
  ConvPass pass = ConvPass::fprop;
  DataType type = DataType::bf16;
  Layout layout = Layout::nhwc, result_layout = Layout::nhwc;
  bool prologue = false, fused = false;  // relu before; scale, residual, relu after
  bool narrows_filters = false;          // filters of fp32
};

inline Graph graph(const Case& c) {
  GraphBuilder g("grouped");
  const int64_t padding = c.dilation * (c.window - 1) / 2;
  const int64_t outputs = (c.extent + 2 * padding - c.dilation * (c.window - 1) - 1) / c.stride + 1;
  const auto dims = [&](int64_t images, int64_t channels, int64_t extent) {
    return direct_cases::spatial_dims(images, channels, c.spatial, extent);
  };
  const bool forward = c.pass == ConvPass::fprop;
  const Dims x = dims(c.images, c.groups * c.in, c.extent), y = dims(c.images, c.groups * c.out, outputs),
             w = dims(c.groups * c.out, c.in, c.window);
  const ConvOptions options{.padding = Dims::filled(c.spatial, padding),
                            .stride = Dims::filled(c.spatial, c.stride),
                            .dilation = Dims::filled(c.spatial, c.dilation)};
  Tensor first = g.input("first", forward ? x : y, c.type, c.layout);
  Tensor second = g.input("second", c.pass == ConvPass::wgrad ? x : w,
                          c.narrows_filters ? DataType::f32 : c.type, c.layout);
  if (c.narrows_filters) second = g.identity(second, {.type = c.type});
  if (c.prologue) first = g.relu(first);
  Tensor result = forward                     ? g.conv_fprop(first, second, options)
                  : c.pass == ConvPass::dgrad ? g.conv_dgrad(first, second, x, options)
                                              : g.conv_wgrad(first, second, w, options);
  if (c.fused) {
    const Tensor scale = g.input("scale", dims(1, (forward ? y : x)[1], 1), DataType::f32);
    result = g.relu(g.add(g.mul(result, scale), g.input("residual", forward ? y : x, c.type, c.layout)));
  }
  return g.finish({g.output(result, {.name = "result", .type = c.type, .layout = c.result_layout})});
}

inline Fusion fusion(const Case& c) { return fusion_of(graph(c)); }

}  // namespace fusor::grouped_cases
