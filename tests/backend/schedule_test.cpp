// Owns the tests of the workspace layout.
#include "backend/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace fusor {
namespace {

Tensor virtual_bytes(const std::string& name, int64_t bytes) {
  Tensor tensor;
  tensor.name = name;
  tensor.type = DataType::u8;
  tensor.dims = {bytes};
  tensor.strides = {1};
  tensor.memory = Memory::workspace;
  return tensor;
}

ScheduledFusion using_tensors(std::initializer_list<int> tensors, std::vector<int64_t> scratch = {}) {
  ScheduledFusion scheduled;
  for (const int tensor : tensors) {
    Operand operand;
    operand.tensor = tensor;
    operand.memory = Memory::workspace;
    scheduled.fusion.operands.push_back(operand);
  }
  scheduled.lowered.scratch = std::move(scratch);
  return scheduled;
}

TEST(Schedule, MemoryIsUsedAgainAfterItsLastReader) {
  Graph graph;
  for (const char* name : {"a", "b", "c"}) graph.tensors.push_back(virtual_bytes(name, 1000));
  // a -> b -> c: a is dead when c is written.
  std::vector<ScheduledFusion> fusions;
  fusions.push_back(using_tensors({0}));
  fusions.push_back(using_tensors({0, 1}));
  fusions.push_back(using_tensors({1, 2}));
  const Schedule schedule = make_schedule(graph, std::move(fusions), false);
  EXPECT_EQ(schedule.workspace_bytes, 2048);
  EXPECT_EQ(schedule.tensor_offsets[0], schedule.tensor_offsets[2]);
  EXPECT_NE(schedule.tensor_offsets[0], schedule.tensor_offsets[1]);
}

TEST(Schedule, ScratchLivesForOneFusionAndIsAligned) {
  Graph graph;
  graph.tensors.push_back(virtual_bytes("a", 10));
  std::vector<ScheduledFusion> fusions;
  fusions.push_back(using_tensors({0}, {100}));
  fusions.push_back(using_tensors({0}, {100}));
  const Schedule schedule = make_schedule(graph, std::move(fusions), false);
  EXPECT_EQ(schedule.workspace_bytes, 512);
  EXPECT_EQ(schedule.fusions[0].scratch_offsets[0], schedule.fusions[1].scratch_offsets[0]);
  EXPECT_EQ(schedule.fusions[0].scratch_offsets[0] % 256, 0);
}

// A value that lives long shares no byte with any that live beside it, wherever those stand.
TEST(Schedule, BlocksAliveTogetherDoNotOverlap) {
  Graph graph;
  std::vector<ScheduledFusion> fusions;
  constexpr int kCount = 9;
  graph.tensors.push_back(virtual_bytes("long", 5000));
  for (int i = 1; i <= kCount; ++i) graph.tensors.push_back(virtual_bytes("t" + std::to_string(i), 300 * i));
  for (int i = 1; i <= kCount; ++i) fusions.push_back(using_tensors({0, i, std::max(i - 1, 1)}, {700}));
  const Schedule schedule = make_schedule(graph, std::move(fusions), false);
  for (int i = 1; i <= kCount; ++i) {
    std::vector<std::pair<int64_t, int64_t>> blocks;
    for (const Operand& operand : schedule.fusions[static_cast<size_t>(i - 1)].fusion.operands)
      blocks.emplace_back(schedule.tensor_offsets[static_cast<size_t>(operand.tensor)],
                          graph.tensors[static_cast<size_t>(operand.tensor)].bytes());
    blocks.emplace_back(schedule.fusions[static_cast<size_t>(i - 1)].scratch_offsets[0], 700);
    std::ranges::sort(blocks);
    blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
    for (size_t k = 1; k < blocks.size(); ++k)
      EXPECT_LE(blocks[k - 1].first + blocks[k - 1].second, blocks[k].first);
  }
}

TEST(Schedule, NothingVirtualNeedsNoWorkspace) {
  EXPECT_EQ(make_schedule(Graph{}, {}, false).workspace_bytes, 0);
}

}  // namespace
}  // namespace fusor
