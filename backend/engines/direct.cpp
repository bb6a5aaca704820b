// Owns the direct engine: matmul and convolutions of any layout and type on the CUDA cores. Its rules, knobs,
// costs and steps; the kernels are codegen/device/direct.cuh and direct_finish.cuh.
#include <algorithm>
#include <array>
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

// The constants of codegen/device/micro_tile.cuh.
constexpr int64_t kThreads = 256;
constexpr int64_t kTileK = 16;
constexpr int64_t kMaxVector = 4;
// Numbers up to here leave a kernel with 32-bit indices room for the rounding up to whole tiles.
constexpr int64_t kMaxIndex32 = std::numeric_limits<int32_t>::max() - 4096;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The knobs of one candidate and the grid that follows from them.
struct Tiling {
  int64_t tile_m = 64, tile_n = 64, split = 1;
  int64_t along_m = 1, along_n = 1;  // tiles along each axis
  int64_t tiles = 1;                 // of all batch entries
  int64_t k_per_split = 0;           // a multiple of kTileK

  Tiling(const Contraction& view, const EngineConfig& config)
      : tile_m(config.knob("tile_m", 64)), tile_n(config.knob("tile_n", 64)), split(config.knob("split", 1)) {
    along_m = ceil_div(view.m, tile_m);
    along_n = ceil_div(view.n, tile_n);
    tiles = view.entries * along_m * along_n;
    k_per_split = ceil_div(ceil_div(view.k, kTileK), split) * kTileK;
  }
  int64_t items() const { return tiles * split; }
  int64_t tile_elements() const { return tile_m * tile_n; }
  /// Blocks of the second launch of a split, one vector of `width` a thread.
  int64_t finishing_blocks(int64_t width) const {
    return tiles * ceil_div(tile_elements() / width, kThreads);
  }
};

// The three sites over the axes that the kernel speaks of.
struct Sites {
  Expr a, b, y;
};

Sites sites_of(const Fusion& fusion, const Contraction& view) {
  if (view.is_convolution()) return {fusion.before[0], fusion.before[1], fusion.after[0]};
  return {over_batch(fusion.before[0], view.batch), over_batch(fusion.before[1], view.batch),
          fusion.after[0]};
}

// --- Index width ---

bool needs_wide_index(const Contraction& view, const Sites& sites, const Tiling& tiling) {
  return std::max({view.largest_index(tiling.tile_m + tiling.tile_n), tiling.items(),
                   tiling.finishing_blocks(1), reach(sites.a), reach(sites.b), reach(sites.y)}) > kMaxIndex32;
}

// --- Which way threads run ---

// Whether neighbours along `one` lie closer together in memory than neighbours along `other`; where they lie
// equally close, whether there are as many of them.
bool runs_along(const Expr& site, const std::vector<ProductAxis>& one,
                const std::vector<ProductAxis>& other) {
  const Access* const access = primary_access(site);
  if (access == nullptr) return true;
  // A broadcast axis has no order in memory of its own.
  const auto distance = [&](const std::vector<ProductAxis>& axes) {
    const int64_t stride = neighbour_stride(*access, axes);
    return stride == 0 || fastest(axes).extent == 1 ? std::numeric_limits<int64_t>::max() : stride;
  };
  if (distance(one) != distance(other)) return distance(one) < distance(other);
  return fastest(one).extent >= fastest(other).extent;
}

// The axis of the site with adjacent elements, which needs no stride among the arguments; else the last.
int adjacent_axis(const Expr& site) {
  const Access* const access = primary_access(site);
  for (int i = site.domain.rank() - 1; access != nullptr && i >= 0; --i)
    if (access->strides[i] == 1 && site.domain[i] > 1) return i;
  return site.domain.rank() - 1;
}

// --- Vectors of the loads ---

// How an operand is loaded: along k or across it, whichever is adjacent in memory, in vectors of `width`
// elements.
struct OperandLoad {
  bool along_k = true;
  int vector_axis = 0;
  int64_t width = 1;
};

OperandLoad load_of(const Fusion& fusion, const Contraction& view, const Expr& site,
                    const std::vector<ProductAxis>& steps, const std::vector<ProductAxis>& others) {
  OperandLoad load{runs_along(site, steps, others), adjacent_axis(site)};
  const ProductAxis& axis = fastest(load.along_k ? steps : others);
  const Access* const access = primary_access(site);
  // A vector of pixels or taps could be padding in part; one of channels is inside whole or not at all.
  const bool whole_or_none = !view.is_convolution() || axis.axis < 2;
  if (access == nullptr || !whole_or_none || axis.axis != load.vector_axis || axis.step != 1) return load;
  const Operand& operand = fusion.operands[static_cast<size_t>(access->operand)];
  if (axis.extent % kMaxVector == 0 &&
      moves_whole_vectors(*access, operand, operand.type, axis.axis, kMaxVector))
    load.width = kMaxVector;
  return load;
}

