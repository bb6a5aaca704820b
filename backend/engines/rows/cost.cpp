// Owns what a setting of the rows engine costs.
#include <algorithm>
#include <cmath>

#include "backend/engines/rows/fitted.h"
#include "backend/engines/rows/schedule.h"
#include "backend/engines/rules.h"
#include "codegen/text/rows/facts.h"
#include "codegen/text/rows/sizes.h"
#include "core/ceil_div.h"
#include "heuristics/time_model.h"

namespace fusor {

namespace {

// Special-function results cost this many fp32 instructions where they are computed exactly.
constexpr double kExactSpecial = 6;
constexpr double kSectorBytes = 32, kLineBytes = 128;

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
  return visited(domain, access) * static_cast<double>(step) / static_cast<double>(elements_per_byte(type));
}

// Whether an SM's first cache has the lines of a load until the axis whose neighbours share them is walked
// on: the axes behind it are walked in between, and each element there has a line. Half of it is counted on.
bool stays_near(const RowsProblem& problem, const RowsSchedule& s, const Access& access) {
  const Dims& domain = problem.domain();
  const double rows = static_cast<double>((s.is_split() ? s.slots() : s.rows_of_turn()) * s.resident);
  const double room = static_cast<double>(problem.device.shared_per_sm - s.resident * s.shared_bytes) / 2;
  double lines = kLineBytes * rows / static_cast<double>(s.knobs.cluster * s.sharing);
  for (int axis = domain.rank() - 1; axis >= problem.first_of_row(); --axis) {
    if (access.strides[axis] == 1) return lines < room;
    lines *= static_cast<double>(domain[axis]);
  }
  return false;
}

// Sectors that L2 moves one by one, in a pass: where neighbouring lanes, along `axis`, lie further apart than
// one.
double lone_sectors(const RowsProblem& problem, int axis, const Access& access, DataType type) {
  const int64_t step = std::abs(access.strides[axis]);
  if (is_packed(type) || static_cast<double>(step * byte_size(type)) < kSectorBytes) return 0;
  return visited(problem.domain(), access);
}

struct Traffic {
  double dram = 0, l2 = 0;
  double first_read = 0, read = 0,
         written = 0;  ///< of elements, by the first pass, by each later one, in all
};

// How often a row is read.
double passes_of(const RowsSchedule& s, const RowFacts& facts) {
  if (s.knobs.held != RowsKnobs::in_memory) return 1;
  const bool stores = std::ranges::any_of(s.y().expr.stores, [&](const Store& store) {
    return facts.places[static_cast<size_t>(store.node)] == RowPlace::element;
  });
  return facts.phase_count + (stores ? 1 : 0);
}

Traffic traffic_of(const RowsProblem& problem, const RowsSchedule& s, const RowFacts& facts) {
  const Expr& expr = s.y().expr;
  const Dims& domain = expr.domain;
  const double elements = static_cast<double>(problem.elements());
  const double passes = passes_of(s, facts);
  const RowsFit fit;
  Traffic traffic;
  for (int i = 0; i < std::ssize(expr.nodes); ++i) {
    const Node& node = expr.node(i);
    if (node.kind != Node::Kind::load) continue;
    const double bytes = access_bytes(domain, node.access, node.type);
    if (facts.places[static_cast<size_t>(i)] == RowPlace::row) {
      traffic.dram += bytes;
    } else if (facts.is_fixed(expr, i)) {
      traffic.dram += bytes;
      traffic.l2 += s.has_columns() ? bytes * static_cast<double>(s.grid)
                                    : elements * static_cast<double>(byte_size(node.type));
    } else {
      // Rows that fit L2 are read from memory once.
      const bool stays = bytes < 0.5 * static_cast<double>(problem.device.l2_bytes);
      traffic.dram += bytes * (stays ? 1 : passes);
      const double sectors = stays_near(problem, s, node.access)
                                 ? 0
                                 : lone_sectors(problem, s.y().vector_axis, node.access, node.type);
      traffic.l2 += (sectors > 0 ? fit.lone_sector * sectors : bytes) * passes;
      traffic.first_read += bytes;
      traffic.read += stays ? 0 : bytes;
    }
  }
  const int results_axis = problem.across ? problem.across->vector_axis : s.y().vector_axis;
  for (const Store& store : expr.stores) {
    const double bytes = access_bytes(domain, store.access, store.type);
    traffic.dram += bytes;
    const double sectors = facts.is_element_store(expr, store)
                               ? lone_sectors(problem, results_axis, store.access, store.type)
                               : 0;
    traffic.l2 += sectors > 0 ? fit.lone_sector * sectors : bytes;
    traffic.written += bytes;
  }
  return traffic;
}

int64_t widest_adjacent(const RowsSchedule& s) {
  int64_t widest = 1;
  for (const Node& node : s.y().expr.nodes)
    if (node.kind == Node::Kind::load && node.access.strides[s.y().vector_axis] == 1)
      widest = std::max<int64_t>(widest, byte_size(node.type));
  return widest;
}
int64_t narrowest_adjacent(const RowsSchedule& s) {
  int64_t narrowest = 16;
  for (const Node& node : s.y().expr.nodes)
    if (node.kind == Node::Kind::load && node.access.strides[s.y().vector_axis] == 1)
      narrowest = std::min<int64_t>(narrowest, byte_size(node.type));
  return narrowest;
}

// What the pieces of each row that a block turned cost more where they are written.
double written_pieces(const RowsSchedule& s) {
  const RowsFit fit;
  int64_t narrowest = 16;
  for (const Store& store : s.y().expr.stores)
    if (s.form->facts.is_element_store(s.y().expr, store))
      narrowest = std::min(narrowest, byte_size(store.type));
  return fit.held_piece *
         std::pow(fit.piece_bytes / static_cast<double>(s.knobs.group * narrowest), fit.piece_power);
}

// A block reads pieces of memory: of neighbouring rows, or of the last axis of a row that has several. Short
// ones take memory longer than their bytes say.
double piece_share(const RowsProblem& problem, const RowsSchedule& s) {
  const RowsFit fit;
  const Dims& domain = problem.domain();
  const int64_t run = domain[domain.rank() - 1];
  if (!problem.spread && run == problem.row_elements()) {
    // Few lanes of a row ask for less than a line at once. Of rows that are shorter than one, a warp has
    // several, and a sector is enough (blocks of 32 elements: 2 lanes a row are 1.1 times as fast as 4).
    const int64_t together = s.slots() > 1 && !s.in_ring() ? s.knobs.group * s.knobs.vector : run;
    const double bytes = static_cast<double>(std::min(together, run) * narrowest_adjacent(s));
    const bool is_short = static_cast<double>(run * narrowest_adjacent(s)) < fit.piece_bytes;
    if (is_short && bytes >= kSectorBytes) return 1;
    return bytes >= fit.piece_bytes
               ? 1
               : 1 + fit.lanes_piece * std::pow(fit.piece_bytes / bytes, fit.piece_power);
  }
  const int64_t elements = problem.spread ? s.slots() * s.knobs.vector : run;
  const double weight = problem.spread && !s.is_split() ? fit.held_piece : fit.piece;
  const double share =
      1 + weight *
              std::pow(fit.piece_bytes / static_cast<double>(elements * widest_adjacent(s)), fit.piece_power);
  return share + (problem.across ? written_pieces(s) : 0);
}

// Blocks whose rows fill shared memory read, compute and write in turns: the fewer an SM has, the less they
// hide of each other.
double turn_share(const RowsProblem& problem, const RowsSchedule& s) {
  const RowsFit fit;
  if (s.is_resident() || (!s.is_copied() && s.knobs.held != RowsKnobs::in_shared)) return 1;
  if (problem.spread) return s.is_copied() ? fit.copied + fit.copied_turn / s.resident : fit.shared_lanes;
  return (s.is_copied() ? fit.copied_row : 1) * (1 + fit.shared_turn / s.resident);
}

// Blocks of a cluster whose lanes are rows hand each other a total for each lane, and wait for the slowest.
// Clusters whose blocks hold their rows in registers were not measured and cost nothing more.
double cluster_share(const RowsProblem& problem, const RowsSchedule& s) {
  const RowsFit fit;
  if (!problem.spread || s.knobs.cluster == 1 || s.knobs.held == RowsKnobs::in_registers) return 1;
  return 1 + fit.lanes_cluster * std::pow(std::log2(static_cast<double>(s.knobs.cluster)), 1.5);
}

void add_arithmetic(Work& work, const RowsProblem& problem, const RowsSchedule& s, const RowFacts& facts) {
  const Expr& expr = s.y().expr;
  const double elements = static_cast<double>(problem.elements());
  // Where phases compute anew what they share, about half of it is computed twice.
  const double again = s.repacks || s.knobs.held != RowsKnobs::in_registers ? 1.5 : 1;
  for (size_t i = 0; i < expr.nodes.size(); ++i) {
    const Node& node = expr.nodes[i];
    if (facts.places[i] != RowPlace::element) continue;
    if (node.kind == Node::Kind::reduce || node.kind == Node::Kind::load) {
      work.fp32_flops += 2 * elements;
    } else if (node.kind == Node::Kind::pointwise) {
      const PointwiseInfo& row = info(node.pointwise.mode);
      const double steps = row.alu + (s.y().short_forms ? 0 : kExactSpecial * row.sfu);
      const bool wide = node.pointwise.compute == DataType::f64 || node.pointwise.compute == DataType::i64;
      (wide ? work.fp64_flops : work.fp32_flops) += 2 * elements * steps * again;
      work.special += elements * row.sfu * again;
    }
  }
  for (const Node& node : expr.nodes)
    if (node.kind == Node::Kind::reduce && node.reduction.compute == DataType::f64)
      work.fp64_flops += 2 * elements;
}

// Loads of elements that a whole vector shares, and other vectors of the row do not: the scale of a channel
// of a group. Each is found by coordinates of its own.
int64_t loads_of_vectors(const RowsSchedule& s, const RowFacts& facts) {
  const Expr& expr = s.y().expr;
  int64_t count = 0;
  for (int i = 0; i < std::ssize(expr.nodes); ++i) {
    const Node& node = expr.node(i);
    if (node.kind == Node::Kind::load && facts.places[static_cast<size_t>(i)] == RowPlace::element &&
        node.access.strides[s.y().vector_axis] == 0)
      ++count;
  }
  return count;
}

// The work that the blocks of an SM do in turn, beside moving bytes.
class Turns {
 public:
  Turns(const RowsProblem& problem, const RowsSchedule& s, const RowFacts& facts)
      : problem_(problem),
        s_(s),
        phases_(facts.phase_count),
        passes_(passes_of(s, facts)),
        shared_loads_(static_cast<double>(loads_of_vectors(s, facts))) {
    // A split's batch counts vectors, not rows.
    const int64_t of_turn = s.is_split() ? s.slots() : s.rows_of_turn();
    const double clusters = static_cast<double>(ceil_div(s.rows, of_turn));
    turns_ = clusters * static_cast<double>(s.is_split() ? s.sharing : s.knobs.cluster);
    at_once_ = s.persistent ? static_cast<double>(s.grid) : std::min(turns_, sms() * s.resident);
    rounds_ = turns_ / at_once_;
    if (rounds_ < 8) rounds_ = std::ceil(rounds_);
  }

