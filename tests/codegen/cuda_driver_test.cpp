// Tests of the driver's one user against the stub driver: what is launched, and what is said when it fails.
#include "codegen/cuda_driver.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "codegen/nvrtc.h"
#include "codegen/text/expr_emitter.h"
#include "core/error.h"
#include "core/parallel.h"
#include "tests/codegen/sample_source.h"
#include "tests/stub_driver/stub_driver.h"

namespace fusor::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct StubEnvironment : ::testing::Environment {
  void SetUp() override { stub::use(); }
};
const auto* const kEnvironment = ::testing::AddGlobalTestEnvironment(new StubEnvironment);

// The stub's stand-in for a cubin: one kernel with that many bytes of parameters.
std::string image(int bytes) { return "stub scale " + std::to_string(bytes); }

std::string sample_cubin() {
  const KernelSource source = test::sample_source();
  return nvrtc::compile(source.root, emit_header(source), source.target).cubin;
}

class CudaDriver : public ::testing::Test {
 protected:
  void SetUp() override {
    make_current();
    stub::reset();
  }
};

template <class Body>
std::string message_of(ErrorKind kind, Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "nothing was thrown";
}

TEST_F(CudaDriver, IsAvailableAndSaysWhichItIs) {
  std::string problem = "unset";
  EXPECT_TRUE(available(&problem));
  EXPECT_EQ(problem, "");
  EXPECT_EQ(driver_version(), "13.0");
  EXPECT_THAT(library_path(), HasSubstr("libcuda_stub.so"));
  EXPECT_EQ(device_count(), 1);
  EXPECT_EQ(current_device(), 0);
}

TEST_F(CudaDriver, DescribesTheDevice) {
  const DeviceInfo info = describe(0);
  EXPECT_EQ(info.name, "H200 (stub)");
  EXPECT_EQ(info.kind, DeviceKind::cuda);
  EXPECT_EQ(info.architecture, "Hopper");
  EXPECT_EQ(info.compute_capability, 90);
  EXPECT_EQ(info.sm_count, 132);
  EXPECT_EQ(info.shared_per_block, 227 << 10);
  EXPECT_EQ(info.memory_bytes, int64_t{141} << 30);
  EXPECT_EQ(info.clock_hz, 1.98e9);
  EXPECT_EQ(info.target(), "sm_90a");
}

TEST_F(CudaDriver, ADeviceThatIsNotThereIsNamed) {
  EXPECT_THAT(message_of(ErrorKind::device, [] { describe(3); }), HasSubstr("device 3 of 1"));
}

TEST_F(CudaDriver, LaunchesShapeAndArguments) {
  const Kernel kernel = Kernel::load(image(24), "scale", 0);
  const std::array<int64_t, 3> arguments = {11, -22, 33};
  LaunchShape shape;
  shape.grid = {7, 3, 2};
  shape.block = {128, 2, 1};
  shape.shared_bytes = 4096;
  launch(kernel.handle(), shape, arguments.data(), sizeof arguments, nullptr);
  ASSERT_EQ(stub::launch_count(), 1);
  const FusorStubLaunch seen = stub::last_launch();
  EXPECT_STREQ(seen.entry, "scale");
  EXPECT_THAT(seen.grid, ElementsAre(7, 3, 2));
  EXPECT_THAT(seen.block, ElementsAre(128, 2, 1));
  EXPECT_THAT(seen.cluster, ElementsAre(1, 1, 1));
  EXPECT_EQ(seen.shared_bytes, 4096U);
  ASSERT_EQ(seen.argument_bytes, sizeof arguments);
  EXPECT_EQ(std::memcmp(seen.arguments, arguments.data(), sizeof arguments), 0);
}

TEST_F(CudaDriver, LaunchesClusters) {
  const Kernel kernel = Kernel::load(image(0), "scale", 0);
  LaunchShape shape;
  shape.grid = {8, 4, 1};
  shape.cluster = {4, 2, 1};
  launch(kernel.handle(), shape, nullptr, 0, nullptr);
  EXPECT_THAT(stub::last_launch().cluster, ElementsAre(4, 2, 1));
}

TEST_F(CudaDriver, ClustersOfSixteenBlocksWantToBeAllowed) {
  LaunchShape shape;
  shape.grid = {16, 1, 1};
  shape.cluster = {16, 1, 1};
  const Kernel portable = Kernel::load(image(0), "scale", 0);
  EXPECT_THROW(launch(portable.handle(), shape, nullptr, 0, nullptr), Error);
  const Kernel large = Kernel::load(image(0), "scale", 0, {}, true);
  launch(large.handle(), shape, nullptr, 0, nullptr);
  EXPECT_THAT(stub::last_launch().cluster, ElementsAre(16, 1, 1));
}

