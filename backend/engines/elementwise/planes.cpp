// Owns the schedule of the kernel of small planes.
#include "backend/engines/elementwise/planes.h"

#include <algorithm>

#include "backend/engines/elementwise/tiles.h"
#include "backend/engines/elementwise/vectors.h"
#include "core/ceil_div.h"

namespace fusor::elementwise {

namespace {

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
  const auto is_stored_whole = [&](const Store& result) {
    return is_whole(fusion, expr, v, result.access, result.type, vector, s.run_loads ? -1 : f);
  };
  const bool run = s.run_loads ? load.access.strides[v] == expr.domain[f]
                               : std::ranges::all_of(expr.nodes, goes_along) &&
                                     std::ranges::all_of(expr.stores, runs, &Store::access);
  return run && expr.domain[s.channel_axis()] % vector == 0 &&
         is_whole(fusion, expr, f, load.access, load.type, vector, s.run_loads ? v : -1) &&
         std::ranges::all_of(expr.stores, is_stored_whole);
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

}  // namespace

bool schedule_planes(ElementwiseSchedule& s, const Fusion& fusion, const ElementwiseKnobs& knobs,
                     const DeviceInfo& device) {
  const std::vector<int> loads = foreign_loads(s.y.expr, s.last() - 1, s.last());
  const int64_t vector = kMaxAccessBytes / byte_size(s.y.expr.nodes[static_cast<size_t>(loads[0])].type);
  if (!find_planes(s, fusion, vector, device)) return false;
  if (knobs.stage != 2 && (knobs.stage == 1 || !prefers_planes(s, fusion, vector))) return false;
  s.variant = ElementwiseSchedule::Variant::planes;
  s.vector = vector;
  s.threads = std::clamp<int64_t>(power_of_two_to(knobs.threads.value_or(256)), 64, 256);
  // Along the channels a run goes on where the tile does.
  mark_whole(fusion, s.y, s.vector, s.run_loads ? -1 : s.channel_axis());
  stage_loads(s, fusion, s.run_loads ? s.channel_axis() : -1);
  s.staged[0].addressed = true;
  return true;
}

}  // namespace fusor::elementwise