// --- Vectors of the finish ---

struct Finish {
  bool along_n = true;
  int vector_axis = 0;
  int64_t width = 1;  // elements of a vector
};

Finish finish_of(const Fusion& fusion, const Contraction& view, const Expr& y) {
  Finish finish;
  const auto rows = view.rows_of_result();
  const auto columns = view.columns_of_result();
  finish.along_n = runs_along(y, columns, rows);
  const auto& axes = finish.along_n ? columns : rows;
  const ProductAxis& axis = fastest(axes);
  finish.vector_axis = axis.axis;
  // Every vector lies inside its axis whole: the kernel has no tails of vectors.
  if (axis.extent % kMaxVector != 0) return finish;
  const Result& store = y.results.front();
  const Operand& operand = fusion.operands[static_cast<size_t>(store.access.operand)];
  if (moves_whole_vectors(store.access, operand, store.type, axis.axis, kMaxVector))
    finish.width = kMaxVector;
  return finish;
}

// --- Sources ---

KernelSite site(const char* name, Expr expr, int vector_axis) {
  const bool short_forms = fits_short_forms(expr);
  return {name, std::move(expr), vector_axis, short_forms};
}

// What direct_tiling.cuh calls FUSOR_COMPUTE.
int64_t compute_number(DataType compute) {
  constexpr std::array kOrder{DataType::f32, DataType::f64, DataType::i32, DataType::i64};
  return std::ranges::find(kOrder, compute) - kOrder.begin();
}

// A grid of that many blocks or a few more, which return at once: its first axis is limited to 2^31 - 1.
void set_grid(Launch& launch, int64_t blocks) {
  constexpr int64_t kMaxGrid = std::numeric_limits<int32_t>::max();
  launch.grid[0] = static_cast<uint32_t>(std::min(blocks, kMaxGrid));
  launch.grid[1] = static_cast<uint32_t>(ceil_div(blocks, kMaxGrid));
  launch.block[0] = kThreads;
}

// All that the two kernels share.
struct Lowering {
  const Fusion& fusion;
  Contraction view;
  Tiling tiling;
  Sites sites;
  OperandLoad load_a, load_b;
  Finish finish;
  int index_bits;
  std::string target;

  Lowering(const Fusion& fusion_, const EngineConfig& config, const DeviceInfo& device)
      : fusion(fusion_),
        view(contraction_of(fusion_).value()),
        tiling(view, config),
        sites(sites_of(fusion_, view)),
        load_a(load_of(fusion_, view, sites.a, view.steps_of_first(), view.rows_of_first())),
        load_b(load_of(fusion_, view, sites.b, view.steps_of_second(), view.columns_of_second())),
        finish(finish_of(fusion_, view, sites.y)),
        index_bits(needs_wide_index(view, sites, tiling) ? 64 : 32),
        target(device.target()) {
    mark_whole_vectors(fusion, sites.a, load_a.vector_axis, load_a.width);
    mark_whole_vectors(fusion, sites.b, load_b.vector_axis, load_b.width);
    mark_whole_vectors(fusion, sites.y, finish.vector_axis, finish.width);
  }

  bool is_split() const { return tiling.split > 1; }

  std::vector<ConfigValue> config() const {
    std::vector<ConfigValue> values{{"index_bits", index_bits},
                                    {"compute", compute_number(view.compute)},
                                    {"tile_m", tiling.tile_m},
                                    {"tile_n", tiling.tile_n},
                                    {"y_along_n", finish.along_n ? 1 : 0}};
    view.write_config(values);
    return values;
  }

  KernelSite epilogue() const { return site("Y", sites.y, finish.vector_axis); }

  void write_product(ArgumentBlock& block) const {
    view.write_arguments(block, index_bits);
    block.put_int(tiling.tiles);
    FastDivisor::of(tiling.along_n, index_bits).put(block);
    FastDivisor::of(tiling.along_m, index_bits).put(block);
  }