TEST_F(CudaDriver, LaunchesCarryTheirAttributes) {
  const Kernel kernel = Kernel::load(image(0), "scale", 0);
  LaunchShape shape;
  launch(kernel.handle(), shape, nullptr, 0, nullptr);
  EXPECT_FALSE(stub::last_launch().cooperative);
  EXPECT_FALSE(stub::last_launch().programmatic);
  shape.cooperative = shape.programmatic = true;
  launch(kernel.handle(), shape, nullptr, 0, nullptr);
  EXPECT_TRUE(stub::last_launch().cooperative);
  EXPECT_TRUE(stub::last_launch().programmatic);
}

TEST_F(CudaDriver, AFailedLaunchSaysItsShapeAndTheDriversWords) {
  const Kernel kernel = Kernel::load(image(24), "scale", 0);
  LaunchShape shape;
  shape.block = {2048, 1, 1};
  const std::array<int64_t, 3> arguments{};
  const std::string message = message_of(ErrorKind::device, [&] {
    launch(kernel.handle(), shape, arguments.data(), sizeof arguments, nullptr);
  });
  EXPECT_THAT(message, HasSubstr("block [2048, 1, 1]"));
  EXPECT_THAT(message, HasSubstr("24 bytes of arguments"));
  EXPECT_THAT(message, HasSubstr("CUDA_ERROR_INVALID_VALUE: said by the stub driver"));
  EXPECT_EQ(stub::launch_count(), 0);
}

TEST_F(CudaDriver, ArgumentsOfTheWrongSizeAreRefused) {
  const Kernel kernel = Kernel::load(image(24), "scale", 0);
  const std::array<int64_t, 2> arguments{};
  EXPECT_THROW(launch(kernel.handle(), {}, arguments.data(), sizeof arguments, nullptr), Error);
}

TEST_F(CudaDriver, LoadAllowsMuchSharedMemory) {
  LaunchShape shape;
  shape.shared_bytes = 200 << 10;
  const Kernel modest = Kernel::load(image(0), "scale", 1024);
  EXPECT_THROW(launch(modest.handle(), shape, nullptr, 0, nullptr), Error);
  const Kernel large = Kernel::load(image(0), "scale", 200 << 10);
  launch(large.handle(), shape, nullptr, 0, nullptr);
  EXPECT_EQ(stub::launch_count(), 1);
}

TEST_F(CudaDriver, MoreSharedMemoryThanTheDeviceHasIsRefusedWithTheNumbers) {
  const std::string message =
      message_of(ErrorKind::device, [] { Kernel::load(image(0), "scale", 300 << 10); });
  EXPECT_THAT(message, HasSubstr("'scale' 307200 bytes"));
  EXPECT_THAT(message, HasSubstr("the device allows 232448"));
}

TEST_F(CudaDriver, ACubinThatIsNoneIsNamed) {
  const std::string message =
      message_of(ErrorKind::device, [] { Kernel::load("not a cubin at all", "scale", 0); });
  EXPECT_THAT(message, HasSubstr("kernel 'scale' (18 bytes)"));
  EXPECT_THAT(message, HasSubstr("CUDA_ERROR_INVALID_IMAGE"));
}

TEST_F(CudaDriver, AnEntryThatIsNotInTheCubinIsNamed) {
  const int64_t before = stub::libraries();
  EXPECT_THAT(message_of(ErrorKind::device, [] { Kernel::load(image(0), "shift", 0); }),
              HasSubstr("find kernel 'shift'"));
  EXPECT_EQ(stub::libraries(), before) << "the library stays loaded";
}

TEST_F(CudaDriver, LoadsWhatNvrtcCompilesAndKnowsItsParameters) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  const std::string cubin = sample_cubin();
  const Kernel kernel = Kernel::load(cubin, "elementwise", 0);
  EXPECT_NE(kernel.handle(), nullptr);
  const int64_t too_little = 0;
  EXPECT_THROW(launch(kernel.handle(), {}, &too_little, sizeof too_little, nullptr), Error);
  EXPECT_THROW(Kernel::load(cubin, "elementwide", 0), Error);
}

// The names of the last `count` launches, newest first.
std::vector<std::string> launched(int count) {
  std::vector<std::string> names;
  names.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) names.emplace_back(stub::last_launch(i).entry);
  return names;
}

