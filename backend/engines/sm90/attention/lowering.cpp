// Owns what attention launches, and what it costs.
#include <algorithm>
#include <cctype>
#include <string>
#include <utility>

#include "backend/engines/attention/form.h"
#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/sm90/attention/arguments.h"
#include "backend/engines/sm90/attention/dropout.h"
#include "backend/engines/sm90/attention/problem.h"
#include "codegen/text/parameters.h"

namespace fusor::attention {

namespace {

constexpr int64_t kWarpgroup = 128;

// An SM's dense 16-bit products and exponentials in a clock.
constexpr double kProductFlops = 4096, kExponentials = 16, kLanes = 128;
// Instructions of the softmax for a score; measured on an H200 (2026-11): what a tile takes beside its
// blocks, whose queries are waited for or are there, and a block beside its products and exponentials, for
// instance two waits for all lanes of a quad.
constexpr double kSoftmaxSlots = 5.5, kTileCycles = 2000, kReadyTileCycles = 1300, kBlockCycles = 400,
                 kConversionSlots = 0.5;
// Cycles that a block for each tile takes to start; and the pace of uneven tiles that blocks take in
// turn.
constexpr double kStartCycles = 1500, kInTurn = 0.95;
// Cycles of an SM for each element of a score's matrix that threads load (H200, 2026-11: a bias of 4096 and
// of 512 keys took 0.15 to 0.35).
constexpr double kElementCycles = 0.2;
// Share of the speed that is left to blocks that take tiles in turn, where lengths decide on the device which
// tiles have anything to do.
constexpr double kInTurnOfLengths = 0.75;

// The same for each number of a key that scores are made of, without a softmax (2026-12: one took 0.15).
constexpr double kKeyCycles = 0.15;

int last_axis(const Expr& expr) { return expr.domain.rank() - 1; }

// Loads of numbers that differ from key to key and not from query to query.
double loads_of_keys(const Expr& score) {
  const int keys = last_axis(score);
  return static_cast<double>(std::ranges::count_if(score.nodes, [&](const Node& node) {
    return node.kind == Node::Kind::load && node.access.strides[keys] != 0 &&
           node.access.strides[keys - 1] == 0;
  }));
}

// Widest vectors of the result that all rows allow.
int64_t result_vector(const Problem& problem) {
  int64_t vector = 8;
  while (problem.value % vector != 0) vector /= 2;
  return vector;
}

// A bit for each axis of the batch along which the matrix has planes of its own.
int64_t planes_of(const ScoreMatrix& matrix) {
  int64_t planes = 0;
  for (int axis = 0; axis < matrix.rows.batch.rank(); ++axis)
    if (matrix.rows.batch[axis] > 1) planes |= int64_t{1} << axis;
  return planes;
}

std::vector<KernelSite> sites_of(const Schedule& schedule) {
  const Problem& problem = schedule.problem;
  const Fusion& fusion = problem.fusion;
  Expr y = problem.placed ? problem.placed->value : problem.y, score = schedule.score();
  mark_whole_vectors(fusion, y, last_axis(y), 8);
  if (result_vector(problem) < 8)
    for (Store& store : y.stores) store.access.whole_vectors = false;
  mark_whole_vectors(fusion, score, last_axis(score), 2);
  std::vector<KernelSite> sites{{"S", score, last_axis(score), true},
                                {"Y", y, last_axis(y), fits_short_forms(y)},
                                {"L", problem.scores.rows, last_axis(problem.scores.rows)}};
  if (problem.scores.sink) sites.push_back({"I", *problem.scores.sink, last_axis(*problem.scores.sink)});
  if (const auto& keep = problem.scores.keep) sites.push_back(kept_site(*keep, true));
  if (problem.placed) sites.push_back({"O", problem.placed->bounds, last_axis(problem.placed->bounds)});
  if (const ValueMask* mask = schedule.mask()) {
    sites.push_back({"R", mask->of_query, last_axis(mask->of_query)});
    sites.push_back({"C", mask->of_key, last_axis(mask->of_key)});
  }
  if (const auto& lengths = problem.scores.lengths) sites.push_back({"N", *lengths, last_axis(*lengths)});
  return sites;
}

std::vector<ConfigValue> config_of(const Schedule& schedule) {
  const Problem& problem = schedule.problem;
  std::vector<ConfigValue> config{
      {"index_bits", problem.index_bits},
      {"Element", problem.type},
      {"consumers", schedule.knobs.consumers},
      {"tile_k", schedule.knobs.tile_k},
      {"stages", schedule.stages},
      {"query_stages", schedule.query_stages},
      {"head", problem.padded_head()},
      {"value", problem.padded_value()},
      {"plain_scores", problem.scores.is_plain()},
      {"softens", problem.scores.softens},
      {"ping_pong", schedule.knobs.ping_pong != 0},
      {"saves_rows", !problem.scores.rows.stores.empty()},
      {"guarded", problem.scores.guarded},
      {"drops", problem.scores.keep.has_value()},
      {"shares_words", problem.scores.keep && shares_words(*problem.scores.keep)},
      {"has_sink", problem.scores.sink.has_value()},
      {"placed", problem.placed.has_value()},
      {"ragged", !schedule.ragged().empty()},
      {"ordered", schedule.ragged().is_ordered()},
      {"limited", problem.scores.lengths.has_value()},
      {"shared_bytes", schedule.shared_bytes()},
      {"has_matrix", schedule.stages_matrix()},
      {"Matrix", schedule.stages_matrix() ? problem.matrix->rows.map.type : problem.type},
      {"first_axis_fastest", schedule.takes_first_axis_first()},
      {"lower", problem.scores.bounds.lower.size()},
      {"upper", problem.scores.bounds.upper.size()}};
  append_mask(config, schedule.mask(), schedule.words());
  return config;
}

Parameters parameters_of(const Schedule& schedule, const std::vector<KernelSite>& sites) {
  const Problem& problem = schedule.problem;
  Parameters p(problem.index_bits);
  const RaggedOperands ragged = schedule.ragged();
  // Maps come first: they begin on multiples of 64 bytes.
  if (schedule.stages_matrix()) append_map(p, "matrix", problem.matrix->rows, schedule.tile_q());
  for (const bool is_ragged : {false, true}) {
    if (problem.q.is_ragged() == is_ragged) ragged.append(p, "q", problem.q, schedule.tile_q());
    if (problem.k.is_ragged() == is_ragged) ragged.append(p, "k", problem.k, schedule.knobs.tile_k);
    if (problem.v.is_ragged() == is_ragged) ragged.append(p, "v", problem.v, schedule.knobs.tile_k);
  }
  if (problem.placed) append_result(p, "result", *problem.placed);
  if (schedule.stages_matrix()) p.wide("planes", planes_of(*problem.matrix));
  p.wide("queries", problem.queries);
  p.wide("keys", problem.keys);
  p.wide("values", problem.value);
  append_queue(p, schedule.tiles(), problem.entries(), schedule.section(), schedule.takes_turns());
  ragged.append_order(p);
  if (const auto ranges = schedule.ranges()) ranges->append(p);
  append_divisors(p, "extents", {problem.batch.begin(), problem.batch.end()});
  append_divisors(p, "shares_q", problem.shares_q);
  append_divisors(p, "shares_k", problem.shares);
  append_divisors(p, "shares_v", problem.shares_v);
  append_scale(p, "factor", problem.scores.scale, problem.scores.given_scale, kLog2e);
  append_scale(p, "scale", problem.scores.scale, problem.scores.given_scale, 1);
  if (const auto& given = problem.scores.given_weight)
    p.given_real("weight", given->operand, given->least, problem.scores.weight);
  else if (problem.of_bytes() || problem.scores.keep)
    p.real("weight", problem.scores.weight);
  append_visible(p, problem.scores.bounds);
  // The field of a site's arguments is its name in small letters.
  for (const KernelSite& site : sites)
    p.site(std::string(1, static_cast<char>(std::tolower(static_cast<unsigned char>(site.name.front())))),
           site, problem.fusion);
  return p;
}

}  // namespace

Work cost(const Schedule& schedule) {
  const Problem& problem = schedule.problem;
  const Knobs& knobs = schedule.knobs;
  // How many blocks numbers leave is known on the device alone.
  const bool passes_over = schedule.words() > 0;
  const double share = passes_over ? live_share(schedule.tile_q(), knobs.tile_k) : 1;
  const double blocks = static_cast<double>(schedule.live_blocks()) * share,
               tiles = static_cast<double>(schedule.tiles());
  const double scores =
      static_cast<double>(problem.entries()) * blocks * static_cast<double>(schedule.tile_q() * knobs.tile_k);
  const SiteCost score = cost_of(schedule.score(), problem.fusion);
  Work work;
  work.tensor_flops = 2 * scores * static_cast<double>(problem.padded_head() + problem.padded_value());
  if (problem.of_bytes()) work.tensor_flops /= 2;
  const bool softens = problem.scores.softens;
  work.special = scores * ((softens ? 1 : 0) + score.special);
  // Maximum, exponent, sum and conversion; a multiply-add counts two.
  work.fp32_flops =
      scores * 2 *
      ((softens ? kSoftmaxSlots : kConversionSlots) + (problem.scores.is_plain() ? 0 : score.instructions));
  work.dram_bytes = dram_bytes(problem.fusion);
  work.tiles = schedule.tiles() * problem.entries();
  work.stages = 1;
  if (const RaggedOperands ragged = schedule.ragged(); !ragged.empty()) {
    ++work.launches;
    work.scratch_bytes = ragged.end_byte();
  }
  if (passes_over) {
    ++work.launches;
    work.scratch_bytes = schedule.ranges()->end_byte();
  }
  const bool persistent = knobs.persistent != 0;
  work.finish_cycles = (schedule.query_stages > 1 ? kReadyTileCycles : kTileCycles) +
                       (persistent ? 0 : kStartCycles) + kBlockCycles * blocks / std::max(tiles, 1.0);
  // A quarter of the lesser of products and exponentials is not hidden.
  const double products = work.tensor_flops / kProductFlops, exponentials = work.special / kExponentials;
  // Dropout's instructions take the place of others: no product hides them.
  const double drops =
      problem.scores.keep ? scores * cost_of(*problem.scores.keep, problem.fusion).instructions / kLanes : 0;
  const double loads = problem.matrix && !schedule.stages_matrix() ? scores * kElementCycles
                       : softens                                   ? 0
                                 : scores * kKeyCycles * loads_of_keys(schedule.score());
  work.efficiency = std::max(products, exponentials) /
                    (std::max(products, exponentials) + std::min(products, exponentials) / 4 + drops + loads);
  // Tiles of different lengths are shared out more evenly by the hardware than in turn.
  // Where blocks are passed over, the next tile's are found beside this one's.
  const bool in_turn = persistent && !schedule.ragged().is_ordered() && !passes_over;
  if (in_turn && problem.scores.lengths)
    work.efficiency *= kInTurnOfLengths;
  else if (in_turn && !problem.has_even_tiles())
    work.efficiency *= kInTurn;
  return work;
}

Lowered lower(const Schedule& schedule) {
  const Problem& problem = schedule.problem;
  KernelSource source{
      .root = "sm90/attention/forward.cuh",
      .sites = sites_of(schedule),
      .config = config_of(schedule),
      .target = problem.device.target(),
      .types = {"sm90/attention/tiles.cuh", "sm90/attention/ragged.cuh", "sm90/attention/order.cuh"}};
  if (schedule.words() > 0) source.types.emplace_back("sm90/attention/live_blocks.cuh");
  std::vector<KernelSite> all_sites = source.sites;
  Launch launch;
  Parameters parameters = parameters_of(schedule, source.sites);
  parameters.move_to(std::move(source), launch);
  launch.turn_at = -1;  // it always waits
  const int64_t items = schedule.tiles() * problem.entries();
  const int64_t blocks =
      schedule.knobs.persistent != 0 ? std::min<int64_t>(items, problem.device.sm_count) : items;
  launch.entry = "attention_forward";
  launch.grid[0] = static_cast<uint32_t>(blocks);
  launch.block[0] = static_cast<uint32_t>((1 + schedule.knobs.consumers) * kWarpgroup);
  launch.shared_bytes = schedule.shared_bytes();
  Lowered lowered;
  if (const RaggedOperands ragged = schedule.ragged(); !ragged.empty()) {
    lowered.steps.emplace_back(
        ragged.maps(problem.fusion, problem.device.target(), problem.index_bits, all_sites));
    lowered.scratch.push_back(ragged.end_byte());
  }
  if (const auto ranges = schedule.ranges()) {
    lowered.steps.emplace_back(
        ranges->launch(problem.fusion, problem.device.target(), problem.index_bits, all_sites));
    lowered.scratch = {ranges->end_byte()};
  }
  lowered.guards = guards_of_sites(problem.fusion, all_sites);
  require_maps(lowered.guards, {&problem.q, &problem.k, &problem.v});
  if (schedule.stages_matrix()) require_maps(lowered.guards, {&problem.matrix->rows});
  lowered.steps.emplace_back(std::move(launch));
  return lowered;
}

}  // namespace fusor::attention
