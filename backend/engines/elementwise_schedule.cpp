// Owns the choices of the elementwise engine's kernels.
#include "backend/engines/elementwise_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "codegen/expr_emitter.h"
#include "core/ceil_div.h"

namespace fusor {

namespace {

using Variant = ElementwiseSchedule::Variant;

constexpr int64_t kMaxAccessBytes = 16;
// Counts and offsets up to here leave a kernel with 32-bit indices room for rounding up to whole blocks.
constexpr int64_t kMaxIndex32 = (int64_t{1} << 31) - (int64_t{1} << 24);
// Fewer elements than this along one of its sides leave most of a transposing tile empty.
constexpr int64_t kMinTransposedExtent = 16;
constexpr size_t kMaxStaged = 2;
constexpr int64_t kStaticSharedBytes = 48 * 1024;
constexpr int64_t kMaxThreads = 1024;

int64_t power_of_two_from(int64_t value) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(value, 1))));
}
int64_t power_of_two_to(int64_t value) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(value, 1))));
}

template <class E, class Visitor>
void for_each_access(E& expr, Visitor&& visit) {
  for (auto& node : expr.nodes)
    if (node.kind == Node::Kind::load) visit(node.access, node.type);
  for (auto& result : expr.results) visit(result.access, result.type);
}

// A reduction over no axis at all is an elementwise result.
void make_elementwise(Expr& expr, Result& result) {
  const ReductionMode mode = result.reduction->mode;
  const DataType compute = result.reduction->compute;
  result.reduction.reset();
  const auto append = [&](PointwiseMode pointwise, std::array<int, 3> args) {
    Node node;
    node.kind = Node::Kind::pointwise;
    node.type = compute;
    node.pointwise.mode = pointwise;
    node.pointwise.compute = compute;
    node.args = args;
    node.op = result.op;
    expr.nodes.push_back(node);
    return static_cast<int>(expr.nodes.size()) - 1;
  };
  switch (mode) {
    case ReductionMode::norm1:
    case ReductionMode::norm2:
    case ReductionMode::amax:
      result.node = append(PointwiseMode::abs, {result.node, -1, -1});
      return;
    case ReductionMode::mul_no_zeros: {
      const int one = append(PointwiseMode::cmp_eq, {result.node, result.node, -1});
      result.node = append(PointwiseMode::binary_select, {result.node, one, result.node});
      return;
    }
    default:
      result.node = append(PointwiseMode::identity, {result.node, -1, -1});
  }
}

uint32_t mask_over_real_axes(const Expr& expr, const Result& result) {
  uint32_t mask = result.reduced;
  for (int axis = 0; axis < expr.domain.rank(); ++axis)
    if (expr.domain[axis] == 1) mask &= ~(1u << axis);
  return mask;
}

// Axes merged, reductions over nothing turned into stores.
Expr simplified(const Expr& given) {
  Expr expr = given;
  for (size_t i = 0; i < expr.results.size(); ++i) {
    Result& result = expr.results[i];
    if (!result.reduction) continue;
    result.reduced = mask_over_real_axes(given, given.results[i]);
    if (result.reduced == 0) make_elementwise(expr, result);
  }
  return merge_axes(expr);
}

// ---- Axes ----

// Bytes that move in whole accesses where `axis` is the vector axis; stores count double.
double adjacent_bytes(const Expr& expr, int axis) {
  const auto walked = [&](const Access& access, DataType type) {
    if (access.strides[axis] != 1) return 0.0;
    double bytes = static_cast<double>(byte_size(type));
    for (int i = 0; i < expr.domain.rank(); ++i)
      if (access.strides[i] != 0) bytes *= static_cast<double>(expr.domain[i]);
    return bytes;
  };
  double bytes = 0;
  for (const Node& node : expr.nodes)
    if (node.kind == Node::Kind::load) bytes += walked(node.access, node.type);
  for (const Result& result : expr.results)
    if (!result.reduction) bytes += 2 * walked(result.access, result.type);
  return bytes;
}

