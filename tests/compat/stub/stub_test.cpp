// Owns the tests of what the library does on a GPU up to the launch: nodes of CUDA graphs, kernels that are
// compiled ahead, and the time of one call.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>

#include "tests/compat/attention_parts.h"
#include "tests/compat/client.h"
#include "tests/compat/stub/stub_client.h"
#include "tests/stub_driver/stub_driver.h"

namespace fusor::compat_test {
namespace {

// The driver's calls that a client makes itself.
template <class Function>
Function* driver(const char* name) {
  return stub::function<Function>(name);
}

class OnStub : public Client {
 protected:
  void SetUp() override {
    Client::SetUp();
    void* context = nullptr;  // which a client's first call of the CUDA runtime would make current
    ASSERT_EQ(driver<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, 0), 0);
    ASSERT_EQ(driver<int(void*)>("cuCtxSetCurrent")(context), 0);
    const Part graph =
        operation_graph(handle, {unary(CUDNN_POINTWISE_RELU_FWD, tensor(1, {64, 64}), tensor(2, {64, 64}))})
            .finalize();
    const std::vector<Part> configs = heuristics(graph, CUDNN_HEUR_MODE_A);
    ASSERT_FALSE(configs.empty());
    plan = std::make_unique<Part>(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan->child(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configs.front());
    if (cudnnBackendFinalize(plan->get()) != CUDNN_STATUS_SUCCESS)
      GTEST_SKIP() << last_message();  // no NVRTC
    stub::reset();
  }

  // The pointer at the start of the last launch's arguments that is one of these, by its place.
  static bool mentions(const FusorStubLaunch& launch, const void* pointer) {
    for (size_t at = 0; at + sizeof pointer <= launch.argument_bytes; at += sizeof pointer)
      if (std::memcmp(launch.arguments + at, &pointer, sizeof pointer) == 0) return true;
    return false;
  }

