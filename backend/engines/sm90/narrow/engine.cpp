// Owns the wgmma_narrow engine: fprop and wgrad of convolutions of few input channels - first layers - on
// Hopper's tensor cores (sm_90a), which read windows straight from rows of pixels. Its rules and knobs; what
// it lowers to is sm90/narrow/fprop.h's and sm90/narrow/wgrad.h's.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "backend/engines/contraction/product.h"
#include "backend/engines/knobs.h"
#include "backend/engines/list.h"
#include "backend/engines/rules.h"
#include "backend/engines/sm90/narrow/fprop.h"
#include "backend/engines/sm90/narrow/wgrad.h"
#include "core/ceil_div.h"

namespace fusor {

using namespace narrow;

namespace {

constexpr int64_t kMostFilterBytes = 100 * 1024;
constexpr int64_t kMostSums = 128;  // of a thread, in wgrad

constexpr int64_t kMostStrips = 64;  // of an image

// Calls `use` with the schedule of the fusion's pass.
template <class Use>
auto with(const Problem& problem, const Knobs& knobs, const Use& use) {
  if (problem.view.op == ContractionOp::fprop) return use(Fprop(problem, knobs));
  return use(Wgrad(problem, knobs));
}

// Tiles for which the shared memory holds a window and more. A tile of one or two pieces of the epilogue
// would leave ptxas to mix that into the products.
std::vector<int64_t> tiles_of(const Problem& problem) {
  // In wgrad every group has its row of dy beside it.
  const int64_t most = problem.view.op == ContractionOp::fprop ? kMostPixels : kMostPixels / 2;
  std::vector<int64_t> fitting;
  for (int64_t tile = kFewestPixels; tile <= most; tile += 16) {
    const int64_t least = with(problem, {.tile_n = tile}, [](const auto& schedule) {
      return schedule.shared_bytes(schedule.window.fewest_groups());
    });
    if (least <= problem.device.shared_per_block) fitting.push_back(tile);
  }
  return fitting;
}

std::optional<Refusal> refuse_window(const Fusion& fusion, const Contraction& view) {
  if (view.op == ContractionOp::dgrad)
    return refusal_at_anchor(fusion, "fprop-or-wgrad", "fprop or wgrad", "dgrad");
  if (view.entries != 1)
    return refusal_at_anchor(fusion, "one-group", "one group", fmt::format("{}", view.entries));
  if (view.axes.size() > 2)
    return refusal_at_anchor(fusion, "spatial-axes", "1 or 2 spatial axes",
                             fmt::format("{}", view.axes.size()));
  const Window window(view);
  if (window.w.stride > 2)
    return refusal_at_anchor(fusion, "column-stride", "a stride of 1 or 2 along the last axis",
                             fmt::format("{}", window.w.stride));
  if (window.w.window > 1 && std::abs(window.w.step) != 1)
    return refusal_at_anchor(fusion, "column-dilation", "a dilation of 1 along the last axis",
                             fmt::format("{}", std::abs(window.w.step)));
  if (view.input_channels > window.slot())
    return refusal_at_anchor(
        fusion, "few-channels",
        fmt::format("{} input channels or fewer at stride {}", window.slot(), window.w.stride),
        fmt::format("{}", view.input_channels));
  return std::nullopt;
}

std::optional<Refusal> refuse_types(const Fusion& fusion, const Contraction& view) {
  if (auto refusal = refuse_other_sums(fusion, view)) return refusal;
  const auto type_of = [](const Expr& site) { return yielded_node(site).type; };
  const DataType x = type_of(operand_site(fusion, 0, 0)), w = type_of(operand_site(fusion, 0, 1));
  if (x != w || (x != DataType::f16 && x != DataType::bf16))
    return refusal_at_anchor(fusion, "16-bit-operands", "two operands of fp16, or of bf16",
                             fmt::format("{} and {}", to_string(x), to_string(w)));
  return std::nullopt;
}

std::optional<Refusal> refuse_gradient(const Fusion& fusion, const Contraction& view) {
  if (auto refusal = refuse_copies(fusion, view, false))
    if (!gradient_planes(fusion)) return refusal;
  const Window window(view);
  if (window.w.output % 8 != 0)
    return refusal_at_anchor(fusion, "whole-units", "rows of the result in multiples of 8",
                             fmt::format("{} pixels", window.w.output));
  const int64_t sums = ceil_div(window.h.window, kConsumers) * window.steps() * kStep / 2;
  if (sums > kMostSums)
    return refusal_at_anchor(
        fusion, "window-sums", fmt::format("at most {} sums a thread", kMostSums),
        fmt::format("{} for a window of {} x {}", sums, window.h.window, window.w.window));
  return std::nullopt;
}

// Strips, and the coordinates of copies; a strip has a pixel or more.
std::optional<Refusal> refuse_extents(const Fusion& fusion, const Contraction& view) {
  const int64_t planes = operand_site(fusion, 0, 0).domain[0] * view.output_channels;
  return refuse_wide_coordinates(fusion, "pixels and planes",
                                 std::max(view.largest_index(kMostPixels), planes));
}

std::optional<Refusal> refuse_sizes(const Problem& problem) {
  const Fusion& fusion = problem.fusion;
  const Contraction& view = problem.view;
  const int64_t filters = ceil_div(view.output_channels, kBlock) * problem.window.filter_bytes();
  if (view.op == ContractionOp::fprop && filters > kMostFilterBytes)
    return refusal_at_anchor(
        fusion, "resident-filters",
        fmt::format("filters of {} bytes or less as they lie in shared memory", kMostFilterBytes),
        fmt::format("{} bytes", filters));
  if (problem.tiles.empty())
    return refusal_at_anchor(fusion, "resident-window",
                             "a window that shared memory holds, a row of pixels wide",
                             fmt::format("{} rows", problem.window.reach() + 1));
  return std::nullopt;
}

constexpr Notes kNotes{.tensor_cores = true};

class PreparedNarrow final : public Prepared {
 public:
  explicit PreparedNarrow(Problem problem) : problem_(std::move(problem)) {}