int choose_vector_axis(const Expr& expr) {
  int best = expr.domain.rank() - 1;
  for (int axis = best - 1; axis >= 0; --axis)
    if (adjacent_bytes(expr, axis) > adjacent_bytes(expr, best)) best = axis;
  return best;
}

// The axes that are `reduced` or not, in order, `last` behind the others of its kind.
Dims order_of(const Expr& expr, uint32_t reduced, bool wanted, int last) {
  Dims order;
  for (int axis = 0; axis < expr.domain.rank(); ++axis)
    if (axis != last && ((reduced >> axis & 1) != 0) == wanted) order.push_back(axis);
  if (last >= 0 && ((reduced >> last & 1) != 0) == wanted) order.push_back(last);
  return order;
}

Dims joined(Dims first, const Dims& second) {
  for (const int64_t axis : second) first.push_back(axis);
  return first;
}

// ---- Vectors ----

// Whether whole vectors along `axis` suit an access; along `unused` it is met in steps that do.
bool is_whole(const Fusion& fusion, const Expr& expr, int axis, const Access& access, DataType type,
              int64_t vector, int unused = -1) {
  if (access.strides[axis] != 1) return false;
  const int64_t size = byte_size(type);
  const int64_t bytes = std::min(vector * size, kMaxAccessBytes);
  if (fusion.operands[static_cast<size_t>(access.operand)].alignment % bytes != 0) return false;
  if (access.offset * size % bytes != 0) return false;
  for (int i = 0; i < expr.domain.rank(); ++i)
    if (i != axis && i != unused && access.strides[i] * size % bytes != 0) return false;
  return true;
}

// Whether at least half of the bytes that are adjacent could move in whole vectors.
bool mostly_whole(const Fusion& fusion, const Expr& expr, int axis, int64_t vector) {
  int64_t adjacent = 0;
  int64_t whole = 0;
  for_each_access(expr, [&](const Access& access, DataType type) {
    if (access.strides[axis] != 1) return;
    adjacent += byte_size(type);
    if (is_whole(fusion, expr, axis, access, type, vector)) whole += byte_size(type);
  });
  return adjacent > 0 && 2 * whole >= adjacent;
}

// 16 bytes of the narrowest type that is walked along the vector axis, within 32 of the widest.
int64_t widest_vector(const Expr& expr, int axis) {
  int64_t narrowest = 8;
  int64_t widest = 1;
  for_each_access(expr, [&](const Access& access, DataType type) {
    if (access.strides[axis] != 1) return;
    narrowest = std::min(narrowest, byte_size(type));
    widest = std::max(widest, byte_size(type));
  });
  return std::min(kMaxAccessBytes / narrowest, std::max<int64_t>(1, 2 * kMaxAccessBytes / widest));
}

int64_t choose_vector(const Fusion& fusion, const Expr& expr, int axis, int64_t asked) {
  int64_t vector = widest_vector(expr, axis);
  if (asked > 0) vector = std::min(vector, power_of_two_to(asked));
  while (vector > 1 && (vector > expr.domain[axis] || !mostly_whole(fusion, expr, axis, vector))) vector /= 2;
  return vector;
}

void mark_whole(const Fusion& fusion, KernelSite& site, int64_t vector, int unused = -1) {
  for_each_access(site.expr, [&](Access& access, DataType type) {
    access.whole_vectors =
        vector > 1 && is_whole(fusion, site.expr, site.vector_axis, access, type, vector, unused);
  });
}

// ---- Sizes ----

int64_t furthest(const Expr& expr, const Access& access) {
  int64_t reach = 0;
  for (int axis = 0; axis < expr.domain.rank(); ++axis)
    reach += (expr.domain[axis] - 1) * access.strides[axis];
  return reach;
}

int index_bits(const Expr& expr) {
  int64_t most = element_count(expr.domain);
  for_each_access(expr,
                  [&](const Access& access, DataType) { most = std::max(most, furthest(expr, access)); });
  for (const Node& node : expr.nodes)
    if (node.kind == Node::Kind::index)
      most = std::max(most, furthest(expr, node.access) + node.access.offset);
  return most > kMaxIndex32 ? 64 : 32;
}

