// Owns what the backward engine launches, and what that costs.
#include <algorithm>
#include <array>
#include <utility>

#include "backend/engines/attention/form.h"
#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/sm90/attention/arguments.h"
#include "backend/engines/sm90/attention/backward.h"
#include "codegen/parameters.h"

namespace fusor::attention::backward {

namespace {

constexpr int64_t kWarpgroup = 128;

// Instructions for a probability and a gradient; cycles that a tile takes beside its blocks, and a block
// beside its products.
constexpr double kSlots = 8, kTileCycles = 3000, kBlockCycles = 500, kStartCycles = 1500;
// The pace of uneven tiles that blocks take in turn, measured on an H200 (2026-11).
constexpr double kInTurn = 0.94;
// Shares of memory's pace at which spilled gradients are read, and written beside products. The second was
// found alike for heads of 64 and of 128, from 512 to 16384 queries, on an H200 (2026-11).
constexpr double kSpilledPace = 0.95, kWrittenPace = 0.3;

int last_axis(const Expr& expr) { return expr.domain.rank() - 1; }

int64_t result_vector(int64_t columns) {
  int64_t vector = 8;
  while (columns % vector != 0) vector /= 2;
  return vector;
}

KernelSite result_site(const Problem& problem, const char* name, const Expr& expr, int64_t columns) {
  Expr y = without_last_rounding(expr);
  mark_whole_vectors(problem.fusion, y, last_axis(y), 8);
  if (result_vector(columns) < 8)
    for (Store& store : y.stores) store.access.whole_vectors = false;
  return {name, y, last_axis(y), fits_short_forms(y)};
}

// Site E as the part wants it: its vectors run along what passes.
KernelSite element_site(const Problem& problem, const Part& part) {
  Expr expr = problem.gradient.site;
  const GradientRoles& roles = problem.roles;
  if (!problem.is_plain()) {
    std::vector<int> yields;
    if (part.gives_values()) yields.push_back(expr.yields[static_cast<size_t>(roles.probabilities)]);
    if (part.stays_with_queries() || part.gives_keys())
      yields.push_back(expr.yields[static_cast<size_t>(roles.gradients)]);
    expr.yields = std::move(yields);
  }
  const int axis = part.stays_with_queries() ? last_axis(expr) : last_axis(expr) - 1;
  mark_whole_vectors(problem.fusion, expr, axis, 2);
  return {"E", expr, axis, true};
}

struct NamedSite {
  std::string field;
  KernelSite site;
};

std::vector<NamedSite> sites_of(const Problem& problem, const Part& part) {
  std::vector<NamedSite> sites;
  if (const auto& lengths = problem.gradient.lengths)
    sites.push_back({"n", {"N", *lengths, last_axis(*lengths)}});
  if (part.gives == Part::Gives::product) {
    sites.push_back({"dq", result_site(problem, "DQ", *problem.dq, problem.head)});
    return sites;
  }
  sites.push_back({"e", element_site(problem, part)});
  for (size_t i = 0; i < problem.gradient.rows.size(); ++i) {
    const Expr& row = problem.gradient.rows[i];
    sites.push_back({"r" + std::to_string(i), {"R" + std::to_string(i), row, last_axis(row)}});
  }
  if (part.stays_with_queries())
    sites.push_back({"dq", result_site(problem, "DQ", *problem.dq, problem.head)});
  if (part.gives_keys()) sites.push_back({"dk", result_site(problem, "DK", *problem.dk, problem.head)});
  if (part.gives_values()) sites.push_back({"dv", result_site(problem, "DV", *problem.dv, problem.value)});
  return sites;
}

std::vector<ConfigValue> config_of(const Schedule& schedule, const Part& part) {
  const Problem& problem = schedule.problem;
  std::vector<ConfigValue> config{{"index_bits", problem.index_bits},
                                  {"Element", problem.type},
                                  {"consumers", part.consumers},
                                  {"stages", part.stages},
                                  {"head", problem.padded_head()},
                                  {"limited", problem.gradient.lengths.has_value()},
                                  {"lower", problem.gradient.bounds.lower.size()},
                                  {"upper", problem.gradient.bounds.upper.size()}};
  if (part.gives == Part::Gives::product) return config;
  const std::vector<ConfigValue> more{{"step", part.step},
                                      {"value", problem.padded_value()},
                                      {"plain", problem.is_plain()},
                                      {"rounds", problem.gradient.rounds},
                                      {"row_values", problem.gradient.rows.size()}};
  config.insert(config.end(), more.begin(), more.end());
  if (part.stays_with_queries()) return config;
  config.emplace_back("gives_keys", part.gives_keys());
  config.emplace_back("gives_values", part.gives_values());
  config.emplace_back("spills", schedule.knobs.spill > 0 && part.gives_keys());
  return config;
}

// Entries of the keys with which a chunk begins.
int64_t first_entry(const Schedule& schedule, int64_t chunk) {
  int64_t first = 0;
  for (int64_t i = 0; i < chunk; ++i) first += schedule.chunk_entries(i);
  return first;
}

void append_spilled(Parameters& p, const Schedule& schedule, int64_t chunk) {
  p.scratch("gradients", "u8", 0);
  p.group("spilled", "Spilled", [&] {
    p.wide("keys", schedule.spilled_keys());
    p.wide("queries", schedule.spilled_queries());
    p.wide("first", first_entry(schedule, chunk) * schedule.problem.heads());
    p.wide("step", schedule.parts.front().tile);
  });
}

int64_t entries_of(const Schedule& schedule, const Part& part, int64_t chunk) {
  return schedule.chunk_entries(chunk) * (part.stays_with_queries() ? schedule.problem.heads() : 1);
}

Parameters parameters_of_product(const Schedule& schedule, const Part& part, int64_t chunk,
                                 const std::vector<NamedSite>& sites) {
  const Problem& problem = schedule.problem;
  Parameters p(problem.index_bits);
  append_map(p, "k", problem.k, part.step);
  p.wide("queries", problem.queries);
  p.wide("keys", problem.keys);
  p.wide("elements", problem.head);
  const int64_t entries = entries_of(schedule, part, chunk);
  append_queue(p, schedule.tiles(part), entries, std::min(schedule.section(part), entries));
  append_spilled(p, schedule, chunk);
  append_divisors(p, "extents", {problem.batch.begin(), problem.batch.end()});
  append_divisors(p, "shares", problem.shares);
  append_visible(p, problem.gradient.bounds);
  for (const NamedSite& each : sites) p.site(each.field, each.site, problem.fusion);
  return p;
}

Parameters parameters_of(const Schedule& schedule, const Part& part, int64_t chunk,
                         const std::vector<NamedSite>& sites) {
  const Problem& problem = schedule.problem;
  if (part.gives == Part::Gives::product) return parameters_of_product(schedule, part, chunk, sites);
  Parameters p(problem.index_bits);
  const bool by_queries = part.stays_with_queries();
  append_map(p, "q", problem.q, by_queries ? part.tile : part.step);
  append_map(p, "k", problem.k, by_queries ? part.step : part.tile);
  append_map(p, "v", problem.v, by_queries ? part.step : part.tile);
  append_map(p, "dy", problem.dy, by_queries ? part.tile : part.step);
  p.wide("queries", problem.queries);
  p.wide("keys", problem.keys);
  p.wide("elements", problem.head);
  p.wide("values", problem.value);
  p.wide("heads", by_queries ? 1 : problem.heads());
  const int64_t entries = entries_of(schedule, part, chunk);
  append_queue(p, schedule.tiles(part), entries, std::min(schedule.section(part), entries));
  if (!by_queries) p.wide("first", first_entry(schedule, chunk));
  if (schedule.knobs.spill > 0 && part.gives_keys()) append_spilled(p, schedule, chunk);
  std::vector<int64_t> extents(problem.batch.begin(), problem.batch.end());
  if (!by_queries)
    for (size_t axis = 0; axis < extents.size(); ++axis)
      extents[axis] /= problem.members[static_cast<int>(axis)];
  append_divisors(p, "extents", extents);
  if (!by_queries) append_divisors(p, "members", {problem.members.begin(), problem.members.end()});
  append_divisors(p, "shares", problem.shares);
  append_scale(p, "factor", problem.gradient.scale, problem.gradient.given_scale, kLog2e);
  append_visible(p, problem.gradient.bounds);
  for (const NamedSite& each : sites) p.site(each.field, each.site, problem.fusion);
  return p;
}

// Where a part's kernel is, and its name.
std::pair<const char*, const char*> kernel_of(const Part& part) {
  if (part.gives == Part::Gives::product)
    return {"sm90/attention/backward_spilled.cuh", "attention_backward_spilled"};
  if (part.stays_with_queries()) return {"sm90/attention/backward_queries.cuh", "attention_backward_queries"};
  return {"sm90/attention/backward_keys.cuh", "attention_backward_keys"};
}

Launch launch_of(const Schedule& schedule, const Part& part, int64_t chunk) {
  const Problem& problem = schedule.problem;
  const std::vector<NamedSite> sites = sites_of(problem, part);
  const auto [root, entry] = kernel_of(part);
  KernelSource source{.root = root,
                      .config = config_of(schedule, part),
                      .target = problem.device.target(),
                      .types = {"sm90/attention/tiles.cuh", "sm90/attention/spilled.cuh"}};
  for (const NamedSite& each : sites) source.sites.push_back(each.site);
  Launch launch;
  Parameters parameters = parameters_of(schedule, part, chunk, sites);
  parameters.move_to(std::move(source), launch);
  const int64_t items = schedule.tiles(part) * entries_of(schedule, part, chunk);
  const int64_t blocks =
      schedule.knobs.persistent != 0 ? std::min<int64_t>(items, problem.device.sm_count) : items;
  launch.entry = entry;
  launch.grid[0] = static_cast<uint32_t>(blocks);
  launch.block[0] = static_cast<uint32_t>((1 + part.consumers) * kWarpgroup);
  launch.shared_bytes = part.shared_bytes;
  return launch;
}

// Products of the part for each pair of a tile and a block, in elements of a head.
double products_of(const Problem& problem, const Part& part) {
  const auto head = static_cast<double>(problem.padded_head()),
             value = static_cast<double>(problem.padded_value());
  switch (part.gives) {
    case Part::Gives::queries:
    case Part::Gives::keys:
      return 2 * head + value;
    case Part::Gives::values:
      return head + value;
    case Part::Gives::product:
      return head;
    case Part::Gives::both:
      break;
  }
  return 2 * (head + value);
}

}  // namespace

namespace {

// Time beside the products that two consumers do not cover, as a share: in short heads exponentials and
// gradients weigh as much as products. Found on an H200 (2026-11) with heads of 64 at 512 to 8192.
double uncovered(const Schedule& schedule) {
  constexpr double kShort = 64, kLong = 128, kShare = 0.12;
  const Problem& problem = schedule.problem;
  const double head = static_cast<double>(problem.head + problem.value) / 2;
  if (schedule.knobs.consumers > 2) return 0;
  return kShare * std::clamp((kLong - head) / (kLong - kShort), 0.0, 1.0);
}

// Rounds in which the device takes a part's tiles, chunk by chunk, as a multiple of those without chunks.
double in_chunks(const Schedule& schedule, const Part& part) {
  const int64_t sms = schedule.problem.device.sm_count, tiles = schedule.tiles(part);
  int64_t rounds = 0;
  for (int64_t chunk = 0; chunk < schedule.chunks(); ++chunk)
    rounds += ceil_div(tiles * entries_of(schedule, part, chunk), sms);
  return static_cast<double>(rounds) /
         static_cast<double>(ceil_div(std::max<int64_t>(1, tiles * schedule.entries(part)), sms));
}

// Share of the products' pace that is left where the gradients that they write take longer.
double pace_of_writes(const Work& work, double bytes, const DeviceInfo& device) {
  const double products = work.tensor_flops / work.efficiency / device.tensor_flops_16;
  const double writes = bytes / (kWrittenPace * device.dram_bytes_per_s);
  return std::min(1.0, products / std::max(writes, 1e-12));
}

}  // namespace

Work cost(const Schedule& schedule) {
  const Problem& problem = schedule.problem;
  const SiteCost element = cost_of(problem.gradient.site, problem.fusion);
  Work work;
  work.dram_bytes = dram_bytes(problem.fusion);
  work.stages = 1;
  work.launches = static_cast<int>(std::ssize(schedule.parts) * schedule.chunks());
  double cycles = 0, written = 0;
  int64_t items = 0;
  for (const Part& part : schedule.parts) {
    const auto blocks = static_cast<double>(schedule.live_blocks(part) * problem.entries());
    const double scores = blocks * static_cast<double>(part.tile * part.step);
    const int64_t tiles = schedule.tiles(part) * schedule.entries(part);
    if (part.gives == Part::Gives::product) {
      // Written beside products, read by the product of keys, which waits for memory.
      work.dram_bytes += 2 * scores;
      written = 2 * scores;
      work.serial_dram_bytes += 2 * scores / kSpilledPace;
      continue;
    }
    work.tensor_flops += 2 * scores * products_of(problem, part) * in_chunks(schedule, part);
    work.special += scores * (problem.is_plain() ? 1 : element.special);
    work.fp32_flops += 2 * scores * (problem.is_plain() ? kSlots : kSlots + element.instructions);
    cycles +=
        static_cast<double>(tiles) * (kTileCycles + (schedule.knobs.persistent != 0 ? 0 : kStartCycles)) +
        blocks * kBlockCycles;
    items += tiles;
  }
  work.efficiency = 1 / (1 + uncovered(schedule));
  work.efficiency *= pace_of_writes(work, written, problem.device);
  // As in the forward pass: the hardware shares out uneven tiles better than blocks that take them in turn.
  const bool is_even = problem.gradient.bounds.lower.empty() && problem.gradient.bounds.upper.empty();
  if (schedule.knobs.persistent != 0 && !is_even) work.efficiency *= kInTurn;
  work.tiles = std::max<int64_t>(1, items / std::max<int64_t>(1, std::ssize(schedule.parts)));
  work.scratch_bytes = schedule.spilled_bytes();
  work.finish_cycles = cycles / static_cast<double>(work.tiles);
  return work;
}

Lowered lower(const Schedule& schedule) {
  const Problem& problem = schedule.problem;
  Lowered lowered;
  for (int64_t chunk = 0; chunk < schedule.chunks(); ++chunk)
    for (const Part& part : schedule.parts) lowered.steps.emplace_back(launch_of(schedule, part, chunk));
  if (schedule.knobs.spill > 0) lowered.scratch.push_back(schedule.spilled_bytes());
  std::vector<KernelSite> sites;
  for (const Part& part : schedule.parts)
    for (const NamedSite& each : sites_of(problem, part)) sites.push_back(each.site);
  lowered.guards = guards_of_sites(problem.fusion, sites);
  require_maps(lowered.guards, {&problem.q, &problem.k, &problem.v, &problem.dy});
  return lowered;
}

}  // namespace fusor::attention::backward
