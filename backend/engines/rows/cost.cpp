// Owns what a setting of the rows engine costs.
#include <algorithm>

#include "backend/engines/rows/schedule.h"
#include "codegen/row_site.h"
#include "core/ceil_div.h"

namespace fusor {

namespace {

// Seconds in which a block neither loads nor stores: the latency of memory, and of a phase's exchange among
// threads of a warp, of a block, of a cluster.
constexpr double kLatency = 1.0e-6;
constexpr double kWarpPhase = 0.05e-6, kBlockPhase = 0.2e-6, kClusterPhase = 0.7e-6;
// Seconds of an SM that each block costs, and each of a cluster.
constexpr double kBlockStart = 0.05e-6, kClusterStart = 0.15e-6;
// Special-function results cost this many fp32 instructions where they are computed exactly.
constexpr double kExactSpecial = 6;

double visited(const Dims& domain, const Access& access) {
  double elements = 1;
  for (int axis = 0; axis < domain.rank(); ++axis)
    if (access.strides[axis] != 0) elements *= static_cast<double>(domain[axis]);
  return elements;
}

// Memory moves in sectors of 32 bytes, which the axis with the closest neighbours shares.
double access_bytes(const Dims& domain, const Access& access, DataType type) {
  int64_t closest = 0;
  for (const int64_t stride : access.strides)
    if (stride != 0 && (closest == 0 || stride < closest)) closest = stride;
  const int64_t size = byte_size(type);
  const int64_t step = std::min(std::max<int64_t>(closest, 1) * size, std::max<int64_t>(32, size));
  return visited(domain, access) * static_cast<double>(step);
}

struct Traffic {
  double dram = 0, l2 = 0;
};

Traffic traffic_of(const RowsProblem& problem, const RowsSchedule& s, const RowFacts& facts) {
  const Expr& expr = s.y.expr;
  const Dims& domain = expr.domain;
  const double elements = static_cast<double>(element_count(domain));
  const double passes = s.knobs.held == RowsKnobs::in_memory ? facts.phase_count + 1 : 1;
  Traffic traffic;
  for (int i = 0; i < std::ssize(expr.nodes); ++i) {
    const Node& node = expr.node(i);
    if (node.kind != Node::Kind::load) continue;
    const double bytes = access_bytes(domain, node.access, node.type);
    if (facts.places[static_cast<size_t>(i)] == RowPlace::row) {
      traffic.dram += bytes;
    } else if (facts.is_fixed(expr, i)) {
      traffic.dram += bytes;
      traffic.l2 += s.columns > 0 ? bytes * static_cast<double>(s.grid)
                                  : elements * static_cast<double>(byte_size(node.type));
    } else {
      // Rows that fit L2 are read from memory once.
      const bool stays = bytes < 0.5 * static_cast<double>(problem.device.l2_bytes);
      traffic.dram += bytes * (stays ? 1 : passes);
      traffic.l2 += bytes * passes;
    }
  }
  for (const Store& store : expr.stores) {
    const double bytes = access_bytes(domain, store.access, store.type);
    traffic.dram += bytes;
    traffic.l2 += bytes;
  }
  return traffic;
}

void add_arithmetic(Work& work, const RowsSchedule& s, const RowFacts& facts) {
  const Expr& expr = s.y.expr;
  const double elements = static_cast<double>(element_count(expr.domain));
  // Where phases compute anew what they share, about half of it is computed twice.
  const double again = s.repacks || s.knobs.held != RowsKnobs::in_registers ? 1.5 : 1;
  for (size_t i = 0; i < expr.nodes.size(); ++i) {
    const Node& node = expr.nodes[i];
    if (facts.places[i] != RowPlace::element) continue;
    if (node.kind == Node::Kind::reduce || node.kind == Node::Kind::load) {
      work.fp32_flops += 2 * elements;
    } else if (node.kind == Node::Kind::pointwise) {
      const PointwiseInfo& row = info(node.pointwise.mode);
      const double steps = row.alu + (s.y.short_forms ? 0 : kExactSpecial * row.sfu);
      const bool wide = node.pointwise.compute == DataType::f64 || node.pointwise.compute == DataType::i64;
      (wide ? work.fp64_flops : work.fp32_flops) += 2 * elements * steps * again;
      work.special += elements * row.sfu * again;
    }
  }
  for (const Node& node : expr.nodes)
    if (node.kind == Node::Kind::reduce && node.reduction.compute == DataType::f64)
      work.fp64_flops += 2 * elements;
}

// By how much the blocks of an SM fall behind its share of the memory's rate: each waits for its row, then
// for its totals, before it stores.
double lag(const RowsProblem& problem, const RowsSchedule& s, const RowFacts& facts, double bytes) {
  const DeviceInfo& device = problem.device;
  const double rate = device.dram_bytes_per_s / device.sm_count;
  const double turns = static_cast<double>(ceil_div(s.rows, s.rows_of_turn()) * s.knobs.cluster);
  const double of_block = bytes / turns;
  const double phase = s.knobs.cluster > 1 ? kClusterPhase : s.exchange_bytes > 0 ? kBlockPhase : kWarpPhase;
  const double passes = s.knobs.held == RowsKnobs::in_memory ? facts.phase_count + 1 : 1;
  const double turn = kLatency * passes + facts.phase_count * phase + of_block / rate;
  const double in_turn = std::min<double>(s.resident, static_cast<double>(ceil_div(s.grid, device.sm_count)));
  const double reached = in_turn * of_block / turn;
  // The nearer to the rate, the more often blocks meet in what they wait for.
  return std::max(1.0, rate / reached) + 0.05 * std::min(1.0, rate / reached);
}

}  // namespace

Work cost(const RowsProblem& problem, const RowsSchedule& s) {
  const RowFacts facts(s.y);
  const Traffic traffic = traffic_of(problem, s, facts);
  Work work;
  work.tiles = s.grid;
  work.tiles_per_sm = s.resident;
  add_arithmetic(work, s, facts);
  work.l2_bytes = traffic.l2;
  const double start = s.knobs.cluster > 1 ? kClusterStart : kBlockStart;
  work.start_s = start * static_cast<double>(ceil_div(s.grid, problem.device.sm_count));
  work.dram_bytes = traffic.dram * lag(problem, s, facts, traffic.dram);
  if (s.columns > 0) {
    work.scratch_bytes = s.scratch_bytes();
    work.serial_dram_bytes = 2 * static_cast<double>(work.scratch_bytes);
    work.launches = 2;
  }
  return work;
}

}  // namespace fusor
