// Owns the settings of the rows engine and what follows from each.
#include "backend/engines/rows/schedule.h"

#include <algorithm>
#include <bit>

#include "backend/engines/elementwise/vectors.h"
#include "backend/engines/rules.h"
#include "codegen/text/expr_emitter.h"
#include "codegen/text/rows/facts.h"
#include "codegen/text/rows/sizes.h"
#include "core/ceil_div.h"

namespace fusor {

using namespace elementwise;

namespace {

constexpr int64_t kMostThreads = 1024;
constexpr int64_t kMostUnits = 8;
constexpr int64_t kMostRegisters = 160;
// Lanes of expressions that a compiler is given at most: text, and with it compile time, grows with each.
constexpr int64_t kMostLanes = 512;
constexpr int64_t kStaticShared = 46 * 1024;
constexpr int64_t kMostStages = 4;
// Vectors of a thread in a turn of a ring of short rows: more do not fit its registers.
constexpr int64_t kMostRingUnits = 2;
constexpr int64_t kMostSplitBatch = 8;
constexpr int64_t kMostRowGroups = 65535;  // of a grid's second axis
constexpr int64_t kMostLine = 128;         // vectors of neighbours that a block keeps
constexpr int64_t kMaxGrid = (int64_t{1} << 31) - 1;

int64_t vectors_of(const Dims& domain, int first, int end, int vector_axis, int64_t vector) {
  int64_t count = 1;
  for (int axis = first; axis < end; ++axis)
    count *= axis == vector_axis ? ceil_div(domain[axis], vector) : domain[axis];
  return count;
}

// Steps of the expression's text, all phases together.
int64_t steps_of(const Expr& expr) { return std::ssize(expr.nodes) + std::ssize(expr.stores); }

// The next vectors are on their way while a thread works on its own: to registers, unless they are copied.
int64_t registers_of_split(const RowsProblem& problem, const RowsSchedule& s) {
  const int64_t rows = problem.spread ? s.knobs.vector : 1;
  const int64_t of_row = std::max(1 + s.form->totals / 4, s.form->row_values);
  const int64_t vectors = s.is_copied() ? 2 : 2 * s.unroll;
  return 14 + ceil_div(vectors * s.form->held, 4) + s.knobs.vector + rows * of_row;
}

int64_t registers_of(const RowsProblem& problem, const RowsSchedule& s) {
  const int64_t lanes = s.knobs.vector;
  if (s.is_split()) return registers_of_split(problem, s);
  const bool in_registers = s.knobs.held == RowsKnobs::in_registers;
  // Blocks that see many rows have the next ones in flight, too.
  const int64_t rows = s.knobs.batch * (s.persistent ? 2 : 1);
  const int64_t in_flight = in_registers ? s.units * rows : s.in_ring() ? s.units * s.knobs.batch : s.unroll;
  const int64_t base = s.in_ring() ? (s.slots() > 1 ? 48 : 28) : s.persistent ? 56 : 32;
  int64_t words = base + ceil_div(in_flight * s.form->held, 4) + 2 * lanes;
  if (!s.repacks && in_registers) words += s.units * lanes * s.knobs.batch;
  if (s.has_columns()) words += s.units * (lanes * s.form->columns + s.form->fixed) / 4;
  if (problem.spread) words += s.knobs.batch * lanes * s.form->totals / 2 + 5 * lanes;
  if (problem.index_bits == 64) words += 12;
  return words;
}

int resident_blocks(const RowsProblem& problem, const RowsSchedule& s) {
  const DeviceInfo& device = problem.device;
  int64_t blocks = device.max_threads_per_sm / s.knobs.threads;
  blocks = std::min(blocks, device.registers_per_sm / (s.knobs.threads * round_up(s.registers, 8)));
  constexpr int64_t kUnit = 128, kOfSystem = 1024;  // bytes that blocks are given at once, and beside theirs
  const int64_t shared = round_up(s.shared_bytes + s.exchange_bytes, kUnit) + kOfSystem;
  if (device.shared_per_sm > 0) blocks = std::min(blocks, device.shared_per_sm / shared);
  return static_cast<int>(std::clamp<int64_t>(blocks, 1, 32));
}

int64_t clusters_at_once(const DeviceInfo& device, const RowsKnobs& knobs) {
  return std::max<int64_t>(1, sms_of_clusters(device, knobs.cluster) * knobs.blocks / knobs.cluster);
}

int64_t staged_columns(const RowsSchedule& s) {
  if (!s.has_columns() || s.slots() == 1) return 0;
  return (s.knobs.threads / kWarp - 1) * s.units * s.knobs.vector * s.knobs.group * s.form->columns;
}

int64_t shared_bytes_of(const RowsSchedule& s) {
  if (s.is_copied()) return s.units * s.knobs.threads * s.form->copied;
  if (s.knobs.held == RowsKnobs::in_shared) return s.units * s.knobs.threads * s.form->held;
  if (s.in_ring()) return std::max(s.stages * s.ring_turn_bytes(), staged_columns(s));
  return staged_columns(s);
}

// Whether bulk copies can fetch its rows.
bool has_pieces(const RowsSchedule& s) { return s.form->in_pieces && s.form->streamed > 0 && !s.row_tails; }

int64_t exchange_bytes_of(const RowsProblem& problem, const RowsSchedule& s) {
  const int64_t slots = s.slots();
  const int64_t near = problem.spread ? (slots < kWarp ? kWarp / slots : 1) : std::min(s.knobs.group, kWarp);
  // rows/block.cuh: rows of a vector lie one apart.
  if (s.is_split()) {
    const int64_t slot = problem.spread && s.knobs.vector > 1 ? s.knobs.vector + 1 : 1;
    const int64_t values = problem.across ? s.cells_of_block() * s.form->row_bytes : 0;
    return std::max(values, (s.knobs.group / near + 1) / 2 * slots * slot * s.form->totals);
  }
  const int64_t members = s.knobs.group / near, parts = members * s.knobs.cluster;
  if (parts <= 1) return 0;
  const int64_t cells = s.knobs.batch * (problem.spread ? slots * s.knobs.vector : 1);
  const auto bytes = [&](int64_t count) { return round_up(count * cells * s.form->totals, 16); };
  // rows/exchange.cuh: blocks of many rows combine their own parts, and send one.
  const bool gathers = problem.spread && s.knobs.cluster > 1 && members > 1;
  return gathers ? 2 * bytes(s.knobs.cluster) + bytes(members) : 2 * bytes(parts);
}

}  // namespace

RowsSchedule::RowsSchedule(const RowsProblem& problem, std::shared_ptr<const RowsForm> shared,
                           const RowsKnobs& asked)
    : form(std::move(shared)), knobs(asked) {
  const Dims& domain = problem.domain();
  const int rank = domain.rank();
  vectors = vectors_of(domain, problem.first_of_row(), rank, y().vector_axis, knobs.vector);
  rows = vectors_of(domain, 0, y().kept, y().vector_axis, knobs.vector);
  units = ceil_div(vectors, knobs.group * knobs.cluster);
  row_tails = !problem.spread && domain[rank - 1] % knobs.vector != 0;
  unroll = std::clamp<int64_t>(power_of_two_to(64 / form->held), 1, 4);
  unroll = std::min(unroll, power_of_two_from(units));
  if (is_split()) {
    const int64_t turns = ceil_div(rows, slots());
    sharing = std::max<int64_t>(1, problem.device.sm_count * knobs.blocks / turns);
    units = ceil_div(vectors, knobs.group * sharing);
    sharing = ceil_div(vectors, knobs.group * units);
    unroll = std::min(is_resident() ? unroll : knobs.batch, power_of_two_from(units));
  }
  repacks = knobs.held == RowsKnobs::in_registers && units * knobs.vector > 16;
  const int64_t in_turn = ceil_div(rows, rows_of_turn());
  persistent = has_columns() || in_turn * knobs.cluster > kMaxGrid;
  grid = in_turn * knobs.cluster;
  exchange_bytes = exchange_bytes_of(problem, *this);
  if (in_ring()) {
    const int64_t room = problem.device.shared_per_sm / std::max<int64_t>(1, knobs.blocks) - 1024;
    stages = std::clamp<int64_t>((std::min(room, problem.device.shared_per_block) - exchange_bytes - 256) /
                                     std::max<int64_t>(1, ring_turn_bytes()),
                                 0, kMostStages);
  }
  shared_bytes = shared_bytes_of(*this);
  registers = registers_of(problem, *this);
  resident = resident_blocks(problem, *this);
  if (is_split()) grid = ceil_div(rows, slots()) * sharing;
  if (!persistent) return;
  knobs.blocks = std::clamp<int64_t>(knobs.blocks, 1, resident);
  grid = std::min(in_turn, clusters_at_once(problem.device, knobs)) * knobs.cluster;
}

int64_t RowsSchedule::ring_turn_bytes() const {
  return rows_of_turn() * vectors * knobs.vector * form->streamed;
}

int64_t RowsSchedule::cells() const { return rows * (y().vector_axis < y().kept ? knobs.vector : 1); }

int64_t RowsSchedule::cells_of_block() const {
  return slots() * (y().vector_axis < y().kept ? knobs.vector : 1);
}

int64_t RowsSchedule::lanes_of_result(int64_t fold) const {
  const int64_t results = std::max<int64_t>(1, std::min(cells_of_block(), cells()) / fold);
  return std::clamp<int64_t>(power_of_two_to(knobs.threads / results), 4, kWarp);
}

bool fits(const RowsProblem& problem, const RowsSchedule& s) {
  const DeviceInfo& device = problem.device;
  const RowsKnobs& knobs = s.knobs;
  if (knobs.threads > kMostThreads || knobs.threads % kWarp != 0 || knobs.threads % knobs.group != 0 ||
      knobs.vector > problem.widest)
    return false;
  for (const Store& store : s.y().expr.stores)
    if (is_packed(store.type) && knobs.vector % elements_per_byte(store.type) != 0) return false;
  if (!problem.spread &&
      (s.slots() > 1 ? knobs.group > kWarp || knobs.cluster > 1 : knobs.group % kWarp != 0))
    return false;
  if (knobs.cluster > 1 && device.compute_capability < 90) return false;
  if (s.is_split() &&
      (s.has_columns() || s.sharing < 2 || s.grid / s.sharing > kMostRowGroups || s.resident < knobs.blocks))
    return false;
  // Lanes of a warp that share neighbouring rows are combined by halves (rows/exchange.cuh).
  if (problem.spread && s.slots() <= kWarp / 2 && !std::has_single_bit(static_cast<uint64_t>(s.slots())))
    return false;
  if (s.has_columns() && !s.is_unrolled()) return false;
  if (s.is_copied() && (device.compute_capability < 80 || s.row_tails || s.form->copied == 0)) return false;
  if (s.is_resident() && (knobs.batch > 1 || s.grid > device.sm_count * knobs.blocks)) return false;
  if (problem.across && (knobs.vector != problem.widest || knobs.group % knobs.vector != 0)) return false;
  // Cells of a result are a block's own.
  if (s.is_resident() && s.grid > s.sharing && s.cells_of_block() % problem.fold != 0) return false;
  if (s.in_ring() && (!s.has_columns() || knobs.cluster > 1 || device.compute_capability < 90 ||
                      s.stages < 2 || !has_pieces(s)))
    return false;
  if (s.in_ring() && s.slots() > 1 && s.units * knobs.batch > kMostRingUnits) return false;
  if (knobs.batch > 1 && !s.is_split() && (!s.is_unrolled() || s.rows < 2)) return false;
  const int64_t unrolled = s.units * knobs.batch;
  if (s.is_unrolled() && (unrolled > kMostUnits ||
                          (unrolled > 1 && unrolled * knobs.vector * steps_of(s.y().expr) > kMostLanes)))
    return false;
  if (s.registers > kMostRegisters || s.registers * knobs.threads > device.registers_per_sm) return false;
  return s.exchange_bytes <= kStaticShared &&
         s.shared_bytes + s.exchange_bytes + 1024 <= device.shared_per_block;
}

namespace {

class Settings {
 public:
  explicit Settings(const RowsProblem& problem) : problem_(problem), forms_(problem) {}

