// Owns what a candidate of the wgmma engine costs: the work that the time model is told of.
#include "backend/engines/sm90/wgmma/lowering.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/repack/repack.h"
#include "backend/engines/sm90/wgmma/resident_window.h"
#include "core/ceil_div.h"

namespace fusor::wgmma {

double Schedule::finish_cycles_per_element() const {
  constexpr double kGathered = 30, kUnrolled = 12, kRolled = 22, kRolledInTurn = 32, kLines = 22,
                   kScattered = 150, kScatteredAcross = 40, kFurtherSum = 4;
  // A loop waits for its loads, piece by piece; without one, they are under way while other pieces pass.
  constexpr double kLoad = 10, kLoadInLoop = 120, kStagedLoad = 2;
  constexpr double kOneByOne = 4, kAlike = 0.88, kLoadOfColumn = 14;
  constexpr double kWordsOfPair = 300;  // 768 columns with dropout, H200, 2026-11: 47 us for 21 without
  constexpr double kPlanes = 6, kUnitOfPlanes = 16;
  constexpr double kTotal = 3, kColumnTotal = 6, kSecondCopied = 3;
  // A further result that threads store, pair by pair: in lines of its own where threads run along rows.
  const double store = tiling.swapped ? 14 : 62;
  if (is_split()) return kRolled;
  if (tiling.gathered) {
    const SiteCost cost = cost_of(result_site(fusion), fusion);
    return kGathered + (3 * cost.instructions + 4 * cost.special) / static_cast<double>(tiling.split);
  }
  const SiteCost cost = cost_of(result_site(fusion), fusion);
  // In a loop beside products, few registers are left, and few elements under way.
  const double loop = tiling.ping_pong ? kRolledInTurn : kRolled;
  double cycles = (is_unrolled() ? kUnrolled : loop) + 3 * cost.instructions + 4 * cost.special;
  // Columns of a pair share a block of random words, not four as the count of instructions takes it.
  for (const Node& node : y.nodes)
    if (node.kind == Node::Kind::pointwise && node.pointwise.mode == PointwiseMode::philox)
      cycles += kWordsOfPair;
  // One call covers a thread's share of a row where the epilogue is the same for all columns of a tile.
  if (has_columns_alike()) cycles *= kAlike;
  cycles += kFurtherSum * static_cast<double>(tiling.siblings - 1);
  for (const Node& node : y.nodes) {
    const bool own = std::ranges::find(node.access.strides, 0) == node.access.strides.end();
    if (node.kind == Node::Kind::load && own) cycles += is_unrolled() ? kLoad : kLoadInLoop;
  }
  if (loads_along_columns()) cycles += kLoadOfColumn;
  cycles += kStagedLoad * static_cast<double>(staged.size());
  if (second) cycles += kSecondCopied;
  if (store_path() == StorePath::lines) cycles += kLines;
  if (stores_planes()) cycles += kPlanes + kUnitOfPlanes / static_cast<double>(copied->planes->unit);
  if (copied && !along_columns() && byte_size(copied->type) != 2 && !tiling.from_registers)
    cycles += kOneByOne;
  // Every element of a convolution finds its own place; those of a wgrad lie side by side, unless its tiles
  // are exchanged and two consumers leave at once.
  // Positions that are rows of a resident window find theirs once for all columns.
  constexpr double kScatteredRows = 30;
  if (store_path() == StorePath::threads && view.is_convolution())
    cycles += tiling.window && !tiling.swapped      ? kScatteredRows
              : !problem.wgrad                      ? kScattered
              : tiling.swapped && !tiling.ping_pong ? kScatteredAcross
                                                    : 0;
  for (const Store& result : y.stores)
    cycles += !reduction_of(y, result) ? store : leaves_columns() ? kColumnTotal : kTotal;
  return cycles + cycles_of_further_classes();
}

// A second result of a convolution's gradient of a stride: its pixels are a stride apart, and each element
// finds its place (3x3 every 2 of 128 channels at 56 x 56, H200, 2026-12: 36 us with one result, 105 and 111
// to 153 with two).
double Schedule::cycles_of_further_classes() const {
  constexpr double kFurther = 300, kFurtherSwapped = 420;
  if (residue_class_count(view) == 0) return 0;
  const auto elements =
      std::ranges::count_if(y.stores, [&](const Store& store) { return !reduction_of(y, store); });
  return static_cast<double>(std::max<int64_t>(elements - 1, 0)) *
         (tiling.swapped ? kFurtherSwapped : kFurther);
}

namespace {

// The bytes that all lines of a map begin on a multiple of. Scratch that a copy has just packed was not
// measured.
int64_t start_of_lines(const CopiedOperand& operand, const Fusion& fusion) {
  constexpr int64_t kLine = 128;
  if (fusion.operands[static_cast<size_t>(operand.operand)].memory == Memory::workspace) return kLine;
  int64_t apart = std::gcd(operand.byte_offset, kLine);
  for (int i = 0; i < operand.map.stride_bytes.rank(); ++i)
    if (operand.map.dims[i + 1] > 1) apart = std::gcd(apart, operand.map.stride_bytes[i]);
  return apart;
}

// The cost in L2 of a map's lines, against such as begin on multiples of 128 bytes: others lie in two of its
// lines.
double cost_of_lines(const CopiedOperand& operand, const Fusion& fusion, const DeviceInfo& device) {
  const int64_t start = start_of_lines(operand, fusion);
  if (start == 128) return 1;
  return start == 64 ? device.line_cost_64 : start == 32 ? device.line_cost_32 : device.line_cost_16;
}

// Whether neighbouring pixels of a window have elements in common.
bool shares_pixels(const CopiedOperand& operand) {
  return operand.map.window &&
         operand.map.stride_bytes[0] < operand.map.dims[0] * byte_size(operand.map.type);
}

// How often memory delivers what entries of a batch share: once more for each of them that follows the one
// before behind more bytes than L2 holds.
double times_delivered(const BatchWalk& batch, double bytes_of_entry, const DeviceInfo& device) {
  double times = 1;
  int64_t between = 1;  // entries from one that has a matrix to the next that shares it
  const auto share = [&](int64_t entries) {
    const double bytes = static_cast<double>(between) * bytes_of_entry;
    if (between > 1 && bytes > static_cast<double>(device.l2_bytes)) times *= static_cast<double>(entries);
  };
  for (const BatchWalk::Axis& axis : batch.axes) {
    share(axis.shared);
    between *= axis.shared * axis.extent;
  }
  share(batch.entries / between);
  return times;
}

// The cost of a matmul's lines: constants that were fitted together on an H200, as shares of the device's.
double cost_of_matmul_lines(const CopiedOperand& operand, const Fusion& fusion, const DeviceInfo& device) {
  constexpr double kShare16 = 1.52 / 2.2, kShare32 = 1.45 / 1.3, kShare64 = 1.21 / 1.25;
  const int64_t start = start_of_lines(operand, fusion);
  if (start == 128) return 1;
  const double share = start == 64 ? kShare64 : start == 32 ? kShare32 : kShare16;
  return std::max(1.0, share * cost_of_lines(operand, fusion, device));
}

}  // namespace

double Schedule::seconds_of_products() const {
  const auto results =
      static_cast<double>(tiling.rows * tiling.entries) * static_cast<double>(tiling.columns);
  return 2 * results * static_cast<double>(tiling.products() * tiling.steps * kBoxLine) /
         device.tensor_flops_16;
}

bool Schedule::is_straddling_matmul() const {
  // The longest product and the fewest steps that were measured.
  constexpr double kLongest = 105e-6;
  constexpr int64_t kFewestSteps = 4;
  const bool given = problem.form.is_given() && !view.is_convolution() && tiling.steps >= kFewestSteps;
  return given && seconds_of_products() < kLongest && straddles_lines();
}

bool Schedule::is_short_matmul() const {
  constexpr double kLongest = 25e-6;
  constexpr int64_t kFewestSteps = 3;
  const bool plain = !problem.wgrad && !view.is_convolution() && !passes() && !tiling.by_threads.any();
  return plain && tiling.steps >= kFewestSteps && seconds_of_products() < kLongest && !straddles_lines();
}

bool Schedule::straddles_lines() const {
  if (passes() || thread_a || !thread_b.empty()) return false;
  return cost_of_lines(a, fusion, device) > 1 || cost_of_lines(b[0], fusion, device) > 1;
}

bool Schedule::has_columns_alike() const {
  // Measured of matmuls of fewer steps, in tiles of 128 rows; pointwise convolutions gain nothing by it.
  constexpr int64_t kManySteps = 32;
  const bool measured = tiling.tile_m == 128 && tiling.steps < kManySteps && problem.form.is_given();
  if (!measured || !clamped() || view.is_convolution() || !tiling.swapped || tiling.ping_pong) return false;
  const int m_axis = view.batch.rank();
  const auto is_load = [](const Node& node) { return node.kind == Node::Kind::load; };
  return std::ranges::any_of(y.nodes, is_load) && std::ranges::all_of(y.nodes, [&](const Node& node) {
           return !is_load(node) || node.access.strides[m_axis] == 0;
         });
}

bool Schedule::loads_along_columns() const {
  if (tiling.swapped || is_split() || problem.wgrad || view.is_convolution()) return false;
  const int m_axis = view.batch.rank();
  return std::ranges::any_of(y.nodes, [&](const Node& node) {
    return node.kind == Node::Kind::load && node.access.strides[m_axis] == 0 &&
           node.access.strides[m_axis + 1] != 0;
  });
}

double Schedule::busy_share() const {
  constexpr double kLatency = 800;  // cycles, of a copy
  const int64_t parts = tiling.tile_m / kPartRows;
  const double step = 2.0 * static_cast<double>(tiling.plane_rows * parts * tiling.tile_n);
  return std::min(1.0, static_cast<double>(stages() - 1) * step / (step + kLatency));
}

double Schedule::scattered_bytes() const {
  const auto scattered = [&](const Access& access, DataType type) {
    if (!view.is_convolution() || access.strides[1] == 0 || !is_apart(view, y.domain, access)) return 0.0;
    const double neighbours = access.strides[y.domain.rank() - 1] != 1 ? 1 : tiling.swapped ? 4 : 8;
    return std::max(32 / neighbours - static_cast<double>(byte_size(type)), 0.0);
  };
  double bytes = 0;
  for (const Node& node : y.nodes)
    if (node.kind == Node::Kind::load) bytes += scattered(node.access, node.type);
  for (const Store& result : y.stores)
    if (!reduction_of(y, result)) bytes += scattered(result.access, result.type);
  return bytes * static_cast<double>(element_count(y.domain));
}

double Schedule::prologue_cycles() const {
  // Cycles of a step; of each 8 elements that 128 threads have of it, and of each op on them. An SM takes as
  // long for two blocks as for one after the other. Fitted to the candidates of six sizes with int8 weights
  // on an H200.
  constexpr double kStep = 720, kInstruction = 12;
  const double unit = loaders() > 1 ? 41 : 55;
  double cycles = kStep;
  const auto add = [&](const std::optional<PrologueOperand>& passed, int64_t lines) {
    if (!passed) return;
    const SiteCost ops = cost_of(passed->ops, fusion);
    const double units = static_cast<double>(lines * kLineBytes) / (16 * kWarpgroup);
    cycles += units * (unit + kInstruction * (ops.instructions + 4 * ops.special));
  };
  add(prologue_a, tiling.tile_m);
  add(prologue_b, tiling.columns_of_tile());
  return cycles;
}

double Schedule::loader_cycles() const {
  // Instructions of a unit of 16 bytes, one of four warps to a scheduler; cycles until a batch of units is
  // there, and how many are under way.
  constexpr double kUnit = 90, kLatency = 1350;
  const double batch = tiling.blocks_per_sm() == 1 ? 8 : 4;
  double units = 0, batches = 0;
  const auto add = [&](int64_t lines) {
    const double of_thread = static_cast<double>(lines * kLineBytes) / (16 * kWarpgroup);
    units += of_thread;
    batches += std::ceil(of_thread / batch);
  };
  if (thread_a) add(tiling.tile_m);
  for (size_t i = 0; i < thread_b.size(); ++i) add(tiling.columns_of_tile());
  return kUnit * units + kLatency * batches / static_cast<double>(tiling.blocks_per_sm());
}

double Schedule::consumer_cycles() const {
  constexpr double kSharedBytes = 128;  // of a cycle
  constexpr double kSustained = 0.86;   // of the clock
  const auto tile_m = static_cast<double>(tiling.tile_m), tile_n = static_cast<double>(tiling.tile_n);
  const double flops = device.tensor_flops_16 / (device.sm_count * device.clock_hz * kSustained);
  const double multiplied = 2 * tile_m * tile_n * kBoxLine / flops;
  const double read = kLineBytes * (2 * tile_m + tile_n * (1 + tile_m / kPartRows)) / kSharedBytes;
  return std::max(multiplied, read);
}

double Schedule::kept_fed() const {
  return tiling.by_threads.any() ? std::min(1.0, consumer_cycles() / loader_cycles()) : 1;
}

// Whether a matmul has few results and long sums, as the gradient of a linear layer's weights does. Tiles of
// one consumer took 0.68 to 0.86 times their estimates (12 matmuls of 2048 steps and more, H200, 2026-12).
bool Schedule::has_long_sums() const {
  constexpr int64_t kLong = 4096;
  return !view.is_convolution() && !is_straddling_matmul() && view.k >= kLong;
}

// Where few SMs are busy, L2 serves each of them faster: but for whole tiles on fewer than a quarter of them.
// Fitted to 900 candidates of 34 pointwise wgrads on an H200.
double Schedule::share_of_idle_device() const {
  constexpr double kPower = 0.4, kOneConsumer = 1.07, kFewest = 0.2, kFewestWhole = 0.25, kLongAlone = 0.78;
  constexpr int64_t kLongPart = 96;  // steps
  if ((!problem.wgrad && !has_long_sums()) || view.planes || passes() || tiling.by_threads.any()) return 1;
  // Windows in long parts gain nothing by idle SMs; one consumer of more columns than 128 keeps the tensor
  // cores less busy, which counts where L2 holds what the tiles share (64 channels at 56 x 56 and 112 x 112).
  if (view.is_convolution() && tiling.steps_of_part > kLongPart) {
    const bool from_l2 = dram_bytes(fusion) < 5 * static_cast<double>(device.l2_bytes);
    return tiling.ping_pong && tiling.tile_n > 128 && from_l2 ? kLongAlone : 1;
  }
  const auto items = static_cast<double>(tiling.tiles() * tiling.split);
  const double busy = items / static_cast<double>(device.sm_count);
  if ((tiling.split == 1 && busy < kFewestWhole) || (!problem.wgrad && busy > 1)) return 1;
  return std::pow(std::clamp(busy, kFewest, 1.0), -kPower) * (tiling.ping_pong ? kOneConsumer : 1);
}

double Schedule::efficiency(double bytes) const {
  if (!passes()) return kept_fed() * efficiency_of_copies(bytes) * share_of_idle_device();
  // Both want shared memory, and hide each other in part.
  constexpr double kShown = 0.4;
  const double consumed = consumer_cycles();
  return std::min(efficiency_of_copies(bytes), consumed / (prologue_cycles() + kShown * consumed));
}

double Schedule::efficiency_of_copies(double bytes) const {
  return share_of_consumers() * share_of_clusters(bytes) * share_of_width() * share_of_pixels() *
         share_of_sides();
}

double Schedule::share_of_consumers() const {
  // Two consumers of a tile with as many sums as registers hold start and end together.
  double share = tiling.ping_pong ? 0.985 : tiling.sums() > 128 ? 0.97 : 1.0;
  if (tiling.blocks_per_sm() > 1) share *= 0.94;
  // Parts of a tile share no lines with each other; one consumer waits for each step. Twice as many products
  // of each line hide that where numbers lie in parts (20 settings of 256 x 4096 x 4096 and of 512).
  if (tiling.gathered && !tiling.in_parts) share *= tiling.ping_pong ? 0.77 : 0.8;
  // Boxes of half a line are sent twice as often, by threads that all meet first.
  const bool narrow =
      copied && staged.empty() && !along_columns() && box_columns() * byte_size(copied->type) < kLineBytes;
  if (tiling.ping_pong && narrow) share *= 0.98;
  if (view.planes) share *= busy_share();
  // Nobody multiplies while short sums are added, but for the other consumer of the same tile. Those of parts
  // are six times as long: consumers that take turns add them up a little later than those of one tile, and
  // less is on its way where the parts of two places along k do not fit.
  if (tiling.in_parts)
    share *= (tiling.ping_pong ? 0.93 : 1) * (stages() < 2 * kPartsOfNumber ? 0.95 : 1);
  else if (tiling.short_sums)
    share *= tiling.ping_pong ? 0.7 : 0.92;
  // Small tiles leave room for two blocks an SM, which keep more copies under way than turns do.
  if (tiling.ping_pong && tiling.sums() <= 32) share *= 0.85;
  return share;
}

double Schedule::share_of_clusters(double bytes) const {
  const bool beyond_l2 = bytes > 5 * static_cast<double>(device.l2_bytes);
  // Blocks of a cluster wait for each other, which only a second tile hides.
  const bool one_round = tiling.tiles() <= device.sm_count;
  double share = 1;
  if (is_straddling_matmul())
    share = efficiency_of_straddling(one_round);
  else if (tiling.cluster_blocks() > 1)
    share = beyond_l2 ? 0.997 : one_round ? 0.95 : 0.98;
  if (tiling.cluster_blocks() == 1 && beyond_l2) share *= 0.996;
  // Large ones do not reach every SM, and may need a round more.
  const int64_t reached = sms_of_clusters(device, tiling.cluster_blocks()) * tiling.blocks_per_sm();
  return share * static_cast<double>(ceil_div(tiling.tiles(), device.sm_count * tiling.blocks_per_sm())) /
         static_cast<double>(ceil_div(tiling.tiles(), reached));
}

// Widths between the usual ones pay where the others leave the last round idle: their pieces are narrower, as
// are the boxes of the result along columns. Fitted to 60 cases on an H200.
double Schedule::share_of_width() const {
  constexpr int64_t kShort = 16;
  // Tiles of 64 by 80 of such sums took 1.2 times as long as others beside their estimates (5 matmuls of 4096
  // to 6304 rows, H200, 2026-12), but for large clusters.
  constexpr double kOddWidth = 0.85;
  if (has_long_sums() && tiling.ping_pong && tiling.tile_n % 32 == 16 && tiling.cluster_blocks() <= 2)
    return kOddWidth;
  const bool between = tiling.tile_n > 96 && (tiling.tile_n % 32 == 16 || tiling.tile_n == 224);
  if (!between) return 1;
  return 0.95 * (!is_straddling_matmul() && tiling.steps < kShort ? 0.94 : 1);
}

bool Schedule::straddles_pixels() const {
  // Short lines of a resident window begin on multiples of their length.
  const auto straddles = [&](const CopiedOperand& operand) {
    const bool within =
        tiling.window && start_of_lines(operand, fusion) % Tiling::window_line_bytes(view) == 0;
    return operand.map.window && !within && cost_of_lines(operand, fusion, device) > 1;
  };
  return straddles(a) || (!b.empty() && straddles(b[0]));
}

double Schedule::share_of_pixels() const {
  double share = 1;
  const bool straddles = straddles_pixels();
  // Such columns of pixels come late for the turns of two consumers.
  if (tiling.ping_pong && straddles) share *= 0.83;
  // Two blocks that share 256 columns of filters leave L2 the time for such pixels: 3x3 of 392, 440 and 488
  // channels took 0.83 to 0.93 of their estimates in clusters, of 416 and 464 alone 1.27 and 1.04.
  constexpr int64_t kWideColumns = 256;
  if (straddles && !tiling.window && tiling.cluster_blocks() == 1 && tiling.tile_n >= kWideColumns)
    share *= 0.96;
  // Pixels that share elements with their neighbours (repack/unrolled_columns.h) are asked of L2 again and
  // again, and a pixel of 16 bytes takes TMA as long as one of 128: 23 candidates of 3x3 and 11x11 took 1.3
  // to 1.9 times their estimates on an H200, 24 of weight gradients of 3 channels 1.3 to 1.8 times.
  constexpr double kSharedPixels = 0.68, kPixelsOfOneUnit = 0.6;
  const bool shares = shares_pixels(a) || (!b.empty() && shares_pixels(b[0]));
  if (shares) share *= kSharedPixels;
  const bool windows = view.op == ContractionOp::wgrad && view.taps() > 1;
  const int64_t pixel_bytes = view.input_channels * byte_size(a.map.type);
  if (windows && !view.planes && pixel_bytes <= kCopyUnit) share *= kPixelsOfOneUnit;
  // Unrolled columns of two such units: without this, 24 candidates of four first layers took 1.14 to 1.3
  // times their estimates, copies and all.
  constexpr double kColumnsOfTwoUnits = 0.54;
  const bool unrolled = windows && view.axes.back().window == 1 && !view.planes;
  if (unrolled && pixel_bytes > kCopyUnit && pixel_bytes <= 2 * kCopyUnit) share *= kColumnsOfTwoUnits;
  // Longer runs come sooner than the shared pixels of fprop: in tiles of 64 by 64, 192 and 256, 12 candidates
  // of four gradients took 0.79 to 0.84 times their estimates; but by 128, 8 took 0.95 to 1.02 times.
  constexpr double kLongColumns = 1.2;
  constexpr int64_t kSlowWidth = 128;
  if (unrolled && shares && pixel_bytes > 2 * kCopyUnit && tiling.ping_pong && tiling.tile_n != kSlowWidth)
    share *= kLongColumns;
  // Windows of a wgrad come slower than those that are split make up for: 1.2 times the estimates of 12
  // unsplit layers on an H200.
  constexpr double kWindowsOfWgrad = 0.85;
  if (windows && store_path() == StorePath::boxes) share *= kWindowsOfWgrad;
  return share;
}

double Schedule::share_of_sides() const {
  // In turns, tiles do better exchanged. Otherwise, and in turns of 64 pixels side by side (NCHW), pixels do
  // better as rows.
  if (tiling.ping_pong && (tiling.tile_m > kPartRows || !along_columns())) return tiling.swapped ? 1 : 0.98;
  const bool pixels_as_columns = tiling.swapped && view.is_convolution() && view.op != ContractionOp::wgrad;
  if (!pixels_as_columns) return 1;
  // One part of filters a consumer asks for such pixels most often: where their lines straddle those of L2,
  // they come later still. 3x3 of 80 and 104 channels.
  constexpr double kColumns = 0.93, kStraddling = 0.8;
  const bool late = straddles_pixels() && !tiling.window && tiling.tile_m == kConsumers * kPartRows;
  return late ? kStraddling : kColumns;
}

// Blocks of a cluster begin together, meet twice, and read each other's memory. This and what follows are
// fitted to 600 gathered candidates of 15 layers on an H200 (bench/HISTORY.md).
double Schedule::seconds_of_cluster() const {
  constexpr double kMeeting = 0.9e-6, kBlock = 0.15e-6, kTwoConsumers = 2.5e-6;
  if (!tiling.gathered) return 0;
  return kMeeting + kBlock * static_cast<double>(tiling.split) + (tiling.ping_pong ? 0 : kTwoConsumers);
}

// Tiles of one consumer that each have an SM at once start sooner than those that follow others.
double Schedule::seconds_of_one_round() const {
  constexpr double kSooner = 0.3e-6;
  constexpr int64_t kLarge = 4096;  // sums
  const int64_t items = tiling.tiles() * (tiling.gathered ? tiling.split : 1);
  const bool once = !is_split() && items <= device.sm_count * tiling.blocks_per_sm();
  return once && tiling.ping_pong && tiling.tile_m * tiling.tile_n >= kLarge ? kSooner : 0;
}

// This and what follows on matmuls whose lines straddle those of L2 is fitted to 2500 candidates of 49
// squares on an H200 (bench/HISTORY.md).
double Schedule::efficiency_of_straddling(bool one_round) const {
  constexpr double kOneRound = 0.98, kRounds = 1.07, kEight = 1.06, kInTurns = 0.916, kManySums = 1.03,
                   kNotExchanged = 0.972;
  double share = 1;
  if (tiling.ping_pong) share *= kInTurns;
  if (tiling.sums() > 128) share *= kManySums;
  if (tiling.cluster_blocks() > 1) share *= one_round ? kOneRound : kRounds;
  if (tiling.cluster_blocks() == 8 && one_round) share *= kEight;
  return tiling.swapped ? share : kNotExchanged * share;
}

// Such lines keep L2 busy as a whole: a few SMs wait for it as long as all would. The time model counts what
// the SMs fetch as a share of each; what passes the port of one is the least.
double Schedule::l2_bytes_of_straddling(double bytes) const {
  constexpr double kPort = 64 * 0.88;  // bytes a cycle
  const int64_t sms = device.sm_count, in_flight = tiling.blocks_per_sm();
  const int64_t reached = sms_of_clusters(device, tiling.cluster_blocks());
  const int64_t items = tiling.tiles() * tiling.split;
  const int64_t rounds = ceil_div(items, reached * in_flight);
  const int64_t resident = std::min(in_flight, ceil_div(items, sms));
  const double busy = static_cast<double>(items) / static_cast<double>(rounds * resident * sms);
  const double steps = static_cast<double>(items * tiling.steps_of_part);
  const double fetched = steps * static_cast<double>(tiling.tile_m + tiling.tile_n) * kLineBytes;
  const double share = device.l2_bytes_per_s / (kPort * device.clock_hz * static_cast<double>(sms));
  return std::max(bytes * std::min(busy, 1.0), fetched * share);
}

// The clock of a short product against that of the device's rates, which long ones draw so much power for
// that it falls.
double Schedule::clock_of_short_product() const {
  constexpr double kClock = 1.18, kLongClock = 1.12, kShort = 50e-6, kLong = 70e-6;
  const double seconds = seconds_of_products();
  const double share = std::clamp((seconds - kShort) / (kLong - kShort), 0.0, 1.0);
  return kClock + share * (kLongClock - kClock);
}

// Products and copies hide each other but for what is left of both.
void Schedule::multiply_beside_l2(Work& work) const {
  constexpr double kHidden = 4.8, kL2 = 1.15;
  constexpr double kSharedBytes = 128 * 0.86 * 0.98;  // of a cycle, as the time model has it
  const double shared = kSharedBytes * static_cast<double>(device.sm_count) * device.clock_hz;
  const double multiplied = std::max(work.tensor_flops / device.tensor_flops_16, work.shared_bytes / shared) /
                            clock_of_short_product();
  const double copied_in = l2_bytes_of_straddling(kL2 * work.l2_bytes) / device.l2_bytes_per_s;
  const double both = std::pow(std::pow(multiplied, kHidden) + std::pow(copied_in, kHidden), 1 / kHidden);
  work.tensor_flops = both * device.tensor_flops_16;
  work.l2_bytes = work.shared_bytes = 0;
}

double Schedule::steps_of_all_tiles() const {
  if (tiling.classes > 0) return static_cast<double>(tiling.tiles_of_class() * tiling.all_steps);
  return static_cast<double>(tiling.tiles()) * static_cast<double>(tiling.steps_of_part * tiling.split);
}

// Resident windows multiply as much of a line as there are channels.
double Schedule::lines_multiplied() const {
  constexpr double kSlices = 4;
  return tiling.window ? static_cast<double>(Tiling::slices_of(view)) / kSlices
                       : static_cast<double>(tiling.products());
}

double Schedule::copied_bytes() const {
  // A column of pixels comes slower than a box; in classes of a stride, which few columns of filters do not
  // hide, slower still (four gradients of 16 to 32 channels took 1.12 to 1.35 times their estimates).
  constexpr double kBesideMany = 1.6, kBesideFew = 2.4;
  constexpr int64_t kFewColumns = 32;
  const bool few = tiling.classes > 0 && !tiling.swapped && tiling.tile_n <= kFewColumns;
  const double im2col_cost = few ? kBesideFew : kBesideMany;
  const double steps = steps_of_all_tiles();
  if (tiling.window)
    return static_cast<double>(tiling.tiles() * tiling.window->layers) *
               static_cast<double>(tiling.lines_of_window() * Tiling::window_line_bytes(view)) +
           static_cast<double>(slots() * filter_bytes());
  if (view.planes)
    return steps * kLineBytes * static_cast<double>(tiling.row_lines() + tiling.column_lines());
  const auto lines = [&](const CopiedOperand& operand) {
    return is_straddling_matmul() ? cost_of_matmul_lines(operand, fusion, device)
                                  : cost_of_lines(operand, fusion, device);
  };
  // The cost of a line of 128 bytes, of which a prologue's operand is stored in a share; a column of pixels
  // pays for both.
  const auto cost = [&](double lines_of_l2, bool is_window, const std::optional<PrologueOperand>& passed) {
    if (is_window) return im2col_cost + lines_of_l2 - 1;
    return (passed ? static_cast<double>(byte_size(passed->stored.map.type)) / 2 : 1.0) * lines_of_l2;
  };
  const double of_rows = cost(thread_a ? 1 : lines(a), !tiling.swapped && a.map.window, prologue_a);
  const double of_columns =
      cost(thread_b.empty() ? lines(b[0]) : 1, tiling.swapped && !b.empty() && b[0].map.window, prologue_b);
  return steps * kLineBytes *
         (of_rows * static_cast<double>(tiling.tile_m) / static_cast<double>(tiling.cluster_n) +
          of_columns * static_cast<double>(tiling.tile_n) / static_cast<double>(tiling.cluster));
}

double Schedule::bytes_delivered_again() const {
  const double bytes_of_entry = dram_bytes(fusion) / static_cast<double>(tiling.entries);
  double bytes = 0;
  const auto add = [&](const CopiedOperand& operand) {
    if (operand.batch.is_plain()) return;
    const int64_t all = element_count(operand.map.dims) * byte_size(operand.map.type);
    bytes += (times_delivered(operand.batch, bytes_of_entry, device) - 1) * static_cast<double>(all);
  };
  add(a);
  for (const CopiedOperand& each : b) add(each);
  return bytes;
}

// TMA sends boxes that reach beyond the end of their lines line by line. Lines of a result that end within a
// sector of memory are written in parts. Seconds of an SM for each such line, by 410 candidates of 61
// products of 8 to 288 channels on an H200 (bench/HISTORY.md); products of more steps hide them.
double Schedule::seconds_of_short_lines() const {
  constexpr double kOf16 = 3.6e-9, kOf32 = 0.7e-9, kOf64 = 1e-9, kAcross = 5.3e-9;
  constexpr int64_t kStepsThatHide = 4;
  if (tiling.steps >= kStepsThatHide || tiling.window || view.planes || passes()) return 0;
  double of_tile = 0;
  const auto add = [&](const CopiedOperand& operand, int64_t extent) {
    const int64_t bytes = operand.map.dims[0] * byte_size(operand.map.type),
                  start = start_of_lines(operand, fusion);
    if (operand.map.window || start == kLineBytes || bytes % kLineBytes == 0) return;
    if (operand.across_adjacent)
      of_tile += bytes < kLineBytes ? kAcross * static_cast<double>(kBoxLine * tiling.steps) : 0;
    else
      of_tile += (start == 64 ? kOf64 : start == 32 ? kOf32 : kOf16) * static_cast<double>(extent);
  };
  if (!thread_a) add(a, tiling.tile_m / tiling.cluster_n);
  if (thread_b.empty())
    for (const CopiedOperand& each : b) add(each, tiling.tile_n / tiling.cluster);
  const auto tiles = static_cast<double>(tiling.tiles()), sms = static_cast<double>(device.sm_count);
  return of_tile * tiles / std::min(tiles, sms) + seconds_of_short_results();
}

double Schedule::seconds_of_short_results() const {
  constexpr double kOfResult = 2e-9;
  constexpr int64_t kSector = 32;
  if (store_path() != StorePath::boxes) return 0;
  const Expr& site = result_site(fusion);
  const auto is_element = [&](const Store& store) { return !reduction_of(site, store); };
  const auto result = std::ranges::find_if(site.stores, is_element);
  if (result == site.stores.end()) return 0;
  for (int axis = 0; axis < site.domain.rank(); ++axis) {
    const int64_t elements = site.domain[axis], bytes = elements * byte_size(result->type);
    if (result->access.strides[axis] != 1 || elements == 1) continue;
    if (bytes >= kLineBytes || bytes % kSector == 0) return 0;
    const double lines = static_cast<double>(element_count(site.domain)) / static_cast<double>(elements);
    return kOfResult * lines / device.sm_count;
  }
  return 0;
}

double Schedule::finish_cycles() const {
  // Tiles meet, and start anew.
  constexpr double kTileCycles = 1000, kTileOfLinesCycles = 2000, kTileOfRowsCycles = 1300;
  const auto threads = static_cast<double>(kWarpgroup * tiling.readers());
  const auto results = static_cast<double>(tiling.tile_m * tiling.columns_of_tile());
  const bool of_rows = tiling.window && !tiling.swapped;
  double cycles = (of_rows          ? kTileOfRowsCycles
                   : stores_lines() ? kTileOfLinesCycles
                                    : kTileCycles) +
                  results / threads * finish_cycles_per_element();
  // Two blocks of an SM share its schedulers, which an epilogue with special functions keeps busy alone.
  // Measured of linear layers with GELU.
  constexpr double kShared = 1.5, kStraddling = 0.815;
  const bool linear = problem.form.is_given() && !view.is_convolution() && !is_split();
  if (linear && tiling.blocks_per_sm() > 1 && cost_of(result_site(fusion), fusion).special > 0)
    cycles *= kShared;
  return is_straddling_matmul() ? kStraddling * cycles : cycles;
}

double Schedule::start_seconds() const {
  double seconds = 2.5e-6 + seconds_of_cluster() - seconds_of_one_round();
  // Threads that load for two consumers of a wgrad come late (17 candidates of a 13 x 13).
  constexpr double kLateLoads = 1.5e-6;
  if (problem.wgrad && tiling.by_threads.any() && !tiling.ping_pong) seconds += kLateLoads;
  constexpr double kMeeting = 0.1e-6, kMeetingOfShort = 0.25e-6, kFirstColumns = 0.25e-6;
  if (is_short_matmul() && tiling.cluster_blocks() > 1)
    seconds += (tiling.ping_pong ? 3 : 1) * kMeetingOfShort;
  if (loads_along_columns()) seconds += kFirstColumns;
  if (is_straddling_matmul() && tiling.cluster_blocks() > 1) seconds += kMeeting;
  // Not measured yet: never the choice.
  constexpr double kRehearsal = 0.02e-6;
  return rehearses() ? seconds + kRehearsal : seconds;
}

void Schedule::add_second_launch(Work& work) const {
  if (is_split()) {
    work.launches = 2;
    work.scratch_bytes = partial_bytes();
    work.serial_dram_bytes = 1.7 * static_cast<double>(work.scratch_bytes);
    // Parts of exchanged tiles are added up along m: results that are neighbours along n leave one by one.
    constexpr double kSector = 32;
    if (tiling.swapped)
      work.serial_dram_bytes +=
          kSector * static_cast<double>(tiling.entries * tiling.rows) * static_cast<double>(tiling.columns);
  }
  // Pairs of pixels that threads store one by one, which no other tile's products hide (a dgrad of planes of
  // 14 x 14).
  constexpr double kPairs = 2.2;
  const bool pairs = store_path() == StorePath::threads && !view.is_convolution() && tiling.entries > 1;
  if (pairs && !tiling.ping_pong)
    work.serial_dram_bytes +=
        kPairs * static_cast<double>(element_count(y.domain) * byte_size(y.stores.front().type));
  if (reduction) {
    work.launches = 1 + partial_results().launches();
    work.scratch_bytes = partial_results().bytes(fusion);
    work.serial_dram_bytes = static_cast<double>(work.scratch_bytes);
  }
}

Work Schedule::work() const {
  const auto tile_m = static_cast<double>(tiling.tile_m), tile_n = static_cast<double>(tiling.tile_n);
  // Lines of 128 bytes take the tensor cores as long, whatever is in them; the device's rate is that of 16
  // bits.
  const double steps = steps_of_all_tiles(),
               rows = lines_multiplied() * static_cast<double>(tiling.plane_rows);
  Work work;
  work.tensor_flops = 2 * tile_m * tile_n * rows * steps * kBoxLine;
  work.dram_bytes = dram_bytes(fusion);
  if (const auto& experts = problem.form.experts()) {
    const int64_t others = std::min(experts->count, tiling.rows) - 1;
    work.dram_bytes += static_cast<double>(others * view.k * view.n * byte_size(type()));
    ++work.launches;
    work.scratch_bytes = bytes_of_tiles(*experts, tiling.rows, tiling.tile_m);
  }
  work.l2_bytes = copied_bytes() + scattered_bytes();
  // Written by TMA, read by the tensor cores: the columns once for every 64 rows.
  const double read = tile_m + tile_n * tile_m / kPartRows;
  // Windows are written once for all taps. Those whose lines are full, in tiles of 64 filters, take about as
  // long as tiles that are written for every tap.
  const bool full = Tiling::window_line_bytes(view) == kLineBytes && tiling.swapped;
  const bool written_once = tiling.window && (tiling.window->layers > 1 || !full);
  const double written = written_once ? work.l2_bytes : steps * static_cast<double>(tiling.stage_bytes());
  work.shared_bytes = steps * rows * read * kLineBytes + written;
  if (is_straddling_matmul()) multiply_beside_l2(work);
  work.tiles = tiling.tiles();
  work.tiles_per_sm = static_cast<int>(tiling.blocks_per_sm());
  work.k_steps = tiling.classes > 0 ? ceil_div(tiling.all_steps, tiling.classes) : tiling.steps_of_part;
  work.split = static_cast<int>(tiling.split);
  work.finish_cycles = finish_cycles();
  work.finish_overlaps = tiling.ping_pong;
  work.start_s = start_seconds();
  work.efficiency = efficiency(work.dram_bytes);
  work.dram_bytes += bytes_delivered_again();
  add_second_launch(work);
  work.serial_dram_bytes += seconds_of_short_lines() * device.dram_bytes_per_s;
  return work;
}

}  // namespace fusor::wgmma
