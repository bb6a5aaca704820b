// Owns what the wgmma engine knows of a fusion, and how it cuts the contraction into tiles: pointwise
// convolutions are carried out as matmuls.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "backend/engines/contraction/patches.h"
#include "backend/engines/contraction/pointwise_convolution.h"
#include "backend/engines/contraction/product.h"
#include "backend/engines/contraction/residue_classes.h"
#include "backend/engines/contraction/result_reduction.h"
#include "backend/engines/reach.h"
#include "backend/engines/rules.h"
#include "backend/engines/sm90/copy/tensor_maps.h"
#include "backend/engines/sm90/load/prologue.h"
#include "backend/engines/sm90/load/threads.h"
#include "backend/engines/sm90/wgmma/experts.h"
#include "backend/engines/sm90/wgmma/prepare.h"
#include "backend/engines/sm90/wgmma/resident_window.h"
#include "backend/engines/tiled/tiling.h"
#include "core/ceil_div.h"
#include "core/device_info.h"

namespace fusor::wgmma {

// The constants of codegen/device/sm90/pipeline/tiling.cuh, sm90/epilogue/boxes.cuh and
// sm90/epilogue/reduce.cuh.
inline constexpr int64_t kConsumers = 2, kWarpgroup = 128, kPartRows = 64;
// Rows of tiles that three consumers share, and sums that a thread of theirs holds.
inline constexpr int64_t kRowsOfThree = 192, kSumsOfThree = 96;
inline constexpr int64_t kLineBytes = 128;
inline constexpr int64_t kLeastPiece = 16;  // columns
inline constexpr int64_t kMaxStages = 12, kMaxSums = 192;
inline constexpr int64_t kWarpRows = 16, kWarps = 4;  // of a part, of a warpgroup
/// How results leave, as codegen/device/sm90/epilogue/boxes.cuh counts them.
enum class StorePath : uint8_t { threads, boxes, partials, lines, planes, gathered };
// Lines of an operand that passes ops, in a tile: more were the fastest of no size that was timed.
inline constexpr int64_t kMostPassedLines = 128;
// Stages that wide boxes leave where there are more of them than of the first result, and all; operands of
// the epilogue that come in boxes.
inline constexpr int64_t kEnoughStages = 4, kFewStages = 3, kMostStaged = 2;
// Boxes of a consumer: one is filled while another leaves.
inline constexpr int64_t kFewestBoxes = 2;
// The knob of a resident window whose positions are the rows of the product, and the most filters of it.
inline constexpr int64_t kPositionsAsRows = 2, kMostFewFilters = 64;
// A resident window's ring of windows.
inline constexpr int64_t kMaxWindows = 8;
// Rows of a product of one step whose few columns are worth tiles of their own: 100,000 took longer so.
inline constexpr int64_t kManyRows = 1 << 16;
// Blocks of a cluster that may share the steps of a tile; every GPU of sm_90 has clusters of so many.
inline constexpr int64_t kMostGathered = 8;

// The type that is multiplied: both operands have elements of one size.
inline DataType operand_type(const Fusion& fusion, bool second = false) {
  const Expr& site = operand_site(fusion, 0, second ? 1 : 0);
  return yielded_node(site).type;
}

// Whether threads pass an operand through the ops before it.
inline bool passes(const Fusion& fusion, const Contraction& view, bool second) {
  return prologue_operand(fusion, view, second, kBoxLine).has_value();
}

// Windows stay resident for 16-bit elements only; positions of the padded grid are no places for totals.
// Results whose pixels are neighbours leave in pairs, as long as rows of the grid are even.
inline std::optional<ResidentWindow> window_of(const Fusion& fusion, const Contraction& view, DataType type) {
  if (!may_lie_across(type) || view.reduces) return std::nullopt;
  constexpr int kChannels = 1;
  const bool channels_last = std::ranges::all_of(
      result_site(fusion).stores, [](const Store& store) { return store.access.strides[kChannels] == 1; });
  return resident_window(view, channels_last);
}

// One reduction that leaves rows, beside one result of 16 bits in boxes, where the epilogue has one operand
// at most, which comes in boxes, too. Columns would have totals each, and a total of all asks of every
// element whether it exists.
inline bool is_light_reduction(const Fusion& fusion, const Contraction& view, bool swapped) {
  const Expr& y = result_site(fusion);
  const auto reduction = result_reduction(fusion, view);
  const auto stored =
      std::ranges::find_if(y.stores, [&](const Store& store) { return !reduction_of(y, store); });
  if (!reduction || !(swapped ? reduction->leaves_n : reduction->leaves_m)) return false;
  if (y.stores.size() != 2 || stored == y.stores.end()) return false;
  const auto boxed = [&](const Store& store, const CopiedResult* first) {
    auto copied = copied_result(fusion, view, y, store, first);
    if (copied && byte_size(copied->type) != 2) copied.reset();
    return copied;
  };
  const auto result = boxed(*stored, nullptr);
  const auto is_load = [](const Node& node) { return node.kind == Node::Kind::load; };
  const auto load = std::ranges::find_if(y.nodes, is_load);
  if (!result || std::ranges::count_if(y.nodes, is_load) > 1) return false;
  if (load == y.nodes.end()) return true;
  const auto operand = boxed({.type = load->type, .access = load->access}, &*result);
  return operand && operand->along_n == result->along_n;
}

// An operand with as many elements as the result, beside another one, a second result or a pair's second
// sums: they want registers.
inline bool is_crowded(const Fusion& fusion) {
  const Expr& y = result_site(fusion);
  const auto is_load = [](const Node& node) { return node.kind == Node::Kind::load; };
  const auto is_whole = [&](const Node& node) {
    return is_load(node) && std::ranges::find(node.access.strides, 0) == node.access.strides.end();
  };
  const bool alone = form_of(fusion) != Form::siblings && std::ranges::count_if(y.nodes, is_load) == 1 &&
                     y.stores.size() == 1;
  return std::ranges::any_of(y.nodes, is_whole) && !alone;
}

// Two results of 16 bits that lie alike: both leave by TMA, and want no more registers than one.
inline bool copies_both_results(const Fusion& fusion, const Contraction& view) {
  const Expr& y = result_site(fusion);
  if (y.stores.size() != 2 || residue_class_count(view) > 0) return false;
  const auto first = copied_result(fusion, view, y, y.stores[0]);
  if (!first) return false;
  const auto second = copied_result(fusion, view, y, y.stores[1], &*first);
  return second && first->along_n == second->along_n && byte_size(first->type) == 2 &&
         byte_size(second->type) == 2;
}

// A wgrad with windows, channels last: 64 columns are one tap's channels, the last of which may be zeros or,
// behind those of a group, the next one's. Those are nobody's columns.
inline bool fills_up_channels(const Fusion& fusion, const Contraction& view) {
  return view.op == ContractionOp::wgrad && view.taps() > 1 && view.channels_fastest &&
         may_lie_across(operand_type(fusion)) && view.input_channels % kBoxLine != 0;
}

// --- What is carried out ---

// A pointwise convolution as a matmul, where TMA can walk it so, or threads can load what it
// cannot walk either way; one of patches that TMA cannot walk as it is as one of strides 1, where it can walk
// that; a matmul whose batch entries share their weights as a pointwise convolution, where TMA can walk that;
// any other fusion as it is.
class MatmulForm {
 public:
  explicit MatmulForm(const Fusion& fusion) : given_(fusion), rewritten_(as_matmul(fusion)) {
    if (rewritten_ && !can_copy(*rewritten_) && (can_copy(given_) || !can_load(*rewritten_)))
      rewritten_.reset();
    if (rewritten_) return;
    rewritten_ = can_copy(given_) ? as_pointwise_convolution(given_) : as_convolution_of_patches(given_);
    if (rewritten_ && !can_copy(*rewritten_)) rewritten_.reset();
  }
  /// Rows that belong to experts, as a matmul.
  MatmulForm(const Fusion& fusion, MatmulOfExperts matmul)
      : given_(fusion), rewritten_(std::move(matmul.fusion)), experts_(std::move(matmul.experts)) {}
  const Fusion& fusion() const { return rewritten_ ? *rewritten_ : given_; }
  const std::optional<Experts>& experts() const { return experts_; }
  /// Whether the given form is a weight gradient.
  bool is_wgrad() const {
    const auto view = contraction_of(given_);
    return view && view->op == ContractionOp::wgrad;
  }
  Contraction view() const { return view_of(fusion()); }
  /// Whether the fusion is carried out as it was given.
  bool is_given() const { return !rewritten_; }

