// Owns the wgmma engine: matmul and convolution of fp16, bf16, TF32, fp8 and int8 on Hopper's tensor cores
// (sm_90a). Its knobs, candidates and steps; its rules are in sm90/wgmma/rules.h, its tiles in
// sm90/wgmma/tiling.h, one candidate in sm90/wgmma/lowering.h; the kernels are
// codegen/device/sm90/wgmma/contraction.cuh and sm90/wgmma/window.cuh.
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <memory>
#include <utility>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/contraction/product.h"
#include "backend/engines/contraction/residue_classes.h"
#include "backend/engines/knobs.h"
#include "backend/engines/list.h"
#include "backend/engines/rules.h"
#include "backend/engines/sm90/wgmma/lowering.h"
#include "backend/engines/sm90/wgmma/prepare.h"
#include "backend/engines/sm90/wgmma/resident_window.h"
#include "backend/engines/sm90/wgmma/rules.h"
#include "backend/engines/sm90/wgmma/tiling.h"
#include "core/fail.h"
#include "heuristics/time_model.h"

namespace fusor {

namespace wgmma {
namespace {

// Tiles that the registers and the boxes hold, and that are not mostly padding.
bool fits(const Tiling& tiling) {
  if (tiling.tile_m == 256 && tiling.rows <= 128) return false;
  const int64_t columns = tiling.columns_of_tile();
  if (columns >= 2 * std::max<int64_t>(tiling.columns, 16) && columns > 16) return false;
  // ptxas mixes the way out of one piece into the products, and serialises those.
  if ((tiling.classes > 0 || tiling.reduces) && tiling.pieces() == 1) return false;
  return true;
}

// Tile rows of a band: what is multiplied at a time is about as wide as it is high, and reads the least.
int64_t band_for(int64_t tile_m, int64_t tile_n, const DeviceInfo& device) {
  const auto tiles = static_cast<double>(device.sm_count * tile_n) / static_cast<double>(tile_m);
  return int64_t{1} << std::clamp<int64_t>(std::lround(std::log2(tiles) / 2), 0, 4);
}

// Parts that fill the device where whole tiles do not, each of four steps or more.
int64_t split_for(const Tiling& tiling, const DeviceInfo& device) {
  const int64_t slots = device.sm_count * tiling.blocks_per_sm();
  return std::clamp<int64_t>(std::min(slots / tiling.tiles(), tiling.steps / 4), 1, 132);
}

// Whole tiles of so few steps take hardly longer than the launch that would add up their parts.
constexpr int64_t kFewSteps = 32;

// Parts of a tile whose sum takes hardly longer than that of half as many.
constexpr int64_t kFewParts = 6;

// Tiles that are worth a cluster of several; columns of a tile that take as long as starting and ending a
// round. Settings with such tiles that are offered.
constexpr int64_t kLeastShared = 32, kWidthOfRound = 16;
constexpr size_t kMostShared = 40;

// Steps of a tile of an odd width: of one consumer at most, of a convolution at least, of any at least.
constexpr int64_t kMostStepsAlone = 56, kFewestStepsEven = 16, kFewestSteps = 5;

constexpr Notes kNotes{.tensor_cores = true};

class PreparedWgmma final : public Prepared {
 public:
  PreparedWgmma(MatmulForm form, const DeviceInfo& device, bool in_parts)
      : problem_(std::move(form), device, in_parts) {}

