// Owns the figures taken on a GPU: memory-bound kernels and plain contractions against their floors, and the
// host time of run(). One JSON line a case. L2 is flushed by reading 512 MB before each timed run; CUDA
// events; the median of 50.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <random>
#include <vector>

#include "backend/build.h"
#include "backend/executable.h"
#include "backend/schedule.h"
#include "backend/verify.h"
#include "codegen/cuda_driver.h"
#include "codegen/kernel_cache.h"
#include "core/error.h"
#include "frontend/graph_builder.h"

namespace {

using namespace fusor;

constexpr int kRuns = 50;
constexpr int64_t kFlushBytes = int64_t{512} << 20;

// A sum over 512 MB: reads everything, so L2 holds nothing of the next kernel's data and no dirty lines.
class Flusher {
 public:
  Flusher() : x_(kFlushBytes), y_(256) {
    GraphBuilder g("flush");
    const Tensor x = g.input("x", {kFlushBytes / 4}, DataType::f32);
    const Tensor y = g.output(g.reduce(x, ReductionMode::add), {.name = "y"});
    exe_ = std::make_unique<Executable>(load(build(g.finish(), DeviceInfo::current())));
    workspace_ = cuda::DeviceBuffer(std::max<int64_t>(256, exe_->workspace_bytes()));
    cuda::fill(x_.get(), 0, kFlushBytes, nullptr);
  }
  void operator()() const {
    std::vector<void*> slots(2);
    slots[exe_->slot("x")] = x_.get();
    slots[exe_->slot("y")] = y_.get();
    exe_->run(slots, workspace_.get());
  }

 private:
  cuda::DeviceBuffer x_, y_, workspace_;
  std::unique_ptr<Executable> exe_;
};

// Buffers with random contents for every bound tensor of a graph. The pattern repeats every 16 Mi elements.
class Bound {
 public:
  explicit Bound(const Graph& graph) : exe_(load(build(graph, DeviceInfo::current()))) {
    slots_.resize(static_cast<size_t>(exe_.slot_count()));
    for (size_t i = 0; i < graph.tensors.size(); ++i) {
      const Tensor& tensor = graph.tensors[i];
      if (tensor.memory != Memory::device) continue;
      buffers_.emplace_back(tensor.bytes());
      slots_[exe_.slot(tensor.name)] = buffers_.back().get();
      if (graph.producer(static_cast<int>(i)) < 0) randomise(tensor, buffers_.back());
      bytes_ += element_count(tensor.dims) * byte_size(tensor.type);
    }
    workspace_ = cuda::DeviceBuffer(std::max<int64_t>(256, exe_.workspace_bytes()));
  }
  void run() const { exe_.run(slots_, workspace_.get()); }
  int64_t bytes() const { return bytes_; }
  const Executable& executable() const { return exe_; }

 private:
  static void randomise(const Tensor& tensor, const cuda::DeviceBuffer& buffer) {
    Tensor piece = tensor;
    piece.dims = {std::min<int64_t>(tensor.bytes() / byte_size(tensor.type), 1 << 24)};
    piece.strides = {1};
    std::vector<std::byte> host(static_cast<size_t>(piece.bytes()));
    fill_random(piece, host.data(), 7);
    for (int64_t at = 0; at < buffer.bytes(); at += piece.bytes())
      cuda::copy_to_device(static_cast<std::byte*>(buffer.get()) + at, host.data(),
                           std::min(piece.bytes(), buffer.bytes() - at));
  }

  Executable exe_;
  std::vector<cuda::DeviceBuffer> buffers_;
  std::vector<void*> slots_;
  cuda::DeviceBuffer workspace_;
  int64_t bytes_ = 0;
};

double median_seconds(const std::function<void()>& run, const Flusher& flush) {
  std::vector<double> times;
  for (int i = 0; i < kRuns + 3; ++i) {
    flush();
    cuda::Timer timer;
    timer.start();
    run();
    timer.stop();
    if (i >= 3) times.push_back(timer.seconds());
  }
  std::ranges::nth_element(times, times.begin() + kRuns / 2);
  return times[kRuns / 2];
}

void report(const std::string& name, const Graph& graph, double flops, const Flusher& flush) {
  const Bound bound(graph);
  const double seconds = median_seconds([&] { bound.run(); }, flush);
  std::string configs;
  for (const PlannedFusion& fusion : bound.executable().plan().fusions)
    configs += to_string(fusion.config) + " ";
  fmt::print(
      "{{\"case\": \"{}\", \"us\": {:.2f}, \"tb_per_s\": {:.3f}, \"tflops\": {:.2f}, \"estimated_us\": "
      "{:.2f}, \"engines\": \"{}\"}}\n",
      name, seconds * 1e6, static_cast<double>(bound.bytes()) / seconds * 1e-12, flops / seconds * 1e-12,
      bound.executable().plan().seconds * 1e6, configs);
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
  const Bound bound(graph);
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
  const double run = time([&] { bound.run(); });
  fmt::print(
      "{{\"case\": \"host time of run\", \"run_us\": {:.3f}, \"bare_launch_us\": {:.3f}, \"difference_us\": "
      "{:.3f}}}\n",
      run, bare, run - bare);
}

void report_all() {
  cuda::make_current();
  const Flusher flush;
  report("3-input gelu chain 16384x8192 bf16", chain(16384, 8192), 0, flush);
  report("bias + relu 16384x8192 bf16", bias_activation(PointwiseMode::relu), 0, flush);
  report("bias + gelu_tanh 16384x8192 bf16", bias_activation(PointwiseMode::gelu_tanh), 0, flush);
  report("bias + gelu (erf) 16384x8192 bf16", bias_activation(PointwiseMode::gelu), 0, flush);
  report("row sums 8192x8192 bf16", sums(DataType::bf16, 1, 8192, 8192), 0, flush);
  report("column sums 8192x8192 bf16", sums(DataType::bf16, 0, 8192, 8192), 0, flush);
  report("row sums 8192x8192 fp32", sums(DataType::f32, 1, 8192, 8192), 0, flush);
  report("column sums 16384x4096 bf16", sums(DataType::bf16, 0, 16384, 4096), 0, flush);
  report("nchw -> nhwc 256x64x56x56 fp16", to_nhwc(), 0, flush);
  report("matmul 4096 fp32", matmul(4096, DataType::f32), 2.0 * 4096 * 4096 * 4096, flush);
  for (const int64_t n : {2048, 4096, 8192})
    report(fmt::format("matmul {} bf16", n), matmul(n, DataType::bf16), 2.0 * static_cast<double>(n * n * n),
           flush);
  const double conv_flops = 2.0 * 32 * 56 * 56 * 64 * 64 * 9;
  report("conv 3x3 32x64x56x56 fp16 nhwc + bias + relu", conv3x3(ConvPass::fprop), conv_flops, flush);
  report("conv 3x3 32x64x56x56 fp16 nhwc dgrad", conv3x3(ConvPass::dgrad), conv_flops, flush);
  report("conv 3x3 32x64x56x56 fp16 nhwc wgrad", conv3x3(ConvPass::wgrad), conv_flops, flush);
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
