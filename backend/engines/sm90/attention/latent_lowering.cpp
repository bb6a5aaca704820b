// Owns what attention_latent launches, and what it costs.
#include <algorithm>
#include <utility>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/sm90/attention/latent.h"
#include "backend/engines/tiled/tiling.h"

namespace fusor::latent_attention {

namespace {

using tiled_attention::Problem;

constexpr int64_t kThreads = 384;
constexpr int64_t kRowBlocks = kTileRows / 16;
// Instructions of the softmax for a score.
constexpr double kSoftmaxSlots = 10;
// Share of the tensor cores' peak, none of which is under way in the softmax, and of the bandwidth, with two
// stages under way on each SM. As measured on an H200 (2026-12).
constexpr double kTensorPace = 0.8, kBytesPace = 0.82;
// Cycles of a block beside its keys: queries, the first copies, results.
constexpr double kBlockCycles = 6000;
// Of a lane in the launch that adds up parts, where all SMs are busy with it.
constexpr double kFinishSeconds = 1.2e-11;
constexpr double kWorkspaceCycles = 1500, kPartCycles = 150;

std::vector<ConfigValue> config_of(const LatentSchedule& schedule) {
  std::vector<ConfigValue> values = tiled_attention::config_of(schedule.decode.problem);
  values.push_back({"row_blocks", kRowBlocks});
  values.push_back({"tile_k", kTileKeys});
  values.push_back({"stages", schedule.stages});
  values.push_back({"shared_bytes", schedule.shared_bytes()});
  values.push_back({"exchange", schedule.knobs.split > 1 ? 2 : 0});
  values.push_back({"finish_lanes", schedule.finish_lanes()});
  tiled_attention::append_limits(values, schedule.decode);
  return values;
}

Launch launch_of(const LatentSchedule& schedule, const char* root, const char* entry) {
  const Problem& problem = schedule.decode.problem;
  KernelSource source{.root = root,
                      .sites = tiled_attention::sites_of(schedule.decode),
                      .config = config_of(schedule),
                      .target = problem.device.target(),
                      .types = {"sm90/attention/tiles.cuh", "tiled/attention/packed_rows.cuh"}};
  Parameters parameters(problem.index_bits);
  tiled_attention::append_extents(parameters, problem);
  tiled_attention::append_rows(parameters, schedule.decode, schedule.tiles(), schedule.knobs.split);
  if (schedule.knobs.split > 1) parameters.scratch("parts", "Part", 0);
  tiled_attention::append_sites(parameters, problem, source.sites);
  Launch launch;
  parameters.move_to(std::move(source), launch);
  launch.entry = entry;
  return launch;
}

}  // namespace

Work cost(const LatentSchedule& schedule) {
  const DecodeProblem& decode = schedule.decode;
  const Problem& problem = decode.problem;
  const double keys_of_tile = static_cast<double>(kTileKeys) *
                              static_cast<double>(attention::live_blocks(
                                  decode.fixed, problem.queries, problem.keys, problem.queries, kTileKeys));
  const double keys = static_cast<double>(schedule.all_tiles()) * keys_of_tile;
  const double scores = keys * static_cast<double>(kTileRows);
  const SiteCost score = cost_of(problem.scores.score, problem.fusion);
  const double unseen = std::max(0.0, static_cast<double>(problem.keys) - keys_of_tile);
  Work work;
  work.tensor_flops =
      2 * scores * static_cast<double>(problem.padded_head() + problem.padded_value()) / kTensorPace;
  work.special = scores * (1 + score.special);
  work.fp32_flops =
      scores * 2 * (kSoftmaxSlots + (problem.scores.scale ? 0 : score.instructions)) +
      2 * keys / static_cast<double>(kTileKeys) * static_cast<double>(kTileRows * problem.padded_value());
  work.l2_bytes = keys * static_cast<double>(schedule.line_bytes());
  work.dram_bytes =
      std::max(dram_bytes(problem.fusion) - static_cast<double>(decode.entries() * problem.head) * 2 * unseen,
               0.0) /
      kBytesPace;
  work.scratch_bytes = schedule.workspace();
  work.tiles = schedule.all_tiles();
  work.split = static_cast<int>(schedule.knobs.split);
  work.stages = 1;
  work.finish_cycles = kBlockCycles;
  work.start_s = kBlockCycles / problem.device.clock_hz;
  if (schedule.knobs.split > 1) {
    const double exchanged = kWorkspaceCycles + kPartCycles * static_cast<double>(schedule.knobs.split);
    // A second launch adds the parts up, vector by vector.
    const double vectors = static_cast<double>(decode.entries() * decode.rows() * problem.padded_value()) / 4;
    work.start_s += vectors * static_cast<double>(schedule.finish_lanes()) * kFinishSeconds;
    // Memory is idle meanwhile.
    work.serial_dram_bytes = exchanged / problem.device.clock_hz * problem.device.dram_bytes_per_s;
    work.launches = 2;
  }
  return work;
}

Lowered lower(const LatentSchedule& schedule) {
  Lowered lowered;
  lowered.guards = tiled_attention::guards_of_operands(schedule.decode.problem);
  Launch launch = launch_of(schedule, "sm90/attention/latent.cuh", "attention_latent");
  set_grid(launch, schedule.all_tiles() * schedule.knobs.split, kThreads);
  launch.shared_bytes = schedule.shared_bytes();
  lowered.steps.emplace_back(std::move(launch));
  if (schedule.knobs.split == 1) return lowered;
  lowered.scratch.push_back(schedule.workspace());
  Launch finish = launch_of(schedule, "tiled/attention/decode_finish.cuh", "decode_finish");
  tiled_attention::set_finish_grid(finish, schedule.decode, schedule.all_tiles(), kTileRows,
                                   schedule.finish_lanes());
  lowered.steps.emplace_back(std::move(finish));
  return lowered;
}

}  // namespace fusor::latent_attention
