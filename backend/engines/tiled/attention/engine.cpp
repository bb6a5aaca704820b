// Owns the attention_mma engine: two matmuls on the tensor cores of sm_80 and later, and a softmax or any ops
// on single scores between them, in one kernel that writes no score to memory; operands of any layout, and
// with ops in front. Its knobs; the kernel is codegen/device/tiled/attention/forward.cuh.
#include <memory>
#include <utility>

#include "backend/engines/knobs.h"
#include "backend/engines/list.h"
#include "backend/engines/tiled/attention/problem.h"

namespace fusor {

using namespace tiled_attention;

namespace {

constexpr Notes kNotes{.tensor_cores = true, .late_division = true}, kPlainNotes{.tensor_cores = true};

const std::vector<int64_t> kWarps{4, 8}, kRowBlocks{1, 2}, kKeyTiles{32, 64, 128};

class PreparedAttentionMma final : public Prepared {
 public:
  explicit PreparedAttentionMma(Problem problem) : problem_(std::move(problem)) {}

  std::vector<Knob> knobs() const override {
    return {{"warps", kWarps}, {"row_blocks", kRowBlocks}, {"tile_k", kKeyTiles}};
  }

  std::vector<EngineCandidate> candidates() const override {
    std::vector<EngineCandidate> list;
    for (const int64_t warps : kWarps)
      for (const int64_t row_blocks : kRowBlocks)
        for (const int64_t tile_k : kKeyTiles) {
          const Knobs knobs{warps, row_blocks, tile_k};
          const Schedule schedule{problem_, knobs};
          if (schedule.fits()) list.push_back({config_of(attention_mma_engine(), knobs), cost(schedule)});
        }
    return list;
  }

  Notes notes() const override { return problem_.scores.softens ? kNotes : kPlainNotes; }

  Lowered lower(const EngineConfig& config) const override {
    return tiled_attention::lower({problem_, knobs_of<Knobs>(config)});
  }

 private:
  const Problem problem_;
};

// Threads of all queries would find each row of keys anew.
std::optional<Refusal> refuse_indexed_operands(const Problem& problem) {
  for (const OperandLoad* load : {&problem.q, &problem.k, &problem.v})
    for (const Node& node : load->expr.nodes)
      if (node.access.is_indexed())
        return attention::refuse_attention(
            problem.fusion, "loads-in-place", problem.fusion.name_of(node.access.operand),
            "operands that are read where they lie", "rows taken through an index", "gather them beforehand");
  return std::nullopt;
}

class AttentionMmaEngine final : public Engine {
 public:
  std::string_view name() const override { return "attention_mma"; }
  int number() const override { return 37; }
  Notes notes() const override { return kNotes; }

  PreparedOr prepare(const Fusion& fusion, const DeviceInfo& device) const override {
    auto problem = problem_of(fusion, device);
    if (auto* refusal = std::get_if<Refusal>(&problem)) return std::move(*refusal);
    if (auto refusal = refuse_indexed_operands(std::get<Problem>(problem))) return std::move(*refusal);
    auto prepared = std::make_unique<const PreparedAttentionMma>(std::move(std::get<Problem>(problem)));
    if (!prepared->candidates().empty()) return prepared;
    return attention::refuse_attention(fusion, "shared-tiles", "",
                                       "tiles that shared memory and registers hold", "larger heads");
  }
};

}  // namespace

const Engine& attention_mma_engine() {
  static const AttentionMmaEngine engine;
  return engine;
}

}  // namespace fusor
