// Owns the wgmma_narrow engine: fprop and wgrad of convolutions of few input channels - first layers - on
// Hopper's tensor cores (sm_90a), which read windows straight from rows of pixels. Its rules, knobs, costs
// and steps; the kernels are codegen/device/wgmma_narrow.cuh and wgmma_narrow_wgrad.cuh.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "backend/engine.h"
#include "backend/engines.h"
#include "backend/engines/contraction.h"
#include "backend/engines/epilogue.h"
#include "backend/engines/tensor_maps.h"
#include "backend/engines/tiled_result.h"
#include "codegen/expr_emitter.h"
#include "core/ceil_div.h"
#include "core/fast_divisor.h"

namespace fusor {

namespace {

// The constants of the kernels and of codegen/device/wgmma_narrow_rows.cuh.
constexpr int64_t kElementBytes = 2, kUnitBytes = 16, kStep = 16, kBlock = 64;
constexpr int64_t kConsumers = 2, kWarpgroup = 128;
constexpr int64_t kThreadsStore = 0, kCopyEngineStores = 1;
constexpr int64_t kLeastGroups = 4, kMostAhead = 10;
constexpr int64_t kMostFilterBytes = 100 * 1024;
constexpr int64_t kFewestPixels = 48, kMostPixels = 256, kMostBoxColumns = 128;
constexpr int64_t kMostSums = 128;  // of a thread, in wgrad

// ---- The window in slots of pixels ----

struct Window {
  WindowAxis h, w;  // h is all ones where the convolution has one spatial axis
  bool tails;       // PixelSlots::kTail of the device's side

  explicit Window(const Contraction& view) : w(view.axes.back()), tails(view.op == ContractionOp::fprop) {
    if (view.axes.size() == 2) h = view.axes.front();
  }
  bool mirrored() const { return h.step < 0 || w.step < 0; }
  int64_t slot() const { return 8 / w.stride; }  // channels
  int64_t unit_pixels() const { return 8 / slot(); }
  int64_t steps() const { return ceil_div(ceil_div(w.window, unit_pixels()), 2); }  // of k, of a row
  int64_t dilation() const { return h.window == 1 ? 1 : std::abs(h.step); }
  int64_t reach() const { return (h.window - 1) * dilation(); }
  int64_t span() const { return reach() / h.stride; }
  int64_t filter_bytes() const { return h.window * steps() * kStep * kBlock * kElementBytes; }  // of a block

  int64_t pixels(int64_t tile) const { return (tile - 1) * w.stride + w.window; }
  int64_t row_bytes(int64_t tile) const {
    const bool tail = tails && w.window % unit_pixels() != 0;
    return round_up(pixels(tile) * slot() * kElementBytes, kUnitBytes) + (tail ? tile * kUnitBytes : 0);
  }
  int64_t group_bytes(int64_t tile) const { return h.stride * row_bytes(tile); }
  int64_t fewest_groups() const { return std::max(kLeastGroups, span() + 2); }
  // Rows of slots in the ring, and what else struct InputRows holds.
  int64_t ring_bytes(int64_t tile, int64_t groups) const {
    const int64_t rows = round_up(groups * group_bytes(tile), 128);
    return round_up(rows + tile * kUnitBytes + 16 * groups, 128);
  }
};

int64_t lower(const WindowAxis& axis) {
  return axis.start + std::min<int64_t>((axis.window - 1) * axis.step, 0);
}

// ---- The input ----

// Channels and pixels are one contiguous axis.
bool is_merged(const Expr& site) {
  const int rank = site.domain.rank();
  if (site.nodes.size() != 1 || site.nodes[0].kind != Node::Kind::load) return false;
  const Strides& strides = site.nodes[0].access.strides;
  return strides[1] == 1 && strides[rank - 1] == site.domain[1] && site.domain[1] > 1;
}

// Over (image, [row,] channels of pixels).
Expr merged(const Expr& site) {
  const int rank = site.domain.rank();
  Dims order{0};
  for (int axis = 2; axis < rank; ++axis) order.push_back(axis);
  Expr out = select_axes(site, order);
  out.domain[rank - 2] *= site.domain[1];
  out.nodes[0].access.strides[rank - 2] = 1;
  return out;
}

// ---- What both passes share ----

struct Rows {
  const Fusion& fusion;
  const DeviceInfo& device;
  Contraction view;
  Window window;
  int64_t tile, rows;  // pixels of a row that are worked on at once; rows of a strip
  Expr x;
  bool x_merged = false, x_plain = false;
  int64_t index_bits = 32;

