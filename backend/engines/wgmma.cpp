// Owns the wgmma engine: matmul and convolution of fp16, bf16, TF32, fp8 and int8 on Hopper's tensor cores
// (sm_90a). Its knobs, costs and steps; its rules are in wgmma_rules.h, its tiles in wgmma_tiling.h, the
// kernels are codegen/device/wgmma_contraction.cuh and wgmma_window.cuh.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "backend/engine.h"
#include "backend/engines.h"
#include "backend/engines/contraction.h"
#include "backend/engines/epilogue.h"
#include "backend/engines/repack.h"
#include "backend/engines/resident_window.h"
#include "backend/engines/residue_classes.h"
#include "backend/engines/result_reduction.h"
#include "backend/engines/tensor_maps.h"
#include "backend/engines/tiled_result.h"
#include "backend/engines/wgmma_rules.h"
#include "backend/engines/wgmma_tiling.h"
#include "codegen/expr_emitter.h"
#include "core/ceil_div.h"
#include "core/fail.h"
#include "core/fast_divisor.h"

namespace fusor {

namespace wgmma {
namespace {

// --- One candidate ---

struct Lowering {
  const Fusion& fusion;
  const DeviceInfo& device;
  Contraction view;
  Tiling tiling;
  CopiedOperand a;               // left operand of what the tensor cores see
  std::vector<CopiedOperand> b;  // right operand of every sibling
  Expr y;
  std::optional<ResultReduction> reduction;
  bool short_forms;
  bool rounds_value = true;
  // The first result, where the copy engine stores it, and another that lies as it does.
  std::optional<CopiedResult> copied, second;
  // Operands of the epilogue that lie so and come by the copy engine.
  std::vector<CopiedResult> given;
  int vector_axis = 0;
  int64_t vector = 1;
  int64_t index_bits = 32;

  Lowering(const Fusion& fusion_, const EngineConfig& config, const DeviceInfo& device_)
      : fusion(fusion_),
        device(device_),
        view(Carried::view_of(fusion_)),
        tiling(tiling_of(fusion_, view, config)),
        a(copied_operand(fusion, view, tiling.swapped, tiling.tile_m)),
        y(fusion_.after[0]),
        reduction(result_reduction(fusion_, view)),
        short_forms(fits_short_forms(y)) {
    if (tiling.window) b = {copied_window(fusion, view, *tiling.window, tiling.lines_of_window())};
    for (int64_t i = 0; i < tiling.siblings && !tiling.window; ++i)
      b.push_back(
          copied_operand(fusion, view, !tiling.swapped, tiling.columns_of_tile() / tiling.cluster, i));
    std::stable_partition(y.results.begin(), y.results.end(),
                          [](const Result& result) { return !result.reduction; });
    choose_way_out();
    choose_given();
    choose_vectors();
    mark_whole_vectors(fusion, y, vector_axis, vector);
    for (const Operand& operand : fusion.operands)
      if (operand.elements > std::numeric_limits<int32_t>::max()) index_bits = 64;
  }

  bool is_split() const { return tiling.split > 1; }
  DataType type() const { return operand_type(fusion); }

  static Tiling tiling_of(const Fusion& fusion, const Contraction& view, const EngineConfig& config) {
    Tiling tiling(fusion, view, config);
    if (tiling.window) return tiling;
    const bool second = !tiling.swapped;
    const CopiedOperand columns = copied_operand(fusion, view, second, tiling.columns_of_tile());
    tiling.fit_columns(columns.across_adjacent, !columns.map.window && !view.planes);
    return tiling;
  }
  // Lines of a tile are no neighbours in the result.
  bool stores_lines() const { return tiling.classes > 0 || tiling.window; }
  bool stores_planes() const { return copied && copied->planes; }
  // Rows of the product that begin on multiples of it are followed by neighbours in the same image.
  int64_t run_of_pixels() const {
    if (tiling.window)
      return std::gcd(tiling.window->axes.back().pixels, tiling.window->axes.back().positions.pixels);
    int64_t pixels = 1;
    for (const WindowAxis& axis : view.axes)
      pixels *= view.op == ContractionOp::fprop ? axis.output : axis.input;
    return pixels;
  }
  bool along_columns() const { return !copied || copied->along_n != tiling.swapped; }

