// Owns the wgmma engine: matmul of fp16 and bf16 on Hopper's tensor cores (sm_90a). Its rules, knobs, costs
// and steps; the kernel is codegen/device/wgmma_matmul.cuh.
#include <algorithm>
#include <limits>

#include "backend/engine.h"
#include "backend/engines.h"
#include "backend/engines/contraction.h"
#include "backend/engines/epilogue.h"
#include "codegen/expr_emitter.h"
#include "core/fail.h"
#include "core/fast_divisor.h"

namespace fusor {

namespace {

// The constants of codegen/device/wgmma_matmul.cuh.
constexpr int64_t kTileM = 128, kTileK = 64, kConsumers = 2, kWarpgroup = 128, kBox = 64;
constexpr int64_t kElementBytes = 2;
constexpr int64_t kMaxBoxLines = 256;
constexpr int64_t kMaxStages = 8;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// --- Operands ---

// An operand as the copy engine sees it: lines of adjacent elements, along k or across it, over one batch
// axis.
struct TiledOperand {
  int operand = -1;
  int64_t byte_offset = 0;
  bool across_adjacent = false;  // rows of a (columns of b) are adjacent, not k
  int64_t across = 1, k = 1, entries = 1;
  int64_t line_bytes = 0, entry_bytes = 0;  // from line to line, from batch entry to batch entry
  bool batched = false;
};

// One stride over all leading axes, or nothing where no single stride walks them.
std::optional<int64_t> batch_stride(const Expr& site, int leading) {
  int64_t stride = 0;
  int64_t inner = 1;  // elements of the batch inside of `axis`
  for (int axis = leading - 1; axis >= 0; --axis) {
    const int64_t extent = site.domain[axis];
    if (extent == 1) continue;
    const int64_t here = site.nodes[0].access.strides[axis];
    if (inner == 1)
      stride = here;
    else if (here != stride * inner)
      return std::nullopt;
    inner *= extent;
  }
  return stride;
}

std::optional<Refusal> refuse_operand(const Fusion& fusion, const Expr& site) {
  const Node& value = site.nodes[static_cast<size_t>(site.value)];
  if (value.kind != Node::Kind::load || site.nodes.size() != 1) {
    const std::string node = value.op >= 0 ? fusion.op_name(value.op) : "";
    return Refusal{"plain-operands",
                   node,
                   "",
                   "operands that are read as they are stored",
                   "ops before the contraction",
                   "give those ops a fusion of their own",
                   value.op};
  }
  const std::string& tensor = fusion.name_of(value.access.operand);
  const Operand& operand = fusion.operands[static_cast<size_t>(value.access.operand)];
  if ((operand.type != DataType::f16 && operand.type != DataType::bf16) || value.type != operand.type)
    return Refusal{
        "16-bit-operands", "", tensor, "fp16 or bf16", std::string(to_string(operand.type)), "", -1};
  if (operand.alignment % 16 != 0 || value.access.offset * kElementBytes % 16 != 0)
    return Refusal{
        "16-byte-operands",
        "",
        tensor,
        "a start on a multiple of 16 bytes",
        fmt::format("alignment {}, offset {} bytes", operand.alignment, value.access.offset * kElementBytes),
        "promise 16-byte alignment for the tensor",
        -1};
  return std::nullopt;
}

std::optional<Refusal> refuse_strides(const Fusion& fusion, const Expr& site, int k_axis, int across_axis) {
  const Access& access = site.nodes[0].access;
  const std::string& tensor = fusion.name_of(access.operand);
  const int leading = site.domain.rank() - 2;
  const int64_t k = access.strides[k_axis], across = access.strides[across_axis];
  const bool k_adjacent = k == 1, across_adjacent = !k_adjacent && across == 1;
  if (!k_adjacent && !across_adjacent)
    return Refusal{"adjacent-operands",
                   "",
                   tensor,
                   "a stride of 1 along k or across it",
                   fmt::format("strides {} and {}", k, across),
                   "",
                   -1};
  const auto stride = batch_stride(site, leading);
  if (!stride)
    return Refusal{"one-batch-stride",        "", tensor, "leading axes that one stride walks",
                   to_string(access.strides), "", -1};
  const int64_t line = k_adjacent ? across : k;
  if (line * kElementBytes % 16 != 0 || line == 0 || *stride * kElementBytes % 16 != 0)
    return Refusal{"16-byte-lines",
                   "",
                   tensor,
                   "lines and batch entries a multiple of 16 bytes apart",
                   fmt::format("{} and {} bytes", line * kElementBytes, *stride * kElementBytes),
                   "pad the rows",
                   -1};
  return std::nullopt;
}

TiledOperand tiled_operand(const Expr& site, int k_axis, int across_axis) {
  const Access& access = site.nodes[0].access;
  const int leading = site.domain.rank() - 2;
  TiledOperand tiled;
  tiled.operand = access.operand;
  tiled.byte_offset = access.offset * kElementBytes;
  tiled.across_adjacent = access.strides[k_axis] != 1;
  tiled.across = site.domain[across_axis];
  tiled.k = site.domain[k_axis];
  for (int i = 0; i < leading; ++i) tiled.entries *= site.domain[i];
  const int64_t stride = batch_stride(site, leading).value();
  tiled.batched = stride != 0;
  tiled.line_bytes = access.strides[tiled.across_adjacent ? k_axis : across_axis] * kElementBytes;
  tiled.entry_bytes = tiled.batched ? stride * kElementBytes : tiled.line_bytes;
  return tiled;
}

TensorMap map_of(const TiledOperand& tiled, DataType type, int64_t tile_extent) {
  TensorMap map;
  map.type = type;
  const int64_t entries = tiled.batched ? tiled.entries : 1;
  map.dims =
      tiled.across_adjacent ? Dims{tiled.across, tiled.k, entries} : Dims{tiled.k, tiled.across, entries};
  map.stride_bytes = {tiled.line_bytes, tiled.entry_bytes};
  map.box = {kBox, tiled.across_adjacent ? kTileK : tile_extent, 1};
  return map;
}

// --- One candidate ---

struct Lowering {
  const Fusion& fusion;
  Contraction view;
  std::string target;
  bool swapped;  // the tensor cores' rows are n
  int64_t tile_n, band, stages = 0;
  TiledOperand a, b;  // left and right operand of what the tensor cores see
  Expr y;
  bool along_columns = true;  // the result is adjacent along the tensor cores' columns
  int vector_axis = 0;
  int64_t vector = 1;