// Text, and with it compile time, grows with every copy of an expression's lanes.
int64_t affordable_unroll(const Expr& expr, int64_t vector, int64_t wanted) {
  constexpr int64_t kMostLanes = 256;
  const int64_t steps = static_cast<int64_t>(expr.nodes.size() + expr.results.size());
  while (wanted > 1 && wanted * vector * steps > kMostLanes) wanted /= 2;
  return wanted;
}

// Bytes that one vector of every load moves from memory that no neighbour reads too.
int64_t streamed_bytes(const Expr& expr, int axis, int64_t vector) {
  int64_t bytes = 0;
  for (const Node& node : expr.nodes)
    if (node.kind == Node::Kind::load && node.access.strides[axis] != 0)
      bytes += byte_size(node.type) * (node.access.strides[axis] == 1 ? vector : 1);
  return bytes;
}

bool fits_short_forms(const Expr& expr) {
  return std::ranges::all_of(
      expr.results, [](const Result& result) { return is_real(result.type) && byte_size(result.type) <= 2; });
}

// ---- The five kernels ----

// The outer axis along which most loads are broadcast while they are walked along the vector axis; -1: none.
int broadcast_axis(const Expr& expr, int vector_axis) {
  int best = -1;
  int64_t most = 0;
  for (int axis = 0; axis < expr.domain.rank(); ++axis) {
    if (axis == vector_axis || expr.domain[axis] < 4) continue;
    int64_t bytes = 0;
    for (const Node& node : expr.nodes)
      if (node.kind == Node::Kind::load && node.access.strides[axis] == 0 &&
          node.access.strides[vector_axis] != 0)
        bytes += byte_size(node.type);
    if (bytes > most) {
      most = bytes;
      best = axis;
    }
  }
  return best;
}

void schedule_plain(ElementwiseSchedule& s, const ElementwiseKnobs& knobs, const DeviceInfo& device) {
  const Expr& expr = s.y.expr;
  s.threads = knobs.threads > 0 ? knobs.threads : 256;
  s.unroll_axis = broadcast_axis(expr, s.last());
  const int64_t streamed = streamed_bytes(expr, s.last(), s.vector);
  // Enough bytes in flight to hide the memory's latency, and a broadcast operand shared by four.
  const int64_t enough = streamed <= 4 ? 8 : s.unroll_axis >= 0 || streamed < 16 ? 4 : streamed < 32 ? 2 : 1;
  int64_t unroll = affordable_unroll(expr, s.vector, knobs.unroll > 0 ? knobs.unroll : enough);
  const bool row_tails = expr.domain[s.last()] % s.vector != 0;
  if (s.unroll_axis < 0 && row_tails && expr.domain.rank() > 1) unroll = 1;
  s.unroll = 1;
  const int64_t all = s.vectors(0, expr.domain.rank());
  // Small jobs spread over the device rather than over a thread's vectors.
  while (s.unroll < unroll && all >= s.threads * s.unroll * 2 * device.sm_count) s.unroll *= 2;
  if (s.unroll == 1) s.unroll_axis = -1;
}

// Loads that are adjacent along axis `f` and far apart along `v`, on which the stores are adjacent.
std::vector<int> foreign_loads(const Expr& expr, int f, int v) {
  std::vector<int> loads;
  for (size_t i = 0; i < expr.nodes.size(); ++i) {
    const Node& node = expr.nodes[i];
    if (node.kind == Node::Kind::load && node.access.strides[f] == 1 && node.access.strides[v] > 1)
      loads.push_back(static_cast<int>(i));
  }
  return loads;
}

