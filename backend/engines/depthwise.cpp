// Owns the depthwise engine: convolutions of one input and one output channel a group whose channels are
// adjacent, bound by memory. Its knobs, costs and steps; its rules are in depthwise_rules.h, the kernels are
// codegen/device/depthwise.cuh and depthwise_wgrad.cuh, depthwise_march.cuh and depthwise_march_wgrad.cuh,
// and depthwise_finish.cuh.
#include <algorithm>
#include <array>
#include <limits>

#include "backend/engine.h"
#include "backend/engines.h"
#include "backend/engines/contraction.h"
#include "backend/engines/depthwise_rules.h"
#include "backend/engines/epilogue.h"
#include "backend/engines/sliding_axis.h"
#include "backend/engines/tiled_result.h"
#include "codegen/expr_emitter.h"
#include "core/ceil_div.h"
#include "core/fail.h"
#include "core/fast_divisor.h"
#include "heuristics/time_model.h"

namespace fusor {

namespace {

// The constants of codegen/device/depthwise_tiling.cuh and depthwise_finish.cuh.
constexpr int64_t kThreads = 128;
constexpr int64_t kFinishElements = 8, kFinishThreads = 256;
// Strips of more rows are marched down: their rows' sums are not held at once.
constexpr int64_t kMostHeldRows = 2;
// Columns of a marching thread: a bit for each.
constexpr int64_t kMostColumns = 32;
constexpr int64_t kMaxIndex32 = std::numeric_limits<int32_t>::max() - 65536;

// --- Vectors of channels ---

// As many adjacent channels as 16 bytes of the operand hold, fewer where their count or its alignment asks
// for it.
int64_t widest_vector(const Fusion& fusion, const Expr& pixels) {
  const Access* const access = primary_access(pixels);
  if (access == nullptr) return 1;
  const Operand& operand = fusion.operands[static_cast<size_t>(access->operand)];
  for (int64_t width = std::min<int64_t>(8, 16 / byte_size(operand.type)); width > 1; width /= 2)
    if (pixels.domain[1] % width == 0 && moves_whole_vectors(*access, operand, operand.type, 1, width))
      return width;
  return 1;
}

int64_t widest_vector(const Fusion& fusion) {
  const int64_t width = widest_vector(fusion, fusion.before[0]);
  const bool wgrad = std::get<Conv>(fusion.anchors[0].attributes).pass == ConvPass::wgrad;
  return wgrad ? std::min(width, widest_vector(fusion, fusion.before[1])) : width;
}

// --- One candidate ---

// How a block's threads are dealt out: vectors of channels by row pieces (wgrad) by lanes, each of which
// takes strips.
struct Deal {
  int64_t width = 1, rows = 1, lanes = 1;

  int64_t threads() const { return width * rows * lanes; }
};

// The share of the threads of all blocks that have work, a little more where neighbours share what they load.
double usefulness(const Deal& deal, int64_t vectors, int64_t row_pieces) {
  const auto share = [](int64_t all, int64_t each) {
    return static_cast<double>(all) / static_cast<double>(ceil_div(all, each) * each);
  };
  const double wide = 0.1 * static_cast<double>(std::min<int64_t>(deal.width, 8)) / 8;
  const double high = 0.1 * static_cast<double>(deal.rows) / static_cast<double>(row_pieces);
  return share(vectors, deal.width) * share(row_pieces, deal.rows) * static_cast<double>(deal.threads()) /
             static_cast<double>(kThreads) +
         wide + high;
}

Deal best_deal(int64_t vectors, int64_t row_pieces, int64_t max_width) {
  Deal best;
  double most = 0;
  for (int64_t width = std::min(vectors, max_width); width >= 1; --width)
    for (int64_t rows = 1; rows <= row_pieces && width * rows <= kThreads; ++rows) {
      const Deal deal{width, rows, kThreads / (width * rows)};
      const double useful = usefulness(deal, vectors, row_pieces);
      if (useful <= most) continue;
      most = useful;
      best = deal;
    }
  return best;
}

struct StripCost;

struct Lowering {
  const Fusion& fusion;
  Contraction view;
  std::string target;
  std::array<SlidingAxis, kSlidingAxes> axes;
  Expr a, b, y;
  int64_t strip, rows, split;
  int64_t vector, vectors = 1;   // channels of one, and how many
  int64_t pieces = 1, taps = 1;  // of a row of the window, and of a piece
  Deal deal;
  int64_t steps = 1;  // of a block, fprop and dgrad
  int index_bits = 32;

