// Owns the host's figures: what building, planning, compiling, loading and running cost before any GPU works.
// Target H200 by name; no GPU is needed. Kernels go to a cache folder of its own, removed at the end. One
// thread, median of 9 repetitions; a quiet machine is up to whoever runs it.
#include <benchmark/benchmark.h>

#include <bit>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "backend/engines/list.h"
#include "backend/planner/planner.h"
#include "backend/planner/prepared_fusion.h"
#include "backend/planning.h"
#include "codegen/cuda_driver.h"
#include "codegen/kernel_cache.h"
#include "codegen/nvrtc.h"
#include "codegen/text/expr_emitter.h"
#include "fusor.h"
#include "model_graphs.h"
#include "tests/stub_driver/stub_driver.h"
#include "tests/support/allocations.h"

namespace {

using namespace fusor;

std::filesystem::path cache_folder() {
  return std::filesystem::temp_directory_path() / ("fusor-bench-" + std::to_string(getpid()));
}

void empty_disk_cache() {
  std::filesystem::remove_all(cache_folder());
  std::filesystem::create_directories(cache_folder());
}

const DeviceInfo& h200() {
  static const DeviceInfo device = DeviceInfo::named("H200");
  return device;
}

/// relu((a + b) * c) over bf16: one elementwise kernel.
Graph three_input_chain() {
  GraphBuilder g("chain");
  const Dims dims{16384, 8192};
  const Tensor a = g.input("a", dims, DataType::bf16), b = g.input("b", dims, DataType::bf16);
  const Tensor c = g.input("c", dims, DataType::bf16);
  g.output(g.relu(g.mul(g.add(a, b), c)), {.name = "y"});
  return g.finish();
}

/// Ops of one shape, one after another: what planning costs where a graph is long.
class LongGraph {
 public:
  LongGraph() { x_ = tensor(Memory::device); }
  void add(const Attributes& attributes, bool with_weights = false) {
    std::vector<int> inputs{x_};
    if (with_weights) inputs.push_back(0);
    x_ = tensor(Memory::workspace);
    graph_.ops.push_back({"op" + std::to_string(graph_.ops.size()), attributes, inputs, {x_}});
  }
  Graph finish() {
    graph_.tensors[static_cast<size_t>(x_)].memory = Memory::device;
    return graph_;
  }

