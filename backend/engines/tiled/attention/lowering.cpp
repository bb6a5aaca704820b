// Owns what attention_mma launches, and what it costs.
#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/tiled/attention/problem.h"
#include "backend/engines/tiled/tiling.h"

namespace fusor::tiled_attention {

namespace {

constexpr double kLog2e = 1.4426950408889634;
// Instructions of the softmax for a score, and of an address for a vector of an operand, by the kernel's
// text.
constexpr double kSoftmaxSlots = 5.5, kConversionSlots = 0.5, kVectorSlots = 12;
// An SM's dense 16-bit products and lanes in a clock, and slots of a score beside its ops: loads, coordinates
// and special functions (H200, 2026-12).
constexpr double kProductFlops = 4096, kLanes = 128, kScoreSlots = 16;
// Cycles of a tile beside its blocks of keys, and of a block of keys beside its products: waits and barriers.
constexpr double kTileCycles = 3000, kBlockCycles = 500;

int last_axis(const Expr& expr) { return expr.domain.rank() - 1; }

KernelSite operand_site_of(const char* name, const OperandLoad& load) {
  KernelSite site{name, load.expr, load.vector_axis, true};
  site.addressed = load.plain;
  return site;
}

}  // namespace

int64_t result_vector(const Problem& problem) {
  int64_t vector = 8;
  while (problem.value % vector != 0) vector /= 2;
  return vector;
}

std::vector<KernelSite> sites_of(const Problem& problem) {
  const Fusion& fusion = problem.fusion;
  Expr y = attention::without_last_rounding(result_site(fusion)), score = problem.scores.score;
  mark_whole_vectors(fusion, y, last_axis(y), 8);
  if (result_vector(problem) < 8)
    for (Store& store : y.stores) store.access.whole_vectors = false;
  mark_whole_vectors(fusion, score, last_axis(score), 2);
  std::vector<KernelSite> sites{operand_site_of("Q", problem.q),
                                operand_site_of("K", problem.k),
                                operand_site_of("V", problem.v),
                                {"S", score, last_axis(score), true},
                                {"Y", y, last_axis(y), fits_short_forms(y)},
                                {"L", problem.scores.rows, last_axis(problem.scores.rows)}};
  if (problem.scores.sink) sites.push_back({"I", *problem.scores.sink, last_axis(*problem.scores.sink)});
  return sites;
}

std::vector<ConfigValue> config_of(const Problem& problem) {
  return {{"index_bits", problem.index_bits},
          {"ElementA", problem.type},
          {"ElementB", problem.type},
          {"head", problem.padded_head()},
          {"value", problem.padded_value()},
          {"q_along_head", problem.q.along_head},
          {"k_along_head", problem.k.along_head},
          {"v_along_head", problem.v.along_head},
          {"q_width", problem.q.width},
          {"k_width", problem.k.width},
          {"v_width", problem.v.width},
          {"q_plain", problem.q.plain},
          {"k_plain", problem.k.plain},
          {"v_plain", problem.v.plain},
          {"plain_scores", problem.scores.is_plain()},
          {"softens", problem.scores.softens},
          {"saves_rows", !problem.scores.rows.stores.empty()},
          {"guarded", problem.scores.guarded},
          {"has_sink", problem.scores.sink.has_value()},
          {"lower", problem.scores.bounds.lower.size()},
          {"upper", problem.scores.bounds.upper.size()}};
}

void append_extents(Parameters& p, const Problem& problem) {
  p.wide("queries", problem.queries);
  p.wide("keys", problem.keys);
  p.wide("head", problem.head);
  p.wide("values", problem.value);
  const double scale = problem.scores.scale.value_or(1.0);
  p.real("factor", scale * kLog2e);
  p.real("scale", scale);
  attention::append_visible(p, problem.scores.bounds);
}

void append_sites(Parameters& p, const Problem& problem, std::span<const KernelSite> sites) {
  for (const KernelSite& site : sites) {
    std::string name = site.name;
    name[0] = static_cast<char>(name[0] - 'A' + 'a');
    p.site(name, site, problem.fusion);
  }
}

std::vector<Guard> guards_of_operands(const Problem& problem) {
  return guards_of(problem.fusion, {{problem.q.expr, problem.q.width},
                                    {problem.k.expr, problem.k.width},
                                    {problem.v.expr, problem.v.width},
                                    {result_site(problem.fusion), result_vector(problem)}});
}

namespace {

std::vector<ConfigValue> config_of(const Schedule& schedule) {
  std::vector<ConfigValue> values = config_of(schedule.problem);
  values.push_back({"warps", schedule.knobs.warps});
  values.push_back({"row_blocks", schedule.knobs.row_blocks});
  values.push_back({"tile_k", schedule.knobs.tile_k});
  values.push_back({"blocks_per_sm", schedule.blocks_per_sm()});
  values.push_back({"shared_bytes", schedule.shared_bytes()});
  return values;
}

Parameters parameters_of(const Schedule& schedule, const std::vector<KernelSite>& sites) {
  const Problem& problem = schedule.problem;
  Parameters p(problem.index_bits);
  append_extents(p, problem);
  p.group("queue", "TileQueue", [&] {
    p.wide("tiles", schedule.tiles());
    p.wide("entries", problem.entries());
    p.wide("section", problem.entries());
    p.wide("turns", 0);
  });
  attention::append_divisors(p, "extents", {problem.batch.begin(), problem.batch.end()});
  attention::append_divisors(p, "sharing_k", problem.k.sharing);
  attention::append_divisors(p, "sharing_v", problem.v.sharing);
  append_sites(p, problem, sites);
  return p;
}

// Share of the tensor cores' peak that mma.sync reaches beside a softmax: on sm_90 and sm_100 they are fed at
// little more than half their rate. Measured on an H200 (2026-11): few keys a block wait more often, warps of
// one block of rows read shared memory twice as often, eight warps wait longer for each other.
double efficiency(const Schedule& schedule) {
  const int generation = schedule.problem.device.compute_capability / 10;
  const bool halved = generation == 9 || generation == 10;
  const Knobs& knobs = schedule.knobs;
  const double keys = knobs.tile_k == 32 ? 0.8 : knobs.tile_k == 64 ? 0.95 : 1.0;
  const double rows = knobs.row_blocks == 2 ? 1.0 : 0.86;
  const double waits = knobs.warps == 4 ? 1.0 : 0.9;
  const double alone = schedule.threads() * schedule.blocks_per_sm() >= 256 ? 1.0 : 0.8;
  return (halved ? 0.42 : 0.7) * keys * rows * waits * alone;
}

// Slots of an element that a prologue computes, vector by vector.
double slots_of_computed(const Schedule& schedule) {
  constexpr double kSlots = 30;
  return slots_of_prologue(kSlots, schedule.blocks_per_sm() * schedule.threads() / 32);
}

}  // namespace

Work cost(const Schedule& schedule) {
  const Problem& problem = schedule.problem;
  const auto entries = static_cast<double>(problem.entries());
  const auto blocks = static_cast<double>(attention::live_blocks(
      problem.scores.bounds, problem.queries, problem.keys, schedule.tile_q(), schedule.knobs.tile_k));
  const double scores = entries * blocks * static_cast<double>(schedule.tile_q() * schedule.knobs.tile_k);
  const double loaded = entries * blocks * static_cast<double>(schedule.knobs.tile_k);
  const SiteCost score = cost_of(problem.scores.score, problem.fusion);
  Work work;
  work.tensor_flops = 2 * scores * static_cast<double>(problem.padded_head() + problem.padded_value());
  const bool softens = problem.scores.softens;
  work.special = scores * ((softens ? 1 : 0) + score.special);
  // Maximum, exponent, sum and conversion; a multiply-add counts two.
  work.fp32_flops =
      scores * 2 *
      ((softens ? kSoftmaxSlots : kConversionSlots) + (problem.scores.is_plain() ? 0 : score.instructions));
  for (const auto& [load, elements] :
       {std::pair{&problem.k, problem.padded_head()}, {&problem.v, problem.padded_value()}}) {
    const SiteCost prologue = cost_of(load->expr, problem.fusion);
    const double of_vector = kVectorSlots / static_cast<double>(load->width);
    work.fp32_flops += 2 * loaded * static_cast<double>(elements) *
                       (of_vector + (load->plain ? 0 : prologue.instructions + slots_of_computed(schedule)));
    work.l2_bytes += loaded * static_cast<double>(elements) * 2;
  }
  work.dram_bytes = dram_bytes(problem.fusion);
  work.tiles = schedule.tiles() * problem.entries();
  work.tiles_per_sm = static_cast<int>(schedule.blocks_per_sm());
  work.stages = 1;
  work.finish_cycles =
      kTileCycles + kBlockCycles * blocks / static_cast<double>(std::max<int64_t>(schedule.tiles(), 1));
  work.efficiency = efficiency(schedule);
  // Without a softmax, products wait for all that becomes of scores: few warps share a scheduler.
  if (!softens) {
    const double products = work.tensor_flops / (kProductFlops * work.efficiency);
    const double others = (scores * score.instructions + scores * kScoreSlots) / kLanes;
    work.efficiency *= products / (products + others);
  }
  return work;
}

Lowered lower(const Schedule& schedule) {
  const Problem& problem = schedule.problem;
  KernelSource source{.root = "tiled/attention/forward.cuh",
                      .sites = sites_of(problem),
                      .config = config_of(schedule),
                      .target = problem.device.target(),
                      .types = {"sm90/attention/tiles.cuh"}};
  Launch launch;
  Parameters parameters = parameters_of(schedule, source.sites);
  parameters.move_to(std::move(source), launch);
  launch.entry = "attention_mma";
  set_grid(launch, schedule.tiles() * problem.entries(), schedule.threads());
  launch.shared_bytes = schedule.shared_bytes();
  Lowered lowered;
  lowered.guards = guards_of_operands(problem);
  lowered.steps.emplace_back(std::move(launch));
  return lowered;
}

}  // namespace fusor::tiled_attention
