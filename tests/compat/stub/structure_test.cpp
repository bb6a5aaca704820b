// Owns the test that attention is one kernel however it comes: written out by hand, as the op, and through
// cuDNN's interface in primitives or as one op.
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "backend/engines/list.h"
#include "frontend/graph_builder.h"
#include "tests/compat/attention_parts.h"
#include "tests/compat/stub/stub_client.h"
#include "tests/stub_driver/stub_driver.h"
#include "tests/support/structure.h"

namespace fusor::compat_test {
namespace {

// Whether the last launch has an argument of these bits.
bool launched_with(float number) {
  const FusorStubLaunch launch = stub::last_launch();
  const auto bits = std::bit_cast<uint32_t>(number);
  for (size_t at = 0; at + sizeof bits <= launch.argument_bytes; at += 8)
    if (std::memcmp(launch.arguments + at, &bits, sizeof bits) == 0) return true;
  return false;
}

class Structure : public Client {
 protected:
  Graph planned(const std::vector<Part>& ops) { return planned_graph(handle, ops); }
  static std::vector<std::string> structures(const Graph& graph, const Engine& engine) {
    return test::structures_of(graph, engine, DeviceInfo::named("H200"));
  }

  // By the op, with a scale that is known.
  static Graph by_op(const AttentionShape& c) {
    GraphBuilder g("op");
    const auto rows = [&](const char* name, int64_t heads, int64_t length) {
      return g.input(name, {c.batch, heads, length, c.depth}, DataType::bf16,
                     {.strides = Strides{length * heads * c.depth, c.depth, heads * c.depth, 1}});
    };
    const SdpaAttributes attributes{.attn_scale = 0.25, .right_bound = c.is_causal ? 0 : -1};
    const Tensor o = g.sdpa_fwd(rows("q", c.heads, c.queries), rows("k", c.key_heads, c.keys),
                                rows("v", c.key_heads, c.keys), {.attributes = attributes})
                         .o;
    g.output(o, {.name = "o", .type = DataType::bf16});
    return g.finish();
  }
};

TEST_F(Structure, IsThatOfTheOp) {
  const AttentionShape causal{.queries = 300, .keys = 300, .depth = 64, .has_stats = false};
  const auto expected = structures(by_op(causal), attention_engine());
  ASSERT_EQ(expected.size(), 1);
  EXPECT_EQ(structures(planned(AttentionOps(causal).forward()), attention_engine()), expected);
  AttentionShape full = causal;
  full.is_causal = false;
  const auto unmasked = structures(by_op(full), attention_engine());
  ASSERT_EQ(unmasked.size(), 1);
  EXPECT_EQ(structures(planned(AttentionOps(full).forward_as_one()), attention_engine()), unmasked);
}

TEST_F(Structure, WhatIsNoNumberReachesTheKernel) {
  void* context = nullptr;
  ASSERT_EQ(stub::function<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, 0), 0);
  ASSERT_EQ(stub::function<int(void*)>("cuCtxSetCurrent")(context), 0);
  const Part scaled = binary(CUDNN_POINTWISE_MUL, tensor(1, {64, 64}), tensor(3, {1, 1}, {.by_value = true}),
                             tensor(2, {64, 64}));
  const Part plan =
      plan_of(heuristics(operation_graph(handle, {scaled}).finalize(), CUDNN_HEUR_MODE_A).front());
  std::vector<float> memory(3 * 4096);
  float* const place = aligned(memory);
  float factor = NAN;
  ASSERT_CUDNN(execute(handle, plan, {{1, place}, {2, place + 4096}, {3, &factor}}));
  EXPECT_TRUE(launched_with(factor));
}

// A forward pass on memory of its own, whose scale and mask a test changes.
class GivenToAKernel : public Structure {
 protected:
  void SetUp() override {
    Structure::SetUp();
    void* context = nullptr;
    ASSERT_EQ(stub::function<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, 0), 0);
    ASSERT_EQ(stub::function<int(void*)>("cuCtxSetCurrent")(context), 0);
    const AttentionShape shape{
        .batch = 1, .heads = 2, .key_heads = 2, .queries = 128, .keys = 128, .depth = 64};
    const Part graph = operation_graph(handle, AttentionOps(shape).forward()).finalize();
    plan = std::make_unique<Part>(plan_of(heuristics(graph, CUDNN_HEUR_MODE_A).front()));
    float* const place = aligned(memory);
    pointers = {{kQ, place},         {kK, place + 8192},      {kV, place + 16384},
                {kO, place + 24576}, {kStats, place + 32768}, {kScale, &scale},
                {kFill, &fill}};
  }

  std::unique_ptr<Part> plan;
  std::vector<float> memory = std::vector<float>(1 << 16);
  float scale = 0.25F, fill = -INFINITY;
  Pointers pointers;
};

// The number that the run hands over stands where a known scale would.
TEST_F(GivenToAKernel, TheScaleOfARunReachesTheKernel) {
  constexpr double kLog2e = 1.4426950408889634;
  for (const float given : {0.375F, 0.0625F}) {
    scale = given;
    ASSERT_CUDNN(execute(handle, *plan, pointers));
    EXPECT_TRUE(launched_with(static_cast<float>(given * kLog2e))) << given;
  }
  // A plan for all values takes over.
  for (const float given : {-0.375F, 0.0F}) {
    scale = given;
    ASSERT_CUDNN(execute(handle, *plan, pointers));
    EXPECT_FALSE(launched_with(static_cast<float>(given * kLog2e)) && given != 0) << given;
  }
}

// A run may be the first with its values under a capture: both plans are there when the client has one.
TEST_F(GivenToAKernel, NoRunLoadsAKernel) {
  const int64_t loads = stub::library_loads();
  for (const auto& [given_scale, given_fill] :
       {std::pair{0.5F, -INFINITY}, {-0.5F, -INFINITY}, {0.0F, -INFINITY}, {0.5F, -1.0F}}) {
    scale = given_scale;
    fill = given_fill;
    ASSERT_CUDNN(execute(handle, *plan, pointers));
  }
  EXPECT_EQ(stub::library_loads(), loads);
}

// Nodes made with one value are those of another kernel than some other values need.
TEST_F(GivenToAKernel, NodesOfOtherKernelsAreNotUpdated) {
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(stub::function<int(cudaGraph_t*, unsigned)>("cuGraphCreate")(&graph, 0), 0);
  const Part pack = variant_pack(pointers, nullptr);
  ASSERT_CUDNN(cudnnBackendPopulateCudaGraph(handle, plan->get(), pack.get(), graph));
  scale = 0.125F;
  EXPECT_CUDNN(cudnnBackendUpdateCudaGraph(handle, plan->get(), pack.get(), graph));
  scale = -0.125F;
  EXPECT_EQ(cudnnBackendUpdateCudaGraph(handle, plan->get(), pack.get(), graph),
            CUDNN_STATUS_BAD_PARAM_CUDA_GRAPH_MISMATCH);
  scale = 0.5F;
  EXPECT_CUDNN(cudnnBackendUpdateCudaGraph(handle, plan->get(), pack.get(), graph));
  stub::function<int(cudaGraph_t)>("cuGraphDestroy")(graph);
}

}  // namespace
}  // namespace fusor::compat_test
