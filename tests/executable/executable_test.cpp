// Owns the tests of loading and running plans on a GPU that is a stub: what is launched, refused and
// allocated.
#include "backend/executable.h"

#include <gmock/gmock.h>

#include <array>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "backend/engines/list.h"
#include "backend/planning.h"
#include "codegen/cache_stats.h"
#include "codegen/cuda_driver.h"
#include "codegen/nvrtc.h"
#include "core/error.h"
#include "frontend/graph_builder.h"
#include "tests/stub_driver/stub_driver.h"
#include "tests/support/allocations.h"

namespace fusor {
namespace {

using testing::HasSubstr;

// No disk cache: what is compiled here is counted.
struct StubEnvironment : testing::Environment {
  void SetUp() override {
    setenv("FUSOR_CACHE_DIR", "", 1);
    stub::use();
  }
};
const auto* const kEnvironment = testing::AddGlobalTestEnvironment(new StubEnvironment);

class ExecutableTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string problem;
    if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
    cuda::make_current();
    stub::reset();
  }
};

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// y = relu(x * s), s by value.
Graph scaled() {
  GraphBuilder g("scaled");
  const Tensor x = g.input("x", {64, 128}, DataType::f32);
  g.output(g.relu(g.mul(x, g.scalar("s", DataType::f16))), {.name = "y"});
  return g.finish();
}

// Two fusions with an intermediate in the workspace.
Graph two_matmuls() {
  GraphBuilder g("two matmuls");
  const Tensor a = g.input("a", {32, 32}, DataType::f32);
  g.output(g.matmul(g.matmul(a, a), a), {.name = "c"});
  return g.finish();
}

alignas(256) std::byte memory[4][1 << 16];
// Addresses of tensors of up to a GiB: the stub does not look there.
std::byte* far_apart(int number) {
  const uintptr_t address = (uintptr_t{1} << 40) + (static_cast<uintptr_t>(number) << 30);
  return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}
const uint16_t kHalf = 0x3800;  // 0.5 in fp16

TEST_F(ExecutableTest, PutsPointersAndScalarsIntoTheBlock) {
  const Executable exe = load(build(scaled(), DeviceInfo::named("H200")));
  std::vector<void*> slots(3);
  slots[exe.slot("x")] = memory[0];
  slots[exe.slot("y")] = memory[1];
  slots[exe.slot("s")] = const_cast<uint16_t*>(&kHalf);
  exe.run(slots);
  cuda::synchronize();
  const FusorStubLaunch launch = stub::last_launch();
  const auto holds = [&]<class T>(T value) {
    for (size_t at = 0; at + 8 <= launch.argument_bytes; at += 8) {
      T found;
      std::memcpy(&found, launch.arguments + at, sizeof found);
      if (found == value) return true;
    }
    return false;
  };
  EXPECT_TRUE(holds(reinterpret_cast<void*>(&memory[0])));
  EXPECT_TRUE(holds(reinterpret_cast<void*>(&memory[1])));
  EXPECT_TRUE(holds(0.5f));
}

// Three equal fusions, called layer0 and relu0 and so on, and one of its own.
Graph alike() {
  GraphBuilder g("alike");
  Tensor x = g.input("x", {64, 64}, DataType::f32);
  for (int i = 0; i < 3; ++i) {
    const std::string number = std::to_string(i);
    x = g.relu(g.matmul(x, x, {.name = "layer" + number}), {.name = "relu" + number, .type = DataType::f32});
  }
  g.output(g.reduce(x, ReductionMode::add, {1}, {.name = "sums"}), {.name = "y"});
  return g.finish();
}

// The kernels' names as the driver knows them, in order; the executable is gone again.
std::vector<std::string> kernels_of(const Plan& plan, const char* naming) {
  setenv("FUSOR_KERNEL_NAMES", naming, 1);
  const Executable exe = load(plan);
  unsetenv("FUSOR_KERNEL_NAMES");
  stub::reset();
  std::vector<void*> slots(2);
  slots[exe.slot("x")] = far_apart(0);
  slots[exe.slot("y")] = far_apart(1);
  exe.run(slots, far_apart(2));
  std::vector<std::string> names;
  for (int64_t i = stub::launch_count() - 1; i >= 0; --i)
    names.emplace_back(stub::last_launch(static_cast<int>(i)).entry);
  return names;
}