  Launch product() const {
    KernelSource source{"direct.cuh", {}, config(), target};
    source.sites = {site("A", sites.a, load_a.vector_axis), site("B", sites.b, load_b.vector_axis)};
    source.config.push_back({"a_along_k", load_a.along_k ? 1 : 0});
    source.config.push_back({"b_along_k", load_b.along_k ? 1 : 0});
    source.config.push_back({"a_width", load_a.width});
    source.config.push_back({"b_width", load_b.width});
    source.config.push_back({"split", is_split() ? 1 : 0});
    Launch launch;
    write_product(launch.arguments);
    if (is_split()) {
      FastDivisor::of(tiling.tiles, index_bits).put(launch.arguments);
      launch.arguments.put_int(tiling.split);
      launch.arguments.put_int(tiling.k_per_split);
      launch.arguments.put_pointer(Patch::Kind::scratch, 0);
    } else {
      source.sites.push_back(epilogue());
      source.config.push_back({"vector", finish.width});
    }
    for (const KernelSite& operand : source.sites) fusor::write_arguments(launch.arguments, operand, fusion);
    launch.entry = "direct";
    set_grid(launch, tiling.items());
    launch.source = std::make_shared<const KernelSource>(std::move(source));
    return launch;
  }

  Launch sum_of_parts() const {
    KernelSource source{"direct_finish.cuh", {epilogue()}, config(), target};
    source.config.push_back({"vector", finish.width});
    Launch launch;
    write_product(launch.arguments);
    launch.arguments.put_int(tiling.split);
    launch.arguments.put_pointer(Patch::Kind::scratch, 0);
    fusor::write_arguments(launch.arguments, source.sites[0], fusion);
    launch.entry = "direct_finish";
    set_grid(launch, tiling.finishing_blocks(finish.width));
    launch.source = std::make_shared<const KernelSource>(std::move(source));
    return launch;
  }

  int64_t partial_bytes() const {
    return is_split() ? tiling.items() * tiling.tile_elements() * byte_size(view.compute) : 0;
  }
};

// --- Costs ---

// Of the multiply-adds of the inner loop against the peak. On an H200, 128 x 64 tiles reach 0.40 in a matmul
// of 4096 and 0.42 in a 3x3 convolution of 64 channels (bench/RESULTS.md); smaller tiles are scaled by what
// they load for each product.
double efficiency(const Lowering& lowering) {
  const int64_t elements = lowering.tiling.tile_elements();
  const double tile = elements >= 128 * 64  ? 0.41
                      : elements >= 64 * 64 ? 0.37
                      : elements >= 64 * 32 ? 0.3
                                            : 0.22;
  return tile * (lowering.index_bits == 64 ? 0.7 : 1.0);
}

// Blocks that an SM holds at once by ptxas' count of registers for sm_90a: 96, 56 and 40 a thread.
int tiles_per_sm(int64_t tile_elements, DataType compute) {
  const int blocks = tile_elements >= 128 * 64 ? 2 : tile_elements >= 64 * 64 ? 4 : 6;
  return byte_size(compute) == 8 ? blocks / 2 : blocks;
}

Work work_of(const Lowering& lowering) {
  const Fusion& fusion = lowering.fusion;
  const Contraction& view = lowering.view;
  const Tiling& tiling = lowering.tiling;
  const SiteCost a = cost_of(lowering.sites.a, fusion), b = cost_of(lowering.sites.b, fusion),
                 y = cost_of(lowering.sites.y, fusion);
  // Tails are computed like whole tiles.
  const auto tiles = static_cast<double>(tiling.tiles);
  const auto k = static_cast<double>(ceil_div(view.k, kTileK) * kTileK);
  const double elements_a = tiles * static_cast<double>(tiling.tile_m) * k;
  const double elements_b = tiles * static_cast<double>(tiling.tile_n) * k;
  const double results =
      static_cast<double>(view.entries) * static_cast<double>(view.m) * static_cast<double>(view.n);

  Work work;
  const double products = 2 * tiles * static_cast<double>(tiling.tile_elements()) * k;
  (view.compute == DataType::f64 ? work.fp64_flops : work.fp32_flops) = products;
  work.fp32_flops +=
      2 * (elements_a * a.instructions + elements_b * b.instructions + results * y.instructions);
  work.special = elements_a * a.special + elements_b * b.special + results * y.special;
  work.dram_bytes = dram_bytes(fusion);
  work.l2_bytes = elements_a * a.bytes + elements_b * b.bytes + results * y.bytes;
  work.tiles = tiling.tiles;
  work.tiles_per_sm = tiles_per_sm(tiling.tile_elements(), view.compute);
  work.k_steps = tiling.k_per_split / kTileK;
  work.stages = 2;
  work.split = static_cast<int>(tiling.split);
  work.efficiency = efficiency(lowering);
  if (lowering.is_split()) {
    work.launches = 2;
    work.scratch_bytes = lowering.partial_bytes();
    work.l2_bytes += 2 * static_cast<double>(work.scratch_bytes);
  }
  return work;
}

// --- The engine ---

