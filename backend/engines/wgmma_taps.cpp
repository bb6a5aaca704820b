// Owns the wgmma_taps engine: wgrad in TF32 of convolutions whose channels are planes (NCHW), every tap read
// from one copy of the input in shared memory, on Hopper's tensor cores (sm_90a). Its rules, knobs, costs and
// steps; the kernel is codegen/device/wgmma_taps.cuh.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "backend/engine.h"
#include "backend/engines.h"
#include "backend/engines/common_rules.h"
#include "backend/engines/contraction.h"
#include "backend/engines/epilogue.h"
#include "backend/engines/tensor_maps.h"
#include "backend/engines/tiled_result.h"
#include "codegen/expr_emitter.h"
#include "core/ceil_div.h"
#include "core/fast_divisor.h"

namespace fusor {

namespace {

// The constants of the kernel and of codegen/device/tap_walk.cuh.
constexpr int64_t kStep = 32, kHalf = 16, kEight = 8, kPiece = 64;
constexpr int64_t kChannels = 64, kWarpgroup = 128, kElementBytes = 4, kTf32 = 2;
constexpr int64_t kUnit = 16 / kElementBytes;
constexpr int64_t kMostConsumers = 3, kMostTaps = 3;
constexpr int64_t kMostSums = 96;  // of a thread: three consumers leave it 160 registers
constexpr int64_t kMostParts = 256;
constexpr int64_t kMaxIndex32 = std::numeric_limits<int32_t>::max() - 4096;

int64_t round_down(int64_t value, int64_t unit) { return value - ((value % unit) + unit) % unit; }

int64_t lower(const WindowAxis& axis) {
  return axis.start + std::min<int64_t>((axis.window - 1) * axis.step, 0);
}

// ---- The window, dealt out to consumers ----

// A consumer has neighbouring taps of one row of the window, those of the leftmost inputs first.
struct Window {
  WindowAxis h, w;  // h is all ones where the convolution has one spatial axis
  int64_t taps = 1;
  int64_t consumers_of_row = 1;

  explicit Window(const Contraction& view) : w(view.axes.back()) {
    if (view.axes.size() == 2) h = view.axes.front();
    while (h.window * ceil_div(w.window, taps) > kMostConsumers && taps < kMostTaps) ++taps;
    consumers_of_row = ceil_div(w.window, taps);
  }
  int64_t consumers() const { return h.window * consumers_of_row; }
  int64_t tap_step() const { return taps == 1 ? 1 : std::abs(w.step); }

  // How many columns further on than an output the input lies that it meets at a consumer's first tap.
  int64_t column(int64_t consumer) const {
    return lower(w) + consumer % consumers_of_row * taps * std::abs(w.step);
  }
  // The same in positions of a plane.
  int64_t distance(int64_t consumer) const {
    return (lower(h) + consumer / consumers_of_row * std::abs(h.step)) * w.input + column(consumer);
  }
  int64_t origin() const { return round_down(distance(0), kUnit); }
  int64_t first(int64_t consumer) const { return distance(consumer) - origin(); }
  int64_t farthest() const { return first(consumers() - 1); }

  // A bit for each of a consumer's taps that, of some consumer, leaves the row of inputs.
  int64_t masked() const {
    int64_t bits = 0;
    for (int64_t column = 0; column < w.window; ++column) {
      const int64_t further = lower(w) + column * std::abs(w.step);
      if (further < 0 || further + w.output > w.input) bits |= int64_t{1} << (column % taps);
    }
    return bits;
  }

  // --- Pieces of inputs ---