TEST_F(ExecutableTest, KernelsAreCalledAfterTheirFusions) {
  const Plan plan = build(alike(), DeviceInfo::named("H200"));
  const std::vector<std::string> plain = kernels_of(plan, "0");
  const std::vector<std::string> shared = kernels_of(plan, "1");
  const std::vector<std::string> own = kernels_of(plan, "2");
  ASSERT_EQ(shared.size(), plain.size());
  ASSERT_EQ(own.size(), plain.size());
  ASSERT_GE(plain.size(), 4U);
  for (size_t i = 0; i + 1 < plain.size(); ++i) {
    EXPECT_THAT(shared[i], testing::MatchesRegex("layer0_relu0_and_2_alike__" + plain[i]));
    EXPECT_THAT(own[i], testing::MatchesRegex("layer[0-2]_relu[0-2]__" + plain[i]));
  }
  EXPECT_EQ(own[0], "layer0_relu0__" + plain[0]);
  EXPECT_EQ(shared.back(), "sums__" + plain.back());
}

TEST_F(ExecutableTest, NamesDoNotCompileKernelsAnew) {
  const Plan plan = build(alike(), DeviceInfo::named("H200"));
  kernels_of(plan, "0");
  const int64_t before = cache_stats().compilations;
  kernels_of(plan, "1");
  kernels_of(plan, "2");
  EXPECT_EQ(cache_stats().compilations, before);
}

TEST_F(ExecutableTest, BindsByUidAndIgnoresUnknownOnes) {
  const Graph graph = scaled();
  const Executable exe = load(build(graph, DeviceInfo::named("H200")));
  const auto uid = [&](const char* name) { return graph.tensors[graph.find(name)].uid; };
  exe.run({{uid("x"), memory[0]}, {uid("y"), memory[1]}, {uid("s"), &kHalf}, {4711, memory[2]}});
  cuda::synchronize();
  EXPECT_EQ(stub::launch_count(), 1);
}

TEST_F(ExecutableTest, MissingPointerIsNamed) {
  const Graph graph = scaled();
  const Executable exe = load(build(graph, DeviceInfo::named("H200")));
  const Tensor& x = graph.tensors[graph.find("x")];
  EXPECT_THAT(message_of([&] { exe.run({{x, memory[0]}}); }), HasSubstr("has no pointer"));
  EXPECT_THAT(message_of([&] { exe.run(std::vector<void*>(2)); }),
              HasSubstr("got 2 pointers, the plan of 'scaled' has 3 slots"));
  EXPECT_THAT(message_of([&] { exe.slot("nosuch"); }), HasSubstr("binds no tensor 'nosuch'"));
}

TEST_F(ExecutableTest, BrokenAlignmentIsRefusedWithTheNumber) {
  const Graph graph = scaled();
  const Executable exe = load(build(graph, DeviceInfo::named("H200")));
  const auto uid = [&](const char* name) { return graph.tensors[graph.find(name)].uid; };
  EXPECT_THAT(message_of([&] {
                exe.run({{uid("x"), memory[0] + 4}, {uid("y"), memory[1]}, {uid("s"), &kHalf}});
              }),
              testing::AllOf(HasSubstr("tensor 'x'"), HasSubstr("which is not a multiple of the 8 bytes")));
}

// The first argument of a launch.
LaunchTurn turn_of(const FusorStubLaunch& launch) {
  LaunchTurn turn{};
  std::memcpy(&turn, launch.arguments, sizeof turn);
  return turn;
}