  static Contraction view_of(const Fusion& fusion) {
    Contraction view = contraction_of(fusion).value();
    if (sums_planes(fusion, view)) view.runs_of_k = operand_site(fusion, 0, 0).domain[0];
    view.planes = plane_walk(fusion, view);
    if (view.planes) {
      const int64_t block = view.planes->channel_block;
      view.n = ceil_div(view.input_channels, block) * block * view.taps();
      view.channels_fastest = true;
    } else if (fills_up_channels(fusion, view)) {
      view.padded_channels = ceil_div(view.input_channels, kBoxLine) * kBoxLine;
      view.n = view.padded_channels * view.taps();
    }
    if (copies_both_results(fusion, view)) view.results = 1;
    return view;
  }

 private:
  static bool can_copy(const Fusion& fusion) {
    const auto view = contraction_of(fusion);
    return view && !refuse_copies(fusion, *view, false) && !refuse_copies(fusion, *view, true);
  }
  static bool can_load(const Fusion& fusion) {
    const auto view = contraction_of(fusion);
    return view && !refuse_loads(fusion, *view, false) && !refuse_loads(fusion, *view, true);
  }
  const Fusion& given_;
  std::optional<Fusion> rewritten_;
  std::optional<Experts> experts_;
};

// --- Problem and tiling ---

struct Knobs {
  std::optional<int64_t> tile_m = {}, tile_n = {}, swap = {}, ping_pong = {}, cluster = {}, band = {},
                         split = {}, rows = {}, loader = {}, window = {}, gather = {}, cluster_n = {},
                         rehearse = {};