  Rows(const Fusion& fusion_, const EngineConfig& config, const DeviceInfo& device_)
      : fusion(fusion_),
        device(device_),
        view(contraction_of(fusion_).value()),
        window(view),
        tile(config.knob("tile_n", kFewestPixels)),
        rows(std::clamp<int64_t>(config.knob("rows", window.h.output), 1, window.h.output)),
        x(fusion_.before[view.op == ContractionOp::fprop ? 0 : 1]) {
    x_merged = is_merged(x);
    if (x_merged) x = merged(x);
    mark_whole_vectors(fusion, x, pixel_axis(x), 2);
    const Node& value = x.nodes[static_cast<size_t>(x.value)];
    const bool whole_pairs = x.domain[pixel_axis(x)] % 2 == 0;
    x_plain = whole_pairs && value.kind == Node::Kind::load && value.access.whole_vectors &&
              fusion.operands[static_cast<size_t>(value.access.operand)].type == value.type;
    for (const Operand& operand : fusion.operands)
      if (operand.elements > std::numeric_limits<int32_t>::max()) index_bits = 64;
  }

  static int pixel_axis(const Expr& site) { return site.domain.rank() - 1; }
  DataType type() const { return x.nodes[static_cast<size_t>(x.value)].type; }
  int64_t blocks() const { return ceil_div(view.output_channels, kBlock); }  // of output channels

  int64_t along_h() const { return ceil_div(window.h.output, rows); }
  int64_t along_w() const { return ceil_div(window.w.output, tile); }
  int64_t strips() const { return x.domain[0] * along_h() * along_w(); }

  // As many groups as fit, up to what loading may run ahead.
  template <class Bytes>
  int64_t groups(const Bytes& shared_bytes) const {
    int64_t groups = window.fewest_groups() + kMostAhead;
    while (groups > window.fewest_groups() && shared_bytes(groups) > device.shared_per_block) --groups;
    return groups;
  }

  KernelSite site_x() const { return {"X", x, pixel_axis(x), fits_short_forms(x), true, x_plain}; }

  std::vector<ConfigValue> config(int64_t groups, int64_t shared_bytes) const {
    std::vector<ConfigValue> values{{"index_bits", index_bits},
                                    {"type", type() == DataType::f16 ? 0 : 1},
                                    {"tile_n", tile},
                                    {"stages", groups},
                                    {"shared_bytes", shared_bytes},
                                    {"window_h", window.h.window},
                                    {"window_w", window.w.window},
                                    {"stride_h", window.h.stride},
                                    {"stride_w", window.w.stride},
                                    {"dilation_h", window.dilation()},
                                    {"tails", window.tails ? 1 : 0},
                                    {"channels", view.input_channels},
                                    {"mirrored", window.mirrored() ? 1 : 0},
                                    {"merged", x_merged ? 1 : 0},
                                    {"plain", x_plain ? 1 : 0}};
    view.write_config(values);
    return values;
  }

  void write_strips(ArgumentBlock& block) const {
    FastDivisor::of(along_h(), static_cast<int>(index_bits)).put(block);
    FastDivisor::of(along_w(), static_cast<int>(index_bits)).put(block);
    for (const int64_t value :
         {rows, strips(), window.h.output, window.h.input, window.w.input, lower(window.h), lower(window.w)})
      block.put_int(value);
  }

  // Rows of the result that the SM with the most strips works on, where `slots` of them share the strips; a
  // strip fills the ring anew, with what lies under its first window.
  double rows_of_sm(int64_t slots) const {
    const auto rounds = static_cast<double>(ceil_div(strips(), slots));
    return rounds * (static_cast<double>(rows) + 0.5);
  }