  std::vector<RowsSchedule> all() {
    for (int64_t vector = problem_.widest; vector >= 1 && vector * 2 >= problem_.widest; vector /= 2) {
      if (problem_.fold == 1) problem_.spread ? add_spread(vector) : add_rows(vector);
      if (!problem_.has_columns) add_split(vector);
    }
    return std::move(all_);
  }

 private:
  int most_clusters() const { return problem_.device.compute_capability >= 90 ? 8 : 1; }

  // Rows in the registers or the shared memory of a block may as well be passed over once more.
  void add(RowsKnobs knobs) {
    const bool is_near = knobs.held == RowsKnobs::in_registers || knobs.held == RowsKnobs::copied;
    const bool cheap_passes = is_near && knobs.cluster == 1 && knobs.split == 0;
    for (const int64_t join : {0, 1}) {
      if (problem_.joins ? join == 0 && !cheap_passes : join != 0) continue;
      knobs.join = join;
      const std::shared_ptr<const RowsForm> form = forms_.at(knobs.vector, join != 0);
      RowsSchedule schedule(problem_, form, knobs);
      if (!fits(problem_, schedule) ||
          std::ranges::find(all_, schedule.knobs, &RowsSchedule::knobs) != all_.end())
        continue;
      // Fewer blocks than asked for may leave each more room.
      if (schedule.knobs != knobs) schedule = RowsSchedule(problem_, form, schedule.knobs);
      all_.push_back(std::move(schedule));
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
        for (const int64_t held : {RowsKnobs::in_shared, RowsKnobs::in_memory, RowsKnobs::copied})
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
      for (const int64_t held : {RowsKnobs::in_registers, RowsKnobs::in_ring})
        add_turns({.vector = vector,
                   .threads = lanes ? threads : group,
                   .group = group,
                   .cluster = cluster,
                   .held = held});
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
          for (const int64_t held :
               {RowsKnobs::in_registers, RowsKnobs::in_shared, RowsKnobs::in_memory, RowsKnobs::copied})
            add({.vector = vector, .threads = threads, .group = group, .cluster = cluster, .held = held});
        }
  }

