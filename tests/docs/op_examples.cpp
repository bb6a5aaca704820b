// Owns the examples of docs/op-reference.md, one for each kind of op: builds each graph, runs it on the CPU
// device, compares it with the oracle, and prints the results' types and dims as JSON. Each example is the
// text between EXAMPLE and its bracket.
#include <fusor.h>

#include <cstdio>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

using namespace fusor;

namespace {

struct Example {
  std::string kind;
  std::function<void(GraphBuilder&)> build;
};

std::vector<Example>& examples() {
  static std::vector<Example> list;
  return list;
}

struct Added {
  Added(const char* kind, void (*build)(GraphBuilder&)) { examples().push_back({kind, build}); }
};

#define EXAMPLE(kind)                              \
  void example_##kind(GraphBuilder& g);            \
  const Added added_##kind(#kind, example_##kind); \
  void example_##kind(GraphBuilder& g)

EXAMPLE(pointwise) {
  Tensor x = g.input("x", {8, 128}, DataType::f16);
  Tensor b = g.input("b", {128}, DataType::f16);
  g.output(g.relu(g.add(x, b),
                  {.upper_clip = 6}));  // g.pointwise(PointwiseMode::add, {x, b}) is the same as g.add(x, b)
}

EXAMPLE(reduction) {
  Tensor x = g.input("x", {8, 128}, DataType::f16);
  g.output(g.reduce(x, ReductionMode::max, {-1}));        // of each row
  g.output(g.reduce_to(x, ReductionMode::amax, {8, 4}));  // of each 32 neighbours
}

EXAMPLE(matmul) {
  Tensor a = g.input("a", {4, 8, 32}, DataType::bf16);
  Tensor b = g.input("b", {32, 16}, DataType::bf16);  // shared by all 4
  g.output(g.matmul(a, b));
}

EXAMPLE(conv_fprop) {
  Tensor x = g.input("x", {2, 16, 14, 14}, DataType::f16, Layout::nhwc);
  Tensor w = g.input("w", {32, 16, 3, 3}, DataType::f16, Layout::nhwc);
  g.output(g.conv_fprop(x, w, {.padding = {1, 1}, .stride = {2, 2}}));
}

EXAMPLE(conv_dgrad) {
  Tensor dy = g.input("dy", {2, 32, 7, 7}, DataType::f16, Layout::nhwc);
  Tensor w = g.input("w", {32, 16, 3, 3}, DataType::f16, Layout::nhwc);
  g.output(g.conv_dgrad(dy, w, {2, 16, 14, 14}, {.padding = {1, 1}, .stride = {2, 2}}));
}

EXAMPLE(conv_wgrad) {
  Tensor dy = g.input("dy", {2, 32, 7, 7}, DataType::f16, Layout::nhwc);
  Tensor x = g.input("x", {2, 16, 14, 14}, DataType::f16, Layout::nhwc);
  g.output(g.conv_wgrad(dy, x, {32, 16, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}}));
}

EXAMPLE(reshape) {
  Tensor x = g.input("x", {8, 12}, DataType::f32);
  g.output(g.reshape(x, {8, 3, 4}));
}

EXAMPLE(transpose) {
  Tensor x = g.input("x", {2, 8, 12}, DataType::f32);
  g.output(g.transpose(x, {0, 2, 1}));
}

EXAMPLE(slice) {
  Tensor x = g.input("x", {8, 12}, DataType::f32);
  g.output(g.slice(x, {0, 2}, {8, 12}, {1, 5}));  // columns 2 and 7
}

EXAMPLE(concatenate) {
  Tensor a = g.input("a", {8, 12}, DataType::f32);
  Tensor b = g.input("b", {8, 4}, DataType::f32);
  g.output(g.concatenate({a, b}, 1));
}

EXAMPLE(gather) {
  Tensor table = g.input("table", {1000, 64}, DataType::f16);
  Tensor tokens = g.input("tokens", {16, 1}, DataType::i32);
  g.output(g.gather(table, tokens, {.axis = 0}));  // an embedding
}

