// Owns the wgmma engine: matmul and convolution of fp16, bf16, TF32, fp8 and int8 on Hopper's tensor cores
// (sm_90a). Its knobs, candidates and steps; its rules are in sm90/wgmma/rules.h, its tiles in
// sm90/wgmma/tiling.h, one candidate in sm90/wgmma/lowering.h; the kernels are
// codegen/device/sm90/wgmma/contraction.cuh and sm90/wgmma/window.cuh.
#include <algorithm>
#include <cmath>
#include <utility>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/contraction/product.h"
#include "backend/engines/contraction/residue_classes.h"
#include "backend/engines/engine.h"
#include "backend/engines/list.h"
#include "backend/engines/rules.h"
#include "backend/engines/sm90/wgmma/lowering.h"
#include "backend/engines/sm90/wgmma/resident_window.h"
#include "backend/engines/sm90/wgmma/rules.h"
#include "backend/engines/sm90/wgmma/tiling.h"
#include "core/fail.h"

namespace fusor {

namespace wgmma {
namespace {

class WgmmaEngine final : public Engine {
 public:
  std::string_view name() const override { return "wgmma"; }
  int number() const override { return 30; }
  int revision() const override { return 2; }
  Notes notes() const override { return {.tensor_cores = true}; }
  Notes notes_on(const Fusion& fusion) const override {
    Notes notes = this->notes();
    notes.tf32 = operand_type(fusion) == DataType::f32;
    notes.short_sums = is_fp8(operand_type(fusion));
    return notes;
  }

  Support supports(const Fusion& fusion, const DeviceInfo& device) const override {
    if (auto refusal = refuse_other_than_hopper(device)) return Support::no(std::move(*refusal));
    if (fusion.anchors.empty())
      return Support::no({"contraction-anchor", fusion.op_names.front(), "",
                          "a matmul or a convolution, or two siblings", "none", "", -1});
    if (auto refusal = refuse_phases(fusion)) return Support::no(std::move(*refusal));
    if (auto refusal = refuse(Carried(fusion).fusion())) return Support::no(std::move(*refusal));
    return Support::yes();
  }

  std::vector<Knob> knobs(const Fusion& fusion, const DeviceInfo& /*device*/) const override {
    const Carried carried(fusion);
    const Contraction view = carried.view();
    const std::optional<bool> from_registers = operand_from_registers(carried.fusion(), view);
    const bool pair = form_of(fusion) == Form::siblings;
    const int64_t steps =
        Tiling::can_split(view) ? Tiling::steps_of(view, box_line(operand_type(fusion))) : 1;
    std::vector<int64_t> split{1}, swap{0, 1}, tile_n{32, 64, 96, 128, 160, 192, 224, 256};
    if (!pair) tile_n.insert(tile_n.begin(), 16);
    if (pair) swap = {0};
    if (from_registers) swap = {*from_registers ? 1 : 0};
    std::vector<int64_t> loader{0};
    if (needs_threads(carried.fusion(), view).any())
      loader = {1};
    else if (threads_take_both(carried.fusion(), view))
      loader = {0, 1};
    for (int64_t next = 2; next <= std::min<int64_t>(steps, 132); ++next) split.push_back(next);
    return {{"tile_m", {64, 128, 256}},
            {"tile_n", tile_n},
            {"swap", swap},
            {"ping_pong", {0, 1}},
            {"cluster", {1, 2}},
            {"band", {1, 2, 4, 8, 16}},
            {"split", split},
            {"rows", Tiling::can_join_rows(view, operand_type(fusion)) ? std::vector<int64_t>{1, 2, 3, 4}
                                                                       : std::vector<int64_t>{1}},
            {"loader", loader},
            {"window",
             window_of(view, operand_type(fusion)) ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0}}};
  }

