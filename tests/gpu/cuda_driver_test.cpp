// Owns the tests of the driver's one user on a real GPU: what the stub driver cannot know.
#include "codegen/cuda_driver.h"

#include <gmock/gmock.h>

#include <array>
#include <thread>
#include <vector>

#include "codegen/nvrtc.h"
#include "codegen/text/expr_emitter.h"
#include "core/error.h"
#include "tests/codegen/sample_source.h"

namespace fusor::cuda {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

// Kernels that tell on the host: what arrived, in which cluster, with how much shared memory.
constexpr const char* kKernels = R"(
struct Block { long long* out; long long values[300]; };
extern "C" __global__ void copy_values(const __grid_constant__ Block b) {
  for (int i = threadIdx.x; i < 300; i += blockDim.x) b.out[i] = b.values[i] + blockIdx.x;
}
extern "C" __global__ void cluster_size(const __grid_constant__ Block b) {
  unsigned blocks = 1;
#if __CUDA_ARCH__ >= 900
  asm volatile("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(blocks));
#endif
  if (threadIdx.x == 0) b.out[blockIdx.x] = blocks;
}
extern "C" __global__ void last_shared_byte(const __grid_constant__ Block b) {
  extern __shared__ char memory[];
  memory[b.values[0] - 1] = 7;
  if (threadIdx.x == 0) b.out[0] = memory[b.values[0] - 1];
}
)";

struct Block {
  void* out = nullptr;
  std::array<int64_t, 300> values{};
};

class CudaDriverGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string problem;
    if (!available(&problem) || !nvrtc::available(&problem)) GTEST_SKIP() << problem;
    make_current();
    const KernelSource source = test::sample_source(1, 64, 128, describe(0).target());
    const std::string text = emit_header(source) + kKernels;
    cubin_ = nvrtc::compile(source.root, text, source.target).cubin;
    out_ = DeviceBuffer(300 * sizeof(int64_t));
    for (size_t i = 0; i < block_.values.size(); ++i) block_.values[i] = static_cast<int64_t>(7 * i);
    block_.out = out_.get();
  }

  std::vector<int64_t> result() const {
    std::vector<int64_t> values(300);
    synchronize();
    copy_to_host(values.data(), out_.get(), out_.bytes());
    return values;
  }

  static constexpr LaunchShape kOneBlock{.grid = {1, 1, 1}, .block = {128, 1, 1}};
  std::string cubin_;
  DeviceBuffer out_;
  Block block_;
};

TEST_F(CudaDriverGpu, DescribesADeviceThatKernelsAreCompiledFor) {
  const DeviceInfo info = describe(0);
  EXPECT_FALSE(info.name.empty());
  EXPECT_GE(info.compute_capability, 75);
  EXPECT_GT(info.sm_count, 1);
  EXPECT_GE(info.shared_per_block, 48 << 10);
  EXPECT_GE(info.shared_per_sm, info.shared_per_block);
  EXPECT_GT(info.l2_bytes, 1 << 20);
  EXPECT_GT(info.memory_bytes, int64_t{1} << 30);
  EXPECT_GT(info.clock_hz, 5e8);
}

TEST_F(CudaDriverGpu, ArgumentsArriveWhole) {
  const Kernel kernel = Kernel::load(cubin_, "copy_values", 0);
  launch(kernel.handle(), kOneBlock, &block_, sizeof block_, nullptr);
  const std::vector<int64_t> got = result();
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], block_.values[i]) << i;
}

// Loading at the first launch would break the capture.
TEST_F(CudaDriverGpu, AKernelsFirstLaunchMayBeCaptured) {
  OwnStream stream;
  const Kernel kernel = Kernel::load(cubin_, "copy_values", 0);
  stream.begin_capture();
  fill(out_.get(), 0xff, out_.bytes(), stream.get());
  launch(kernel.handle(), kOneBlock, &block_, sizeof block_, stream.get());
  void* graph = stream.end_capture();
  block_.values[5] = -1;  // too late to matter
  stream.launch_graph(graph);
  synchronize(stream.get());
  EXPECT_EQ(result()[5], 35);
  EXPECT_EQ(result()[299], 7 * 299);
}