  // Input elements loaded, with all that it takes; `tiles` are rows of strips.
  Work work(double tiles) const {
    Work work;
    work.tiles = static_cast<int64_t>(std::ceil(tiles));
    work.dram_bytes = dram_bytes(fusion);
    const auto groups = static_cast<double>(strips() * (rows + window.span()) * blocks_that_load());
    const auto loaded = static_cast<double>(window.h.stride * window.pixels(tile) * view.input_channels);
    const SiteCost cost = cost_of(x, fusion);
    work.l2_bytes = groups * loaded * cost.bytes;
    work.fp32_flops = 2 * groups * loaded * (4 + cost.instructions);
    work.special = groups * loaded * cost.special;
    work.shared_bytes = 6 * groups * static_cast<double>(window.group_bytes(tile));
    work.k_steps = window.h.window;
    work.start_s = 5e-6;
    return work;
  }
  int64_t blocks_that_load() const { return view.op == ContractionOp::fprop ? 1 : blocks(); }
};

// The first operand or result as (channel, column, row of all images), from a map of (channel, pixel).
void take_rows(TensorMap& map, const Window& window) {
  const int64_t line = map.stride_bytes[0], columns = window.w.output;
  map.dims = {map.dims[0], columns, map.dims[1] / columns};
  map.stride_bytes = {line, line * columns};
}

// An operand or result whose columns are adjacent, as (column, channel of all images, row), without its box.
std::optional<TensorMap> planes(const Access& access, const Operand& operand, DataType type,
                                const Dims& domain) {
  const int last = domain.rank() - 1;
  const Strides& strides = access.strides;
  const int64_t bytes = byte_size(type), columns = domain[last], row = last == 3 ? strides[2] : columns;
  const auto is_line = [&](int64_t elements) { return elements > 0 && elements * bytes % kUnitBytes == 0; };
  if (strides[last] != 1 || !is_line(columns) || !is_line(strides[1]) || !is_line(row)) return std::nullopt;
  if (domain[0] != 1 && strides[0] != strides[1] * domain[1]) return std::nullopt;
  if (operand.alignment % kUnitBytes != 0 || access.offset * bytes % kUnitBytes != 0) return std::nullopt;
  TensorMap map;
  map.type = type;
  map.dims = {columns, domain[0] * domain[1], last == 3 ? domain[2] : 1};
  map.stride_bytes = {strides[1] * bytes, row * bytes};
  return map;
}

// ---- fprop ----

struct Fprop : Rows {
  Expr y;
  bool short_forms;
  bool rounds_value = true;
  std::optional<CopiedResult> copied;  // the first result, where the copy engine stores it
  int64_t vector;

  Fprop(const Fusion& fusion_, const EngineConfig& config, const DeviceInfo& device_)
      : Rows(fusion_, config, device_),
        y(fusion_.after[0]),
        short_forms(fits_short_forms(y)),
        vector(window.w.output % 2 == 0 ? 2 : 1) {
    choose_way_out();
    mark_whole_vectors(fusion, y, pixel_axis(y), vector);
  }

  // The copy engine takes the first result where its lines allow: the epilogue yields it as a value.
  void choose_way_out() {
    copied = copied_row(fusion, view, y);
    if (copied && copied->along_n && byte_size(copied->type) != 2) copied.reset();
    if (!copied) return;
    y.value = y.results.front().node;
    // The kernel rounds to the result's type: enough where the value has that type or none of its own.
    rounds_value = y.nodes[static_cast<size_t>(y.value)].type != copied->type;
    y.results.erase(y.results.begin());
  }
  bool along_columns() const { return !copied || !copied->along_n; }
  bool clamped() const { return copied && y.results.empty(); }
  // As in wgmma: whether the epilogue's text may stand once for every piece of the sums.
  bool is_short() const {
    const SiteCost cost = cost_of(fusion.after[0], fusion);
    return clamped() && cost.special == 0 && cost.instructions <= 12;
  }

  // --- Shared memory, like struct Shared of the kernel ---