 private:
  int tensor(Memory memory) {
    Tensor tensor;
    tensor.name = "t" + std::to_string(graph_.tensors.size());
    tensor.type = DataType::f16;
    tensor.dims = {64, 64};
    tensor.uid = static_cast<int64_t>(graph_.tensors.size()) + 1;
    tensor.strides = packed_strides(tensor.dims);
    tensor.memory = memory;
    graph_.tensors.push_back(tensor);
    return static_cast<int>(graph_.tensors.size()) - 1;
  }
  Graph graph_;
  int x_ = 0;
};

const Pointwise kRelu{.mode = PointwiseMode::relu, .compute = DataType::f32};

template <int kOps>
Graph pointwise_chain() {
  LongGraph graph;
  for (int i = 0; i < kOps; ++i) graph.add(kRelu);
  return graph.finish();
}

template <int kOps>
Graph matmul_chain() {
  LongGraph graph;
  for (int i = 0; i < kOps; i += 2) {
    graph.add(Matmul{.compute = DataType::f32}, true);
    graph.add(kRelu);
  }
  return graph.finish();
}

/// Each diamond doubles the ways from the first op to the two reductions.
Graph diamonds() {
  GraphBuilder g("diamonds");
  Tensor x = g.input("x", {64, 32}, DataType::f32);
  for (int i = 0; i < 64; ++i) x = g.add(g.neg(x), g.abs(x));
  return g.finish({g.reduce(x, ReductionMode::add, {0}), g.reduce(x, ReductionMode::add, {1})});
}

Graph bottleneck() { return sample::resnet50_bottleneck(32); }

/// The 3x3 convolution of the bottleneck with its scale, bias and ReLU.
Graph bottleneck_3x3() {
  GraphBuilder g("conv_3x3");
  const Tensor x = g.input("x", {32, 64, 56, 56}, DataType::f16, Layout::nhwc);
  g.output(g.relu(sample::conv_bn(g, x, "3x3", 64, 3)), {.name = "y"});
  return g.finish();
}

void graph_build(benchmark::State& state) {
  while (state.KeepRunning()) benchmark::DoNotOptimize(bottleneck());
}

/// Validate, fold, partition, choose; no kernel is looked up.
void plan_without_kernels(benchmark::State& state, Graph (*make)()) {
  const Graph graph = make();
  while (state.KeepRunning()) benchmark::DoNotOptimize(build(graph, h200(), {.compile = false}));
}

/// What a framework pays for a graph whose kernels this process has met before.
void plan_warm(benchmark::State& state, Graph (*make)()) {
  const Graph graph = make();
  build(graph, h200());
  const int64_t before = cache_stats().compilations;
  while (state.KeepRunning()) benchmark::DoNotOptimize(build(graph, h200()));
  state.counters["compilations"] = static_cast<double>(cache_stats().compilations - before);
}

/// What a second process pays: an empty memory cache over a filled disk cache.
void plan_in_second_process(benchmark::State& state, Graph (*make)()) {
  const Graph graph = make();
  build(graph, h200());
  const int64_t before = cache_stats().compilations;
  while (state.KeepRunning()) {
    clear_memory_cache();
    benchmark::DoNotOptimize(build(graph, h200()));
  }
  state.counters["compilations"] = static_cast<double>(cache_stats().compilations - before);
}

/// What the first process pays: everything is compiled, on all cores.
void plan_cold(benchmark::State& state, Graph (*make)()) {
  const Graph graph = make();
  while (state.KeepRunning()) {
    state.PauseTiming();
    clear_memory_cache();
    empty_disk_cache();
    state.ResumeTiming();
    benchmark::DoNotOptimize(build(graph, h200()));
  }
}

void lower_all(benchmark::State& state, Graph (*make)()) {
  const Plan plan = build(make(), h200(), {.compile = false});
  const FoldedGraph folded = fold_views(plan.graph);
  std::vector<Fusion> fusions;
  for (const PlannedFusion& planned : plan.fusions)
    fusions.push_back(make_fusion(plan.graph, folded, planned.ops));
  while (state.KeepRunning())
    for (size_t i = 0; i < fusions.size(); ++i) {
      const EngineConfig& config = plan.fusions[i].config;
      PreparedFusion prepared(fusions[i], h200());
      benchmark::DoNotOptimize(prepared.by(*find_engine(engines(), config.engine)).lower(config));
    }
  state.counters["fusions"] = static_cast<double>(fusions.size());
}

void emit_headers(benchmark::State& state, Graph (*make)()) {
  const std::vector<PlannedKernel> planned = kernels(build(make(), h200(), {.compile = false}));
  while (state.KeepRunning())
    for (const PlannedKernel& kernel : planned) benchmark::DoNotOptimize(emit_header(*kernel.launch.source));
  state.counters["kernels"] = static_cast<double>(planned.size());
}

/// NVRTC alone, without any cache, on the one kernel of the graph.
void compile(benchmark::State& state, Graph (*make)()) {
  const std::vector<PlannedKernel> planned = kernels(build(make(), h200(), {.compile = false}));
  const KernelSource& source = *planned.front().launch.source;
  const std::string header = emit_header(source);
  while (state.KeepRunning()) benchmark::DoNotOptimize(nvrtc::compile(source.root, header, source.target));
}

#ifdef FUSOR_STUB_DRIVER
void load_cached(benchmark::State& state, Graph (*make)()) {
  const Plan plan = build(make(), h200());
  while (state.KeepRunning()) benchmark::DoNotOptimize(load(plan));
}

/// One call of run() against a driver that does nothing: what the library adds to a launch.
void run(benchmark::State& state, Graph (*make)()) {
  const Executable executable = load(build(make(), h200()));
  // Addresses that are never read: the stub launches nothing.
  uintptr_t next = uintptr_t{1} << 40;
  const auto place = [&](int64_t bytes) {
    return std::bit_cast<void*>(
        std::exchange(next, next + (static_cast<uintptr_t>(bytes) + 255) / 256 * 256));
  };
  void* const memory = place(executable.workspace_bytes());
  std::vector<Binding> bindings;
  for (const Tensor& tensor : executable.plan().graph.tensors)
    if (!tensor.is_virtual()) bindings.emplace_back(tensor, place(tensor.bytes()));
  executable.run(bindings, memory);
  const int64_t before = fusor::test::allocations();
  while (state.KeepRunning()) executable.run(bindings, memory);
  state.counters["allocations"] = static_cast<double>(fusor::test::allocations() - before);
  state.counters["kernels"] = static_cast<double>(kernels(executable.plan()).size());
}
#endif

void median_of_9(benchmark::internal::Benchmark* benchmark) {
  benchmark->MinTime(0.1)->Repetitions(9)->ReportAggregatesOnly();
}

BENCHMARK(graph_build)->Apply(median_of_9)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(plan_without_kernels, bottleneck, bottleneck)
    ->Apply(median_of_9)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(plan_without_kernels, chain_10000, pointwise_chain<10000>)
    ->Apply(median_of_9)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan_without_kernels, chain_1600, pointwise_chain<1600>)
    ->Apply(median_of_9)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan_without_kernels, matmuls_10000, matmul_chain<10000>)
    ->Apply(median_of_9)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan_without_kernels, matmuls_1600, matmul_chain<1600>)
    ->Apply(median_of_9)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan_without_kernels, diamonds_64, diamonds)
    ->Apply(median_of_9)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(lower_all, bottleneck, bottleneck)->Apply(median_of_9)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(emit_headers, bottleneck, bottleneck)->Apply(median_of_9)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(compile, bf16_chain, three_input_chain)->Apply(median_of_9)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(compile, direct_3x3, bottleneck_3x3)->Apply(median_of_9)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan_cold, bottleneck, bottleneck)
    ->Apply(median_of_9)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan_in_second_process, bottleneck, bottleneck)
    ->Apply(median_of_9)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(plan_warm, bottleneck, bottleneck)->Apply(median_of_9)->Unit(benchmark::kMicrosecond);
#ifdef FUSOR_STUB_DRIVER
BENCHMARK_CAPTURE(load_cached, bottleneck, bottleneck)->Apply(median_of_9)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(run, one_kernel, three_input_chain)->Apply(median_of_9)->Unit(benchmark::kNanosecond);
BENCHMARK_CAPTURE(run, bottleneck, bottleneck)->Apply(median_of_9)->Unit(benchmark::kNanosecond);
#endif

}  // namespace

int main(int argc, char** argv) {
  setenv("FUSOR_CACHE_DIR", cache_folder().c_str(), 1);
#ifdef FUSOR_STUB_DRIVER
  stub::use();
  cuda::make_current();
  stub::keep_launches(false);
#endif
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  std::filesystem::remove_all(cache_folder());
  return 0;
}