// Values of a knob that cover the fusion: a tile larger than the product only adds zeros.
std::vector<int64_t> tiles_up_to(int64_t extent, std::initializer_list<int64_t> sizes) {
  std::vector<int64_t> values;
  for (const int64_t size : sizes) {
    values.push_back(size);
    if (size >= extent) break;
  }
  return values;
}

class DirectEngine final : public Engine {
 public:
  std::string_view name() const override { return "direct"; }
  int number() const override { return 20; }

  Support supports(const Fusion& fusion, const DeviceInfo& device) const override {
    if (device.is_cpu())
      return Support::no({"needs-gpu", "", "", "a CUDA device", device.name, "plan for a GPU", -1});
    if (fusion.anchors.size() != 1 || !is_contraction(fusion.anchors[0].attributes))
      return Support::no({"needs-anchor", fusion.op_names.empty() ? "" : fusion.op_names.front(), "",
                          "one matmul or convolution", fmt::format("{} of them", fusion.anchors.size()),
                          "the elementwise engine takes fusions without one", -1});
    if (auto refusal = refuse_epilogue_reductions(fusion)) return Support::no(std::move(*refusal));
    if (!contraction_of(fusion)) return Support::no(other_domain(fusion));
    return Support::yes();
  }

  std::vector<Knob> knobs(const Fusion& fusion, const DeviceInfo& /*device*/) const override {
    const Contraction view = contraction_of(fusion).value();
    // 8-byte sums take twice the registers and shared memory.
    std::vector<int64_t> tile_m = tiles_up_to(view.m, {32, 64, 128});
    if (byte_size(view.compute) == 8 && tile_m.back() == 128) tile_m.pop_back();
    std::vector<int64_t> split{1};
    while (split.back() < 256 && split.back() * kTileK < view.k) split.push_back(split.back() * 2);
    return {{"tile_m", tile_m}, {"tile_n", tiles_up_to(view.n, {32, 64})}, {"split", split}};
  }

  std::vector<EngineCandidate> candidates(const Fusion& fusion, const DeviceInfo& device) const override {
    const std::vector<Knob> offered = knobs(fusion, device);
    std::vector<EngineCandidate> list;
    const auto add = [&](int64_t tile_m, int64_t tile_n, int64_t split) {
      EngineConfig config{std::string(name()), revision(), {}};
      config.set("tile_m", std::min(tile_m, offered[0].values.back()));
      config.set("tile_n", std::min(tile_n, offered[1].values.back()));
      config.set("split", split);
      if (std::ranges::any_of(list, [&](const EngineCandidate& other) { return other.config == config; }))
        return;
      Work work = work_of(Lowering(fusion, config, device));
      list.push_back({std::move(config), work});
    };
    add(64, 64, 1);
    add(128, 64, 1);
    add(32, 32, 1);
    if (const int64_t split = split_for(list.front().work, offered[2].values, device); split > 1)
      add(64, 64, split);
    return list;
  }

  Lowered lower(const Fusion& fusion, const EngineConfig& config, const DeviceInfo& device) const override {
    const Lowering lowering(fusion, config, device);
    Lowered lowered;
    lowered.steps.emplace_back(lowering.product());
    if (lowering.is_split()) {
      lowered.steps.emplace_back(lowering.sum_of_parts());
      lowered.scratch.push_back(lowering.partial_bytes());
    }
    lowered.guards = guards_of(fusion, {{lowering.sites.a, lowering.load_a.width},
                                        {lowering.sites.b, lowering.load_b.width},
                                        {lowering.sites.y, lowering.finish.width}});
    return lowered;
  }

 private:
  // An op after the anchor broadcasts its result over a larger domain: it is cut off there.
  static Refusal other_domain(const Fusion& fusion) {
    const int anchor = fusion.anchors[0].op;
    int at = -1;
    for (const Node& node : fusion.after[0].nodes)
      if (node.op > anchor && (at < 0 || node.op < at)) at = node.op;
    return {"epilogue-over-result",
            fusion.op_name(anchor),
            "",
            "an epilogue over the shape of the anchor's result",
            to_string(fusion.after[0].domain),
            "give the ops that broadcast the result a fusion of their own",
            at};
  }

  // Parts that fill the device twice over where whole tiles do not, each of 8 steps or more.
  static int64_t split_for(const Work& whole, const std::vector<int64_t>& values, const DeviceInfo& device) {
    const int64_t slots = int64_t{device.sm_count} * whole.tiles_per_sm;
    int64_t best = 1;
    for (const int64_t split : values)
      if (whole.tiles * split <= slots && whole.k_steps / split >= 8) best = split;
    return best;
  }
};

}  // namespace

const Engine& direct_engine() {
  static const DirectEngine engine;
  return engine;
}

}  // namespace fusor