// The axis f that a transposing kernel would stage along, or -1.
int staging_axis(const Expr& expr, int v) {
  if (expr.domain[v] < kMinTransposedExtent) return -1;
  for (int f = expr.domain.rank() - 1; f >= 0; --f) {
    if (f == v || expr.domain[f] < kMinTransposedExtent) continue;
    const size_t loads = foreign_loads(expr, f, v).size();
    if (loads >= 1 && loads <= kMaxStaged) return f;
  }
  return -1;
}

// Moves the foreign loads out of y into sites of their own, which y sees as anchor values.
void stage_loads(ElementwiseSchedule& s, const Fusion& fusion, int unused = -1) {
  const int f = s.last() - 1;
  for (const int load : foreign_loads(s.y.expr, f, s.last())) {
    Node& node = s.y.expr.nodes[static_cast<size_t>(load)];
    KernelSite x;
    x.name = fmt::format("X{}", s.staged.size());
    x.vector_axis = f;
    x.short_forms = s.y.short_forms;
    x.expr.domain = s.y.expr.domain;
    x.expr.nodes = {node};
    x.expr.value = 0;
    mark_whole(fusion, x, s.vector, unused);
    node.kind = Node::Kind::anchor;
    node.axis = static_cast<int>(s.staged.size());
    node.access = {};
    s.staged.push_back(std::move(x));
  }
}

// Whether all that a transposing kernel loads along f, or stores along v, moves in whole vectors.
bool moves_whole(const ElementwiseSchedule& s, const Fusion& fusion, int64_t vector) {
  if (vector < 2) return false;
  const Expr& expr = s.y.expr;
  const int v = s.last(), f = v - 1;
  const auto stored = [&](const Result& result) {
    return is_whole(fusion, expr, v, result.access, result.type, vector);
  };
  const std::vector<int> loads = foreign_loads(expr, f, v);
  const auto loaded = [&](int load) {
    const Node& node = expr.nodes[static_cast<size_t>(load)];
    return is_whole(fusion, expr, f, node.access, node.type, vector);
  };
  return std::ranges::all_of(expr.results, stored) && std::ranges::all_of(loads, loaded);
}

void schedule_transpose(ElementwiseSchedule& s, const Fusion& fusion, const ElementwiseKnobs& knobs) {
  s.variant = Variant::transpose;
  const int f = s.last() - 1;
  int64_t widest = 1;
  for (const int load : foreign_loads(s.y.expr, f, s.last()))
    widest = std::max(widest, byte_size(s.y.expr.nodes[static_cast<size_t>(load)].type));
  s.vector = kMaxAccessBytes / widest;
  // Accesses of 8 bytes, where those of 16 fall apart into elements.
  if (!moves_whole(s, fusion, s.vector) && moves_whole(s, fusion, s.vector / 2)) s.vector /= 2;
  if (knobs.vector > 0) s.vector = std::clamp<int64_t>(power_of_two_to(knobs.vector), 2, s.vector);
  // Every thread takes part in every pass over the tile's 8 * vector lines of 8 vectors.
  s.threads =
      std::min<int64_t>(knobs.threads > 0 ? std::min<int64_t>(knobs.threads, 256) : 256, 64 * s.vector);
  mark_whole(fusion, s.y, s.vector);
  stage_loads(s, fusion);
}

// ---- Small planes: those of neighbouring channels are one run of memory ----

// Whether the loads, or else the stores, run through planes, with vectors of channels on the other side.
bool has_run(const ElementwiseSchedule& s, const Fusion& fusion, int64_t vector) {
  const Expr& expr = s.y.expr;
  const int v = s.last(), f = v - 1;
  const std::vector<int> loads = foreign_loads(expr, f, v);
  if (loads.size() != 1 || vector < 2) return false;
  const Node& load = expr.nodes[static_cast<size_t>(loads[0])];
  const auto runs = [&](const Access& access) {
    return access.strides[f] == access.strides[v] * expr.domain[v];
  };
  const auto goes_along = [&](const Node& node) {
    return node.kind != Node::Kind::index &&
           (node.kind != Node::Kind::load || &node == &load || runs(node.access));
  };
  const auto is_stored_whole = [&](const Result& result) {
    return is_whole(fusion, expr, v, result.access, result.type, vector, s.run_loads ? -1 : f);
  };
  const bool run = s.run_loads ? load.access.strides[v] == expr.domain[f]
                               : std::ranges::all_of(expr.nodes, goes_along) &&
                                     std::ranges::all_of(expr.results, runs, &Result::access);
  return run && expr.domain[s.channel_axis()] % vector == 0 &&
         is_whole(fusion, expr, f, load.access, load.type, vector, s.run_loads ? v : -1) &&
         std::ranges::all_of(expr.results, is_stored_whole);
}

