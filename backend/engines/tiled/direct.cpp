// Owns the direct engine: matmul and convolutions of any layout and type on the CUDA cores. Its rules, knobs
// and costs; the kernel is codegen/device/tiled/direct.cuh.
#include <algorithm>

#include "backend/engines/list.h"
#include "backend/engines/tiled/part.h"

namespace fusor {

namespace {

constexpr int64_t kTileK = 16;       // of codegen/device/tiled/micro_tile.cuh
constexpr int64_t kTurnsOfPart = 8;  // of the main loop, in a part of a split at least
constexpr int64_t kWidths[] = {4};

TiledContraction tiled(const Fusion& fusion, const EngineConfig& config, const DeviceInfo& device) {
  const TileShape tile{config.knob("tile_m", 64), config.knob("tile_n", 64), kTileK};
  return {fusion, device, tile, config.knob("split", 1), {kWidths, kWidths, kWidths}};
}

// --- Costs ---

// Of the multiply-adds of the inner loop against the peak. On an H200, 128 x 64 tiles reach 0.40 in a matmul
// of 4096 and 0.42 in a 3x3 convolution of 64 channels (bench/RESULTS.md); smaller tiles are scaled by what
// they load for each product.
double efficiency(const TiledContraction& product) {
  const int64_t elements = product.tiling.tile.elements();
  const double tile = elements >= 128 * 64  ? 0.41
                      : elements >= 64 * 64 ? 0.37
                      : elements >= 64 * 32 ? 0.3
                                            : 0.22;
  return tile * (product.index_bits == 64 ? 0.7 : 1.0);
}

// Blocks that an SM holds at once by ptxas' count of registers for sm_90a: 96, 56 and 40 a thread.
int tiles_per_sm(int64_t tile_elements, DataType compute) {
  const int blocks = tile_elements >= 128 * 64 ? 2 : tile_elements >= 64 * 64 ? 4 : 6;
  return byte_size(compute) == 8 ? blocks / 2 : blocks;
}

Work work_of(const TiledContraction& product) {
  Work work = product.work();
  const DataType compute = product.view.compute;
  (compute == DataType::f64 ? work.fp64_flops : work.fp32_flops) += product.inner_flops();
  work.tiles_per_sm = tiles_per_sm(product.tiling.tile.elements(), compute);
  work.stages = 2;
  work.efficiency = efficiency(product);
  return work;
}

// --- The engine ---

class DirectEngine final : public Engine {
 public:
  std::string_view name() const override { return "direct"; }
  int number() const override { return 20; }

  Support supports(const Fusion& fusion, const DeviceInfo& device) const override {
    return {refuse_tiling(fusion, device)};
  }

  std::vector<Knob> knobs(const Fusion& fusion, const DeviceInfo& /*device*/) const override {
    const Contraction view = contraction_of(fusion).value();
    // 8-byte sums take twice the registers and shared memory.
    std::vector<int64_t> tile_m = tiles_up_to(view.m, {32, 64, 128});
    if (byte_size(view.compute) == 8 && tile_m.back() == 128) tile_m.pop_back();
    return {
        {"tile_m", tile_m}, {"tile_n", tiles_up_to(view.n, {32, 64})}, {"split", splits_of(view, kTileK)}};
  }

  std::vector<EngineCandidate> candidates(const Fusion& fusion, const DeviceInfo& device) const override {
    const std::vector<Knob> offered = knobs(fusion, device);
    std::vector<EngineCandidate> list;
    const auto add = [&](int64_t tile_m, int64_t tile_n, int64_t split) {
      EngineConfig config{std::string(name()), revision(), {}};
      config.set("tile_m", std::min(tile_m, offered[0].values.back()));
      config.set("tile_n", std::min(tile_n, offered[1].values.back()));
      config.set("split", split);
      add_candidate(list, std::move(config),
                    [&](const EngineConfig& one) { return work_of(tiled(fusion, one, device)); });
    };
    add(64, 64, 1);
    add(128, 64, 1);
    add(32, 32, 1);
    if (const int64_t split = split_for(list.front().work, offered[2].values, kTurnsOfPart, device);
        split > 1)
      add(64, 64, split);
    return list;
  }

  Lowered lower(const Fusion& fusion, const EngineConfig& config, const DeviceInfo& device) const override {
    const TiledContraction product = tiled(fusion, config, device);
    return product.lowered(product.product("direct", {}, product.site_a(), product.site_b()));
  }
};

}  // namespace

const Engine& direct_engine() {
  static const DirectEngine engine;
  return engine;
}

}  // namespace fusor