  Lowering(const Fusion& fusion_, const EngineConfig& config, const DeviceInfo& device)
      : fusion(fusion_),
        view(contraction_of(fusion_).value()),
        target(device.target()),
        strip(config.knob("strip", 4)),
        rows(config.knob("rows", 1)),
        split(config.knob("split", 1)),
        vector(config.knob("vector", 1)) {
    const Dims order = axis_order(view);
    const bool strided_gradient = view.op == ContractionOp::dgrad && !view.has_unit_stride();
    auto slot = axes.end() - order.rank();
    for (const int64_t i : order)
      *slot++ = sliding_axis(view.axes[static_cast<size_t>(i)], view.op, strided_gradient);
    for (SlidingAxis& axis : axes) axis.strided_gradient = strided_gradient;
    a = over_kernel_axes(fusion.before[0], order);
    b = over_kernel_axes(fusion.before[1], order);
    y = over_kernel_axes(fusion.after[0], order);
    mark_vectors();
    pieces = ceil_div(last().taps(), kMaxSlidingTaps);
    taps = ceil_div(last().taps(), pieces);
    if (marches() && !can_march()) rows = 1;
    deal = best_deal(vectors, is_wgrad() && !marches() ? row_pieces() : 1, max_width());
    if (!is_wgrad()) steps = steps_for(device);
    if (split == 0) split = split_for(device);
    index_bits = needs_wide_index() ? 64 : 32;
  }

  bool is_wgrad() const { return view.op == ContractionOp::wgrad; }
  bool marches() const { return rows > kMostHeldRows; }
  const SlidingAxis& last() const { return axes[kSlidingAxes - 1]; }
  bool whole_rows() const { return pieces == 1 && !last().strided_gradient; }
  int64_t spread() const { return std::min(last().advance(), taps); }
  int64_t columns() const { return (strip - 1) * spread() + taps; }
  int64_t window() const { return axes[0].window * axes[1].window * axes[2].window; }
  int64_t row_pieces() const { return axes[0].window * axes[1].window * pieces; }
  int64_t images() const { return fusion.before[0].domain[0]; }
  int64_t length(int axis) const { return axis == 2 ? strip : axis == 1 ? rows : 1; }
  int64_t strips() const {
    int64_t count = images();
    for (int i = 0; i < kSlidingAxes; ++i) count *= axes[static_cast<size_t>(i)].runs(length(i));
    return count;
  }

  void mark_vectors() {
    vectors = view.entries / vector;
    mark_whole_vectors(fusion, a, 1, vector);
    mark_whole_vectors(fusion, b, is_wgrad() ? 1 : 0, vector);
    mark_whole_vectors(fusion, y, is_wgrad() ? 0 : 1, is_wgrad() ? 1 : vector);
  }

  // The filters of a block's channels fit into shared memory.
  int64_t max_width() const {
    if (is_wgrad()) return 32;
    return std::clamp<int64_t>(kMaxFilterBytes / filter_bytes(1), 1, 32);
  }
  int64_t filter_bytes(int64_t width) const { return width * bytes_of_filters(window(), vector); }

  int64_t channel_tiles() const { return ceil_div(vectors, deal.width); }
  int64_t row_tiles() const { return marches() ? 1 : ceil_div(row_pieces(), deal.rows); }
  int64_t blocks() const {
    if (is_wgrad()) return channel_tiles() * row_tiles() * split;
    return channel_tiles() * ceil_div(strips(), deal.lanes * steps);
  }
  // A block walks as far as leaves the device a few blocks for each place: rows that strips share stay in L1.
  int64_t steps_for(const DeviceInfo& device) const {
    const int64_t places = int64_t{device.sm_count} * blocks_per_sm();
    const int64_t single = channel_tiles() * ceil_div(strips(), deal.lanes);
    return std::clamp<int64_t>(single / (places * 4), 1, 16);
  }
  // Blocks for every place once, whose lanes take equally many strips.
  int64_t split_for(const DeviceInfo& device) const {
    const int64_t places = int64_t{device.sm_count} * blocks_per_sm();
    const int64_t most = std::max<int64_t>(1, places / (channel_tiles() * row_tiles()));
    const int64_t strips_of_lane = ceil_div(strips(), most * deal.lanes);
    return ceil_div(strips(), strips_of_lane * deal.lanes);
  }
  // Lanes of a marching block add up their sums.
  int64_t parts() const { return marches() ? split : split * deal.lanes; }
  int64_t elements() const { return window() * view.entries; }
  int64_t partial_bytes() const { return is_wgrad() ? parts() * elements() * 4 : 0; }

