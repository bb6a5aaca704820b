// Owns the schedule of the transposing kernel.
#include "backend/engines/elementwise/tiles.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/engines/elementwise/vectors.h"

namespace fusor::elementwise {

namespace {

// Fewer elements than this along one of its sides leave most of a transposing tile empty.
constexpr int64_t kMinTransposedExtent = 16;
constexpr size_t kMaxStaged = 2;

}  // namespace

std::vector<int> foreign_loads(const Expr& expr, int f, int v) {
  std::vector<int> loads;
  for (size_t i = 0; i < expr.nodes.size(); ++i) {
    const Node& node = expr.nodes[i];
    if (node.kind == Node::Kind::load && node.access.strides[f] == 1 && node.access.strides[v] > 1)
      loads.push_back(static_cast<int>(i));
  }
  return loads;
}

int staging_axis(const Expr& expr, int v) {
  if (expr.domain[v] < kMinTransposedExtent) return -1;
  const auto is_indexed = [](const auto& each) { return each.access.is_indexed(); };
  if (std::ranges::any_of(expr.nodes, is_indexed) || std::ranges::any_of(expr.stores, is_indexed)) return -1;
  for (int f = expr.domain.rank() - 1; f >= 0; --f) {
    if (f == v || expr.domain[f] < kMinTransposedExtent) continue;
    const size_t loads = foreign_loads(expr, f, v).size();
    if (loads >= 1 && loads <= kMaxStaged) return f;
  }
  return -1;
}

void stage_loads(ElementwiseSchedule& s, const Fusion& fusion, int unused) {
  const int f = s.last() - 1;
  for (const int load : foreign_loads(s.y.expr, f, s.last())) {
    Node& node = s.y.expr.nodes[static_cast<size_t>(load)];
    KernelSite x;
    x.name = fmt::format("X{}", s.staged.size());
    x.vector_axis = f;
    x.short_forms = s.y.short_forms;
    x.expr.domain = s.y.expr.domain;
    x.expr.nodes = {node};
    x.expr.yields = {0};
    mark_whole(fusion, x, s.vector, unused);
    node.kind = Node::Kind::input;
    node.input = static_cast<int>(s.staged.size());
    node.access = {};
    s.staged.push_back(std::move(x));
  }
}

bool moves_whole(const ElementwiseSchedule& s, const Fusion& fusion, int64_t vector) {
  if (vector < 2) return false;
  const Expr& expr = s.y.expr;
  const int v = s.last(), f = v - 1;
  const auto stored = [&](const Store& result) {
    return is_whole(fusion, expr, v, result.access, result.type, vector);
  };
  const std::vector<int> loads = foreign_loads(expr, f, v);
  const auto loaded = [&](int load) {
    const Node& node = expr.nodes[static_cast<size_t>(load)];
    return is_whole(fusion, expr, f, node.access, node.type, vector);
  };
  return std::ranges::all_of(expr.stores, stored) && std::ranges::all_of(loads, loaded);
}

void schedule_transpose(ElementwiseSchedule& s, const Fusion& fusion, const ElementwiseKnobs& knobs) {
  s.variant = ElementwiseSchedule::Variant::transpose;
  const int f = s.last() - 1;
  int64_t widest = 1;
  for (const int load : foreign_loads(s.y.expr, f, s.last()))
    widest = std::max(widest, byte_size(s.y.expr.nodes[static_cast<size_t>(load)].type));
  s.vector = kMaxAccessBytes / widest;
  // Accesses of 8 bytes, where those of 16 fall apart into elements.
  if (!moves_whole(s, fusion, s.vector) && moves_whole(s, fusion, s.vector / 2)) s.vector /= 2;
  if (knobs.vector) s.vector = std::clamp<int64_t>(power_of_two_to(*knobs.vector), 2, s.vector);
  // Every thread takes part in every pass over the tile's 8 * vector lines of 8 vectors.
  s.threads = std::min<int64_t>(std::min<int64_t>(knobs.threads.value_or(256), 256), 64 * s.vector);
  mark_whole(fusion, s.y, s.vector);
  stage_loads(s, fusion);
}

}  // namespace fusor::elementwise