// With as many bytes of arguments as the kernel has.
void launch_sample(const Kernel& kernel) {
  const std::vector<std::byte> arguments(4096);
  for (size_t bytes = 8; bytes <= arguments.size(); bytes += 8) {
    try {
      return launch(kernel.handle(), {}, arguments.data(), bytes, nullptr);
    } catch (const Error&) {
      continue;
    }
  }
  FAIL() << "no number of bytes is right";
}

TEST_F(CudaDriver, AKernelIsCalledAsItIsWishedToBe) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  const std::string cubin = sample_cubin();
  launch_sample(Kernel::load(cubin, "elementwise", 0));
  launch_sample(
      Kernel::load(cubin, "elementwise", 100 << 10, "key", false, [] { return "scale__elementwise"; }));
  EXPECT_THAT(launched(2), ElementsAre("scale__elementwise", "elementwise"));
}

TEST_F(CudaDriver, AKernelThatIsLoadedKeepsItsName) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  const std::string cubin = sample_cubin();
  const int64_t before = stub::library_loads();
  const Kernel first =
      Kernel::load(cubin, "elementwise", 0, "key", false, [] { return "first__elementwise"; });
  const Kernel second =
      Kernel::load(cubin, "elementwise", 0, "key", false, [] { return "second__elementwise"; });
  launch_sample(second);
  EXPECT_THAT(launched(1), ElementsAre("first__elementwise"));
  EXPECT_EQ(stub::library_loads(), before + 1);
}

TEST_F(CudaDriver, AnImageThatCannotBeRenamedKeepsItsName) {
  const Kernel kernel = Kernel::load(image(0), "scale", 0, {}, false, [] { return "relu__scale"; });
  launch(kernel.handle(), {}, nullptr, 0, nullptr);
  EXPECT_THAT(launched(1), ElementsAre("scale"));
}

TEST_F(CudaDriver, ADriverThatRefusesTheNewNameIsGivenTheOldOne) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  const std::string cubin = sample_cubin();
  const int64_t before = stub::libraries();
  for (const char* name : {"refused_image__elementwise", "refused_kernel__elementwise"}) {
    const Kernel kernel = Kernel::load(cubin, "elementwise", 0, {}, false, [&] { return name; });
    EXPECT_EQ(stub::libraries(), before + 1) << name;
    launch_sample(kernel);
    EXPECT_THAT(launched(1), ElementsAre("elementwise"));
  }
}

TEST_F(CudaDriver, TheLastCopyUnloads) {
  const int64_t before = stub::libraries();
  {
    Kernel copy;
    {
      const Kernel kernel = Kernel::load(image(0), "scale", 0);
      copy = kernel;
    }
    EXPECT_EQ(stub::libraries(), before + 1);
  }
  EXPECT_EQ(stub::libraries(), before);
}

TEST_F(CudaDriver, BuffersCopyFillAndFree) {
  const int64_t before = stub::device_bytes();
  {
    DeviceBuffer first(1000);
    DeviceBuffer buffer = std::move(first);
    EXPECT_EQ(first.get(), nullptr);  // NOLINT(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
    EXPECT_EQ(buffer.bytes(), 1000);
    EXPECT_EQ(stub::device_bytes(), before + 1000);
    std::vector<char> host(1000, 'a');
    copy_to_device(buffer.get(), host.data(), 1000);
    fill(buffer.get(), 'b', 10, nullptr);
    synchronize();
    copy_to_host(host.data(), buffer.get(), 1000);
    EXPECT_EQ(std::string(host.begin(), host.begin() + 12), "bbbbbbbbbbaa");
    buffer = DeviceBuffer(500);
  }
  EXPECT_EQ(stub::device_bytes(), before);
}

TEST_F(CudaDriver, AnAllocationThatFailsSaysItsSize) {
  EXPECT_THAT(message_of(ErrorKind::device, [] { DeviceBuffer buffer(int64_t{1} << 50); }),
              HasSubstr("1125899906842624 bytes"));
}

TEST_F(CudaDriver, ACapturedGraphRepeatsItsWork) {
  const Kernel kernel = Kernel::load(image(8), "scale", 0);
  DeviceBuffer buffer(16);
  OwnStream stream;
  stream.begin_capture();
  int64_t argument = 5;
  fill(buffer.get(), 7, 16, stream.get());
  launch(kernel.handle(), {}, &argument, sizeof argument, stream.get());
  argument = 6;  // too late to matter: the block was passed by value
  void* graph = stream.end_capture();
  EXPECT_EQ(stub::launch_count(), 0);
  stream.launch_graph(graph);
  stream.launch_graph(graph);
  synchronize(stream.get());
  EXPECT_EQ(stub::launch_count(), 2);
  EXPECT_EQ(stub::last_launch().arguments[0], 5);
  char byte = 0;
  copy_to_host(&byte, static_cast<char*>(buffer.get()) + 15, 1);
  EXPECT_EQ(byte, 7);
}

