// Owns the graphs of known models that the samples and the benchmarks share; samples/graphs/*.json are made
// from them.
#pragma once

#include <fusor.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

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

/// Sizes of one layer of a transformer, for one sequence a batch entry.
struct LayerSizes {
  int64_t batch, length, width, heads, shared_heads, hidden;

  int64_t head() const { return width / heads; }
};

inline constexpr LayerSizes kLlama3_8b{1, 2048, 4096, 32, 8, 14336};
inline constexpr LayerSizes kGpt2{8, 1024, 768, 12, 12, 3072};

/// Rotary positions of x [batch, heads, length, head]: the halves of a head are the parts of complex numbers,
/// which are turned by the angles whose cosines and sines, [1, 1, length, head / 2], are given.
inline Tensor rotated(GraphBuilder& g, const Tensor& x, const Tensor& cosine, const Tensor& sine) {
  fusor::Dims start = fusor::Dims::filled(4, 0), middle = start, half = x.dims;
  half[3] = middle[3] = x.dims[3] / 2;
  const Tensor a = g.slice(x, start, half), b = g.slice(x, middle, x.dims);
  return g.concatenate({g.sub(g.mul(a, cosine), g.mul(b, sine), {.type = DataType::bf16}),
                        g.add(g.mul(b, cosine), g.mul(a, sine), {.type = DataType::bf16})},
                       3);
}

/// One layer of LLaMA 3, forward: x + attention(norm(x)), then that + swiglu(norm(that)). Rotary positions,
/// keys and values that groups of heads share, a causal mask.
inline Graph llama3_layer(const LayerSizes& n, const std::string& name) {
  GraphBuilder g(name);
  const fusor::Dims rows{n.batch * n.length, n.width};
  const auto linear = [&](const Tensor& x, const char* weight, int64_t columns) {
    return g.matmul(x, linear_weight(g, weight, x.dims[1], columns), {.name = weight});
  };
  const auto norm = [&](const Tensor& x, const char* scale) {
    return g
        .norm_fwd(x, {.norm = fusor::NormMode::rms_norm,
                      .axes = {1},
                      .scale = g.input(scale, {1, n.width}, DataType::bf16)})
        .y;
  };
  const fusor::Dims angles{1, 1, n.length, n.head() / 2};
  const Tensor cosine = g.input("cosine", angles, DataType::f32),
               sine = g.input("sine", angles, DataType::f32);
  const auto heads = [&](const Tensor& x, int64_t count) {
    return g.transpose(g.reshape(x, {n.batch, n.length, count, n.head()}), {0, 2, 1, 3});
  };
  const Tensor x = g.input("x", rows, DataType::bf16), normed = norm(x, "norm_attention");
  const Tensor q = rotated(g, heads(linear(normed, "w_q", n.width), n.heads), cosine, sine);
  const int64_t shared = n.shared_heads * n.head();
  const Tensor k = rotated(g, heads(linear(normed, "w_k", shared), n.shared_heads), cosine, sine);
  const Tensor v = heads(linear(normed, "w_v", shared), n.shared_heads);
  const fusor::SdpaAttributes causal{.attn_scale = 1 / std::sqrt(static_cast<double>(n.head())),
                                     .right_bound = 0};
  const Tensor o = g.sdpa_fwd(q, k, v, {.attributes = causal}).o;
  const Tensor merged = g.reshape(g.transpose(o, {0, 2, 1, 3}), rows);
  const Tensor middle =
      g.add(x, linear(merged, "w_o", n.width), {.name = "residual", .type = DataType::bf16});
  const Tensor second = norm(middle, "norm_mlp");
  const Tensor gate = g.swish(linear(second, "w_gate", n.hidden), {.name = "silu"});
  const Tensor hidden =
      g.mul(gate, linear(second, "w_up", n.hidden), {.name = "gated", .type = DataType::bf16});
  g.output(g.add(middle, linear(hidden, "w_down", n.width)), {.name = "y", .type = DataType::bf16});
  return g.finish();
}

/// A linear layer, and its gradients: of the operand, and, as outputs, of weight and bias.
struct TrainedLinear {
  GraphBuilder& g;
  std::string name;
  Tensor x, weight, y;

