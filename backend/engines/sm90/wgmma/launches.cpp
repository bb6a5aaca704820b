// Owns the launches of a candidate of the wgmma engine: its kernel's config and arguments, the sum of parts,
// and the guards.
#include "backend/engines/sm90/wgmma/lowering.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/contraction/residue_classes.h"
#include "backend/engines/sm90/wgmma/resident_window.h"
#include "backend/engines/tiled/tiling.h"
#include "codegen/expr_emitter.h"
#include "codegen/site_fields.h"
#include "core/ceil_div.h"
#include "core/fast_divisor.h"

namespace fusor::wgmma {

int64_t Schedule::element_number(DataType type) {
  return std::ranges::find(kCopiedTypes, type) - kCopiedTypes.begin();
}

int64_t Schedule::element_in_box(DataType type) {
  constexpr std::array kElements{DataType::f16, DataType::bf16, DataType::f32, DataType::i32};
  return std::ranges::find(kElements, type) - kElements.begin();
}

PartialResults Schedule::partial_results() const {
  const int64_t parts = leaves_columns() ? ceil_div(tiling.rows, kWarpRows)
                        : leaves_rows()  ? tiling.tiles_n()
                                         : blocks() * kConsumers * kWarps;
  return {*reduction, view, parts};
}

Launch Schedule::product() const {
  const std::string kernel = tiling.window ? "wgmma_window" : "wgmma_contraction";
  const std::string root = tiling.window ? "window" : "contraction";
  KernelSource source{"sm90/wgmma/" + root + ".cuh", {}, {}, device.target()};
  source.config = {{"index_bits", index_bits},
                   {"type", element_number(operand_type(fusion, tiling.swapped))},
                   {"tile_m", tiling.tile_m},
                   {"tile_n", tiling.tile_n},
                   {"stages", tiling.window ? 1 : stages()},
                   {"cluster", tiling.cluster},
                   {"blocks_per_sm", tiling.blocks_per_sm()},
                   {"ping_pong", tiling.ping_pong ? 1 : 0},
                   {"swapped", tiling.swapped ? 1 : 0},
                   {"classes", tiling.classes},
                   {"a_rows_adjacent", a.across_adjacent ? 1 : 0},
                   {"b_columns_adjacent", b[0].across_adjacent ? 1 : 0},
                   {"way_out", way_out()},
                   {"out", element_in_box(copied ? copied->type : DataType::f32)},
                   {"box_columns", copied ? box_columns() : tiling.piece_columns()},
                   {"unrolled", is_unrolled() ? 1 : 0},
                   {"y_along_columns", along_columns() ? 1 : 0},
                   {"clamped", clamped() ? 1 : 0},
                   {"vector", vector}};
  if (tiling.siblings > 1) source.config.push_back({"siblings", tiling.siblings});
  if (reduction) source.config.push_back({"reduced", reduced()});
  if (view.planes) {
    source.config.push_back({"plane_rows", tiling.plane_rows});
    source.config.push_back({"flat_planes", view.planes->flat ? 1 : 0});
  }
  if (stores_planes()) source.config.push_back({"unit", copied->planes->unit});
  if (second) source.config.push_back({"second_out", element_in_box(second->type)});
  write_given(source.config);
  if (turns() != kLeastTurns) source.config.push_back({"turns", turns()});
  write_grains(source.config);
  if (byte_size(type()) == 1) source.config.push_back({"type_b", element_number(b[0].map.type)});
  view.write_config(source.config);
  if (!is_split()) source.sites = {epilogue(vector_axis)};
  write_prologues(source);
  Launch launch;
  write_arguments(launch.arguments);
  if (way_out() == kLinesStored) {
    launch.arguments.put_pointer(Patch::Kind::operand, copied->operand, copied->byte_offset);
    launch.arguments.put_int(copied->map.stride_bytes[0] / byte_size(copied->type));
  }
  if (stores_planes()) {
    launch.arguments.put_pointer(Patch::Kind::operand, copied->operand, copied->byte_offset);
    launch.arguments.put_int(copied->planes->channel);
    launch.arguments.put_int(copied->planes->image);
  }
  if (is_split())
    launch.arguments.put_pointer(Patch::Kind::scratch, 0);
  else
    fusor::write_arguments(launch.arguments, source.sites[0], fusion);
  if (reduction) partial_results().write_arguments(launch.arguments);
  launch.source = std::make_shared<const KernelSource>(std::move(source));
  launch.entry = kernel;
  launch.grid[0] = static_cast<uint32_t>(blocks());
  launch.block[0] = static_cast<uint32_t>((loaders() + kConsumers) * kWarpgroup);
  launch.cluster[0] = static_cast<uint32_t>(tiling.cluster);
  launch.shared_bytes = shared_bytes(stages());
  return launch;
}

void Schedule::write_given(std::vector<ConfigValue>& config) const {
  if (given.empty()) return;
  config.push_back({"given", std::ssize(given)});
  for (size_t i = 0; i < given.size(); ++i)
    config.push_back({fmt::format("given_{}", i), element_in_box(given[i].type)});
}

// Of siblings, one that suits all.
void Schedule::write_grains(std::vector<ConfigValue>& config) const {
  if (thread_a) config.push_back({"grain_a", thread_a->grain});
  const auto finest = std::ranges::min_element(thread_b, {}, &ThreadLoad::grain);
  if (finest != thread_b.end()) config.push_back({"grain_b", finest->grain});
}

namespace {

// The kernel rounds to the type of what is multiplied, which the value has: enough where it comes as that
// type is held. From fp64, say, it would be rounded twice.
KernelSite prologue(const char* name, const PassedOperand& passed) {
  const Node& value = yielded_node(passed.ops);
  const bool held = value.kind == Node::Kind::pointwise && value.pointwise.compute == carrier(value.type);
  return {name, passed.ops, passed.vector_axis, fits_short_forms(passed.ops), !held};
}

}  // namespace

void Schedule::write_prologues(KernelSource& source) const {
  if (!passes()) return;
  source.config.push_back({"ahead", steps_ahead()});
  source.config.push_back({"loaders", loaders()});
  const auto add = [&](const char* name, const std::string& config, const PassedOperand& passed) {
    KernelSite site = prologue(name, passed);
    source.config.push_back({config, element_number(passed.stored.map.type)});
    source.config.push_back({config + "_arguments", site_fields(site).empty() ? 0 : 1});
    source.sites.push_back(std::move(site));
  };
  if (passed_a) add("A", "prologue_a", *passed_a);
  if (passed_b) add("B", "prologue_b", *passed_b);
}

void Schedule::write_arguments(ArgumentBlock& block) const {
  if (!thread_a) block.put_tensor_map(a.map, a.operand, a.byte_offset);
  for (size_t i = 0; i < b.size() && thread_b.empty(); ++i)
    block.put_tensor_map(b[i].map, b[i].operand, b[i].byte_offset);
  if (way_out() == kCopyEngineStores) put_result(block, *copied);
  if (second) put_result(block, *second);
  for (const CopiedResult& operand : given) put_result(block, operand);
  view.write_arguments(block, static_cast<int>(index_bits));
  if (tiling.window)
    write_windows(block);
  else
    write_schedule(block);
  write_operands(block);
  if (thread_a) thread_a->write_arguments(block);
  for (const ThreadLoad& each : thread_b) each.write_arguments(block);
  if (passed_a) fusor::write_arguments(block, prologue("A", *passed_a), fusion);
  if (passed_b) fusor::write_arguments(block, prologue("B", *passed_b), fusion);
}

void Schedule::put_result(ArgumentBlock& block, const CopiedResult& result) const {
  TensorMap map = result.map;
  const int64_t box_rows = std::min(kPartRows, kLineBytes / byte_size(result.type));
  // Along columns, warps send rows of their own; the mover sends those of a warpgroup.
  const int64_t rows_together = given.empty() ? kPartRows / kWarps : kPartRows;
  map.box = along_columns() ? Dims{box_columns(), rows_together, 1} : Dims{box_rows, box_columns(), 1};
  block.put_tensor_map(map, result.operand, result.byte_offset);
}

void Schedule::write_windows(ArgumentBlock& block) const {
  const ResidentWindow& window = *tiling.window;
  const int bits = static_cast<int>(index_bits);
  window.write_grid(block, bits);
  const int64_t taps = std::ssize(window.lines);
  block.put_int(tiling.tiles_n());
  FastDivisor::of(filter_blocks(), bits).put(block);
  FastDivisor::of(tiling.tiles_m(), bits).put(block);
  block.put_int(taps);
  for (int64_t tap = 0; tap < kMaxResidentTaps; ++tap)
    block.put_int(tap < taps ? window.lines[static_cast<size_t>(tap)] : 0);
  FastDivisor::of(stages(), bits).put(block);
  block.put_int(tiling.lines_of_stage());
  block.put_int(tiling.lines_of_window());
}

void Schedule::write_schedule(ArgumentBlock& block) const {
  const int64_t rows = tiling.tiles_m(), columns = tiling.tiles_n();
  const int64_t band = std::clamp<int64_t>(tiling.band / tiling.cluster, 1, rows);
  const int64_t tiles = tiling.entries * rows * columns, parts = std::max(tiling.classes, tiling.split);
  for (const int64_t value : {parts * tiles, tiling.entries, rows, columns, band}) block.put_int(value);
  const int64_t rows_of_last_band = rows - (ceil_div(rows, band) - 1) * band;
  for (const int64_t value : {tiles, rows * columns, band * columns, band, rows_of_last_band})
    FastDivisor::of(value, static_cast<int>(index_bits)).put(block);
  block.put_int(tiling.steps);
  block.put_int(tiling.steps_of_part);
  if (tiling.classes > 0)
    residue_classes(view).write_arguments(block, Tiling::blocks_of(view, tiling.line),
                                          static_cast<int>(index_bits));
}

void Schedule::write_operands(ArgumentBlock& block) const {
  block.put_int(a.batched);
  block.put_int(b[0].batched);
  const bool over_outputs = view.op == ContractionOp::dgrad;
  const int64_t blocked = over_outputs ? view.output_channels : view.input_channels;
  const bool planes = view.op == ContractionOp::wgrad && !a.across_adjacent;
  const int bits = static_cast<int>(index_bits);
  FastDivisor::of(view.planes ? ceil_div(view.planes->length, tiling.line)
                  : planes    ? tiling.steps / view.runs_of_k
                              : ceil_div(blocked, tiling.line),
                  bits)
      .put(block);
  const bool first_is_input = view.op == ContractionOp::fprop;
  block.put_int(first_is_input ? view.input_channels : view.output_channels);
  block.put_int(view.op == ContractionOp::wgrad ? view.input_channels : view.output_channels);
  std::vector<WindowWalk> walks;
  for (size_t i = 0; i < view.axes.size(); ++i)
    walks.push_back(tiling.window ? tiling.window->axes[i].positions
                    : view.planes ? walk_over_planes(static_cast<int>(i))
                                  : window_walk(view, view.axes[i]));
  if (walks.empty()) walks.emplace_back();
  for (const WindowWalk& walk : walks) {
    FastDivisor::of(walk.pixels, bits).put(block);
    FastDivisor::of(walk.window, bits).put(block);
    for (const int64_t value : {walk.stride, walk.lower, walk.slope, walk.origin}) block.put_int(value);
  }
}

WindowWalk Schedule::walk_over_planes(int i) const {
  const WindowAxis& axis = view.axes[static_cast<size_t>(i)];
  const int64_t pitch = view.planes->pitch[i];
  WindowWalk walk;
  walk.pixels = i == 0 ? Tiling::groups_of_rows(view, tiling.plane_rows) : axis.output;
  walk.window = axis.window;
  walk.stride = i == 0 && tiling.plane_rows > 1 ? axis.step : 1;
  walk.lower = axis.start * pitch;
  walk.slope = axis.step * pitch;
  return walk;
}

Launch Schedule::sum_of_parts() const {
  const bool along_n = !tiling.swapped;
  const int64_t rows = tiling.tiles_m() * tiling.cluster, columns = tiling.tiles_n();
  const TiledResult result{view,
                           along_n ? tiling.tile_m : tiling.tile_n,
                           along_n ? tiling.tile_n : tiling.tile_m,
                           along_n ? rows : columns,
                           along_n ? columns : rows,
                           tiling.tiles(),
                           along_n,
                           static_cast<int>(index_bits)};
  return result.sum_of_parts(fusion, epilogue(vector_axis), vector, tiling.split, device.target());
}

int64_t Schedule::partial_bytes() const {
  return is_split() ? tiling.tiles() * tiling.split * tiling.tile_m * tiling.tile_n * 4 : 0;
}

std::vector<Guard> Schedule::guards() const {
  const Expr none;
  std::vector<Guard> guards = guards_of(fusion, {{y, vector},
                                                 {passed_a ? passed_a->ops : none, kPassedVector},
                                                 {passed_b ? passed_b->ops : none, kPassedVector}});
  for (Guard& guard : guards) guard.alignment = std::max(guard.alignment, alignment_of(guard.operand));
  return guards;
}

int64_t Schedule::alignment_of(int operand) const {
  constexpr int64_t kUnit = 16;
  int64_t alignment = 1;
  const auto ask = [&](int other, int64_t bytes) {
    if (other == operand) alignment = std::max(alignment, bytes);
  };
  ask(a.operand, thread_a ? thread_a->grain : kUnit);
  for (size_t i = 0; i < b.size(); ++i) ask(b[i].operand, thread_b.empty() ? kUnit : thread_b[i].grain);
  if (second) ask(second->operand, kUnit);
  for (const CopiedResult& each : given) ask(each.operand, kUnit);
  if (copied) ask(copied->operand, stores_planes() ? copied->planes->unit * byte_size(copied->type) : kUnit);
  return alignment;
}

}  // namespace fusor::wgmma