  // The copy engine takes the first result where its lines allow, and a second one, or threads take the first
  // from boxes: the epilogue yields them as values.
  void choose_way_out() {
    if (is_split()) return;
    copied = copied_result(fusion, view, y, y.results.front());
    if (!copied && tiling.classes == 0) copied = planes_result(fusion, view, y, run_of_pixels());
    if (copied && (stores_lines() || stores_planes()) && line_bytes() != 128) copied.reset();
    // A thread's two rows are no part of a matrix that could be transposed; ptxas takes rounding them one by
    // one for a part of the products, and serialises those.
    const bool rounded = copied && byte_size(copied->type) == 2;
    if (rounded && tiling.from_registers && !along_columns()) copied.reset();
    if (!copied) return;
    second = result_beside();
    // The kernel rounds to a result's type: enough where the value has that type or none of its own.
    rounds_value = !yields(y.value, *copied);
    if (second) rounds_value |= !yields(y.second_value, *second);
  }

  std::optional<CopiedResult> result_beside() const {
    if (stores_lines() || stores_planes() || y.results.size() < 2) return std::nullopt;
    auto found = copied_result(fusion, view, y, y.results[1]);
    if (!found || found->along_n != copied->along_n) return std::nullopt;
    const bool wide = byte_size(found->type) != 2 || byte_size(copied->type) != 2;
    // Lines of a box along rows are 64 elements of 16 bits; two blocks an SM leave registers for no wider
    // pairs.
    if (wide && (!along_columns() || tiling.blocks_per_sm() > 1)) return std::nullopt;
    return found;
  }

  // The next result becomes a value; whether that has the type that is stored.
  bool yields(int& value, const CopiedResult& stored) {
    value = y.results.front().node;
    y.results.erase(y.results.begin());
    return y.nodes[static_cast<size_t>(value)].type == stored.type;
  }

  // Loads of what lies as the first result does become values beside the sums, as far as boxes have room.
  void choose_given() {
    if (way_out() != kCopyEngineStores) return;
    for (size_t i = 0; i < y.nodes.size() && std::ssize(given) < kMostGiven; ++i) {
      Node& node = y.nodes[i];
      if (node.kind != Node::Kind::load || std::cmp_equal(i, y.value) || std::cmp_equal(i, y.second_value))
        continue;
      const auto found = operand_like_result(node);
      if (!found) continue;
      const int64_t enough = std::min(kFewStages, stages());
      given.push_back(*found);
      if (stages() < enough || shared_bytes(2) > shared_budget()) {
        given.pop_back();
        continue;
      }
      node.kind = Node::Kind::anchor;
      node.axis = static_cast<int>(tiling.siblings + std::ssize(given)) - 1;
      node.type = carrier(node.type);
      node.access = {};
    }
  }

  std::optional<CopiedResult> operand_like_result(const Node& load) const {
    if (load.type != type_of(fusion, load.access)) return std::nullopt;
    auto found = copied_result(fusion, view, y, {.type = load.type, .access = load.access});
    if (!found || found->along_n != copied->along_n) return std::nullopt;
    // Rows that are neighbours are no part of a matrix.
    if (tiling.from_registers && !along_columns()) return std::nullopt;
    if (byte_size(load.type) != 2 && tiling.blocks_per_sm() > 1) return std::nullopt;
    return found;
  }

  void choose_vectors() {
    const int n_axis = view.is_convolution() ? 1 : view.batch.rank() + 1;
    vector_axis = tiling.swapped ? n_axis - 1 : n_axis;
    // Neighbouring pixels may lie in different lines.
    const bool pixels = tiling.swapped && view.is_convolution() && view.op != ContractionOp::wgrad;
    const bool even = tiling.columns % 2 == 0 && (!view.planes || view.input_channels % 2 == 0);
    vector = !pixels && along_columns() && even ? 2 : 1;
  }

  int64_t way_out() const {
    if (is_split()) return kPartStored;
    if (!copied) return kThreadsStore;
    if (stores_planes()) return kPlanesStored;
    return stores_lines() ? kLinesStored : kCopyEngineStores;
  }
  // Whether the epilogue's text may stand once for every piece of the sums: that compiles as fast, and runs
  // faster. Above, a long one in a loop is the better bargain.
  bool is_short() const {
    const SiteCost cost = cost_of(fusion.after[0], fusion);
    return copied && !reduction && cost.special == 0 && cost.instructions <= 12;
  }
  bool clamped() const { return copied && y.results.empty(); }

  // --- Shared memory, like struct Shared of the kernel ---