// Each of many blocks would have to say that the next launch may begin.
TEST_F(ExecutableTest, LaunchesOfManyBlocksOverlapNoOthers) {
  GraphBuilder g("many blocks");
  const Tensor x = g.input("x", {1 << 16, 1 << 12}, DataType::f32);
  const Tensor sums = g.reduce(x, ReductionMode::add, {1});
  g.output(g.sub(x, g.reduce(sums, ReductionMode::max, {0})), {.name = "y"});
  const Executable exe = load(build(g.finish(), DeviceInfo::named("H200")));
  std::vector<void*> slots(2);
  slots[static_cast<size_t>(exe.slot("x"))] = far_apart(0);
  slots[static_cast<size_t>(exe.slot("y"))] = far_apart(1);
  exe.run(slots, far_apart(2));
  const FusorStubLaunch launch = stub::last_launch();
  ASSERT_GT(launch.grid[0], 16u * 132);
  EXPECT_FALSE(launch.programmatic);
  EXPECT_EQ(turn_of(launch), LaunchTurn::alone);
}

TEST_F(ExecutableTest, LaunchesOverlapThoseInFrontWhichTheFirstDoesNot) {
  const Executable exe = load(build(two_matmuls(), DeviceInfo::named("H200")));
  std::vector<void*> slots(2);
  slots[exe.slot("a")] = far_apart(0);
  slots[exe.slot("c")] = far_apart(1);
  exe.run(slots, far_apart(2));
  EXPECT_FALSE(stub::last_launch(static_cast<int>(stub::launch_count()) - 1).programmatic);
  EXPECT_EQ(turn_of(stub::last_launch(static_cast<int>(stub::launch_count()) - 1)), LaunchTurn::in_order);
  EXPECT_TRUE(stub::last_launch().programmatic);
  EXPECT_EQ(turn_of(stub::last_launch()), LaunchTurn::waits) << "it reads what the first wrote";
}

// None of the results needs another one, but v may take the place of w.
TEST_F(ExecutableTest, LaunchesRunBesideEachOtherWhereTensorsShareNoMemory) {
  GraphBuilder g("beside");
  const Tensor x = g.input("x", {64, 64}, DataType::f32);
  g.output(g.reduce(x, ReductionMode::max, {0}), {.name = "y"});
  g.output(g.reduce(x, ReductionMode::add, {1}), {.name = "z"});
  const Tensor w = g.input("w", {64, 64}, DataType::f32);
  g.output(g.relu(w), {.name = "v"});
  const Executable exe = load(build(g.finish(), DeviceInfo::named("H200")));
  std::vector<void*> slots(5);
  for (const char* name : {"x", "y", "z", "w", "v"}) {
    const size_t slot = static_cast<size_t>(exe.slot(name));
    slots[slot] = far_apart(static_cast<int>(slot));
  }
  exe.run(slots, far_apart(5));
  ASSERT_GT(stub::launch_count(), 1);
  EXPECT_EQ(turn_of(stub::last_launch()), LaunchTurn::beside);
  slots[static_cast<size_t>(exe.slot("v"))] = slots[static_cast<size_t>(exe.slot("w"))];
  exe.run(slots, far_apart(5));
  EXPECT_EQ(turn_of(stub::last_launch()), LaunchTurn::waits);
}

// Few rows by weights that the plan only reads, then by such that it makes. What is behind may be in place.
TEST_F(ExecutableTest, WeightsThatNothingWritesAreReadAhead) {
  GraphBuilder g("ahead");
  const Tensor first = g.input("first", {512, 512}, DataType::f16);
  const Tensor second = g.input("second", {512, 512}, DataType::f16);
  const Tensor h = g.matmul(g.input("x", {8, 512}, DataType::f16), first, {.type = DataType::f16});
  const Tensor y = g.matmul(h, second, {.type = DataType::f16});
  g.output(y, {.name = "y"});
  g.output(g.relu(g.input("w", {64, 64}, DataType::f32)), {.name = "v"});
  const Executable exe = load(build(g.finish(), DeviceInfo::named("H200")));
  std::vector<void*> slots(6);
  for (size_t i = 0; i < slots.size(); ++i) slots[i] = far_apart(static_cast<int>(i));
  const auto turns_of_run = [&] {
    const auto before = static_cast<int>(stub::launch_count());
    exe.run(slots, far_apart(6));
    std::vector<LaunchTurn> turns;
    for (int i = static_cast<int>(stub::launch_count()) - before; i > 0; --i)
      turns.push_back(turn_of(stub::last_launch(i - 1)));
    return turns;
  };
  EXPECT_THAT(turns_of_run(), testing::Contains(LaunchTurn::ahead));
  slots[static_cast<size_t>(exe.slot("v"))] = slots[static_cast<size_t>(exe.slot("w"))];
  EXPECT_THAT(turns_of_run(), testing::Not(testing::Contains(LaunchTurn::ahead)));
}

