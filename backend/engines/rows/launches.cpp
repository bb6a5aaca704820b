// Owns the kernel sources and the parameters of the kernels in codegen/device/rows.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "backend/engines/elementwise/vectors.h"
#include "backend/engines/guards.h"
#include "backend/engines/rows/schedule.h"
#include "codegen/text/parameters.h"
#include "codegen/text/rows/facts.h"
#include "codegen/text/rows/sizes.h"
#include "core/ceil_div.h"

namespace fusor {

namespace {

constexpr int64_t kColumnThreads = 512, kColumnWidth = 32, kFewColumnsWidth = 8;  // of rows_columns
constexpr int64_t kTotalsThreads = 256;                                           // of rows_totals
enum SplitScratch : int { kPartials, kTotals };  // of resident rows: the first

KernelSource source_of(const RowsProblem& problem, const RowsSchedule& s, const char* root) {
  KernelSource source;
  source.root = root;
  source.sites = {s.y()};
  source.sites.front().tails = s.row_tails;
  source.target = problem.device.target();
  source.config = {{"index_bits", problem.index_bits}, {"vector", s.knobs.vector}};
  return source;
}

// The extents, that of the vector axis in vectors.
Dims extents_of(const RowsProblem& problem, const RowsSchedule& s) {
  Dims extents = problem.domain();
  extents[s.y().vector_axis] = ceil_div(extents[s.y().vector_axis], s.knobs.vector);
  return extents;
}

int64_t row_extent(const RowsProblem& problem) { return problem.domain()[problem.domain().rank() - 1]; }

void add_config(KernelSource& source, const std::vector<ConfigValue>& config) {
  source.config.insert(source.config.end(), config.begin(), config.end());
}

// Whether each row begins where the one before it ends, in all that is copied.
bool has_adjacent_rows(const KernelSite& site) {
  const RowFacts facts(site);
  const Dims& domain = site.expr.domain;
  for (int i = 0; i < std::ssize(site.expr.nodes); ++i) {
    const Node& node = site.expr.node(i);
    if (node.kind != Node::Kind::load || facts.places[static_cast<size_t>(i)] != RowPlace::element ||
        facts.is_fixed(site.expr, i))
      continue;
    int64_t next = domain[domain.rank() - 1];
    for (int axis = site.kept - 1; axis >= 0; --axis) {
      if (domain[axis] != 1 && node.access.strides[axis] != next) return false;
      next *= domain[axis];
    }
  }
  return true;
}

// Blocks of an SM that the compiler makes room for. Where registers hold a block's row as it was loaded,
// kOthers more and those of what is the same for all rows (widened) are enough; left to itself, the compiler
// takes a few more, and an SM has room for fewer blocks.
int64_t blocks_with_room(const RowsProblem& problem, const RowsSchedule& s) {
  constexpr int64_t kOthers = 32, kGranule = 8;
  if (s.persistent) return s.knobs.blocks;
  const bool holds_one_row = s.repacks && s.slots() == 1 && s.knobs.batch == 1 && !problem.spread;
  if (!holds_one_row || !s.y().short_forms || problem.index_bits == 64) return 1;
  const int64_t words = s.units * s.form->held / 4 + s.form->fixed / 2;
  const int64_t blocks =
      problem.device.registers_per_sm / (s.knobs.threads * round_up(words + kOthers, kGranule));
  return std::clamp<int64_t>(blocks, 1, problem.device.max_threads_per_sm / s.knobs.threads);
}

Launch rows_launch(const RowsProblem& problem, const RowsSchedule& s) {
  KernelSource source = source_of(problem, s, s.in_ring() ? "rows/ring.cuh" : "rows/rows.cuh");
  if (s.knobs.held != RowsKnobs::in_memory)
    elementwise::mark_large(problem.device, source.sites.front(), s.knobs.vector);
  add_config(source, {{"threads", s.knobs.threads},
                      {"group", s.knobs.group},
                      {"cluster", s.knobs.cluster},
                      {"held", s.knobs.held},
                      {"batch", s.knobs.batch},
                      {"units", s.is_unrolled() ? s.units : 1},
                      {"unroll", s.unroll},
                      {"spread", problem.spread},
                      {"whole", s.is_whole()},
                      {"row_tails", s.row_tails},
                      {"repacks", s.repacks},
                      {"split", false},
                      {"persistent", s.persistent},
                      {"columns", s.has_columns()},
                      {"blocks", blocks_with_room(problem, s)}});
  if (s.in_ring()) add_config(source, {{"stages", s.stages}});

  Parameters p(problem.index_bits);
  p.index("rows", s.rows);
  p.index("row_step", s.row_step());
  p.index("vectors", s.vectors);
  p.index("units", s.units);
  p.index("row_extent", row_extent(problem));
  if (s.in_ring()) p.index("adjacent", has_adjacent_rows(s.y()));
  if (s.has_columns()) p.scratch("partials", "Y::Columns", 0);
  p.divisors("extents", extents_of(problem, s));
  p.site("y", s.y(), problem.fusion);

  Launch launch;
  launch.entry = s.in_ring() ? "rows_ring" : "rows";
  launch.grid = {static_cast<uint32_t>(s.grid), 1, 1};
  launch.block = {static_cast<uint32_t>(s.knobs.threads), 1, 1};
  launch.cluster = {static_cast<uint32_t>(s.knobs.cluster), 1, 1};
  launch.shared_bytes = s.shared_bytes;
  p.move_to(std::move(source), launch);
  return launch;
}

Launch columns_launch(const RowsProblem& problem, const RowsSchedule& s) {
  Parameters p(problem.index_bits);
  p.scratch("partials", "const Y::Columns", 0);
  p.index("columns", s.column_count());
  p.index("vectors", s.vectors);
  p.index("parts", s.parts());
  p.index("row_extent", row_extent(problem));
  p.divisors("extents", extents_of(problem, s));
  p.site("y", s.y(), problem.fusion);

  // Few columns are few blocks: each column's parts are then added up by more threads.
  const bool is_few = s.column_count() / kColumnWidth < problem.device.sm_count / 2;
  const int64_t width = is_few ? kFewColumnsWidth : kColumnWidth;
  Launch launch;
  launch.entry = "rows_columns";
  launch.grid = {static_cast<uint32_t>(ceil_div(s.column_count(), width)), 1, 1};
  launch.block = {static_cast<uint32_t>(kColumnThreads), 1, 1};
  KernelSource source = source_of(problem, s, "rows/columns.cuh");
  add_config(source, {{"width", width}});
  p.move_to(std::move(source), launch);
  return launch;
}

// ---- Rows that blocks share by launches ----

KernelSource split_source(const RowsProblem& problem, const RowsSchedule& s, const char* root) {
  KernelSource source = source_of(problem, s, root);
  add_config(source, {{"threads", s.knobs.threads},
                      {"group", s.knobs.group},
                      {"cluster", 1},
                      {"batch", 1},
                      {"units", 1},
                      {"unroll", s.unroll},
                      {"spread", problem.spread},
                      {"whole", s.is_whole()},
                      {"row_tails", s.row_tails},
                      {"repacks", false},
                      {"split", true},
                      {"shared_places", s.y().has_shared_places},
                      {"blocks", s.knobs.blocks}});
  return source;
}

// Phase number `phase_count` computes the elements.
Launch split_launch(const RowsProblem& problem, const RowsSchedule& s, int phase, const RowFacts& facts) {
  KernelSource source = split_source(problem, s, "rows/split.cuh");
  add_config(source, {{"phase", phase}});

  const bool finishes = phase == facts.phase_count;
  // Values of rows alone are a block's.
  const int64_t sharing = finishes && !stores_elements(s.y()) ? 1 : s.sharing;
  Parameters p(problem.index_bits);
  p.index("rows", s.rows);
  p.index("vectors", s.vectors);
  p.index("units", s.units);
  p.index("parts", sharing);
  p.index("row_extent", row_extent(problem));
  p.wide("cells", s.cells());
  if (!finishes) p.scratch("partials", "char", kPartials);
  p.scratch("totals", "const char", kTotals);
  if (s.y().has_shared_places) p.divisors("fold", std::array{problem.fold});
  p.divisors("extents", extents_of(problem, s));
  p.site("y", s.y(), problem.fusion);

  Launch launch;
  launch.entry = "rows_split";
  launch.grid = {static_cast<uint32_t>(sharing), static_cast<uint32_t>(s.grid / s.sharing), 1};
  launch.block = {static_cast<uint32_t>(s.knobs.threads), 1, 1};
  p.move_to(std::move(source), launch);
  launch.turn_at = -1;  // it always waits
  return launch;
}

Launch totals_launch(const RowsProblem& problem, const RowsSchedule& s, int phase) {
  KernelSource source = source_of(problem, s, "rows/totals.cuh");
  const int64_t results = s.cells() / problem.fold, parts = s.sharing * problem.fold;
  const int64_t group = parts > kWarp ? kTotalsThreads : kWarp;
  add_config(source, {{"phase", phase}, {"group", group}});
  Parameters p(problem.index_bits);
  p.index("results", results);
  p.index("parts", parts);
  p.index("fold", problem.fold);
  p.scratch("partials", "const char", kPartials);
  p.scratch("totals", "char", kTotals, phase * s.cells() * s.form->totals);

  Launch launch;
  launch.entry = "rows_totals";
  launch.grid = {static_cast<uint32_t>(ceil_div(results * group, kTotalsThreads)), 1, 1};
  launch.block = {static_cast<uint32_t>(kTotalsThreads), 1, 1};
  p.move_to(std::move(source), launch);
  return launch;
}

Launch resident_launch(const RowsProblem& problem, const RowsSchedule& s) {
  Parameters p(problem.index_bits);
  p.index("rows", s.rows);
  p.index("vectors", s.vectors);
  p.index("units", s.units);
  p.index("parts", s.sharing);
  p.index("row_extent", row_extent(problem));
  p.index("lanes", s.lanes_of_result(problem.fold));
  p.wide("cells", s.cells());
  p.scratch("partials", "char", kPartials);
  p.divisors("fold", std::array{problem.fold});
  p.divisors("extents", extents_of(problem, s));
  p.site("y", s.y(), problem.fusion);
  KernelSource source = split_source(problem, s, problem.across ? "rows/turned.cuh" : "rows/resident.cuh");
  add_config(source, {{"folds", problem.fold > 1}});
  if (problem.across) {
    source.sites.push_back(*problem.across);
    source.sites.back().joins = s.y().joins;
    p.site("z", source.sites.back(), problem.fusion);
  }

  Launch launch;
  launch.entry = problem.across ? "rows_turned" : "rows_resident";
  launch.grid = {static_cast<uint32_t>(s.sharing), static_cast<uint32_t>(s.grid / s.sharing), 1};
  launch.block = {static_cast<uint32_t>(s.knobs.threads), 1, 1};
  launch.shared_bytes = s.shared_bytes;
  launch.cooperative = true;
  p.move_to(std::move(source), launch);
  launch.turn_at = -1;  // it always waits
  return launch;
}

void add_split_steps(Lowered& lowered, const RowsProblem& problem, const RowsSchedule& s) {
  const RowFacts& facts = s.form->facts;
  const int64_t bytes = s.cells() * s.form->totals;
  if (s.is_resident()) {
    lowered.scratch = {bytes / problem.fold * s.sharing * facts.phase_count};
    lowered.steps.emplace_back(resident_launch(problem, s));
    return;
  }
  lowered.scratch = {bytes * s.sharing, bytes * facts.phase_count};
  for (int phase = 0; phase < facts.phase_count; ++phase) {
    lowered.steps.emplace_back(split_launch(problem, s, phase, facts));
    lowered.steps.emplace_back(totals_launch(problem, s, phase));
  }
  lowered.steps.emplace_back(split_launch(problem, s, facts.phase_count, facts));
}

}  // namespace

Lowered lower(const RowsProblem& problem, const RowsSchedule& s) {
  Lowered lowered;
  if (s.is_split()) {
    add_split_steps(lowered, problem, s);
  } else {
    lowered.steps.emplace_back(rows_launch(problem, s));
    if (s.has_columns()) {
      lowered.scratch.push_back(s.scratch_bytes());
      lowered.steps.emplace_back(columns_launch(problem, s));
    }
  }
  guard_accesses(lowered.guards, s.y(), s.knobs.vector);
  return lowered;
}

}  // namespace fusor