  std::vector<Knob> knobs() const override {
    const Contraction& view = problem_.view;
    const bool pair = form_of(problem_.fusion) == Form::siblings;
    const int64_t steps = problem_.can_split ? Tiling::steps_of(view, box_line(problem_.type)) : 1;
    std::vector<int64_t> split{1}, swap{0, 1}, tile_n;
    for (int64_t columns = 32; columns <= 256; columns += 16) tile_n.push_back(columns);
    if (!pair) tile_n.insert(tile_n.begin(), 16);
    if (pair) swap = {0};
    if (problem_.from_registers) swap = {*problem_.from_registers ? 1 : 0};
    std::vector<int64_t> loader{0};
    if (problem_.needed.any())
      loader = {1};
    else if (problem_.threads_take_both)
      loader = {0, 1};
    for (int64_t next = 2; next <= std::min<int64_t>(steps, 132); ++next) split.push_back(next);
    return {
        {"tile_m", {64, 128, 192, 256}},
        {"tile_n", tile_n},
        {"swap", swap},
        {"ping_pong", {0, 1}},
        {"cluster", {1, 2, 4}},
        {"band", {1, 2, 4, 8, 16}},
        {"split", split},
        {"rows", problem_.can_join_rows ? std::vector<int64_t>{1, 2, 3, 4} : std::vector<int64_t>{1}},
        {"loader", loader},
        {"window", problem_.window ? std::vector<int64_t>{0, 1, kPositionsAsRows} : std::vector<int64_t>{0}},
        {"gather", problem_.can_gather ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0}},
        {"cluster_n", {1, 2, 4}},
        {"rehearse", {0, 1}}};
  }

  std::vector<EngineCandidate> candidates() const override {
    const DeviceInfo& device = problem_.device;
    std::vector<EngineCandidate> list;
    for (const int64_t swap : {0, 1})
      for (const auto& [ping_pong, tile_m] : {std::pair{0, 128}, {1, 128}, {1, 64}, {0, 256}})
        for (const int64_t tile_n : {256, 192, 160, 128, 96, 64, 32, 16}) {
          if (tile_n == 160 && tile_m != 128) continue;
          const Knobs knobs{.tile_m = tile_m, .tile_n = tile_n, .swap = swap, .ping_pong = ping_pong};
          const Tiling tiling(problem_, knobs);
          if (tiling.swapped != (swap != 0) || !wgmma::fits(tiling)) continue;
          const int64_t split = problem_.can_split ? split_for(tiling, device) : 1;
          const bool nearly_full = split == 1 || tiling.tiles() * 2 > device.sm_count;
          if (nearly_full) add(list, knobs, 1, 1);
          // One consumer of a wgrad keeps the tensor cores as busy as L2 allows. Half as many parts take half
          // as long to add up.
          const bool alone = problem_.wgrad && tile_m == kPartRows;
          if (split > 1 && (ping_pong == 0 || alone)) {
            add(list, knobs, 1, split);
            if (alone && !problem_.view.planes && split >= kFewParts) add(list, knobs, 1, (split + 1) / 2);
            if (tiling.tiles_m() > 1 && tile_n >= 128 && !alone) add(list, knobs, 2, split);
          }
          if (!nearly_full && tiling.steps <= kFewSteps) add(list, knobs, 1, 1);
          if (split == 1 && tile_n >= 128 && tiling.tiles_m() > 1) add(list, knobs, 2, 1);
        }
    if (problem_.window)
      for (const int64_t tile_n : {256, 192, 128}) add_window(list, tile_n);
    // Boxes of half a line pay where products are short: 3x3 of 64 channels took 1.14 times as long.
    constexpr int64_t kShortLine = 2;
    if (problem_.window && Tiling::slices_of(problem_.view) <= kShortLine)
      for (const int64_t tile_n : {224, 160}) add_window(list, tile_n);
    // Three quarters of a tile of 64 filters, and more, are as good as all.
    constexpr int64_t kFewFilters = 32;
    if (problem_.window && problem_.view.n <= kFewFilters)
      for (const int64_t tile_m : {256, 128}) add_window_of_few(list, tile_m);
    if (problem_.can_join_rows) add_joined_rows(list);
    if (problem_.can_gather) add_gathered(list);
    add_even(list);
    add_shared(list);
    // Few adjacent columns of a pair fill no tile that its boxes allow; few rows of a reduction, no two
    // pieces.
    const int64_t swap = problem_.from_registers.value_or(false) ? 1 : 0;
    if (list.empty()) add(list, {.tile_m = 128, .tile_n = 128, .swap = swap, .ping_pong = 0}, 1, 1);
    return list;
  }

  Notes notes() const override {
    Notes notes = kNotes;
    notes.tf32 = problem_.type == DataType::f32;
    notes.short_sums = is_fp8(problem_.type);
    return notes;
  }

