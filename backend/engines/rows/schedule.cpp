// Owns the settings of the rows engine and what follows from each.
#include "backend/engines/rows/schedule.h"

#include <algorithm>

#include "backend/engines/elementwise/vectors.h"
#include "codegen/expr_emitter.h"
#include "codegen/row_site.h"
#include "core/ceil_div.h"

namespace fusor {

using namespace elementwise;

namespace {

constexpr int64_t kWarp = 32;
constexpr int64_t kMostThreads = 1024;
constexpr int64_t kMostUnits = 8;
constexpr int64_t kMostRegisters = 160;
// Lanes of expressions that a compiler is given at most: text, and with it compile time, grows with each.
constexpr int64_t kMostLanes = 512;
constexpr int64_t kStaticShared = 40 * 1024;
constexpr int64_t kMaxGrid = (int64_t{1} << 31) - 1;

int64_t vectors_of(const Dims& domain, int first, int end, int vector_axis, int64_t vector) {
  int64_t count = 1;
  for (int axis = first; axis < end; ++axis)
    count *= axis == vector_axis ? ceil_div(domain[axis], vector) : domain[axis];
  return count;
}

// Steps of the expression's text, all phases together.
int64_t steps_of(const Expr& expr) { return std::ssize(expr.nodes) + std::ssize(expr.stores); }

int64_t registers_of(const RowsProblem& problem, const RowsSchedule& s) {
  const int64_t lanes = s.knobs.vector;
  const bool in_registers = s.knobs.held == RowsKnobs::in_registers;
  // Blocks that see many rows have the next ones in flight, too.
  const int64_t rows = s.knobs.batch * (s.persistent ? 2 : 1);
  const int64_t in_flight = in_registers ? s.units * rows : s.unroll;
  int64_t words = (s.persistent ? 56 : 32) + ceil_div(in_flight * s.held, 4) + 2 * lanes;
  if (!s.repacks && in_registers) words += s.units * lanes * s.knobs.batch;
  if (s.columns > 0) words += s.units * (lanes * s.columns + s.fixed) / 4;
  if (problem.spread) words += s.knobs.batch * lanes * totals_bytes(s.y) / 2 + 5 * lanes;
  if (problem.index_bits == 64) words += 12;
  return words;
}

int resident_blocks(const RowsProblem& problem, const RowsSchedule& s) {
  const DeviceInfo& device = problem.device;
  int64_t blocks = device.max_threads_per_sm / s.knobs.threads;
  blocks = std::min(blocks, device.registers_per_sm / (s.knobs.threads * round_up(s.registers, 8)));
  const int64_t shared = s.shared_bytes + s.exchange_bytes + 1024;
  if (device.shared_per_sm > 0) blocks = std::min(blocks, device.shared_per_sm / shared);
  return static_cast<int>(std::clamp<int64_t>(blocks, 1, 32));
}

int64_t clusters_at_once(const DeviceInfo& device, const RowsKnobs& knobs) {
  return std::max<int64_t>(1, sms_of_clusters(device, knobs.cluster) * knobs.blocks / knobs.cluster);
}

int64_t shared_bytes_of(const RowsSchedule& s) {
  if (s.knobs.held == RowsKnobs::in_shared) return s.units * s.knobs.threads * s.held;
  if (s.columns == 0 || s.slots() == 1) return 0;
  return (s.knobs.threads / kWarp - 1) * s.units * s.knobs.vector * s.knobs.group * s.columns;
}

int64_t exchange_bytes_of(const RowsProblem& problem, const RowsSchedule& s) {
  const int64_t slots = s.slots();
  const int64_t near = problem.spread ? (slots < kWarp ? kWarp / slots : 1) : std::min(s.knobs.group, kWarp);
  const int64_t parts = s.knobs.group / near * s.knobs.cluster;
  if (parts <= 1) return 0;
  const int64_t cells = s.knobs.batch * (problem.spread ? slots * s.knobs.vector : 1);
  return 2 * round_up(parts * cells * totals_bytes(s.y), 16);
}

}  // namespace

// An H200 of 132 has room for 30 clusters of 4 or 15 of 8 at a block an SM.
int64_t sms_of_clusters(const DeviceInfo& device, int64_t cluster) {
  return cluster > 2 ? std::max<int64_t>(1, device.sm_count * 10 / 11) : device.sm_count;
}

RowsSchedule::RowsSchedule(const RowsProblem& problem, const RowsKnobs& asked)
    : y(problem.site), knobs(asked) {
  const Dims& domain = problem.domain();
  const int rank = domain.rank();
  y.joins = knobs.join != 0;
  mark_whole(problem.fusion, y, knobs.vector);
  vectors = vectors_of(domain, y.kept, rank, y.vector_axis, knobs.vector);
  rows = vectors_of(domain, 0, y.kept, y.vector_axis, knobs.vector);
  units = ceil_div(vectors, knobs.group * knobs.cluster);
  row_tails = !problem.spread && domain[rank - 1] % knobs.vector != 0;
  held = std::max<int64_t>(1, held_bytes(y, knobs.vector));
  fixed = fixed_bytes(y, knobs.vector);
  columns = column_bytes(y);
  unroll = std::clamp<int64_t>(power_of_two_to(64 / held), 1, 4);
  unroll = std::min(unroll, power_of_two_from(units));
  repacks = knobs.held == RowsKnobs::in_registers && units * knobs.vector > 16;
  const int64_t in_turn = ceil_div(rows, rows_of_turn());
  persistent = columns > 0 || in_turn * knobs.cluster > kMaxGrid;
  grid = in_turn * knobs.cluster;
  shared_bytes = shared_bytes_of(*this);
  exchange_bytes = exchange_bytes_of(problem, *this);
  registers = registers_of(problem, *this);
  resident = resident_blocks(problem, *this);
  if (!persistent) return;
  knobs.blocks = std::clamp<int64_t>(knobs.blocks, 1, resident);
  grid = std::min(in_turn, clusters_at_once(problem.device, knobs)) * knobs.cluster;
}

bool fits(const RowsProblem& problem, const RowsSchedule& s) {
  const DeviceInfo& device = problem.device;
  const RowsKnobs& knobs = s.knobs;
  if (knobs.threads > kMostThreads || knobs.threads % kWarp != 0 || knobs.threads % knobs.group != 0 ||
      knobs.vector > problem.widest)
    return false;
  if (!problem.spread &&
      (s.slots() > 1 ? knobs.group > kWarp || knobs.cluster > 1 : knobs.group % kWarp != 0))
    return false;
  if (knobs.cluster > 1 && device.compute_capability < 90) return false;
  const bool in_registers = knobs.held == RowsKnobs::in_registers;
  if (s.columns > 0 && !in_registers) return false;
  if (knobs.batch > 1 && (!in_registers || s.rows < 2)) return false;
  const int64_t unrolled = s.units * knobs.batch;
  if (in_registers &&
      (unrolled > kMostUnits || (unrolled > 1 && unrolled * knobs.vector * steps_of(s.y.expr) > kMostLanes)))
    return false;
  if (s.registers > kMostRegisters || s.registers * knobs.threads > device.registers_per_sm) return false;
  return s.exchange_bytes <= kStaticShared &&
         s.shared_bytes + s.exchange_bytes + 1024 <= device.shared_per_block;
}

namespace {

class Settings {
 public:
  explicit Settings(const RowsProblem& problem) : problem_(problem) {}

