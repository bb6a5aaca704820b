// Owns the wgmma_taps engine: wgrad in TF32 of convolutions whose channels are planes (NCHW), every tap read
// from one copy of the input in shared memory, on Hopper's tensor cores (sm_90a). Its rules and knobs; what
// it lowers to and costs is sm90/taps/lowering.h's, the kernel is codegen/device/sm90/taps/wgrad.cuh.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "backend/engines/knobs.h"
#include "backend/engines/list.h"
#include "backend/engines/rules.h"
#include "backend/engines/sm90/copy/tensor_maps.h"
#include "backend/engines/sm90/taps/lowering.h"
#include "core/ceil_div.h"

namespace fusor {

using namespace taps;

namespace {

constexpr int64_t kMostParts = 256;

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
    const DataType type = type_of(fusion, operand_site(fusion, 0, second ? 1 : 0).nodes[0].access);
    if (type != DataType::f32)
      return refusal_at_anchor(fusion, "fp32-operands", "two operands of fp32", std::string(to_string(type)),
                               "leave it to wgmma or wgmma_repacked");
  }
  if (view.channels_fastest && view.input_channels > 1)
    return refusal_at_anchor(fusion, "several-positions", "planes of several positions", "one");
  return std::nullopt;
}

std::optional<Refusal> refuse_sizes(const Problem& problem) {
  const Fusion& fusion = problem.fusion;
  const Contraction& view = problem.view;
  const int64_t farthest = problem.window.farthest();
  if (problem.tiles.empty())
    return refusal_at_anchor(fusion, "resident-window", "a window whose inputs shared memory holds",
                             fmt::format("{} positions from its first to its last", farthest));
  const int64_t largest =
      std::max(view.largest_index(kMostParts), view.entries * ceil_div(view.m, kStep) *
                                                   ceil_div(view.input_channels, kChannels) * kMostParts);
  const int64_t images = problem.images();
  const int64_t planes = images * (view.k / images + 2 * kStep) + farthest;
  return refuse_wide_coordinates(fusion, "positions and blocks", std::max(largest, planes));
}

constexpr Notes kNotes{.tensor_cores = true, .tf32 = true};

class PreparedTaps final : public Prepared {
 public:
  explicit PreparedTaps(Problem problem) : problem_(std::move(problem)) {}

  std::vector<Knob> knobs() const override {
    std::vector<int64_t> split;
    for (int64_t next = 1; next <= most_parts(); ++next) split.push_back(next);
    return {{"tile_n", problem_.tiles}, {"split", split}};
  }

  // Parts that fill the device once, or a few times where tiles do not divide it.
  std::vector<EngineCandidate> candidates() const override {
    std::vector<EngineCandidate> list;
    for (const int64_t tile : problem_.tiles) {
      const int64_t tiles = Schedule(problem_, {.tile_n = tile}).tiles;
      for (const int64_t rounds : {1, 2, 3}) {
        const int64_t split = std::clamp<int64_t>(rounds * problem_.device.sm_count / tiles, 1, most_parts());
        const Knobs knobs{.tile_n = tile, .split = split};
        EngineConfig config = config_of(wgmma_taps_engine(), knobs);
        if (std::ranges::find(list, config, &EngineCandidate::config) == list.end())
          list.push_back({std::move(config), cost(problem_, Schedule(problem_, knobs))});
      }
    }
    return list;
  }

  Notes notes() const override { return kNotes; }

  Lowered lower(const EngineConfig& config) const override {
    return taps::lower(problem_, Schedule(problem_, knobs_of<Knobs>(config)));
  }

 private:
  int64_t most_parts() const { return std::min(problem_.all_steps(), kMostParts); }

  const Problem problem_;
};

class WgmmaTapsEngine final : public Engine {
 public:
  std::string_view name() const override { return "wgmma_taps"; }
  int number() const override { return 34; }
  Notes notes() const override { return kNotes; }

  PreparedOr prepare(const Fusion& fusion, const DeviceInfo& device) const override {
    if (auto refusal = refuse_other_than_hopper_convolution(fusion, device)) return std::move(*refusal);
    const Contraction view = contraction_of(fusion).value();
    if (auto refusal = refuse_window(fusion, view)) return std::move(*refusal);
    if (auto refusal = refuse_operands(fusion, view)) return std::move(*refusal);
    Problem problem(fusion, device, view);
    if (auto refusal = refuse_sizes(problem)) return std::move(*refusal);
    return std::make_unique<const PreparedTaps>(std::move(problem));
  }
};

}  // namespace

const Engine& wgmma_taps_engine() {
  static const WgmmaTapsEngine engine;
  return engine;
}

}  // namespace fusor
