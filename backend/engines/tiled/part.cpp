// Owns the tiling, the vectors, the costs and the steps of a tiled contraction.
#include "backend/engines/tiled/part.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/reach.h"
#include "backend/engines/rules.h"
#include "codegen/text/parameters.h"
#include "core/ceil_div.h"

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

bool needs_wide_index(const TiledProblem& problem, const TiledSchedule& s) {
  return std::max({problem.view.largest_index(s.tile.m + s.tile.n), s.items(),
                   blocks_of_sum(s.tiles, s.tile.elements(), 1), reach(problem.sites.a),
                   reach(problem.sites.b), reach(problem.sites.y)}) > kMaxIndex32;
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

KernelSite epilogue(const TiledProblem& problem) {
  return site("Y", problem.sites.y, problem.store.vector_axis);
}

TiledResult result_of(const TiledProblem& problem, const TiledSchedule& s) {
  return {problem.view,          s.tile.m,    s.tile.n, s.along_m, s.along_n, s.tiles,
          problem.store.along_n, s.index_bits};
}

int64_t partial_bytes(const TiledProblem& problem, const TiledSchedule& s) {
  return s.is_split() ? s.items() * s.tile.elements() * byte_size(problem.view.compute) : 0;
}

}  // namespace

TiledProblem::TiledProblem(const Fusion& fusion_, const DeviceInfo& device, const WidthsOfSites& widths)
    : fusion(fusion_),
      view(contraction_of(fusion_).value()),
      sites(sites_of(fusion_, view)),
      load_a(load_of(fusion_, view, sites.a, Side::first, view.steps_of_first(), view.rows_of_first(),
                     widths.a)),
      load_b(load_of(fusion_, view, sites.b, Side::second, view.steps_of_second(), view.columns_of_second(),
                     widths.b)),
      store(store_of(fusion_, view, sites.y, widths.y)),
      target(device.target()) {
  mark_whole_vectors(fusion, sites.a, load_a.vector_axis, load_a.width);
  mark_whole_vectors(fusion, sites.b, load_b.vector_axis, load_b.width);
  mark_whole_vectors(fusion, sites.y, store.vector_axis, store.width);
}

TiledSchedule::TiledSchedule(const TiledProblem& problem, const TileShape& shape, int64_t parts, bool cluster)
    : tile(shape), split(parts), in_cluster(cluster && parts > 1) {
  const Contraction& view = problem.view;
  along_m = ceil_div(view.m, tile.m);
  along_n = ceil_div(view.n, tile.n);
  tiles = view.entries * along_m * along_n;
  k_per_split = ceil_div(ceil_div(view.k, tile.k), split) * tile.k;
  index_bits = needs_wide_index(problem, *this) ? 64 : 32;
}

bool is_plain(const Fusion& fusion, const Expr& site, DataType element) {
  const Node& value = yielded_node(site);
  return value.kind == Node::Kind::load && value.type == element &&
         fusion.operands[static_cast<size_t>(value.access.operand)].type == element;
}

KernelSite site_a(const TiledProblem& problem) {
  return site("A", problem.sites.a, problem.load_a.vector_axis);
}
KernelSite site_b(const TiledProblem& problem) {
  return site("B", problem.sites.b, problem.load_b.vector_axis);
}

Launch tiled_launch(const TiledProblem& problem, const TiledSchedule& s, const std::string& kernel,
                    const std::vector<ConfigValue>& specific, const KernelSite& a, const KernelSite& b,
                    const std::vector<FurtherSite>& further, int64_t block) {
  const TiledResult result = result_of(problem, s);
  KernelSource source{.root = "tiled/" + kernel + ".cuh",
                      .sites = {a, b},
                      .config = result.config(),
                      .target = problem.target,
                      .types = {"tiled/tiling.cuh"}};
  source.config.insert(source.config.end(), {{"a_along_k", problem.load_a.along_k},
                                             {"b_along_k", problem.load_b.along_k},
                                             {"a_width", problem.load_a.width},
                                             {"b_width", problem.load_b.width}});
  source.config.insert(source.config.end(), specific.begin(), specific.end());
  source.config.push_back({"split", s.is_split()});
  source.config.push_back({"cluster", s.in_cluster ? s.split : 1});
  // Vectors of the epilogue; parts are stored as they are.
  source.config.push_back(
      {"vector", s.is_split() ? 16 / byte_size(problem.view.compute) : problem.store.width});
  Parameters p(s.index_bits);
  result.append_to(p);
  if (s.is_split()) {
    p.divisor("tiles", s.tiles);
    p.wide("splits", s.split);
    p.wide("k_per_split", s.k_per_split);  // a multiple of the kernel's kTileK
    p.scratch("partials", "Sum", 0);
  }
  if (s.in_cluster) p.wide("k_per_split", s.k_per_split);
  if (block > 0) p.divisor("block", block);
  p.site("a", a, problem.fusion);
  p.site("b", b, problem.fusion);
  for (const auto& [parameter, site] : further) {
    source.sites.push_back(site);
    p.site(parameter, site, problem.fusion);
  }
  if (!s.is_split()) {
    source.sites.push_back(epilogue(problem));
    p.site("y", source.sites.back(), problem.fusion);
  }
  Launch launch;
  launch.entry = kernel;
  set_grid(launch, s.items(), kThreads);
  if (s.in_cluster) launch.cluster[0] = static_cast<uint32_t>(s.split);
  p.move_to(std::move(source), launch);
  return launch;
}