// A line of them where shared memory has room for it; more where planes are tiny, less where blocks are few;
// 0 where not even a sector of them has room.
int64_t channels_of_tile(const ElementwiseSchedule& s, int64_t vector, const DeviceInfo& device) {
  constexpr int64_t kLine = 8, kSector = 2, kMostVectors = 32;
  constexpr int64_t kEnoughBytes = 32 * 1024;
  const int64_t plane = s.domain()[s.plane_axis()], channels = s.domain()[s.channel_axis()];
  const int64_t images = element_count(s.domain()) / plane / channels;
  const auto bytes = [&](int64_t vectors) { return (plane | 1) * vectors * kMaxAccessBytes; };
  const auto blocks = [&](int64_t vectors) { return images * ceil_div(channels, vectors * vector); };
  int64_t vectors = kLine;
  while (vectors > 1 && vectors / 2 * vector >= channels) vectors /= 2;
  while (vectors > kSector && (bytes(vectors) > kStaticSharedBytes || 2 * blocks(vectors) < device.sm_count))
    vectors /= 2;
  if (bytes(vectors) > kStaticSharedBytes) return 0;
  while (vectors < kMostVectors && vectors * vector < channels && bytes(2 * vectors) <= kEnoughBytes &&
         blocks(2 * vectors) >= 2 * device.sm_count)
    vectors *= 2;
  return vectors * vector;
}

// Where a tile of 8 x 8 vectors would move elements one by one, or be mostly a plane's tail.
bool prefers_planes(const ElementwiseSchedule& s, const Fusion& fusion, int64_t vector) {
  const int64_t plane = s.domain()[s.plane_axis()], tile = 8 * vector;
  return !moves_whole(s, fusion, vector) || 10 * (ceil_div(plane, tile) * tile - plane) > plane;
}

// Takes the run that leaves least of a tile's channels empty: channels side by side may be a plane, too.
bool find_planes(ElementwiseSchedule& s, const Fusion& fusion, int64_t vector, const DeviceInfo& device) {
  const auto empty = [](const ElementwiseSchedule& one) {
    const int64_t channels = one.domain()[one.channel_axis()];
    return static_cast<double>(ceil_div(channels, one.channels) * one.channels) /
           static_cast<double>(channels);
  };
  ElementwiseSchedule found = s;
  for (const bool run_loads : {true, false}) {
    ElementwiseSchedule one = s;
    one.run_loads = run_loads;
    if (!has_run(one, fusion, vector)) continue;
    one.channels = channels_of_tile(one, vector, device);
    one.has_planes = one.channels > 0;
    if (one.has_planes && (!found.has_planes || empty(one) < empty(found))) found = one;
  }
  s = found;
  return s.has_planes;
}

// Schedules small planes where they are asked for, or promise more than tiles do.
bool schedule_planes(ElementwiseSchedule& s, const Fusion& fusion, const ElementwiseKnobs& knobs,
                     const DeviceInfo& device) {
  const std::vector<int> loads = foreign_loads(s.y.expr, s.last() - 1, s.last());
  const int64_t vector = kMaxAccessBytes / byte_size(s.y.expr.nodes[static_cast<size_t>(loads[0])].type);
  if (!find_planes(s, fusion, vector, device)) return false;
  if (knobs.stage != 2 && (knobs.stage == 1 || !prefers_planes(s, fusion, vector))) return false;
  s.variant = Variant::planes;
  s.vector = vector;
  s.threads = knobs.threads > 0 ? std::clamp<int64_t>(power_of_two_to(knobs.threads), 64, 256) : 256;
  // Along the channels a run goes on where the tile does.
  mark_whole(fusion, s.y, s.vector, s.run_loads ? -1 : s.channel_axis());
  stage_loads(s, fusion, s.run_loads ? s.channel_axis() : -1);
  s.staged[0].addressed = true;
  return true;
}