  // Positions: all that eight outputs meet, from wherever in a piece on, in lines of an odd number of units.
  int64_t line() const {
    const int64_t least = kPiece + kEight - 1 + (taps - 1) * tap_step();
    return round_up(least - kUnit, 2 * kUnit) + kUnit;
  }
  int64_t piece_bytes() const { return kChannels * line() * kElementBytes; }
  // That one step needs.
  int64_t least_pieces() const { return (2 * kStep - kEight + farthest()) / kPiece + 1; }
};

// How deep the rings are.
struct Rings {
  int64_t stages, pieces;
};

int64_t shared_bytes(const Window& window, int64_t filters, const Rings& rings) {
  return round_up(rings.stages * filters * kStep * kElementBytes + rings.pieces * window.piece_bytes() +
                      16 * (rings.stages + rings.pieces),
                  1024);
}

// As deep as fits, up to what hides the memory's latency; or nothing.
std::optional<Rings> rings_of(const Window& window, int64_t filters, const DeviceInfo& device) {
  constexpr std::array kAhead{Rings{6, 4}, Rings{6, 3}, Rings{6, 2}, Rings{4, 2}, Rings{4, 1}, Rings{3, 1}};
  for (const auto& [stages, ahead] : kAhead)
    if (const Rings rings{stages, window.least_pieces() + ahead};
        shared_bytes(window, filters, rings) <= device.shared_per_block)
      return rings;
  return std::nullopt;
}

// Filters of a block: as many as registers have sums for, and shared memory lines; no more than there are.
std::vector<int64_t> tiles_of(const Contraction& view, const DeviceInfo& device) {
  const Window window(view);
  std::vector<int64_t> tiles;
  for (const int64_t filters : {32, 64, 96, 128}) {
    if (window.taps * filters / 2 > kMostSums || !rings_of(window, filters, device)) break;
    tiles.push_back(filters);
    if (filters >= view.output_channels) break;
  }
  return tiles;
}

// ---- One setting ----

struct Lowering {
  const Fusion& fusion;
  const DeviceInfo& device;
  Contraction view;
  Window window;
  int64_t filters;
  Rings rings;
  int64_t positions;  // outputs of a plane
  int64_t parts;
  int64_t index_bits = 32;

  Lowering(const Fusion& fusion_, const EngineConfig& config, const DeviceInfo& device_)
      : fusion(fusion_),
        device(device_),
        view(contraction_of(fusion_).value()),
        window(view),
        filters(config.knob("tile_n", tiles_of(view, device_).back())),
        rings(rings_of(window, filters, device_).value()),
        positions(window.h.output * window.w.output),
        parts(std::clamp<int64_t>(config.knob("split", 1), 1, all_steps())) {
    for (const Operand& operand : fusion.operands)
      if (operand.elements > std::numeric_limits<int32_t>::max()) index_bits = 64;
  }

  int64_t images() const { return fusion.before[0].domain[0]; }
  int64_t steps() const { return ceil_div(positions, kStep); }  // of an image
  int64_t all_steps() const { return images() * steps(); }
  int64_t blocks_m() const { return ceil_div(view.output_channels, filters); }
  int64_t blocks_n() const { return ceil_div(view.input_channels, kChannels); }
  int64_t tiles() const { return view.entries * blocks_m() * blocks_n(); }
  int64_t columns() const { return kChannels * view.taps(); }  // of a tile
  int64_t partial_bytes() const { return parts * tiles() * filters * columns() * kElementBytes; }
  int64_t shared_bytes() const { return fusor::shared_bytes(window, filters, rings); }

  CopiedOperand dy() const { return whole_planes(fusion, false, kStep, filters); }
  CopiedOperand x() const { return whole_planes(fusion, true, window.line(), kChannels); }

  Lowered lowered() const {
    Lowered lowered;
    lowered.steps.emplace_back(product());
    lowered.steps.emplace_back(sum_of_parts());
    lowered.scratch.push_back(partial_bytes());
    lowered.guards = guards_of(fusion, {});
    for (Guard& guard : lowered.guards)
      if (guard.operand == dy().operand || guard.operand == x().operand)
        guard.alignment = std::max<int64_t>(guard.alignment, 16);
    return lowered;
  }

  Launch product() const {
    KernelSource source{"wgmma_taps.cuh",
                        {},
                        {{"index_bits", index_bits},
                         {"type", kTf32},
                         {"tile_n", filters},
                         {"consumers", window.consumers()},
                         {"window_h", window.h.window},
                         {"window_w", window.w.window},
                         {"taps", window.taps},
                         {"tap_step", window.tap_step()},
                         {"masked", window.masked()},
                         {"tail", positions % kHalf != 0 ? 1 : 0},
                         {"mirrored_h", window.h.step < 0 ? 1 : 0},
                         {"mirrored_w", window.w.step < 0 ? 1 : 0},
                         {"piece_line", window.line()},
                         {"stages", rings.stages},
                         {"pieces", rings.pieces},
                         {"shared_bytes", shared_bytes()}},
                        device.target()};
    Launch launch;
    write_arguments(launch.arguments);
    launch.source = std::make_shared<const KernelSource>(std::move(source));
    launch.entry = "wgmma_taps";
    launch.grid[0] = static_cast<uint32_t>(tiles() * parts);
    launch.block[0] = static_cast<uint32_t>((1 + window.consumers()) * kWarpgroup);
    launch.shared_bytes = shared_bytes();
    return launch;
  }

