// Owns the graphs of known models that the samples and the benchmarks share; samples/graphs/*.json are made
// from them.
#pragma once

#include <fusor.h>

#include <cstdint>
#include <string>

namespace sample {

using fusor::DataType;
using fusor::Graph;
using fusor::GraphBuilder;
using fusor::Layout;
using fusor::Strides;
using fusor::Tensor;

/// A convolution with its batch-norm folded into a scale and a bias per output channel.
inline Tensor conv_bn(GraphBuilder& g, const Tensor& x, const std::string& name, int64_t channels,
                      int64_t window) {
  const Tensor w = g.input("w_" + name, {channels, x.dims[1], window, window}, DataType::f16, Layout::nhwc);
  const Tensor scale = g.input("scale_" + name, {1, channels, 1, 1}, DataType::f32);
  const Tensor bias = g.input("bias_" + name, {1, channels, 1, 1}, DataType::f32);
  const Tensor y = g.conv_fprop(x, w, {.padding = {window / 2, window / 2}, .name = "conv_" + name});
  return g.add(g.mul(y, scale, {.name = "bn_scale_" + name}), bias, {.name = "bn_bias_" + name});
}

/// The identity block of ResNet-50's first stage: 1x1 256 -> 64, 3x3 64 -> 64, 1x1 64 -> 256, residual, ReLU.
inline Graph resnet50_bottleneck(int64_t batch) {
  GraphBuilder g("resnet50_bottleneck_n" + std::to_string(batch));
  const Tensor x = g.input("x", {batch, 256, 56, 56}, DataType::f16, Layout::nhwc);
  // What one convolution hands to the next is fp16, as it would be between two layers.
  const Tensor reduced = g.relu(conv_bn(g, x, "1x1a", 64, 1), {.name = "relu_1x1a", .type = DataType::f16});
  const Tensor middle =
      g.relu(conv_bn(g, reduced, "3x3", 64, 3), {.name = "relu_3x3", .type = DataType::f16});
  const Tensor expanded = conv_bn(g, middle, "1x1b", 256, 1);
  g.output(g.relu(g.add(expanded, x, {.name = "residual"}), {.name = "relu_out"}),
           {.name = "y", .type = DataType::f16});
  return g.finish();
}

/// The convolution of an SDXL residual block at its highest resolution: 3x3 320 -> 320, bias, SiLU.
inline Graph sdxl_conv_block() {
  GraphBuilder g("sdxl_conv_block");
  const Tensor x = g.input("x", {2, 320, 128, 128}, DataType::f16, Layout::nhwc);
  const Tensor w = g.input("w", {320, 320, 3, 3}, DataType::f16, Layout::nhwc);
  const Tensor bias = g.input("bias", {1, 320, 1, 1}, DataType::f16);
  const Tensor conv = g.conv_fprop(x, w, {.padding = {1, 1}, .name = "conv"});
  g.output(g.swish(g.add(conv, bias, {.name = "add_bias"}), {.name = "silu"}), {.name = "y"});
  return g.finish();
}

/// A weight as checkpoints store it, [out, in], seen as the right-hand side [in, out] of a matmul.
inline Tensor linear_weight(GraphBuilder& g, const std::string& name, int64_t in, int64_t out) {
  return g.input(name, {in, out}, DataType::bf16, {.strides = Strides{1, in}});
}

/// LLaMA-3-8B's feed-forward block on 2048 tokens: down(silu(gate(x)) * up(x)).
inline Graph llama3_8b_ffn() {
  constexpr int64_t kTokens = 2048, kWidth = 4096, kHidden = 14336;
  GraphBuilder g("llama3_8b_ffn");
  const Tensor x = g.input("x", {kTokens, kWidth}, DataType::bf16);
  const Tensor gate = g.matmul(x, linear_weight(g, "w_gate", kWidth, kHidden), {.name = "gate"});
  const Tensor up = g.matmul(x, linear_weight(g, "w_up", kWidth, kHidden), {.name = "up"});
  const Tensor hidden = g.mul(g.swish(gate, {.name = "silu"}), up, {.name = "gated", .type = DataType::bf16});
  const Tensor down = g.matmul(hidden, linear_weight(g, "w_down", kHidden, kWidth), {.name = "down"});
  g.output(down, {.name = "y"});
  return g.finish();
}

}  // namespace sample
