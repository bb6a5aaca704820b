// Owns the attention_decode engine: softmax between two matmuls of a few queries and many keys, on the tensor
// cores of sm_80 and later. Its knobs; the kernel is codegen/device/tiled/attention/decode.cuh.
#include <memory>
#include <set>
#include <utility>

#include "backend/engines/knobs.h"
#include "backend/engines/list.h"
#include "backend/engines/tiled/attention/decode.h"

namespace fusor {

using namespace tiled_attention;

namespace {

constexpr Notes kNotes{.tensor_cores = true, .late_division = true};

const std::vector<int64_t> kWarps{4, 8}, kRowBlocks{1, 2}, kKeyTiles{16, 32}, kClusters{2, 4, 8, 16};

class PreparedAttentionDecode final : public Prepared {
 public:
  explicit PreparedAttentionDecode(DecodeProblem problem) : problem_(std::move(problem)) {}

  std::vector<Knob> knobs() const override {
    return {{"warps", kWarps},
            {"row_blocks", kRowBlocks},
            {"tile_k", kKeyTiles},
            {"split", all_splits()},
            {"cluster", {0, 1}}};
  }

  std::vector<EngineCandidate> candidates() const override {
    std::vector<EngineCandidate> list;
    for (const int64_t warps : kWarps)
      for (const int64_t row_blocks : kRowBlocks) {
        if (row_blocks > 1 && problem_.rows() <= 16) continue;
        for (const int64_t tile_k : kKeyTiles)
          add_splits({.warps = warps, .row_blocks = row_blocks, .tile_k = tile_k}, list);
      }
    return list;
  }

  Notes notes() const override { return kNotes; }

  Lowered lower(const EngineConfig& config) const override {
    return tiled_attention::lower({problem_, knobs_of<DecodeKnobs>(config)});
  }

 private:
  // Parts of a tile's keys with which each SM has one block, or a few.
  std::set<int64_t> splits(const DecodeSchedule& schedule) const {
    const int64_t sms = problem_.problem.device.sm_count, tiles = schedule.all_tiles();
    const int64_t most = most_splits(schedule.knobs);
    std::set<int64_t> splits{1};
    for (const int64_t blocks : {sms, 2 * sms, 4 * sms})
      splits.insert(std::clamp<int64_t>(blocks / tiles, 1, most));
    return splits;
  }
  int64_t most_splits(const DecodeKnobs& knobs) const {
    return ceil_div(problem_.problem.keys, knobs.warps * knobs.tile_k);
  }
  // The splits of all settings.
  std::vector<int64_t> all_splits() const {
    std::set<int64_t> all(kClusters.begin(), kClusters.end());
    for (const int64_t warps : kWarps)
      for (const int64_t row_blocks : kRowBlocks)
        for (const int64_t tile_k : kKeyTiles)
          all.merge(splits({problem_, {.warps = warps, .row_blocks = row_blocks, .tile_k = tile_k}}));
    return {all.begin(), all.end()};
  }

  void add_splits(DecodeKnobs knobs, std::vector<EngineCandidate>& list) const {
    const DecodeSchedule schedule{problem_, knobs};
    if (!schedule.fits()) return;
    const auto add = [&](int64_t split, int64_t cluster) {
      knobs.split = split;
      knobs.cluster = cluster;
      list.push_back({config_of(attention_decode_engine(), knobs), cost(DecodeSchedule{problem_, knobs})});
    };
    for (const int64_t split : splits(schedule)) add(split, 0);
    if (problem_.problem.device.compute_capability < 90) return;
    for (const int64_t split : kClusters)
      if (split <= most_splits(knobs)) add(split, 1);
  }

  const DecodeProblem problem_;
};

class AttentionDecodeEngine final : public Engine {
 public:
  std::string_view name() const override { return "attention_decode"; }
  int number() const override { return 38; }
  Notes notes() const override { return kNotes; }

  PreparedOr prepare(const Fusion& fusion, const DeviceInfo& device) const override {
    auto problem = decode_problem_of(fusion, device);
    if (auto* refusal = std::get_if<Refusal>(&problem)) return std::move(*refusal);
    auto prepared =
        std::make_unique<const PreparedAttentionDecode>(std::move(std::get<DecodeProblem>(problem)));
    if (!prepared->candidates().empty()) return prepared;
    return attention::refuse_attention(fusion, "shared-tiles", "",
                                       "tiles that shared memory and registers hold", "larger heads");
  }
};

}  // namespace

const Engine& attention_decode_engine() {
  static const AttentionDecodeEngine engine;
  return engine;
}

}  // namespace fusor
