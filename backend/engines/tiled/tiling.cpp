// Owns the config, the arguments and the launch behind TiledResult.
#include "backend/engines/tiled/tiling.h"

#include <algorithm>
#include <array>
#include <limits>

#include "codegen/expr_emitter.h"
#include "core/ceil_div.h"
#include "core/fast_divisor.h"

namespace fusor {

namespace {

constexpr int64_t kSumThreads = 256;  // of codegen/device/tiled/split_finish.cuh

// Threads among which the parts of a vector are shared out: so many that the device is busy, each of which
// still has a few to add. The order of the sums is the same in every run.
int64_t lanes_of_sum(int64_t vectors, int64_t parts) {
  constexpr int64_t kBusyThreads = 1 << 17, kMostLanes = 16, kFewParts = 4;
  int64_t lanes = 1;
  while (lanes < kMostLanes && lanes * 2 * kFewParts <= parts && lanes * vectors < kBusyThreads) lanes *= 2;
  return lanes;
}

// What tiled/tiling.cuh calls FUSOR_COMPUTE.
int64_t compute_number(DataType compute) {
  constexpr std::array kOrder{DataType::f32, DataType::f64, DataType::i32, DataType::i64};
  return std::ranges::find(kOrder, compute) - kOrder.begin();
}

}  // namespace

std::vector<ConfigValue> TiledResult::config() const {
  std::vector<ConfigValue> values{{"index_bits", index_bits},
                                  {"compute", compute_number(view.compute)},
                                  {"tile_m", tile_m},
                                  {"tile_n", tile_n},
                                  {"y_along_n", lines_along_n ? 1 : 0}};
  view.write_config(values);
  return values;
}

void TiledResult::write_arguments(ArgumentBlock& block) const {
  view.write_arguments(block, index_bits);
  block.put_int(tiles);
  FastDivisor::of(along_n, index_bits).put(block);
  FastDivisor::of(along_m, index_bits).put(block);
}

Launch TiledResult::sum_of_parts(const Fusion& fusion, KernelSite epilogue, int64_t vector, int64_t parts,
                                 std::string target) const {
  KernelSource source{"tiled/split_finish.cuh", {std::move(epilogue)}, config(), std::move(target)};
  const int64_t lanes = lanes_of_sum(tiles * (tile_m * tile_n / vector), parts);
  source.config.push_back({"vector", vector});
  source.config.push_back({"lanes", lanes});
  Launch launch;
  write_arguments(launch.arguments);
  launch.arguments.put_int(parts);
  launch.arguments.put_pointer(Patch::Kind::scratch, 0);
  fusor::write_arguments(launch.arguments, source.sites[0], fusion);
  launch.entry = "direct_finish";
  set_grid(launch, blocks_of_sum(tiles, tile_m * tile_n, vector, lanes), kSumThreads);
  launch.source = std::make_shared<const KernelSource>(std::move(source));
  return launch;
}

int64_t blocks_of_sum(int64_t tiles, int64_t tile_elements, int64_t vector, int64_t lanes) {
  return tiles * ceil_div(tile_elements / vector, kSumThreads / lanes);
}

void set_grid(Launch& launch, int64_t blocks, int64_t threads) {
  constexpr int64_t kMaxGrid = std::numeric_limits<int32_t>::max();
  launch.grid[0] = static_cast<uint32_t>(std::min(blocks, kMaxGrid));
  launch.grid[1] = static_cast<uint32_t>(ceil_div(blocks, kMaxGrid));
  launch.block[0] = static_cast<uint32_t>(threads);
}

}  // namespace fusor
