// Owns the launches of a candidate of the wgmma engine: its kernel's config and arguments, the sum of parts,
// and the guards.
#include "backend/engines/sm90/wgmma/lowering.h"

#include <algorithm>
#include <bit>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/contraction/residue_classes.h"
#include "backend/engines/sm90/wgmma/resident_window.h"
#include "backend/engines/tiled/tiling.h"
#include "codegen/text/parameters.h"
#include "codegen/text/wgmma_instruction.h"
#include "core/ceil_div.h"

namespace fusor::wgmma {

PartialResults Schedule::partial_results() const {
  const int64_t parts = leaves_columns() ? ceil_div(tiling.rows, kWarpRows)
                        : leaves_rows()  ? tiling.tiles_n() * tiling.cluster_n
                                         : blocks() * tiling.consumers() * kWarps;
  return {*reduction, view, parts};
}

namespace {

// The kernel rounds to the type of what is multiplied, which the value has: enough where it comes as that
// type is held. From fp64, say, it would be rounded twice.
KernelSite prologue(const char* name, const PrologueOperand& operand) {
  const Node& value = yielded_node(operand.ops);
  const bool held = value.kind == Node::Kind::pointwise && value.pointwise.compute == carrier(value.type);
  return {name, operand.ops, operand.vector_axis, fits_short_forms(operand.ops), !held};
}

}  // namespace

int64_t Schedule::grain_a() const { return thread_a ? thread_a->grain : 0; }
int64_t Schedule::grain_b() const {
  const auto finest = std::ranges::min_element(thread_b, {}, &ThreadLoad::grain);
  return finest == thread_b.end() ? 0 : finest->grain;
}

DataType Schedule::multiplied_a() const { return operand_type(fusion, tiling.swapped); }
DataType Schedule::multiplied_b() const { return byte_size(type()) == 1 ? b[0].map.type : multiplied_a(); }

std::vector<ConfigValue> Schedule::config() const {
  const DataType multiplied = multiplied_a();
  const DataType out = copied ? copied->type : DataType::f32;
  std::vector<ConfigValue> values{{"index_bits", index_bits},
                                  {"ElementA", multiplied},
                                  {"ElementB", multiplied_b()},
                                  {"tile_m", tiling.tile_m},
                                  {"tile_n", tiling.tile_n},
                                  {"stages", tiling.window ? 1 : stages()},
                                  {"consumers", tiling.consumers()},
                                  {"cluster", tiling.cluster},
                                  {"cluster_n", tiling.cluster_n},
                                  {"in_parts", tiling.in_parts},
                                  {"gathered", tiling.gathered ? tiling.split : 1},
                                  {"given", given()},
                                  {"rehearses", rehearses()},
                                  {"blocks_per_sm", tiling.blocks_per_sm()},
                                  {"ping_pong", tiling.ping_pong},
                                  {"swapped", tiling.swapped},
                                  {"siblings", tiling.siblings},
                                  {"experts", problem.form.experts().has_value()},
                                  {"classes", tiling.classes},
                                  {"a_rows_adjacent", a.across_adjacent},
                                  {"b_columns_adjacent", b[0].across_adjacent},
                                  {"walks_a", !a.batch.is_plain()},
                                  {"walks_b", !b[0].batch.is_plain()},
                                  {"result_axes", result_axes()},
                                  {"grain_a", grain_a()},
                                  {"grain_b", grain_b()},
                                  {"loaders", loaders()},
                                  {"prologue_a", prologue_a.has_value()},
                                  {"prologue_b", prologue_b.has_value()},
                                  {"StoredA", prologue_a ? prologue_a->stored.map.type : multiplied},
                                  {"StoredB", prologue_b ? prologue_b->stored.map.type : multiplied},
                                  {"ahead", std::max<int64_t>(steps_ahead(), 1)},
                                  {"plane_rows", tiling.plane_rows},
                                  {"flat_planes", view.planes && view.planes->flat},
                                  {"store", static_cast<int>(store_path())},
                                  {"Out", out},
                                  {"has_second", second.has_value()},
                                  {"SecondOut", second ? second->type : out},
                                  {"staged", std::ssize(staged)},
                                  {"Staged0", staged.empty() ? out : staged.front().type},
                                  {"Staged1", staged.empty() ? out : staged.back().type},
                                  {"boxes", boxes_of_consumer()},
                                  {"box_columns", copied ? box_columns() : tiling.piece_columns()},
                                  {"joined_rows", joined_rows()},
                                  {"unit", stores_planes() ? copied->planes->unit : 1},
                                  {"reduced", reduction ? reduced() : 0},
                                  {"unrolled", is_unrolled()},
                                  {"y_along_columns", along_columns()},
                                  {"clamped", clamped()},
                                  {"vector", vector}};
  view.append_config(values);
  return values;
}

Launch Schedule::product() const {
  const bool by_threads = thread_a || !thread_b.empty();
  KernelSource source{.root = tiling.window ? "sm90/wgmma/window.cuh"
                              : passes()    ? "sm90/wgmma/prologue.cuh"
                              : by_threads  ? "sm90/wgmma/threads.cuh"
                              : view.planes ? "sm90/wgmma/planes.cuh"
                                            : "sm90/wgmma/contraction.cuh",
                      .config = config(),
                      .target = device.target()};
  source.types = {tiling.window ? "sm90/wgmma/windows.cuh"
                  : by_threads  ? "sm90/load/threads.cuh"
                                : "sm90/load/boxes.cuh",
                  "sm90/epilogue/scatter.cuh", "sm90/epilogue/reduce.cuh",
                  wgmma_instruction(tiling.tile_n, multiplied_a(), multiplied_b())};
  Parameters p = parameters();
  if (prologue_a) source.sites.push_back(prologue("A", *prologue_a));
  if (prologue_b) source.sites.push_back(prologue("B", *prologue_b));
  for (const KernelSite& site : source.sites)
    p.site(site.name == "A" ? "prologue_a" : "prologue_b", site, fusion);
  append_target(p);
  if (!is_split()) {
    source.sites.insert(source.sites.begin(), epilogue(vector_axis));
    p.site("y", source.sites.front(), fusion);
  }
  if (reduction) partial_results().append_to(p);
  Launch launch;
  launch.entry = tiling.window ? "wgmma_window" : "wgmma_contraction";
  launch.grid[0] = static_cast<uint32_t>(blocks());
  launch.block[0] = static_cast<uint32_t>((loaders() + tiling.consumers()) * kWarpgroup);
  launch.cluster[0] = static_cast<uint32_t>(tiling.gathered ? tiling.split : tiling.cluster_blocks());
  launch.shared_bytes = shared_bytes(stages());
  if (given() == 1) launch.ahead.push_back(a.operand);
  if (given() == 2)
    for (const CopiedOperand& sibling : b) launch.ahead.push_back(sibling.operand);
  p.move_to(std::move(source), launch);
  return launch;
}

// A matmul of few rows has its weights on the other side, and one of few columns likewise: most plans only
// read them.
int64_t Schedule::given() const {
  constexpr int64_t kFew = 64;
  const bool by_boxes = !thread_a && thread_b.empty() && !passes() && !view.planes && !tiling.window;
  if (!by_boxes || view.is_convolution() || tiling.in_parts || problem.form.experts() ||
      tiling.cluster_blocks() > 1 || std::min(tiling.rows, tiling.columns) > kFew)
    return 0;
  return tiling.rows > tiling.columns ? 1 : 2;
}

Parameters Schedule::parameters() const {
  Parameters p(index_bits);
  append_maps(p);
  p.group("problem", "Problem", [&] { view.append_to(p); });
  if (tiling.window)
    p.group("windows", "Windows", [&] { append_windows(p); });
  else
    p.group("schedule", "Schedule", [&] { append_schedule(p); });
  p.group("operands", "Operands", [&] { append_operands(p); });
  if (thread_a) p.group("thread_a", "ThreadOperand", [&] { thread_a->append_to(p); });
  if (!thread_b.empty())
    p.array("thread_b", "ThreadOperand", std::ssize(thread_b), [&](size_t i) { thread_b[i].append_to(p); });
  return p;
}

void Schedule::append_maps(Parameters& p) const {
  const auto append = [&](const char* name, const CopiedOperand& operand) {
    p.tensor_map(name, operand.map, operand.operand, operand.byte_offset);
  };
  if (tiling.window) {
    append("filters", filters());
    append("pixels", pixels());
  } else if (!thread_a) {
    append("a", a);
  }
  if (!tiling.window && thread_b.empty())
    p.array("b", "TensorMap", std::ssize(b), [&](size_t i) { append("", b[i]); });
  if (store_path() == StorePath::boxes) append_result(p, "result", *copied);
  if (second) append_result(p, "second", *second);
  if (!staged.empty())
    p.array("staged", "TensorMap", std::ssize(staged), [&](size_t i) { append_result(p, "", staged[i]); });
}

void Schedule::append_result(Parameters& p, const char* name, const CopiedResult& result) const {
  TensorMap map = result.map;
  const int64_t box_rows = std::min(kPartRows, kLineBytes / byte_size(result.type));
  // Along columns, warps send rows of their own; the store warp sends those of a warpgroup.
  const int64_t rows_together = staged.empty() ? kPartRows / kWarps : kPartRows;
  map.box = along_columns() ? Dims{box_columns(), rows_together, 1} : Dims{box_rows, box_columns(), 1};
  if (const int64_t joined = joined_rows(); joined > 1) {
    map.dims = {joined * map.dims[0], map.dims[1] / joined, 1};
    map.stride_bytes[0] *= joined;
    map.box = {joined * box_columns(), rows_together / joined, 1};
  }
  while (map.box.rank() < map.dims.rank()) map.box.push_back(1);
  p.tensor_map(name, map, result.operand, result.byte_offset);
}

// Parts of a split of k, lines or planes.
void Schedule::append_target(Parameters& p) const {
  if (is_split()) p.scratch("partials", "Sum", 0);
  if (store_path() == StorePath::lines)
    p.group("target", "Target", [&] {
      p.pointer("first", "Out", copied->operand, copied->byte_offset);
      p.wide("stride", copied->map.stride_bytes[0] / byte_size(copied->type));
    });
  if (store_path() == StorePath::planes)
    p.group("target", "Target", [&] {
      p.pointer("first", "Out", copied->operand, copied->byte_offset);
      p.wide("channel", copied->planes->channel);
      p.wide("image", copied->planes->image);
    });
}

void Schedule::append_windows(Parameters& p) const {
  const ResidentWindow& window = *tiling.window;
  const int64_t taps = std::ssize(window.lines);
  p.group("grid", "Grid", [&] { window.append_grid(p); });
  p.wide("tiles", tiling.swapped ? tiling.tiles_n() : tiling.tiles_m());
  p.divisor("filter_blocks", filter_blocks());
  p.divisor("blocks_of_group", filter_blocks_of_group());
  p.wide("layers", window.layers);
  p.wide("taps", taps);
  p.wide("slices", Tiling::slices_of(view));
  p.wide("filter_lines", filter_lines());
  p.wide("filters", filter_bytes() / (filter_lines() * kLineBytes));
  p.wide("joined", std::countr_zero(static_cast<uint64_t>(taps_of_line)));
  std::vector<int64_t> lines(kMaxResidentTaps, 0);
  std::ranges::copy(window.lines, lines.begin());
  p.wide("lines", lines);
  p.divisor("stages", stages());
  p.wide("lines_of_stage", tiling.lines_of_stage());
  p.wide("lines_of_window", tiling.lines_of_window());
}

void Schedule::append_schedule(Parameters& p) const {
  const int64_t rows = tiling.tiles_m(), columns = tiling.tiles_n();
  const int64_t band = std::clamp<int64_t>(tiling.band / tiling.cluster, 1, rows);
  const int64_t tiles = tiling.entries * rows * columns;
  const int64_t parts = tiling.gathered ? 1 : std::max(tiling.classes, tiling.split);
  p.group("order", "TileOrder", [&] {
    p.wide("items", parts * tiles);
    p.wide("entries", tiling.entries);
    p.wide("rows", rows);
    p.wide("columns", columns);
    p.wide("band", band);
    p.divisor("tiles_of_part", tiles);
    p.divisor("tiles_of_entry", rows * columns);
    p.divisor("tiles_of_band", band * columns);
    p.divisor("rows_of_band", band);
    p.divisor("rows_of_last_band", rows - (ceil_div(rows, band) - 1) * band);
  });
  p.wide("steps", tiling.steps);
  p.wide("steps_of_part", tiling.steps_of_part);
  if (problem.form.experts()) p.scratch("listed", "const ExpertTile", 0);
  if (tiling.classes > 0)
    p.group("classes", "ResidueClasses",
            [&] { residue_classes(view).append_to(p, Tiling::blocks_of(view, tiling.line)); });
  if (result_axes() > 0) p.group("entries", "OwnEntryWalk", [&] { copied->batch.append_extents(p); });
}

void Schedule::append_operands(Parameters& p) const {
  const auto append_batch = [&](const char* name, const CopiedOperand& operand) {
    if (operand.batch.is_plain())
      p.wide(name, operand.batched);
    else
      p.group(name, "BatchWalk", [&] { operand.batch.append_to(p); });
  };
  append_batch("batched_a", a);
  append_batch("batched_b", b[0]);
  const bool over_outputs = view.op == ContractionOp::dgrad;
  const int64_t blocked = over_outputs ? view.output_channels : view.input_channels;
  const bool planes = view.op == ContractionOp::wgrad && !a.across_adjacent;
  p.divisor("channel_blocks", view.planes ? ceil_div(view.planes->length, tiling.line)
                              : planes    ? tiling.steps / view.runs_of_k
                                          : ceil_div(blocked, tiling.line));
  const bool first_is_input = view.op == ContractionOp::fprop;
  p.wide("first_channels", first_is_input ? view.input_channels : view.output_channels);
  p.wide("second_channels", view.op == ContractionOp::wgrad ? view.input_channels : view.output_channels);
  std::vector<WindowWalk> walks;
  for (size_t i = 0; i < view.axes.size(); ++i)
    walks.push_back(tiling.window ? tiling.window->axes[i].positions
                    : view.planes ? walk_over_planes(static_cast<int>(i))
                                  : window_walk(view, view.axes[i]));
  if (walks.empty()) walks.emplace_back();
  p.array("walk", "WindowWalk", std::ssize(walks), [&](size_t i) {
    p.divisor("pixels", walks[i].pixels);
    p.divisor("window", walks[i].window);
    p.wide("stride", walks[i].stride);
    p.wide("lower", walks[i].lower);
    p.wide("slope", walks[i].slope);
    p.wide("origin", walks[i].origin);
  });
  p.wide("part", (Tiling::walks_channels(view) ? blocked : view.k) / kPartsOfNumber);
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
  const int64_t rows = tiling.tiles_m() * tiling.cluster, columns = tiling.tiles_n() * tiling.cluster_n;
  const TiledResult result{view,
                           along_n ? tiling.tile_m : tiling.tile_n,
                           along_n ? tiling.tile_n : tiling.tile_m,
                           along_n ? rows : columns,
                           along_n ? columns : rows,
                           tiling.tiles(),
                           along_n,
                           static_cast<int>(index_bits)};
  Launch launch = result.sum_of_parts(fusion, epilogue(vector_axis), vector, tiling.split, device.target());
  spread_evenly(launch, device);
  return launch;
}

int64_t Schedule::partial_bytes() const {
  return is_split() ? tiling.tiles() * tiling.split * tiling.tile_m * tiling.tile_n * 4 : 0;
}

std::vector<Guard> Schedule::guards() const {
  const Expr none;
  std::vector<Guard> guards = guards_of(fusion, {{y, vector},
                                                 {prologue_a ? prologue_a->ops : none, kPrologueVector},
                                                 {prologue_b ? prologue_b->ops : none, kPrologueVector}});
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
  for (const CopiedResult& each : staged) ask(each.operand, kUnit);
  if (copied) ask(copied->operand, stores_planes() ? copied->planes->unit * byte_size(copied->type) : kUnit);
  return alignment;
}

}  // namespace fusor::wgmma