  static void visit(auto& self, auto&& knob) {
    knob("tile_m", self.tile_m);
    knob("tile_n", self.tile_n);
    knob("swap", self.swap);
    knob("ping_pong", self.ping_pong);
    knob("cluster", self.cluster);
    knob("band", self.band);
    knob("split", self.split);
    knob("rows", self.rows);
    knob("loader", self.loader);
    knob("window", self.window);
    knob("gather", self.gather);
    knob("cluster_n", self.cluster_n);
    knob("rehearse", self.rehearse);
  }
};

// Facts of a fusion.
struct Problem {
  MatmulForm form;
  const Fusion& fusion;  // that is carried out
  const DeviceInfo& device;
  Contraction view;
  DataType type;                       // of what is multiplied
  bool in_parts;                       // fp32 as three parts of bf16
  std::optional<bool> from_registers;  // an operand lies across k; whether it is the second
  LoadedByThreads needed;              // what TMA refuses
  bool threads_take_both;
  LoadedByThreads passed;  // by threads through ops, as TMA brings it
  std::optional<ResultReduction> reduction;
  std::array<bool, 2> reduces_lightly;  // by whether rows and columns are swapped
  bool crowded;                         // the epilogue, with operands and results
  std::optional<ResidentWindow> window;
  bool can_split, can_gather, can_join_rows;
  bool wgrad;  // a convolution's, whichever way it is carried out
  int64_t index_bits = 32;