  std::unique_ptr<Part> plan;
  std::vector<float> x = std::vector<float>(4096 + 64), y = x, z = x;
};

TEST_F(OnStub, ARunLaunchesOnTheHandlesStream) {
  ASSERT_CUDNN(cudnnSetStream(handle, nullptr));
  ASSERT_CUDNN(execute(handle, *plan, {{1, aligned(x)}, {2, aligned(y)}}));
  EXPECT_EQ(stub::launch_count(), 1);
  EXPECT_TRUE(mentions(stub::last_launch(), aligned(x)));
  EXPECT_TRUE(mentions(stub::last_launch(), aligned(y)));
}

TEST_F(OnStub, NodesOfACudaGraphAreMadeAndUpdated) {
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(driver<int(cudaGraph_t*, unsigned)>("cuGraphCreate")(&graph, 0), 0);
  const Part first = variant_pack({{1, aligned(x)}, {2, aligned(y)}}, nullptr),
             second = variant_pack({{1, aligned(x)}, {2, aligned(z)}}, nullptr);
  ASSERT_CUDNN(cudnnBackendPopulateCudaGraph(handle, plan->get(), first.get(), graph));
  EXPECT_EQ(stub::launch_count(), 0);
  const auto launch = [&] {
    void* executable = nullptr;
    ASSERT_EQ(driver<int(void**, cudaGraph_t, unsigned long long)>("cuGraphInstantiateWithFlags")(&executable,
                                                                                                  graph, 0),
              0);
    ASSERT_EQ(driver<int(void*, void*)>("cuGraphLaunch")(executable, nullptr), 0);
    ASSERT_EQ(driver<int(void*)>("cuGraphExecDestroy")(executable), 0);
  };
  launch();
  EXPECT_EQ(stub::launch_count(), 1);
  EXPECT_TRUE(mentions(stub::last_launch(), aligned(y)));
  ASSERT_CUDNN(cudnnBackendUpdateCudaGraph(handle, plan->get(), second.get(), graph));
  launch();
  EXPECT_EQ(stub::launch_count(), 2);
  EXPECT_TRUE(mentions(stub::last_launch(), aligned(z)));
  EXPECT_FALSE(mentions(stub::last_launch(), aligned(y)));
  // A graph of two runs is not one of this plan.
  ASSERT_CUDNN(cudnnBackendPopulateCudaGraph(handle, plan->get(), first.get(), graph));
  EXPECT_NE(cudnnBackendUpdateCudaGraph(handle, plan->get(), first.get(), graph), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(cudnnBackendPopulateCudaGraph(handle, plan->get(), first.get(), nullptr),
            CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  driver<int(cudaGraph_t)>("cuGraphDestroy")(graph);
}

// Factors of rows that are updated where they are, while every element of their rows still reads them: the
// run reads a copy. Elements are replaced by the threads that read them.
TEST_F(OnStub, AnOperandThatAResultReplacesIsCopied) {
  const Dims whole{64, 64}, rows{64, 1};
  const TensorOptions hidden{.is_virtual = true};
  const Part elements = tensor(1, whole), factors = tensor(2, rows), sums = tensor(3, rows, hidden),
             scaled = tensor(4, whole, hidden);
  const Part graph = operation_graph(handle, {reduction(CUDNN_REDUCE_TENSOR_ADD, elements, sums),
                                              binary(CUDNN_POINTWISE_MUL, elements, sums, scaled),
                                              binary(CUDNN_POINTWISE_MUL, scaled, factors, tensor(5, whole)),
                                              binary(CUDNN_POINTWISE_ADD, factors, sums, tensor(6, rows))})
                         .finalize();
  const Part made = plan_of(heuristics(graph, CUDNN_HEUR_MODE_A).front());
  const auto bytes = made.ask<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64);
  ASSERT_GE(bytes, 64 * 4);
  ASSERT_LT(bytes, 64 * 64 * 4);
  std::vector<float> workspace(static_cast<size_t>(bytes) / sizeof(float) + 1, 0.0F);
  float *const old = aligned(y), *const next = aligned(z);
  std::fill_n(old, 64, 7.0F);
  std::fill_n(next, 64, 5.0F);
  const auto pack_of = [&](float* before, float* after, void* given) {
    return variant_pack({{1, aligned(x)}, {5, aligned(x)}, {2, before}, {6, after}}, given);
  };
  const auto run = [&](float* before, float* after, void* given) {
    return cudnnBackendExecute(handle, made.get(), pack_of(before, after, given).get());
  };
  const auto copied = [&](float number) { return std::ranges::count(workspace, number) >= 64; };
  stub::reset();
  // Apart, nothing is copied.
  ASSERT_CUDNN(run(old, next, workspace.data()));
  EXPECT_TRUE(mentions(stub::last_launch(), old));
  EXPECT_FALSE(copied(7));
  ASSERT_CUDNN(run(old, old, workspace.data()));
  EXPECT_TRUE(mentions(stub::last_launch(), old));
  ASSERT_TRUE(copied(7));
  EXPECT_TRUE(mentions(stub::last_launch(), &*std::ranges::find(workspace, 7.0F)));
  EXPECT_EQ(run(old, old, nullptr), CUDNN_STATUS_BAD_PARAM);

  // The same as nodes of a CUDA graph.
  cudaGraph_t nodes = nullptr;
  ASSERT_EQ(driver<int(cudaGraph_t*, unsigned)>("cuGraphCreate")(&nodes, 0), 0);
  void* const given = workspace.data();
  ASSERT_CUDNN(cudnnBackendPopulateCudaGraph(handle, made.get(), pack_of(old, old, given).get(), nodes));
  ASSERT_CUDNN(cudnnBackendUpdateCudaGraph(handle, made.get(), pack_of(next, next, given).get(), nodes));
  EXPECT_EQ(cudnnBackendUpdateCudaGraph(handle, made.get(), pack_of(old, next, given).get(), nodes),
            CUDNN_STATUS_BAD_PARAM_CUDA_GRAPH_MISMATCH);
  void* executable = nullptr;
  ASSERT_EQ(driver<int(void**, cudaGraph_t, unsigned long long)>("cuGraphInstantiateWithFlags")(&executable,
                                                                                                nodes, 0),
            0);
  ASSERT_EQ(driver<int(void*, void*)>("cuGraphLaunch")(executable, nullptr), 0);
  EXPECT_TRUE(copied(5));
  EXPECT_TRUE(mentions(stub::last_launch(), next));
  ASSERT_EQ(driver<int(void*)>("cuGraphExecDestroy")(executable), 0);
  driver<int(cudaGraph_t)>("cuGraphDestroy")(nodes);
}

// The plan of a convolution, or of its input's gradient.
Part convolution_plan(cudnnHandle_t handle, bool is_forward) {
  const TensorOptions half{.type = CUDNN_DATA_HALF};
  const Part x = tensor(1, {2, 16, 8, 8}, half), w = tensor(2, {16, 16, 3, 3}, half),
             y = tensor(3, {2, 16, 8, 8}, half), conv = convolution({1, 1}, {1, 1}, {1, 1});
  Part op(is_forward ? CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR
                     : CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
  if (is_forward)
    op.child(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, conv)
        .child(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x)
        .child(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w)
        .child(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y);
  else
    op.child(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, conv)
        .child(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, x)
        .child(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, w)
        .child(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, y);
  const Part graph = operation_graph(handle, {op.finalize()}).finalize();
  return plan_of(heuristics(graph, CUDNN_HEUR_MODE_INSTANT).front());
}

// A process that only infers compiles no gradients; the first call of a backward pass has all of them
// compiled.
TEST_F(OnStub, GradientsAreCompiledAheadWhereTheProcessTrains) {
  const auto gradients = [](const std::string& told) {
    int count = 0;
    for (size_t at = told.find("build 'gradient'"); at != std::string::npos;
         at = told.find("build 'gradient'", at + 1))
      ++count;
    return count;
  };
  setenv("FUSOR_DEBUG", "1", 1);
  setenv("FUSOR_THREADS", "2", 1);
  ::testing::internal::CaptureStderr();
  const Part forward = convolution_plan(handle, true);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(gradients(::testing::internal::GetCapturedStderr()), 0);
  ::testing::internal::CaptureStderr();
  const Part backward = convolution_plan(handle, false);
  std::string told;
  for (int i = 0; i < 600 && gradients(told) < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    told += ::testing::internal::GetCapturedStderr();
    ::testing::internal::CaptureStderr();
  }
  ::testing::internal::GetCapturedStderr();
  unsetenv("FUSOR_DEBUG");
  unsetenv("FUSOR_THREADS");
  EXPECT_EQ(gradients(told), 2) << told;
}

// Threads that ask for the prices of one graph at the same time get each its own answer.
TEST_F(OnStub, ManyThreadsPlanTheSameGraphs) {
  constexpr int kThreads = 8, kGraphs = 60;
  std::atomic<int> configurations{0};
  const auto plan_all = [&] {
    for (int64_t i = 1; i <= kGraphs; ++i) {
      const TensorOptions half{.type = CUDNN_DATA_HALF};
      const Part graph =
          operation_graph(handle, {matmul(tensor(1, {1, 64 * i, 64}, half), tensor(2, {1, 64, 128}, half),
                                          tensor(3, {1, 64 * i, 128}, half))})
              .finalize();
      configurations += static_cast<int>(heuristics(graph, CUDNN_HEUR_MODE_INSTANT).size());
    }
  };
  {
    std::vector<std::jthread> threads;
    threads.reserve(kThreads);
    for (int i = 0; i < kThreads; ++i) threads.emplace_back(plan_all);
  }
  EXPECT_EQ(configurations % (kThreads * kGraphs), 0);
  EXPECT_GT(configurations, 0);
}

// The engines that a plan's own document names.
std::vector<std::string> engines_of(const Part& plan) {
  const std::string text = document_of(plan);
  std::vector<std::string> engines;
  const std::string key = "\"engine\": \"";
  for (size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1))
    engines.push_back(text.substr(at + key.size(), text.find('"', at + key.size()) - at - key.size()));
  return engines;
}

// Attention in cudnn-frontend's primitives lands on the fused kernels, with no more workspace than its
// tensors.
TEST_F(OnStub, AttentionInPrimitivesIsFused) {
  for (const auto& [key_heads, is_causal] : {std::pair{int64_t{16}, false}, {4, true}}) {
    const AttentionShape shape{.batch = 8,
                               .heads = 16,
                               .key_heads = key_heads,
                               .queries = 2048,
                               .keys = 2048,
                               .depth = 128,
                               .is_causal = is_causal};
    const auto planned = [&](const std::vector<Part>& ops) {
      return plan_of(heuristics(operation_graph(handle, ops).finalize(), CUDNN_HEUR_MODE_A).front());
    };
    const Part forward = planned(AttentionOps(shape).forward()),
               backward = planned(AttentionOps(shape).backward());
    EXPECT_EQ(engines_of(forward), std::vector<std::string>{"attention"});
    EXPECT_EQ(engines_of(backward), (std::vector<std::string>{"rows", "attention_backward"}));
    EXPECT_EQ(forward.ask<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64), 0);
    const int64_t of_a_head = shape.batch * shape.queries * (shape.depth * 2 + int64_t{sizeof(float)});
    EXPECT_LE(backward.ask<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64),
              4 * of_a_head * (shape.heads + key_heads));
  }
}

// The stub's launches cost next to nothing: this is the library's own share. The best of many batches,
// because others use the machine as well.
TEST_F(OnStub, OneExecuteTakesLessThanTwoMicroseconds) {
  stub::keep_launches(false);
  const Part pack = variant_pack({{1, aligned(x)}, {2, aligned(y)}}, nullptr);
  constexpr int kBatches = 200, kCalls = 100;
  double best = 1;
  int failures = 0;
  for (int batch = 0; batch < kBatches; ++batch) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i)
      failures += cudnnBackendExecute(handle, plan->get(), pack.get()) == CUDNN_STATUS_SUCCESS ? 0 : 1;
    best = std::min(best,
                    std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / kCalls);
  }
  stub::keep_launches(true);
  EXPECT_EQ(failures, 0) << last_message();
  RecordProperty("nanoseconds", static_cast<int>(best * 1e9));
  EXPECT_LT(best, 2e-6) << best * 1e9 << " ns";
  std::printf("one cudnnBackendExecute: %.0f ns\n", best * 1e9);
}

}  // namespace
}  // namespace fusor::compat_test

int main(int argc, char** argv) {
  fusor::stub::use();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