  // Threads that walk a row by launches or between meetings, blocks enough for all SMs, and vectors in
  // flight.
  void add_split(int64_t vector) {
    const Dims& domain = problem_.domain();
    const int64_t across = domain[problem_.site.vector_axis] / vector;
    for (const int64_t threads : {128, 256, 512})
      for (int64_t slots = problem_.spread ? 4 : 1; slots <= (problem_.spread ? 64 : 1); slots *= 2) {
        if (slots > 4 && slots / 2 >= power_of_two_from(across)) break;
        add_sharing(vector, threads, slots, false);
      }
    // Blocks that keep whole lines of neighbours have one run of memory each. Those that turn them have
    // longer runs of results where they keep parts of lines.
    if (!problem_.spread || across < kWarp || across > kMostLine) return;
    for (int64_t parts = 1; parts <= (problem_.across ? 4 : 1) && across % parts == 0; parts *= 2)
      for (const int64_t group : {4, 8, 16})
        if (across / parts * group % kWarp == 0)
          add_sharing(vector, across / parts * group, across / parts, true);
  }
  void add_sharing(int64_t vector, int64_t threads, int64_t slots, bool only_resident) {
    const Dims& domain = problem_.domain();
    const int kept = problem_.site.kept, axis = problem_.site.vector_axis;
    const int64_t rows = vectors_of(domain, 0, kept, axis, vector);
    const int64_t vectors = vectors_of(domain, problem_.first_of_row(), domain.rank(), axis, vector);
    const int64_t group = threads / slots, turns = ceil_div(rows, slots);
    if (vectors < 2 * group || turns > kMostRowGroups) return;
    for (int64_t blocks = 1; blocks * threads <= 1536; ++blocks) {
      const int64_t sharing = problem_.device.sm_count * blocks / turns;
      if (sharing < 2) continue;
      RowsKnobs knobs{.vector = vector,
                      .threads = threads,
                      .group = group,
                      .held = RowsKnobs::copied,
                      .blocks = blocks,
                      .split = problem_.across     ? RowsKnobs::turns
                               : problem_.fold > 1 ? RowsKnobs::folds
                                                   : RowsKnobs::splits};
      add(knobs);
      if (only_resident || problem_.across) continue;
      knobs.held = RowsKnobs::in_memory;
      const int64_t most = power_of_two_from(ceil_div(vectors, group * sharing));
      for (knobs.batch = 1; knobs.batch <= std::min(most, kMostSplitBatch); knobs.batch *= 2) add(knobs);
    }
  }

  const RowsProblem& problem_;
  RowsForms forms_;
  std::vector<RowsSchedule> all_;
};

}  // namespace

std::vector<RowsSchedule> rows_schedules(const RowsProblem& problem) { return Settings(problem).all(); }

}  // namespace fusor
