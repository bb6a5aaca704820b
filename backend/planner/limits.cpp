// Owns the counting of a fusion's arguments.
#include "backend/planner/limits.h"

#include <algorithm>

namespace fusor {

namespace {

constexpr int64_t kFieldBytes = 8;
// Extents, tiles, classes and tensor maps, whatever the engine.
constexpr int64_t kEnginesOwnBytes = 4096;

int64_t fields_of(const Node& node, int64_t rank) {
  switch (node.kind) {
    case Node::Kind::load:
      return 1 + rank + 2 * std::ranges::count_if(node.args, [](int arg) { return arg >= 0; });
    case Node::Kind::pointwise:
      return has_default_parameters(node.pointwise) ? 0 : 3;
    case Node::Kind::scalar:
    case Node::Kind::index:
    case Node::Kind::input:
    case Node::Kind::reduce:
      break;
  }
  return 2;
}

int64_t fields_of(const Expr& expr) {
  const int64_t rank = expr.domain.rank();
  int64_t fields = static_cast<int64_t>(expr.stores.size()) * (2 + rank);
  for (const Store& store : expr.stores) fields += store.index < 0 ? 0 : 2;
  for (const Node& node : expr.nodes) fields += fields_of(node, rank);
  return fields;
}

}  // namespace

int64_t argument_bytes(const Fusion& fusion) {
  int64_t before = 0, after = 0;
  const std::span<const Site> operands = operand_sites(fusion);
  for (const Site& site : operands) before += fields_of(site.expr);
  // Each Expr is a kernel of its own where there are several and no anchor.
  for (const Site& site : std::span(fusion.sites).subspan(operands.size()))
    after = std::max(after, fields_of(site.expr));
  return kEnginesOwnBytes + kFieldBytes * (before + after);
}

}  // namespace fusor