  // --- Marching ---

  // Windows of several rows that neighbours share; one plane, so that a row is met once.
  bool can_march() const {
    return axes[1].taps() > axes[1].advance() && axes[0].window == 1 && pieces == 1 &&
           columns() <= kMostColumns;
  }
  // Rows of results that a line meets.
  int64_t ring() const { return ceil_div(axes[1].taps(), axes[1].advance()); }
  bool has_tails() const { return last().results % (strip * last().spacing()) != 0; }
  // Results of a run that takes all of its axis: what can be marched down.
  int64_t longest_march() const { return ceil_div(axes[1].results, axes[1].spacing()); }
  // Rows of results that a strip works on: also those of its neighbours, unless padding lies there.
  int64_t rows_worked_on() const {
    return std::min(rows + ring() - 1, ceil_div(axes[1].positions, axes[1].advance()) + 1);
  }
  // The site is no more than a load of 16 bits.
  bool is_plain(const Expr& site) const {
    const Node& value = site.nodes[static_cast<size_t>(site.value)];
    return value.kind == Node::Kind::load && byte_size(value.type) == 2 && is_real(value.type) &&
           (value.access.whole_vectors || vector == 1) &&
           fusion.operands[static_cast<size_t>(value.access.operand)].type == value.type;
  }
  int64_t unrolled() const { return axes[1].taps() * taps * strip * vector; }
  int64_t values_on_the_way() const {
    int64_t values = is_plain(a) ? (is_wgrad() ? strip : columns()) : 0;
    if (is_wgrad() && is_plain(b)) values += columns();
    return ceil_div(values * vector, 2);
  }

  // Registers for the columns and the sums of a thread; those for addresses come on top.
  int64_t values() const {
    if (marches() && is_wgrad())
      return values_on_the_way() + strip + columns() +
             vector * (columns() + ring() * strip + axes[1].taps() * taps);
    // The first row of results leaves before the last one begins.
    if (marches())
      return values_on_the_way() + columns() +
             vector * (columns() + std::max<int64_t>(1, ring() - 1) * strip);
    return vector * (is_wgrad() ? columns() + strip + taps : columns() + strip * rows + 1);
  }
  int64_t blocks_per_sm() const {
    int64_t others = marches() ? 30 : 40;
    // Where results end, and which taps there are.
    if (marches() && !is_wgrad()) others += 4 + (has_tails() ? strip : 0) + (whole_rows() ? 0 : 8);
    const int64_t registers = values() + others + (index_bits == 64 ? 32 : 0);
    return registers <= 96 ? 5 : registers <= 128 ? 4 : registers <= 168 ? 3 : 2;
  }

  bool needs_wide_index() const {
    int64_t most = std::max({strips() + deal.lanes * (steps + 1), blocks(), elements()});
    for (int i = 0; i < kSlidingAxes; ++i)
      most = std::max(most, axes[static_cast<size_t>(i)].largest_index(length(i)));
    for (const Expr* site : {&a, &b, &y}) most = std::max(most, reach(*site));
    return most > kMaxIndex32;
  }

  // --- Launches ---

  std::vector<ConfigValue> config() const {
    std::vector<ConfigValue> values{
        {"index_bits", index_bits}, {"strided_gradient", last().strided_gradient ? 1 : 0},
        {"vector", vector},         {"rows", marches() ? 1 : rows},
        {"strip", strip},           {"taps", taps},
        {"spread", spread()}};
    if (!marches()) values.push_back({"whole_rows", whole_rows() ? 1 : 0});
    values.push_back({"blocks", blocks_per_sm()});
    if (!marches()) return values;
    values.push_back({"lines", axes[1].taps()});
    values.push_back({"advance", axes[1].advance()});
    values.push_back({"a_plain", is_plain(a) ? 1 : 0});
    if (is_wgrad())
      values.push_back({"b_plain", is_plain(b) ? 1 : 0});
    else
      values.push_back({"tails", has_tails() ? 1 : 0});
    return values;
  }

  void write_window(ArgumentBlock& block, bool of_results) const {
    for (int i = 0; i < kSlidingAxes; ++i)
      axes[static_cast<size_t>(i)].write_arguments(block, of_results ? 1 : length(i), index_bits);
  }