// A garbage collector may let go of a plan, and another thread load one, at any time.
TEST_F(CudaDriver, KernelsAndMemoryComeAndGoWhileAStreamIsCaptured) {
  const int64_t libraries = stub::libraries(), bytes = stub::device_bytes();
  std::optional<Kernel> kernel = Kernel::load(image(8), "scale", 0);
  std::optional<DeviceBuffer> buffer(16);
  OwnStream stream;
  stream.begin_capture();
  kernel.reset();
  buffer.reset();
  EXPECT_EQ(stub::libraries(), libraries);
  EXPECT_EQ(stub::device_bytes(), bytes);
  kernel = Kernel::load(image(8), "scale", 0);
  buffer = DeviceBuffer(16);
  EXPECT_EQ(stub::libraries(), libraries + 1);
  stream.end_capture();
}

TEST_F(CudaDriver, TheTimerMeasuresBetweenStartAndStop) {
  Timer timer;
  timer.start();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  timer.stop();
  EXPECT_GE(timer.seconds(), 0.005);
  EXPECT_LT(timer.seconds(), 5);
}

TEST_F(CudaDriver, AThreadWithoutAContextFillsAndLaunchesOnAStream) {
  const Kernel kernel = Kernel::load(image(0), "scale", 0);
  DeviceBuffer buffer(1);
  OwnStream stream;
  std::jthread([&] {
    fill(buffer.get(), 3, 1, stream.get());
    launch(kernel.handle(), {}, nullptr, 0, stream.get());
  }).join();
  char byte = 0;
  copy_to_host(&byte, buffer.get(), 1);
  EXPECT_EQ(byte, 3);
  EXPECT_EQ(stub::launch_count(), 1);
}

// As a thread of PyTorch's that computes gradients: the CUDA runtime takes device 0's at its first call.
TEST_F(CudaDriver, AThreadWithoutAContextTakesThatOfDevice0OnTheDefaultStream) {
  const Kernel kernel = Kernel::load(image(0), "scale", 0);
  DeviceBuffer buffer(1);
  std::jthread([&] { launch(kernel.handle(), {}, nullptr, 0, nullptr); }).join();
  std::jthread([&] { fill(buffer.get(), 3, 1, nullptr); }).join();
  char byte = 0;
  copy_to_host(&byte, buffer.get(), 1);
  EXPECT_EQ(byte, 3);
  EXPECT_EQ(stub::launch_count(), 1);
}

TEST_F(CudaDriver, ManyThreadsLaunchAtOnce) {
  const Kernel kernel = Kernel::load(image(8), "scale", 0);
  parallel_for(4, 4, [&](int64_t thread) {
    make_current();
    for (int i = 0; i < 1000; ++i) launch(kernel.handle(), {}, &thread, sizeof thread, nullptr);
  });
  EXPECT_EQ(stub::launch_count(), 4000);
}

// In a process of its own: what is opened first stays open.
TEST(CudaDriverDeathTest, WithoutADriverNothingIsAvailableAndThatIsSaid) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        setenv("FUSOR_LIBCUDA", "/nowhere/libcuda.so.1", 1);
        std::string problem;
        if (available(&problem) || available(&problem)) _exit(1);
        const std::string message = message_of(ErrorKind::missing, [] { make_current(); });
        fprintf(stderr, "%s | %s\n", problem.c_str(), message.c_str());
        _exit(0);
      },
      ::testing::ExitedWithCode(0),
      "the CUDA driver cannot be used.*/nowhere/libcuda.so.1.* \\| the CUDA driver cannot be used");
}

TEST(CudaDriverDeathTest, ALibraryThatIsNoDriverIsSaidToBeTooOld) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        setenv("FUSOR_LIBCUDA", "libm.so.6", 1);
        std::string problem;
        if (available(&problem)) _exit(1);
        fprintf(stderr, "%s\n", problem.c_str());
        _exit(0);
      },
      ::testing::ExitedWithCode(0), "libm.so.6: has no cuInit: driver 12.0 or newer is needed");
}

}  // namespace
}  // namespace fusor::cuda