  // Along columns a line swizzles over its length; along rows the largest part of a tile that leaves room for
  // the window.
  int64_t box_columns() const {
    const int64_t piece = tile % 32 == 0 ? 32 : 16, line = 128 / byte_size(copied->type);
    if (along_columns()) return tile % line == 0 ? line : piece;
    int64_t columns = piece;
    for (int64_t next = piece; next <= std::min(tile, kMostBoxColumns); next += piece)
      if (tile % next == 0) columns = next;
    return columns;
  }
  int64_t box_bytes() const { return kBlock * box_columns() * byte_size(copied->type); }
  int64_t shared_bytes(int64_t groups) const {
    const int64_t boxes = round_up(copied ? kConsumers * 2 * box_bytes() : 1, 128);
    return round_up(boxes + blocks() * window.filter_bytes() + window.ring_bytes(tile, groups) + 16, 1024);
  }
  int64_t groups() const {
    return Rows::groups([this](int64_t groups) { return shared_bytes(groups); });
  }

  // --- Launch ---

  Lowered lowered() const {
    Lowered lowered;
    lowered.steps.emplace_back(launch());
    lowered.guards = guards();
    return lowered;
  }

  Launch launch() const {
    const Expr& w = fusion.before[1];
    KernelSource source{"wgmma_narrow.cuh", {}, config(groups(), shared_bytes(groups())), device.target()};
    const std::vector<ConfigValue> specific{{"tile_m", kBlock},
                                            {"cluster", 1},
                                            {"ping_pong", 1},
                                            {"swapped", 1},
                                            {"classes", 0},
                                            {"a_rows_adjacent", 0},
                                            {"b_columns_adjacent", 0},
                                            {"way_out", copied ? kCopyEngineStores : kThreadsStore},
                                            {"out", !copied || copied->type == DataType::f32 ? 2
                                                    : copied->type == DataType::f16          ? 0
                                                                                             : 1},
                                            {"box_columns", copied ? box_columns() : 16},
                                            {"unrolled", is_short() ? 1 : 0},
                                            {"y_along_columns", along_columns() ? 1 : 0},
                                            {"clamped", clamped() ? 1 : 0},
                                            {"vector", vector},
                                            {"blocks", blocks()}};
    source.config.insert(source.config.end(), specific.begin(), specific.end());
    source.sites = {
        site_x(), {"W", w, 1, fits_short_forms(w)}, {"Y", y, pixel_axis(y), short_forms, rounds_value}};
    Launch launch;
    write_arguments(launch.arguments);
    for (const KernelSite& site : source.sites) fusor::write_arguments(launch.arguments, site, fusion);
    launch.source = std::make_shared<const KernelSource>(std::move(source));
    launch.entry = "wgmma_narrow";
    launch.grid[0] = static_cast<uint32_t>(std::min<int64_t>(strips(), device.sm_count));
    launch.block[0] = static_cast<uint32_t>((1 + kConsumers) * kWarpgroup);
    launch.shared_bytes = shared_bytes(groups());
    return launch;
  }

  void write_arguments(ArgumentBlock& block) const {
    if (copied) {
      TensorMap map = copied->map;
      map.box = along_columns() ? Dims{box_columns(), 16, 1} : Dims{kBlock, box_columns(), 1};
      block.put_tensor_map(map, copied->operand, copied->byte_offset);
    }
    view.write_arguments(block, static_cast<int>(index_bits));
    write_strips(block);
  }

  std::vector<Guard> guards() const {
    std::vector<Guard> guards = guards_of(fusion, {{x, 2}, {y, vector}});
    for (Guard& guard : guards)
      if (copied && guard.operand == copied->operand)
        guard.alignment = std::max<int64_t>(guard.alignment, 16);
    return guards;
  }

  // --- Costs ---

  // Cycles that a thread spends on one element of the epilogue: as wgmma's, but for the pairs of pixels that
  // find their places together.
  double finish_cycles_per_element() const {
    constexpr double kBare = 20, kLoad = 10, kStore = 30;
    const SiteCost cost = cost_of(fusion.after[0], fusion);
    double cycles = kBare + 3 * cost.instructions + 4 * cost.special;
    for (const Node& node : y.nodes) {
      const bool own = std::ranges::find(node.access.strides, 0) == node.access.strides.end();
      if (node.kind == Node::Kind::load && own) cycles += kLoad;
    }
    return cycles + kStore * static_cast<double>(y.results.size());
  }

