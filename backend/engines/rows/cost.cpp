// Owns what a setting of the rows engine costs.
#include <algorithm>
#include <cmath>

#include "backend/engines/rows/fitted.h"
#include "backend/engines/rows/schedule.h"
#include "codegen/row_site.h"
#include "core/ceil_div.h"

namespace fusor {

namespace {

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

// How often a row is read.
double passes_of(const RowsSchedule& s, const RowFacts& facts) {
  if (s.knobs.held != RowsKnobs::in_memory) return 1;
  const bool stores = std::ranges::any_of(s.y.expr.stores, [&](const Store& store) {
    return facts.places[static_cast<size_t>(store.node)] == RowPlace::element;
  });
  return facts.phase_count + (stores ? 1 : 0);
}

Traffic traffic_of(const RowsProblem& problem, const RowsSchedule& s, const RowFacts& facts) {
  const Expr& expr = s.y.expr;
  const Dims& domain = expr.domain;
  const double elements = static_cast<double>(element_count(domain));
  const double passes = passes_of(s, facts);
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

// Lanes on neighbouring rows that share a sector of 32 bytes with rows of other blocks read it more than
// once.
double sector_share(const RowsProblem& problem, const RowsSchedule& s) {
  if (!problem.spread) return 1;
  int64_t widest = 1;
  for (const Node& node : s.y.expr.nodes)
    if (node.kind == Node::Kind::load && node.access.strides[s.y.vector_axis] == 1)
      widest = std::max<int64_t>(widest, byte_size(node.type));
  return std::max(1.0, 32.0 / static_cast<double>(s.slots() * s.knobs.vector * widest));
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

// The work that the blocks of an SM do in turn, beside moving bytes.
class Turns {
 public:
  Turns(const RowsProblem& problem, const RowsSchedule& s, const RowFacts& facts)
      : problem_(problem), s_(s), phases_(facts.phase_count), passes_(passes_of(s, facts)) {
    const double clusters = static_cast<double>(ceil_div(s.rows, s.rows_of_turn()));
    turns_ = clusters * static_cast<double>(s.knobs.cluster);
    at_once_ = s.persistent ? static_cast<double>(s.grid) : std::min(turns_, sms() * s.resident);
    rounds_ = turns_ / at_once_;
    if (rounds_ < 8) rounds_ = std::ceil(rounds_);
  }

  // Instructions of all threads.
  double instructions(double steps) const {
    const RowsKnobs& knobs = s_.knobs;
    const double words = knobs.join != 0 ? 3 : 1, batch = static_cast<double>(knobs.batch);
    const double in_shared =
        knobs.held == RowsKnobs::in_shared ? fit_.shared_word * static_cast<double>(s_.held) / 4 : 0;
    const double of_thread =
        batch * (phases_ * fit_.combine * combinations() * words +
                 static_cast<double>(s_.units) * (phases_ + 1) * (fit_.vector + in_shared) +
                 joined_lanes() * static_cast<double>(s_.units * knobs.vector));
    return fit_.step * steps + turns_ * static_cast<double>(knobs.threads) * of_thread;
  }
  double issue_seconds(double steps) const {
    return instructions(steps) / (fit_.issue_rate * problem_.device.sm_count / 132);
  }
  // Blocks wait for loads, for totals and for their own instructions.
  double waiting_seconds(double steps) const {
    const double threads = static_cast<double>(s_.knobs.threads);
    const double of_thread = instructions(steps) / (turns_ * threads);
    const double alone = of_thread * fit_.instruction_s * std::max(1.0, threads / 256);
    const double loads = s_.knobs.held == RowsKnobs::in_registers
                             ? 1
                             : passes_ * static_cast<double>(ceil_div(s_.units, s_.unroll));
    return rounds_ * ((loads - 1) * fit_.latency_s + phases_ * phase_seconds() + alone);
  }
  double start_seconds() const {
    return s_.knobs.cluster == 1 || s_.persistent ? 0 : turns_ / sms() * fit_.cluster_start_s;
  }
  double sharpness() const { return fit_.sharpness; }

 private:
  double sms() const { return static_cast<double>(sms_of_clusters(problem_.device, s_.knobs.cluster)); }
  // Steps that combine a thread's totals with others', in a phase: with lanes step by step, with parts in
  // shared memory by all lanes of a warp, but by each thread alone where lanes are rows.
  double combinations() const {
    const RowsKnobs& knobs = s_.knobs;
    const int64_t slots = s_.slots();
    const int64_t near = !problem_.spread ? std::min<int64_t>(knobs.group, 32) : slots < 32 ? 32 / slots : 1;
    const int64_t all_parts = knobs.group / near * knobs.cluster;
    const double parts = static_cast<double>(all_parts);
    const double steps = std::log2(static_cast<double>(near));
    if (problem_.spread) return static_cast<double>(knobs.vector) * (steps + (parts > 1 ? parts / 2 : 0));
    return steps + (parts > 1 ? 2 + std::log2(parts) : 0);
  }
  // Where each lane of a vector is another row's, joined totals grow element by element.
  double joined_lanes() const { return problem_.spread && s_.knobs.join != 0 ? fit_.joined_lane : 0; }
  double phase_seconds() const {
    if (s_.knobs.cluster > 1) return fit_.cluster_phase_s;
    if (s_.exchange_bytes == 0) return fit_.warp_phase_s;
    return fit_.block_phase_s * std::sqrt(static_cast<double>(s_.knobs.threads) / 128);
  }

  const RowsProblem& problem_;
  const RowsSchedule& s_;
  RowsFit fit_;
  double phases_, passes_, turns_, at_once_, rounds_;
};

// By how much a setting falls behind the memory's rate.
double lag(const RowsProblem& problem, const RowsSchedule& s, const RowFacts& facts, double bytes,
           double steps) {
  const Turns turns(problem, s, facts);
  const double moving = bytes / problem.device.dram_bytes_per_s, power = turns.sharpness();
  double sum = 1;
  for (const double seconds :
       {turns.waiting_seconds(steps), turns.issue_seconds(steps), turns.start_seconds()})
    sum += std::pow(seconds / moving, power);
  return std::pow(sum, 1 / power);
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
  work.dram_bytes =
      traffic.dram * sector_share(problem, s) * lag(problem, s, facts, traffic.dram, work.fp32_flops / 2);
  work.fp32_flops *= RowsFit().step;
  if (s.columns > 0) {
    work.scratch_bytes = s.scratch_bytes();
    work.serial_dram_bytes = 2 * static_cast<double>(work.scratch_bytes);
    work.launches = 2;
  }
  return work;
}

}  // namespace fusor
