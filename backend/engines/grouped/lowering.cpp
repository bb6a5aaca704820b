// Owns the tiles of the grouped engine and its launch.
#include "backend/engines/grouped/lowering.h"

#include <array>
#include <utility>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/tiled/tiling.h"
#include "codegen/text/parameters.h"

namespace fusor::grouped {

namespace {

Expr in_chunks(const Fusion& fusion, Expr site) {
  mark_whole_vectors(fusion, site, 1, kChunk);
  return site;
}

KernelSite site_of(const char* name, const Expr& expr, bool addressed) {
  KernelSite site{name, expr, 1, fits_short_forms(expr)};
  site.addressed = addressed;
  return site;
}

}  // namespace

bool is_chunk_load(const Fusion& fusion, const Expr& site) {
  const Expr marked = in_chunks(fusion, site);
  const Node& value = yielded_node(marked);
  return value.kind == Node::Kind::load && value.access.whole_vectors && !value.access.is_indexed() &&
         (value.type == DataType::f16 || value.type == DataType::bf16) &&
         fusion.operands[static_cast<size_t>(value.access.operand)].type == value.type;
}

Problem::Problem(const Fusion& fusion_, const DeviceInfo& device_)
    : fusion(fusion_),
      device(device_),
      view(contraction_of(fusion_).value()),
      in((is_gradient() ? view.output_channels : view.input_channels) / kChunk),
      out((is_gradient() ? view.input_channels : view.output_channels) / kChunk),
      dram_bytes(fusor::dram_bytes(fusion_)) {
  const Dims order = axis_order(view);
  axes = sliding_axes(view, order, false);
  a = in_chunks(fusion, over_kernel_axes(operand_site(fusion, 0, 0), order));
  b = in_chunks(fusion, over_kernel_axes(operand_site(fusion, 0, 1), order));
  y = in_chunks(fusion, over_kernel_axes(result_site(fusion), order));
  copies_filters = is_chunk_load(fusion, b);
}

bool Problem::has_setting() const {
  return Schedule(*this, {.pixels = 16, .groups = 1, .tiles = 1, .warps = 4, .stages = 1}).blocks_per_sm > 0;
}

Schedule::Schedule(const Problem& problem_, const Knobs& knobs_) : problem(problem_), knobs(knobs_) {
  settle_tile();
  settle_lines();
  blocks_per_sm = blocks_that_fit();
  const int64_t places = int64_t{problem.device.sm_count} * std::max<int64_t>(1, blocks_per_sm);
  const int64_t ranges = std::clamp<int64_t>(places / (group_tiles() * problem.phases()), 1, tiles());
  tiles_per_block = ceil_div(tiles(), ranges);
}

// Whole rows where they are not longer than a tile, whole images where those are not larger.
void Schedule::settle_tile() {
  const int64_t all = Problem::numbers(problem.columns()), height = Problem::numbers(problem.rows());
  width = ceil_div(all, ceil_div(all, knobs.pixels));
  const int64_t whole = round_up(width, 8);
  columns = whole * 20 <= width * 23 ? whole : width;
  rows = std::clamp<int64_t>(knobs.pixels / columns, 1, height);
  rows = ceil_div(height, ceil_div(height, rows));
  const bool is_whole = width == all && rows == height;
  images = is_whole ? std::clamp<int64_t>(knobs.pixels / (columns * rows), 1, problem.images()) : 1;
}

// Where rows end within eight pixels, lines are a little longer than what lies in them if eight that follow
// each other then do not meet in a bank.
void Schedule::settle_lines() {
  const SlidingAxis &down = problem.rows(), &along = problem.columns();
  const int64_t stride = Problem::stride(along);
  columns_in = (width - 1) * stride + (problem.taps() - 1) * along.dilation + 1;
  lines_in = (rows - 1) * Problem::stride(down) + (problem.lines() - 1) * down.dilation + 1;
  const int64_t of_phase = ceil_div(columns_in, stride);
  phase_bytes = of_phase * pixel_bytes();
  int64_t length = of_phase * stride;
  const auto meets = [&](int64_t pixels) { return (pixels * Problem::stride(down) - columns) % 8 != 0; };
  if (columns % 8 != 0)
    for (int64_t longer = length; longer * 4 <= length * 5; ++longer)
      if (!meets(longer)) {
        length = longer;
        break;
      }
  line_bytes = length * pixel_bytes();
  shares_banks = columns % 8 != 0 && meets(length);
}

// As GroupedLayout of codegen/device/grouped/layout.cuh has them.
int64_t Schedule::filter_bytes() const {
  const int64_t chunks = problem.lines() * problem.line_chunks();
  const int64_t pitch = ((problem.is_gradient() ? problem.out : chunks) | 1) * 16;
  const int64_t group = (problem.is_gradient() ? chunks : problem.out) * 8 * pitch;
  return knobs.groups * group + (problem.is_gradient() ? 8 * pitch : 16);
}
int64_t Schedule::staged_bytes() const { return 16 * 4 * (problem.out * 8 + (problem.out % 2 == 0 ? 8 : 0)); }

int64_t Schedule::registers() const {
  constexpr int64_t kOthers = 50;
  const int64_t steps = ceil_div(problem.line_chunks(), 2);
  return knobs.tiles * problem.out * 4 + knobs.tiles * 5 + problem.out * 2 + steps + kOthers;
}

int64_t Schedule::blocks_that_fit() const {
  const DeviceInfo& device = problem.device;
  if (shared_bytes() > device.shared_per_block || registers() > 255) return 0;
  const int64_t by_registers = device.registers_per_sm / (threads() * round_up(registers(), 8));
  const int64_t by_memory = device.shared_per_sm / (shared_bytes() + kReservedBytes);
  return std::clamp<int64_t>(std::min(by_registers, by_memory), 1, device.max_threads_per_sm / threads());
}

Launch Schedule::launch() const {
  const SlidingAxis &down = problem.rows(), &along = problem.columns();
  const DataType element = yielded_node(problem.a).type;
  KernelSource source = {
      .root = "grouped/grouped.cuh",
      .sites = {site_of("A", problem.a, true), site_of("B", problem.b, problem.copies_filters),
                site_of("Y", problem.y, false)},
      .config = {{"index_bits", 32},
                 {"ElementA", element},
                 {"ElementB", element},
                 {"b_plain", problem.copies_filters},
                 {"transposed", problem.is_gradient()},
                 {"in", problem.in},
                 {"out", problem.out},
                 {"lines", problem.lines()},
                 {"taps", problem.taps()},
                 {"stride", Problem::stride(along)},
                 {"dilation", along.dilation},
                 {"row_phases", Problem::phases(down)},
                 {"column_phases", Problem::phases(along)},
                 {"groups", knobs.groups},
                 {"tiles", knobs.tiles},
                 {"warps", knobs.warps},
                 {"stages", knobs.stages},
                 {"blocks", blocks_per_sm}},
      .target = problem.device.target()};
  Parameters p(32);
  p.divisor("group_tiles", group_tiles());
  p.divisor("tile_columns", tile_columns());
  p.divisor("tile_rows", tile_rows());
  p.divisor("columns", columns);
  p.divisor("rows", rows);
  p.divisor("lines_in", lines_in);
  p.wide("width", width);
  p.wide("columns_in", columns_in);
  p.wide("images_of_tile", images);
  p.wide("pixels", pixels());
  p.wide("items", items());
  p.wide("tiles", tiles());
  p.wide("tiles_per_block", tiles_per_block);
  p.wide("groups", problem.groups());
  p.wide("images", problem.images());
  p.wide("row_stride", Problem::stride(down));
  p.wide("line_step", down.dilation * line_bytes);
  p.wide("line_bytes", line_bytes);
  p.wide("phase_bytes", phase_bytes);
  p.wide("stage_bytes", stage_bytes());
  const auto pair = [&](const char* name, auto&& value) {
    p.wide(name, std::array<int64_t, 2>{value(down), value(along)});
  };
  pair("results", [](const SlidingAxis& axis) { return axis.results; });
  pair("positions", [](const SlidingAxis& axis) { return axis.positions; });
  pair("start", [](const SlidingAxis& axis) { return axis.start; });
  pair("window", [](const SlidingAxis& axis) { return axis.window; });
  pair("stored_first", [](const SlidingAxis& axis) { return axis.mirrored ? axis.window - 1 : 0; });
  pair("stored_step", [](const SlidingAxis& axis) { return axis.mirrored ? -1 : 1; });
  Launch made;
  for (const KernelSite& site : source.sites)
    p.site(site.name == "A" ? "a" : site.name == "B" ? "b" : "y", site, problem.fusion);
  made.entry = "grouped";
  set_grid(made, blocks(), threads());
  p.move_to(std::move(source), made);
  made.shared_bytes = shared_bytes();
  made.turn_at = -1;  // it always waits
  return made;
}

Lowered Schedule::lowered() const {
  Lowered lowered;
  lowered.steps.emplace_back(launch());
  lowered.guards = guards_of(problem.fusion, {{problem.a, kChunk}, {problem.b, kChunk}, {problem.y, kChunk}});
  return lowered;
}

}  // namespace fusor::grouped