  // Tiles are rows of the result; every SM counts as many as the one that has most.
  Work work() const {
    const int64_t slots = std::min<int64_t>(strips(), device.sm_count);
    Work work = Rows::work(rows_of_sm(slots) * static_cast<double>(slots * blocks()));
    const auto tiles = static_cast<double>(work.tiles), pixels = static_cast<double>(tile);
    const auto steps = static_cast<double>(window.h.window * window.steps());
    work.tensor_flops = tiles * 2 * static_cast<double>(kBlock * kStep) * pixels * steps;
    const SiteCost out = cost_of(fusion.after[0], fusion);
    work.l2_bytes += tiles * static_cast<double>(kBlock) * pixels * out.bytes;
    const double read = steps * kStep * kElementBytes * (static_cast<double>(kBlock) + pixels);
    work.shared_bytes += tiles * (read + 2 * static_cast<double>(kBlock) * pixels * kElementBytes);
    // Every box meets once; as measured, smaller ones hardly cost more.
    constexpr double kBox = 50;
    work.finish_cycles = static_cast<double>(kBlock) * pixels / kWarpgroup * finish_cycles_per_element() +
                         (copied ? kBox * pixels / static_cast<double>(box_columns()) : 0);
    work.finish_overlaps = true;
    work.efficiency = 0.95;
    return work;
  }

 private:
  // The first result as (channel, column, row of all images), or as (column, channel of all images, row).
  static std::optional<CopiedResult> copied_row(const Fusion& fusion, const Contraction& view,
                                                const Expr& y) {
    const Result& first = y.results.front();
    if (first.type != DataType::f16 && first.type != DataType::bf16 && first.type != DataType::f32)
      return std::nullopt;
    if (auto copied = copied_result(fusion, view, y, first)) {
      take_rows(copied->map, Window(view));
      return copied;
    }
    // A warp's box of 16 channels lies in one image.
    if (y.domain[0] != 1 && view.n % 16 != 0) return std::nullopt;
    const Operand& operand = fusion.operands[static_cast<size_t>(first.access.operand)];
    auto map = planes(first.access, operand, first.type, y.domain);
    if (!map) return std::nullopt;
    return CopiedResult{first.access.operand, first.access.offset * byte_size(first.type), first.type, false,
                        *map};
  }
};

// ---- wgrad ----

// dy, read as it is stored, with its columns adjacent.
std::optional<TensorMap> gradient_planes(const Fusion& fusion) {
  const Expr& site = fusion.before[0];
  const Node& value = site.nodes[static_cast<size_t>(site.value)];
  if (value.kind != Node::Kind::load || byte_size(value.type) != kElementBytes) return std::nullopt;
  const Operand& operand = fusion.operands[static_cast<size_t>(value.access.operand)];
  if (operand.type != value.type) return std::nullopt;
  return planes(value.access, operand, value.type, site.domain);
}

struct Wgrad : Rows {
  CopiedOperand dy;
  bool dy_planes;

  Wgrad(const Fusion& fusion_, const EngineConfig& config, const DeviceInfo& device_)
      : Rows(fusion_, config, device_), dy_planes(refuse_copies(fusion, view, false).has_value()) {
    if (dy_planes) {
      const Expr& site = fusion.before[0];
      const Access& access = site.nodes[static_cast<size_t>(site.value)].access;
      dy.operand = access.operand;
      dy.byte_offset = access.offset * kElementBytes;
      dy.map = gradient_planes(fusion).value();
      dy.map.box = {kBlock, kBlock, 1};
    } else {
      dy = copied_operand(fusion, view, false, kBlock);
      take_rows(dy.map, window);
      dy.map.box = {kBlock, tile, 1};
    }
  }

