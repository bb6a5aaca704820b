// Owns the figures taken on a GPU: memory-bound kernels and plain contractions against their floors, and the
// host time of run(). One JSON line a case. L2 is flushed by reading 512 MB before each timed run; CUDA
// events; the median of 50.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <vector>

#include "backend/executable.h"
#include "backend/planning.h"
#include "codegen/cuda_driver.h"
#include "codegen/kernel_cache.h"
#include "core/error.h"
#include "frontend/graph_builder.h"
#include "heuristics/statistics.h"
#include "tools/bench/case_graph.h"
#include "tools/measure.h"
#include "tools/run_buffers.h"

namespace {

using namespace fusor;
using command::CaseCost, command::cost_of, command::Flusher, command::measure_in_turn, command::RunBuffers;

constexpr int64_t kFlushBytes = int64_t{512} << 20;
constexpr uint64_t kSeed = 7;

void report(const std::string& name, const Graph& graph, const Flusher& flush) {
  const Executable executable = load(build(graph, DeviceInfo::current()));
  const CaseCost cost = cost_of(graph);
  const RunBuffers buffers(graph, true, executable.workspace_bytes(), kSeed);
  const std::function<void()> run = [&] { executable.run(buffers.bindings(), buffers.workspace()); };
  const double seconds = summarise(measure_in_turn({&run, 1}, flush, {}).front()).median;
  std::string configs;
  for (const PlannedFusion& fusion : executable.plan().fusions) configs += to_string(fusion.config) + " ";
  fmt::print(
      "{{\"case\": \"{}\", \"us\": {:.2f}, \"tb_per_s\": {:.3f}, \"tflops\": {:.2f}, \"estimated_us\": "
      "{:.2f}, \"engines\": \"{}\"}}\n",
      name, seconds * 1e6, cost.bytes / seconds * 1e-12, cost.flops / seconds * 1e-12,
      executable.plan().seconds * 1e6, configs);
  std::fflush(stdout);
}

Graph chain(int64_t rows, int64_t columns) {
  GraphBuilder g("chain");
  const Dims dims{rows, columns};
  const Tensor x = g.input("x", dims, DataType::bf16);
  const Tensor y = g.input("y", dims, DataType::bf16);
  const Tensor z = g.input("z", dims, DataType::bf16);
  g.output(g.mul(g.gelu(g.add(g.mul(x, y), z)), y), {.type = DataType::bf16});
  return g.finish();
}

Graph bias_activation(PointwiseMode mode) {
  GraphBuilder g("bias");
  const Tensor x = g.input("x", {16384, 8192}, DataType::bf16);
  const Tensor b = g.input("b", {1, 8192}, DataType::bf16);
  g.output(g.pointwise(mode, {g.add(x, b)}), {.type = DataType::bf16});
  return g.finish();
}

Graph sums(DataType type, int64_t axis, int64_t rows, int64_t columns) {
  GraphBuilder g("sums");
  const Tensor x = g.input("x", {rows, columns}, type);
  g.output(g.reduce(x, ReductionMode::add, {axis}), {.type = DataType::f32});
  return g.finish();
}

Graph to_nhwc() {
  GraphBuilder g("layout");
  const Tensor x = g.input("x", {256, 64, 56, 56}, DataType::f16, Layout::nchw);
  g.output(g.identity(x), {.layout = Layout::nhwc});
  return g.finish();
}

Graph matmul(int64_t n, DataType type) {
  GraphBuilder g("matmul");
  g.output(g.matmul(g.input("a", {n, n}, type), g.input("b", {n, n}, type)));
  return g.finish();
}

Graph conv3x3(ConvPass pass) {
  GraphBuilder g("conv");
  const Tensor x = g.input("x", {32, 64, 56, 56}, DataType::f16, Layout::nhwc);
  const ConvOptions options{.padding = {1, 1}};
  if (pass == ConvPass::wgrad) {
    const Tensor dy = g.input("dy", {32, 64, 56, 56}, DataType::f16, Layout::nhwc);
    g.output(g.conv_wgrad(dy, x, {64, 64, 3, 3}, options), {.type = DataType::f32});
    return g.finish();
  }
  const Tensor w = g.input("w", {64, 64, 3, 3}, DataType::f16, Layout::nhwc);
  if (pass == ConvPass::dgrad) {
    g.output(g.conv_dgrad(x, w, {32, 64, 56, 56}, options));
    return g.finish();
  }
  g.output(g.relu(g.add(g.conv_fprop(x, w, options), g.input("b", {1, 64, 1, 1}, DataType::f16))));
  return g.finish();
}

// Host time of run() beside a bare launch of the same kernel with ready arguments.
void report_host_time() {
  GraphBuilder g("small");
  const Tensor x = g.input("x", {1024}, DataType::f32);
  g.output(g.relu(x), {.name = "y"});
  const Graph graph = g.finish();
  const Plan plan = build(graph, DeviceInfo::current());
  const Executable executable = load(plan);
  const Launch launch = kernels(plan).front().launch;
  const auto compiled = compiled_kernel(*launch.source);
  const cuda::Kernel kernel = cuda::Kernel::load(compiled->cubin, launch.entry, launch.shared_bytes);
  cuda::DeviceBuffer in(4096);
  cuda::DeviceBuffer out(4096);
  std::vector<std::byte> block = launch.arguments.bytes();
  for (const Patch& patch : launch.arguments.patches()) {
    void* pointer =
        plan.graph.tensors[kernels(plan).front().description.operands[patch.index].tensor].name == "x"
            ? in.get()
            : out.get();
    std::memcpy(block.data() + patch.at, &pointer, sizeof pointer);
  }
  const cuda::LaunchShape shape{launch.grid, launch.block, launch.cluster,
                                static_cast<uint32_t>(launch.shared_bytes)};
  const auto time = [&](const std::function<void()>& body) {
    std::vector<double> rounds;
    for (int round = 0; round < 31; ++round) {
      cuda::synchronize();
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < 500; ++i) body();
      rounds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / 500);
    }
    std::ranges::nth_element(rounds, rounds.begin() + 15);
    return rounds[15] * 1e6;
  };
  const double bare =
      time([&] { cuda::launch(kernel.handle(), shape, block.data(), block.size(), nullptr); });
  std::vector<void*> slots(2);
  slots[static_cast<size_t>(executable.slot("x"))] = in.get();
  slots[static_cast<size_t>(executable.slot("y"))] = out.get();
  const double run = time([&] { executable.run(slots); });
  fmt::print(
      "{{\"case\": \"host time of run\", \"run_us\": {:.3f}, \"bare_launch_us\": {:.3f}, \"difference_us\": "
      "{:.3f}}}\n",
      run, bare, run - bare);
}

