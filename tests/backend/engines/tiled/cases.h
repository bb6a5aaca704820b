// Owns the graphs on which the engines direct and mma are tested: one contraction with neighbours, all in one
// fusion.
#pragma once

#include <string>
#include <vector>

#include "frontend/graph_builder.h"
#include "tests/backend/planner/whole_fusion.h"

namespace fusor::direct_cases {

inline DeviceInfo h200() {
  DeviceInfo device;
  device.name = "H200";
  device.compute_capability = 90;
  device.sm_count = 132;
  device.shared_per_block = 232448;
  device.shared_per_sm = 233472;
  device.clock_hz = 1.98e9;
  device.dram_bytes_per_s = 4.2e12;
  device.l2_bytes_per_s = 7e12;
  device.fp32_flops = 67e12;
  device.fp64_flops = 34e12;
  device.tensor_flops_16 = 790e12;
  return device;
}

using test::fusion_of;

inline Dims spatial_dims(int64_t images, int64_t channels, int spatial, int64_t extent) {
  Dims dims{images, channels};
  for (int i = 0; i < spatial; ++i) dims.push_back(extent);
  return dims;
}

/// The result, with a ReLU where the type is real (an integer product keeps its 32 bits).
inline Graph finished(GraphBuilder& g, const Tensor& product, DataType type) {
  if (!is_real(type)) return g.finish({g.output(product, {.name = "y"})});
  return g.finish({g.output(g.relu(product), {.name = "y", .type = type})});
}

/// relu(x) * w for the pass, windows of 3, padding 1; channels 24 -> 40.
inline Fusion convolution(ConvPass pass, int spatial, DataType type, Layout layout = Layout::nhwc,
                          int64_t stride = 1, Precision precision = Precision::exact) {
  GraphBuilder g("conv", precision);
  const int64_t extent = 13;
  const int64_t outputs = (extent - 1) / stride + 1;
  const Dims x = spatial_dims(2, 24, spatial, extent), w = spatial_dims(40, 24, spatial, 3),
             y = spatial_dims(2, 40, spatial, outputs);
  const ConvOptions options{.padding = Dims::filled(spatial, 1), .stride = Dims::filled(spatial, stride)};
  const Tensor first = g.input("first", pass == ConvPass::fprop ? x : y, type, layout);
  const Tensor second = g.input("second", pass == ConvPass::wgrad ? x : w, type, layout);
  const Tensor left = is_real(type) ? g.relu(first) : first;
  switch (pass) {
    case ConvPass::fprop:
      return fusion_of(finished(g, g.conv_fprop(left, second, options), type));
    case ConvPass::dgrad:
      return fusion_of(finished(g, g.conv_dgrad(left, second, x, options), type));
    default:
      return fusion_of(finished(g, g.conv_wgrad(left, second, w, options), type));
  }
}

/// relu(a) * b, [batch, m, k] times [k, n].
inline Fusion matmul(DataType type, int64_t batch = 3, int64_t m = 100, int64_t n = 72, int64_t k = 50,
                     Precision precision = Precision::exact) {
  GraphBuilder g("matmul", precision);
  const Tensor a = g.input("a", {batch, m, k}, type);
  const Tensor b = g.input("b", {k, n}, type);
  return fusion_of(finished(g, g.matmul(is_real(type) ? g.relu(a) : a, b), type));
}

}  // namespace fusor::direct_cases