  void write_channels(ArgumentBlock& block) const {
    block.put_int(vectors);
    FastDivisor::of(deal.width, index_bits).put(block);
    FastDivisor::of(channel_tiles(), index_bits).put(block);
    block.put_int(deal.lanes);
  }

  KernelSite site(const char* name, const Expr& expr, int vector_axis) const {
    KernelSite site{name, expr, vector_axis, fits_short_forms(expr)};
    site.addressed = marches() && expr.value >= 0 && is_plain(expr);
    return site;
  }

  Launch launch(const char* entry, KernelSource source, ArgumentBlock arguments, int64_t grid,
                int64_t block) const {
    Launch launch;
    launch.arguments = std::move(arguments);
    for (const KernelSite& operand : source.sites) write_arguments(launch.arguments, operand, fusion);
    launch.entry = entry;
    set_grid(launch, grid, block);
    launch.source = std::make_shared<const KernelSource>(std::move(source));
    return launch;
  }

  Launch gather() const {
    KernelSource source{marches() ? "depthwise_march.cuh" : "depthwise.cuh",
                        {site("A", a, 1), site("B", b, 0), site("Y", y, 1)},
                        config(),
                        target};
    ArgumentBlock arguments;
    write_window(arguments, false);
    write_channels(arguments);
    for (const int64_t value : {strips(), steps, marches() ? rows : pieces}) arguments.put_int(value);
    Launch made = launch(marches() ? "depthwise_march" : "depthwise", std::move(source), std::move(arguments),
                         blocks(), deal.threads());
    made.shared_bytes = filter_bytes(deal.width);
    return made;
  }

  Launch marched_parts_of_gradient() const {
    KernelSource source{"depthwise_march_wgrad.cuh", {site("A", a, 1), site("B", b, 1)}, config(), target};
    ArgumentBlock arguments;
    write_window(arguments, false);
    write_channels(arguments);
    for (const int64_t value : {strips(), ceil_div(strips(), split), rows}) arguments.put_int(value);
    arguments.put_pointer(Patch::Kind::scratch, 0);
    return launch("depthwise_march_wgrad", std::move(source), std::move(arguments), blocks(), deal.threads());
  }

  Launch parts_of_gradient() const {
    if (marches()) return marched_parts_of_gradient();
    KernelSource source{"depthwise_wgrad.cuh", {site("A", a, 1), site("B", b, 1)}, config(), target};
    ArgumentBlock arguments;
    write_window(arguments, false);
    write_channels(arguments);
    FastDivisor::of(deal.width * deal.rows, index_bits).put(arguments);
    FastDivisor::of(row_tiles(), index_bits).put(arguments);
    arguments.put_int(deal.rows);
    arguments.put_int(row_pieces());
    FastDivisor::of(pieces, index_bits).put(arguments);
    arguments.put_int(strips());
    arguments.put_int(ceil_div(strips(), split));
    arguments.put_pointer(Patch::Kind::scratch, 0);
    return launch("depthwise_wgrad", std::move(source), std::move(arguments), blocks(), deal.threads());
  }

  Launch sum_of_parts() const {
    KernelSource source{"depthwise_finish.cuh", {site("Y", y, 0)}, {{"index_bits", index_bits}}, target};
    ArgumentBlock arguments;
    write_window(arguments, true);
    FastDivisor::of(view.entries, index_bits).put(arguments);
    arguments.put_int(elements());
    arguments.put_int(parts());
    arguments.put_pointer(Patch::Kind::scratch, 0);
    return launch("depthwise_finish", std::move(source), std::move(arguments),
                  ceil_div(elements(), kFinishElements), kFinishThreads);
  }

  std::vector<Guard> guards() const { return guards_of(fusion, {{a, vector}, {b, vector}, {y, vector}}); }

  StripCost strip_cost() const;
  StripCost march_cost() const;
  double l2_bytes() const;
  double issue_share(const DeviceInfo& device) const;
  Work work(const DeviceInfo& device) const;
};

// --- Costs ---

// Of the bytes that a copy moves in the same time.
constexpr double kDramShare = 0.85;
// Of the instructions that the device can issue; where threads march, if warps never ran out.
constexpr double kIssueShare = 0.45, kWgradIssueShare = 0.65, kMarchIssueShare = 0.75;
// For the position of a strip (in wgrad, which goes from strip to strip, with what it waits for), and for the
// address of each vector that is loaded or stored.
constexpr double kStripInstructions = 80, kWgradStripInstructions = 220, kVectorInstructions = 5;

// What one thread does for one strip: instructions, special functions and bytes between L1 or shared memory
// and registers. An SM issues four warps' instructions and moves 128 bytes a clock: a byte of a thread takes
// as long as an instruction.
struct StripCost {
  double arithmetic = 0, special = 0, bytes = 0;

