// Owns what the backward engine launches, and what that costs.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "backend/engines/attention/form.h"
#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/sm90/attention/arguments.h"
#include "backend/engines/sm90/attention/backward.h"
#include "backend/engines/sm90/attention/dropout.h"
#include "codegen/text/parameters.h"

namespace fusor::attention::backward {

namespace {

constexpr int64_t kWarpgroup = 128;

// Instructions for a probability and a gradient; cycles that a tile takes beside its blocks (also where
// launches follow each other without a gap), and a block beside its products.
constexpr double kSlots = 8, kTileCycles = 3000, kChainedTileCycles = 10000, kBlockCycles = 500,
                 kStartCycles = 1500;
// Cycles of an SM for each score that a bias is loaded for, on an H200 (2026-11).
constexpr double kLoadCycles = 0.2;
// The pace of uneven tiles that blocks take in turn, measured on an H200 (2026-11).
constexpr double kInTurn = 0.94;
// Shares of memory's pace at which spilled gradients are read, and written beside products. The second was
// found alike for heads of 64 and of 128, from 512 to 16384 queries, on an H200 (2026-11).
constexpr double kSpilledPace = 0.95, kWrittenPace = 0.3;
// Launches that follow each other without a gap: the pace of chunks that have few tiles, that of two chunks,
// that of two buffers, which one launch empties just before the next one fills it; and what a launch takes of
// one that waits for the end of the one before. Where lengths leave tiles empty, as much as these tiles more.
// Measured on an H200 (2026-11), heads of 128, 64 to 512 tiles a chunk.
constexpr double kTilesOfOthers = 64, kTilesForAll = 72, kTwoChunks = 0.985, kTwoBuffers = 0.96,
                 kTwoBuffersOfEven = 0.92, kTwoBuffersOfUneven = 0.97, kCloseLaunch = 0.4, kUnevenTiles = 40;

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

// Gradients of scores for others: four keys at a time.
KernelSite stored_site(const Problem& problem) {
  Expr expr = *problem.gradient.stored;
  mark_whole_vectors(problem.fusion, expr, last_axis(expr), 4);
  return {"DS", expr, last_axis(expr), fits_short_forms(expr)};
}

struct NamedSite {
  std::string field;
  KernelSite site;
};

// A result, and where its entries begin and end, where the device knows.
void add_result(const Problem& problem, std::vector<NamedSite>& sites, const std::string& field,
                const std::string& name, const std::optional<Expr>& y,
                const std::optional<RaggedResult>& placed, int64_t columns) {
  sites.push_back({field, result_site(problem, name.c_str(), placed ? placed->value : *y, columns)});
  if (placed)
    sites.push_back(
        {"p" + field.substr(1), {"P" + name.substr(1), placed->bounds, last_axis(placed->bounds)}});
}

std::vector<NamedSite> sites_of(const Problem& problem, const Part& part) {
  std::vector<NamedSite> sites;
  if (const auto& lengths = problem.gradient.lengths)
    sites.push_back({"n", {"N", *lengths, last_axis(*lengths)}});
  if (part.gives == Part::Gives::product) {
    add_result(problem, sites, "dq", "DQ", problem.dq, problem.placed_dq, problem.head);
    return sites;
  }
  sites.push_back({"e", element_site(problem, part)});
  if (const ValueMask* mask = problem.mask()) {
    // Numbers of what passes come in pairs.
    sites.push_back({"r", {"R", mask->of_query, last_axis(mask->of_query) - 1}});
    sites.push_back({"c", {"C", mask->of_key, last_axis(mask->of_key)}});
  }
  if (const auto& keep = problem.gradient.keep)
    sites.push_back({"m", kept_site(*keep, part.stays_with_queries())});
  for (size_t i = 0; i < problem.gradient.rows.size(); ++i) {
    const Expr& row = problem.gradient.rows[i];
    sites.push_back({"r" + std::to_string(i), {"R" + std::to_string(i), row, last_axis(row)}});
  }
  if (part.stays_with_queries())
    add_result(problem, sites, "dq", "DQ", problem.dq, problem.placed_dq, problem.head);
  if (part.gives_keys() && problem.gradient.stored) sites.push_back({"ds", stored_site(problem)});
  if (part.gives_keys()) add_result(problem, sites, "dk", "DK", problem.dk, problem.placed_dk, problem.head);
  if (part.gives_values())
    add_result(problem, sites, "dv", "DV", problem.dv, problem.placed_dv, problem.value);
  return sites;
}

size_t part_number(const Schedule& schedule, const Part& part) {
  return static_cast<size_t>(&part - schedule.parts.data());
}

std::vector<ConfigValue> config_of(const Schedule& schedule, const Part& part) {
  const Problem& problem = schedule.problem;
  std::vector<ConfigValue> config{{"index_bits", problem.index_bits},
                                  {"Element", problem.type},
                                  {"consumers", part.consumers},
                                  {"stages", part.stages},
                                  {"head", problem.padded_head()},
                                  {"limited", problem.gradient.lengths.has_value()},
                                  {"ragged", schedule.has_ragged()},
                                  {"ordered", schedule.ragged(part_number(schedule, part)).is_ordered()},
                                  {"placed_dq", problem.placed_dq.has_value()},
                                  {"placed_dk", problem.placed_dk.has_value()},
                                  {"placed_dv", problem.placed_dv.has_value()},
                                  {"lower", problem.gradient.bounds.lower.size()},
                                  {"upper", problem.gradient.bounds.upper.size()}};
  if (part.gives != Part::Gives::queries) config.emplace_back("chained", schedule.is_chained());
  if (part.gives == Part::Gives::product) return config;
  const std::vector<ConfigValue> more{
      {"step", part.step},
      {"shared_bytes", part.shared_bytes},
      {"value", problem.padded_value()},
      {"plain", problem.is_plain()},
      {"drops", problem.gradient.keep.has_value()},
      {"shares_words", problem.gradient.keep && shares_words(*problem.gradient.keep)},
      {"rounds", problem.gradient.rounds},
      {"row_values", problem.gradient.rows.size()}};
  config.insert(config.end(), more.begin(), more.end());
  append_mask(config, problem.mask(), schedule.words(part_number(schedule, part)));
  if (part.stays_with_queries()) return config;
  config.emplace_back("gives_keys", part.gives_keys());
  config.emplace_back("gives_values", part.gives_values());
  config.emplace_back("spills", schedule.knobs.spill > 0 && part.gives_keys());
  config.emplace_back("stores", part.gives_keys() && problem.gradient.stored.has_value());
  return config;
}

// Entries of the keys with which a chunk begins.
int64_t first_entry(const Schedule& schedule, int64_t chunk) {
  int64_t first = 0;
  for (int64_t i = 0; i < chunk; ++i) first += schedule.chunk_entries(i);
  return first;
}

// Where tiles have an order, a chunk is some heads of all sequences, else some entries of the batch.
bool is_ordered(const Schedule& schedule) { return schedule.has_ragged() && schedule.ragged(0).is_ordered(); }

void append_spilled(Parameters& p, const Schedule& schedule, int64_t chunk) {
  const Problem& problem = schedule.problem;
  const int64_t heads = problem.entries() / problem.batch[0];
  p.scratch("gradients", "u8", 0,
            schedule.counter_bytes() + chunk % schedule.buffers() * schedule.buffer_bytes());
  p.group("spilled", "Spilled", [&] {
    p.wide("blocks", schedule.spilled_blocks());
    p.wide("queries", schedule.spilled_queries());
    p.wide("beside", schedule.spilled_beside());
    p.wide("all", is_ordered(schedule) ? heads : problem.entries());
    p.wide("part", is_ordered(schedule) ? heads / schedule.chunks() : problem.entries());
    p.wide("first", is_ordered(schedule) ? chunk * (heads / schedule.chunks())
                                         : first_entry(schedule, chunk) * problem.heads());
    p.wide("step", schedule.parts.front().tile);
  });
}

// One launch: a part for a chunk, and its number among all launches. The product of a chunk is launched
// behind the keys of the next chunk, so that neither waits for the last blocks of the other.
struct Turn {
  const Part* part;
  int64_t chunk, number;
};

std::vector<Turn> turns_of(const Schedule& schedule) {
  std::vector<Turn> turns;
  const auto add = [&](const Part& part, int64_t chunk) {
    turns.push_back({&part, chunk, std::ssize(turns)});
  };
  if (!schedule.is_chained()) {
    for (const Part& part : schedule.parts) add(part, 0);
    return turns;
  }
  const Part &keys = schedule.parts.front(), &product = schedule.parts.back();
  for (int64_t chunk = 0; chunk < schedule.chunks(); ++chunk) {
    add(keys, chunk);
    if (chunk > 0) add(product, chunk - 1);
  }
  add(product, schedule.chunks() - 1);
  return turns;
}

int64_t entries_of(const Schedule& schedule, const Part& part, int64_t chunk) {
  return schedule.chunk_entries(chunk) * (part.stays_with_queries() ? schedule.problem.heads() : 1);
}

int64_t blocks_of(const Schedule& schedule, const Turn& turn) {
  const int64_t items = schedule.tiles(*turn.part) * entries_of(schedule, *turn.part, turn.chunk);
  return schedule.knobs.persistent != 0 ? std::min<int64_t>(items, schedule.problem.device.sm_count) : items;
}

// A launch waits for the one that wrote what it reads, or read what it writes.
void append_chain(Parameters& p, const Schedule& schedule, const Turn& turn) {
  const std::vector<Turn> all = turns_of(schedule);
  const auto warps = [&](const Turn& one) {
    return blocks_of(schedule, one) * one.part->consumers * (kWarpgroup / 32);
  };
  const bool is_product = turn.part->gives == Part::Gives::product;
  const int64_t wanted = is_product ? turn.chunk : turn.chunk - schedule.buffers();
  const auto before = std::ranges::find_if(
      all, [&](const Turn& one) { return one.chunk == wanted && one.part != turn.part; });
  p.group("chain", "Chain", [&] {
    p.scratch("counters", "u32", 0);
    p.wide("own", turn.number);
    p.wide("warps", warps(turn));
    p.wide("before", before == all.end() ? 0 : before->number);
    p.wide("awaited", before == all.end() ? 0 : warps(*before));
    p.wide("others", turn.number + 1 == std::ssize(all) ? turn.number : 0);
  });
}

Parameters parameters_of_product(const Schedule& schedule, const Turn& turn,
                                 const std::vector<NamedSite>& sites) {
  const Problem& problem = schedule.problem;
  const Part& part = *turn.part;
  const int64_t chunk = turn.chunk;
  Parameters p(problem.index_bits);
  const RaggedOperands ragged = schedule.ragged(part_number(schedule, part));
  ragged.append(p, "k", problem.k, part.step);
  if (problem.placed_dq) append_result(p, "to_dq", *problem.placed_dq);
  p.wide("queries", problem.queries);
  p.wide("keys", problem.keys);
  p.wide("elements", problem.head);
  const int64_t entries = entries_of(schedule, part, chunk);
  append_queue(p, schedule.tiles(part), entries, std::min(schedule.section(part), entries));
  ragged.append_order(p, chunk);
  append_spilled(p, schedule, chunk);
  if (schedule.is_chained()) append_chain(p, schedule, turn);
  append_divisors(p, "extents", {problem.batch.begin(), problem.batch.end()});
  append_divisors(p, "shares", problem.shares);
  append_visible(p, problem.gradient.bounds);
  for (const NamedSite& each : sites) p.site(each.field, each.site, problem.fusion);
  return p;
}

Parameters parameters_of(const Schedule& schedule, const Turn& turn, const std::vector<NamedSite>& sites) {
  const Problem& problem = schedule.problem;
  const Part& part = *turn.part;
  const int64_t chunk = turn.chunk;
  if (part.gives == Part::Gives::product) return parameters_of_product(schedule, turn, sites);
  Parameters p(problem.index_bits);
  const bool by_queries = part.stays_with_queries();
  const RaggedOperands ragged = schedule.ragged(part_number(schedule, part));
  struct Field {
    const char* name;
    const Rows& rows;
    int64_t box;
  };
  const int64_t of_queries = by_queries ? part.tile : part.step, of_keys = by_queries ? part.step : part.tile;
  // Maps come first: they begin on multiples of 64 bytes.
  for (const bool is_ragged : {false, true})
    for (const Field& field : {Field{"q", problem.q, of_queries},
                               {"k", problem.k, of_keys},
                               {"v", problem.v, of_keys},
                               {"dy", problem.dy, of_queries}})
      if (field.rows.is_ragged() == is_ragged) ragged.append(p, field.name, field.rows, field.box);
  if (by_queries && problem.placed_dq) append_result(p, "to_dq", *problem.placed_dq);
  if (part.gives_keys() && problem.placed_dk) append_result(p, "to_dk", *problem.placed_dk);
  if (part.gives_values() && problem.placed_dv) append_result(p, "to_dv", *problem.placed_dv);
  p.wide("queries", problem.queries);
  p.wide("keys", problem.keys);
  p.wide("elements", problem.head);
  p.wide("values", problem.value);
  p.wide("heads", by_queries ? 1 : problem.heads());
  const int64_t entries = entries_of(schedule, part, chunk);
  append_queue(p, schedule.tiles(part), entries, std::min(schedule.section(part), entries));
  ragged.append_order(p, chunk);
  if (const auto ranges = schedule.ranges(part_number(schedule, part))) ranges->append(p);
  if (!by_queries) p.wide("first", is_ordered(schedule) ? 0 : first_entry(schedule, chunk));
  if (schedule.knobs.spill > 0 && part.gives_keys()) append_spilled(p, schedule, chunk);
  if (schedule.is_chained()) append_chain(p, schedule, turn);
  std::vector<int64_t> extents(problem.batch.begin(), problem.batch.end());
  if (!by_queries)
    for (size_t axis = 0; axis < extents.size(); ++axis)
      extents[axis] /= problem.members[static_cast<int>(axis)];
  append_divisors(p, "extents", extents);
  if (!by_queries) append_divisors(p, "members", {problem.members.begin(), problem.members.end()});
  append_divisors(p, "shares", problem.shares);
  append_scale(p, "factor", problem.gradient.scale, problem.gradient.given_scale, kLog2e);
  if (problem.gradient.keep) {
    p.real("kept_log2", std::log2(problem.gradient.kept_weight));
    p.real("kept_inverse", 1 / problem.gradient.product_weight);
  }
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

Launch launch_of(const Schedule& schedule, const Turn& turn) {
  const Problem& problem = schedule.problem;
  const Part& part = *turn.part;
  const std::vector<NamedSite> sites = sites_of(problem, part);
  const auto [root, entry] = kernel_of(part);
  KernelSource source{
      .root = root,
      .config = config_of(schedule, part),
      .target = problem.device.target(),
      .types = {"sm90/attention/tiles.cuh", "sm90/attention/spilled.cuh", "sm90/attention/chain.cuh",
                "sm90/attention/ragged.cuh", "sm90/attention/order.cuh"}};
  if (schedule.words(part_number(schedule, part)) > 0)
    source.types.emplace_back("sm90/attention/live_blocks.cuh");
  for (const NamedSite& each : sites) source.sites.push_back(each.site);
  Launch launch;
  Parameters parameters = parameters_of(schedule, turn, sites);
  parameters.move_to(std::move(source), launch);
  launch.turn_at = -1;  // it always waits
  launch.entry = entry;
  launch.grid[0] = static_cast<uint32_t>(blocks_of(schedule, turn));
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

// Time beside the products that consumers do not cover, as a share. In short heads exponentials and gradients
// weigh as much as products; launches that follow each other without a gap write gradients while others read
// them. Found on an H200 (2026-11) with heads of 64 and of 128 at 512 to 16384.
double uncovered(const Schedule& schedule) {
  constexpr double kShort = 64, kLong = 128, kShare = 0.12, kShareOfFewRows = 0.07, kShareOfChained = 0.12;
  if (schedule.is_chained()) return kShareOfChained;
  const Problem& problem = schedule.problem;
  const double head = static_cast<double>(problem.head + problem.value) / 2;
  const double shortness = std::clamp((kLong - head) / (kLong - kShort), 0.0, 1.0);
  const bool has_few_rows = schedule.knobs.consumers > 2 || schedule.knobs.step_q <= 64;
  return (has_few_rows ? kShareOfFewRows : kShare) * shortness;
}

bool is_even(const Problem& problem) {
  return problem.gradient.bounds.lower.empty() && problem.gradient.bounds.upper.empty();
}

// Pace of launches that follow each other without a gap, by the number of chunks. In short heads a chunk's
// gradients are written and read at memory's pace, and the first write and the last read have no products of
// another chunk beside them: the fewer the chunks, the longer these two take. Found on an H200 (2026-11) with
// heads of 64 at 8192 and 16384, in 4 to 32 chunks.
double pace_of_short_heads(const Schedule& schedule) {
  constexpr int64_t kShort = 64;
  constexpr double kEnds = 0.3, kFitted = 8;
  if (schedule.problem.head > kShort || schedule.problem.value > kShort) return 1;
  return 1 + kEnds / kFitted - kEnds / static_cast<double>(schedule.chunks());
}

// Pace of launches that follow each other without a gap, whose tiles are those of one chunk, of the next and
// of the one before; and of any launches where about half of the tiles have nothing to do.
double pace_of_tiles(const Schedule& schedule) {
  const Part& part = schedule.parts.front();
  const auto tiles = static_cast<double>(schedule.tiles(part) * schedule.entries(part)) /
                     static_cast<double>(schedule.chunks());
  const bool takes_turns = schedule.buffers() < std::min<int64_t>(3, schedule.chunks());
  const double sms = schedule.problem.device.sm_count;
  if (schedule.problem.gradient.lengths) {
    // All run at once: none waits for the last.
    if (!schedule.is_chained() && tiles <= sms) return 1;
    const bool even = is_even(schedule.problem);
    double pace = tiles / (tiles + 2 * (even ? kUnevenTiles / 2 : kUnevenTiles));
    // Each of two kernels waits for its own last tiles.
    if (!schedule.is_chained()) pace *= pace;
    if (takes_turns) pace *= even ? kTwoBuffersOfEven : kTwoBuffersOfUneven;
    return is_ordered(schedule) ? pace : pace * kInTurn;
  }
  if (!schedule.is_chained()) return 1;
  const double filled = std::min(1.0, (tiles + kTilesOfOthers) / (sms + kTilesForAll));
  const double pace = filled * pace_of_short_heads(schedule);
  if (schedule.chunks() == 2) return kTwoChunks * pace;
  return takes_turns ? kTwoBuffers * pace : pace;
}

// Elements that site E loads of each score.
double loads_of_score(const Expr& site) {
  const int keys = last_axis(site);
  const auto is_of_elements = [&](const Access& access) {
    return access.strides[keys] != 0 && access.strides[keys - 1] != 0;
  };
  const auto loads = std::ranges::count_if(site.nodes, [&](const Node& node) {
    return node.kind == Node::Kind::load && is_of_elements(node.access);
  });
  return static_cast<double>(loads);
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
  work.launches = static_cast<int>(std::ssize(schedule.parts));
  if (schedule.is_chained())
    work.launches += static_cast<int>(std::lround(kCloseLaunch * static_cast<double>(2 * schedule.chunks())));
  const double loads = loads_of_score(problem.gradient.site);
  double cycles = 0, written = 0, drops = 0;
  int64_t items = 0;
  for (const Part& part : schedule.parts) {
    const auto ranges = schedule.ranges(part_number(schedule, part));
    const double share = ranges ? live_share(part.tile, part.step) : 1;
    const double blocks = share * static_cast<double>(schedule.live_blocks(part) * problem.entries());
    const double scores = blocks * static_cast<double>(part.tile * part.step);
    const int64_t tiles = schedule.tiles(part) * schedule.entries(part);
    if (ranges) {
      ++work.launches;
      work.scratch_bytes = ranges->end_byte();
    }
    if (part.gives == Part::Gives::product) {
      // Written beside products, read by the product of keys, which waits for memory.
      work.dram_bytes += 2 * scores;
      written = 2 * scores;
      work.serial_dram_bytes += 2 * scores / kSpilledPace;
      continue;
    }
    work.tensor_flops += 2 * scores * products_of(problem, part);
    if (const auto& keep = problem.gradient.keep)
      drops += 2 * scores * cost_of(*keep, problem.fusion).instructions / problem.device.fp32_flops;
    cycles += kLoadCycles * loads * scores;
    work.special += scores * (problem.is_plain() ? 1 : element.special);
    work.fp32_flops += 2 * scores * (kSlots + (problem.is_plain() ? 0 : element.instructions));
    const double of_tile = schedule.is_chained() ? kChainedTileCycles : kTileCycles;
    cycles += static_cast<double>(tiles) * (of_tile + (schedule.knobs.persistent != 0 ? 0 : kStartCycles)) +
              blocks * kBlockCycles;
    items += tiles;
  }
  const double products = work.tensor_flops / problem.device.tensor_flops_16;
  work.efficiency = 1 / (1 + uncovered(schedule) + drops / products);
  if (!schedule.is_chained()) work.efficiency *= pace_of_writes(work, written, problem.device);
  // As in the forward pass: the hardware shares out uneven tiles better than blocks that take them in turn.
  // Where blocks are passed over, the next tile's are found beside this one's.
  const bool in_turn = schedule.knobs.persistent != 0 && !is_ordered(schedule) && !schedule.is_chained() &&
                       !schedule.ranges(0);
  if (in_turn && !is_even(problem)) work.efficiency *= kInTurn;
  work.efficiency *= pace_of_tiles(schedule);
  work.tiles = std::max<int64_t>(1, items / std::max<int64_t>(1, std::ssize(schedule.parts)));
  work.scratch_bytes += schedule.spilled_bytes();
  if (schedule.has_ragged()) {
    work.scratch_bytes += schedule.ragged(schedule.parts.size() - 1).end_byte();
    work.launches += static_cast<int>(std::ssize(schedule.parts));
  }
  work.finish_cycles = cycles / static_cast<double>(work.tiles);
  return work;
}

Lowered lower(const Schedule& schedule) {
  const Problem& problem = schedule.problem;
  Lowered lowered;
  std::vector<KernelSite> sites;
  if (schedule.has_ragged())
    for (size_t i = 0; i < schedule.parts.size(); ++i)
      if (const RaggedOperands ragged = schedule.ragged(i); !ragged.empty())
        lowered.steps.emplace_back(
            ragged.maps(problem.fusion, problem.device.target(), problem.index_bits, sites));
  for (size_t i = 0; i < schedule.parts.size(); ++i)
    if (const auto ranges = schedule.ranges(i)) {
      lowered.steps.emplace_back(
          ranges->launch(problem.fusion, problem.device.target(), problem.index_bits, sites));
      lowered.scratch = {ranges->end_byte()};
    }
  if (schedule.is_chained()) lowered.steps.emplace_back(Fill{0, schedule.counter_bytes(), 0});
  for (const Turn& turn : turns_of(schedule)) lowered.steps.emplace_back(launch_of(schedule, turn));
  if (schedule.knobs.spill > 0) lowered.scratch.push_back(schedule.spilled_bytes());
  if (schedule.has_ragged()) lowered.scratch.push_back(schedule.ragged(schedule.parts.size() - 1).end_byte());
  for (const Part& part : schedule.parts)
    for (const NamedSite& each : sites_of(problem, part)) sites.push_back(each.site);
  lowered.guards = guards_of_sites(problem.fusion, sites);
  require_maps(lowered.guards, {&problem.q, &problem.k, &problem.v, &problem.dy});
  return lowered;
}

}  // namespace fusor::attention::backward
