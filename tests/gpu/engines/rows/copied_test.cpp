// Owns the tests on the GPU of rows that are copied to shared memory ahead of the first phase: those of a
// block or a cluster, and those of a grid whose blocks meet; settings that cover every shape of blocks,
// against the oracle.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "backend/engines/rows/schedule.h"
#include "tests/backend/engines/rows/cases.h"
#include "tests/gpu/engines/rows/forced.h"

namespace fusor {
namespace {

using namespace rows_cases;

struct CopiedSetting {
  int64_t vector, threads, group, cluster, join;
};

std::vector<KnobSetting> copied_knobs(const CopiedSetting& setting, int64_t blocks = 1, int64_t split = 0) {
  const auto& [vector, threads, group, cluster, join] = setting;
  return {{"vector", vector}, {"threads", threads}, {"group", group}, {"cluster", cluster}, {"held", 4},
          {"batch", 1},       {"blocks", blocks},   {"join", join},   {"split", split}};
}

bool copies(const Plan& plan) {
  const std::vector<PlannedKernel> all = kernels(plan);
  return std::ranges::any_of(all.front().launch.source->config, [](const ConfigValue& value) {
    return value.name == "held" && std::get<int64_t>(value.value) == 4;
  });
}

void expect_copied_correct(const Graph& graph, const std::string& what,
                           std::initializer_list<CopiedSetting> settings) {
  std::set<std::string> seen;
  for (const CopiedSetting& setting : settings) {
    const std::vector<KnobSetting> knobs = copied_knobs(setting);
    EXPECT_TRUE(copies(forced_plan(graph, knobs))) << what;
    seen.insert(expect_forced_correct(graph, what, "rows", knobs));
  }
  EXPECT_GE(seen.size(), 2u) << what;
}

TEST(CopiedRowsGpu, MiddleAxes) {
  FUSOR_NEEDS_GPU();
  const auto settings = {CopiedSetting{8, 128, 16, 1, 0}, {8, 128, 4, 1, 1}, {8, 256, 64, 2, 1}};
  for (const Dims& dims : {Dims{3, 20, 64}, Dims{2, 1001, 24}, Dims{5, 77, 4096}}) {
    expect_copied_correct(softmax(DataType::bf16, dims, 1), to_string(dims), settings);
    expect_copied_correct(softmax_bwd(DataType::f16, dims, 1), "backward " + to_string(dims), settings);
  }
  expect_copied_correct(middle_norm(DataType::bf16, {4, 12, 13, 64}), "axes 1 and 2", settings);
}

TEST(CopiedRowsGpu, LongRows) {
  FUSOR_NEEDS_GPU();
  const auto settings = {CopiedSetting{8, 128, 128, 8, 1}, {8, 512, 512, 2, 1}, {8, 1024, 1024, 4, 1}};
  expect_copied_correct(softmax(DataType::bf16, {5, 128256}, 1), "128256", settings);
  expect_copied_correct(group_norm(DataType::bf16, {2, 32, 10, 4096}, false), "planes", settings);
  expect_copied_correct(group_norm(DataType::f32, {3, 3, 7, 3004}, false), "odd planes", settings);
}

struct Meeting {
  int64_t threads, slots, blocks;
};

// `all_launch`: every setting is one of these kernels.
void expect_resident_correct(const Graph& graph, const std::string& what, bool spread, int64_t split,
                             int64_t vector = 8, bool all_launch = true) {
  const char* const entry = split == RowsKnobs::turns ? "rows_turned" : "rows_resident";
  std::set<std::string> seen;
  for (const auto& [threads, slots, blocks] :
       {Meeting{128, 4, 1}, {256, 16, 2}, {512, 32, 1}, {256, 8, 3}, {320, 40, 1}, {640, 40, 1}}) {
    const CopiedSetting setting{vector, threads, spread ? threads / slots : threads, 1, 1};
    const std::vector<KnobSetting> knobs = copied_knobs(setting, blocks, split);
    if (all_launch || launches(forced_plan(graph, knobs), entry))
      seen.insert(expect_forced_correct(graph, what, entry, knobs));
  }
  EXPECT_GE(seen.size(), 2u) << what;
}

// Blocks own whole groups: in place of settings that do not, the nearest may be another kernel's.
void expect_offered_correct(const Graph& graph, const std::string& what, int64_t split, int64_t vector = 8) {
  expect_resident_correct(graph, what, true, split, vector, false);
}

TEST(ResidentRowsGpu, BatchNorm) {
  FUSOR_NEEDS_GPU();
  for (const Dims& dims : {Dims{5, 24, 1303}, Dims{3, 264, 784}, Dims{64, 64, 196}}) {
    expect_resident_correct(batch_norm(DataType::bf16, dims, true), to_string(dims), true, 1);
    expect_resident_correct(batch_norm(DataType::f32, dims, true), "fp32 " + to_string(dims), true, 1);
  }
  expect_resident_correct(batch_norm(DataType::bf16, {3, 24, 9216}, false), "planes", false, 1);
}

TEST(ResidentRowsGpu, BatchNormBackward) {
  FUSOR_NEEDS_GPU();
  for (const Dims& dims : {Dims{5, 24, 1303}, Dims{3, 264, 784}})
    expect_resident_correct(batch_norm_bwd(DataType::bf16, dims, true), to_string(dims), true, 1);
}

TEST(ResidentRowsGpu, GroupNorm) {
  FUSOR_NEEDS_GPU();
  for (const Dims& dims :
       {Dims{2, 32, 10, 1024}, Dims{1, 4, 6, 5003}, Dims{3, 2, 16, 2000}, Dims{4, 8, 40, 777}})
    expect_resident_correct(group_norm(DataType::bf16, dims, true), to_string(dims), true, 2);
}

// Groups of 10, 20, 4 and 6 channels have vectors that reach over two; rows of 3 x 40 channels, and of 24, do
// not fill the last block. Planes, and groups of 32, are rows of their own vectors.
TEST(ResidentRowsGpu, GroupNormWithStatistics) {
  FUSOR_NEEDS_GPU();
  for (const Dims& dims :
       {Dims{2, 32, 10, 1024}, Dims{2, 16, 20, 1000}, Dims{3, 10, 4, 2001}, Dims{1, 4, 6, 5003}})
    expect_resident_correct(group_norm_saved(DataType::bf16, dims, true, true), to_string(dims), true, 2);
  for (const Dims& dims : {Dims{2, 32, 10, 1024}, Dims{1, 4, 6, 5003}})
    expect_resident_correct(group_norm_saved(DataType::f32, dims, true, true), "fp32 " + to_string(dims),
                            true, 2, 4);
  expect_resident_correct(group_norm_saved(DataType::bf16, {2, 32, 10, 1024}, true, true, DataType::bf16),
                          "statistics of 16 bits", true, 2);
  expect_resident_correct(group_norm_saved(DataType::bf16, {3, 5, 32, 1021}, true, true), "32 channels",
                          false, 1);
  expect_resident_correct(group_norm_saved(DataType::bf16, {3, 2, 20, 2000}, false, false), "planes", false,
                          1);
}

TEST(ResidentRowsGpu, GroupNormBackward) {
  FUSOR_NEEDS_GPU();
  for (const Dims& dims : {Dims{2, 32, 10, 1024}, Dims{2, 16, 20, 1000}, Dims{1, 4, 6, 5003}})
    expect_offered_correct(group_norm_bwd(DataType::bf16, dims, true), to_string(dims), 2);
}

// x lies by channels, results by pixels.
TEST(TurnedRowsGpu, GroupNorm) {
  FUSOR_NEEDS_GPU();
  for (const Dims& dims : {Dims{2, 32, 10, 1024}, Dims{2, 16, 20, 1000}, Dims{3, 10, 4, 2000},
                           Dims{2, 5, 32, 1024}, Dims{1, 4, 6, 5008}}) {
    const std::string what = to_string(dims);
    expect_offered_correct(group_norm_saved(DataType::bf16, dims, true, false), what, 3);
    expect_offered_correct(group_norm_saved(DataType::f16, dims, true, false, DataType::f16), what, 3);
    expect_offered_correct(group_norm_saved(DataType::f32, dims, true, false), "fp32 " + what, 3, 4);
  }
}

TEST(TurnedRowsGpu, PhasesOfStrictGraphs) {
  FUSOR_NEEDS_GPU();
  Graph graph = group_norm_saved(DataType::bf16, {2, 32, 10, 1024}, true, false);
  graph.precision = Precision::strict;
  expect_offered_correct(graph, "groups", 3);
}

TEST(TurnedRowsGpu, HundredRunsHaveOneHash) {
  FUSOR_NEEDS_GPU();
  const Graph graph = group_norm_saved(DataType::bf16, {8, 32, 10, 4096}, true, false);
  const Plan plan = forced_plan(graph, copied_knobs({8, 320, 8, 1, 1}, 2, 3));
  EXPECT_TRUE(launches(plan, "rows_turned"));
  DeviceRun run(graph, plan);
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    run.run();
    const auto& bytes = run.host("z");
    seen.emplace(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  EXPECT_EQ(seen.size(), 1u);
}

// Distances to the mean are a thousandth of it.
TEST(ResidentRowsGpu, BatchNormFarFromZero) {
  FUSOR_NEEDS_GPU();
  expect_resident_correct(batch_norm(DataType::f32, {4, 40, 3001}, true, 500.0), "channels last", true, 1);
}

TEST(ResidentRowsGpu, PhasesOfStrictGraphs) {
  FUSOR_NEEDS_GPU();
  Graph graph = batch_norm(DataType::bf16, {3, 24, 9216}, true);
  graph.precision = Precision::strict;
  expect_resident_correct(graph, "channels last", true, 1);
  Graph groups = group_norm_saved(DataType::bf16, {2, 32, 10, 1024}, true, true);
  groups.precision = Precision::strict;
  expect_resident_correct(groups, "groups", true, 2);
}

TEST(ResidentRowsGpu, HundredRunsHaveOneHash) {
  FUSOR_NEEDS_GPU();
  const Graph graph = batch_norm(DataType::bf16, {6, 64, 3137}, true);
  const Plan plan = forced_plan(graph, copied_knobs({8, 256, 32, 1, 1}, 2, 1));
  EXPECT_TRUE(launches(plan, "rows_resident"));
  DeviceRun run(graph, plan);
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    run.run();
    const auto& bytes = run.host("y");
    seen.emplace(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  EXPECT_EQ(seen.size(), 1u);
}

// Blocks meet in cooperative launches alone.
TEST(ResidentRowsGpu, AreCapturedIntoGraphs) {
  FUSOR_NEEDS_GPU();
  const Graph graph = group_norm(DataType::bf16, {2, 32, 10, 4096}, true);
  const Plan plan = forced_plan(graph, copied_knobs({8, 640, 16, 1, 1}, 1, 2));
  ASSERT_TRUE(launches(plan, "rows_resident"));
  DeviceRun run(graph, plan);
  run.run();
  const std::vector<std::byte> want = run.host("y");
  cuda::OwnStream stream;
  stream.begin_capture();
  run.launch(stream.get());
  void* captured = stream.end_capture();
  stream.launch_graph(captured);
  cuda::synchronize(stream.get());
  run.fetch();
  EXPECT_EQ(run.host("y"), want);
}

}  // namespace
}  // namespace fusor