  std::vector<RowsKnobs> all() {
    for (int64_t vector = problem_.widest; vector >= 1 && vector * 2 >= problem_.widest; vector /= 2)
      problem_.spread ? add_spread(vector) : add_rows(vector);
    return std::move(settings_);
  }

 private:
  int most_clusters() const { return problem_.device.compute_capability >= 90 ? 8 : 1; }

  // Rows in the registers of a block may as well be passed over once more.
  void add(RowsKnobs knobs) {
    const bool cheap_passes = knobs.held == RowsKnobs::in_registers && knobs.cluster == 1;
    for (const int64_t join : {0, 1}) {
      if (problem_.joins ? join == 0 && !cheap_passes : join != 0) continue;
      knobs.join = join;
      const RowsSchedule schedule(problem_, knobs);
      if (!fits(problem_, schedule)) continue;
      if (std::ranges::find(settings_, schedule.knobs) == settings_.end())
        settings_.push_back(schedule.knobs);
    }
  }

  // One or more rows in flight, and the numbers of blocks that an SM has room for where blocks see many rows.
  void add_turns(RowsKnobs knobs) {
    for (const int64_t batch : {1, 2, 4}) {
      knobs.batch = batch;
      for (const int64_t blocks : {1, 2, 4, 8, 16}) {
        knobs.blocks = blocks;
        if (blocks == 1 || problem_.has_columns) add(knobs);
      }
    }
  }

  void add_rows(int64_t vector) {
    const Dims& domain = problem_.domain();
    const int rank = domain.rank();
    const int64_t vectors = vectors_of(domain, problem_.site.kept, rank, rank - 1, vector);
    for (int64_t cluster = 1; cluster <= most_clusters(); cluster *= 2) {
      for (const int64_t units : {1, 2, 3, 4, 6, 8})
        add_group(vector, cluster, ceil_div(vectors, units * cluster));
      if (problem_.has_columns) continue;
      for (const int64_t threads : {128, 256, 512, 1024}) {
        if (vectors <= threads * cluster) continue;
        for (const int64_t held : {RowsKnobs::in_shared, RowsKnobs::in_memory})
          add({.vector = vector, .threads = threads, .group = threads, .cluster = cluster, .held = held});
      }
    }
  }

  // Threads enough for a row in registers.
  void add_group(int64_t vector, int64_t cluster, int64_t needed) {
    if (needed > kMostThreads) return;
    const bool lanes = needed <= kWarp && cluster == 1;
    const int64_t group = lanes ? power_of_two_from(needed) : round_up(needed, kWarp);
    for (const int64_t threads : {128, 256}) {
      if (!lanes && threads != 128) continue;
      add_turns({.vector = vector,
                 .threads = lanes ? threads : group,
                 .group = group,
                 .cluster = cluster,
                 .held = RowsKnobs::in_registers});
    }
  }

  void add_spread(int64_t vector) {
    const Dims& domain = problem_.domain();
    const int64_t steps = problem_.row_elements();
    const int64_t across = domain[problem_.site.vector_axis] / vector;
    for (int64_t cluster = 1; cluster <= most_clusters(); cluster *= 2)
      for (const int64_t threads : {128, 256, 512})
        for (int64_t slots = 4; slots <= threads; slots *= 2) {
          if (slots > 4 && slots / 2 >= power_of_two_from(across)) break;
          const int64_t group = threads / slots;
          if (group / 2 * cluster > steps) continue;
          for (const int64_t held : {RowsKnobs::in_registers, RowsKnobs::in_shared, RowsKnobs::in_memory})
            add({.vector = vector, .threads = threads, .group = group, .cluster = cluster, .held = held});
        }
  }

  const RowsProblem& problem_;
  std::vector<RowsKnobs> settings_;
};

}  // namespace

std::vector<RowsKnobs> rows_settings(const RowsProblem& problem) { return Settings(problem).all(); }

}  // namespace fusor
