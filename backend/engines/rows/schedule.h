// Owns the schedule of the rows engine: how many threads and blocks share a row, and where it lies between
// its phases.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/engines/rows/form.h"
#include "backend/engines/rows/problem.h"
#include "core/work.h"

namespace fusor {

inline constexpr int64_t kWarp = 32;  // threads

struct RowsKnobs {
  enum Held : int64_t { in_registers, in_shared, in_memory, in_ring, copied };
  enum Split : int64_t { whole, splits, folds, turns };
  int64_t vector = 1;     ///< elements
  int64_t threads = 128;  ///< a block
  int64_t group = 32;     ///< threads of a block that share a row
  int64_t cluster = 1;    ///< blocks that share a row
  int64_t held = in_memory;
  int64_t batch = 1;   ///< rows of a thread in flight together, of a split row vectors
  int64_t blocks = 1;  ///< an SM, where blocks see many rows
  int64_t join = 0;    ///< 1: totals that need one another are made in one pass
  int64_t split = 0;   ///< all blocks share rows, by a launch a phase or, of copied ones, by meetings of the
                       ///< grid; and neighbouring rows are folded; and turned, as results lie

  static void visit(auto& self, auto&& knob) {
    knob("vector", self.vector);
    knob("threads", self.threads);
    knob("group", self.group);
    knob("cluster", self.cluster);
    knob("held", self.held);
    knob("batch", self.batch);
    knob("blocks", self.blocks);
    knob("join", self.join);
    knob("split", self.split);
  }
  friend bool operator==(const RowsKnobs&, const RowsKnobs&) = default;
};

struct RowsSchedule {
  RowsSchedule(const RowsProblem& problem, const RowsKnobs& asked)
      : RowsSchedule(problem, std::make_shared<const RowsForm>(problem, asked.vector, asked.join != 0),
                     asked) {}
  /// `shared`: the problem's form of these knobs.
  RowsSchedule(const RowsProblem& problem, std::shared_ptr<const RowsForm> shared, const RowsKnobs& asked);

  std::shared_ptr<const RowsForm> form;
  RowsKnobs knobs;
  int64_t vectors = 0;  ///< of a row; elements where neighbouring rows are adjacent
  int64_t rows = 0;     ///< vectors of them there
  int64_t units = 0;    ///< vectors of a row that a thread works on
  int64_t unroll = 1;   ///< of them in flight, where registers do not hold the row
  int64_t grid = 0;     ///< blocks
  int64_t sharing = 1;  ///< of them that share a row by launches
  int64_t stages = 0;   ///< turns whose rows are there or on their way, in a ring
  bool persistent = false;
  bool row_tails = false;
  bool repacks = false;        ///< what is computed of held elements is computed again in the next phase
  int64_t shared_bytes = 0;    ///< dynamic
  int64_t exchange_bytes = 0;  ///< static
  int64_t registers = 0;       ///< of a thread, as estimated
  int resident = 1;            ///< blocks of an SM

  const KernelSite& y() const { return form->y; }
  bool has_columns() const { return form->columns > 0; }
  bool is_split() const { return knobs.split != 0; }
  bool in_ring() const { return knobs.held == RowsKnobs::in_ring; }
  bool is_copied() const { return knobs.held == RowsKnobs::copied; }
  /// All blocks run at once, and shared memory holds all rows.
  bool is_resident() const { return is_split() && is_copied(); }
  /// Loops over a row's vectors are unrolled.
  bool is_unrolled() const { return knobs.held == RowsKnobs::in_registers || in_ring(); }
  int64_t slots() const { return knobs.threads / knobs.group; }
  int64_t rows_of_turn() const { return slots() * knobs.batch; }
  int64_t row_step() const { return grid / knobs.cluster * rows_of_turn(); }
  /// Whether every thread works on as many vectors of a row, whole batches of them in flight.
  bool is_whole() const {
    return units * knobs.group * knobs.cluster * sharing == vectors && units % unroll == 0;
  }
  /// Columns with the tail of the last vector, and the parts that are added up of each.
  int64_t column_count() const { return vectors * knobs.vector; }
  int64_t parts() const { return grid / knobs.cluster; }
  int64_t scratch_bytes() const { return parts() * column_count() * form->columns; }
  int64_t ring_turn_bytes() const;
  /// Totals of a phase, where rows are split: of all rows, and of a block's.
  int64_t cells() const;
  int64_t cells_of_block() const;
  /// Threads that combine the parts of a result of resident rows, so that all of a block's are combined at
  /// once.
  int64_t lanes_of_result(int64_t fold) const;
};

/// Every schedule that the device has room for.
std::vector<RowsSchedule> rows_schedules(const RowsProblem& problem);
/// Whether the device has room for it.
bool fits(const RowsProblem& problem, const RowsSchedule& schedule);

Work cost(const RowsProblem& problem, const RowsSchedule& schedule);
Lowered lower(const RowsProblem& problem, const RowsSchedule& schedule);

}  // namespace fusor