TEST_F(CudaDriverGpu, AThreadWithoutAContextFillsAndLaunchesOnAStream) {
  OwnStream stream;
  const Kernel kernel = Kernel::load(cubin_, "copy_values", 0);
  std::jthread([&] {
    fill(out_.get(), 0, out_.bytes(), stream.get());
    launch(kernel.handle(), kOneBlock, &block_, sizeof block_, stream.get());
  }).join();
  synchronize(stream.get());
  EXPECT_EQ(result()[10], 70);
}

TEST_F(CudaDriverGpu, AThreadWithoutAContextTakesThatOfDevice0OnTheDefaultStream) {
  const Kernel kernel = Kernel::load(cubin_, "copy_values", 0);
  std::jthread([&] { fill(out_.get(), 0, out_.bytes(), nullptr); }).join();
  std::jthread([&] { launch(kernel.handle(), kOneBlock, &block_, sizeof block_, nullptr); }).join();
  synchronize(nullptr);
  EXPECT_EQ(result()[10], 70);
}

TEST_F(CudaDriverGpu, FillSetsEveryByte) {
  fill(out_.get(), 0x11, out_.bytes(), nullptr);
  EXPECT_THAT(result(), Each(0x1111111111111111));
}

TEST_F(CudaDriverGpu, BlocksMayHaveAllOfTheSharedMemory) {
  const int64_t all = describe(0).shared_per_block;
  const Kernel kernel = Kernel::load(cubin_, "last_shared_byte", all);
  block_.values[0] = all;
  LaunchShape shape = kOneBlock;
  shape.shared_bytes = static_cast<uint32_t>(all);
  launch(kernel.handle(), shape, &block_, sizeof block_, nullptr);
  EXPECT_EQ(result()[0], 7);
  EXPECT_THROW(Kernel::load(cubin_, "last_shared_byte", all + 1024), Error);
}

TEST_F(CudaDriverGpu, BlocksFormClusters) {
  if (describe(0).compute_capability < 90) GTEST_SKIP() << "clusters came with compute capability 9.0";
  const Kernel kernel = Kernel::load(cubin_, "cluster_size", 0);
  LaunchShape shape = kOneBlock;
  shape.grid = {8, 1, 1};
  shape.cluster = {4, 1, 1};
  launch(kernel.handle(), shape, &block_, sizeof block_, nullptr);
  EXPECT_EQ(result()[7], 4);
}

TEST_F(CudaDriverGpu, ALaunchThatTheDeviceRefusesSaysItsShape) {
  const Kernel kernel = Kernel::load(cubin_, "copy_values", 0);
  LaunchShape shape = kOneBlock;
  shape.block = {4096, 1, 1};
  try {
    launch(kernel.handle(), shape, &block_, sizeof block_, nullptr);
    FAIL() << "it was launched";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("block [4096, 1, 1]"));
  }
}

TEST_F(CudaDriverGpu, ACubinForAnotherGenerationIsRefused) {
  const KernelSource source = test::sample_source();
  const std::string other = describe(0).compute_capability == 90 ? "sm_120a" : "sm_90a";
  const std::string cubin = nvrtc::compile(source.root, emit_header(source), other).cubin;
  EXPECT_THROW(Kernel::load(cubin, "elementwise", 0), Error);
}

TEST_F(CudaDriverGpu, TheTimerMeasuresTheDevice) {
  const DeviceBuffer large(256 << 20);
  Timer timer;
  fill(large.get(), 0, large.bytes(), nullptr);
  timer.start();
  fill(large.get(), 0, large.bytes(), nullptr);
  timer.stop();
  EXPECT_GT(timer.seconds(), 1e-5);
  EXPECT_LT(timer.seconds(), 1e-1);
}

}  // namespace
}  // namespace fusor::cuda
