// Owns the argument blocks of codegen/device/rows: the order of the puts is the order of the fields there.
#include <algorithm>
#include <memory>

#include "backend/engines/rows/schedule.h"
#include "codegen/expr_emitter.h"
#include "core/ceil_div.h"
#include "core/fast_divisor.h"

namespace fusor {

namespace {

constexpr int64_t kColumnThreads = 256, kColumnWidth = 32;  // of rows_columns

std::shared_ptr<const KernelSource> source_of(const RowsProblem& problem, const RowsSchedule& s) {
  auto source = std::make_shared<KernelSource>();
  source->root = "rows/rows.cuh";
  source->target = problem.device.target();
  source->config = {{"index_bits", problem.index_bits},
                    {"vector", s.knobs.vector},
                    {"threads", s.knobs.threads},
                    {"group", s.knobs.group},
                    {"cluster", s.knobs.cluster},
                    {"held", s.knobs.held},
                    {"units", s.knobs.held == RowsKnobs::in_registers ? s.units : 1},
                    {"unroll", s.unroll},
                    {"spread", problem.spread},
                    {"row_tails", s.row_tails},
                    {"repacks", s.repacks},
                    {"persistent", s.persistent},
                    {"columns", s.columns > 0}};
  source->sites = {s.y};
  return source;
}

void put_extents(ArgumentBlock& block, const RowsProblem& problem, const RowsSchedule& s) {
  Dims extents = problem.domain();
  extents[s.y.vector_axis] = ceil_div(extents[s.y.vector_axis], s.knobs.vector);
  for (const int64_t extent : extents) FastDivisor::of(extent, problem.index_bits).put(block);
}

Launch rows_launch(const RowsProblem& problem, const RowsSchedule& s,
                   std::shared_ptr<const KernelSource> source) {
  Launch launch;
  launch.entry = "rows";
  launch.source = std::move(source);
  launch.grid = {static_cast<uint32_t>(s.grid), 1, 1};
  launch.block = {static_cast<uint32_t>(s.knobs.threads), 1, 1};
  launch.cluster = {static_cast<uint32_t>(s.knobs.cluster), 1, 1};
  launch.shared_bytes = s.shared_bytes;
  ArgumentBlock& block = launch.arguments;
  block.put_int(s.rows);
  block.put_int(s.row_step());
  block.put_int(s.vectors);
  block.put_int(s.units);
  block.put_int(problem.domain()[problem.domain().rank() - 1]);
  if (s.columns > 0)
    block.put_pointer(Patch::Kind::scratch, 0);
  else
    block.put_int(0);
  put_extents(block, problem, s);
  write_arguments(block, s.y, problem.fusion);
  return launch;
}

Launch columns_launch(const RowsProblem& problem, const RowsSchedule& s,
                      std::shared_ptr<const KernelSource> source) {
  Launch launch;
  launch.entry = "rows_columns";
  launch.source = std::move(source);
  launch.grid = {static_cast<uint32_t>(ceil_div(s.column_count(), kColumnWidth)), 1, 1};
  launch.block = {static_cast<uint32_t>(kColumnThreads), 1, 1};
  ArgumentBlock& block = launch.arguments;
  block.put_pointer(Patch::Kind::scratch, 0);
  block.put_int(s.column_count());
  block.put_int(s.parts());
  block.put_int(problem.domain()[problem.domain().rank() - 1]);
  put_extents(block, problem, s);
  write_arguments(block, s.y, problem.fusion);
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
  const auto source = source_of(problem, s);
  lowered.steps.emplace_back(rows_launch(problem, s, source));
  if (s.columns > 0) {
    lowered.scratch.push_back(s.scratch_bytes());
    lowered.steps.emplace_back(columns_launch(problem, s, source));
  }
  for (const Node& node : s.y.expr.nodes)
    if (node.kind == Node::Kind::load) guard(lowered.guards, node.access, node.type, s.knobs.vector);
  for (const Store& store : s.y.expr.stores) guard(lowered.guards, store.access, store.type, s.knobs.vector);
  return lowered;
}

}  // namespace fusor