  void write_arguments(ArgumentBlock& block) const {
    for (const CopiedOperand& operand : {dy(), x()})
      block.put_tensor_map(operand.map, operand.operand, operand.byte_offset);
    const int bits = static_cast<int>(index_bits);
    FastDivisor::of(steps(), bits).put(block);
    for (const int64_t value :
         {all_steps(), parts, positions, window.w.output, window.w.input, window.origin(), window.farthest()})
      block.put_int(value);
    FastDivisor::of(blocks_n(), bits).put(block);
    FastDivisor::of(blocks_m(), bits).put(block);
    for (const int64_t value : {tiles(), view.input_channels, view.output_channels}) block.put_int(value);
    for (int64_t consumer = 0; consumer < window.consumers(); ++consumer) {
      block.put_int(window.first(consumer));
      block.put_int(window.column(consumer));
    }
    block.put_pointer(Patch::Kind::scratch, 0);
  }

  // Neighbouring filters lie side by side in scratch.
  Launch sum_of_parts() const {
    const TiledResult result{view,       filters, columns(), blocks_m(),
                             blocks_n(), tiles(), false,     static_cast<int>(index_bits)};
    const Expr& y = fusion.after[0];
    const int64_t vector = view.output_channels % 4 == 0 ? 4 : 1;
    return result.sum_of_parts(fusion, {"Y", y, 0, fits_short_forms(y)}, vector, parts, device.target());
  }

  // --- Costs ---

  // Halves of steps, of all tiles: those that begin inside the planes.
  double halves() const { return static_cast<double>(tiles() * images() * ceil_div(positions, kHalf)); }
  // Of the planes of inputs, that one block of channels reads of an image.
  int64_t pieces() const { return (steps() * kStep - kEight + window.farthest()) / kPiece + 1; }

  Work work() const {
    // Lines of 128 bytes take the tensor cores as long, whatever is in them; the device's rate is that of 16
    // bits.
    constexpr double kAsHalves = 2;
    const auto slots = static_cast<double>(window.consumers() * window.taps);
    const auto wide = static_cast<double>(filters);
    const double loaded =
        static_cast<double>(tiles() * images()) *
        static_cast<double>(pieces() * window.piece_bytes() + steps() * filters * kStep * kElementBytes);
    Work work;
    work.tensor_flops = kAsHalves * 2 * halves() * kHalf * slots * static_cast<double>(kChannels) * wide;
    work.dram_bytes = dram_bytes(fusion);
    work.l2_bytes = loaded;
    // Every tap reads both operands, one through registers.
    work.shared_bytes =
        loaded + halves() * kHalf * slots * kElementBytes * (static_cast<double>(kChannels) + wide);
    work.tiles = tiles();
    work.split = static_cast<int>(parts);
    work.k_steps = ceil_div(all_steps(), parts);
    work.start_s = 2.5e-6;
    work.launches = 2;
    work.scratch_bytes = partial_bytes();
    work.serial_dram_bytes = 2 * static_cast<double>(work.scratch_bytes);
    work.efficiency = 0.85;
    return work;
  }
};

// ---- Rules ----

std::optional<Refusal> refuse_window(const Fusion& fusion, const Contraction& view) {
  if (view.op != ContractionOp::wgrad) return refusal_at_anchor(fusion, "wgrad", "wgrad", "another pass");
  if (view.axes.size() > 2)
    return refusal_at_anchor(fusion, "spatial-axes", "1 or 2 spatial axes",
                             fmt::format("{}", view.axes.size()));
  if (!view.has_unit_stride())
    return refusal_at_anchor(fusion, "unit-stride", "strides of 1", "strides of the convolution",
                             "leave it to wgmma_repacked");
  const Window window(view);
  if (view.taps() == 1)
    return refusal_at_anchor(fusion, "several-taps", "a window of several taps", "one tap",
                             "leave it to wgmma");
  if (window.consumers() > kMostConsumers)
    return refusal_at_anchor(
        fusion, "window-taps",
        fmt::format("up to {} rows of the window, up to {} taps in each, and {} in all", kMostConsumers,
                    kMostTaps * kMostConsumers, kMostTaps * kMostConsumers),
        fmt::format("{} x {}", window.h.window, window.w.window), "leave it to wgmma_repacked");
  if (window.h.output > 1 && window.w.input != window.w.output)
    return refusal_at_anchor(fusion, "equal-rows", "rows of inputs as long as rows of outputs",
                             fmt::format("{} and {} positions", window.w.input, window.w.output),
                             "leave it to wgmma_repacked");
  return std::nullopt;
}

std::optional<Refusal> refuse_operands(const Fusion& fusion, const Contraction& view) {
  if (auto refusal = refuse_other_sums(fusion, view)) return refusal;
  for (const bool second : {false, true}) {
    if (auto refusal = refuse_whole_planes(fusion, view, second)) return refusal;
    const DataType type = type_of(fusion, fusion.before[second ? 1 : 0].nodes[0].access);
    if (type != DataType::f32)
      return refusal_at_anchor(fusion, "fp32-operands", "two operands of fp32", std::string(to_string(type)),
                               "leave it to wgmma or wgmma_repacked");
  }
  if (view.channels_fastest && view.input_channels > 1)
    return refusal_at_anchor(fusion, "several-positions", "planes of several positions", "one");
  return std::nullopt;
}

std::optional<Refusal> refuse_sizes(const Fusion& fusion, const Contraction& view, const DeviceInfo& device) {
  if (tiles_of(view, device).empty())
    return refusal_at_anchor(fusion, "resident-window", "a window whose inputs shared memory holds",
                             fmt::format("{} positions from its first to its last", Window(view).farthest()));
  const int64_t images = fusion.before[0].domain[0];
  const int64_t largest =
      std::max(view.largest_index(kMostParts), view.entries * ceil_div(view.m, kStep) *
                                                   ceil_div(view.input_channels, kChannels) * kMostParts);
  const int64_t planes = images * (view.k / images + 2 * kStep) + Window(view).farthest();
  if (const int64_t reached = std::max(largest, planes); reached > kMaxIndex32)
    return refusal_at_anchor(fusion, "32-bit-coordinates",
                             fmt::format("positions and blocks numbered up to {}", kMaxIndex32),
                             fmt::format("{}", reached), "give the contraction in parts");
  return std::nullopt;
}

class WgmmaTapsEngine final : public Engine {
 public:
  std::string_view name() const override { return "wgmma_taps"; }
  int number() const override { return 34; }
  Notes notes() const override { return {.tensor_cores = true, .tf32 = true}; }

