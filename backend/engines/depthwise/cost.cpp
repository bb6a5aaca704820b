// Owns what a candidate of the depthwise engine costs.
#include <algorithm>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/depthwise/lowering.h"

namespace fusor::depthwise {

// What one thread does for one strip: instructions, special functions and bytes between L1 or shared memory
// and registers. An SM issues four warps' instructions and moves 128 bytes a clock: a byte of a thread takes
// as long as an instruction.
struct StripCost {
  double arithmetic = 0, special = 0, bytes = 0;

  double instructions() const { return std::max(arithmetic, bytes); }
};

namespace {

// The share of the bytes that a copy moves in the same time.
constexpr double kDramShare = 0.85, kNarrowShare = 0.78;
// Seconds until rows come at memory's pace, and in wgrad until lanes have met.
constexpr double kStart = 1.2e-6, kWgradStart = 4e-6;
// Seconds until a lane has what one strip loads, cold.
constexpr double kStripLatency = 1.5e-6;
// The share of the instructions that the device can issue; where threads march, if warps never ran out.
constexpr double kIssueShare = 0.45, kWgradIssueShare = 0.65, kMarchIssueShare = 0.75;
// For the position of a strip (in wgrad, which goes from strip to strip, with what it waits for), and for the
// address of each vector that is loaded or stored.
constexpr double kStripInstructions = 80, kWgradStripInstructions = 220, kVectorInstructions = 5;

StripCost& operator+=(StripCost& cost, const StripCost& more) {
  cost.arithmetic += more.arithmetic;
  cost.special += more.special;
  cost.bytes += more.bytes;
  return cost;
}

// `count` vectors through a site, with the conversion of each element.
StripCost through(const SiteCost& site, int64_t count, int64_t vector) {
  const auto vectors = static_cast<double>(count);
  const double elements = vectors * static_cast<double>(vector);
  return {vectors * kVectorInstructions + elements * (site.instructions + 1), elements * site.special,
          elements * site.bytes};
}

// A marching thread: addresses are a sum away, and its strip's begin is far from every row.
constexpr double kRowInstructions = 30, kLoadInstructions = 2, kStoreInstructions = 4;

// Planes, fprop and dgrad, marching, as measured on an H200 against their estimates: how many times the time
// settings take that have few lanes in a plane, load pixel by pixel or have long strips, and how the share of
// the instructions grows with the window, where there are more lanes.
constexpr int64_t kFewLanesOfPlane = 2, kLongStrip = 14;
constexpr double kScatteredPrice = 1.4, kLongStripPrice = 1.15;
constexpr double kShareOfSmallWindow = 0.9, kShareOfTap = 0.35 / 49, kShareOfLargeWindow = 1.25;

// Lines of L1, and what it takes, in bytes, to find one of them.
constexpr double kLineBytes = 128, kBytesOfLine = 64;
constexpr double kWarp = 32;

// Lines of L1 that a warp's accesses touch: its lanes lie `distance` bytes apart, up to `in_row` of them in a
// row; rows follow each other or lie apart.
double lines_of_warp(double distance, double in_row, bool rows_follow) {
  const double segments = rows_follow ? 1 : std::max(1.0, kWarp / in_row);
  return std::min(kWarp, segments + kWarp * distance / kLineBytes);
}

}  // namespace

// `count` accesses of a thread to a site; `instructions` each for the address.
StripCost Schedule::through(const Expr& site, int64_t count, double instructions) const {
  const SiteCost one = cost_of(site, fusion);
  StripCost cost = depthwise::through(one, count, vector_width(site));
  cost.arithmetic += static_cast<double>(count) * (instructions - kVectorInstructions);
  if (!in_planes()) return cost;
  const int64_t pitch =
      &site == &columns_site() ? strip * last().advance() / last().phases() : strip * last().spacing();
  const double lines = lines_of_warp(static_cast<double>(pitch) * one.bytes,
                                     static_cast<double>(last().runs(strip)), rows == 1);
  cost.bytes = std::max(cost.bytes, static_cast<double>(count) * lines / kWarp * kBytesOfLine);
  return cost;
}

StripCost Schedule::march_cost() const {
  const int64_t rows_of_taps = taps * axes[1].taps();
  const int64_t products = rows_of_taps * strip * vector / last().phases();
  StripCost row{kRowInstructions + static_cast<double>(products), 0, 0};
  row += through(columns_site(), column_loads() * axes[1].advance(), kLoadInstructions);
  row += through(strips_site(), strip / along, is_wgrad() ? kLoadInstructions : kStoreInstructions);
  if (!is_wgrad()) {
    row.arithmetic += static_cast<double>(rows_of_taps);
    row.bytes += static_cast<double>(rows_of_taps * vector * 4);
  }
  const auto worked_on = static_cast<double>(rows_worked_on());
  return {kWgradStripInstructions + worked_on * row.arithmetic, worked_on * row.special,
          worked_on * row.bytes};
}

StripCost Schedule::strip_cost() const {
  if (marches()) return march_cost();
  StripCost cost{is_wgrad() ? kWgradStripInstructions : kStripInstructions, 0, 0};
  if (is_wgrad()) {
    cost.arithmetic += static_cast<double>(strip * taps * vector);
    cost += through(a, strip, kVectorInstructions);
    cost += through(b, columns(), kVectorInstructions);
    return cost;
  }
  const int64_t lines = axes[0].taps() * pieces;
  const int64_t tap_vectors = lines * axes[1].taps() * rows * taps;
  const int64_t loaded = lines * (axes[1].taps() + (rows - 1) * axes[1].advance()) * column_loads();
  const int64_t of_tap = vector * strip / last().phases() + 2;
  cost.arithmetic += static_cast<double>(tap_vectors * of_tap);
  cost.bytes += static_cast<double>(tap_vectors * vector * 4);
  cost += through(a, loaded, kVectorInstructions);
  cost += through(y, rows * strip / along, kVectorInstructions);
  return cost;
}

// Every element of the operand comes once for each block that needs it: those that walk over many rows share
// all but the first and the last.
double Schedule::l2_bytes() const {
  if (marches())
    return problem.dram_bytes * static_cast<double>(rows_worked_on()) / static_cast<double>(rows) +
           2 * static_cast<double>(partial_bytes());
  const double walked = is_wgrad() ? static_cast<double>(ceil_div(strips(), split))
                                   : static_cast<double>(steps * deal.lanes * rows);
  const double lines = std::max(static_cast<double>(rows), walked / static_cast<double>(last().runs(strip)));
  const double again = 1 + static_cast<double>(axes[1].taps() - 1) / lines;
  const double bytes = problem.dram_bytes * (is_wgrad() ? static_cast<double>(row_tiles()) : 1.0);
  return bytes * again + 2 * static_cast<double>(partial_bytes());
}

// The more warps there are, the more often one of them has what it waits for.
double Schedule::issue_share() const {
  // Strips of 4 took 1.3 times their estimates on an H200, of 7 and 8 1.05 to 1.08 times.
  constexpr int64_t kShortStrip = 4;
  constexpr double kShareOfShort = 0.85;
  if (is_wgrad() && !marches()) return kWgradIssueShare * (strip <= kShortStrip ? kShareOfShort : 1);
  if (!marches()) return kIssueShare;
  const int64_t resident = std::min(blocks_per_sm(), ceil_div(blocks(), int64_t{problem.device.sm_count}));
  constexpr int64_t kWarps = kThreads / 32;
  const auto warps = static_cast<double>(resident * kWarps);
  const double share = kMarchIssueShare * warps / (warps + 4);
  return is_wgrad() || !in_planes() ? share : share * window_share() / scattered_price();
}

bool Schedule::has_few_lanes() const { return last().runs(strip) * axes[1].runs(rows) <= kFewLanesOfPlane; }

double Schedule::window_share() const {
  if (has_few_lanes()) return 1;
  return std::min(kShareOfSmallWindow + kShareOfTap * static_cast<double>(window()), kShareOfLargeWindow);
}

// Lanes of a warp that lie in many planes or far apart, or take pixels one by one, wait longer for what they
// load.
double Schedule::scattered_price() const {
  if (!marches() || !in_planes() || is_wgrad()) return 1;
  if (has_few_lanes() || load == 1) return kScatteredPrice;
  return strip >= kLongStrip ? kLongStripPrice : 1;
}

Work Schedule::work() const {
  const StripCost cost = strip_cost();
  const int64_t lanes = is_wgrad() ? split * deal.lanes : deal.lanes * steps;
  const double threads = static_cast<double>(marches() ? ceil_div(strips(), lanes) * lanes : strips()) *
                         static_cast<double>(channel_tiles() * deal.width) *
                         static_cast<double>(is_wgrad() ? row_tiles() * deal.rows : 1) *
                         static_cast<double>(kThreads) / static_cast<double>(deal.threads());
  Work work;
  work.fp32_flops = 2 * threads * cost.instructions();
  work.special = threads * cost.special;
  // Marching threads of narrow vectors keep fewer bytes under way.
  const bool narrow = marches() && is_wgrad() && vector < std::min<int64_t>(problem.widest_vector, 4);
  work.dram_bytes = problem.dram_bytes / (narrow ? kNarrowShare : kDramShare) * scattered_price();
  work.start_s = is_wgrad() ? kWgradStart : kStart;
  // Lanes of an idle device wait for every strip in turn.
  if (is_wgrad() && !marches() && blocks() < problem.device.sm_count)
    work.start_s =
        kStart + kStripLatency * static_cast<double>(ceil_div(ceil_div(strips(), split), deal.lanes));
  work.l2_bytes = l2_bytes();
  work.tiles = blocks();
  work.tiles_per_sm = static_cast<int>(blocks_per_sm());
  work.efficiency = issue_share() * (index_bits == 64 ? 0.7 : 1.0);
  if (is_wgrad()) {
    work.launches = 2;
    work.scratch_bytes = partial_bytes();
  }
  return work;
}

}  // namespace fusor::depthwise
