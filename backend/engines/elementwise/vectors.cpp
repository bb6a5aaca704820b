// Owns the vectors of the elementwise engine's kernels.
#include "backend/engines/elementwise/vectors.h"

#include <algorithm>
#include <bit>

#include "codegen/text/places.h"

namespace fusor::elementwise {

namespace {

// Whether lanes along `axis` load neighbours at a place that an index says.
bool counts(const Expr& expr, const Node& load, int axis) {
  return load.access.is_indexed() && load.access.indexed[0].stride == 1 &&
         load.access.indexed[1].extent == 0 && load.access.strides[axis] == 0 && !is_packed(load.type) &&
         counts_along(expr, load.args[0], axis);
}

// Bytes that move in whole accesses where `axis` is the vector axis; stores count double. What an index takes
// differs along the axes of the index, too.
double adjacent_bytes(const Expr& expr, int axis) {
  const std::vector<uint32_t> axes = varying_axes(expr);
  double bytes = 0;
  for (size_t at = 0; at < expr.nodes.size(); ++at) {
    const Node& node = expr.nodes[at];
    if (node.kind != Node::Kind::load) continue;
    double loaded = static_cast<double>(byte_size(node.type));
    for (int i = 0; i < expr.domain.rank(); ++i)
      if ((axes[at] >> i & 1) != 0) loaded *= static_cast<double>(expr.domain[i]);
    if (node.access.strides[axis] == 1) bytes += loaded;
    if (counts(expr, node, axis)) bytes += loaded;
  }
  for (const Store& result : expr.stores) {
    if (reduction_of(expr, result) || result.access.strides[axis] != 1) continue;
    double stored = 2 * static_cast<double>(byte_size(result.type));
    for (int i = 0; i < expr.domain.rank(); ++i)
      if (result.access.strides[i] != 0) stored *= static_cast<double>(expr.domain[i]);
    bytes += stored;
  }
  return bytes;
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
  for (const Node& node : expr.nodes)
    if (node.kind == Node::Kind::load && counts(expr, node, axis)) {
      adjacent += byte_size(node.type);
      whole += byte_size(node.type);
    }
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
  for (const Node& node : expr.nodes)
    if (node.kind == Node::Kind::load && counts(expr, node, axis)) {
      narrowest = std::min(narrowest, byte_size(node.type));
      widest = std::max(widest, byte_size(node.type));
    }
  return std::min(kMaxAccessBytes / narrowest, std::max<int64_t>(1, 2 * kMaxAccessBytes / widest));
}

// Whether lanes go where an index of their own says, and not beside each other: neighbouring threads do
// better with neighbouring elements.
bool scatters_along(const Expr& expr, int axis) {
  const std::vector<uint32_t> axes = varying_axes(expr);
  return std::ranges::any_of(expr.stores, [&](const Store& store) {
    return store.index >= 0 && (axes[static_cast<size_t>(store.index)] >> axis & 1) != 0 &&
           !counts_along(expr, store.index, axis);
  });
}

}  // namespace

int64_t power_of_two_from(int64_t value) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(value, 1))));
}
int64_t power_of_two_to(int64_t value) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(value, 1))));
}

int choose_vector_axis(const Expr& expr) {
  int best = expr.domain.rank() - 1;
  for (int axis = best - 1; axis >= 0; --axis)
    if (adjacent_bytes(expr, axis) > adjacent_bytes(expr, best)) best = axis;
  return best;
}

bool is_whole(const Fusion& fusion, const Expr& expr, int axis, const Access& access, DataType type,
              int64_t vector, int unused) {
  if (access.strides[axis] != 1) return false;
  const int64_t size = byte_size(type);
  const int64_t bytes = std::min(vector * size, kMaxAccessBytes);
  if (fusion.operands[static_cast<size_t>(access.operand)].alignment % bytes != 0) return false;
  if (access.offset * size % bytes != 0) return false;
  for (int i = 0; i < expr.domain.rank(); ++i)
    if (i != axis && i != unused && access.strides[i] * size % bytes != 0) return false;
  for (const IndexedAxis& indexed : access.indexed)
    if (indexed.stride * size % bytes != 0) return false;
  return true;
}