  int64_t gradient_bytes() const {
    return (dy_planes ? round_up(tile, kBlock) : tile) * kBlock * kElementBytes;
  }
  int64_t shared_bytes(int64_t groups) const {
    return round_up(groups * gradient_bytes() + window.ring_bytes(tile, groups), 1024);
  }
  int64_t groups() const {
    return Rows::groups([this](int64_t groups) { return shared_bytes(groups); });
  }

  // Every part of the strips has one thread block for each block of channels.
  int64_t parts() const { return std::min(strips(), std::max<int64_t>(device.sm_count / blocks(), 1)); }
  int64_t partial_bytes() const { return parts() * blocks() * kBlock * view.n * 4; }

  Lowered lowered() const {
    Lowered lowered;
    lowered.steps.emplace_back(launch());
    const TiledResult result{view, kBlock, view.n, blocks(), 1, blocks(), true, static_cast<int>(index_bits)};
    const Expr& y = fusion.after[0];
    lowered.steps.emplace_back(
        result.sum_of_parts(fusion, {"Y", y, 1, fits_short_forms(y)}, 1, parts(), device.target()));
    lowered.scratch.push_back(partial_bytes());
    lowered.guards = guards_of(fusion, {{x, 2}});
    for (Guard& guard : lowered.guards)
      if (guard.operand == dy.operand) guard.alignment = std::max<int64_t>(guard.alignment, 16);
    return lowered;
  }

  Launch launch() const {
    KernelSource source{
        "wgmma_narrow_wgrad.cuh", {}, config(groups(), shared_bytes(groups())), device.target()};
    source.config.push_back({"gradient_planes", dy_planes ? 1 : 0});
    source.sites = {site_x()};
    Launch launch;
    launch.arguments.put_tensor_map(dy.map, dy.operand, dy.byte_offset);
    write_strips(launch.arguments);
    for (const int64_t value : {window.w.output, view.output_channels, blocks()})
      launch.arguments.put_int(value);
    fusor::write_arguments(launch.arguments, source.sites[0], fusion);
    launch.arguments.put_pointer(Patch::Kind::scratch, 0);
    launch.source = std::make_shared<const KernelSource>(std::move(source));
    launch.entry = "wgmma_narrow_wgrad";
    launch.grid[0] = static_cast<uint32_t>(parts() * blocks());
    launch.block[0] = static_cast<uint32_t>((1 + kConsumers) * kWarpgroup);
    launch.shared_bytes = shared_bytes(groups());
    return launch;
  }

  Work work() const {
    Work work = Rows::work(rows_of_sm(parts()) * static_cast<double>(parts() * blocks()));
    const auto tiles = static_cast<double>(work.tiles), pixels = static_cast<double>(tile);
    const double slots = static_cast<double>(window.steps() * kStep);
    const auto taps = static_cast<double>(window.h.window);
    work.tensor_flops = tiles * 2 * static_cast<double>(kBlock) * pixels * slots * taps;
    work.l2_bytes += tiles * static_cast<double>(gradient_bytes());
    // Both operands once for every row of the window.
    const double read = taps * pixels * kElementBytes * (static_cast<double>(kBlock) + slots);
    work.shared_bytes += tiles * (read + static_cast<double>(gradient_bytes()));
    work.launches = 2;
    work.scratch_bytes = partial_bytes();
    // The sum of the parts is too short a launch to reach the memory's pace.
    work.serial_dram_bytes = 4 * static_cast<double>(work.scratch_bytes);
    work.efficiency = 0.85;
    return work;
  }
};

// What `use` gives of the fusion's pass.
template <class Use>
auto with(const Fusion& fusion, const EngineConfig& config, const DeviceInfo& device, const Use& use) {
  if (contraction_of(fusion).value().op == ContractionOp::fprop) return use(Fprop(fusion, config, device));
  return use(Wgrad(fusion, config, device));
}

Refusal refusal(const Fusion& fusion, const char* rule, std::string expected, std::string actual,
                const char* remedy = "") {
  return {rule, fusion.op_name(fusion.anchors[0].op), "", std::move(expected), std::move(actual), remedy, -1};
}

class WgmmaNarrowEngine final : public Engine {
 public:
  std::string_view name() const override { return "wgmma_narrow"; }
  int number() const override { return 33; }
  Notes notes() const override { return {.tensor_cores = true}; }