  TrainedLinear(GraphBuilder& builder, std::string name_, const Tensor& x_, int64_t columns)
      : g(builder), name(std::move(name_)), x(x_) {
    weight = g.input("w_" + name, {x.dims[1], columns}, DataType::bf16);
    y = g.add(g.matmul(x, weight), g.input("b_" + name, {1, columns}, DataType::f32),
              {.name = name, .type = DataType::bf16});
  }
  Tensor backward(const Tensor& dy) const {
    g.output(g.matmul(g.transpose(x, {1, 0}), dy), {.name = "dw_" + name, .type = DataType::bf16});
    g.output(g.reduce(dy, fusor::ReductionMode::add, {0}), {.name = "db_" + name, .type = DataType::f32});
    return g.matmul(dy, g.transpose(weight, {1, 0}), {.name = "dx_" + name, .type = DataType::bf16});
  }
};

/// A layer norm of rows, and its gradients.
struct TrainedNorm {
  GraphBuilder& g;
  std::string name;
  Tensor x, scale;
  fusor::NormResults results;

  TrainedNorm(GraphBuilder& builder, std::string name_, const Tensor& x_)
      : g(builder), name(std::move(name_)), x(x_) {
    scale = g.input("scale_" + name, {1, x.dims[1]}, DataType::f32);
    const Tensor bias = g.input("bias_" + name, {1, x.dims[1]}, DataType::f32);
    results =
        g.norm_fwd(x, {.axes = {1}, .scale = scale, .bias = bias, .name = name, .type = DataType::bf16});
  }
  Tensor backward(const Tensor& dy) const {
    const fusor::NormGradients gradients =
        g.norm_bwd(dy, x, {.axes = {1}, .scale = scale, .mean = results.mean, .inv_std = results.inv_std});
    g.output(gradients.dscale, {.name = "dscale_" + name, .type = DataType::f32});
    g.output(gradients.dbias, {.name = "dbias_" + name, .type = DataType::f32});
    return gradients.dx;
  }
};

/// One block of GPT-2, forward and backward: y, and the gradients of x and of every parameter for a given
/// gradient of y.
inline Graph gpt2_training(const LayerSizes& n, const std::string& name) {
  GraphBuilder g(name);
  const fusor::Dims rows{n.batch * n.length, n.width}, heads{n.batch, n.length, n.heads, n.head()};
  const auto split = [&](const Tensor& x) { return g.transpose(g.reshape(x, heads), {0, 2, 1, 3}); };
  const auto merged = [&](const Tensor& x) { return g.reshape(g.transpose(x, {0, 2, 1, 3}), rows); };
  const auto third = [&](const Tensor& x, int64_t i) {
    return split(g.slice(x, {0, i * n.width}, {rows[0], (i + 1) * n.width}));
  };
  const fusor::SdpaAttributes causal{.attn_scale = 1 / std::sqrt(static_cast<double>(n.head())),
                                     .right_bound = 0};

  const Tensor x = g.input("x", rows, DataType::bf16);
  const TrainedNorm first(g, "first_norm", x);
  const TrainedLinear qkv(g, "qkv", first.results.y, 3 * n.width);
  const Tensor q = third(qkv.y, 0), k = third(qkv.y, 1), v = third(qkv.y, 2);
  const fusor::SdpaResults attention =
      g.sdpa_fwd(q, k, v, {.attributes = causal, .name = "attention", .type = DataType::bf16});
  const TrainedLinear projected(g, "projection", merged(attention.o), n.width);
  const Tensor middle = g.add(x, projected.y, {.name = "middle", .type = DataType::bf16});
  const TrainedNorm second(g, "second_norm", middle);
  const TrainedLinear wide(g, "wide", second.results.y, n.hidden);
  const Tensor activated = g.gelu_tanh(wide.y, {.name = "gelu", .type = DataType::bf16});
  const TrainedLinear narrow(g, "narrow", activated, n.width);
  g.output(g.add(middle, narrow.y), {.name = "y", .type = DataType::bf16});

  const Tensor dy = g.input("dy", rows, DataType::bf16);
  const Tensor dwide =
      g.gelu_tanh_bwd(narrow.backward(dy), wide.y, {.name = "dgelu", .type = DataType::bf16});
  const Tensor dmiddle =
      g.add(dy, second.backward(wide.backward(dwide)), {.name = "dmiddle", .type = DataType::bf16});
  const Tensor doutput = split(projected.backward(dmiddle));
  const fusor::SdpaGradients gradients =
      g.sdpa_bwd(q, k, v, attention.o, doutput, attention.stats,
                 {.attributes = causal, .name = "dattention", .type = DataType::bf16});
  const Tensor dqkv = g.concatenate({merged(gradients.dq), merged(gradients.dk), merged(gradients.dv)}, 1);
  g.output(g.add(dmiddle, first.backward(qkv.backward(dqkv))), {.name = "dx", .type = DataType::bf16});
  return g.finish();
}

}  // namespace sample