EXAMPLE(scatter) {
  Tensor x = g.input("x", {8, 64}, DataType::f16);
  Tensor to = g.sub(g.constant(7, DataType::i32), g.gen_index(x, 0));
  g.output(g.scatter(x, to, {8, 64}, {.axis = 0}));  // the rows in reverse
}

EXAMPLE(softmax) {
  Tensor x = g.input("x", {8, 128}, DataType::f16);
  SoftmaxResults r = g.softmax(x, {.axis = -1});
  g.output(r.y);
  g.output(r.logsumexp);
}

EXAMPLE(softmax_bwd) {
  Tensor dy = g.input("dy", {8, 128}, DataType::f16);
  Tensor y = g.input("y", {8, 128}, DataType::f16);
  g.output(g.softmax_bwd(dy, y).dx);
}

EXAMPLE(cross_entropy) {
  Tensor x = g.input("x", {8, 1000}, DataType::bf16);
  Tensor labels = g.input("labels", {8, 1}, DataType::i32);
  g.output(g.cross_entropy(x, labels, {.label_smoothing = 0.1}).loss);
}

EXAMPLE(cross_entropy_bwd) {
  Tensor x = g.input("x", {8, 1000}, DataType::bf16);
  Tensor labels = g.input("labels", {8, 1}, DataType::i32);
  Tensor dloss = g.input("dloss", {8, 1}, DataType::f32);
  g.output(g.cross_entropy_bwd(x, labels, dloss, {.label_smoothing = 0.1}));
}

EXAMPLE(norm_fwd) {
  Tensor x = g.input("x", {8, 256}, DataType::f16);
  Tensor scale = g.input("scale", {1, 256}, DataType::f32);
  Tensor bias = g.input("bias", {1, 256}, DataType::f32);
  NormResults r = g.norm_fwd(x, {.norm = NormMode::layer_norm, .axes = {-1}, .scale = scale, .bias = bias});
  g.output(r.y);
  g.output(r.inv_std);
}

EXAMPLE(norm_bwd) {
  Tensor dy = g.input("dy", {8, 256}, DataType::f16);
  Tensor x = g.input("x", {8, 256}, DataType::f16);
  Tensor scale = g.input("scale", {1, 256}, DataType::f32);
  NormGradients r = g.norm_bwd(dy, x, {.norm = NormMode::rms_norm, .scale = scale});
  g.output(r.dx);
  g.output(r.dscale);
}

EXAMPLE(gen_stats) {
  Tensor x = g.input("x", {4, 16, 7, 7}, DataType::f16, Layout::nhwc);
  GenStatsResults r = g.gen_stats(x);
  g.output(r.sum);
  g.output(r.sq_sum);
}

EXAMPLE(bn_finalize) {
  Tensor x = g.input("x", {4, 16, 7, 7}, DataType::f16, Layout::nhwc);
  Tensor scale = g.input("scale", {1, 16, 1, 1}, DataType::f32);
  Tensor bias = g.input("bias", {1, 16, 1, 1}, DataType::f32);
  GenStatsResults totals = g.gen_stats(x);
  BnFinalizeResults r =
      g.bn_finalize(totals.sum, totals.sq_sum, scale, bias, {.accumulation_count = 4 * 7 * 7});
  g.output(g.add(g.mul(x, r.eq_scale), r.eq_bias));  // batch norm
}

EXAMPLE(bn_bwd_weights) {
  Tensor dy = g.input("dy", {4, 16, 7, 7}, DataType::f16, Layout::nhwc);
  Tensor x = g.input("x", {4, 16, 7, 7}, DataType::f16, Layout::nhwc);
  Tensor mean = g.input("mean", {1, 16, 1, 1}, DataType::f32);
  Tensor inv_std = g.input("inv_std", {1, 16, 1, 1}, DataType::f32);
  Tensor scale = g.input("scale", {1, 16, 1, 1}, DataType::f32);
  BnBackwardWeightsResults r = g.bn_bwd_weights(dy, x, mean, inv_std, scale);
  g.output(r.dscale);
  g.output(g.add(g.add(g.mul(dy, r.eq_dy_scale), g.mul(x, r.eq_x_scale)), r.eq_bias));  // dx
}

