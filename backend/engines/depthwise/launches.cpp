// Owns what the depthwise engine launches: arguments and configs of its kernels.
#include <memory>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/depthwise/lowering.h"
#include "backend/engines/tiled/tiling.h"
#include "codegen/expr_emitter.h"
#include "core/fast_divisor.h"

namespace fusor::depthwise {

namespace {

// The constants of codegen/device/depthwise/finish.cuh.
constexpr int64_t kFinishElements = 8, kFinishThreads = 256;

}  // namespace

Lowered Schedule::lowered() const {
  Lowered lowered;
  if (is_wgrad()) {
    lowered.steps.emplace_back(parts_of_gradient());
    lowered.steps.emplace_back(sum_of_parts());
    lowered.scratch.push_back(partial_bytes());
  } else {
    lowered.steps.emplace_back(gather());
  }
  lowered.guards = guards_of(fusion, {{a, vector}, {b, vector}, {y, vector}});
  return lowered;
}

std::vector<ConfigValue> Schedule::config() const {
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

void Schedule::write_window(ArgumentBlock& block, bool of_results) const {
  for (int i = 0; i < kSlidingAxes; ++i)
    axes[static_cast<size_t>(i)].write_arguments(block, of_results ? 1 : length(i), index_bits);
}

void Schedule::write_channels(ArgumentBlock& block) const {
  block.put_int(vectors);
  FastDivisor::of(deal.width, index_bits).put(block);
  FastDivisor::of(channel_tiles(), index_bits).put(block);
  block.put_int(deal.lanes);
}

KernelSite Schedule::site(const char* name, const Expr& expr, int vector_axis) const {
  KernelSite site{name, expr, vector_axis, fits_short_forms(expr)};
  site.addressed = marches() && !expr.yields.empty() && is_plain(expr);
  return site;
}

Launch Schedule::launch(const char* entry, KernelSource source, ArgumentBlock arguments, int64_t grid,
                        int64_t block) const {
  Launch launch;
  launch.arguments = std::move(arguments);
  for (const KernelSite& operand : source.sites) write_arguments(launch.arguments, operand, fusion);
  launch.entry = entry;
  set_grid(launch, grid, block);
  launch.source = std::make_shared<const KernelSource>(std::move(source));
  return launch;
}

Launch Schedule::gather() const {
  KernelSource source{marches() ? "depthwise/march.cuh" : "depthwise/strips.cuh",
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

Launch Schedule::marched_parts_of_gradient() const {
  KernelSource source{"depthwise/march_wgrad.cuh", {site("A", a, 1), site("B", b, 1)}, config(), target};
  ArgumentBlock arguments;
  write_window(arguments, false);
  write_channels(arguments);
  for (const int64_t value : {strips(), ceil_div(strips(), split), rows}) arguments.put_int(value);
  arguments.put_pointer(Patch::Kind::scratch, 0);
  return launch("depthwise_march_wgrad", std::move(source), std::move(arguments), blocks(), deal.threads());
}

Launch Schedule::parts_of_gradient() const {
  if (marches()) return marched_parts_of_gradient();
  KernelSource source{"depthwise/wgrad.cuh", {site("A", a, 1), site("B", b, 1)}, config(), target};
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

Launch Schedule::sum_of_parts() const {
  KernelSource source{"depthwise/finish.cuh", {site("Y", y, 0)}, {{"index_bits", index_bits}}, target};
  ArgumentBlock arguments;
  write_window(arguments, true);
  FastDivisor::of(view.entries, index_bits).put(arguments);
  arguments.put_int(elements());
  arguments.put_int(parts());
  arguments.put_pointer(Patch::Kind::scratch, 0);
  return launch("depthwise_finish", std::move(source), std::move(arguments),
                ceil_div(elements(), kFinishElements), kFinishThreads);
}

}  // namespace fusor::depthwise