  // Of the result, by 64 rows: 8 KiB where whole boxes make up a tile, and no second block wants the memory.
  int64_t box_columns() const {
    int64_t widest = std::max(byte_size(copied->type), second ? byte_size(second->type) : 0);
    for (const CopiedResult& operand : given) widest = std::max(widest, byte_size(operand.type));
    const int64_t line = 128 / widest;
    const bool wide = along_columns() || tiling.blocks_per_sm() == 1;
    if (!wide || tiling.columns_of_tile() % line != 0) return tiling.piece_columns();
    // Boxes of two leave stages enough, or are no wider than a piece.
    const bool fits = box_element_bytes() == byte_size(copied->type) ||
                      shared_bytes_with(boxes_bytes(line, 2), kEnoughStages) <= shared_budget();
    return fits ? line : tiling.piece_columns();
  }
  // Of what shares a turn, as codegen/device/wgmma_boxes.cuh lays it out: an operand lies where a result of
  // its size will.
  int64_t box_element_bytes() const {
    std::vector<DataType> results{copied->type};
    if (second) results.push_back(second->type);
    int64_t bytes = 0;
    for (const DataType type : results) bytes += byte_size(type);
    for (const CopiedResult& operand : given) {
      const auto place = std::ranges::find_if(results, [&](DataType type) {
        return type == operand.type || (byte_size(type) == 2 && byte_size(operand.type) == 2);
      });
      if (place == results.end())
        bytes += byte_size(operand.type);
      else
        results.erase(place);
    }
    return bytes;
  }
  // Operands had better come a tile ahead; but stages that copies of the main loop need are not given away.
  int64_t turns() const {
    constexpr int64_t kLeast = 2, kMost = 4, kBusy = 5;
    if (given.empty()) return kLeast;
    const int64_t columns = box_columns();
    const int64_t wanted = std::min(kBusy, stages_beside(boxes_bytes(columns, kLeast)));
    int64_t turns = kMost;
    while (turns > kLeast && shared_bytes_with(boxes_bytes(columns, turns), wanted) > shared_budget())
      --turns;
    return turns;
  }
  int64_t line_bytes() const {
    return (along_columns() ? box_columns() : kPartRows) * byte_size(copied->type);
  }
  int64_t boxes_bytes(int64_t columns, int64_t turns) const {
    return kConsumers * turns * kPartRows * columns * box_element_bytes();
  }
  // And barriers, up to the next multiple of 1024.
  int64_t shared_bytes_with(int64_t boxes, int64_t stages) const {
    if (tiling.window)
      return boxes + 1024 + std::ssize(tiling.window->lines) * kFilterBytes +
             stages * tiling.lines_of_stage() * 128;
    return stages * tiling.stage_bytes() + ceil_div(16 * (stages + 1), 1024) * 1024 + boxes;
  }
  int64_t shared_bytes(int64_t stages) const {
    return shared_bytes_with(copied ? boxes_bytes(box_columns(), turns()) : 0, stages);
  }
  // Of a block.
  int64_t shared_budget() const {
    return tiling.blocks_per_sm() == 1 ? device.shared_per_block
                                       : device.shared_per_sm / tiling.blocks_per_sm() - 1024;
  }
  int64_t stages() const { return stages_beside(copied ? boxes_bytes(box_columns(), turns()) : 0); }
  int64_t stages_beside(int64_t boxes) const {
    int64_t stages = tiling.window ? kMaxWindows : kMaxStages;
    while (stages > 2 && shared_bytes_with(boxes, stages) > shared_budget()) --stages;
    return stages;
  }

  // --- Launches ---

  // As codegen/device/wgmma.cuh counts them; fp32 is multiplied as TF32.
  static int64_t element_number(DataType type) {
    constexpr std::array kElements{DataType::f16, DataType::bf16,    DataType::f32,    DataType::i8,
                                   DataType::u8,  DataType::f8_e4m3, DataType::f8_e5m2};
    return std::ranges::find(kElements, type) - kElements.begin();
  }
  // As codegen/device/wgmma_boxes.cuh counts them.
  static int64_t element_in_box(DataType type) {
    constexpr std::array kElements{DataType::f16, DataType::bf16, DataType::f32, DataType::i32};
    return std::ranges::find(kElements, type) - kElements.begin();
  }

  KernelSite epilogue(int axis) const { return {"Y", y, axis, short_forms, rounds_value}; }

  // What the device has room for.
  bool fits() const {
    if (shared_bytes(2) > device.shared_per_block) return false;
    return !tiling.window || filter_blocks() <= device.sm_count;
  }

  // Blocks of 64 output channels, of all groups.
  int64_t filter_blocks() const { return tiling.tiles_m() * tiling.entries; }

  // Blocks that run side by side. Those of a resident window keep their filters.
  int64_t slots() const {
    const int64_t together = tiling.window ? filter_blocks() : tiling.cluster;
    return device.sm_count / together * together * tiling.blocks_per_sm();
  }
  int64_t blocks() const { return std::min(tiling.tiles() * tiling.split, slots()); }