  Support supports(const Fusion& fusion, const DeviceInfo& device) const override {
    if (device.is_cpu() || device.compute_capability != 90)
      return Support::no({"sm-90", "", "", "a Hopper GPU (sm_90)", device.name, "plan for one", -1});
    if (fusion.anchors.size() != 1 || !std::holds_alternative<Conv>(fusion.anchors[0].attributes))
      return Support::no({"convolution-anchor", fusion.op_names.empty() ? "" : fusion.op_names.front(), "",
                          "one convolution", "another anchor or none", "", -1});
    if (auto refusal = refuse_epilogue_reductions(fusion)) return Support::no(std::move(*refusal));
    const auto view = contraction_of(fusion);
    if (!view) return Support::no(refuse_other_domain(fusion));
    if (auto refusal = refuse_window(fusion, *view)) return Support::no(std::move(*refusal));
    if (auto refusal = refuse_types(fusion, *view)) return Support::no(std::move(*refusal));
    if (view->op == ContractionOp::wgrad)
      if (auto refusal = refuse_gradient(fusion, *view)) return Support::no(std::move(*refusal));
    if (auto refusal = refuse_sizes(fusion, *view, device)) return Support::no(std::move(*refusal));
    return Support::yes();
  }

  std::vector<Knob> knobs(const Fusion& fusion, const DeviceInfo& device) const override {
    const Window window(contraction_of(fusion).value());
    std::vector<int64_t> rows;
    for (int64_t parts = std::min<int64_t>(window.h.output, kMostStrips); parts >= 1; --parts)
      if (const int64_t next = ceil_div(window.h.output, parts); rows.empty() || rows.back() != next)
        rows.push_back(next);
    return {{"tile_n", tiles(fusion, device)}, {"rows", rows}};
  }

  std::vector<EngineCandidate> candidates(const Fusion& fusion, const DeviceInfo& device) const override {
    const Window window(contraction_of(fusion).value());
    const std::vector<Knob> offered = knobs(fusion, device);
    std::vector<EngineCandidate> list;
    const auto add = [&](int64_t tile) {
      if (std::ranges::find(offered[0].values, tile) == offered[0].values.end()) return;
      const auto work_of = [&](int64_t rows) {
        EngineConfig config{std::string(name()), revision(), {}};
        config.set("tile_n", tile);
        config.set("rows", rows);
        Work work = with(fusion, config, device, [](const auto& lowering) { return lowering.work(); });
        return EngineCandidate{std::move(config), work};
      };
      // Of the strips that leave the least to the SM that has most, the longest.
      EngineCandidate best = work_of(offered[1].values.back());
      for (const int64_t rows : offered[1].values)
        if (EngineCandidate other = work_of(rows); other.work.tiles < best.work.tiles)
          best = std::move(other);
      if (std::ranges::find(list, best.config, &EngineCandidate::config) == list.end())
        list.push_back(std::move(best));
    };
    const int64_t columns = window.w.output, fewest = ceil_div(columns, offered[0].values.back());
    for (const int64_t parts : {fewest, fewest + 1})
      for (const int64_t unit : {16, 32, 64})
        add(std::max(round_up(ceil_div(columns, parts), unit), round_up(kFewestPixels, unit)));
    if (list.empty()) add(offered[0].values.back());
    return list;
  }

  Lowered lower(const Fusion& fusion, const EngineConfig& config, const DeviceInfo& device) const override {
    return with(fusion, config, device, [](const auto& lowering) { return lowering.lowered(); });
  }

 private:
  static constexpr int64_t kMostStrips = 64;  // of an image

  // In wgrad every group has its row of dy beside it.
  static int64_t most_pixels(const Fusion& fusion) {
    return contraction_of(fusion).value().op == ContractionOp::fprop ? kMostPixels : kMostPixels / 2;
  }

