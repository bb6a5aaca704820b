// Owns what the depthwise engine knows of a fusion and settles for a config: how its threads are dealt out,
// its launches and its costs.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/engines/contraction/product.h"
#include "backend/engines/depthwise/rules.h"
#include "backend/engines/depthwise/sliding_axis.h"
#include "codegen/text/parameters.h"
#include "core/ceil_div.h"
#include "core/device_info.h"
#include "core/fusion.h"
#include "core/lowered.h"
#include "core/work.h"

namespace fusor::depthwise {

/// The constant of codegen/device/depthwise/tiling.cuh.
inline constexpr int64_t kThreads = 128;
/// Strips of more rows are marched down: their rows' sums are not held at once.
inline constexpr int64_t kMostHeldRows = 2;
/// Columns of a marching thread: a bit for each.
inline constexpr int64_t kMostColumns = 32;

/// How a block's threads are dealt out: vectors of channels by row pieces (wgrad) by lanes, each of which
/// takes strips.
struct Deal {
  int64_t width = 1, rows = 1, lanes = 1;

  int64_t threads() const { return width * rows * lanes; }
};

struct StripCost;

struct Knobs {
  int64_t vector = 1, strip = 4, rows = 1;
  std::optional<int64_t> load = {};   ///< planes: the most pixels of a load; 0 leaves it to the schedule
  std::optional<int64_t> split = {};  ///< wgrad; 0 leaves it to the schedule
  std::optional<int64_t> mma = {};    ///< whether tensor cores multiply (depthwise/octets.h)

  static void visit(auto& self, auto&& knob) {
    knob("vector", self.vector);
    knob("strip", self.strip);
    knob("rows", self.rows);
    knob("load", self.load);
    knob("split", self.split);
    knob("mma", self.mma);
  }
};

/// Facts of a fusion.
struct Problem {
  const Fusion& fusion;
  const DeviceInfo& device;
  Contraction view;
  std::string target;
  int plane_axis;  // along which pixels are adjacent; -1 where channels are
  Dims order;      // of the spatial axes, as the kernels walk them
  SlidingAxes axes;
  Expr a, b, y;                  // over the kernel's axes
  int64_t pieces = 1, taps = 1;  // of a row of the window, and of a piece
  int64_t widest_vector;
  double dram_bytes;

  Problem(const Fusion& fusion_, const DeviceInfo& device_);

  bool is_wgrad() const { return view.op == ContractionOp::wgrad; }
  bool in_planes() const { return plane_axis >= 0; }
  const SlidingAxis& last() const { return axes[kSlidingAxes - 1]; }
  int64_t images() const { return operand_site(fusion, 0, 0).domain[0]; }
};

/// Whether the site is no more than a load of 16 bits, `width` elements at once.
bool is_plain(const Fusion& fusion, const Expr& site, int64_t width);

KernelSource source_of(const char* root, std::vector<KernelSite> sites, std::vector<ConfigValue> config,
                       const std::string& target);
/// A launch that always waits for the one in front.
Launch launch_of(const Fusion& fusion, const char* entry, KernelSource source, Parameters p, int64_t grid,
                 int64_t block);
/// The second launch of a weight gradient: adds `parts` parts of each tap, in scratch 0, up to y.
Launch sum_of_parts(const Problem& problem, const Expr& y, int64_t parts, int index_bits);

/// A setting, and what follows from it.
struct Schedule {
  const Problem& problem;
  const Fusion& fusion;
  const Contraction& view;
  const std::string& target;
  const SlidingAxes& axes;
  const int64_t pieces, taps;
  Expr a, b, y;  // with the vectors marked
  int64_t strip, rows, split;
  int64_t vector, vectors = 1;            // channels of one, and how many
  int64_t load = 1, lead = 0, along = 1;  // kLoad, kLead and kAlong of codegen/device/depthwise/tiling.cuh
  Deal deal;
  int64_t steps = 1;  // of a block, fprop and dgrad
  int index_bits = 32;

  Schedule(const Problem& problem_, const Knobs& knobs);