  std::vector<EngineCandidate> candidates(const Fusion& given, const DeviceInfo& device) const override {
    const Carried carried(given);
    const Fusion& fusion = carried.fusion();
    std::vector<EngineCandidate> list;
    const Contraction view = carried.view();
    const bool by_threads = needs_threads(fusion, view).any();
    const auto add = [&](int64_t swap, int64_t ping_pong, int64_t tile_m, int64_t tile_n, int64_t cluster,
                         int64_t split, int64_t rows = 1) {
      EngineConfig config{std::string(name()), revision(), {}};
      config.set("tile_m", tile_m);
      config.set("tile_n", tile_n);
      config.set("swap", swap);
      config.set("ping_pong", ping_pong);
      config.set("cluster", cluster);
      config.set("band", band_for(tile_m, tile_n, device));
      config.set("split", split);
      if (rows > 1) config.set("rows", rows);
      if (by_threads) config.set("loader", 1);
      const Lowering lowering(fusion, config, device);
      const Tiling& tiling = lowering.tiling;
      if (tiling.plane_rows != rows || !lowering.fits()) return;
      if (tiling.cluster != cluster || tiling.tile_m != tile_m || tiling.tile_n != tile_n) return;
      if (tiling.swapped != (swap != 0)) return;
      Work work = lowering.work();
      list.push_back({std::move(config), work});
    };
    for (const int64_t swap : {0, 1})
      for (const auto& [ping_pong, tile_m] : {std::pair{0, 128}, {1, 128}, {1, 64}, {0, 256}})
        for (const int64_t tile_n : {256, 192, 160, 128, 96, 64, 32, 16}) {
          if (tile_n == 160 && tile_m != 128) continue;
          EngineConfig config{std::string(name()), revision(), {}};
          config.set("swap", swap);
          config.set("ping_pong", ping_pong);
          config.set("tile_m", tile_m);
          config.set("tile_n", tile_n);
          const Tiling tiling(fusion, view, config);
          if (tiling.swapped != (swap != 0)) continue;
          if (!fits(tiling)) continue;
          const int64_t split = Tiling::can_split(view) ? split_for(tiling, device) : 1;
          if (split == 1 || tiling.tiles() * 2 > device.sm_count) add(swap, ping_pong, tile_m, tile_n, 1, 1);
          // One consumer of planes keeps the tensor cores as busy as L2 allows.
          const bool alone = view.planes && tile_m == kPartRows;
          if (split > 1 && (ping_pong == 0 || alone)) add(swap, ping_pong, tile_m, tile_n, 1, split);
          if (split == 1 && tile_n >= 128 && tiling.tiles_m() > 1) add(swap, ping_pong, tile_m, tile_n, 2, 1);
        }
    if (window_of(view, operand_type(fusion)))
      for (const int64_t tile_n : {256, 192, 128}) add_window(list, fusion, device, tile_n);
    if (Tiling::can_join_rows(view, operand_type(fusion)))
      for (const auto& [ping_pong, tile_m] : {std::pair{1, 64}, {0, 128}, {0, 256}})
        for (const int64_t rows : {2, 3, 4}) {
          EngineConfig config{std::string(name()), revision(), {}};
          config.set("tile_m", tile_m);
          config.set("ping_pong", ping_pong);
          config.set("rows", rows);
          const Tiling tiling(fusion, view, config);
          if (rows > view.planes->rows || !fits(tiling)) continue;
          add(0, ping_pong, tile_m, tiling.tile_n, 1, split_for(tiling, device), rows);
        }
    // Few adjacent columns of a pair fill no tile that its boxes allow; few rows of a reduction, no two
    // pieces.
    if (list.empty()) add(operand_from_registers(fusion, view).value_or(false) ? 1 : 0, 0, 128, 128, 1, 1);
    return list;
  }

  Lowered lower(const Fusion& fusion, const EngineConfig& config, const DeviceInfo& device) const override {
    const Carried carried(fusion);
    const Lowering lowering(carried.fusion(), config, device);
    Lowered lowered;
    lowered.steps.emplace_back(lowering.product());
    if (lowering.is_split()) {
      lowered.steps.emplace_back(lowering.sum_of_parts());
      lowered.scratch.push_back(lowering.partial_bytes());
    }
    if (lowering.reduction) {
      const PartialResults partial = lowering.partial_results();
      lowered.steps.emplace_back(
          partial.combination(lowering.fusion, static_cast<int>(lowering.index_bits), device.target()));
      lowered.scratch.push_back(partial.bytes(lowering.fusion));
    }
    lowered.guards = lowering.guards();
    return lowered;
  }

 private:
  void add_window(std::vector<EngineCandidate>& list, const Fusion& fusion, const DeviceInfo& device,
                  int64_t tile_n) const {
    EngineConfig config{std::string(name()), revision(), {}};
    config.set("tile_n", tile_n);
    config.set("window", 1);
    const Lowering lowering(fusion, config, device);
    if (!lowering.fits()) return;
    Work work = lowering.work();
    list.push_back({std::move(config), work});
  }

  // Tiles that the registers and the boxes hold, and that are not mostly padding.
  static bool fits(const Tiling& tiling) {
    if (tiling.tile_m == 256 && tiling.rows <= 128) return false;
    const int64_t columns = tiling.columns_of_tile();
    if (columns >= 2 * std::max<int64_t>(tiling.columns, 16) && columns > 16) return false;
    // ptxas mixes the way out of one piece into the products, and serialises those.
    if ((tiling.classes > 0 || tiling.reduces) && tiling.pieces() == 1) return false;
    return true;
  }

  // Tile rows of a band: what is multiplied at a time is about as wide as it is high, and reads the least.
  static int64_t band_for(int64_t tile_m, int64_t tile_n, const DeviceInfo& device) {
    const auto tiles = static_cast<double>(device.sm_count * tile_n) / static_cast<double>(tile_m);
    return int64_t{1} << std::clamp<int64_t>(std::lround(std::log2(tiles) / 2), 0, 4);
  }

  // Parts that fill the device where whole tiles do not, each of four steps or more.
  static int64_t split_for(const Tiling& tiling, const DeviceInfo& device) {
    const int64_t slots = device.sm_count * tiling.blocks_per_sm();
    return std::clamp<int64_t>(std::min(slots / tiling.tiles(), tiling.steps / 4), 1, 132);
  }
};

}  // namespace
}  // namespace wgmma

const Engine& wgmma_engine() {
  static const wgmma::WgmmaEngine engine;
  return engine;
}

}  // namespace fusor