  Lowering(const Fusion& fusion_, const EngineConfig& config, const DeviceInfo& device)
      : fusion(fusion_),
        view(contraction_of(fusion_).value()),
        target(device.target()),
        swapped(config.knob("swap", 0) != 0),
        tile_n(config.knob("tile_n", 128)),
        band(config.knob("band", 8)),
        y(fusion_.after[0]) {
    const Expr first = over_batch(fusion.before[0], view.batch),
               second = over_batch(fusion.before[1], view.batch);
    const int last = view.batch.rank() + 1;
    a = swapped ? tiled_operand(second, last - 1, last) : tiled_operand(first, last, last - 1);
    b = swapped ? tiled_operand(first, last, last - 1) : tiled_operand(second, last - 1, last);
    // Adjacent columns come in boxes of 64.
    if (b.across_adjacent) tile_n = std::max(tile_n, kBox);
    stages = most_stages(tile_n, device);
    choose_vectors();
  }

  int64_t rows() const { return swapped ? view.n : view.m; }
  int64_t columns() const { return swapped ? view.m : view.n; }
  int64_t tiles_m() const { return ceil_div(rows(), kTileM); }
  int64_t tiles_n() const { return ceil_div(columns(), tile_n); }
  int64_t tiles() const { return tiles_m() * tiles_n() * view.entries; }
  DataType type() const { return fusion.operands[static_cast<size_t>(a.operand)].type; }

  // Of eight warps: 16 rows by 32 columns, or 32 by 16, with the wider of the two pitches.
  static int64_t staged_bytes() { return kConsumers * 4 * std::max(16 * 40, 32 * 20) * 4; }
  static int64_t stage_bytes(int64_t tile_n) { return (kTileM + tile_n) * kTileK * kElementBytes; }
  // Operand tiles, staged sums, barriers, and up to 1023 bytes before the first multiple of 1024.
  static int64_t shared_bytes(int64_t tile_n, int64_t stages) {
    return 1024 + stages * stage_bytes(tile_n) + staged_bytes() + 16 * stages + 64;
  }
  static int64_t most_stages(int64_t tile_n, const DeviceInfo& device) {
    int64_t stages = kMaxStages;
    while (stages > 2 && shared_bytes(tile_n, stages) > device.shared_per_block) --stages;
    return stages;
  }