TEST_F(ExecutableTest, WeightsThatThePlanMakesAreNotReadAhead) {
  GraphBuilder g("not ahead");
  const Tensor w = g.matmul(g.input("a", {512, 512}, DataType::f16), g.input("b", {512, 512}, DataType::f16),
                            {.type = DataType::f16});
  g.output(g.matmul(g.input("x", {8, 512}, DataType::f16), w, {.type = DataType::f16}), {.name = "y"});
  const Executable exe = load(build(g.finish(), DeviceInfo::named("H200")));
  std::vector<void*> slots(4);
  for (size_t i = 0; i < slots.size(); ++i) slots[i] = far_apart(static_cast<int>(i));
  exe.run(slots, far_apart(4));
  EXPECT_EQ(turn_of(stub::last_launch()), LaunchTurn::waits);
}

TEST_F(ExecutableTest, WorkspaceIsAskedForAndItsAlignmentChecked) {
  const Executable exe = load(build(two_matmuls(), DeviceInfo::named("H200")));
  EXPECT_EQ(exe.workspace_bytes(), 32 * 32 * 4);
  std::vector<void*> slots(2);
  slots[exe.slot("a")] = memory[0];
  slots[exe.slot("c")] = memory[1];
  EXPECT_THAT(message_of([&] { exe.run(slots); }), HasSubstr("needs 4096 bytes of workspace"));
  EXPECT_THAT(message_of([&] { exe.run(slots, memory[2] + 16); }), HasSubstr("not a multiple of 256"));
  exe.run(slots, memory[2]);
  cuda::synchronize();
  EXPECT_EQ(stub::launch_count(), 2);
}

TEST_F(ExecutableTest, RunAllocatesNothing) {
  const Graph graph = two_matmuls();
  const Executable exe = load(build(graph, DeviceInfo::named("H200")));
  const Binding bindings[] = {{graph.tensors[graph.find("a")], memory[0]},
                              {graph.tensors[graph.find("c")], memory[1]}};
  stub::keep_launches(false);
  exe.run(bindings, memory[2]);
  const int64_t before = test::allocations();
  for (int i = 0; i < 100; ++i) exe.run(bindings, memory[2]);
  EXPECT_EQ(test::allocations(), before);
  stub::keep_launches(true);
}

TEST_F(ExecutableTest, TensorMapsArePointedAtTheirOperands) {
  GraphBuilder g("tensor cores");
  const Tensor a = g.input("a", {1024, 1024}, DataType::bf16);
  const Tensor b = g.input("b", {1024, 1024}, DataType::bf16);
  const Tensor c = g.output(g.matmul(a, b), {.name = "c"});
  const Plan plan = build(g.finish(), DeviceInfo::named("H200"));
  ASSERT_EQ(plan.fusions[0].config.engine, "wgmma");
  const Executable exe = load(plan);
  exe.run({{a, far_apart(0)}, {b, far_apart(1)}, {c, far_apart(2)}});
  cuda::synchronize();
  const FusorStubLaunch launch = stub::last_launch();
  const void* first = nullptr;  // where the stub's map keeps its address
  std::memcpy(&first, launch.arguments + kTensorMapAlignment, sizeof first);
  EXPECT_TRUE(first == far_apart(0) || first == far_apart(1));
}

