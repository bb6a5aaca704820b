// Owns the tests on the GPU of rows that are copied to shared memory ahead of the blocks that work on them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/backend/engines/rows/cases.h"
#include "tests/gpu/engines/rows/forced.h"

namespace fusor {
namespace {

using namespace rows_cases;

std::vector<KnobSetting> in_ring(int64_t threads, int64_t group, int64_t batch, int64_t blocks) {
  return {{"vector", 8},    {"threads", threads}, {"group", group}, {"cluster", 1}, {"held", 3},
          {"batch", batch}, {"blocks", blocks},   {"join", 0},      {"split", 0}};
}

void expect_ring_correct(const Graph& graph, const std::string& what, int64_t threads, int64_t group,
                         size_t settings = 2) {
  std::set<std::string> seen;
  for (const int64_t blocks : {1, 2})
    seen.insert(expect_forced_correct(graph, what, "rows_ring", in_ring(threads, group, blocks, blocks)));
  EXPECT_GE(seen.size(), settings) << what;
}

TEST(RingRowsGpu, RowsOfAGroupOfLanes) {
  FUSOR_NEEDS_GPU();
  for (const Dims& dims : {Dims{5001, 128}, Dims{3, 64}, Dims{130001, 64}, Dims{777, 120}}) {
    expect_ring_correct(rms_norm_bwd(DataType::bf16, dims), fmt::format("rms {}", to_string(dims)), 128, 16);
    expect_ring_correct(layer_norm_bwd(DataType::bf16, dims), fmt::format("layer {}", to_string(dims)), 256,
                        16);
  }
}

TEST(RingRowsGpu, RowsOfABlock) {
  FUSOR_NEEDS_GPU();
  for (const Dims& dims : {Dims{2, 1024}, Dims{700, 4096}, Dims{1030, 5128}}) {
    expect_ring_correct(rms_norm_bwd(DataType::bf16, dims), fmt::format("rms {}", to_string(dims)), 256, 256);
    expect_ring_correct(layer_norm_bwd(DataType::f16, dims), fmt::format("layer {}", to_string(dims)), 256,
                        256);
  }
}

TEST(RingRowsGpu, RowsThatTakeMostOfSharedMemory) {
  FUSOR_NEEDS_GPU();
  expect_ring_correct(layer_norm_bwd(DataType::bf16, {301, 12288}), "12288", 512, 512, 1);
}

TEST(RingRowsGpu, RowsOfThreeAxes) {
  FUSOR_NEEDS_GPU();
  expect_ring_correct(layer_norm_bwd(DataType::f32, {20, 9, 136}), "three axes", 128, 16);
}

TEST(RingRowsGpu, HundredRunsHaveOneHash) {
  FUSOR_NEEDS_GPU();
  const Graph graph = layer_norm_bwd(DataType::bf16, {3001, 1024});
  DeviceRun run(graph, forced_plan(graph, in_ring(128, 128, 1, 2)));
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    run.run();
    const auto& bytes = run.host("dgamma");
    seen.emplace(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  EXPECT_EQ(seen.size(), 1u);
}

}  // namespace
}  // namespace fusor