  // Those for which the shared memory holds a window and more. A tile of one or two pieces of the epilogue
  // would leave ptxas to mix that into the products.
  static std::vector<int64_t> tiles(const Fusion& fusion, const DeviceInfo& device) {
    std::vector<int64_t> fitting;
    for (int64_t tile = kFewestPixels; tile <= most_pixels(fusion); tile += 16) {
      EngineConfig config;
      config.set("tile_n", tile);
      const int64_t least = with(fusion, config, device, [](const auto& lowering) {
        return lowering.shared_bytes(lowering.window.fewest_groups());
      });
      if (least <= device.shared_per_block) fitting.push_back(tile);
    }
    return fitting;
  }

  static std::optional<Refusal> refuse_window(const Fusion& fusion, const Contraction& view) {
    if (view.op == ContractionOp::dgrad) return refusal(fusion, "fprop-or-wgrad", "fprop or wgrad", "dgrad");
    if (view.entries != 1) return refusal(fusion, "one-group", "one group", fmt::format("{}", view.entries));
    if (view.axes.size() > 2)
      return refusal(fusion, "spatial-axes", "1 or 2 spatial axes", fmt::format("{}", view.axes.size()));
    const Window window(view);
    if (window.w.stride > 2)
      return refusal(fusion, "column-stride", "a stride of 1 or 2 along the last axis",
                     fmt::format("{}", window.w.stride));
    if (window.w.window > 1 && std::abs(window.w.step) != 1)
      return refusal(fusion, "column-dilation", "a dilation of 1 along the last axis",
                     fmt::format("{}", std::abs(window.w.step)));
    if (view.input_channels > window.slot())
      return refusal(fusion, "few-channels",
                     fmt::format("{} input channels or fewer at stride {}", window.slot(), window.w.stride),
                     fmt::format("{}", view.input_channels));
    return std::nullopt;
  }

  static std::optional<Refusal> refuse_types(const Fusion& fusion, const Contraction& view) {
    if (view.compute != DataType::f32)
      return refusal(fusion, "fp32-sums", "compute type fp32", std::string(to_string(view.compute)));
    const auto type_of = [](const Expr& site) { return site.nodes[static_cast<size_t>(site.value)].type; };
    const DataType x = type_of(fusion.before[0]), w = type_of(fusion.before[1]);
    if (x != w || (x != DataType::f16 && x != DataType::bf16))
      return refusal(fusion, "16-bit-operands", "two operands of fp16, or of bf16",
                     fmt::format("{} and {}", to_string(x), to_string(w)));
    return std::nullopt;
  }

  static std::optional<Refusal> refuse_gradient(const Fusion& fusion, const Contraction& view) {
    if (auto refusal = refuse_copies(fusion, view, false))
      if (!gradient_planes(fusion)) return refusal;
    const Window window(view);
    if (window.w.output % 8 != 0)
      return refusal(fusion, "whole-units", "rows of the result in multiples of 8",
                     fmt::format("{} pixels", window.w.output));
    const int64_t sums = ceil_div(window.h.window, kConsumers) * window.steps() * kStep / 2;
    if (sums > kMostSums)
      return refusal(fusion, "window-sums", fmt::format("at most {} sums a thread", kMostSums),
                     fmt::format("{} for a window of {} x {}", sums, window.h.window, window.w.window));
    return std::nullopt;
  }

  static std::optional<Refusal> refuse_sizes(const Fusion& fusion, const Contraction& view,
                                             const DeviceInfo& device) {
    const int64_t filters = ceil_div(view.output_channels, kBlock) * Window(view).filter_bytes();
    if (view.op == ContractionOp::fprop && filters > kMostFilterBytes)
      return refusal(
          fusion, "resident-filters",
          fmt::format("filters of {} bytes or less as they lie in shared memory", kMostFilterBytes),
          fmt::format("{} bytes", filters));
    if (tiles(fusion, device).empty())
      return refusal(fusion, "resident-window", "a window that shared memory holds, a row of pixels wide",
                     fmt::format("{} rows", Window(view).reach() + 1));
    return std::nullopt;
  }
};

}  // namespace

const Engine& wgmma_narrow_engine() {
  static const WgmmaNarrowEngine engine;
  return engine;
}

}  // namespace fusor