void split_reduction(ElementwiseSchedule& s, int64_t steps, int64_t least, int64_t unit,
                     const ElementwiseKnobs& knobs, int64_t wanted_blocks) {
  const int64_t most = std::max<int64_t>(1, steps / std::max<int64_t>(1, least));
  const int64_t splits = knobs.splits > 0 ? knobs.splits : power_of_two_to(wanted_blocks / s.blocks());
  s.splits = std::clamp<int64_t>(splits, 1, std::min<int64_t>(most, 4096));
  s.chunk = ceil_div(ceil_div(steps, s.splits), unit) * unit;
  s.splits = ceil_div(steps, s.chunk);
}

int64_t reduction_unroll(const ElementwiseSchedule& s, const ElementwiseKnobs& knobs) {
  const Expr& expr = s.y.expr;
  const int64_t enough = streamed_bytes(expr, s.y.vector_axis, s.vector) <= 4 ? 8 : 4;
  return affordable_unroll(expr, s.vector, knobs.unroll > 0 ? knobs.unroll : enough);
}

void schedule_rows(ElementwiseSchedule& s, const ElementwiseKnobs& knobs, const DeviceInfo& device) {
  s.variant = Variant::rows;
  s.threads = knobs.threads > 0 ? knobs.threads : 256;
  s.unroll = reduction_unroll(s, knobs);
  const int64_t steps = s.vectors(s.kept, s.domain().rank());
  s.group = std::min(s.threads, power_of_two_from(ceil_div(steps, s.unroll)));
  // With few rows, more threads to each.
  while (s.group < s.threads && s.group < steps && s.blocks() < device.sm_count) s.group *= 2;
  split_reduction(s, steps, 2 * s.group * s.unroll, s.group, knobs, 2048 / s.threads * device.sm_count);
}

void schedule_columns(ElementwiseSchedule& s, const ElementwiseKnobs& knobs, const DeviceInfo& device) {
  s.variant = Variant::columns;
  const int64_t accumulator = accumulator_bytes(s.y);
  s.threads = knobs.threads > 0 ? knobs.threads : 256;
  while (s.threads > 64 && accumulator * s.vector * s.threads / 2 > kStaticSharedBytes) s.threads /= 2;
  s.unroll = reduction_unroll(s, knobs);
  const int64_t steps = s.vectors(s.kept, s.domain().rank());
  const int64_t lanes = std::clamp<int64_t>(power_of_two_to(steps / s.unroll), 1, s.threads / 32);
  s.group = std::min(s.threads / lanes, power_of_two_from(s.vectors(0, s.kept)));
  const int64_t lanes_of_block = s.threads / s.group;
  split_reduction(s, steps, 2 * lanes_of_block * s.unroll, lanes_of_block, knobs,
                  1024 / s.threads * device.sm_count);
}

// Vectors for columns: accumulators must fit registers, and no column may be left over.
int64_t column_vector(const KernelSite& site, int axis, int64_t vector) {
  const int64_t accumulator = accumulator_bytes(site);
  while (vector > 1 && (site.expr.domain[axis] % vector != 0 || vector * accumulator > 128)) vector /= 2;
  return vector;
}

}  // namespace

int64_t ElementwiseSchedule::vectors(int first, int end) const {
  int64_t count = 1;
  for (int axis = first; axis < end; ++axis)
    count *= axis == y.vector_axis ? ceil_div(domain()[axis], vector) : domain()[axis];
  return count;
}