  Lowered lower(const EngineConfig& config) const override {
    return wgmma::lower(Schedule(problem_, knobs_of<Knobs>(config)));
  }

 private:
  // Where the schedule leaves the knobs as they are asked for.
  void add(std::vector<EngineCandidate>& list, Knobs knobs, int64_t cluster, int64_t split) const {
    knobs.cluster = cluster;
    knobs.band = band_for(*knobs.tile_m, *knobs.tile_n, problem_.device);
    knobs.split = split;
    if (problem_.needed.any()) knobs.loader = 1;
    Schedule schedule(problem_, knobs);
    Tiling& tiling = schedule.tiling;
    if (tiling.plane_rows != knobs.rows.value_or(1) || !schedule.fits()) return;
    if (tiling.cluster != cluster || tiling.tile_m != *knobs.tile_m || tiling.tile_n != *knobs.tile_n) return;
    if (tiling.swapped != (*knobs.swap != 0) || tiling.cluster_n != knobs.cluster_n.value_or(1)) return;
    // Measured where lines straddle alone.
    const bool by_steps = schedule.b[0].across_adjacent && tiling.cluster > 1 &&
                          tiling.shares_steps(tiling.columns_of_tile(), tiling.cluster);
    if (by_steps && !schedule.is_straddling_matmul()) return;
    list.push_back({config_of(wgmma_engine(), knobs), cost(schedule)});
    const bool alone = tiling.cluster_blocks() == 1;
    if (!alone || tiling.tiles() > schedule.slots() || !schedule.can_rehearse()) return;
    tiling.rehearses = true;
    knobs.rehearse = 1;
    list.push_back({config_of(wgmma_engine(), knobs), cost(schedule)});
  }

  void add_window(std::vector<EngineCandidate>& list, int64_t tile_n) const {
    add_window(list, Knobs{.tile_n = tile_n, .window = 1});
  }
  void add_window_of_few(std::vector<EngineCandidate>& list, int64_t tile_m) const {
    const int64_t tile_n = ceil_div(problem_.view.n, kLeastPiece) * kLeastPiece;
    add_window(list, Knobs{.tile_m = tile_m, .tile_n = tile_n, .window = kPositionsAsRows});
  }
  void add_window(std::vector<EngineCandidate>& list, const Knobs& knobs) const {
    const Schedule schedule(problem_, knobs);
    if (schedule.fits()) list.push_back({config_of(wgmma_engine(), knobs), cost(schedule)});
  }

  // Tiles that leave half of the device idle, their steps shared among as many blocks as there is room for.
  void add_gathered(std::vector<EngineCandidate>& list) const {
    for (const int64_t swap : {0, 1})
      for (const auto& [ping_pong, tile_m] : {std::pair{0, 128}, {1, 64}})
        for (const int64_t tile_n : {256, 128, 64, 32, 16})
          for (const int64_t blocks : {2, 3, 4, 6, 8}) {
            Knobs knobs{
                .tile_m = tile_m, .tile_n = tile_n, .swap = swap, .ping_pong = ping_pong, .gather = 1};
            knobs.split = blocks;
            const Tiling tiling(problem_, knobs);
            if (!tiling.gathered || tiling.split != blocks || !wgmma::fits(tiling)) continue;
            const int64_t reached = sms_of_clusters(problem_.device, blocks) / blocks * blocks;
            if (tiling.tiles() * blocks <= reached * tiling.blocks_per_sm()) add(list, knobs, 1, blocks);
          }
  }