  /// in_parts: see sm90/wgmma/prepare.h.
  Problem(MatmulForm form_, const DeviceInfo& device_, bool in_parts_)
      : form(std::move(form_)),
        fusion(form.fusion()),
        device(device_),
        view(form.view()),
        type(operand_type(fusion)),
        in_parts(in_parts_),
        from_registers(operand_from_registers(fusion, view)),
        needed(needs_threads(fusion, view)),
        threads_take_both(!in_parts && fusor::threads_take_both(fusion, view)),
        passed{passes(fusion, view, false), passes(fusion, view, true)},
        reduction(result_reduction(fusion, view)),
        reduces_lightly{is_light_reduction(fusion, view, false), is_light_reduction(fusion, view, true)},
        crowded(is_crowded(fusion)),
        window(in_parts ? std::nullopt : window_of(fusion, view, type)),
        can_split(can_split_k(view) && !form.experts()),
        can_gather(can_split && !view.planes && !is_fp8(type) && is_adjacent_along_n(fusion, view)),
        can_join_rows(can_join_rows_of(view, type)),
        wgrad(form.is_wgrad()) {
    for (const Operand& operand : fusion.operands)
      if (operand.elements > std::numeric_limits<int32_t>::max()) index_bits = 64;
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

 private:
  // The kernel that adds up parts of k knows one sum, and stores all that comes of it.
  static bool can_split_k(const Contraction& view) {
    return view.siblings == 1 && !view.reduces && residue_class_count(view) == 0;
  }
  // The vectors of a result that is gathered from the blocks of a cluster run along n.
  static bool is_adjacent_along_n(const Fusion& fusion, const Contraction& view) {
    const Expr& y = result_site(fusion);
    const int n_axis = view.is_convolution() ? 1 : view.batch.rank() + 1;
    return std::ranges::all_of(y.stores, [&](const Store& store) {
      return store.access.strides[n_axis] == 1 && !reduction_of(y, store);
    });
  }
  // A descriptor's lines run on from row to row, as far as the tensor cores have an instruction so wide.
  static bool can_join_rows_of(const Contraction& view, DataType type) {
    if (!view.planes || view.planes->flat || view.axes.size() < 2 || is_fp8(type)) return false;
    const int64_t columns = view.axes[0].window * view.planes->channel_block;
    return view.axes[0].step > 0 && columns <= 256 && (columns % 32 == 0 || columns == 16);
  }
};

// The operands that TMA refuses; or, where it takes all, both operands for the asking.
inline LoadedByThreads loaded_by_threads(const Problem& problem, const Knobs& knobs) {
  if (problem.needed.any() || knobs.loader.value_or(0) == 0) return problem.needed;
  return {problem.threads_take_both, problem.threads_take_both};
}

struct Tiling {
  int64_t line;         // steps of k in a tile
  bool in_parts;        // fp32 as three parts of bf16
  bool short_sums;      // of one step, or of the products of parts, which are added up in fp32
  bool from_registers;  // the rows: they lie across k
  LoadedByThreads by_threads;
  LoadedByThreads passed;  // by threads through ops, as TMA brings it
  bool swapped;            // the tensor cores' rows are n
  bool ping_pong;          // each consumer has tiles of its own
  int64_t tile_m, tile_n, cluster, band;
  int64_t cluster_n;          // blocks of a cluster side by side; `cluster` of them lie below each other
  bool rehearses;             // the epilogue, while the first copies are on their way
  int64_t siblings;           // share the columns of a tile
  int64_t plane_rows = 1;     // of a wgrad of planes: runs in a step
  int64_t channel_block = 1;  // columns with one tap, of such a wgrad
  bool reduces;               // the result, on the way out
  bool reduces_lightly;       // to totals of rows, and nothing that threads load
  bool matmul;
  bool crowded;     // the epilogue, with operands and results
  int64_t results;  // of the epilogue; two that TMA stores count as one
  int64_t split;
  bool wgrad = false;          // of a convolution, perhaps as a matmul
  bool boxed_columns = false;  // columns are neighbours: they come in boxes of 64
  bool gathered = false;       // the parts of a tile are the blocks of a cluster, which add up their sums
  int64_t classes = 0;         // of a dgrad of a stride: a product each
  std::optional<ResidentWindow> window;  // kept in shared memory while all taps multiply it
  int64_t rows, columns, entries;        // of what the tensor cores see
  int64_t steps, steps_of_part;          // the former of the longest class
  int64_t all_steps;                     // of one tile of every class
  int64_t short_tiles = 0;               // of rows of experts: tiles more than those of as many rows of one