int64_t ElementwiseSchedule::blocks() const {
  const int rank = domain().rank();
  switch (variant) {
    case Variant::transpose: {
      int64_t tiles = ceil_div(domain()[rank - 2], 8 * vector) * ceil_div(domain()[rank - 1], 8 * vector);
      for (int axis = 0; axis < rank - 2; ++axis) tiles *= domain()[axis];
      return tiles;
    }
    case Variant::planes: {
      int64_t tiles = ceil_div(domain()[channel_axis()], channels);
      for (int axis = 0; axis < rank - 2; ++axis) tiles *= domain()[axis];
      return tiles;
    }
    case Variant::rows:
      return ceil_div(vectors(0, kept), threads / group);
    case Variant::columns:
      return ceil_div(vectors(0, kept), group);
    case Variant::plain:
      break;
  }
  if (unroll_axis < 0) return ceil_div(vectors(0, rank), threads * unroll);
  const int64_t groups = vectors(0, rank) / domain()[unroll_axis] * ceil_div(domain()[unroll_axis], unroll);
  return ceil_div(groups, threads);
}

int64_t ElementwiseSchedule::shared_bytes() const {
  if (variant != Variant::planes) return 0;
  return (domain()[plane_axis()] | 1) * (channels / vector) * kMaxAccessBytes;
}

std::optional<uint32_t> shared_reduction_mask(const Expr& expr, int* differing) {
  uint32_t shared = 0;
  for (size_t i = 0; i < expr.results.size(); ++i) {
    if (!expr.results[i].reduction) continue;
    const uint32_t mask = mask_over_real_axes(expr, expr.results[i]);
    if (mask == 0) continue;
    if (shared != 0 && mask != shared) {
      if (differing != nullptr) *differing = static_cast<int>(i);
      return std::nullopt;
    }
    shared = mask;
  }
  return shared;
}

ElementwiseSchedule schedule_elementwise(const Fusion& fusion, int expr_index, const ElementwiseKnobs& knobs,
                                         const DeviceInfo& device) {
  const Expr expr = simplified(fusion.after[static_cast<size_t>(expr_index)]);
  const uint32_t reduced = shared_reduction_mask(expr).value_or(0);
  const int vector_axis = choose_vector_axis(expr);

  ElementwiseSchedule s;
  s.y = {std::string("Y"), {}, 0, fits_short_forms(expr)};
  s.index_bits = index_bits(expr);
  if (reduced != 0) {
    s.y.expr = select_axes(expr, joined(order_of(expr, reduced, false, vector_axis),
                                        order_of(expr, reduced, true, vector_axis)));
    s.kept = expr.domain.rank() - std::popcount(reduced);
    const bool rows = (reduced >> vector_axis & 1) != 0;
    s.y.vector_axis = rows ? s.last() : s.kept - 1;
    s.vector = choose_vector(fusion, s.y.expr, s.y.vector_axis, knobs.vector);
    if (!rows) s.vector = column_vector(s.y, s.y.vector_axis, s.vector);
    mark_whole(fusion, s.y, s.vector);
    rows ? schedule_rows(s, knobs, device) : schedule_columns(s, knobs, device);
    return s;
  }

  const int staged_axis = staging_axis(expr, vector_axis);
  s.can_stage = staged_axis >= 0;
  const bool stages = s.can_stage && knobs.stage != 0;
  Dims order;
  for (int axis = 0; axis < expr.domain.rank(); ++axis)
    if (axis != vector_axis && !(stages && axis == staged_axis)) order.push_back(axis);
  if (stages) order.push_back(staged_axis);
  order.push_back(vector_axis);
  s.y.expr = select_axes(expr, order);
  s.y.vector_axis = s.last();
  if (stages) {
    if (!schedule_planes(s, fusion, knobs, device)) schedule_transpose(s, fusion, knobs);
  } else {
    s.vector = choose_vector(fusion, s.y.expr, s.last(), knobs.vector);
    mark_whole(fusion, s.y, s.vector);
    schedule_plain(s, knobs, device);
  }
  return s;
}

}  // namespace fusor