EXAMPLE(causal_conv1d) {
  Tensor x = g.input("x", {2, 16, 50}, DataType::f16);
  Tensor weight = g.input("weight", {16, 4}, DataType::f16);
  CausalConv1dResults r = g.causal_conv1d(x, weight, {.activation = CausalActivation::silu});
  g.output(r.y);
  g.output(r.final_states);
}

EXAMPLE(causal_conv1d_bwd) {
  Tensor dy = g.input("dy", {2, 16, 50}, DataType::f16);
  Tensor x = g.input("x", {2, 16, 50}, DataType::f16);
  Tensor weight = g.input("weight", {16, 4}, DataType::f16);
  CausalConv1dGradients r = g.causal_conv1d_bwd(dy, x, weight);
  g.output(r.dx);
  g.output(r.dweight);
}

EXAMPLE(resample_fwd) {
  Tensor x = g.input("x", {2, 8, 14, 14}, DataType::f16, Layout::nhwc);
  ResampleResults r =
      g.resample_fwd(x, {.window = {3, 3}, .stride = {2, 2}, .pre_padding = {1, 1}, .post_padding = {1, 1}});
  g.output(r.y);
  g.output(r.index);
  g.output(g.resample_fwd(x, {.mode = ResampleMode::bilinear, .output_size = {28, 28}}).y);
}

EXAMPLE(resample_bwd) {
  Tensor dy = g.input("dy", {2, 8, 7, 7}, DataType::f16, Layout::nhwc);
  g.output(
      g.resample_bwd(dy, {2, 8, 14, 14}, {.mode = ResampleMode::avgpool_include_padding, .window = {2, 2}}));
}

EXAMPLE(rnn_fwd) {
  Tensor x = g.input("x", {5, 2, 8}, DataType::f32);
  std::vector<Tensor> weights{
      g.input("weight_ih_l0", {64, 8}, DataType::f32), g.input("weight_hh_l0", {64, 16}, DataType::f32),
      g.input("bias_ih_l0", {64}, DataType::f32), g.input("bias_hh_l0", {64}, DataType::f32)};
  RnnResults r = g.rnn_fwd(x, weights, {.cell = RnnCell::lstm, .hidden_size = 16});
  g.output(r.y);
  g.output(r.hn);
}

EXAMPLE(rnn_bwd) {
  Tensor dy = g.input("dy", {5, 2, 16}, DataType::f32);
  Tensor x = g.input("x", {5, 2, 8}, DataType::f32);
  std::vector<Tensor> weights{
      g.input("weight_ih_l0", {48, 8}, DataType::f32), g.input("weight_hh_l0", {48, 16}, DataType::f32),
      g.input("bias_ih_l0", {48}, DataType::f32), g.input("bias_hh_l0", {48}, DataType::f32)};
  RnnGradients r = g.rnn_bwd(dy, x, weights, {.cell = RnnCell::gru, .hidden_size = 16});
  g.output(r.dx);
  g.output(r.dweights[0]);
}

EXAMPLE(recurrence) {
  Tensor given = g.input("given", {5, 2, 64}, DataType::f32);  // of 5 steps, batch 2: x * weight_ih + bias_ih
  Tensor weight_hh = g.input("weight_hh", {64, 16}, DataType::f32);
  Recurrence lstm;
  lstm.hidden_size = 16;
  g.output(g.op(Attributes(lstm), std::vector{given, weight_hh})[0]);  // h and c of every step
}

EXAMPLE(lrn) {
  Tensor x = g.input("x", {2, 16, 7, 7}, DataType::f32);
  g.output(g.lrn(x, {.window = 5, .alpha = 1e-4, .beta = 0.75, .k = 2}));
}

EXAMPLE(lrn_bwd) {
  Tensor dy = g.input("dy", {2, 16, 7, 7}, DataType::f32);
  Tensor x = g.input("x", {2, 16, 7, 7}, DataType::f32);
  g.output(g.lrn_bwd(dy, x));
}

