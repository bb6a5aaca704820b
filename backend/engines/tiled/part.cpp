// Owns the tiling, the vectors, the costs and the steps of a tiled contraction.
#include "backend/engines/tiled/part.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/rules.h"
#include "codegen/expr_emitter.h"
#include "core/ceil_div.h"
#include "core/fast_divisor.h"

namespace fusor {

namespace {

constexpr int64_t kThreads = 256;  // of codegen/device/tiled/tiling.cuh

ContractionSites sites_of(const Fusion& fusion, const Contraction& view) {
  if (view.is_convolution())
    return {operand_site(fusion, 0, 0), operand_site(fusion, 0, 1), result_site(fusion)};
  return {over_batch(operand_site(fusion, 0, 0), view.batch),
          over_batch(operand_site(fusion, 0, 1), view.batch), result_site(fusion)};
}

// --- Index width ---

bool needs_wide_index(const Contraction& view, const ContractionSites& sites, const Tiling& tiling) {
  return std::max({view.largest_index(tiling.tile.m + tiling.tile.n), tiling.items(),
                   blocks_of_sum(tiling.tiles, tiling.tile.elements(), 1), reach(sites.a), reach(sites.b),
                   reach(sites.y)}) > kMaxIndex32;
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

// --- Vectors ---

// The longest that divides the axis and moves in whole accesses.
int64_t longest(Widths widths, const Fusion& fusion, const Access& access, const ProductAxis& axis) {
  const Operand& operand = fusion.operands[static_cast<size_t>(access.operand)];
  for (const int64_t width : widths)
    if (axis.extent % width == 0 && moves_whole_vectors(access, operand, operand.type, axis.axis, width))
      return width;
  return 1;
}

enum class Side : uint8_t { first, second };

// Whether neighbours along the axis are padding all together or not at all: channels are; pixels are where
// every product reads the pixel of its own number. A window of several taps could reach over the edge in
// part.
bool whole_or_none(const Contraction& view, Side side, const ProductAxis& axis) {
  if (!view.is_convolution() || axis.axis < 2) return true;
  if (view.op == ContractionOp::wgrad && side == Side::first) return true;
  const WindowAxis& window = view.axes[static_cast<size_t>(axis.axis - 2)];
  return window.window == 1 && window.stride == 1 && window.start == 0 && window.input == window.output;
}

OperandLoad load_of(const Fusion& fusion, const Contraction& view, const Expr& site, Side side,
                    const std::vector<ProductAxis>& steps, const std::vector<ProductAxis>& others,
                    Widths widths) {
  OperandLoad load{runs_along(site, steps, others), adjacent_axis(site)};
  const ProductAxis& axis = fastest(load.along_k ? steps : others);
  const Access* const access = primary_access(site);
  if (access == nullptr || axis.axis != load.vector_axis || axis.step != 1) return load;
  if (!whole_or_none(view, side, axis)) return load;
  load.width = longest(widths, fusion, *access, axis);
  return load;
}

// Every vector lies inside its axis whole: the kernels have no tails of vectors.
ResultStore store_of(const Fusion& fusion, const Contraction& view, const Expr& y, Widths widths) {
  ResultStore store;
  const auto rows = view.rows_of_result();
  const auto columns = view.columns_of_result();
  store.along_n = runs_along(y, columns, rows);
  const ProductAxis& axis = fastest(store.along_n ? columns : rows);
  store.vector_axis = axis.axis;
  store.width = longest(widths, fusion, y.stores.front().access, axis);
  return store;
}

// --- Sources ---

KernelSite site(const char* name, Expr expr, int vector_axis) {
  const bool short_forms = fits_short_forms(expr);
  return {name, std::move(expr), vector_axis, short_forms};
}

}  // namespace

Tiling::Tiling(const Contraction& view, const TileShape& shape, int64_t parts) : tile(shape), split(parts) {
  along_m = ceil_div(view.m, tile.m);
  along_n = ceil_div(view.n, tile.n);
  tiles = view.entries * along_m * along_n;
  k_per_split = ceil_div(ceil_div(view.k, tile.k), split) * tile.k;
}

TiledContraction::TiledContraction(const Fusion& fusion_, const DeviceInfo& device, const TileShape& tile,
                                   int64_t split, const WidthsOfSites& widths)
    : fusion(fusion_),
      view(contraction_of(fusion_).value()),
      tiling(view, tile, split),
      sites(sites_of(fusion_, view)),
      load_a(load_of(fusion_, view, sites.a, Side::first, view.steps_of_first(), view.rows_of_first(),
                     widths.a)),
      load_b(load_of(fusion_, view, sites.b, Side::second, view.steps_of_second(), view.columns_of_second(),
                     widths.b)),
      store(store_of(fusion_, view, sites.y, widths.y)),
      index_bits(needs_wide_index(view, sites, tiling) ? 64 : 32),
      target(device.target()) {
  mark_whole_vectors(fusion, sites.a, load_a.vector_axis, load_a.width);
  mark_whole_vectors(fusion, sites.b, load_b.vector_axis, load_b.width);
  mark_whole_vectors(fusion, sites.y, store.vector_axis, store.width);
}

TiledResult TiledContraction::result() const {
  return {view,           tiling.tile.m, tiling.tile.n, tiling.along_m,
          tiling.along_n, tiling.tiles,  store.along_n, index_bits};
}

KernelSite TiledContraction::site_a() const { return site("A", sites.a, load_a.vector_axis); }
KernelSite TiledContraction::site_b() const { return site("B", sites.b, load_b.vector_axis); }
KernelSite TiledContraction::epilogue() const { return site("Y", sites.y, store.vector_axis); }

Launch TiledContraction::product(const std::string& kernel, const std::vector<ConfigValue>& specific,
                                 const KernelSite& a, const KernelSite& b) const {
  KernelSource source{"tiled/" + kernel + ".cuh", {a, b}, result().config(), target};
  source.config.insert(source.config.end(), {{"a_along_k", load_a.along_k ? 1 : 0},
                                             {"b_along_k", load_b.along_k ? 1 : 0},
                                             {"a_width", load_a.width},
                                             {"b_width", load_b.width}});
  source.config.insert(source.config.end(), specific.begin(), specific.end());
  source.config.push_back({"split", is_split() ? 1 : 0});
  Launch launch;
  result().write_arguments(launch.arguments);
  if (is_split()) {
    FastDivisor::of(tiling.tiles, index_bits).put(launch.arguments);
    launch.arguments.put_int(tiling.split);
    launch.arguments.put_int(tiling.k_per_split);
    launch.arguments.put_pointer(Patch::Kind::scratch, 0);
  } else {
    source.sites.push_back(epilogue());
    source.config.push_back({"vector", store.width});
  }
  for (const KernelSite& one : source.sites) write_arguments(launch.arguments, one, fusion);
  launch.entry = kernel;
  set_grid(launch, tiling.items(), kThreads);
  launch.source = std::make_shared<const KernelSource>(std::move(source));
  return launch;
}

Launch TiledContraction::sum_of_parts() const {
  return result().sum_of_parts(fusion, epilogue(), store.width, tiling.split, target);
}

int64_t TiledContraction::partial_bytes() const {
  return is_split() ? tiling.items() * tiling.tile.elements() * byte_size(view.compute) : 0;
}

Lowered TiledContraction::lowered(Launch product) const {
  Lowered lowered;
  lowered.steps.emplace_back(std::move(product));
  if (is_split()) {
    lowered.steps.emplace_back(sum_of_parts());
    lowered.scratch.push_back(partial_bytes());
  }
  lowered.guards =
      guards_of(fusion, {{sites.a, load_a.width}, {sites.b, load_b.width}, {sites.y, store.width}});
  return lowered;
}

double TiledContraction::elements_of_a() const {
  const auto k = static_cast<double>(ceil_div(view.k, tiling.tile.k) * tiling.tile.k);
  return static_cast<double>(tiling.tiles) * static_cast<double>(tiling.tile.m) * k;
}

double TiledContraction::elements_of_b() const {
  return elements_of_a() / static_cast<double>(tiling.tile.m) * static_cast<double>(tiling.tile.n);
}

double TiledContraction::inner_flops() const {
  return 2 * elements_of_a() * static_cast<double>(tiling.tile.n);
}

Work TiledContraction::work() const {
  const SiteCost a = cost_of(sites.a, fusion), b = cost_of(sites.b, fusion), y = cost_of(sites.y, fusion);
  const double results =
      static_cast<double>(view.entries) * static_cast<double>(view.m) * static_cast<double>(view.n);
  Work work;
  work.fp32_flops =
      2 * (elements_of_a() * a.instructions + elements_of_b() * b.instructions + results * y.instructions);
  work.special = elements_of_a() * a.special + elements_of_b() * b.special + results * y.special;
  work.dram_bytes = dram_bytes(fusion);
  work.l2_bytes = elements_of_a() * a.bytes + elements_of_b() * b.bytes + results * y.bytes;
  work.tiles = tiling.tiles;
  work.k_steps = tiling.k_per_split / tiling.tile.k;
  work.split = static_cast<int>(tiling.split);
  if (is_split()) {
    work.launches = 2;
    work.scratch_bytes = partial_bytes();
    work.l2_bytes += 2 * static_cast<double>(work.scratch_bytes);
  }
  return work;
}

std::optional<Refusal> refuse_tiling(const Fusion& fusion, const DeviceInfo& device) {
  if (auto refusal = refuse_cpu(device)) return refusal;
  if (auto refusal = refuse_phases(fusion)) return refusal;
  if (auto refusal = refuse_pair(fusion)) return refusal;
  if (fusion.anchors.size() != 1 || !is_contraction(fusion.anchors[0].attributes))
    return Refusal{"needs-anchor",
                   fusion.op_names.empty() ? "" : fusion.op_names.front(),
                   "",
                   "one matmul or convolution",
                   fmt::format("{} of them", fusion.anchors.size()),
                   "the elementwise engine takes fusions without one",
                   -1};
  if (auto refusal = refuse_epilogue_reductions(fusion)) return refusal;
  if (!contraction_of(fusion)) return refuse_other_domain(fusion);
  return std::nullopt;
}

std::vector<int64_t> tiles_up_to(int64_t extent, std::initializer_list<int64_t> sizes) {
  std::vector<int64_t> values;
  for (const int64_t size : sizes) {
    values.push_back(size);
    if (size >= extent) break;
  }
  return values;
}

std::vector<int64_t> splits_of(const Contraction& view, int64_t tile_k) {
  std::vector<int64_t> splits{1};
  while (splits.back() < 256 && splits.back() * tile_k < view.k) splits.push_back(splits.back() * 2);
  return splits;
}

int64_t split_for(const Work& whole, const std::vector<int64_t>& splits, int64_t least_steps,
                  const DeviceInfo& device) {
  const int64_t slots = int64_t{device.sm_count} * whole.tiles_per_sm;
  int64_t best = 1;
  for (const int64_t split : splits)
    if (whole.tiles * split <= slots && whole.k_steps / split >= least_steps) best = split;
  return best;
}

}  // namespace fusor