  void choose_vectors() {
    const int m_axis = view.batch.rank(), n_axis = m_axis + 1;
    const Access& store = y.results.front().access;
    const bool along_n = store.strides[n_axis] == 1 || store.strides[m_axis] != 1;
    vector_axis = along_n ? n_axis : m_axis;
    along_columns = along_n != swapped;
    const Operand& operand = fusion.operands[static_cast<size_t>(store.operand)];
    for (vector = 8; vector > 1; vector /= 2)
      if (moves_whole_vectors(store, operand, operand.type, vector_axis, vector)) break;
    mark_whole_vectors(fusion, y, vector_axis, vector);
  }

  Launch launch(const DeviceInfo& device) const {
    KernelSource source{"wgmma_matmul.cuh", {{"Y", y, vector_axis, fits_short_forms(y)}}, {}, target};
    source.config = {{"index_bits", 32},
                     {"type", type() == DataType::f16 ? 0 : 1},
                     {"tile_n", tile_n},
                     {"stages", stages},
                     {"batch", view.batch.rank()},
                     {"vector", vector},
                     {"a_rows_adjacent", a.across_adjacent ? 1 : 0},
                     {"b_columns_adjacent", b.across_adjacent ? 1 : 0},
                     {"y_along_columns", along_columns ? 1 : 0},
                     {"swapped", swapped ? 1 : 0}};
    Launch launch;
    write_arguments(launch.arguments);
    fusor::write_arguments(launch.arguments, source.sites[0], fusion);
    launch.source = std::make_shared<const KernelSource>(std::move(source));
    launch.entry = "wgmma_matmul";
    launch.grid[0] = static_cast<uint32_t>(std::min<int64_t>(tiles(), device.sm_count));
    launch.block[0] = static_cast<uint32_t>((1 + kConsumers) * kWarpgroup);
    launch.shared_bytes = shared_bytes(tile_n, stages);
    return launch;
  }

  void write_arguments(ArgumentBlock& block) const {
    block.put_tensor_map(map_of(a, type(), kTileM), a.operand, a.byte_offset);
    block.put_tensor_map(map_of(b, type(), tile_n), b.operand, b.byte_offset);
    for (const int64_t value : {rows(), columns(), ceil_div(view.k, kTileK), view.entries, int64_t{a.batched},
                                int64_t{b.batched}, tiles_m(), tiles_n(), band})
      block.put_int(value);
    for (const int64_t extent : view.batch) FastDivisor::of(extent, 32).put(block);
    if (view.batch.empty()) FastDivisor::of(1, 32).put(block);
  }

  std::vector<Guard> guards() const {
    std::vector<Guard> guards = guards_of(fusion, {{y, vector}});
    for (Guard& guard : guards)
      if (guard.operand == a.operand || guard.operand == b.operand)
        guard.alignment = std::max<int64_t>(guard.alignment, 16);
    return guards;
  }

  Work work() const {
    const SiteCost cost = cost_of(y, fusion);
    const auto count = static_cast<double>(tiles());
    const auto k = static_cast<double>(ceil_div(view.k, kTileK) * kTileK);
    const auto tile = static_cast<double>(kTileM * tile_n);
    const double results = count * tile;
    Work work;
    work.tensor_flops = 2 * count * tile * k;
    work.fp32_flops = 2 * results * (cost.instructions + 4);
    work.special = results * cost.special;
    work.dram_bytes = dram_bytes(fusion);
    work.l2_bytes = count * static_cast<double>(kTileM + tile_n) * k * kElementBytes + results * cost.bytes;
    work.tiles = tiles();
    work.k_steps = ceil_div(view.k, kTileK);
    work.stages = static_cast<int>(stages);
    // Narrow tiles are bound by shared memory: 128 bytes a clock feed 64 columns no faster than half the
    // peak.
    work.efficiency = tile_n >= 256 ? 0.97 : tile_n >= 128 ? 0.85 : tile_n >= 64 ? 0.5 : 0.28;
    return work;
  }
};

class WgmmaEngine final : public Engine {
 public:
  std::string_view name() const override { return "wgmma"; }
  int number() const override { return 30; }
  Notes notes() const override { return {.tensor_cores = true}; }

