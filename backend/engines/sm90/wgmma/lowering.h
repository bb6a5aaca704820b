// Owns Schedule: one setting of the wgmma engine - its store path, its shared memory, its launches and its
// costs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "backend/engines/contraction/product.h"
#include "backend/engines/contraction/result_reduction.h"
#include "backend/engines/sm90/copy/tensor_maps.h"
#include "backend/engines/sm90/load/threads.h"
#include "backend/engines/sm90/wgmma/rules.h"
#include "backend/engines/sm90/wgmma/tiling.h"
#include "codegen/text/parameters.h"
#include "core/device_info.h"
#include "core/fusion.h"
#include "core/lowered.h"
#include "core/work.h"

namespace fusor::wgmma {

/// A setting, and what follows from it.
struct Schedule {
  const Problem& problem;
  const Fusion& fusion;
  const DeviceInfo& device;
  const Contraction& view;
  Tiling tiling;
  /// Operands whose elements pass ops before they are multiplied; a and b are what is stored of them then.
  std::optional<PrologueOperand> prologue_a, prologue_b;
  int64_t taps_of_line = 1;      ///< resident windows: taps of a line of copied filters
  CopiedOperand a;               ///< left operand of what the tensor cores see
  std::vector<CopiedOperand> b;  ///< right operand of every sibling
  /// Both as threads read them, where they do: instead of a, instead of all of b.
  std::optional<ThreadLoad> thread_a;
  std::vector<ThreadLoad> thread_b;
  Expr y;
  const std::optional<ResultReduction>& reduction;
  bool short_forms;
  bool rounds_value = true;
  /// The first result, where TMA stores it, and another that lies as it does.
  std::optional<CopiedResult> copied, second;
  /// Operands of the epilogue that lie so and come by TMA.
  std::vector<CopiedResult> staged;
  int vector_axis = 0;
  int64_t vector = 1;
  int64_t index_bits;

  Schedule(const Problem& problem_, const Knobs& knobs);

  /// Whether the sums of a tile's parts are added up by another launch.
  bool is_split() const { return tiling.split > 1 && !tiling.gathered; }
  DataType type() const { return problem.type; }

  static Tiling tiling_of(const Problem& problem, const Knobs& knobs);
  /// Lines of a tile are no neighbours in the result.
  bool stores_lines() const { return tiling.classes > 0 || tiling.window || problem.form.experts(); }
  bool stores_planes() const { return copied && copied->planes; }
  /// Batch axes of the map of a result that TMA stores; 0 where one stride walks its entries.
  int64_t result_axes() const {
    return copied && !copied->batch.is_plain() ? std::ssize(copied->batch.axes) : 0;
  }
  /// Rows of the product that begin on multiples of it are followed by neighbours in the same image.
  int64_t run_of_pixels() const;
  /// Resident windows: the operand of the filters, that of the pixels, and lines of a tap's filter that are
  /// multiplied, of 64.
  CopiedOperand& filters() { return tiling.swapped ? a : b[0]; }
  const CopiedOperand& filters() const { return tiling.swapped ? a : b[0]; }
  const CopiedOperand& pixels() const { return tiling.swapped ? b[0] : a; }
  int64_t filter_lines() const;
  int64_t filter_bytes() const;  ///< of all taps
  bool along_columns() const {
    return tiling.gathered ? !tiling.swapped : !copied || copied->along_n != tiling.swapped;
  }

  /// TMA takes the first result where its lines allow, and a second one, or threads take the
  /// first from boxes: the epilogue yields them as values.
  void choose_store();

  std::optional<CopiedResult> result_beside() const;

  /// The next result becomes a value; whether that has the type that is stored.
  bool yields(const CopiedResult& stored);

  /// Loads of what lies as the first result does become values beside the sums, as far as boxes have room.
  void choose_staged();

  std::optional<CopiedResult> operand_like_result(const Node& load) const;

  void choose_vectors();
  /// Chooses the vectors of a result that is gathered from the blocks of a cluster.
  void choose_gathered_vectors();

  /// Where threads load what TMA takes as well, they rely on whole elements alone.
  ThreadLoad loaded_operand(bool second, int64_t sibling) const;
  void choose_loaders();
  void keep_window();
  void join_taps();

  bool passes() const { return prologue_a || prologue_b; }
  /// Bytes of shared memory that such operands' elements of a step take; and how many steps are on their way.
  int64_t raw_bytes_of_step() const;
  int64_t steps_ahead() const;
  /// Warpgroups that load: two where ops keep one too busy, and another block does not.
  int64_t loaders() const;

