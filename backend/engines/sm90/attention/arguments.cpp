// Owns the arguments that attention's kernels share, and the alignment of what they reach.
#include "backend/engines/sm90/attention/arguments.h"

#include <algorithm>
#include <utility>

#include "backend/engines/contraction/epilogue.h"

namespace fusor::attention {

namespace {

// One at least: an array has a size.
void append_bounds(Parameters& p, const char* name, std::vector<KeyBound> bounds) {
  if (bounds.empty()) bounds.emplace_back();
  p.array(name, "KeyBound", static_cast<int>(bounds.size()), [&](int i) {
    p.wide("slope", bounds[static_cast<size_t>(i)].slope);
    p.wide("offset", bounds[static_cast<size_t>(i)].offset);
  });
}

}  // namespace

void append_map(Parameters& p, const char* name, const Rows& rows, int64_t box) {
  TensorMap map = rows.map;
  map.box = {kLine, box, 1, 1, 1};
  p.tensor_map(name, map, rows.operand, rows.byte_offset);
}

void append_queue(Parameters& p, int64_t tiles, int64_t entries, int64_t section) {
  p.group("queue", "TileQueue", [&] {
    p.wide("tiles", tiles);
    p.wide("entries", entries);
    p.wide("section", section);
  });
}

void append_visible(Parameters& p, const Bounds& bounds) {
  p.group("visible", "Visible<Config::lower, Config::upper>", [&] {
    append_bounds(p, "lower", bounds.lower);
    append_bounds(p, "upper", bounds.upper);
  });
}

void append_divisors(Parameters& p, const char* name, std::vector<int64_t> divisors) {
  divisors.push_back(1);
  p.divisors(name, divisors);
}

Expr without_last_rounding(Expr y) {
  for (int i = 0; i < std::ssize(y.nodes); ++i) {
    const Node& node = y.node(i);
    if (node.kind != Node::Kind::pointwise || node.pointwise.mode != PointwiseMode::identity) continue;
    const int from = node.args[0];
    int readers = 0;
    for (const Node& reader : y.nodes) readers += static_cast<int>(std::ranges::count(reader.args, from));
    for (const Store& store : y.stores) readers += store.node == from ? 1 : 0;
    if (y.node(from).kind != Node::Kind::input || y.node(from).type != DataType::f32 || readers != 1)
      continue;
    y.node(from).type = node.type;
    for (Node& reader : y.nodes) std::ranges::replace(reader.args, i, from);
    for (Store& store : y.stores)
      if (store.node == i) store.node = from;
  }
  return without_dead_nodes(y);
}

std::vector<Guard> guards_of_sites(const Fusion& fusion, std::span<const KernelSite> sites) {
  std::vector<Guard> guards = guards_of(fusion, {});
  for (const KernelSite& site : sites)
    for (const Guard& needed : guards_of(fusion, {{site.expr, site.expr.stores.empty() ? 2 : 8}}))
      for (Guard& guard : guards)
        if (guard.operand == needed.operand) guard.alignment = std::max(guard.alignment, needed.alignment);
  return guards;
}

void require_maps(std::vector<Guard>& guards, std::initializer_list<const Rows*> all) {
  constexpr int64_t kMapUnit = 16;
  for (Guard& guard : guards)
    for (const Rows* rows : all)
      if (guard.operand == rows->operand) guard.alignment = std::max(guard.alignment, kMapUnit);
}

}  // namespace fusor::attention
