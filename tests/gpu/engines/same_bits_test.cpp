// Owns the tests that every engine of the list gives the same bits: in a hundred runs, and to eight threads
// that run one executable on eight streams each.
#include <gmock/gmock.h>

#include <array>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "backend/engines/list.h"
#include "core/error.h"
#include "tests/gpu/engines/conv_case.h"
#include "tests/gpu/engines/conv_graphs.h"
#include "tests/gpu/same_bits.h"
#include "tests/support/attention_graph.h"
#include "tests/support/latent_attention.h"
#include "tests/support/packed_graphs.h"

namespace fusor {
namespace {

constexpr int kThreads = 8;
constexpr int kStreams = 8;

// Bias and ReLU behind, and totals of columns beside.
Graph matmul_of(DataType type) {
  GraphBuilder g("matmul");
  const Tensor a = g.input("a", {300, 520}, type), b = g.input("b", {520, 264}, type);
  const Tensor y = g.relu(g.add(g.matmul(a, b), g.input("bias", {1, 264}, DataType::f32)));
  g.output(g.reduce(y, ReductionMode::add, {0}), {.name = "totals", .type = DataType::f32});
  g.output(y, {.name = "y", .type = type});
  return g.finish();
}

Graph plain_matmul() {
  GraphBuilder g("plain");
  const Tensor a = g.input("a", {300, 520}, DataType::f32), b = g.input("b", {520, 264}, DataType::f32);
  g.output(g.matmul(a, b), {.name = "y"});
  return g.finish();
}

// Few rows by weights in 8 bits, with a scale a column.
Graph stored_weights() {
  GraphBuilder g("stored weights");
  const Tensor w = g.input("w", {520, 264}, DataType::i8);
  const Tensor b = g.mul(w, g.input("s", {1, 264}, DataType::bf16), {.type = DataType::bf16});
  g.output(g.matmul(g.input("a", {13, 520}, DataType::bf16), b), {.name = "y", .type = DataType::bf16});
  return g.finish();
}

// Norms in both directions: totals of rows, and of columns.
Graph norms() {
  GraphBuilder g("norms");
  const Tensor x = g.input("x", {700, 1030}, DataType::bf16), dy = g.input("dy", {700, 1030}, DataType::bf16);
  const Tensor mean = g.reduce(x, ReductionMode::avg, {1});
  const Tensor away = g.sub(x, mean);
  const Tensor inverse =
      g.rsqrt(g.add(g.reduce(g.mul(away, away), ReductionMode::avg, {1}), g.constant(1e-5)));
  const Tensor normal = g.mul(away, inverse);
  g.output(normal, {.name = "y", .type = DataType::bf16});
  g.output(g.reduce(g.mul(dy, normal), ReductionMode::add, {0}), {.name = "dgamma", .type = DataType::f32});
  return g.finish();
}

Graph totals() {
  GraphBuilder g("totals");
  const Tensor x = g.input("x", {333, 1025}, DataType::f32);
  g.output(g.reduce(g.exp(x), ReductionMode::add, {0}), {.name = "columns", .type = DataType::f32});
  return g.finish();
}

Graph pool(bool backward) {
  GraphBuilder g("pool");
  const Dims dims{3, 24, 31, 30};
  const Tensor x = g.input("x", dims, DataType::f16, Layout::nhwc);
  const ResampleOptions options{.window = {3, 3}, .stride = {2, 2}, .padding = {1, 1}};
  if (backward)
    g.output(g.resample_bwd(g.input("dy", {3, 24, 16, 15}, DataType::f16, Layout::nhwc), dims, options, x),
             {.name = "dx", .type = DataType::f16, .layout = Layout::nhwc});
  else
    g.output(g.resample_fwd(x, options).y, {.name = "y", .type = DataType::f16, .layout = Layout::nhwc});
  return g.finish();
}

Graph depthwise(Layout layout) {
  GraphBuilder g("depthwise");
  const Tensor x = g.input("x", {3, 48, 21, 19}, DataType::f16, layout);
  const Tensor dy = g.input("dy", {3, 48, 21, 19}, DataType::f16, layout);
  g.output(g.conv_wgrad(dy, x, {48, 1, 3, 3}, {.padding = {1, 1}}), {.name = "dw", .type = DataType::f16});
  return g.finish();
}

Graph attention_gradients() {
  GraphBuilder g("gradients");
  const Dims dims{2, 3, 300, 64};
  const auto input = [&](const char* name) { return g.input(name, dims, DataType::bf16); };
  const Tensor q = input("q"), k = input("k"), v = input("v"), d_o = input("do");
  const SdpaOptions options{.attributes = {.right_bound = 0}};
  const SdpaResults forward = g.sdpa_fwd(q, k, v, options);
  const SdpaGradients gradients = g.sdpa_bwd(q, k, v, forward.o, d_o, forward.stats, options);
  g.output(gradients.dq, {.name = "dq", .type = DataType::bf16});
  g.output(gradients.dk, {.name = "dk", .type = DataType::bf16});
  g.output(gradients.dv, {.name = "dv", .type = DataType::bf16});
  return g.finish();
}

Graph recurrent_layer() {
  GraphBuilder g("gru");
  const Tensor x = g.input("x", {9, 40, 24}, DataType::f16), dy = g.input("dy", {9, 40, 200}, DataType::f16);
  const std::vector<Tensor> weights{g.input("wi", {600, 24}, DataType::f16),
                                    g.input("wh", {600, 200}, DataType::f16),
                                    g.input("bi", {600}, DataType::f16), g.input("bh", {600}, DataType::f16)};
  g.output(g.rnn_bwd(dy, x, weights, {.cell = RnnCell::gru, .hidden_size = 200}).dx,
           {.name = "dx", .type = DataType::f16});
  return g.finish();
}

// Between them, every engine of a Hopper GPU finds one that it carries out.
std::vector<Graph> graphs() {
  using test::Mask;
  const ConvOptions same{.padding = {1, 1}};
  return {totals(),
          test::doubled(DataType::i4, {37, 1001}, {1003, 1}),
          norms(),
          pool(false),
          pool(true),
          depthwise(Layout::nhwc),
          depthwise(Layout::nchw),
          matmul_of(DataType::f32),
          matmul_of(DataType::bf16),
          plain_matmul(),
          stored_weights(),
          fprop_bias_relu({4, 72, 20, 19}, {80, 72, 3, 3}, same, DataType::f16, Layout::nchw),
          fprop_bias_relu({2, 3, 41, 39}, {96, 3, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}}, DataType::f16,
                          Layout::nhwc),
          fprop_bias_relu({3, 24, 57, 53}, {40, 24, 1, 1}, {}, DataType::f16, Layout::nhwc),
          fprop_bias_relu({3, 96, 21, 19}, {96, 24, 3, 3}, {.padding = {1, 1}}, DataType::f16, Layout::nhwc),
          wgrad_of({{37, 64, 28, 28}, {64, 64, 3, 3}, {.padding = {1, 1}}}),
          test::attention({.heads = 3, .shared_heads = 3, .queries = 300, .keys = 300, .mask = Mask::causal}),
          test::attention({4, 8, 1, 2, 3000, 128, 128, Mask::bottom_right}, true),
          test::latent_attention({.keys = 301}),
          attention_gradients(),
          recurrent_layer()};
}

bool has_fusion_of(const Plan& plan, const Engine& engine) {
  return std::ranges::any_of(
      plan.fusions, [&](const PlannedFusion& fusion) { return fusion.config.engine == engine.name(); });
}

// A plan of the engine alone, or with the plain ones around it.
std::optional<Plan> plan_of(const Engine& engine, const Graph& graph, const DeviceInfo& device) {
  const std::array<const Engine*, 1> alone{&engine};
  const std::array<const Engine*, 5> with_others{&engine, &attention_engine(), &rows_engine(),
                                                 &elementwise_engine(), &direct_engine()};
  for (const std::span<const Engine* const> list :
       {std::span<const Engine* const>(alone), std::span<const Engine* const>(with_others)})
    try {
      Plan plan = build(graph, device, PlannerOptions{.engine_list = list});
      if (has_fusion_of(plan, engine)) return plan;
    } catch (const Error&) {
      continue;  // another graph
    }
  return std::nullopt;
}

std::optional<Plan> any_plan_of(const Engine& engine, const DeviceInfo& device) {
  for (const Graph& graph : graphs())
    if (std::optional<Plan> plan = plan_of(engine, graph, device)) return plan;
  return std::nullopt;
}

std::vector<const Engine*> engines_of_gpus() {
  std::vector<const Engine*> found;
  for (const Engine* engine : engines())
    if (engine != &cpu_engine()) found.push_back(engine);
  return found;
}

std::string name_of(const testing::TestParamInfo<const Engine*>& info) {
  return std::string(info.param->name());
}

class SameBitsGpu : public testing::TestWithParam<const Engine*> {};

TEST_P(SameBitsGpu, InAHundredRuns) {
  FUSOR_NEEDS_GPU();
  const DeviceInfo device = DeviceInfo::current();
  int found = 0;
  for (const Graph& graph : graphs())
    if (const std::optional<Plan> plan = plan_of(*GetParam(), graph, device)) {
      if (++found > 2) break;
      expect_same_bits(graph, *plan, to_string(plan->fusions.front().config));
    }
  EXPECT_TRUE(found > 0 || device.compute_capability != 90);
}

struct Turn {
  cuda::OwnStream stream;
  cuda::DeviceBuffer workspace;
  std::vector<cuda::DeviceBuffer> results;
  std::vector<void*> slots;
};

TEST_P(SameBitsGpu, OnEightStreamsOfEightThreads) {
  FUSOR_NEEDS_GPU();
  const std::optional<Plan> plan = any_plan_of(*GetParam(), DeviceInfo::current());
  if (!plan) GTEST_SKIP() << "not of this GPU";
  const Graph& graph = plan->graph;
  DeviceRun run(graph, *plan);
  run.run();
  const Executable& executable = run.executable();
  std::vector<std::string> written;
  for (size_t i = 0; i < graph.tensors.size(); ++i)
    if (graph.tensors[i].memory == Memory::device && graph.producer(static_cast<int>(i)) >= 0)
      written.push_back(graph.tensors[i].name);
  std::vector<int> wrong(kThreads, 0);
  const auto work = [&](int& count) {
    cuda::make_current();
    std::vector<Turn> turns(kStreams);
    for (Turn& turn : turns) {
      turn.workspace = cuda::DeviceBuffer(std::max<int64_t>(executable.workspace_bytes(), 256));
      turn.slots = run.slots();
      for (const std::string& name : written) {
        const auto bytes = static_cast<int64_t>(run.host(name).size());
        cuda::fill(turn.results.emplace_back(bytes).get(), 0xa7, bytes, turn.stream.get());
        turn.slots[executable.slot(name)] = static_cast<std::byte*>(turn.results.back().get()) + 512;
      }
    }
    for (Turn& turn : turns) executable.run(turn.slots, turn.workspace.get(), turn.stream.get());
    for (Turn& turn : turns) {
      cuda::synchronize(turn.stream.get());
      for (size_t i = 0; i < written.size(); ++i) {
        const std::vector<std::byte>& expected = run.host(written[i]);
        std::vector<std::byte> got(expected.size());
        cuda::copy_to_host(got.data(), turn.results[i].get(), turn.results[i].bytes());
        count += got != expected;
      }
    }
  };
  std::vector<std::jthread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) threads.emplace_back([&, t] { work(wrong[static_cast<size_t>(t)]); });
  threads.clear();
  EXPECT_EQ(wrong, std::vector<int>(kThreads, 0));
}

INSTANTIATE_TEST_SUITE_P(, SameBitsGpu, testing::ValuesIn(engines_of_gpus()), name_of);

// Needs no GPU: an engine that is added without a graph here is told.
TEST(SameBits, EveryEngineHasAGraph) {
  const DeviceInfo device = DeviceInfo::named("h200");
  for (const Engine* engine : engines_of_gpus()) {
    bool found = false;
    for (const Graph& graph : graphs()) found = found || plan_of(*engine, graph, device).has_value();
    EXPECT_TRUE(found) << engine->name();
  }
}

}  // namespace
}  // namespace fusor
