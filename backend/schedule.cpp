// Owns the workspace layout.
#include "backend/schedule.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "backend/side_by_side.h"

namespace fusor {

namespace {

constexpr int64_t kBufferAlignment = 256;

// A block of workspace that is alive from one fusion to another.
struct Block {
  int64_t bytes = 0;
  int first = 0, last = 0;  // positions of fusions, inclusive
  int64_t* offset = nullptr;
};

int64_t aligned(int64_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

// Which blocks are alive beside others: a block stands in the smallest node of a binary tree over positions
// that covers its whole life, so what meets it stands above or below that node.
class LifeTree {
 public:
  explicit LifeTree(int positions)
      : leaves_(static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::max(positions, 1))))),
        nodes_(2 * static_cast<size_t>(leaves_)) {}

  void add(const Block& block) {
    size_t node = node_of(block);
    nodes_[node].blocks.push_back(&block);
    for (; node > 0; node /= 2) nodes_[node].any = true;
  }

  std::vector<const Block*> beside(const Block& block) const {
    std::vector<const Block*> found;
    const size_t node = node_of(block);
    for (size_t above = node / 2; above > 0; above /= 2) collect(nodes_[above], block, found);
    std::vector<size_t> below = {node};
    while (!below.empty()) {
      const size_t next = below.back();
      below.pop_back();
      if (next >= nodes_.size() || !nodes_[next].any) continue;
      collect(nodes_[next], block, found);
      below.push_back(2 * next);
      below.push_back(2 * next + 1);
    }
    return found;
  }

 private:
  struct Place {
    std::vector<const Block*> blocks;
    bool any = false;  // here or below
  };

  size_t node_of(const Block& block) const {
    const auto leaves = static_cast<size_t>(leaves_);
    size_t first = leaves + static_cast<size_t>(block.first), last = leaves + static_cast<size_t>(block.last);
    while (first != last) {
      first /= 2;
      last /= 2;
    }
    return first;
  }

  static void collect(const Place& place, const Block& block, std::vector<const Block*>& found) {
    for (const Block* other : place.blocks)
      if (other->first <= block.last && block.first <= other->last) found.push_back(other);
  }

  int leaves_;
  std::vector<Place> nodes_;
};

// Largest first, each at the lowest place that no block alive at the same time covers.
int64_t lay_out(std::vector<Block>& blocks, int positions) {
  std::ranges::stable_sort(blocks, std::greater{}, &Block::bytes);
  LifeTree placed(positions);
  int64_t total = 0;
  for (Block& block : blocks) {
    std::vector<const Block*> beside = placed.beside(block);
    std::ranges::sort(beside, {}, [](const Block* other) { return *other->offset; });
    int64_t at = 0;
    for (const Block* other : beside) {
      if (*other->offset >= at + block.bytes) break;
      at = std::max(at, *other->offset + other->bytes);
    }
    *block.offset = at;
    total = std::max(total, at + block.bytes);
    placed.add(block);
  }
  return total;
}

// Small blocks live for whole stages, whose fusions would else have to wait for each other.
void keep_for_stages(std::vector<Block>& blocks, std::span<const WorkspaceUse> uses) {
  std::vector<const Fusion*> fusions;
  for (const WorkspaceUse& use : uses) fusions.push_back(use.fusion);
  const std::vector<int> first = stages_of(fusions);
  std::vector<int> last(first.size());
  for (size_t i = first.size(); i-- > 0;)
    last[i] = i + 1 < first.size() && first[i + 1] == first[i] ? last[i + 1] : static_cast<int>(i);
  for (Block& block : blocks) {
    if (block.bytes > kMostBytesBeside) continue;
    block.first = first[static_cast<size_t>(block.first)];
    block.last = last[static_cast<size_t>(block.last)];
  }
}

}  // namespace

int64_t aligned_workspace(int64_t bytes) { return aligned(bytes); }

WorkspaceLayout lay_out_workspace(const Graph& graph, std::span<const WorkspaceUse> uses, bool overlap) {
  WorkspaceLayout layout;
  layout.tensor_offsets.assign(graph.tensors.size(), -1);
  layout.scratch_offsets.resize(uses.size());
  std::vector<Block> blocks;
  std::vector<int> block_of(graph.tensors.size(), -1);
  for (size_t i = 0; i < uses.size(); ++i) {
    const int position = static_cast<int>(i);
    for (const Operand& operand : uses[i].fusion->operands) {
      if (operand.memory != Memory::workspace) continue;
      int& block = block_of[operand.tensor];
      if (block < 0) {
        block = static_cast<int>(blocks.size());
        blocks.push_back({aligned(graph.tensors[operand.tensor].bytes()), position, position,
                          &layout.tensor_offsets[operand.tensor]});
      }
      blocks[block].last = position;
    }
    std::vector<int64_t>& offsets = layout.scratch_offsets[i];
    offsets.assign(uses[i].scratch.size(), 0);
    for (size_t k = 0; k < offsets.size(); ++k)
      blocks.push_back({aligned(uses[i].scratch[k]), position, position, &offsets[k]});
  }
  if (overlap) keep_for_stages(blocks, uses);
  layout.bytes = lay_out(blocks, static_cast<int>(uses.size()));
  return layout;
}

Schedule make_schedule(const Graph& graph, std::vector<ScheduledFusion> fusions, bool overlap) {
  std::vector<WorkspaceUse> uses;
  uses.reserve(fusions.size());
  for (const ScheduledFusion& scheduled : fusions)
    uses.push_back({&scheduled.fusion, scheduled.lowered.scratch});
  WorkspaceLayout layout = lay_out_workspace(graph, uses, overlap);
  for (size_t i = 0; i < fusions.size(); ++i)
    fusions[i].scratch_offsets = std::move(layout.scratch_offsets[i]);
  return {std::move(fusions), std::move(layout.tensor_offsets), layout.bytes};
}

}  // namespace fusor
