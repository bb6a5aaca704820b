// Owns the choices of the elementwise engine: which kernel carries out an Expr, over which axes in which
// order, and the plain kernel's schedule.
#include "backend/engines/elementwise/schedule.h"

#include <algorithm>
#include <bit>
#include <string>

#include "backend/engines/counts.h"
#include "backend/engines/elementwise/planes.h"
#include "backend/engines/elementwise/reduce.h"
#include "backend/engines/elementwise/simplify.h"
#include "backend/engines/elementwise/tiles.h"
#include "backend/engines/elementwise/vectors.h"
#include "backend/engines/reach.h"
#include "backend/engines/short_forms.h"
#include "core/ceil_div.h"

namespace fusor {

using namespace elementwise;

namespace {

using Variant = ElementwiseSchedule::Variant;

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

// ---- The plain kernel ----

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

// Unless asked for, no vector of a result is wider than one access: threads that store two leave gaps between
// neighbours' (int4 to fp16, 4096 x 4096 on an H200: 23.6 us instead of 12.5).
int64_t plain_vector(const Fusion& fusion, const Expr& expr, int axis, std::optional<int64_t> asked) {
  int64_t vector = choose_vector(fusion, expr, axis, asked.value_or(0));
  if (asked.value_or(0) > 0) return vector;
  for (const Store& result : expr.stores)
    if (result.access.strides[axis] == 1) vector = std::min(vector, kMaxAccessBytes / byte_size(result.type));
  return vector;
}

void schedule_plain(ElementwiseSchedule& s, const ElementwiseKnobs& knobs, const DeviceInfo& device) {
  const Expr& expr = s.y.expr;
  s.threads = knobs.threads.value_or(256);
  s.unroll_axis = broadcast_axis(expr, s.last());
  const int64_t streamed = streamed_bytes(expr, s.last(), s.vector);
  // Enough bytes in flight to hide the memory's latency, and a broadcast operand shared by four.
  const int64_t enough = streamed <= 4 ? 8 : s.unroll_axis >= 0 || streamed < 16 ? 4 : streamed < 32 ? 2 : 1;
  int64_t unroll = affordable_unroll(expr, s.vector, knobs.unroll.value_or(enough));
  const bool row_tails = expr.domain[s.last()] % s.vector != 0;
  if (s.unroll_axis < 0 && row_tails && expr.domain.rank() > 1) unroll = 1;
  s.unroll = 1;
  const int64_t all = s.vectors(0, expr.domain.rank());
  // Small jobs spread over the device rather than over a thread's vectors.
  while (s.unroll < unroll && all >= s.threads * s.unroll * 2 * device.sm_count) s.unroll *= 2;
  if (s.unroll == 1) s.unroll_axis = -1;
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

ElementwiseProblem::ElementwiseProblem(const Fusion& fusion_, const DeviceInfo& device_)
    : fusion(fusion_), device(device_) {
  for (const Site& site : fusion.sites) {
    ElementwiseSite& facts = sites.emplace_back();
    facts.expr = simplified_counts(site.expr, fusion, simplified);
    facts.reduced = shared_reduction_mask(facts.expr).value_or(0);
    facts.vector_axis = choose_vector_axis(facts.expr);
    const bool has_packed =
        std::ranges::any_of(
            facts.expr.nodes,
            [](const Node& node) { return node.kind == Node::Kind::load && is_packed(node.type); }) ||
        std::ranges::any_of(facts.expr.stores, [](const Store& store) { return is_packed(store.type); });
    if (facts.reduced == 0 && !has_packed) facts.staged_axis = staging_axis(facts.expr, facts.vector_axis);
    facts.index_bits = index_bits(facts.expr);
    facts.short_forms = fits_short_forms(facts.expr);
  }
}

ElementwiseSchedule schedule_elementwise(const ElementwiseProblem& problem, size_t site,
                                         const ElementwiseKnobs& knobs) {
  const auto& [expr, reduced, vector_axis, staged_axis, bits, short_forms] = problem.sites[site];
  const Fusion& fusion = problem.fusion;
  const DeviceInfo& device = problem.device;

  ElementwiseSchedule s;
  s.y = {.name = "Y", .expr = {}, .short_forms = short_forms, .aligned = true};
  s.index_bits = bits;
  if (reduced != 0) {
    s.y.expr = select_axes(expr, joined(order_of(expr, reduced, false, vector_axis),
                                        order_of(expr, reduced, true, vector_axis)));
    s.kept = expr.domain.rank() - std::popcount(reduced);
    const bool rows = (reduced >> vector_axis & 1) != 0;
    s.y.vector_axis = rows ? s.last() : s.kept - 1;
    s.vector = choose_vector(fusion, s.y.expr, s.y.vector_axis, knobs.vector.value_or(0));
    if (!rows) s.vector = column_vector(s.y, s.y.vector_axis, s.vector);
    mark_whole(fusion, s.y, s.vector);
    rows ? schedule_rows(s, knobs, device) : schedule_columns(s, knobs, device);
    return s;
  }

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
    s.vector = plain_vector(fusion, s.y.expr, s.last(), knobs.vector);
    mark_whole(fusion, s.y, s.vector);
    mark_pairs(fusion, s.y, s.vector);
    mark_large(device, s.y, s.vector);
    schedule_plain(s, knobs, device);
  }
  return s;
}

}  // namespace fusor
