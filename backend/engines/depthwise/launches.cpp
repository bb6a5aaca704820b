// Owns what the depthwise engine launches: arguments and configs of its kernels.
#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/depthwise/lowering.h"
#include "backend/engines/tiled/tiling.h"

namespace fusor::depthwise {

namespace {

// Threads of codegen/device/depthwise/finish.cuh, at most so many of which share an element.
constexpr int64_t kFinishThreads = 256, kMostFinishLanes = 32;
// Parts that one thread adds up where so few share an element: it loads them at once.
constexpr int64_t kPartsOfLane = 8;

int64_t lanes_of_finish(int64_t parts) {
  const auto lanes = static_cast<uint64_t>(std::max<int64_t>(1, parts / kPartsOfLane));
  return std::min(static_cast<int64_t>(std::bit_floor(lanes)), kMostFinishLanes);
}

void append_window(Parameters& p, const SlidingAxes& axes, const char* type,
                   const std::array<int64_t, kSlidingAxes>& lengths) {
  p.group("window", type, [&] {
    p.array("axis", "Axis", kSlidingAxes, [&](size_t i) { axes[i].append_to(p, lengths[i]); });
  });
}

}  // namespace

KernelSource source_of(const char* root, std::vector<KernelSite> sites, std::vector<ConfigValue> config,
                       const std::string& target) {
  return {.root = root,
          .sites = std::move(sites),
          .config = std::move(config),
          .target = target,
          .types = {"depthwise/tiling.cuh"}};
}

Launch launch_of(const Fusion& fusion, const char* entry, KernelSource source, Parameters p, int64_t grid,
                 int64_t block) {
  Launch launch;
  for (const KernelSite& operand : source.sites)
    p.site(operand.name == "A" ? "a" : operand.name == "B" ? "b" : "y", operand, fusion);
  launch.entry = entry;
  set_grid(launch, grid, block);
  p.move_to(std::move(source), launch);
  launch.turn_at = -1;  // it always waits
  return launch;
}

Launch sum_of_parts(const Problem& problem, const Expr& y, int64_t parts, int index_bits) {
  const int64_t lanes = lanes_of_finish(parts), channels = problem.view.entries;
  const SlidingAxes& axes = problem.axes;
  const int64_t elements = axes[0].window * axes[1].window * axes[2].window * channels;
  KernelSource source{.root = "depthwise/finish.cuh",
                      .sites = {KernelSite{"Y", y, 0, fits_short_forms(y)}},
                      .config = {{"index_bits", index_bits}, {"lanes", lanes}},
                      .target = problem.target,
                      .types = {"depthwise/window.cuh"}};
  Parameters p(index_bits);
  append_window(p, axes, "SlidingWindow<false, 1, 1, Index, i64, FastDivisor>", {1, 1, 1});
  p.divisor("channels", channels);
  p.wide("elements", elements);
  p.wide("parts", parts);
  p.scratch("partials", "const float", 0);
  return launch_of(problem.fusion, "depthwise_finish", std::move(source), std::move(p),
                   ceil_div(elements, kFinishThreads / lanes), kFinishThreads);
}

Lowered Schedule::lowered() const {
  Lowered lowered;
  if (is_wgrad()) {
    lowered.steps.emplace_back(parts_of_gradient());
    lowered.steps.emplace_back(sum_of_parts(problem, y, parts(), index_bits));
    lowered.scratch.push_back(partial_bytes());
  } else {
    lowered.steps.emplace_back(gather());
  }
  lowered.guards = guards_of(fusion, {{a, vector_width(a)}, {b, vector_width(b)}, {y, vector_width(y)}});
  return lowered;
}

std::vector<ConfigValue> Schedule::config() const {
  std::vector<ConfigValue> values{{"index_bits", index_bits},
                                  {"strided_gradient", last().strided_gradient},
                                  {"vector", vector},
                                  {"rows", marches() ? 1 : rows},
                                  {"strip", strip},
                                  {"taps", taps},
                                  {"spread", spread()},
                                  {"planes", in_planes()},
                                  {"load", load},
                                  {"lead", lead},
                                  {"along", along},
                                  {"picks_taps", last().picks_taps()},
                                  {"phases", last().phases()},
                                  {"phase", last().phase()}};
  if (!marches()) values.push_back({"whole_rows", whole_rows()});
  values.push_back({"blocks", blocks_per_sm()});
  if (!marches()) return values;
  values.push_back({"lines", axes[1].taps()});
  values.push_back({"advance", axes[1].advance()});
  values.push_back({"a_plain", is_plain(a)});
  if (is_wgrad())
    values.push_back({"b_plain", is_plain(b)});
  else
    values.push_back({"tails", has_tails()});
  return values;
}

Parameters Schedule::common_parameters() const {
  Parameters p(index_bits);
  append_window(p, axes, "Window", {length(0), length(1), length(2)});
  p.group("channels", "ChannelTiling", [&] {
    p.wide("vectors", vectors);
    p.divisor("width", deal.width);
    p.divisor("tiles", channel_tiles());
    p.wide("lanes", deal.lanes);
  });
  return p;
}

KernelSite Schedule::site(const char* name, const Expr& expr) const {
  KernelSite site{name, expr, vector_axis(expr), fits_short_forms(expr)};
  site.addressed = marches() && !expr.yields.empty() && is_plain(expr);
  return site;
}

Launch Schedule::gather() const {
  KernelSource source = source_of(marches() ? "depthwise/march.cuh" : "depthwise/strips.cuh",
                                  {site("A", a), site("B", b), site("Y", y)}, config(), target);
  Parameters p = common_parameters();
  p.wide("strips", strips());
  p.wide("steps", steps);
  if (marches())
    p.wide("rows", rows);
  else
    p.wide("pieces", pieces);
  Launch made = launch_of(fusion, marches() ? "depthwise_march" : "depthwise", std::move(source),
                          std::move(p), blocks(), deal.threads());
  made.shared_bytes = filter_bytes(deal.width);
  return made;
}

Launch Schedule::marched_parts_of_gradient() const {
  KernelSource source =
      source_of("depthwise/march_wgrad.cuh", {site("A", a), site("B", b)}, config(), target);
  Parameters p = common_parameters();
  p.wide("strips", strips());
  p.wide("strips_per_block", ceil_div(strips(), split));
  p.wide("rows", rows);
  p.scratch("partials", "float", 0);
  return launch_of(fusion, "depthwise_march_wgrad", std::move(source), std::move(p), blocks(),
                   deal.threads());
}

Launch Schedule::parts_of_gradient() const {
  if (marches()) return marched_parts_of_gradient();
  KernelSource source = source_of("depthwise/wgrad.cuh", {site("A", a), site("B", b)}, config(), target);
  Parameters p = common_parameters();
  p.divisor("columns", deal.width * deal.rows);
  p.divisor("row_tiles", row_tiles());
  p.wide("rows_per_block", deal.rows);
  p.wide("row_pieces", row_pieces());
  p.divisor("pieces", pieces);
  p.wide("strips", strips());
  p.wide("strips_per_block", ceil_div(strips(), split));
  p.scratch("partials", "float", 0);
  return launch_of(fusion, "depthwise_wgrad", std::move(source), std::move(p), blocks(), deal.threads());
}

}  // namespace fusor::depthwise
