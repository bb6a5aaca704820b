// Owns what attention launches, and what it costs.
#include <algorithm>
#include <memory>
#include <utility>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/sm90/attention/problem.h"
#include "codegen/expr_emitter.h"
#include "core/fast_divisor.h"

namespace fusor::attention {

namespace {

constexpr int64_t kWarpgroup = 128;
constexpr double kLog2e = 1.4426950408889634;

// Of an SM, a clock: dense 16-bit products, and exponentials.
constexpr double kProductFlops = 4096, kExponentials = 16;
// Instructions of the softmax for a score; measured on an H200 (2026-11): what a tile takes beside its
// blocks, and a block beside its products and exponentials, for instance two waits for all lanes of a quad.
constexpr double kSoftmaxSlots = 5.5, kTileCycles = 2000, kBlockCycles = 400;

void put_map(ArgumentBlock& block, const Rows& rows, int64_t box) {
  TensorMap map = rows.map;
  map.box = {kLine, box, 1, 1, 1};
  block.put_tensor_map(map, rows.operand, rows.byte_offset);
}

void put_divisors(ArgumentBlock& block, const std::vector<int64_t>& divisors, int64_t index_bits) {
  for (const int64_t divisor : divisors) FastDivisor::of(divisor, static_cast<int>(index_bits)).put(block);
  FastDivisor::of(1, static_cast<int>(index_bits)).put(block);
}

void put_bounds(ArgumentBlock& block, const std::vector<KeyBound>& bounds) {
  for (const KeyBound& bound : bounds) {
    block.put_int(bound.slope);
    block.put_int(bound.offset);
  }
  if (bounds.empty()) {
    block.put_int(0);
    block.put_int(0);
  }
}

int last_axis(const Expr& expr) { return expr.domain.rank() - 1; }

// Widest vectors of the result that all rows allow.
int64_t result_vector(const Problem& problem) {
  int64_t vector = 8;
  while (problem.value % vector != 0) vector /= 2;
  return vector;
}

std::vector<KernelSite> sites_of(const Problem& problem) {
  const Fusion& fusion = problem.fusion;
  Expr y = result_site(fusion), score = problem.scores.score;
  mark_whole_vectors(fusion, y, last_axis(y), 8);
  if (result_vector(problem) < 8)
    for (Store& store : y.stores) store.access.whole_vectors = false;
  mark_whole_vectors(fusion, score, last_axis(score), 2);
  const Expr& v = operand_site(fusion, 1, 1);
  return {{"V", v, last_axis(v)},
          {"S", score, last_axis(score), true},
          {"Y", y, last_axis(y), fits_short_forms(y)},
          {"L", problem.scores.rows, last_axis(problem.scores.rows)}};
}

std::vector<ConfigValue> config_of(const Schedule& schedule) {
  const Problem& problem = schedule.problem;
  const auto count = [](const auto& list) { return static_cast<int64_t>(list.size()); };
  return {{"index_bits", problem.index_bits},
          {"consumers", schedule.knobs.consumers},
          {"tile_k", schedule.knobs.tile_k},
          {"stages", schedule.stages},
          {"head", problem.padded_head()},
          {"value", problem.padded_value()},
          {"plain_scores", problem.scores.scale ? 1 : 0},
          {"ping_pong", schedule.knobs.ping_pong},
          {"saves_rows", problem.scores.rows.stores.empty() ? 0 : 1},
          {"guarded", problem.scores.guarded ? 1 : 0},
          {"lower", count(problem.scores.bounds.lower)},
          {"upper", count(problem.scores.bounds.upper)}};
}

void write_arguments(ArgumentBlock& block, const Schedule& schedule, const std::vector<KernelSite>& sites) {
  const Problem& problem = schedule.problem;
  put_map(block, problem.q, schedule.tile_q());
  put_map(block, problem.k, schedule.knobs.tile_k);
  put_map(block, problem.v, schedule.knobs.tile_k);
  for (const int64_t value : {problem.queries, problem.keys, problem.value}) block.put_int(value);
  for (const int64_t value : {schedule.tiles(), problem.entries(), schedule.section()}) block.put_int(value);
  put_divisors(block, {problem.batch.begin(), problem.batch.end()}, problem.index_bits);
  put_divisors(block, problem.shares, problem.index_bits);
  const double scale = problem.scores.scale.value_or(1.0);
  block.put_float(scale * kLog2e);
  block.put_float(scale);
  put_bounds(block, problem.scores.bounds.lower);
  put_bounds(block, problem.scores.bounds.upper);
  for (const KernelSite& site : sites)
    if (site.name != "V") fusor::write_arguments(block, site, problem.fusion);
}

}  // namespace

Work cost(const Schedule& schedule) {
  const Problem& problem = schedule.problem;
  const Knobs& knobs = schedule.knobs;
  const auto blocks = static_cast<double>(schedule.live_blocks()),
             tiles = static_cast<double>(schedule.tiles());
  const double scores =
      static_cast<double>(problem.entries()) * blocks * static_cast<double>(schedule.tile_q() * knobs.tile_k);
  const SiteCost score = cost_of(problem.scores.score, problem.fusion);
  Work work;
  work.tensor_flops = 2 * scores * static_cast<double>(problem.padded_head() + problem.padded_value());
  work.special = scores * (1 + score.special);
  // Maximum, exponent, sum and conversion; a multiply-add counts two.
  work.fp32_flops = scores * 2 * (kSoftmaxSlots + (problem.scores.scale ? 0 : score.instructions));
  work.dram_bytes = dram_bytes(problem.fusion);
  work.tiles = schedule.tiles() * problem.entries();
  work.stages = 1;
  work.finish_cycles = kTileCycles + kBlockCycles * blocks / std::max(tiles, 1.0);
  // A quarter of the lesser of products and exponentials is not hidden.
  const double products = work.tensor_flops / kProductFlops, exponentials = work.special / kExponentials;
  work.efficiency = std::max(products, exponentials) /
                    (std::max(products, exponentials) + std::min(products, exponentials) / 4);
  return work;
}

Lowered lower(const Schedule& schedule) {
  const Problem& problem = schedule.problem;
  KernelSource source{"sm90/attention/forward.cuh", sites_of(problem), config_of(schedule),
                      problem.device.target()};
  Launch launch;
  write_arguments(launch.arguments, schedule, source.sites);
  const int64_t items = schedule.tiles() * problem.entries();
  const int64_t blocks =
      schedule.knobs.persistent != 0 ? std::min<int64_t>(items, problem.device.sm_count) : items;
  launch.source = std::make_shared<const KernelSource>(std::move(source));
  launch.entry = "attention_forward";
  launch.grid[0] = static_cast<uint32_t>(blocks);
  launch.block[0] = static_cast<uint32_t>((1 + schedule.knobs.consumers) * kWarpgroup);
  launch.shared_bytes = schedule.shared_bytes();
  Lowered lowered;
  lowered.guards = guards_of(problem.fusion, {{result_site(problem.fusion), result_vector(problem)}});
  for (Guard& guard : lowered.guards)
    for (const Rows* rows : {&problem.q, &problem.k, &problem.v})
      if (guard.operand == rows->operand) guard.alignment = std::max<int64_t>(guard.alignment, 16);
  lowered.steps.emplace_back(std::move(launch));
  return lowered;
}

}  // namespace fusor::attention