  // --- Reductions of the result ---

  // Whether the columns of a tile are left, of what the tensor cores see.
  bool leaves_columns() const { return tiling.swapped ? reduction->leaves_m : reduction->leaves_n; }
  bool leaves_rows() const { return tiling.swapped ? reduction->leaves_n : reduction->leaves_m; }
  // What the kernel calls FUSOR_REDUCED.
  int64_t reduced() const { return leaves_columns() ? 1 : leaves_rows() ? 2 : 3; }
  PartialResults partial_results() const {
    const int64_t parts = leaves_columns() ? ceil_div(tiling.rows, kWarpRows)
                          : leaves_rows()  ? tiling.tiles_n()
                                           : blocks() * kConsumers * kWarps;
    return {*reduction, view, parts};
  }

  Launch product() const {
    const std::string kernel = tiling.window ? "wgmma_window" : "wgmma_contraction";
    KernelSource source{kernel + ".cuh", {}, {}, device.target()};
    source.config = {{"index_bits", index_bits},
                     {"type", element_number(a.map.type)},
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
                     {"unrolled", is_short() ? 1 : 0},
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
    if (byte_size(type()) == 1) source.config.push_back({"type_b", element_number(b[0].map.type)});
    view.write_config(source.config);
    if (!is_split()) source.sites = {epilogue(vector_axis)};
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
    launch.block[0] = static_cast<uint32_t>((1 + kConsumers) * kWarpgroup);
    launch.cluster[0] = static_cast<uint32_t>(tiling.cluster);
    launch.shared_bytes = shared_bytes(stages());
    return launch;
  }

  void write_given(std::vector<ConfigValue>& config) const {
    if (given.empty()) return;
    config.push_back({"given", std::ssize(given)});
    for (size_t i = 0; i < given.size(); ++i)
      config.push_back({fmt::format("given_{}", i), element_in_box(given[i].type)});
    config.push_back({"turns", turns()});
  }

  void write_arguments(ArgumentBlock& block) const {
    block.put_tensor_map(a.map, a.operand, a.byte_offset);
    for (const CopiedOperand& each : b) block.put_tensor_map(each.map, each.operand, each.byte_offset);
    if (way_out() == kCopyEngineStores) put_result(block, *copied);
    if (second) put_result(block, *second);
    for (const CopiedResult& operand : given) put_result(block, operand);
    view.write_arguments(block, static_cast<int>(index_bits));
    if (tiling.window)
      write_windows(block);
    else
      write_schedule(block);
    write_operands(block);
  }

  void put_result(ArgumentBlock& block, const CopiedResult& result) const {
    TensorMap map = result.map;
    const int64_t box_rows = std::min(kPartRows, kLineBytes / byte_size(result.type));
    // Along columns, warps send rows of their own; the mover sends those of a warpgroup.
    const int64_t rows_together = given.empty() ? kPartRows / kWarps : kPartRows;
    map.box = along_columns() ? Dims{box_columns(), rows_together, 1} : Dims{box_rows, box_columns(), 1};
    block.put_tensor_map(map, result.operand, result.byte_offset);
  }

  void write_windows(ArgumentBlock& block) const {
    const ResidentWindow& window = *tiling.window;
    window.write_grid(block, static_cast<int>(index_bits));
    const int64_t taps = std::ssize(window.lines);
    for (const int64_t value : {tiling.tiles_n(), filter_blocks(), tiling.tiles_m(), taps})
      block.put_int(value);
    for (int64_t tap = 0; tap < kMaxResidentTaps; ++tap)
      block.put_int(tap < taps ? window.lines[static_cast<size_t>(tap)] : 0);
    for (const int64_t value : {stages(), tiling.lines_of_stage(), tiling.lines_of_window()})
      block.put_int(value);
  }

  void write_schedule(ArgumentBlock& block) const {
    for (const int64_t value : {tiling.entries, tiling.tiles_m(), tiling.tiles_n(),
                                std::max<int64_t>(tiling.band / tiling.cluster, 1),
                                std::max(tiling.classes, tiling.split), tiling.steps, tiling.steps_of_part})
      block.put_int(value);
    if (tiling.classes > 0)
      residue_classes(view).write_arguments(block, Tiling::blocks_of(view, tiling.line),
                                            static_cast<int>(index_bits));
  }

  void write_operands(ArgumentBlock& block) const {
    block.put_int(a.batched);
    block.put_int(b[0].batched);
    const bool over_outputs = view.op == ContractionOp::dgrad;
    const int64_t blocked = over_outputs ? view.output_channels : view.input_channels;
    const bool planes = view.op == ContractionOp::wgrad && !a.across_adjacent;
    block.put_int(view.planes ? ceil_div(view.planes->length, tiling.line)
                  : planes    ? tiling.steps / view.runs_of_k
                              : ceil_div(blocked, tiling.line));
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
      FastDivisor::of(walk.pixels, static_cast<int>(index_bits)).put(block);
      for (const int64_t value : {walk.window, walk.stride, walk.lower, walk.slope, walk.origin})
        block.put_int(value);
    }
  }