  Tiling(const Problem& problem, const Knobs& knobs)
      : line(box_line(problem.type)),
        in_parts(problem.in_parts),
        short_sums(in_parts || is_fp8(problem.type)),
        from_registers(problem.from_registers.has_value()),
        by_threads(loaded_by_threads(problem, knobs)),
        passed(problem.passed),
        swapped(problem.view.siblings == 1 && problem.from_registers.value_or(knobs.swap.value_or(0) != 0)),
        ping_pong(knobs.ping_pong.value_or(0) != 0),
        tile_m(knobs.tile_m.value_or(128)),
        tile_n(knobs.tile_n.value_or(128)),
        cluster(knobs.cluster.value_or(1)),
        band(knobs.band.value_or(8)),
        cluster_n(knobs.cluster_n.value_or(1)),
        rehearses(knobs.rehearse.value_or(0) != 0),
        siblings(problem.view.siblings),
        reduces(problem.view.reduces),
        reduces_lightly(problem.reduces_lightly[swapped ? 1 : 0]),
        matmul(!problem.view.is_convolution()),
        crowded(problem.crowded),
        results(problem.view.results),
        rows(problem.view.m),
        columns(problem.view.n),
        entries(problem.view.entries),
        steps(steps_of(problem.view, line)),
        all_steps(steps) {
    const Contraction& view = problem.view;
    wgrad = problem.wgrad;
    if (const auto& experts = problem.form.experts()) {
      swapped = false;
      cluster = cluster_n = 1;
      // The rows of each end within a tile.
      short_tiles = std::min(experts->count, rows) / 2;
    }
    if (in_parts && !walks_channels(view))
      all_steps = steps = kPartsOfNumber * (view.k / kPartsOfNumber / line);
    if (view.planes) walk_planes(problem, knobs.rows.value_or(1));
    if (knobs.window.value_or(0) != 0) window = problem.window;
    if (window) {
      keep_window(knobs.window == kPositionsAsRows);
      return;
    }
    if (residue_class_count(view) > 0) count_classes(residue_classes(view), blocks_of(view, line));
    if (swapped) std::swap(rows, columns);
    // Three consumers share a tile; those that take turns are two.
    if (ping_pong && tile_m == kRowsOfThree) tile_m = kConsumers * kPartRows;
    cluster_n = std::min(cluster_n, kMostGathered / std::max<int64_t>(cluster, 1));
    // What the registers hold of a thread; a wgmma has 64 rows.
    if (!ping_pong) tile_m = std::max(tile_m, kConsumers * kPartRows);
    if (short_sums) tile_n = std::min<int64_t>(tile_n, loader_is_busy() ? 128 : 192);
    if (in_parts) tile_m = std::min(tile_m, readers() * kPartRows);
    if (loader_is_busy()) cluster = cluster_n = 1;
    // Two results that leave apart want the registers that a second mask of blocks would.
    if (reduces || siblings > 1 || results > 1) cluster_n = 1;
    if (swapped ? passed.second : passed.first) tile_m = std::min(tile_m, kMostPassedLines);
    if (swapped ? passed.first : passed.second) tile_n = std::min(tile_n, kMostPassedLines);
    fit_siblings(kLeastPiece);
    const int64_t parts =
        problem.can_split ? std::clamp<int64_t>(knobs.split.value_or(1), 1, most_parts()) : 1;
    steps_of_part = round_up(ceil_div(steps, parts), in_parts ? kPartsOfNumber : 1);
    split = parts == 1 ? 1 : ceil_div(steps, steps_of_part);
    gathered = knobs.gather.value_or(0) != 0 && problem.can_gather && split > 1 && split <= kMostGathered &&
               !loader_is_busy();
    if (gathered) cluster = 1;
    if (split > 1) cluster_n = 1;
  }

  // Its threads have no registers to spare, nor time for anything else.
  bool loader_is_busy() const { return by_threads.any() || passed.any(); }

  // Rows of one step have all taps along the first axis in one tile.
  void walk_planes(const Problem& problem, int64_t rows_of_step) {
    const Contraction& view = problem.view;
    channel_block = view.planes->channel_block;
    if (rows_of_step > 1 && !swapped && problem.can_join_rows) {
      plane_rows = rows_of_step;
      tile_n = view.axes[0].window * channel_block;
    }
    tile_n = ceil_div(tile_n, channel_block) * channel_block;
    all_steps = steps = steps_of(view, line, plane_rows);
  }