  std::vector<Knob> knobs() const override { return {{"tile_n", problem_.tiles}, {"rows", rows_offered()}}; }

  std::vector<EngineCandidate> candidates() const override {
    const std::vector<int64_t>& tiles = problem_.tiles;
    const std::vector<int64_t> rows = rows_offered();
    std::vector<EngineCandidate> list;
    const auto add = [&](int64_t tile) {
      if (std::ranges::find(tiles, tile) == tiles.end()) return;
      EngineCandidate best = best_rows(tile, rows);
      if (std::ranges::find(list, best.config, &EngineCandidate::config) == list.end())
        list.push_back(std::move(best));
    };
    const int64_t columns = problem_.window.w.output, fewest = ceil_div(columns, tiles.back());
    for (const int64_t parts : {fewest, fewest + 1})
      for (const int64_t unit : {16, 32, 64})
        add(std::max(round_up(ceil_div(columns, parts), unit), round_up(kFewestPixels, unit)));
    if (list.empty()) add(tiles.back());
    return list;
  }

  Notes notes() const override { return kNotes; }

  Lowered lower(const EngineConfig& config) const override {
    return with(problem_, knobs_of<Knobs>(config),
                [](const auto& schedule) { return narrow::lower(schedule); });
  }

 private:
  std::vector<int64_t> rows_offered() const {
    const int64_t height = problem_.window.h.output;
    std::vector<int64_t> rows;
    for (int64_t parts = std::min<int64_t>(height, kMostStrips); parts >= 1; --parts)
      if (const int64_t next = ceil_div(height, parts); rows.empty() || rows.back() != next)
        rows.push_back(next);
    return rows;
  }

  // The longest strips among those that leave the least to the busiest SM.
  EngineCandidate best_rows(int64_t tile, const std::vector<int64_t>& offered) const {
    const auto with_rows = [&](int64_t rows) {
      const Knobs knobs{.tile_n = tile, .rows = rows};
      const Work work = with(problem_, knobs, [](const auto& schedule) { return cost(schedule); });
      return EngineCandidate{config_of(wgmma_narrow_engine(), knobs), work};
    };
    EngineCandidate best = with_rows(offered.back());
    for (const int64_t rows : offered)
      if (EngineCandidate other = with_rows(rows); other.work.tiles < best.work.tiles)
        best = std::move(other);
    return best;
  }

  const Problem problem_;
};

class WgmmaNarrowEngine final : public Engine {
 public:
  std::string_view name() const override { return "wgmma_narrow"; }
  int number() const override { return 33; }
  Notes notes() const override { return kNotes; }

  PreparedOr prepare(const Fusion& fusion, const DeviceInfo& device) const override {
    if (auto refusal = refuse_other_than_hopper_convolution(fusion, device)) return std::move(*refusal);
    const Contraction view = contraction_of(fusion).value();
    if (auto refusal = refuse_window(fusion, view)) return std::move(*refusal);
    if (auto refusal = refuse_types(fusion, view)) return std::move(*refusal);
    if (view.op == ContractionOp::wgrad)
      if (auto refusal = refuse_gradient(fusion, view)) return std::move(*refusal);
    if (auto refusal = refuse_extents(fusion, view)) return std::move(*refusal);
    Problem problem(fusion, device, view);
    problem.tiles = tiles_of(problem);
    if (auto refusal = refuse_sizes(problem)) return std::move(*refusal);
    return std::make_unique<const PreparedNarrow>(std::move(problem));
  }
};

}  // namespace

const Engine& wgmma_narrow_engine() {
  static const WgmmaNarrowEngine engine;
  return engine;
}

}  // namespace fusor