  // As codegen/device/wgmma_planes.cuh reads it: along the first axis, groups of rows `stride` apart.
  WindowWalk walk_over_planes(int i) const {
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

  // direct_finish.cuh counts tiles of m by n.
  Launch sum_of_parts() const {
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

  int64_t partial_bytes() const {
    return is_split() ? tiling.tiles() * tiling.split * tiling.tile_m * tiling.tile_n * 4 : 0;
  }

  std::vector<Guard> guards() const {
    std::vector<Guard> guards = guards_of(fusion, {{y, vector}});
    for (Guard& guard : guards) guard.alignment = std::max(guard.alignment, alignment_of(guard.operand));
    return guards;
  }
  int64_t alignment_of(int operand) const {
    constexpr int64_t kUnit = 16;
    if (operand == a.operand || std::ranges::find(b, operand, &CopiedOperand::operand) != b.end())
      return kUnit;
    if (second && operand == second->operand) return kUnit;
    if (std::ranges::find(given, operand, &CopiedResult::operand) != given.end()) return kUnit;
    if (!copied || operand != copied->operand) return 1;
    return stores_planes() ? copied->planes->unit * byte_size(copied->type) : kUnit;
  }

  // --- Costs ---

  // Cycles that a thread spends on one element of the epilogue. This and the efficiencies below are fitted to
  // 460 candidates of 34 cases on an H200 (bench/RESULTS.md).
  double finish_cycles_per_element() const {
    constexpr double kUnrolled = 12, kRolled = 22, kLines = 22, kScattered = 150, kFurtherSum = 4;
    // A loop waits for its loads, piece by piece; without one, they are under way while other pieces pass.
    constexpr double kLoad = 10, kLoadInLoop = 120, kGivenLoad = 2;
    constexpr double kOneByOne = 4;
    constexpr double kPlanes = 6, kUnitOfPlanes = 16;
    constexpr double kTotal = 3, kColumnTotal = 6, kSecondCopied = 3;
    // A further result that threads store, pair by pair: in lines of its own where threads run along rows.
    const double store = tiling.swapped ? 14 : 62;
    if (is_split()) return kRolled;
    const SiteCost cost = cost_of(fusion.after[0], fusion);
    double cycles = (is_short() ? kUnrolled : kRolled) + 3 * cost.instructions + 4 * cost.special;
    cycles += kFurtherSum * static_cast<double>(tiling.siblings - 1);
    for (const Node& node : y.nodes) {
      const bool own = std::ranges::find(node.access.strides, 0) == node.access.strides.end();
      if (node.kind == Node::Kind::load && own) cycles += is_short() ? kLoad : kLoadInLoop;
    }
    cycles += kGivenLoad * static_cast<double>(given.size());
    if (second) cycles += kSecondCopied;
    if (way_out() == kLinesStored) cycles += kLines;
    if (stores_planes()) cycles += kPlanes + kUnitOfPlanes / static_cast<double>(copied->planes->unit);
    if (copied && !along_columns() && byte_size(copied->type) != 2 && !tiling.from_registers)
      cycles += kOneByOne;
    // Every element of a convolution finds its own place.
    if (way_out() == kThreadsStore && view.is_convolution()) cycles += kScattered;
    for (const Result& result : y.results)
      cycles += !result.reduction ? store : leaves_columns() ? kColumnTotal : kTotal;
    return cycles;
  }

  // Steps of several rows are large and few: while one is multiplied, the others of the ring must come.
  double kept_busy() const {
    constexpr double kLatency = 800;  // cycles, of a copy
    const int64_t parts = tiling.tile_m / kPartRows;
    const double step = 2.0 * static_cast<double>(tiling.plane_rows * parts * tiling.tile_n);
    return std::min(1.0, static_cast<double>(stages() - 1) * step / (step + kLatency));
  }

  // Bytes beyond an element's own that L2 moves where the epilogue's threads reach across lines: a warp meets
  // 8 neighbouring pixels at once (every second one of 8 where the tile is swapped), in sectors of 32 bytes.
  double scattered_bytes() const {
    const auto scattered = [&](const Access& access, DataType type) {
      if (!view.is_convolution() || access.strides[1] == 0 || !is_apart(view, y.domain, access)) return 0.0;
      const double neighbours = access.strides[y.domain.rank() - 1] != 1 ? 1 : tiling.swapped ? 4 : 8;
      return std::max(32 / neighbours - static_cast<double>(byte_size(type)), 0.0);
    };
    double bytes = 0;
    for (const Node& node : y.nodes)
      if (node.kind == Node::Kind::load) bytes += scattered(node.access, node.type);
    for (const Result& result : y.results)
      if (!result.reduction) bytes += scattered(result.access, result.type);
    return bytes * static_cast<double>(element_count(y.domain));
  }

  // Of the main loop. Ping-pong leaves the tensor cores alone between tiles; clusters gain nothing but where
  // L2 does not hold the operands.
  double efficiency(double bytes) const {
    double share = tiling.ping_pong ? 0.975 : 1.0;
    if (tiling.blocks_per_sm() > 1) share *= 0.94;
    if (view.planes) share *= kept_busy();
    // Nobody multiplies while short sums are added, but for the other consumer of the same tile.
    if (tiling.short_sums) share *= tiling.ping_pong ? 0.7 : 0.92;
    // Small tiles leave room for two blocks an SM, which keep more copies under way than turns do.
    if (tiling.ping_pong && tiling.sums() <= 32) share *= 0.85;
    const bool beyond_l2 = bytes > 5 * static_cast<double>(device.l2_bytes);
    if (tiling.cluster > 1) share *= beyond_l2 ? 0.997 : 0.98;
    if (tiling.cluster == 1 && beyond_l2) share *= 0.996;
    // Without ping-pong, or in narrow tiles, pixels do better as rows; with it, whatever is adjacent in the
    // result does.
    if (tiling.ping_pong && tiling.tile_m > kPartRows) return tiling.swapped ? share : 0.98 * share;
    const bool pixels_as_columns = tiling.swapped && view.is_convolution() && view.op != ContractionOp::wgrad;
    return pixels_as_columns ? 0.93 * share : share;
  }

  Work work() const {
    // A column of pixels comes slower than a box; tiles meet, and start anew.
    constexpr double kIm2colCost = 1.6, kTileCycles = 1000, kTileOfLinesCycles = 2000;
    const auto tiles = static_cast<double>(tiling.tiles());
    const auto tile_m = static_cast<double>(tiling.tile_m), tile_n = static_cast<double>(tiling.tile_n);
    // Of all tiles.
    const double steps = tiling.classes > 0
                             ? static_cast<double>(tiling.tiles_of_class() * tiling.all_steps)
                             : tiles * static_cast<double>(tiling.steps_of_part * tiling.split);
    Work work;
    // Lines of 128 bytes take the tensor cores as long, whatever is in them; the device's rate is that of 16
    // bits.
    const auto rows_of_step = static_cast<double>(tiling.plane_rows);
    work.tensor_flops = 2 * tile_m * tile_n * rows_of_step * steps * kBoxLine;
    work.dram_bytes = dram_bytes(fusion);
    const bool window_as_rows = !tiling.swapped && a.map.window,
               window_as_columns = tiling.swapped && b[0].map.window;
    const double fetched =
        (window_as_rows ? kIm2colCost : 1) * tile_m +
        (window_as_columns ? kIm2colCost : 1) * tile_n / static_cast<double>(tiling.cluster);
    work.l2_bytes = steps * fetched * kLineBytes;
    if (view.planes)
      work.l2_bytes = steps * kLineBytes * static_cast<double>(tiling.row_lines() + tiling.column_lines());
    if (tiling.window)
      work.l2_bytes = tiles * static_cast<double>(tiling.lines_of_window() * kLineBytes) +
                      static_cast<double>(slots() * std::ssize(tiling.window->lines) * kFilterBytes);
    work.l2_bytes += scattered_bytes();
    // Written by the copy engine, read by the tensor cores: the columns once for every 64 rows.
    const double read = tile_m + tile_n * tile_m / kPartRows;
    work.shared_bytes =
        steps * (static_cast<double>(tiling.stage_bytes()) + rows_of_step * read * kLineBytes);
    work.tiles = tiling.tiles();
    work.tiles_per_sm = static_cast<int>(tiling.blocks_per_sm());
    work.k_steps = tiling.classes > 0 ? ceil_div(tiling.all_steps, tiling.classes) : tiling.steps_of_part;
    work.split = static_cast<int>(tiling.split);
    const auto threads = static_cast<double>(kWarpgroup * (tiling.ping_pong ? 1 : kConsumers));
    const auto results = tile_m * static_cast<double>(tiling.columns_of_tile());
    work.finish_cycles =
        (stores_lines() ? kTileOfLinesCycles : kTileCycles) + results / threads * finish_cycles_per_element();
    work.finish_overlaps = tiling.ping_pong;
    work.start_s = 2.5e-6;
    work.efficiency = efficiency(work.dram_bytes);
    if (is_split()) {
      work.launches = 2;
      work.scratch_bytes = partial_bytes();
      work.serial_dram_bytes = 1.7 * static_cast<double>(work.scratch_bytes);
    }
    if (reduction) {
      work.launches = 2;
      work.scratch_bytes = partial_results().bytes(fusion);
      work.serial_dram_bytes = static_cast<double>(work.scratch_bytes);
    }
    return work;
  }
};

class WgmmaEngine final : public Engine {
 public:
  std::string_view name() const override { return "wgmma"; }
  int number() const override { return 30; }
  int revision() const override { return 2; }
  Notes notes() const override { return {.tensor_cores = true}; }
  Notes notes_on(const Fusion& fusion) const override {
    Notes notes = this->notes();
    notes.tf32 = operand_type(fusion) == DataType::f32;
    notes.short_sums = is_fp8(operand_type(fusion));
    return notes;
  }

  Support supports(const Fusion& fusion, const DeviceInfo& device) const override {
    if (device.is_cpu() || device.compute_capability != 90)
      return Support::no({"sm-90", "", "", "a Hopper GPU (sm_90)", device.name, "plan for one", -1});
    if (fusion.anchors.empty())
      return Support::no({"contraction-anchor", fusion.op_names.front(), "",
                          "a matmul or a convolution, or two siblings", "none", "", -1});
    if (auto refusal = refuse(Carried(fusion).fusion())) return Support::no(std::move(*refusal));
    return Support::yes();
  }

  std::vector<Knob> knobs(const Fusion& fusion, const DeviceInfo& /*device*/) const override {
    const Contraction view = Carried(fusion).view();
    const std::optional<bool> from_registers = operand_from_registers(Carried(fusion).fusion(), view);
    const bool pair = fusion.is_pair();
    const int64_t steps =
        Tiling::can_split(view) ? Tiling::steps_of(view, box_line(operand_type(fusion))) : 1;
    std::vector<int64_t> split{1}, swap{0, 1}, tile_n{32, 64, 96, 128, 160, 192, 224, 256};
    if (!pair) tile_n.insert(tile_n.begin(), 16);
    if (pair) swap = {0};
    if (from_registers) swap = {*from_registers ? 1 : 0};
    for (int64_t next = 2; next <= std::min<int64_t>(steps, 132); ++next) split.push_back(next);
    return {{"tile_m", {64, 128, 256}},
            {"tile_n", tile_n},
            {"swap", swap},
            {"ping_pong", {0, 1}},
            {"cluster", {1, 2}},
            {"band", {1, 2, 4, 8, 16}},
            {"split", split},
            {"rows", Tiling::can_join_rows(view, operand_type(fusion)) ? std::vector<int64_t>{1, 2, 3, 4}
                                                                       : std::vector<int64_t>{1}},
            {"window",
             window_of(view, operand_type(fusion)) ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0}}};
  }

  std::vector<EngineCandidate> candidates(const Fusion& given, const DeviceInfo& device) const override {
    const Carried carried(given);
    const Fusion& fusion = carried.fusion();
    std::vector<EngineCandidate> list;
    const Contraction view = carried.view();
    const auto add = [&](int64_t swap, int64_t ping_pong, int64_t tile_m, int64_t tile_n, int64_t cluster,
                         int64_t split, int64_t rows = 1) {
      EngineConfig config{std::string(name()), revision(), {}};
      config.set("tile_m", tile_m);
      config.set("tile_n", tile_n);
      config.set("swap", swap);
      config.set("ping_pong", ping_pong);
      config.set("cluster", cluster);
      config.set("band", 8);
      config.set("split", split);
      if (rows > 1) config.set("rows", rows);
      const Lowering lowering(fusion, config, device);
      const Tiling& tiling = lowering.tiling;
      if (tiling.plane_rows != rows || !lowering.fits()) return;
      if (tiling.cluster != cluster || tiling.tile_m != tile_m || tiling.tile_n != tile_n) return;
      if (tiling.swapped != (swap != 0)) return;
      Work work = lowering.work();
      list.push_back({std::move(config), work});
    };
    for (const int64_t swap : {0, 1})
      for (const auto& [ping_pong, tile_m] : {std::pair{0, 128}, {1, 128}, {1, 64}, {0, 256}})
        for (const int64_t tile_n : {256, 192, 128, 96, 64, 32, 16}) {
          EngineConfig config{std::string(name()), revision(), {}};
          config.set("swap", swap);
          config.set("ping_pong", ping_pong);
          config.set("tile_m", tile_m);
          config.set("tile_n", tile_n);
          const Tiling tiling(fusion, view, config);
          if (tiling.swapped != (swap != 0)) continue;
          if (!fits(tiling)) continue;
          const int64_t split = Tiling::can_split(view) ? split_for(tiling, device) : 1;
          if (split == 1 || tiling.tiles() * 2 > device.sm_count) add(swap, ping_pong, tile_m, tile_n, 1, 1);
          // One consumer of planes keeps the tensor cores as busy as L2 allows.
          const bool alone = view.planes && tile_m == kPartRows;
          if (split > 1 && (ping_pong == 0 || alone)) add(swap, ping_pong, tile_m, tile_n, 1, split);
          if (split == 1 && tile_n >= 128 && tiling.tiles_m() > 1) add(swap, ping_pong, tile_m, tile_n, 2, 1);
        }
    if (window_of(view, operand_type(fusion)))
      for (const int64_t tile_n : {256, 192, 128}) add_window(list, fusion, device, tile_n);
    if (Tiling::can_join_rows(view, operand_type(fusion)))
      for (const auto& [ping_pong, tile_m] : {std::pair{1, 64}, {0, 128}, {0, 256}})
        for (const int64_t rows : {2, 3, 4}) {
          EngineConfig config{std::string(name()), revision(), {}};
          config.set("tile_m", tile_m);
          config.set("ping_pong", ping_pong);
          config.set("rows", rows);
          const Tiling tiling(fusion, view, config);
          if (rows > view.planes->rows || !fits(tiling)) continue;
          add(0, ping_pong, tile_m, tiling.tile_n, 1, split_for(tiling, device), rows);
        }
    // Few adjacent columns of a pair fill no tile that its boxes allow; few rows of a reduction, no two
    // pieces.
    if (list.empty()) add(operand_from_registers(fusion, view).value_or(false) ? 1 : 0, 0, 128, 128, 1, 1);
    return list;
  }

  Lowered lower(const Fusion& fusion, const EngineConfig& config, const DeviceInfo& device) const override {
    const Carried carried(fusion);
    const Lowering lowering(carried.fusion(), config, device);
    Lowered lowered;
    lowered.steps.emplace_back(lowering.product());
    if (lowering.is_split()) {
      lowered.steps.emplace_back(lowering.sum_of_parts());
      lowered.scratch.push_back(lowering.partial_bytes());
    }
    if (lowering.reduction) {
      const PartialResults partial = lowering.partial_results();
      lowered.steps.emplace_back(
          partial.combination(lowering.fusion, static_cast<int>(lowering.index_bits), device.target()));
      lowered.scratch.push_back(partial.bytes(lowering.fusion));
    }
    lowered.guards = lowering.guards();
    return lowered;
  }

 private:
  void add_window(std::vector<EngineCandidate>& list, const Fusion& fusion, const DeviceInfo& device,
                  int64_t tile_n) const {
    EngineConfig config{std::string(name()), revision(), {}};
    config.set("tile_n", tile_n);
    config.set("window", 1);
    const Lowering lowering(fusion, config, device);
    if (!lowering.fits()) return;
    Work work = lowering.work();
    list.push_back({std::move(config), work});
  }

  // Tiles that the registers and the boxes hold, and that are not mostly padding.
  static bool fits(const Tiling& tiling) {
    if (tiling.tile_m == 256 && tiling.rows <= 128) return false;
    const int64_t columns = tiling.columns_of_tile();
    if (columns >= 2 * std::max<int64_t>(tiling.columns, 16) && columns > 16) return false;
    // ptxas mixes the way out of one piece into the products, and serialises those.
    if ((tiling.classes > 0 || tiling.reduces) && tiling.pieces() == 1) return false;
    return true;
  }

  // Parts that fill the device where whole tiles do not, each of four steps or more.
  static int64_t split_for(const Tiling& tiling, const DeviceInfo& device) {
    const int64_t slots = device.sm_count * tiling.blocks_per_sm();
    return std::clamp<int64_t>(std::min(slots / tiling.tiles(), tiling.steps / 4), 1, 132);
  }
};

}  // namespace
}  // namespace wgmma

const Engine& wgmma_engine() {
  static const wgmma::WgmmaEngine engine;
  return engine;
}

}  // namespace fusor
