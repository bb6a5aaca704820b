// Owns what attention_decode launches, and what it costs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/tiled/attention/decode.h"
#include "backend/engines/tiled/tiling.h"

namespace fusor::tiled_attention {

namespace {

// Threads and vectors of a block in codegen/device/tiled/attention/decode_finish.cuh.
constexpr int64_t kFinishThreads = 128, kFinishVector = 4;
// Instructions of the softmax for a score, and of an address for a vector of an operand.
constexpr double kSoftmaxSlots = 10, kVectorSlots = 6;
// Share of the tensor cores' peak that mma.sync reaches in one chain of products a warp.
constexpr double kTensorPace = 0.25;
// Cycles of a block beside its keys: the first copies, and what its warps add up.
constexpr double kBlockCycles = 4000;
// Cycles in which blocks of a cluster, or of two launches, exchange their parts.
constexpr double kClusterCycles = 5000, kWorkspaceCycles = 1500, kPartCycles = 150;
// Bytes that an SM takes from L2 in its share of the device's pace, as measured on an H200 (2026-11).
constexpr double kSmPace = 1.2;

enum Exchange : int64_t { none, in_cluster, in_workspace };

Exchange exchange_of(const DecodeKnobs& knobs) {
  if (knobs.split == 1) return none;
  return knobs.cluster != 0 ? in_cluster : in_workspace;
}

std::vector<ConfigValue> config_of(const DecodeSchedule& schedule) {
  std::vector<ConfigValue> values = config_of(schedule.decode.problem);
  const DecodeKnobs& knobs = schedule.knobs;
  values.push_back({"warps", knobs.warps});
  values.push_back({"row_blocks", knobs.row_blocks});
  values.push_back({"tile_k", knobs.tile_k});
  values.push_back({"stages", schedule.stages});
  values.push_back({"blocks_per_sm", schedule.blocks_per_sm});
  values.push_back({"shared_bytes", schedule.shared_bytes()});
  values.push_back({"exchange", static_cast<int64_t>(exchange_of(knobs))});
  values.push_back({"finish_lanes", kFinishLanes});
  append_limits(values, schedule.decode);
  return values;
}

Parameters parameters_of(const DecodeSchedule& schedule, const std::vector<KernelSite>& sites) {
  const DecodeProblem& decode = schedule.decode;
  const Problem& problem = decode.problem;
  Parameters p(problem.index_bits);
  append_extents(p, problem);
  append_rows(p, decode, schedule.tiles(), schedule.knobs.split);
  if (exchange_of(schedule.knobs) == in_workspace) p.scratch("parts", "Part", 0);
  append_sites(p, problem, sites);
  return p;
}

Launch launch_of(const DecodeSchedule& schedule, const char* root, const char* entry) {
  const Problem& problem = schedule.decode.problem;
  KernelSource source{.root = root,
                      .sites = sites_of(schedule.decode),
                      .config = config_of(schedule),
                      .target = problem.device.target(),
                      .types = {"sm90/attention/tiles.cuh", "tiled/attention/packed_rows.cuh"}};
  Launch launch;
  Parameters parameters = parameters_of(schedule, source.sites);
  parameters.move_to(std::move(source), launch);
  launch.entry = entry;
  return launch;
}

// Limits of blocks on an H200 (2026-11): clusters of more than 2 blocks fill ten of eleven SMs, those of 16
// one place a GPC of 18 SMs.
int64_t sms_of(const DecodeSchedule& schedule) {
  const int64_t sms = schedule.decode.problem.device.sm_count;
  if (schedule.knobs.cluster == 0 || schedule.knobs.split <= 2) return sms;
  const int64_t cluster = schedule.knobs.split;
  const int64_t clusters = cluster > 8 ? sms / 18 : sms * 10 / 11 / cluster;
  return std::max<int64_t>(1, clusters) * cluster;
}

// Bytes as if the last blocks, which are too few to keep memory busy, took theirs at full pace.
double paced_bytes(const DecodeSchedule& schedule, double bytes) {
  const auto sms = static_cast<double>(schedule.decode.problem.device.sm_count);
  const auto blocks = static_cast<double>(schedule.all_tiles() * schedule.knobs.split);
  const auto slots = static_cast<double>(sms_of(schedule) * schedule.blocks_per_sm);
  const double full = std::floor(blocks / slots) * slots, last = blocks - full;
  if (full == 0 || last == 0) return bytes;
  return bytes / blocks * (full + last / std::min(1.0, last / sms));
}

// Share of an SM's pace that so many bytes in flight reach, as measured on an H200 (2026-11).
double pace_of(const DecodeSchedule& schedule) {
  constexpr double kEnough = 192 << 10, kLeast = 0.55;
  const int64_t resident = std::min(
      schedule.blocks_per_sm,
      ceil_div(schedule.all_tiles() * schedule.knobs.split, schedule.decode.problem.device.sm_count));
  const auto bytes =
      static_cast<double>(resident * schedule.knobs.warps * schedule.stages * schedule.stage_bytes());
  return kLeast + (1 - kLeast) * std::min(1.0, bytes / kEnough);
}

// Slots of an element that a prologue computes.
double slots_of_computed(const DecodeSchedule& schedule) {
  constexpr double kSlots = 10;
  const int64_t resident = std::min(
      schedule.blocks_per_sm,
      ceil_div(schedule.all_tiles() * schedule.knobs.split, schedule.decode.problem.device.sm_count));
  return slots_of_prologue(kSlots, resident * schedule.knobs.warps);
}

// Bytes that all tiles read, of those keys that a query may see, and bytes that memory delivers for them.
struct Traffic {
  double l2 = 0, dram = 0;
};
Traffic traffic_of(const DecodeSchedule& schedule, double keys_of_tile) {
  const DecodeProblem& decode = schedule.decode;
  const Problem& problem = decode.problem;
  const auto of_key = static_cast<double>(2 * (problem.padded_head() + problem.padded_value()));
  const double unseen = std::max(0.0, static_cast<double>(problem.keys) - keys_of_tile);
  const double unread = static_cast<double>(decode.entries() * (problem.head + problem.value)) * 2 * unseen;
  return {static_cast<double>(schedule.all_tiles()) * keys_of_tile * of_key,
          std::max(dram_bytes(problem.fusion) - unread, 0.0)};
}

}  // namespace

std::vector<KernelSite> sites_of(const DecodeProblem& decode) {
  std::vector<KernelSite> sites = sites_of(decode.problem);
  for (size_t i = 0; i < decode.limits.size(); ++i) {
    const Expr& number = decode.limits[i].number;
    sites.push_back({fmt::format("N{}", i), number, number.domain.rank() - 1});
  }
  return sites;
}

void append_limits(std::vector<ConfigValue>& config, const DecodeProblem& decode) {
  const std::vector<Limit>& limits = decode.limits;
  config.push_back({"limits", limits.size()});
  for (size_t i = 0; i < kMostLimits; ++i)
    config.push_back({fmt::format("limit{}", i),
                      i < limits.size() ? limits[i].place * 4 + static_cast<int64_t>(limits[i].of) : 0});
}

void append_rows(Parameters& p, const DecodeProblem& decode, int64_t tiles, int64_t parts) {
  p.group("rows", "PackedRows", [&] {
    p.wide("rows", decode.rows());
    p.wide("tiles", tiles);
    p.wide("parts", parts);
    p.divisor("heads", decode.heads);
  });
  std::vector<int64_t> extents;
  for (size_t axis = 0; axis < decode.shares.size(); ++axis)
    extents.push_back(decode.problem.batch[static_cast<int>(axis)] / decode.shares[axis]);
  attention::append_divisors(p, "extents", extents);
  attention::append_divisors(p, "shares", decode.shares);
}

void set_finish_grid(Launch& launch, const DecodeProblem& decode, int64_t tiles, int64_t tile_rows,
                     int64_t lanes) {
  const int64_t vectors = tile_rows * decode.problem.padded_value() / kFinishVector;
  set_grid(launch, tiles * ceil_div(vectors, kFinishThreads / lanes), kFinishThreads);
}

Work cost(const DecodeSchedule& schedule) {
  const DecodeProblem& decode = schedule.decode;
  const Problem& problem = decode.problem;
  const DecodeKnobs& knobs = schedule.knobs;
  const double keys_of_tile =
      static_cast<double>(knobs.tile_k) *
      static_cast<double>(
          attention::live_blocks(decode.fixed, problem.queries, problem.keys, problem.queries, knobs.tile_k));
  const double keys = static_cast<double>(schedule.all_tiles()) * keys_of_tile;
  const double scores = keys * static_cast<double>(schedule.tile_rows());
  const SiteCost score = cost_of(problem.scores.score, problem.fusion);
  const int64_t blocks = schedule.all_tiles() * knobs.split, sms = problem.device.sm_count;
  Work work;
  work.tensor_flops =
      2 * scores * static_cast<double>(problem.padded_head() + problem.padded_value()) / kTensorPace;
  work.special = scores * (1 + score.special);
  work.fp32_flops = scores * 2 * (kSoftmaxSlots + (problem.scores.scale ? 0 : score.instructions)) +
                    2 * keys / static_cast<double>(knobs.tile_k) *
                        static_cast<double>(schedule.tile_rows() * problem.padded_value());
  for (const auto& [load, elements] :
       {std::pair{&problem.k, problem.padded_head()}, {&problem.v, problem.padded_value()}}) {
    const SiteCost prologue = cost_of(load->expr, problem.fusion);
    const double of_vector = kVectorSlots / static_cast<double>(load->width);
    work.fp32_flops += 2 * keys * static_cast<double>(elements) *
                       (of_vector + (load->plain ? 0 : prologue.instructions + slots_of_computed(schedule)));
  }
  const Traffic traffic = traffic_of(schedule, keys_of_tile);
  // Blocks of an SM share its pace: they count as one after the other.
  const auto turns = static_cast<double>(ceil_div(blocks, sms_of(schedule)));
  work.l2_bytes = traffic.l2 / kSmPace * turns / static_cast<double>(ceil_div(blocks, sms));
  work.dram_bytes = paced_bytes(schedule, traffic.dram);
  work.scratch_bytes = schedule.workspace();
  work.tiles = schedule.all_tiles();
  work.split = static_cast<int>(knobs.split);
  work.stages = 1;
  const Exchange exchange = exchange_of(knobs);
  const double exchanged = exchange == none ? 0
                                            : (exchange == in_cluster ? kClusterCycles : kWorkspaceCycles) +
                                                  kPartCycles * static_cast<double>(knobs.split);
  work.finish_cycles = kBlockCycles / static_cast<double>(schedule.blocks_per_sm);
  work.start_s = kBlockCycles / problem.device.clock_hz;
  // Memory is idle meanwhile.
  work.serial_dram_bytes = exchanged / problem.device.clock_hz * problem.device.dram_bytes_per_s;
  work.launches = exchange == in_workspace ? 2 : 1;
  work.efficiency = pace_of(schedule);
  return work;
}

Lowered lower(const DecodeSchedule& schedule) {
  const Exchange exchange = exchange_of(schedule.knobs);
  Lowered lowered;
  lowered.guards = guards_of_operands(schedule.decode.problem);
  Launch launch = launch_of(schedule, "tiled/attention/decode.cuh", "attention_decode");
  set_grid(launch, schedule.all_tiles() * schedule.knobs.split, schedule.threads());
  launch.shared_bytes = schedule.shared_bytes();
  if (exchange == in_cluster) launch.cluster = {static_cast<uint32_t>(schedule.knobs.split), 1, 1};
  lowered.steps.emplace_back(std::move(launch));
  if (exchange != in_workspace) return lowered;
  lowered.scratch.push_back(schedule.workspace());
  Launch finish = launch_of(schedule, "tiled/attention/decode_finish.cuh", "decode_finish");
  set_finish_grid(finish, schedule.decode, schedule.all_tiles(), schedule.tile_rows());
  lowered.steps.emplace_back(std::move(finish));
  return lowered;
}

}  // namespace fusor::tiled_attention
