// Owns how rows of an fprop's result leave, and what is launched for them.
#include "backend/engines/sm90/narrow/fprop.h"

#include <algorithm>
#include <memory>

#include "backend/engines/guards.h"
#include "codegen/text/wgmma_instruction.h"

namespace fusor::narrow {

namespace {

// Store paths as codegen/device/sm90/epilogue/boxes.cuh counts them.
constexpr int kThreadsStore = 0, kBoxesStore = 1;
constexpr int64_t kMostBoxColumns = 128;

// The first result as (channel, column, row of all images), or as (column, channel of all images, row).
std::optional<CopiedResult> copied_row(const Fusion& fusion, const Contraction& view, const Expr& y) {
  const Store& first = y.stores.front();
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

}  // namespace

// TMA takes the first result where its lines allow: the epilogue yields it as a value.
FpropResult result_of_fprop(const Fusion& fusion, const Contraction& view) {
  FpropResult result{.y = result_site(fusion), .short_forms = false, .copied = {}, .vector = 1};
  Expr& y = result.y;
  result.short_forms = fits_short_forms(y);
  if (Window(view).w.output % 2 == 0) result.vector = 2;
  result.copied = copied_row(fusion, view, y);
  if (result.copied && result.copied->along_n && byte_size(result.copied->type) != 2) result.copied.reset();
  if (result.copied) {
    y.yields = {y.stores.front().node};
    // The kernel rounds to the result's type: enough where the value has that type or none of its own.
    result.rounds_value = yielded_node(y).type != result.copied->type;
    y.stores.erase(y.stores.begin());
  }
  mark_whole_vectors(fusion, y, pixel_axis(y), result.vector);
  return result;
}

Fprop::Fprop(const Problem& problem_, const Knobs& knobs)
    : Rows(problem_, knobs),
      y(problem_.result->y),
      copied(problem_.result->copied),
      vector(problem_.result->vector) {}

bool Fprop::is_unrolled() const { return clamped() && is_short(cost_of(result_site(fusion), fusion)); }

int64_t Fprop::box_columns() const {
  const int64_t piece = tile % 32 == 0 ? 32 : 16, line = 128 / byte_size(copied->type);
  if (along_columns()) return tile % line == 0 ? line : piece;
  int64_t columns = piece;
  for (int64_t next = piece; next <= std::min(tile, kMostBoxColumns); next += piece)
    if (tile % next == 0) columns = next;
  return columns;
}

int64_t Fprop::shared_bytes(int64_t groups) const {
  const int64_t boxes = round_up(copied ? kConsumers * 2 * box_bytes() : 1, 128);
  return round_up(boxes + blocks() * window.filter_bytes() + window.ring_bytes(tile, groups) + 16, 1024);
}

Lowered Fprop::lowered() const {
  Lowered lowered;
  lowered.steps.emplace_back(launch());
  lowered.guards = guards();
  return lowered;
}

// The epilogue library's words, and those of a product of one tile of rows
// (codegen/device/sm90/pipeline/tiling.cuh).
std::vector<ConfigValue> Fprop::config() const {
  const DataType out = copied ? copied->type : DataType::f32;
  std::vector<ConfigValue> values = Rows::config(groups(), shared_bytes(groups()));
  const std::vector<ConfigValue> specific{{"ElementB", type()},
                                          {"tile_m", kBlock},
                                          {"cluster", 1},
                                          {"blocks_per_sm", 1},
                                          {"ping_pong", true},
                                          {"swapped", true},
                                          {"siblings", 1},
                                          {"experts", false},
                                          {"in_parts", false},
                                          {"gathered", 1},
                                          {"consumers", 2},
                                          {"cluster_n", 1},
                                          {"classes", 0},
                                          {"a_rows_adjacent", false},
                                          {"b_columns_adjacent", false},
                                          {"result_axes", 0},
                                          {"grain_a", 0},
                                          {"grain_b", 0},
                                          {"loaders", 1},
                                          {"prologue_a", false},
                                          {"prologue_b", false},
                                          {"plane_rows", 1},
                                          {"store", copied ? kBoxesStore : kThreadsStore},
                                          {"Out", out},
                                          {"has_second", false},
                                          {"SecondOut", out},
                                          {"staged", 0},
                                          {"Staged0", out},
                                          {"Staged1", out},
                                          {"boxes", 2},
                                          {"box_columns", copied ? box_columns() : 16},
                                          {"joined_rows", 1},
                                          {"unit", 1},
                                          {"reduced", 0},
                                          {"unrolled", is_unrolled()},
                                          {"y_along_columns", along_columns()},
                                          {"clamped", clamped()},
                                          {"vector", vector},
                                          {"blocks", blocks()}};
  values.insert(values.end(), specific.begin(), specific.end());
  return values;
}

Launch Fprop::launch() const {
  const Expr& w = operand_site(fusion, 0, 1);
  KernelSource source{
      .root = "sm90/narrow/fprop.cuh",
      .sites = {site_x(),
                {"W", w, 1, fits_short_forms(w)},
                {"Y", y, pixel_axis(y), problem.result->short_forms, problem.result->rounds_value}},
      .config = config(),
      .target = device.target(),
      .types = {"sm90/pipeline/tiling.cuh", "sm90/narrow/rows.cuh", wgmma_instruction(tile, type(), type())}};
  Parameters p = parameters();
  p.site("x", source.sites[0], fusion);
  p.site("w", source.sites[1], fusion);
  p.site("y", source.sites[2], fusion);
  Launch launch;
  launch.entry = "wgmma_narrow";
  launch.grid[0] = static_cast<uint32_t>(std::min<int64_t>(strips(), device.sm_count));
  launch.block[0] = static_cast<uint32_t>((1 + kConsumers) * kWarpgroup);
  launch.shared_bytes = shared_bytes(groups());
  p.move_to(std::move(source), launch);
  return launch;
}

Parameters Fprop::parameters() const {
  Parameters p(index_bits);
  if (copied) {
    TensorMap map = copied->map;
    map.box = along_columns() ? Dims{box_columns(), 16, 1} : Dims{kBlock, box_columns(), 1};
    p.tensor_map("result", map, copied->operand, copied->byte_offset);
  }
  p.group("problem", "Problem", [&] { view.append_to(p); });
  append_strips(p);
  return p;
}

std::vector<Guard> Fprop::guards() const {
  std::vector<Guard> guards = guards_of(fusion, {{x, 2}, {y, vector}});
  if (copied) guard(guards, {copied->operand, 16});
  return guards;
}

double Fprop::finish_cycles_per_element() const {
  constexpr double kBare = 20, kLoad = 10, kStore = 30;
  const SiteCost cost = cost_of(result_site(fusion), fusion);
  double cycles = kBare + 3 * cost.instructions + 4 * cost.special;
  for (const Node& node : y.nodes) {
    const bool own = std::ranges::find(node.access.strides, 0) == node.access.strides.end();
    if (node.kind == Node::Kind::load && own) cycles += kLoad;
  }
  return cycles + kStore * static_cast<double>(y.stores.size());
}

Work Fprop::work() const {
  Work work = Rows::work(rows_of_sm(device.sm_count) * static_cast<double>(device.sm_count * blocks()));
  const auto tiles = static_cast<double>(work.tiles), pixels = static_cast<double>(tile);
  const auto steps = static_cast<double>(window.h.window * window.steps());
  work.tensor_flops = tiles * 2 * static_cast<double>(kBlock * kStep) * pixels * steps;
  const SiteCost out = cost_of(result_site(fusion), fusion);
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

}  // namespace fusor::narrow