  // Instructions of all threads.
  double instructions(double steps) const {
    const RowsKnobs& knobs = s_.knobs;
    const double words = knobs.join != 0 ? 3 : 1,
                 batch = static_cast<double>(s_.is_split() ? 1 : knobs.batch);
    const double in_shared = knobs.held == RowsKnobs::in_shared || s_.is_copied()
                                 ? fit_.shared_word * static_cast<double>(s_.form->held) / 4
                                 : 0;
    const double of_thread =
        batch * (phases_ * fit_.combine * combinations() * words +
                 static_cast<double>(s_.units) * (phases_ + 1) * (fit_.vector + in_shared) +
                 static_cast<double>(s_.units) * shared_loads_ * fit_.load_of_vector +
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
    const double loads =
        s_.is_unrolled() || s_.is_copied() ? 1 : passes_ * static_cast<double>(ceil_div(s_.units, s_.unroll));
    return rounds_ * ((loads - 1) * fit_.latency_s + phases_ * phase_seconds() + alone + turn_seconds());
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
    // Parts are halved once; then all threads share what is left.
    if (s_.is_resident())
      return (steps + (parts > 1 ? 1 : 0)) * static_cast<double>(problem_.spread ? knobs.vector : 1) +
             std::ceil(parts / 2) * static_cast<double>(s_.cells_of_block()) /
                 static_cast<double>(knobs.threads);
    if (problem_.spread) return static_cast<double>(knobs.vector) * (steps + (parts > 1 ? parts / 2 : 0));
    return steps + (parts > 1 ? 2 + std::log2(parts) : 0);
  }
  // Where each lane of a vector is another row's, joined totals grow element by element. Elsewhere what they
  // made of an element is made anew with the whole totals.
  double joined_lanes() const {
    if (s_.knobs.join == 0) return 0;
    return problem_.spread ? fit_.joined_lane : fit_.joined_element;
  }
  double phase_seconds() const {
    if (s_.knobs.cluster > 1) return fit_.cluster_phase_s;
    if (s_.exchange_bytes == 0) return fit_.warp_phase_s;
    return fit_.block_phase_s * std::sqrt(static_cast<double>(s_.knobs.threads) / 128);
  }

  // Registers of blocks that stay have room for the next rows only: each turn waits for them. In a ring they
  // are there, but a block's barriers, totals and stores follow each other, which shows where a turn has few
  // bytes.
  double turn_seconds() const {
    if (!s_.persistent || (s_.in_ring() && s_.slots() > 1)) return 0;
    if (!s_.in_ring()) return fit_.turn_s;
    const double share = std::min(1.0, fit_.ring_turn_bytes / static_cast<double>(s_.ring_turn_bytes()));
    return fit_.ring_turn_s * share * share;
  }

  const RowsProblem& problem_;
  const RowsSchedule& s_;
  RowsFit fit_;
  double phases_, passes_;
  double shared_loads_;  // of a vector
  double turns_, at_once_, rounds_;
};

// By how much a setting falls behind the rate at which memory moves so many bytes.
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

// The passes of rows that blocks share by launches: one after the other, each bound by memory, by its loads'
// latency or by its instructions.
double split_seconds(const RowsProblem& problem, const RowsSchedule& s, const RowFacts& facts,
                     const Traffic& traffic, double steps, double dram_share) {
  const RowsFit fit;
  const int passes = static_cast<int>(passes_of(s, facts));
  const double issue = Turns(problem, s, facts).issue_seconds(steps) / passes;
  const double pieces = static_cast<double>(s.unroll * s.form->held) / 16;
  const double latency =
      static_cast<double>(ceil_div(s.units, s.unroll)) * (fit.split_batch_s + fit.split_load_s * pieces);
  double seconds = 0;
  for (int pass = 0; pass < passes; ++pass) {
    const double bytes =
        (pass == 0 ? traffic.first_read : traffic.read) + (pass + 1 == passes ? traffic.written : 0);
    const double moving = bytes / (dram_share * problem.device.dram_bytes_per_s) * piece_share(problem, s);
    double sum = 0;
    for (const double bound : {moving, latency, issue}) sum += std::pow(bound, fit.split_sharpness);
    seconds += std::pow(sum, 1 / fit.split_sharpness);
  }
  return seconds;
}

}  // namespace

Work cost(const RowsProblem& problem, const RowsSchedule& s) {
  const RowsFit fit;
  const RowFacts& facts = s.form->facts;
  const Traffic traffic = traffic_of(problem, s, facts);
  // Time before or after the memory's work, counted as bytes that it could have moved.
  const auto apart = [&](double seconds) { return seconds * problem.device.dram_bytes_per_s; };
  Work work;
  work.tiles = s.grid;
  work.tiles_per_sm = s.resident;
  add_arithmetic(work, problem, s, facts);
  const double steps = work.fp32_flops / 2;
  work.fp32_flops *= fit.step;
  work.l2_bytes = traffic.l2;
  // The time model divides by what few blocks can ask for; waiting does not take longer for that.
  const double share = dram_share(static_cast<double>(work.tiles), problem.device);
  work.dram_bytes = traffic.dram * piece_share(problem, s) * turn_share(problem, s) *
                    cluster_share(problem, s) * lag(problem, s, facts, traffic.dram / share, steps);
  if (s.is_resident()) {
    work.scratch_bytes = s.cells() / problem.fold * s.form->totals * s.sharing * facts.phase_count;
    const double parts = static_cast<double>(ceil_div(s.sharing, s.lanes_of_result(problem.fold)));
    work.serial_dram_bytes = apart(facts.phase_count * (fit.meeting_s + fit.part_s * parts));
  } else if (s.is_split()) {
    const double doublings = std::log2(static_cast<double>(s.knobs.threads) / 128);
    work.dram_bytes = share * apart(split_seconds(problem, s, facts, traffic, steps, share));
    work.scratch_bytes = s.cells() * s.form->totals * (s.sharing + facts.phase_count);
    work.serial_dram_bytes = fit.parts * static_cast<double>(work.scratch_bytes) +
                             apart(facts.phase_count * (fit.split_phase_s + fit.split_block_s * doublings));
  }
  if (s.has_columns()) {
    work.scratch_bytes = s.scratch_bytes();
    work.serial_dram_bytes = fit.parts * static_cast<double>(work.scratch_bytes) +
                             apart(fit.cluster_end_s * std::log2(static_cast<double>(s.knobs.cluster)));
    work.launches = 2;
  }
  return work;
}

}  // namespace fusor