  StorePath store_path() const;
  /// Whether the epilogue's text is written out for every piece of the sums: a short one, which runs faster
  /// so, and a longer one (GELU) of a matmul of so few steps that a tile is mostly epilogue: choosing the
  /// sums of a piece costs two instructions an element. Else it stands once, in a loop, and compiles sooner;
  /// so does a short one whose time many steps and rounds of turns hide, or whose results are wide beside
  /// many sums.
  bool is_unrolled() const;
  /// Whether the epilogue may run once for nothing first: one that stores tiles as they are, and waits for no
  /// box.
  bool can_rehearse() const {
    const bool plain = store_path() == StorePath::boxes || store_path() == StorePath::threads;
    return plain && !problem.form.experts() && staged.empty() && !tiling.reduces && !tiling.short_sums &&
           !tiling.from_registers && !tiling.window && tiling.classes == 0 && !tiling.loader_is_busy();
  }
  bool rehearses() const { return tiling.rehearses && can_rehearse(); }
  /// Whether no thread stores a result: only totals ask what exists. Columns that fill up a tap's channels
  /// have no coordinates.
  bool clamped() const {
    return copied && view.padded_channels == 0 && std::ranges::all_of(y.stores, [&](const Store& store) {
             return reduction_of(y, store) != nullptr;
           });
  }

  // --- Shared memory, like struct Shared of the kernel ---

  /// Columns of a box of the result, by 64 rows: 8 KiB where whole boxes make up a tile, and no second block
  /// wants the memory.
  int64_t box_columns() const;
  /// Whole rows of the result that TMA stores as one line of up to 128 bytes: of a dense one of few columns,
  /// which lie in one box.
  int64_t joined_rows() const;
  /// Bytes of an element of a box, as codegen/device/sm90/epilogue/boxes.cuh lays it out: an operand lies
  /// where a result of its size will.
  int64_t box_element_bytes() const;
  /// Boxes of a consumer. Operands had better come a tile ahead, and results of tiles of few steps have time
  /// to leave; but stages that copies of the main loop need are not staged away.
  int64_t boxes_of_consumer() const;
  int64_t line_bytes() const;
  int64_t boxes_bytes(int64_t columns, int64_t count) const;
  /// And barriers, up to the next multiple of 1024.
  int64_t shared_bytes_with(int64_t boxes, int64_t stages) const;
  int64_t shared_bytes(int64_t stages) const;
  /// Bytes that a block may use.
  int64_t shared_budget() const;
  int64_t stages() const {
    return stages_beside(copied ? boxes_bytes(box_columns(), boxes_of_consumer()) : 0);
  }
  int64_t stages_beside(int64_t boxes) const;

  // --- Launches ---

  KernelSite epilogue(int axis) const { return {"Y", y, axis, short_forms, rounds_value}; }

  /// What the device has room for.
  bool fits() const;

  /// Blocks of a tile's output channels: of a group, and of all.
  int64_t filter_blocks_of_group() const { return tiling.swapped ? tiling.tiles_m() : tiling.tiles_n(); }
  int64_t filter_blocks() const { return filter_blocks_of_group() * tiling.entries; }

  /// Blocks that run side by side. Those of a resident window keep their filters.
  int64_t slots() const;
  int64_t blocks() const {
    const int64_t all = tiling.tiles() * tiling.split;
    return tiling.gathered ? all : std::min(all, slots());
  }
  /// Bytes of a tile's sums on their way to the other blocks of a cluster, as sm90/epilogue/gathered.cuh lays
  /// them out in the memory of the stages.
  int64_t gathered_bytes() const;

  // --- Reductions of the result ---

  /// Whether the columns of a tile are left, of what the tensor cores see.
  bool leaves_columns() const { return tiling.swapped ? reduction->leaves_m : reduction->leaves_n; }
  bool leaves_rows() const { return tiling.swapped ? reduction->leaves_n : reduction->leaves_m; }
  /// What the kernel calls FUSOR_REDUCED.
  int64_t reduced() const { return leaves_columns() ? 1 : leaves_rows() ? 2 : 3; }
  PartialResults partial_results() const;

  Launch product() const;

  /// The elements that the tensor cores multiply.
  DataType multiplied_a() const;
  DataType multiplied_b() const;
  std::vector<ConfigValue> config() const;
  /// The smallest of what all siblings' distances are multiples of, where threads load; else 0.
  int64_t grain_a() const;
  int64_t grain_b() const;
  /// The operand that a block loads before the launch in front has ended: 1: a, 2: b, 0: none.
  int64_t given() const;

  Parameters parameters() const;
  void append_maps(Parameters& p) const;
  void append_result(Parameters& p, const char* name, const CopiedResult& result) const;
  void append_windows(Parameters& p) const;
  void append_schedule(Parameters& p) const;
  void append_operands(Parameters& p) const;
  void append_target(Parameters& p) const;