  void count_classes(const ResidueClasses& all, int64_t channel_blocks) {
    classes = all.count();
    rows = all.rows;
    steps = all.classes.front().taps * channel_blocks;
    all_steps = all.taps() * channel_blocks;
  }

  // Consumers take turns with tiles of 64 filters by positions of the grid; or of positions by few filters,
  // whose sums no thread has in vain.
  void keep_window(bool positions_as_rows) {
    swapped = !positions_as_rows;
    ping_pong = true;
    cluster = cluster_n = 1;
    if (swapped) {
      tile_m = kPartRows;
      rows = columns;
      columns = window->count;
    } else {
      tile_n = std::min(round_up(tile_n, kLeastPiece), kMostFewFilters);
      rows = window->count;
    }
    split = 1;
    steps_of_part = steps;
  }
  // Products of 32 bytes of channels: those beyond the last channel are left out.
  static int64_t slices_of(const Contraction& view) { return ceil_div(2 * view.channels(), 32); }
  int64_t lines_of_window() const { return (swapped ? tile_n : tile_m) + window->reach; }
  // Of a window's line: as many as hold all channels, and as TMA swizzles.
  static int64_t window_line_bytes(const Contraction& view) {
    return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(32 * slices_of(view))));
  }
  int64_t lines_of_stage() const { return ceil_div(lines_of_window(), 8) * 8; }

  // Parts of tiles, and the blocks that add them up, are counted in 32 bits, too.
  int64_t most_parts() const {
    return std::clamp<int64_t>(kMaxIndex32 / blocks_of_sum(tiles(), tile_m * tile_n, 1), 1, steps);
  }

  // Blocks of a cluster share what is copied in boxes of lines: lines along k are shared out; of boxes of
  // lines across k each block has as many, or, where they do not come out even in a matmul, some steps of k
  // of every box.
  bool can_share(int64_t extent, int64_t blocks, bool adjacent) const {
    constexpr int64_t kFewestLines = 4;
    if (!adjacent) return extent % (blocks * kFewestLines) == 0;
    return extent % (blocks * kBoxLine) == 0 || shares_steps(extent, blocks);
  }
  bool shares_steps(int64_t extent, int64_t blocks) const {
    const bool plain = matmul && siblings == 1 && line == kBoxLine;
    const bool even = extent % kBoxLine == 0 && extent % (blocks * kBoxLine) != 0;
    return plain && even && line % (8 * blocks) == 0;
  }
  // Adjacent columns come in boxes of 64.
  void fit_columns(bool adjacent, bool shared) {
    boxed_columns = adjacent && siblings == 1;
    // One tile of fewer columns than its last box has multiplies no others.
    const bool of_matmul =
        matmul && (wgrad || (tile_m == 256 && tile_n <= 32 && steps == 1 && rows >= kManyRows));
    // Classes of a stride, where more than one has taps: a single one was not measured.
    const bool of_classes = classes > 0 && all_steps > steps && tile_n <= 32;
    const bool few =
        boxed_columns && !swapped && !loader_is_busy() && tile_n >= columns && (of_matmul || of_classes);
    if (adjacent && !few) fit_siblings(kBoxLine);
    if (!shared || !can_share(columns_of_tile(), cluster, adjacent)) cluster = 1;
  }
  void fit_rows(bool adjacent, bool shared) {
    if (!shared || !can_share(tile_m, cluster_n, adjacent)) cluster_n = 1;
  }

  // Every sibling has a multiple of `unit` columns, and all have sums that the registers hold.
  void fit_siblings(int64_t unit) {
    tile_n = ceil_div(tile_n, unit * siblings) * unit * siblings;
    // Further sums and totals want registers on the way out, where short ones are free again.
    const bool plain = (siblings == 1 || (matmul && ping_pong)) && !from_registers &&
                       (reduces ? reduces_lightly : results == 1 && !crowded);
    const int64_t most = (plain || short_sums) && !loader_is_busy() ? kMaxSums : 128;
    if (consumers() > kConsumers && (!plain || short_sums || loader_is_busy() || sums() > kSumsOfThree))
      tile_m = kConsumers * kPartRows;
    while (sums() + short_registers() > most) tile_m /= 2;
  }
  // Columns of the result.
  int64_t columns_of_tile() const { return tile_n / siblings; }