Lowered tiled_steps(const TiledProblem& problem, const TiledSchedule& s, Launch product) {
  Lowered lowered;
  lowered.steps.emplace_back(std::move(product));
  if (s.is_split()) {
    lowered.steps.emplace_back(
        result_of(problem, s)
            .sum_of_parts(problem.fusion, epilogue(problem), problem.store.width, s.split, problem.target));
    lowered.scratch.push_back(partial_bytes(problem, s));
  }
  lowered.guards = guards_of(problem.fusion, {{problem.sites.a, problem.load_a.width},
                                              {problem.sites.b, problem.load_b.width},
                                              {problem.sites.y, problem.store.width}});
  return lowered;
}

double elements_of_a(const TiledProblem& problem, const TiledSchedule& s) {
  const auto k = static_cast<double>(ceil_div(problem.view.k, s.tile.k) * s.tile.k);
  return static_cast<double>(s.tiles) * static_cast<double>(s.tile.m) * k;
}

double elements_of_b(const TiledProblem& problem, const TiledSchedule& s) {
  return elements_of_a(problem, s) / static_cast<double>(s.tile.m) * static_cast<double>(s.tile.n);
}

double inner_flops(const TiledProblem& problem, const TiledSchedule& s) {
  return 2 * elements_of_a(problem, s) * static_cast<double>(s.tile.n);
}

Work tiled_cost(const TiledProblem& problem, const TiledSchedule& s) {
  const Fusion& fusion = problem.fusion;
  const SiteCost a = cost_of(problem.sites.a, fusion), b = cost_of(problem.sites.b, fusion),
                 y = cost_of(problem.sites.y, fusion);
  const Contraction& view = problem.view;
  const double of_a = elements_of_a(problem, s), of_b = elements_of_b(problem, s);
  const double results =
      static_cast<double>(view.entries) * static_cast<double>(view.m) * static_cast<double>(view.n);
  Work work;
  work.fp32_flops = 2 * (of_a * a.instructions + of_b * b.instructions + results * y.instructions);
  work.special = of_a * a.special + of_b * b.special + results * y.special;
  work.dram_bytes = dram_bytes(fusion);
  work.l2_bytes = of_a * a.bytes + of_b * b.bytes + results * y.bytes;
  work.tiles = s.tiles;
  work.k_steps = s.k_per_split / s.tile.k;
  work.split = static_cast<int>(s.split);
  if (s.in_cluster) {
    // Blocks meet twice, and read each other's shared memory in between.
    constexpr double kBlock = 4e-7;
    work.start_s += kBlock * static_cast<double>(s.split - 1);
    work.l2_bytes += 2.0 * static_cast<double>(s.items() * s.tile.elements() * byte_size(view.compute));
  }
  if (s.is_split()) {
    work.launches = 2;
    work.scratch_bytes = partial_bytes(problem, s);
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
                   "the elementwise engine supports fusions without one",
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
  constexpr int64_t kMost = 256;
  std::vector<int64_t> splits{1};
  while (splits.back() < kMost && splits.back() * tile_k < view.k) splits.push_back(splits.back() + 1);
  return splits;
}

int64_t split_for(const Work& whole, const std::vector<int64_t>& splits, int64_t least_steps,
                  const DeviceInfo& device) {
  const int64_t slots = int64_t{device.sm_count} * whole.tiles_per_sm;
  int64_t best = 1;
  for (int64_t split = 1; split <= splits.back(); split *= 2)
    if (whole.tiles * split <= slots && whole.k_steps / split >= least_steps) best = split;
  return best;
}

int64_t even_split_for(const Work& whole, const std::vector<int64_t>& splits, int64_t least_steps,
                       const DeviceInfo& device) {
  // Parts of a tile that is one of many cost their sum; a gain of less than a tenth is none.
  constexpr int64_t kFewParts = 4;
  constexpr double kGain = 0.9;
  const int64_t slots = int64_t{device.sm_count} * whole.tiles_per_sm;
  const int64_t most = std::min(splits.back(), whole.k_steps / least_steps);
  if (whole.tiles <= slots / 2)
    return std::clamp<int64_t>(slots / whole.tiles, 1, std::max<int64_t>(most, 1));
  const auto rounds = [&](int64_t split) {
    return static_cast<double>(ceil_div(whole.tiles * split, slots)) / static_cast<double>(split);
  };
  int64_t best = 1;
  for (int64_t split = 2; split <= std::min(kFewParts, most); ++split)
    if (rounds(split) < std::min(rounds(best), kGain * rounds(1))) best = split;
  return best;
}

}  // namespace fusor