EXAMPLE(grid_sample) {
  Tensor x = g.input("x", {2, 4, 8, 8}, DataType::f32);
  Tensor grid = g.input("grid", {2, 5, 6, 2}, DataType::f32);
  g.output(g.grid_sample(x, grid, {.padding = GridPadding::border}));
}

EXAMPLE(grid_sample_bwd) {
  Tensor dy = g.input("dy", {2, 4, 5, 6}, DataType::f32);
  Tensor x = g.input("x", {2, 4, 8, 8}, DataType::f32);
  Tensor grid = g.input("grid", {2, 5, 6, 2}, DataType::f32);
  g.output(g.grid_sample_bwd(dy, x, grid).dx);
}

EXAMPLE(ctc_loss) {
  Tensor logits = g.input("logits", {10, 2, 5}, DataType::f32);
  Tensor labels = g.input("labels", {2, 3}, DataType::i32);
  CtcLossResults r = g.ctc_loss(g.softmax(logits, {.log = true}).y, labels, {.zero_infinity = true});
  g.output(r.loss);
}

EXAMPLE(rng_bernoulli) {
  Tensor seed = g.scalar("seed", DataType::i64), offset = g.scalar("offset", DataType::i64);
  g.output(g.rng({4, 8}, seed, offset, {.distribution = Distribution::bernoulli, .probability = 0.9}));
}

EXAMPLE(rng_uniform) {
  Tensor seed = g.scalar("seed", DataType::i64), offset = g.scalar("offset", DataType::i64);
  g.output(g.rng({4, 8}, seed, offset, {.low = -1, .high = 1}));
}

EXAMPLE(rng_normal) {
  Tensor seed = g.scalar("seed", DataType::i64), offset = g.scalar("offset", DataType::i64);
  g.output(g.rng({4, 8}, seed, offset, {.distribution = Distribution::normal, .deviation = 0.02}));
}

EXAMPLE(dropout) {
  Tensor x = g.input("x", {8, 128}, DataType::f16);
  Tensor seed = g.scalar("seed", DataType::i64), offset = g.scalar("offset", DataType::i64);
  DropoutResults r = g.dropout(x, seed, offset, 0.1);
  g.output(r.y);
  g.output(r.mask);
}

EXAMPLE(block_scale_quantize) {
  Tensor x = g.input("x", {8, 128}, DataType::bf16);
  BlockScaleResults r = g.block_scale_quantize(x, {.block_size = 32});  // MXFP8
  g.output(r.y);
  g.output(r.scale);
}

EXAMPLE(block_scale_dequantize) {
  Tensor x = g.input("x", {8, 128}, DataType::f8_e4m3);
  Tensor scale = g.input("scale", {8, 4}, DataType::f8_e8m0);
  g.output(g.block_scale_dequantize(x, scale, {.block_size = 32}), {.type = DataType::bf16});
}

EXAMPLE(paged_cache_load) {
  Tensor container = g.input("container", {6, 2, 16, 64}, DataType::f16);  // 6 pages of 16 rows, 2 heads
  Tensor table = g.input("table", {2, 1, 3, 1}, DataType::i32);            // 3 pages for each of 2 sequences
  g.output(g.paged_cache_load(container, table, {.max_seq_len = 40}));
}

EXAMPLE(ragged_load) {
  Tensor x = g.input("x", {640}, DataType::f16);  // rows of 64 elements, one sequence after another
  Tensor offset =
      g.input("offset", {3}, DataType::i32);  // in elements: the starts of 2 sequences, and the end
  g.output(g.ragged_load(x, offset, {2, 5, 64}, {64, 1}));
}

EXAMPLE(ragged_store) {
  Tensor x = g.input("x", {2, 5, 64}, DataType::f16);
  Tensor offset = g.input("offset", {3}, DataType::i32);
  g.output(g.ragged_store(x, offset, 640, {64, 1}));
}

EXAMPLE(matmul_lengths) {
  Tensor a = g.input("a", {2, 8, 32}, DataType::f16);
  Tensor b = g.input("b", {2, 32, 16}, DataType::f16);
  Tensor rows = g.input("rows", {2, 1, 1}, DataType::i32);
  g.output(g.matmul_lengths(a, b, {.m_override = rows}));
}

