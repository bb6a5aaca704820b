// Owns the workspace layout.
#include "backend/schedule.h"

#include <algorithm>

namespace fusor {

namespace {

constexpr int64_t kAlignment = 256;

// A block of workspace that is alive from one fusion to another.
struct Block {
  int64_t bytes = 0;
  int first = 0, last = 0;  // positions of fusions, inclusive
  int64_t* offset = nullptr;
};

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Largest first, each at the lowest place that no block alive at the same time covers.
int64_t lay_out(std::vector<Block>& blocks) {
  std::ranges::stable_sort(blocks, std::greater{}, &Block::bytes);
  int64_t total = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    std::vector<const Block*> beside;
    for (size_t k = 0; k < i; ++k)
      if (blocks[k].first <= blocks[i].last && blocks[i].first <= blocks[k].last)
        beside.push_back(&blocks[k]);
    std::ranges::sort(beside, {}, [](const Block* block) { return *block->offset; });
    int64_t at = 0;
    for (const Block* other : beside) {
      if (*other->offset >= at + blocks[i].bytes) break;
      at = std::max(at, *other->offset + other->bytes);
    }
    *blocks[i].offset = at;
    total = std::max(total, at + blocks[i].bytes);
  }
  return total;
}

}  // namespace

Schedule make_schedule(const Graph& graph, std::vector<ScheduledFusion> fusions) {
  Schedule schedule;
  schedule.fusions = std::move(fusions);
  schedule.tensor_offsets.assign(graph.tensors.size(), -1);
  std::vector<Block> blocks;
  std::vector<int> block_of(graph.tensors.size(), -1);
  for (size_t i = 0; i < schedule.fusions.size(); ++i) {
    const int position = static_cast<int>(i);
    ScheduledFusion& scheduled = schedule.fusions[i];
    for (const Operand& operand : scheduled.fusion.operands) {
      if (operand.memory != Memory::workspace) continue;
      int& block = block_of[operand.tensor];
      if (block < 0) {
        block = static_cast<int>(blocks.size());
        blocks.push_back({aligned(graph.tensors[operand.tensor].bytes()), position, position,
                          &schedule.tensor_offsets[operand.tensor]});
      }
      blocks[block].last = position;
    }
    scheduled.scratch_offsets.assign(scheduled.lowered.scratch.size(), 0);
    for (size_t k = 0; k < scheduled.lowered.scratch.size(); ++k)
      blocks.push_back(
          {aligned(scheduled.lowered.scratch[k]), position, position, &scheduled.scratch_offsets[k]});
  }
  schedule.workspace_bytes = lay_out(blocks);
  return schedule;
}

}  // namespace fusor