void report_all() {
  const Flusher flush(DeviceInfo::current(), kFlushBytes);
  report("3-input gelu chain 16384x8192 bf16", chain(16384, 8192), flush);
  report("bias + relu 16384x8192 bf16", bias_activation(PointwiseMode::relu), flush);
  report("bias + gelu_tanh 16384x8192 bf16", bias_activation(PointwiseMode::gelu_tanh), flush);
  report("bias + gelu (erf) 16384x8192 bf16", bias_activation(PointwiseMode::gelu), flush);
  report("row sums 8192x8192 bf16", sums(DataType::bf16, 1, 8192, 8192), flush);
  report("column sums 8192x8192 bf16", sums(DataType::bf16, 0, 8192, 8192), flush);
  report("row sums 8192x8192 fp32", sums(DataType::f32, 1, 8192, 8192), flush);
  report("column sums 16384x4096 bf16", sums(DataType::bf16, 0, 16384, 4096), flush);
  report("nchw -> nhwc 256x64x56x56 fp16", to_nhwc(), flush);
  report("matmul 4096 fp32", matmul(4096, DataType::f32), flush);
  for (const int64_t n : {2048, 4096, 8192})
    report(fmt::format("matmul {} bf16", n), matmul(n, DataType::bf16), flush);
  report("conv 3x3 32x64x56x56 fp16 nhwc + bias + relu", conv3x3(ConvPass::fprop), flush);
  report("conv 3x3 32x64x56x56 fp16 nhwc dgrad", conv3x3(ConvPass::dgrad), flush);
  report("conv 3x3 32x64x56x56 fp16 nhwc wgrad", conv3x3(ConvPass::wgrad), flush);
  report_host_time();
}

}  // namespace

int main() {
  std::string problem;
  if (!cuda::available(&problem)) {
    fmt::print("no GPU: {}\n", problem);
    return 3;
  }
  try {
    report_all();
  } catch (const Error& error) {
    fmt::print("{}\n", error.what());
    return 1;
  }
  return 0;
}