EXAMPLE(moe_grouped_matmul) {
  Tensor tokens = g.input("tokens", {16, 32}, DataType::bf16);
  Tensor weights = g.input("weights", {4, 32, 24}, DataType::bf16);
  Tensor first = g.input("first", {4, 1, 1}, DataType::i32);  // where each expert's rows begin
  g.output(g.moe_grouped_matmul(tokens, weights, first));
}

EXAMPLE(sdpa_fwd) {
  Tensor q = g.input("q", {2, 8, 64, 32}, DataType::f16);
  Tensor k = g.input("k", {2, 2, 64, 32}, DataType::f16);  // 4 heads of q share one of k and v
  Tensor v = g.input("v", {2, 2, 64, 32}, DataType::f16);
  SdpaResults r = g.sdpa_fwd(q, k, v, {.attributes = {.attn_scale = 0.177, .right_bound = 0}});  // causal
  g.output(r.o);
  g.output(r.stats);
}

EXAMPLE(sdpa_bwd) {
  Tensor q = g.input("q", {1, 4, 16, 32}, DataType::f16);
  Tensor k = g.input("k", {1, 4, 16, 32}, DataType::f16);
  Tensor v = g.input("v", {1, 4, 16, 32}, DataType::f16);
  Tensor d_o = g.input("do", {1, 4, 16, 32}, DataType::f16);
  const SdpaOptions options{.attributes = {.attn_scale = 0.177}};
  SdpaResults forward = g.sdpa_fwd(q, k, v, options);  // usually stored by another graph
  SdpaGradients r = g.sdpa_bwd(q, k, v, forward.o, d_o, forward.stats, options);
  g.output(r.dq);
  g.output(r.dk);
  g.output(r.dv);
}

// ---- what a reader does not see ----

bool is_bound(const Tensor& tensor) { return !tensor.is_virtual() && tensor.memory != Memory::constant; }

/// Runs the graph on the CPU device with random inputs; whether the oracle agrees.
bool runs(const Graph& graph) {
  const DeviceInfo device = DeviceInfo::cpu();
  Executable exe = load(build(graph, device));
  std::vector<DeviceMemory> memory;
  std::vector<void*> pointers;
  std::vector<Binding> bindings;
  memory.reserve(graph.tensors.size());
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& tensor = graph.tensors[i];
    pointers.push_back(nullptr);
    if (!is_bound(tensor)) continue;
    memory.emplace_back(device, tensor);
    pointers.back() = memory.back().get();
    if (graph.producer(static_cast<int>(i)) < 0) fill_random(tensor, pointers.back(), i + 1);
    bindings.emplace_back(tensor.uid, pointers.back());
  }
  DeviceMemory workspace(device, exe.workspace_bytes());
  exe.run(bindings, workspace);
  const VerifyReport report = verify(graph, pointers);
  if (!report.passed()) std::cerr << graph.name << ":\n" << to_string(report);
  return report.passed();
}

std::string quoted(const std::string& text) { return "\"" + text + "\""; }

std::string results_of(const Graph& graph) {
  std::string text;
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& tensor = graph.tensors[i];
    if (!is_bound(tensor) || graph.producer(static_cast<int>(i)) < 0) continue;
    text += text.empty() ? "" : ", ";
    text += quoted(tensor.name + " " + std::string(to_string(tensor.type)) + " " + to_string(tensor.dims));
  }
  return "[" + text + "]";
}

}  // namespace

int main() {
  int wrong = 0;
  std::string document;
  for (const auto& [kind, build] : examples()) {
    try {
      GraphBuilder g(kind);
      build(g);
      const Graph graph = g.finish();
      if (!runs(graph)) ++wrong;
      document += (document.empty() ? "{" : ",\n ") + quoted(kind) + ": " + results_of(graph);
    } catch (const Error& error) {
      std::cerr << kind << ": " << error.what() << "\n";
      ++wrong;
    }
  }
  std::cout << document << "}\n";
  return wrong == 0 ? 0 : 1;
}
