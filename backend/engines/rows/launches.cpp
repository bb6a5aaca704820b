// Owns the kernel sources and the parameters of the kernels in codegen/device/rows.
#include <algorithm>
#include <utility>
#include <vector>

#include "backend/engines/rows/schedule.h"
#include "codegen/parameters.h"
#include "core/ceil_div.h"

namespace fusor {

namespace {

constexpr int64_t kColumnThreads = 256, kColumnWidth = 32;  // of rows_columns

KernelSource source_of(const RowsProblem& problem, const RowsSchedule& s, const char* root) {
  KernelSource source;
  source.root = root;
  source.sites = {s.y};
  source.target = problem.device.target();
  source.config = {{"index_bits", problem.index_bits}, {"vector", s.knobs.vector}};
  return source;
}

// The extents, that of the vector axis in vectors.
Dims extents_of(const RowsProblem& problem, const RowsSchedule& s) {
  Dims extents = problem.domain();
  extents[s.y.vector_axis] = ceil_div(extents[s.y.vector_axis], s.knobs.vector);
  return extents;
}

int64_t row_extent(const RowsProblem& problem) { return problem.domain()[problem.domain().rank() - 1]; }

Launch rows_launch(const RowsProblem& problem, const RowsSchedule& s) {
  KernelSource source = source_of(problem, s, "rows/rows.cuh");
  const std::vector<ConfigValue> config = {
      {"threads", s.knobs.threads}, {"group", s.knobs.group},
      {"cluster", s.knobs.cluster}, {"held", s.knobs.held},
      {"batch", s.knobs.batch},     {"units", s.knobs.held == RowsKnobs::in_registers ? s.units : 1},
      {"unroll", s.unroll},         {"spread", problem.spread},
      {"whole", s.is_whole()},      {"row_tails", s.row_tails},
      {"repacks", s.repacks},       {"persistent", s.persistent},
      {"columns", s.columns > 0},   {"blocks", s.persistent ? s.knobs.blocks : 1}};
  source.config.insert(source.config.end(), config.begin(), config.end());

  Parameters p(problem.index_bits);
  p.index("rows", s.rows);
  p.index("row_step", s.row_step());
  p.index("vectors", s.vectors);
  p.index("units", s.units);
  p.index("row_extent", row_extent(problem));
  if (s.columns > 0) p.scratch("partials", "Y::Columns", 0);
  p.divisors("extents", extents_of(problem, s));
  p.site("y", s.y, problem.fusion);

  Launch launch;
  launch.entry = "rows";
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
  p.index("parts", s.parts());
  p.index("row_extent", row_extent(problem));
  p.divisors("extents", extents_of(problem, s));
  p.site("y", s.y, problem.fusion);

  Launch launch;
  launch.entry = "rows_columns";
  launch.grid = {static_cast<uint32_t>(ceil_div(s.column_count(), kColumnWidth)), 1, 1};
  launch.block = {static_cast<uint32_t>(kColumnThreads), 1, 1};
  launch.attributes.programmatic = problem.device.compute_capability >= 90;
  p.move_to(source_of(problem, s, "rows/columns.cuh"), launch);
  return launch;
}

void guard(std::vector<Guard>& guards, const Access& access, DataType type, int64_t vector) {
  const int64_t size = byte_size(type);
  const int64_t bytes = access.whole_vectors ? std::min<int64_t>(vector * size, 16) : size;
  const auto known = std::ranges::find(guards, access.operand, &Guard::operand);
  if (known == guards.end())
    guards.push_back({access.operand, bytes});
  else
    known->alignment = std::max(known->alignment, bytes);
}

}  // namespace

Lowered lower(const RowsProblem& problem, const RowsSchedule& s) {
  Lowered lowered;
  lowered.steps.emplace_back(rows_launch(problem, s));
  if (s.columns > 0) {
    lowered.scratch.push_back(s.scratch_bytes());
    lowered.steps.emplace_back(columns_launch(problem, s));
  }
  for (const Node& node : s.y.expr.nodes)
    if (node.kind == Node::Kind::load) guard(lowered.guards, node.access, node.type, s.knobs.vector);
  for (const Store& store : s.y.expr.stores) guard(lowered.guards, store.access, store.type, s.knobs.vector);
  return lowered;
}

}  // namespace fusor
