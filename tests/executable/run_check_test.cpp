// Owns the tests of FUSOR_CHECK: what a run with NaN or infinity tells on stderr.
#include "backend/run_check.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <limits>
#include <vector>

#include "backend/build.h"
#include "backend/executable.h"
#include "frontend/graph_builder.h"

namespace fusor {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

// y = 1 / x, z = y - y of 2 x 3 elements; what a run with FUSOR_CHECK=`value` tells.
std::string told(const char* value, std::vector<float> x) {
  GraphBuilder g("checked");
  const Tensor y = g.output(g.reciprocal(g.input("x", {2, 3}, DataType::f32)), {.name = "y"});
  g.output(g.sub(y, y), {.name = "z"});
  const Graph graph = g.finish();
  setenv("FUSOR_CHECK", value, 1);
  const Executable exe = load(build(graph, DeviceInfo::cpu()));
  unsetenv("FUSOR_CHECK");
  std::vector<float> results(12);
  std::vector<void*> slots(3);
  slots[static_cast<size_t>(exe.slot("x"))] = x.data();
  slots[static_cast<size_t>(exe.slot("y"))] = results.data();
  slots[static_cast<size_t>(exe.slot("z"))] = results.data() + 6;
  std::vector<std::byte> workspace(static_cast<size_t>(exe.workspace_bytes()) + 256);
  void* aligned = workspace.data();
  size_t room = workspace.size();
  std::align(256, 1, aligned, room);
  testing::internal::CaptureStderr();
  exe.run(slots, aligned);
  return testing::internal::GetCapturedStderr();
}

TEST(RunCheck, NamesTheResultsThatAreNotFiniteAndTheFirstSuchElement) {
  EXPECT_THAT(
      told("1", {1, 2, 0, 4, 0, 6}),
      AllOf(HasSubstr("fusor: run 'checked' on CPU: fusion 1's result 'y' holds 0 NaN and 2 Inf among 6 "
                      "elements, first at [0, 2]"),
            HasSubstr("'z' holds 2 NaN and 0 Inf")));
}

TEST(RunCheck, NamesTheInputThatTheyCameFromFirst) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(
      told("1", {1, 1, 1, 1, 1, nan}),
      testing::StartsWith("fusor: run 'checked' on CPU: input 'x' holds 1 NaN and 0 Inf among 6 elements, "
                          "first at [1, 2]"));
}

TEST(RunCheck, IsSilentWhereAllIsFiniteOrNobodyAsked) {
  EXPECT_THAT(told("1", {1, 2, 3, 4, 5, 6}), IsEmpty());
  EXPECT_THAT(told("0", {0, 0, 0, 0, 0, 0}), IsEmpty());
}

// How far such tensors reach is known to the run only: their memory may end before their extent does.
TEST(RunCheck, PassesOverTensorsThatOnlyIndicesReach) {
  constexpr int64_t kExtent = int64_t{1} << 40;
  GraphBuilder g("checked");
  const Tensor offset = g.input("offset", {3}, DataType::i32);
  const Tensor x = g.ragged_load(g.input("x", {kExtent}, DataType::f32), offset, {2, 3}, {1});
  g.output(g.ragged_store(x, offset, kExtent, {1}, {}, true), {.name = "y"});
  setenv("FUSOR_CHECK", "1", 1);
  const Executable exe = load(build(g.finish(), DeviceInfo::cpu()));
  unsetenv("FUSOR_CHECK");
  std::vector<float> xs{1, 2, std::numeric_limits<float>::quiet_NaN()}, ys(3, 7);
  std::vector<int32_t> offsets{0, 1, 2};
  std::vector<void*> slots(3);
  slots[static_cast<size_t>(exe.slot("x"))] = xs.data();
  slots[static_cast<size_t>(exe.slot("offset"))] = offsets.data();
  slots[static_cast<size_t>(exe.slot("y"))] = ys.data();
  std::vector<std::byte> workspace(static_cast<size_t>(exe.workspace_bytes()) + 256);
  void* aligned = workspace.data();
  size_t room = workspace.size();
  std::align(256, 1, aligned, room);
  testing::internal::CaptureStderr();
  exe.run(slots, aligned);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), IsEmpty());
  EXPECT_THAT(ys, testing::ElementsAre(1, 2, 7));
}

}  // namespace
}  // namespace fusor