  bool is_wgrad() const { return problem.is_wgrad(); }
  bool in_planes() const { return problem.in_planes(); }
  bool marches() const { return rows > kMostHeldRows || (is_wgrad() && in_planes()); }
  const SlidingAxis& last() const { return problem.last(); }
  bool whole_rows() const { return pieces == 1 && !last().picks_taps(); }
  int64_t spread() const { return std::min(last().advance(), taps); }
  int64_t columns() const {
    if (last().phases() == 1) return (strip - 1) * spread() + taps;
    return (strip - 1 + taps - 1 + last().phase()) / last().phases() + 1;
  }
  int64_t column_loads() const { return ceil_div(lead + columns(), load); }
  // The sites over images beside the window's: columns are loaded from one, strips are of the other.
  const Expr& columns_site() const { return is_wgrad() ? b : a; }
  const Expr& strips_site() const { return is_wgrad() ? a : y; }
  int64_t window() const { return axes[0].window * axes[1].window * axes[2].window; }
  int64_t row_pieces() const { return axes[0].window * axes[1].window * pieces; }
  int64_t images() const { return problem.images(); }
  int64_t length(int axis) const { return axis == 2 ? strip : axis == 1 ? rows : 1; }
  int64_t strips() const {
    int64_t count = images();
    for (int i = 0; i < kSlidingAxes; ++i) count *= axes[static_cast<size_t>(i)].runs(length(i));
    return count;
  }
  int64_t strips_of_image() const { return strips() / images(); }

  // The filters of a block's channels fit into shared memory.
  int64_t max_width() const {
    const int64_t most = in_planes() ? kThreads : 32;
    return is_wgrad() ? most : std::clamp<int64_t>(kMaxFilterBytes / filter_bytes(1), 1, most);
  }
  int64_t filter_bytes(int64_t width) const { return width * bytes_of_filters(window(), vector); }

  int64_t channel_tiles() const { return ceil_div(vectors, deal.width); }
  int64_t row_tiles() const { return marches() ? 1 : ceil_div(row_pieces(), deal.rows); }
  int64_t blocks() const;
  // Lanes of a marching block add up their sums.
  int64_t parts() const { return marches() ? split : split * deal.lanes; }
  int64_t elements() const { return window() * view.entries; }
  int64_t partial_bytes() const { return is_wgrad() ? parts() * elements() * 4 : 0; }

  // --- Marching ---

  // Windows of several rows that neighbours share, or in planes also those that share none.
  bool can_march() const {
    const bool worthwhile = in_planes() || axes[1].taps() > axes[1].advance();
    return worthwhile && meets_lines_once(axes) && columns() <= kMostColumns;
  }
  // Rows of results that a line meets.
  int64_t ring() const { return ceil_div(axes[1].taps(), axes[1].advance()); }
  bool has_tails() const { return last().results % std::max<int64_t>(strip * last().spacing(), 1) != 0; }
  // Results of a run that takes all of its axis: what can be marched down.
  int64_t longest_march() const { return ceil_div(axes[1].results, axes[1].spacing()); }
  // Rows of results that a strip works on: also those of its neighbours, unless padding lies there.
  int64_t rows_worked_on() const {
    return std::min(rows + ring() - 1, ceil_div(axes[1].positions, axes[1].advance()) + 1);
  }
  bool is_plain(const Expr& site) const { return depthwise::is_plain(fusion, site, vector_width(site)); }
  int64_t unrolled() const { return axes[1].taps() * taps * strip * vector / last().phases(); }

  // Registers for the columns and the sums of a thread; those for addresses come on top.
  int64_t values() const;
  int64_t blocks_per_sm() const;

  Lowered lowered() const;
  Work work() const;

 private:
  void settle_planes(int64_t most);
  void mark_vectors();
  Deal best_deal() const;
  // A block walks as far as leaves the device a few blocks for each place: rows that strips share stay in L1.
  int64_t steps_for_device() const;
  // Blocks for every place once, whose lanes take equally many strips.
  int64_t split_for_device() const;
  int64_t values_on_the_way() const;
  bool needs_wide_index() const;

  // Launches.
  std::vector<ConfigValue> config() const;
  /// The window and the channels, with which all but the last kernel begin.
  Parameters common_parameters() const;
  KernelSite site(const char* name, const Expr& expr) const;
  Launch gather() const;
  Launch marched_parts_of_gradient() const;
  Launch parts_of_gradient() const;

  int vector_axis(const Expr& site) const;
  int64_t vector_width(const Expr& site) const;

  // Costs.
  StripCost through(const Expr& site, int64_t count, double instructions) const;
  StripCost strip_cost() const;
  StripCost march_cost() const;
  double l2_bytes() const;
  double issue_share() const;
  bool has_few_lanes() const;
  double window_share() const;
  double scattered_price() const;
};

inline Lowered lower(const Schedule& schedule) { return schedule.lowered(); }
inline Work cost(const Schedule& schedule) { return schedule.work(); }

}  // namespace fusor::depthwise