  // Tiles of a matmul whose lines straddle those of L2, which then has less to do where tensor cores wait for
  // it: tiles of 192 rows and of every width, alone and in clusters that fetch operands once for up to eight
  // blocks. Of all, the few that cost least. Convolutions took 0.80 to 1.02 of the speed.
  void add_shared(std::vector<EngineCandidate>& list) const {
    constexpr std::pair<int64_t, int64_t> kClusters[] = {{1, 1}, {1, 2}, {2, 1}, {2, 2},
                                                         {4, 1}, {1, 4}, {4, 2}, {2, 4}};
    std::vector<EngineCandidate> more;
    for (const int64_t swap : {0, 1})
      for (const auto& [ping_pong, tile_m] : {std::pair{0, 192}, {0, 128}, {0, 256}, {1, 128}, {1, 64}})
        for (int64_t tile_n = 32; tile_n <= 256; tile_n += 16)
          for (const auto& [below, beside] : kClusters) {
            Knobs knobs{.tile_m = tile_m, .tile_n = tile_n, .swap = swap, .ping_pong = ping_pong};
            if (beside > 1) knobs.cluster_n = beside;
            add_cluster(more, knobs, below);
          }
    const auto is_known = [&](const EngineCandidate& one) {
      return std::ranges::any_of(list,
                                 [&](const EngineCandidate& other) { return other.config == one.config; });
    };
    std::erase_if(more, is_known);
    std::ranges::stable_sort(
        more, {}, [&](const EngineCandidate& one) { return estimate_seconds(one.work, problem_.device); });
    if (more.size() > kMostShared) more.resize(kMostShared);
    std::ranges::move(more, std::back_inserter(list));
  }
  void add_cluster(std::vector<EngineCandidate>& list, const Knobs& knobs, int64_t cluster) const {
    const Tiling tiling(problem_, knobs);
    const bool wide = tiling.tiles_m() >= cluster && ceil_div(tiling.columns, tiling.columns_of_tile()) > 1;
    const bool matmul = !problem_.wgrad && !problem_.view.is_convolution();
    if (!matmul || !wide || !wgmma::fits(tiling) || tiling.tiles() < kLeastShared) return;
    const Schedule schedule(problem_, knobs);
    // Longer ones only of the kinds that were measured.
    const int64_t blocks = cluster * tiling.cluster_n;
    const bool known_kind =
        tiling.consumers() == kConsumers && tiling.cluster_n <= 2 && blocks > 1 && blocks <= 4;
    // Where lines lie in one line of L2 each, narrow tiles of three consumers took 1.12 to 1.28 of the time
    // of others in several rounds, wide ones of one consumer 1.16.
    constexpr int64_t kNarrowOfThree = 96, kWideOfOne = 128;
    const bool given = problem_.form.is_given(), straddles = schedule.straddles_lines();
    const bool narrow = tiling.consumers() > kConsumers && tiling.tile_n < kNarrowOfThree;
    const bool wide_alone = tiling.ping_pong && tiling.tile_m == kPartRows && tiling.tile_n > kWideOfOne;
    if (!straddles && (narrow || wide_alone)) return;
    if (schedule.is_straddling_matmul() || (given && straddles && known_kind) || schedule.is_short_matmul())
      add(list, knobs, cluster, 1);
  }

  // Adds the width between the usual ones that makes the rounds of tiles shortest. Tiles of
  // one consumer are for one short round. Convolutions whose lines do not straddle those of L2 took 0.79
  // to 1.07 of their time in 14 cases, but for one.
  void add_even(std::vector<EngineCandidate>& list) const {
    add_even(list, {.tile_m = 128, .ping_pong = 0}, {240, 224, 208, 176, 144, 112});
    add_even(list, {.tile_m = 256, .ping_pong = 0}, {176, 160, 144, 112});
    add_even(list, {.tile_m = 64, .ping_pong = 1}, {176, 144});
  }
  void add_even(std::vector<EngineCandidate>& list, Knobs knobs,
                std::initializer_list<int64_t> widths) const {
    for (const int64_t swap : {0, 1}) {
      knobs.swap = swap;
      const auto rounds = [&](const Tiling& tiling) {
        return ceil_div(tiling.tiles(), int64_t{problem_.device.sm_count});
      };
      const auto width_of_rounds = [&](int64_t tile_n) {
        knobs.tile_n = tile_n;
        const Tiling tiling(problem_, knobs);
        return rounds(tiling) * (tiling.tile_n + kWidthOfRound);
      };
      const int64_t best = *std::ranges::min_element(widths, {}, width_of_rounds);
      knobs.tile_n = best;
      const Tiling tiling(problem_, knobs);
      if (tiling.swapped != (swap != 0) || !wgmma::fits(tiling) || tiling.tiles() < kLeastShared) continue;
      if (tiling.steps < kFewestSteps) continue;
      const bool matmul = problem_.form.is_given() && !problem_.view.is_convolution();
      if (tiling.ping_pong
              ? rounds(tiling) > 1 || tiling.steps > kMostStepsAlone
              : !matmul && (tiling.steps < kFewestStepsEven || !Schedule(problem_, knobs).straddles_lines()))
        continue;
      for (const int64_t cluster : {1, 2}) add(list, knobs, cluster, 1);
    }
  }

