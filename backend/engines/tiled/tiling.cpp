// Owns the config, the arguments and the launch behind TiledResult.
#include "backend/engines/tiled/tiling.h"

#include <algorithm>
#include <limits>

#include "codegen/text/parameters.h"
#include "core/ceil_div.h"

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

}  // namespace

std::vector<ConfigValue> TiledResult::config() const {
  std::vector<ConfigValue> values{{"index_bits", index_bits},
                                  {"Sum", view.compute},
                                  {"tile_m", tile_m},
                                  {"tile_n", tile_n},
                                  {"y_along_n", lines_along_n}};
  view.append_config(values);
  return values;
}

void TiledResult::append_to(Parameters& p) const {
  p.group("problem", "Problem", [&] { view.append_to(p); });
  p.group("tiling", "Tiling", [&] {
    p.wide("tiles", tiles);
    p.divisor("along_n", along_n);
    p.divisor("along_m", along_m);
  });
}

Launch TiledResult::sum_of_parts(const Fusion& fusion, const KernelSite& epilogue, int64_t vector,
                                 int64_t parts, std::string target) const {
  KernelSource source{.root = "tiled/split_finish.cuh",
                      .sites = {epilogue},
                      .config = config(),
                      .target = std::move(target),
                      .types = {"tiled/tiling.cuh"}};
  const int64_t lanes = lanes_of_sum(tiles * (tile_m * tile_n / vector), parts);
  source.config.push_back({"vector", vector});
  source.config.push_back({"lanes", lanes});
  Parameters p(index_bits);
  append_to(p);
  p.wide("splits", parts);
  p.scratch("partials", "const Sum", 0);
  p.site("y", epilogue, fusion);
  Launch launch;
  launch.entry = "split_finish";
  set_grid(launch, blocks_of_sum(tiles, tile_m * tile_n, vector, lanes), kSumThreads);
  p.move_to(std::move(source), launch);
  return launch;
}

int64_t blocks_of_sum(int64_t tiles, int64_t tile_elements, int64_t vector, int64_t lanes) {
  return tiles * ceil_div(tile_elements / vector, kSumThreads / lanes);
}

void spread_evenly(Launch& launch, const DeviceInfo& device) {
  constexpr int64_t kOwnBytes = 9216;  // at most: what a block's kernel declares, and what the hardware keeps
  const int64_t share = ceil_div(int64_t{launch.grid[0]}, int64_t{device.sm_count});
  if (launch.grid[1] != 1 || (share + 1) * launch.block[0] > device.max_threads_per_sm) return;
  const int64_t room = std::min(device.shared_per_sm / share, device.shared_per_block) - kOwnBytes;
  launch.shared_bytes = std::max<int64_t>(0, room / 128 * 128);
}

void set_grid(Launch& launch, int64_t blocks, int64_t threads) {
  constexpr int64_t kMaxGrid = std::numeric_limits<int32_t>::max();
  launch.grid[0] = static_cast<uint32_t>(std::min(blocks, kMaxGrid));
  launch.grid[1] = static_cast<uint32_t>(ceil_div(blocks, kMaxGrid));
  launch.block[0] = static_cast<uint32_t>(threads);
}

}  // namespace fusor