  double instructions() const { return std::max(arithmetic, bytes); }
};

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

StripCost Lowering::march_cost() const {
  const SiteCost cost_a = cost_of(a, fusion), cost_b = cost_of(b, fusion), cost_y = cost_of(y, fusion);
  const int64_t rows_of_taps = taps * axes[1].taps();
  StripCost row{kRowInstructions + static_cast<double>(rows_of_taps * strip * vector), 0, 0};
  const auto add = [&](const SiteCost& site, int64_t count, double instructions) {
    row += through(site, count, vector);
    row.arithmetic += static_cast<double>(count) * (instructions - kVectorInstructions);
  };
  add(is_wgrad() ? cost_b : cost_a, columns() * axes[1].advance(), kLoadInstructions);
  if (is_wgrad()) {
    add(cost_a, strip, kLoadInstructions);
  } else {
    add(cost_y, strip, kStoreInstructions);
    row.arithmetic += static_cast<double>(rows_of_taps);
    row.bytes += static_cast<double>(rows_of_taps * vector * 4);
  }
  const auto worked_on = static_cast<double>(rows_worked_on());
  return {kWgradStripInstructions + worked_on * row.arithmetic, worked_on * row.special,
          worked_on * row.bytes};
}

StripCost Lowering::strip_cost() const {
  if (marches()) return march_cost();
  const SiteCost cost_a = cost_of(a, fusion), cost_b = cost_of(b, fusion), cost_y = cost_of(y, fusion);
  StripCost cost{is_wgrad() ? kWgradStripInstructions : kStripInstructions, 0, 0};
  if (is_wgrad()) {
    cost.arithmetic += static_cast<double>(strip * taps * vector);
    cost += through(cost_a, strip, vector);
    cost += through(cost_b, columns(), vector);
    return cost;
  }
  const int64_t lines = axes[0].taps() * pieces;
  const int64_t tap_vectors = lines * axes[1].taps() * rows * taps;
  const int64_t loaded = lines * (axes[1].taps() + (rows - 1) * axes[1].advance()) * columns();
  cost.arithmetic += static_cast<double>(tap_vectors * (vector * strip + 2));
  cost.bytes += static_cast<double>(tap_vectors * vector * 4);
  cost += through(cost_a, loaded, vector);
  cost += through(cost_y, rows * strip, vector);
  return cost;
}

// Every element of the operand comes once for each block that needs it: those that walk over many rows share
// all but the first and the last.
double Lowering::l2_bytes() const {
  if (marches())
    return dram_bytes(fusion) * static_cast<double>(rows_worked_on()) / static_cast<double>(rows) +
           2 * static_cast<double>(partial_bytes());
  const double walked = is_wgrad() ? static_cast<double>(ceil_div(strips(), split))
                                   : static_cast<double>(steps * deal.lanes * rows);
  const double lines = std::max(static_cast<double>(rows), walked / static_cast<double>(last().runs(strip)));
  const double again = 1 + static_cast<double>(axes[1].taps() - 1) / lines;
  const double bytes = dram_bytes(fusion) * (is_wgrad() ? static_cast<double>(row_tiles()) : 1.0);
  return bytes * again + 2 * static_cast<double>(partial_bytes());
}

// The more warps there are, the more often one of them has what it waits for.
double Lowering::issue_share(const DeviceInfo& device) const {
  if (is_wgrad() && !marches()) return kWgradIssueShare;
  if (!marches()) return kIssueShare;
  const int64_t resident = std::min(blocks_per_sm(), ceil_div(blocks(), int64_t{device.sm_count}));
  constexpr int64_t kWarps = kThreads / 32;
  const auto warps = static_cast<double>(resident * kWarps);
  return kMarchIssueShare * warps / (warps + 4);
}

Work Lowering::work(const DeviceInfo& device) const {
  const StripCost cost = strip_cost();
  const int64_t lanes = is_wgrad() ? split * deal.lanes : deal.lanes * steps;
  const double threads = static_cast<double>(marches() ? ceil_div(strips(), lanes) * lanes : strips()) *
                         static_cast<double>(channel_tiles() * deal.width) *
                         static_cast<double>(is_wgrad() ? row_tiles() * deal.rows : 1) *
                         static_cast<double>(kThreads) / static_cast<double>(deal.threads());
  Work work;
  work.fp32_flops = 2 * threads * cost.instructions();
  work.special = threads * cost.special;
  work.dram_bytes = dram_bytes(fusion) / kDramShare;
  work.l2_bytes = l2_bytes();
  work.tiles = blocks();
  work.tiles_per_sm = static_cast<int>(blocks_per_sm());
  work.efficiency = issue_share(device) * (index_bits == 64 ? 0.7 : 1.0);
  if (is_wgrad()) {
    work.launches = 2;
    work.scratch_bytes = partial_bytes();
  }
  return work;
}

// --- The engine ---

// Columns and sums beyond this many registers leave too few threads to hide the way to memory.
constexpr int64_t kMaxValues = 112, kMaxMarchValues = 190;
// Multiply-adds of a marching thread's row: text is compile time.
constexpr int64_t kMaxUnrolled = 900;

class DepthwiseEngine final : public Engine {
 public:
  std::string_view name() const override { return "depthwise"; }
  int number() const override { return 40; }

