// Owns the tests on the GPU of rows that blocks share by a launch a phase: settings that cover every shape of
// blocks, against the oracle.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/backend/engines/rows/cases.h"
#include "tests/gpu/engines/rows/forced.h"

namespace fusor {
namespace {

using namespace rows_cases;

struct Setting {
  int64_t vector, threads, slots, batch;
};

std::vector<KnobSetting> knobs_of(const Setting& setting, int64_t split) {
  const auto& [vector, threads, slots, batch] = setting;
  return {{"vector", vector}, {"threads", threads}, {"group", threads / slots},
          {"cluster", 1},     {"held", 2},          {"batch", batch},
          {"blocks", 1},      {"join", 1},          {"split", split}};
}

void expect_splits_correct(const Graph& graph, const std::string& what, int64_t split = 1) {
  std::set<std::string> seen;
  for (const Setting& setting : {Setting{8, 128, 4, 1}, {4, 512, 64, 4}, {8, 256, 16, 2}, {8, 512, 32, 8}})
    seen.insert(expect_forced_correct(graph, what, "rows_split", knobs_of(setting, split)));
  EXPECT_GE(seen.size(), 3u) << what;
}

TEST(SplitRowsGpu, BatchNorm) {
  FUSOR_NEEDS_GPU();
  for (const DataType type : {DataType::bf16, DataType::f32}) {
    for (const Dims& dims : {Dims{5, 24, 1303}, Dims{3, 264, 784}, Dims{2, 3, 20011}})
      expect_splits_correct(batch_norm(type, dims, true), to_string(dims));
    for (const Dims& dims : {Dims{3, 24, 9216}, Dims{2, 3, 20011}})
      expect_splits_correct(batch_norm(type, dims, false), "planes " + to_string(dims));
  }
}

// Distances to the mean are a thousandth of it.
TEST(SplitRowsGpu, BatchNormFarFromZero) {
  FUSOR_NEEDS_GPU();
  expect_splits_correct(batch_norm(DataType::f32, {4, 40, 3001}, true, 500.0), "channels last");
  expect_splits_correct(batch_norm(DataType::f32, {4, 10, 8192}, false, 500.0), "planes");
}

// A strict graph's variance waits for its mean: two phases, each with launches of its own.
TEST(SplitRowsGpu, PhasesOfStrictGraphs) {
  FUSOR_NEEDS_GPU();
  for (const bool last : {true, false}) {
    Graph graph = batch_norm(DataType::bf16, {3, 24, 9216}, last);
    graph.precision = Precision::strict;
    expect_splits_correct(graph, last ? "channels last" : "planes");
  }
  Graph groups = group_norm(DataType::bf16, {2, 32, 10, 1024}, true);
  groups.precision = Precision::strict;
  expect_splits_correct(groups, "groups", 2);
}

TEST(SplitRowsGpu, BatchNormBackward) {
  FUSOR_NEEDS_GPU();
  for (const Dims& dims : {Dims{5, 24, 1303}, Dims{3, 264, 784}, Dims{2, 5, 20011}})
    expect_splits_correct(batch_norm_bwd(DataType::bf16, dims, true), to_string(dims));
  expect_splits_correct(batch_norm_bwd(DataType::bf16, {2, 10, 16392}, false), "planes");
}

TEST(SplitRowsGpu, GroupNorm) {
  FUSOR_NEEDS_GPU();
  for (const Dims& dims : {Dims{2, 32, 10, 1024}, Dims{1, 4, 6, 5003}, Dims{3, 2, 20, 2000}})
    expect_splits_correct(group_norm(DataType::bf16, dims, true), to_string(dims), 2);
}

TEST(SplitRowsGpu, GroupNormWithStatistics) {
  FUSOR_NEEDS_GPU();
  for (const DataType type : {DataType::bf16, DataType::f32})
    for (const Dims& dims : {Dims{2, 32, 10, 1024}, Dims{1, 4, 6, 5003}, Dims{3, 2, 20, 2000}})
      expect_splits_correct(group_norm_saved(type, dims, true, true), to_string(dims), 2);
  expect_splits_correct(group_norm_saved(DataType::bf16, {3, 5, 32, 1021}, true, true), "32 channels");
}

TEST(SplitRowsGpu, GroupNormBackward) {
  FUSOR_NEEDS_GPU();
  for (const Dims& dims : {Dims{2, 32, 10, 1024}, Dims{1, 4, 6, 5003}, Dims{3, 2, 20, 2000}})
    expect_splits_correct(group_norm_bwd(DataType::bf16, dims, true), to_string(dims), 2);
}

TEST(SplitRowsGpu, SoftmaxOfFewLongRows) {
  FUSOR_NEEDS_GPU();
  expect_splits_correct(softmax(DataType::bf16, {3, 100003}, 1), "odd rows");
  expect_splits_correct(softmax(DataType::f32, {40000, 24}, 0), "columns");
}

TEST(SplitRowsGpu, StatisticsAlone) {
  FUSOR_NEEDS_GPU();
  GraphBuilder g("statistics");
  const Tensor x = g.input("x", {9001, 48}, DataType::bf16);
  const Tensor mean = g.reduce(x, ReductionMode::avg, {0});
  const Tensor centered = g.sub(x, mean);
  g.output(mean, named("mean", DataType::f32));
  g.output(g.reduce(g.mul(centered, centered), ReductionMode::avg, {0}), named("variance", DataType::f32));
  expect_splits_correct(g.finish(), "statistics");
}

TEST(SplitRowsGpu, HundredRunsHaveOneHash) {
  FUSOR_NEEDS_GPU();
  const Graph graph = batch_norm(DataType::bf16, {6, 64, 3137}, true);
  DeviceRun run(graph, forced_plan(graph, knobs_of({8, 256, 8, 4}, 1)));
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    run.run();
    const auto& bytes = run.host("y");
    seen.emplace(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  EXPECT_EQ(seen.size(), 1u);
}

}  // namespace
}  // namespace fusor