  // Lines that a step multiplies by lines of the other operand.
  int64_t products() const { return in_parts ? kProductsOfParts / kPartsOfNumber : 1; }
  // A thread's short sums, beside those that they are added to.
  int64_t short_registers() const { return short_sums ? tile_n / 2 : 0; }
  int64_t consumers() const { return !ping_pong && tile_m == kRowsOfThree ? 3 : kConsumers; }
  // Consumers that share a tile.
  int64_t readers() const { return ping_pong ? 1 : consumers(); }
  int64_t sums() const { return tile_m * tile_n / kWarpgroup / readers(); }

  // Pieces of a consumer that pass the epilogue at a time, kParts * kPieces of the kernel.
  int64_t pieces() const { return tile_m / kPartRows / readers() * (columns_of_tile() / piece_columns()); }
  int64_t piece_columns() const { return columns_of_tile() % 32 == 0 ? 32 : kLeastPiece; }

  // Steps of a fprop or dgrad are taps times blocks of channels; the last block is filled up with zeros.
  static int64_t steps_of(const Contraction& view, int64_t line, int64_t rows_of_step = 1) {
    if (view.planes) {
      const PlaneWalk& walk = *view.planes;
      return walk.images * groups_of_rows(view, rows_of_step) * walk.inner_rows * ceil_div(walk.length, line);
    }
    if (!view.is_convolution() || view.op == ContractionOp::wgrad)
      return view.runs_of_k * ceil_div(view.k / view.runs_of_k, line);
    return view.k / view.channels() * blocks_of(view, line);
  }
  // Along the first axis: rows of a group lie as far apart as its taps.
  static int64_t groups_of_rows(const Contraction& view, int64_t rows_of_step) {
    const int64_t rows = view.planes->rows;
    if (rows_of_step == 1) return rows;
    const int64_t apart = view.axes[0].step;
    return apart * ceil_div(ceil_div(rows, apart), rows_of_step);
  }
  static bool walks_channels(const Contraction& view) {
    return view.op == ContractionOp::fprop || view.op == ContractionOp::dgrad;
  }
  static int64_t blocks_of(const Contraction& view, int64_t line) { return ceil_div(view.channels(), line); }
  int64_t tiles_m() const { return ceil_div(rows, tile_m * cluster) + short_tiles; }  // in clusters
  int64_t tiles_n() const { return ceil_div(columns, columns_of_tile() * cluster_n); }
  int64_t cluster_blocks() const { return cluster * cluster_n; }
  int64_t tiles_of_class() const { return tiles_m() * tiles_n() * cluster_blocks() * entries; }
  int64_t tiles() const { return tiles_of_class() * std::max<int64_t>(classes, 1); }
  // Lines of a step; rows of planes share most of their columns.
  int64_t row_lines() const { return plane_rows * tile_m; }
  int64_t column_lines() const { return columns_in_boxes() + (plane_rows - 1) * channel_block; }
  int64_t columns_in_boxes() const { return boxed_columns ? ceil_div(tile_n, kBoxLine) * kBoxLine : tile_n; }
  int64_t stage_bytes() const { return (row_lines() + column_lines()) * kLineBytes; }
  // A thread's registers for half a step of the rows, and the next half.
  int64_t row_registers() const { return from_registers ? 16 * sums() / (tile_n / 2) : 0; }
  // Two blocks an SM hide each other's start and finish where their sums, rows from registers and totals of
  // reductions, leave the registers.
  int64_t blocks_per_sm() const {
    const bool fits = sums() <= 32 && sums() + row_registers() <= 48;
    return fits && cluster_blocks() == 1 && !ping_pong && !reduces ? 2 : 1;
  }
};

}  // namespace fusor::wgmma