  Support supports(const Fusion& fusion, const DeviceInfo& device) const override {
    if (device.is_cpu())
      return Support::no({"needs-gpu", "", "", "a CUDA device", device.name, "plan for a GPU", -1});
    if (fusion.anchors.size() != 1 || !std::holds_alternative<Conv>(fusion.anchors[0].attributes))
      return Support::no({"convolution-anchor", fusion.op_names.empty() ? "" : fusion.op_names.front(), "",
                          "one convolution", "another anchor or none", "", -1});
    if (auto refusal = refuse_depthwise(fusion)) return Support::no(std::move(*refusal));
    return Support::yes();
  }

  std::vector<Knob> knobs(const Fusion& fusion, const DeviceInfo& device) const override {
    const int64_t widest = widest_vector(fusion);
    const Lowering plain(fusion, config({{"vector", widest}}), device);
    Knob vector{"vector", {widest}};
    for (int64_t width = widest / 2; width >= 2; width /= 2)
      vector.values.insert(vector.values.begin(), width);
    const Knob strip{"strip", {2, 4, 7, 8}}, rows{"rows", rows_offered(plain)};
    if (plain.is_wgrad()) return {vector, strip, rows, {"split", splits(plain, device)}};
    return {vector, strip, rows};
  }

  std::vector<EngineCandidate> candidates(const Fusion& fusion, const DeviceInfo& device) const override {
    const std::vector<Knob> offered = knobs(fusion, device);
    std::vector<EngineCandidate> list;
    for (const int64_t vector : offered[0].values)
      for (const int64_t strip : offered[1].values) {
        const std::vector<EngineCandidate> marches = best_marches(fusion, device, offered, vector, strip);
        list.insert(list.end(), marches.begin(), marches.end());
        // In wgrad, others would read everything once for every row of the window.
        const bool splits = offered.size() > 3;
        const int64_t most_rows = marches.empty() ? kMostHeldRows : splits ? 0 : 1;
        for (const int64_t rows : offered[2].values) {
          if (rows > most_rows || vector * 2 < offered[0].values.back()) continue;
          for (const int64_t split : splits_of(offered)) {
            if (split == 0) continue;
            EngineConfig setting = setting_of(offered, vector, strip, rows, split);
            const Lowering lowering(fusion, setting, device);
            if (is_promising(lowering, device)) list.push_back({std::move(setting), lowering.work(device)});
          }
        }
      }
    if (!list.empty()) return list;
    // Small ones leave the device idle however they are split; wide windows with large strides share no
    // columns.
    const bool splits = offered.size() > 3;
    EngineConfig setting =
        setting_of(offered, offered[0].values.back(), splits ? 4 : 2, 1, splits_of(offered).back());
    const Lowering lowering(fusion, setting, device);
    list.push_back({std::move(setting), lowering.work(device)});
    return list;
  }