TEST_F(ExecutableTest, TensorMapsArePointedAtScratch) {
  GraphBuilder g("repacked");
  const Tensor x = g.input("x", {2, 16, 16, 16}, DataType::f16);
  const Tensor w = g.input("w", {16, 16, 3, 3}, DataType::f16);
  const Tensor y = g.output(g.conv_fprop(x, w), {.name = "y"});
  const std::array<const Engine*, 1> list{&wgmma_repacked_engine()};
  const Plan plan = build(g.finish(), DeviceInfo::named("H200"), {.engine_list = list});
  const Executable exe = load(plan, list);
  alignas(256) static std::array<std::byte, 1 << 20> workspace;
  ASSERT_LE(exe.workspace_bytes(), static_cast<int64_t>(workspace.size()));
  exe.run({{x, memory[0]}, {w, memory[1]}, {y, memory[2]}}, workspace.data());
  cuda::synchronize();
  const auto is_scratch = [&](const void* pointer) {
    return pointer >= workspace.data() && pointer < workspace.data() + exe.workspace_bytes();
  };
  ASSERT_GE(stub::launch_count(), 3);
  int products = 0;
  for (int back = 0; back < stub::launch_count(); ++back) {
    const FusorStubLaunch launch = stub::last_launch(back);
    if (!std::string_view(launch.entry).ends_with("__wgmma_contraction")) continue;
    ++products;
    for (const int map : {0, 1}) {
      const void* at = nullptr;
      std::memcpy(&at, launch.arguments + kTensorMapAlignment + map * kTensorMapBytes, sizeof at);
      EXPECT_TRUE(is_scratch(at)) << map;
    }
  }
  EXPECT_EQ(products, 1);
}

TEST_F(ExecutableTest, TensorMapsAreEncodedOnAThreadWithoutAContext) {
  GraphBuilder g("tensor cores");
  const Tensor a = g.input("a", {1024, 1024}, DataType::bf16);
  const Plan plan = build(g.finish({g.matmul(a, a)}), DeviceInfo::named("H200"));
  ASSERT_EQ(plan.fusions[0].config.engine, "wgmma");
  std::thread([&] { EXPECT_NO_THROW(load(plan)); }).join();
}

// Launches of one kernel, and executables of one plan, share what the driver has loaded.
TEST_F(ExecutableTest, AModuleIsLoadedOnceForAllLaunchesAndExecutables) {
  const int64_t loads = stub::library_loads(), before = stub::libraries();
  {
    const Plan plan = build(two_matmuls(), DeviceInfo::named("H200"));
    const Executable exe = load(plan);
    EXPECT_EQ(stub::library_loads(), loads + 1);
    const Executable again = load(plan);
    EXPECT_EQ(stub::library_loads(), loads + 1);
    EXPECT_EQ(stub::libraries(), before + 1);
  }
  EXPECT_EQ(stub::libraries(), before);
}

TEST_F(ExecutableTest, ThePrimaryContextIsRetainedOnceAndReleasedWithItsLastHolder) {
  GraphBuilder g("tensor cores");
  const Tensor a = g.input("a", {1024, 1024}, DataType::bf16);
  const Tensor b = g.matmul(a, a, {.type = DataType::bf16});
  const Plan plan = build(g.finish({g.matmul(b, b)}), DeviceInfo::named("H200"));
  const int64_t retains = stub::context_retains(), holds = stub::context_holds();
  cuda::make_current();
  EXPECT_EQ(stub::context_holds(), holds) << "it is this thread's already";
  std::thread([&] {
    const Executable exe = load(plan);
    EXPECT_LE(stub::context_retains(), retains + 1) << "one retain for all tensor maps";
  }).join();
  EXPECT_EQ(stub::context_holds(), holds);
}

TEST_F(ExecutableTest, AWorkspaceThatIsTooSmallIsRefused) {
  const Executable exe = load(build(two_matmuls(), DeviceInfo::named("H200")));
  std::vector<void*> slots(2);
  slots[exe.slot("a")] = memory[0];
  slots[exe.slot("c")] = memory[1];
  EXPECT_THAT(message_of([&] {
                exe.run(slots, {memory[2], 4095});
              }),
              HasSubstr("needs 4096 bytes of workspace, got 4095"));
  exe.run(slots, {memory[2], 4096});
  exe.run(slots, memory[2]);
}