  /// As codegen/device/sm90/load/planes.cuh reads it: along the first axis, groups of rows `stride` apart.
  WindowWalk walk_over_planes(int i) const;

  /// tiled/split_finish.cuh counts tiles of m by n.
  Launch sum_of_parts() const;

  int64_t partial_bytes() const;

  std::vector<Guard> guards() const;
  int64_t alignment_of(int operand) const;

  // --- Costs ---

  /// Cycles that a thread spends on one element of the epilogue. This and the efficiencies below are fitted
  /// to 460 candidates of 34 cases on an H200 (bench/HISTORY.md).
  double finish_cycles_per_element() const;
  double cycles_of_further_classes() const;
  /// For an exchanged matmul, whose tiles' columns are m: nothing but the sums differs along them.
  bool has_columns_alike() const;

  /// For a matmul whose tiles are not exchanged: a bias, say, has a value for every column, which threads
  /// load for each piece of the tile; exchanged, it has one for every row.
  bool loads_along_columns() const;

  /// Steps of several rows are large and few: while one is multiplied, the others of the ring must come.
  double busy_share() const;

  /// Bytes beyond an element's own that L2 moves where the epilogue's threads reach across lines: a warp
  /// meets 8 neighbouring pixels at once (every second one of 8 where the tile is swapped), in sectors of 32
  /// bytes.
  double scattered_bytes() const;

  /// Cycles that threads take to load what they must of a step; and the share of time in which the tensor
  /// cores have something to multiply then.
  double loader_cycles() const;
  double kept_fed() const;
  /// Cycles of a step: of the tensor cores, or of reading its lines from shared memory; and of passing
  /// operands through their ops.
  double consumer_cycles() const;
  double prologue_cycles() const;

  /// Seconds that the tensor cores take for the products that are wanted.
  double seconds_of_products() const;
  /// A matmul, as it was given, of such lines, that takes no longer than those that were measured; what the
  /// time model is told of it.
  bool is_straddling_matmul() const;
  /// A short matmul, or a pointwise convolution carried out as one, whose lines lie in one line of L2 each.
  bool is_short_matmul() const;
  double clock_of_short_product() const;
  double efficiency_of_straddling(bool one_round) const;
  double l2_bytes_of_straddling(double bytes) const;
  void multiply_beside_l2(Work& work) const;

  /// Whether lines of an operand lie in two of L2's each.
  bool straddles_lines() const;

  /// The efficiency of the mainloop, and of one whose operands all come by TMA. Ping-pong leaves the tensor
  /// cores alone between tiles; clusters gain nothing but where L2 does not hold the operands.
  double efficiency(double bytes) const;
  double efficiency_of_copies(double bytes) const;
  /// The factors of efficiency_of_copies: consumers that take turns or meet, clusters (where the problem
  /// moves `bytes`), the tile's width, the copies of pixels, and the operand that is the tile's rows.
  double share_of_consumers() const;
  double share_of_clusters(double bytes) const;
  double share_of_width() const;
  double share_of_pixels() const;
  double share_of_sides() const;
  /// Whether columns of pixels lie in lines that straddle those of L2.
  bool straddles_pixels() const;
  /// More than 1 where a wgrad leaves SMs idle.
  bool has_long_sums() const;
  double share_of_idle_device() const;

  /// Seconds that starting takes more where a cluster gathers sums, or less where every tile has an SM at
  /// once.
  double seconds_of_cluster() const;
  double seconds_of_one_round() const;

  /// Steps along k of all tiles and parts, and the lines of 128 bytes that each multiplies.
  double steps_of_all_tiles() const;
  double lines_multiplied() const;
  /// Bytes that operands move through L2, in its lines.
  double copied_bytes() const;
  /// Bytes of operands that several entries of a batch share but not all, which L2 does not hold from one of
  /// these to the next.
  double bytes_delivered_again() const;
  /// Seconds that operands' lines shorter than a box, and results' lines that end within a sector, take
  /// beside all else.
  double seconds_of_short_lines() const;
  double seconds_of_short_results() const;
  /// Cycles from a tile's last product to its stored results.
  double finish_cycles() const;
  double start_seconds() const;
  /// Adds to `work` the launch that sums parts or combines partial results, and the bytes of stores that no
  /// product hides.
  void add_second_launch(Work& work) const;
  Work work() const;
};

/// The product, and the launches that add up parts or combine partial results.
Lowered lower(const Schedule& schedule);
inline Work cost(const Schedule& schedule) { return schedule.work(); }

}  // namespace fusor::wgmma