  Support supports(const Fusion& fusion, const DeviceInfo& device) const override {
    if (auto refusal = refuse_other_than_hopper_convolution(fusion, device))
      return Support::no(std::move(*refusal));
    const Contraction view = contraction_of(fusion).value();
    if (auto refusal = refuse_window(fusion, view)) return Support::no(std::move(*refusal));
    if (auto refusal = refuse_operands(fusion, view)) return Support::no(std::move(*refusal));
    if (auto refusal = refuse_sizes(fusion, view, device)) return Support::no(std::move(*refusal));
    return Support::yes();
  }

  std::vector<Knob> knobs(const Fusion& fusion, const DeviceInfo& device) const override {
    const Lowering any(fusion, {}, device);
    std::vector<int64_t> split;
    for (int64_t next = 1; next <= std::min(any.all_steps(), kMostParts); ++next) split.push_back(next);
    return {{"tile_n", tiles_of(any.view, device)}, {"split", split}};
  }

  // Parts that fill the device once, or a few times where tiles do not divide it.
  std::vector<EngineCandidate> candidates(const Fusion& fusion, const DeviceInfo& device) const override {
    std::vector<EngineCandidate> list;
    for (const int64_t tile : tiles_of(contraction_of(fusion).value(), device))
      for (const int64_t rounds : {1, 2, 3}) {
        EngineConfig config{std::string(name()), revision(), {}};
        config.set("tile_n", tile);
        const Lowering whole(fusion, config, device);
        const int64_t most = std::min(whole.all_steps(), kMostParts);
        config.set("split", std::clamp<int64_t>(rounds * device.sm_count / whole.tiles(), 1, most));
        if (std::ranges::find(list, config, &EngineCandidate::config) != list.end()) continue;
        const Work work = Lowering(fusion, config, device).work();
        list.push_back({std::move(config), work});
      }
    return list;
  }

  Lowered lower(const Fusion& fusion, const EngineConfig& config, const DeviceInfo& device) const override {
    return Lowering(fusion, config, device).lowered();
  }
};

}  // namespace

const Engine& wgmma_taps_engine() {
  static const WgmmaTapsEngine engine;
  return engine;
}

}  // namespace fusor
