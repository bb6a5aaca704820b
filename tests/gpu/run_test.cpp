// Owns the tests of running on the GPU: captures, threads, reloaded plans, several fusions in one workspace.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <thread>

#include "codegen/kernel_cache.h"
#include "core/error.h"
#include "frontend/graph_builder.h"
#include "serialization/serialization.h"
#include "tests/gpu/device_run.h"

namespace fusor {
namespace {

Graph bottleneck(int64_t n, int64_t size) {
  GraphBuilder g("bottleneck");
  const auto input = [&](const char* name, const Dims& dims) {
    return g.input(name, dims, DataType::f16, Layout::nhwc);
  };
  const Tensor x = input("x", {n, 256, size, size});
  const Tensor c1 = g.relu(g.add(g.conv_fprop(x, input("w1", {64, 256, 1, 1})), input("b1", {1, 64, 1, 1})),
                           {.type = DataType::f16});
  const Tensor c2 = g.relu(
      g.add(g.conv_fprop(c1, input("w2", {64, 64, 3, 3}), {.padding = {1, 1}}), input("b2", {1, 64, 1, 1})),
      {.type = DataType::f16});
  const Tensor c3 = g.add(g.conv_fprop(c2, input("w3", {256, 64, 1, 1})), input("b3", {1, 256, 1, 1}));
  g.output(g.relu(g.add(c3, x)), {.name = "y"});
  return g.finish();
}

TEST(RunGpu, BottleneckAgreesWithTheOracle) {
  FUSOR_NEEDS_GPU();
  expect_correct(bottleneck(2, 20), "bottleneck");
}

TEST(RunGpu, CapturedRunReplays) {
  FUSOR_NEEDS_GPU();
  DeviceRun run(bottleneck(1, 14));
  run.run();
  const std::vector<std::byte> first = run.host("y");
  cuda::OwnStream stream;
  stream.begin_capture();
  run.launch(stream.get());
  void* graph = stream.end_capture();
  stream.launch_graph(graph);
  cuda::synchronize(stream.get());
  run.fetch();
  EXPECT_EQ(run.host("y"), first);
}

TEST(RunGpu, EightThreadsShareOneExecutable) {
  FUSOR_NEEDS_GPU();
  const Graph graph = bottleneck(1, 14);
  DeviceRun run(graph);
  run.run();
  const std::vector<std::byte> expected = run.host("y");
  const Executable& exe = run.executable();
  std::vector<std::jthread> threads;
  threads.reserve(8);
  std::vector<int> wrong(8, 0);
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      cuda::make_current();
      const cuda::OwnStream stream;
      const cuda::DeviceBuffer workspace(std::max<int64_t>(exe.workspace_bytes(), 256));
      const cuda::DeviceBuffer y(static_cast<int64_t>(expected.size()));
      std::vector<void*> slots = run.slots();
      slots[exe.slot("y")] = static_cast<std::byte*>(y.get()) + 512;
      for (int i = 0; i < 20; ++i) {
        cuda::fill(y.get(), 0xa7, y.bytes(), stream.get());
        exe.run(slots, workspace.get(), stream.get());
        cuda::synchronize(stream.get());
        std::vector<std::byte> got(expected.size());
        cuda::copy_to_host(got.data(), y.get(), y.bytes());
        wrong[t] += got != expected;
      }
    });
  threads.clear();
  EXPECT_EQ(wrong, std::vector<int>(8, 0));
}

TEST(RunGpu, SavedPlanReloadsWithoutCompiling) {
  FUSOR_NEEDS_GPU();
  const Plan plan = build(bottleneck(1, 14), DeviceInfo::current());
  const std::string path = (std::filesystem::temp_directory_path() / "fusor_run_gpu_test.plan.json").string();
  save(plan, path);
  const CacheStats before = cache_stats();
  clear_memory_cache();
  const Executable exe = load(read_plan(path));
  EXPECT_EQ(cache_stats().compilations, before.compilations);
  EXPECT_TRUE(exe.plan().remarks.empty());
  std::filesystem::remove(path);
}

TEST(RunGpu, PlanWithTensorMapsLoadsOnAThreadWithoutAContext) {
  FUSOR_NEEDS_GPU();
  GraphBuilder g("matmul");
  const Tensor a = g.input("a", {256, 256}, DataType::bf16);
  const Plan plan = build(g.finish({g.matmul(a, a)}), DeviceInfo::current());
  std::jthread([&] { EXPECT_NO_THROW(load(plan)); }).join();
}

TEST(RunGpu, MisalignedPointerIsRefusedByName) {
  FUSOR_NEEDS_GPU();
  DeviceRun run(bottleneck(1, 14));
  std::vector<void*> slots = run.slots();
  void*& x = slots[run.executable().slot("x")];
  x = static_cast<std::byte*>(x) + 1;
  const cuda::DeviceBuffer workspace(std::max<int64_t>(run.executable().workspace_bytes(), 256));
  EXPECT_THROW(run.executable().run(slots, workspace.get()), Error);
}

TEST(RunGpu, InPlacePointwiseWorks) {
  FUSOR_NEEDS_GPU();
  GraphBuilder g("in place");
  const Tensor x = g.input("x", {100003}, DataType::f32);
  const Tensor y = g.output(g.add(x, g.constant(1)));
  const Executable exe = load(build(g.finish(), DeviceInfo::current()));
  const cuda::DeviceBuffer buffer(400012);
  cuda::fill(buffer.get(), 0, 400012, nullptr);
  exe.run({{x, buffer.get()}, {y, buffer.get()}});
  exe.run({{x, buffer.get()}, {y, buffer.get()}});
  std::vector<float> got(100003);
  cuda::copy_to_host(got.data(), buffer.get(), 400012);
  EXPECT_EQ(got, std::vector<float>(100003, 2.0f));
}

}  // namespace
}  // namespace fusor