int64_t choose_vector(const Fusion& fusion, const Expr& expr, int axis, int64_t asked) {
  if (scatters_along(expr, axis)) return 1;
  int64_t vector = widest_vector(expr, axis);
  if (asked > 0) vector = std::min(vector, power_of_two_to(asked));
  while (vector > 1 && (vector > expr.domain[axis] || !mostly_whole(fusion, expr, axis, vector))) vector /= 2;
  return vector;
}

void mark_whole(const Fusion& fusion, KernelSite& site, int64_t vector, int unused) {
  for_each_access(site.expr, [&](Access& access, DataType type) {
    access.whole_vectors =
        vector > 1 && is_whole(fusion, site.expr, site.vector_axis, access, type, vector, unused);
  });
  // Vectors of packed elements that are scattered are whole bytes, all of which one thread stores.
  for (Store& store : site.expr.stores)
    if (store.index >= 0 && is_packed(store.type) &&
        (vector % elements_per_byte(store.type) != 0 || site.expr.domain[site.vector_axis] % vector != 0))
      store.access.whole_vectors = false;
}

namespace {

// Whether the elements of `odd` lie behind those of `even`, and one access moves vectors of both.
bool is_pair(const Fusion& fusion, const KernelSite& site, const Access& even, const Access& odd,
             DataType type, int64_t vector) {
  if (even.operand != odd.operand || even.strides != odd.strides || even.offset + 1 != odd.offset ||
      even.strides[site.vector_axis] != 2 || even.is_indexed() || odd.is_indexed() || is_packed(type))
    return false;
  Access both = even;
  both.strides[site.vector_axis] = 1;
  return is_whole(fusion, site.expr, site.vector_axis, both, type, 2 * vector);
}

}  // namespace

void mark_pairs(const Fusion& fusion, KernelSite& site, int64_t vector) {
  // One pair of a place: who writes the text finds the other half by it.
  const auto is_taken = [](const auto& all, const Access& access) {
    return std::ranges::any_of(all, [&](const auto& other) {
      return other.access.whole_vectors && other.access.operand == access.operand &&
             other.access.strides == access.strides && other.access.offset == access.offset;
    });
  };
  const auto mark = [&](auto& all, auto may_pair) {
    for (auto& even : all)
      for (auto& odd : all)
        if (may_pair(even) && may_pair(odd) && even.type == odd.type &&
            is_pair(fusion, site, even.access, odd.access, even.type, vector) &&
            !is_taken(all, even.access) && !is_taken(all, odd.access))
          even.access.whole_vectors = odd.access.whole_vectors = true;
  };
  mark(site.expr.nodes, [](const Node& node) { return node.kind == Node::Kind::load; });
  mark(site.expr.stores,
       [&](const Store& store) { return store.index < 0 && reduction_of(site.expr, store) == nullptr; });
}

void mark_large(const DeviceInfo& device, KernelSite& site, int64_t vector) {
  for (Store& store : site.expr.stores) {
    int64_t bytes = byte_size(store.type);
    for (int axis = 0; axis < site.expr.domain.rank(); ++axis)
      if (store.access.strides[axis] != 0) bytes *= site.expr.domain[axis];
    store.stays_in_l2 = device.compute_capability >= 80 && store.access.whole_vectors && store.index < 0 &&
                        !is_packed(store.type) && store.access.strides[site.vector_axis] == 1 &&
                        byte_size(store.type) * vector % kMaxAccessBytes == 0 && bytes > device.l2_bytes;
  }
}

int64_t streamed_bytes(const Expr& expr, int axis, int64_t vector) {
  int64_t bytes = 0;
  for (const Node& node : expr.nodes)
    if (node.kind == Node::Kind::load && node.access.strides[axis] != 0)
      bytes += byte_size(node.type) * (node.access.strides[axis] == 1 ? vector : 1);
  return bytes;
}

int64_t affordable_unroll(const Expr& expr, int64_t vector, int64_t wanted) {
  constexpr int64_t kMostLanes = 256;
  const auto is_lane = [](const Node& node) { return node.kind != Node::Kind::reduce; };
  const int64_t steps = std::ranges::count_if(expr.nodes, is_lane) + std::ssize(expr.stores);
  while (wanted > 1 && wanted * vector * steps > kMostLanes) wanted /= 2;
  return wanted;
}

}  // namespace fusor::elementwise
