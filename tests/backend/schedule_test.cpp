// Owns the tests of the workspace layout.
#include "backend/schedule.h"

#include <gtest/gtest.h>

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
  const Schedule schedule = make_schedule(graph, std::move(fusions));
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
  const Schedule schedule = make_schedule(graph, std::move(fusions));
  EXPECT_EQ(schedule.workspace_bytes, 512);
  EXPECT_EQ(schedule.fusions[0].scratch_offsets[0], schedule.fusions[1].scratch_offsets[0]);
  EXPECT_EQ(schedule.fusions[0].scratch_offsets[0] % 256, 0);
}

TEST(Schedule, NothingVirtualNeedsNoWorkspace) { EXPECT_EQ(make_schedule(Graph{}, {}).workspace_bytes, 0); }

}  // namespace
}  // namespace fusor