  void add_joined_rows(std::vector<EngineCandidate>& list) const {
    for (const auto& [ping_pong, tile_m] : {std::pair{1, 64}, {0, 128}, {0, 256}})
      for (const int64_t rows : {2, 3, 4}) {
        Knobs knobs{.tile_m = tile_m, .swap = 0, .ping_pong = ping_pong, .rows = rows};
        const Tiling tiling(problem_, knobs);
        if (rows > problem_.view.planes->rows || !wgmma::fits(tiling)) continue;
        knobs.tile_n = tiling.tile_n;
        add(list, knobs, 1, split_for(tiling, problem_.device));
      }
  }

  const Problem problem_;
};

class WgmmaEngine final : public Engine {
 public:
  std::string_view name() const override { return "wgmma"; }
  int number() const override { return 30; }
  int revision() const override { return 2; }
  Notes notes() const override { return kNotes; }
  bool takes_composite(const Attributes& attributes) const override {
    return std::holds_alternative<MoeGroupedMatmul>(attributes);
  }

  PreparedOr prepare(const Fusion& fusion, const DeviceInfo& device) const override {
    return wgmma::prepare(fusion, device, false);
  }
};

}  // namespace

namespace {

// TMA brings the operands, and threads store lines of the result.
std::optional<Refusal> refuse_experts(const Fusion& matmul) {
  if (auto refusal = refuse_epilogue_reductions(matmul)) return refusal;
  if (auto refusal = refuse(matmul)) return refusal;
  const Contraction view = MatmulForm::view_of(matmul);
  for (const bool second : {false, true})
    if (auto refusal = refuse_copies(matmul, view, second)) return refusal;
  if (byte_size(operand_type(matmul)) != 2)
    return refusal_at_anchor(matmul, "half-operands", "tokens and weights of fp16 or bf16",
                             std::string(to_string(operand_type(matmul))));
  return std::nullopt;
}

PreparedOr prepare_experts(const Fusion& fusion, const DeviceInfo& device) {
  auto answer = matmul_of_experts(fusion);
  if (auto* const refusal = std::get_if<Refusal>(&answer)) return std::move(*refusal);
  MatmulForm form(fusion, std::move(std::get<MatmulOfExperts>(answer)));
  if (auto refusal = refuse_experts(form.fusion())) return std::move(*refusal);
  return std::make_unique<const PreparedWgmma>(std::move(form), device, false);
}

}  // namespace

PreparedOr prepare(const Fusion& fusion, const DeviceInfo& device, bool in_parts) {
  if (auto refusal = refuse_other_than_hopper(device)) return std::move(*refusal);
  if (fusion.anchors.empty())
    return Refusal{"contraction-anchor",
                   fusion.op_names.front(),
                   "",
                   "a matmul or a convolution, or two siblings",
                   "none",
                   "",
                   -1};
  if (auto refusal = refuse_phases(fusion)) return std::move(*refusal);
  if (has_experts(fusion)) return prepare_experts(fusion, device);
  MatmulForm form(fusion);
  if (auto refusal = refuse(form.fusion())) return std::move(*refusal);
  return std::make_unique<const PreparedWgmma>(std::move(form), device, in_parts);
}

}  // namespace wgmma

const Engine& wgmma_engine() {
  static const wgmma::WgmmaEngine engine;
  return engine;
}

}  // namespace fusor