  Lowered lower(const Fusion& fusion, const EngineConfig& config, const DeviceInfo& device) const override {
    const Lowering lowering(fusion, config, device);
    Lowered lowered;
    if (lowering.is_wgrad()) {
      lowered.steps.emplace_back(lowering.parts_of_gradient());
      lowered.steps.emplace_back(lowering.sum_of_parts());
      lowered.scratch.push_back(lowering.partial_bytes());
    } else {
      lowered.steps.emplace_back(lowering.gather());
    }
    lowered.guards = lowering.guards();
    return lowered;
  }

 private:
  EngineConfig config(std::vector<KnobSetting> knobs) const {
    return {std::string(name()), revision(), std::move(knobs)};
  }

  EngineConfig setting_of(const std::vector<Knob>& offered, int64_t vector, int64_t strip, int64_t rows,
                          int64_t split) const {
    std::vector<KnobSetting> settings{{"vector", vector}, {"strip", strip}, {"rows", rows}};
    if (offered.size() > 3) settings.push_back({"split", split});
    return config(std::move(settings));
  }

  static std::vector<int64_t> splits_of(const std::vector<Knob>& offered) {
    return offered.size() > 3 ? offered[3].values : std::vector<int64_t>{1};
  }

  // Rows of a strip: those that are held at once, and parts of the axis to be marched down.
  static std::vector<int64_t> rows_offered(const Lowering& one) {
    std::vector<int64_t> values{1};
    const bool shares_rows = one.axes[1].taps() > one.axes[1].advance() && one.axes[1].results > 1;
    if (shares_rows && !one.is_wgrad()) values.push_back(2);
    if (one.can_march())
      for (const int64_t parts : {16, 12, 8, 6, 4, 3, 2, 1}) {
        const int64_t rows = ceil_div(one.longest_march(), parts);
        if (rows > std::max(kMostHeldRows, values.back())) values.push_back(rows);
      }
    return values;
  }

  // The longer the march, the fewer rows are read twice; the shorter, the more threads there are. The best
  // lengths by estimate.
  std::vector<EngineCandidate> best_marches(const Fusion& fusion, const DeviceInfo& device,
                                            const std::vector<Knob>& offered, int64_t vector,
                                            int64_t strip) const {
    std::vector<EngineCandidate> marches;
    for (const int64_t rows : offered[2].values) {
      if (rows <= kMostHeldRows || strip < 4) continue;
      EngineConfig setting = setting_of(offered, vector, strip, rows, 0);
      const Lowering lowering(fusion, setting, device);
      if (!lowering.marches() || lowering.values() > kMaxMarchValues || lowering.unrolled() > kMaxUnrolled)
        continue;
      marches.push_back({std::move(setting), lowering.work(device)});
    }
    std::ranges::stable_sort(marches, {}, [&](const EngineCandidate& candidate) {
      return estimate_seconds(candidate.work, device);
    });
    // Of narrow vectors one is enough.
    marches.resize(std::min<size_t>(marches.size(), vector * 2 < offered[0].values.back() ? 1 : 2));
    return marches;
  }

  // Parts of the pixels: powers of two, and those that fill the device once, twice and four times; 0 leaves
  // it to the lowering.
  static std::vector<int64_t> splits(const Lowering& one, const DeviceInfo& device) {
    const int64_t most = std::max<int64_t>(1, one.strips() / (one.deal.lanes * 4));
    const int64_t places = int64_t{device.sm_count} * one.blocks_per_sm();
    std::vector<int64_t> values{1};
    while (values.back() * 2 <= std::min<int64_t>(most, 4096)) values.push_back(values.back() * 2);
    for (const int64_t waves : {1, 2, 4})
      values.push_back(
          std::clamp<int64_t>(waves * places / (one.channel_tiles() * one.row_tiles()), 1, most));
    if (one.can_march()) values.push_back(0);
    std::ranges::sort(values);
    values.erase(std::unique(values.begin(), values.end()), values.end());
    return values;
  }

  // Strips long enough to share columns and short enough for registers; in wgrad, blocks that fill the device
  // once or twice.
  static bool is_promising(const Lowering& lowering, const DeviceInfo& device) {
    if (lowering.strip < 4 || lowering.values() > kMaxValues) return false;
    const int64_t places = int64_t{device.sm_count} * lowering.blocks_per_sm();
    const int64_t blocks = lowering.blocks();
    return !lowering.is_wgrad() || (blocks * 10 >= places * 8 && blocks <= places * 2);
  }
};

}  // namespace

const Engine& depthwise_engine() {
  static const DepthwiseEngine engine;
  return engine;
}

}  // namespace fusor