  Support supports(const Fusion& fusion, const DeviceInfo& device) const override {
    if (device.is_cpu() || device.compute_capability != 90)
      return Support::no({"sm-90", "", "", "a Hopper GPU (sm_90)", device.name, "plan for one", -1});
    if (fusion.anchors.size() != 1 || !std::holds_alternative<Matmul>(fusion.anchors[0].attributes))
      return Support::no(
          {"matmul-anchor", fusion.op_names.front(), "", "one matmul", "another anchor or none", "", -1});
    const Matmul& matmul = std::get<Matmul>(fusion.anchors[0].attributes);
    if (matmul.compute != DataType::f32)
      return Support::no({"fp32-sums", fusion.op_name(fusion.anchors[0].op), "", "compute type fp32",
                          std::string(to_string(matmul.compute)), "", -1});
    if (auto refusal = refuse(fusion)) return Support::no(std::move(*refusal));
    return Support::yes();
  }

  std::vector<Knob> knobs(const Fusion& /*fusion*/, const DeviceInfo& /*device*/) const override {
    return {{"tile_n", {32, 64, 128, 192, 256}}, {"swap", {0, 1}}, {"band", {1, 4, 8, 16}}};
  }

  std::vector<EngineCandidate> candidates(const Fusion& fusion, const DeviceInfo& device) const override {
    std::vector<EngineCandidate> list;
    for (const int64_t swap : {0, 1})
      for (const int64_t tile_n : {256, 192, 128, 64, 32}) {
        EngineConfig config{std::string(name()), revision(), {}};
        config.set("tile_n", tile_n);
        config.set("swap", swap);
        config.set("band", 8);
        Work work = Lowering(fusion, config, device).work();
        list.push_back({std::move(config), work});
      }
    return list;
  }

  Lowered lower(const Fusion& fusion, const EngineConfig& config, const DeviceInfo& device) const override {
    const Lowering lowering(fusion, config, device);
    Lowered lowered;
    lowered.steps.emplace_back(lowering.launch(device));
    lowered.guards = lowering.guards();
    return lowered;
  }

 private:
  static std::optional<Refusal> refuse(const Fusion& fusion) {
    if (auto refusal = refuse_epilogue_reductions(fusion)) return refusal;
    const auto view = contraction_of(fusion);
    if (!view)
      return Refusal{"epilogue-over-result",
                     fusion.op_name(fusion.anchors[0].op),
                     "",
                     "an epilogue over the result's shape",
                     to_string(fusion.after[0].domain),
                     "",
                     -1};
    for (const Expr& site : fusion.before)
      if (auto refusal = refuse_operand(fusion, site)) return refusal;
    const Expr first = over_batch(fusion.before[0], view->batch),
               second = over_batch(fusion.before[1], view->batch);
    const int last = view->batch.rank() + 1;
    if (auto refusal = refuse_strides(fusion, first, last, last - 1)) return refusal;
    if (auto refusal = refuse_strides(fusion, second, last - 1, last)) return refusal;
    if (first.nodes[0].type != second.nodes[0].type)
      return Refusal{"one-operand-type", "", "", "operands of one type", "fp16 and bf16", "", -1};
    return refuse_size(fusion, *view);
  }

  // Coordinates and offsets are 32 bits wide.
  static std::optional<Refusal> refuse_size(const Fusion& fusion, const Contraction& view) {
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max() - 65536;
    for (const Operand& operand : fusion.operands)
      if (operand.elements > kMost)
        return Refusal{"32-bit-offsets",
                       "",
                       fusion.name_of(static_cast<int>(&operand - fusion.operands.data())),
                       fmt::format("at most {} elements", kMost),
                       std::to_string(operand.elements),
                       "",
                       -1};
    if (view.largest_index(kMaxBoxLines) * view.entries > kMost)
      return Refusal{"32-bit-offsets", "", "", fmt::format("at most {} rows", kMost), "more", "", -1};
    return std::nullopt;
  }
};

}  // namespace

const Engine& wgmma_engine() {
  static const WgmmaEngine engine;
  return engine;
}

}  // namespace fusor