// More tensors than a stack should hold.
TEST_F(ExecutableTest, RunOfManyTensorsAllocatesNothing) {
  GraphBuilder g("many");
  std::vector<Tensor> tensors;
  for (int i = 0; i < 600; ++i) {
    tensors.push_back(g.input("x" + std::to_string(i), {16}, DataType::f32));
    tensors.push_back(g.output(g.relu(tensors.back()), {.name = "y" + std::to_string(i)}));
  }
  const Executable exe = load(build(g.finish(), DeviceInfo::named("H200")));
  std::vector<Binding> bindings;
  for (size_t i = 0; i < tensors.size(); ++i) bindings.emplace_back(tensors[i], far_apart(0) + 256 * i);
  stub::keep_launches(false);
  exe.run(bindings);
  const int64_t before = test::allocations();
  exe.run(bindings);
  EXPECT_EQ(test::allocations(), before);
  std::vector<std::thread> threads;
  threads.reserve(16);
  for (int i = 0; i < 16; ++i)
    threads.emplace_back([&] {
      cuda::make_current();
      for (int k = 0; k < 20; ++k) exe.run(bindings);
    });
  for (std::thread& thread : threads) thread.join();
  bindings[701].pointer = bindings[3].pointer;
  EXPECT_THAT(message_of([&] { exe.run(bindings); }),
              testing::AllOf(HasSubstr("'y1'"), HasSubstr("'y350'"), HasSubstr("overlaps output")));
  stub::keep_launches(true);
}

TEST_F(ExecutableTest, KnobsThatTakeTooMuchTogetherAreChosenAnew) {
  GraphBuilder g("window");
  const Tensor x = g.input("x", {1, 64, 60, 60}, DataType::f16, Layout::nhwc);
  const Tensor w = g.input("w", {64, 64, 4, 4}, DataType::f16, Layout::nhwc);
  Plan plan = build(g.finish({g.conv_fprop(x, w)}), DeviceInfo::named("H200"));
  EngineConfig& config = plan.fusions[0].config;
  ASSERT_EQ(config.engine, "wgmma");
  config = {config.engine, config.revision, {}};
  config.set("tile_n", 256);
  config.set("window", 1);
  const Executable exe = load(plan);
  ASSERT_EQ(exe.plan().remarks.size(), 1u);
  EXPECT_THAT(exe.plan().remarks[0], HasSubstr("bytes of shared memory a block, H200 has 232448"));
}

TEST_F(ExecutableTest, ChoiceThatNoLongerExistsIsMadeAnewAndSaid) {
  Plan plan = build(two_matmuls(), DeviceInfo::named("H200"));
  plan.fusions[0].config.engine = "retired";
  plan.fusions[1].config.set("tile_m", 17);
  const Executable exe = load(plan);
  ASSERT_EQ(exe.plan().remarks.size(), 2u);
  EXPECT_THAT(exe.plan().remarks[0], HasSubstr("there is no engine 'retired'"));
  EXPECT_THAT(exe.plan().remarks[1], HasSubstr("knob 'tile_m' of engine 'direct' cannot be 17"));
  EXPECT_EQ(exe.plan().fusions[0].config.engine, "direct");
}

TEST_F(ExecutableTest, PlanForAnotherArchitectureIsPlannedAnew) {
  const Plan plan = build(two_matmuls(), DeviceInfo::named("A100"), {.compile = false});
  const Executable exe = load(plan);
  ASSERT_EQ(exe.plan().remarks.size(), 1u);
  EXPECT_THAT(exe.plan().remarks[0], HasSubstr("planned for A100 (sm_80, 108 SMs), running on"));
  EXPECT_EQ(exe.plan().device.compute_capability, 90);
}

TEST_F(ExecutableTest, PlanForMoreProcessorsIsPlannedAnew) {
  DeviceInfo larger = DeviceInfo::named("H200");
  larger.sm_count = 1000;
  const Executable exe = load(build(two_matmuls(), larger, {.compile = false}));
  ASSERT_EQ(exe.plan().remarks.size(), 1u);
  EXPECT_THAT(exe.plan().remarks[0], HasSubstr("planned for H200 (sm_90a, 1000 SMs), running on"));
  EXPECT_LT(exe.plan().device.sm_count, 1000);
}

TEST_F(ExecutableTest, PartitionThatIsNoPartitionIsRefused) {
  Plan plan = build(two_matmuls(), DeviceInfo::named("H200"), {.compile = false});
  plan.fusions.pop_back();
  EXPECT_THAT(message_of([&] { load(plan); }), HasSubstr("is in 0 fusions of the plan, expected 1"));
}

}  // namespace
}  // namespace fusor
