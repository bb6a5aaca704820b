// Owns which operands can pass their ops on the way to the tensor cores.
#include "backend/engines/sm90/load/prologue.h"

#include <algorithm>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/contraction/matmul_site.h"
#include "backend/engines/sm90/copy/units.h"

namespace fusor {

namespace {

bool is_copied(DataType type) { return std::ranges::find(kCopiedTypes, type) != kCopiedTypes.end(); }

// The load that walks most of a site, the first of such; or the number of its nodes.
size_t largest_load(const Expr& site) {
  const Access* const access = primary_access(site);
  const auto found =
      std::ranges::find_if(site.nodes, [&](const Node& node) { return &node.access == access; });
  return static_cast<size_t>(found - site.nodes.begin());
}

void become_input(Node& load) {
  load.kind = Node::Kind::input;
  load.input = 0;
  load.type = carrier(load.type);
  load.access = {};
}

}  // namespace

std::optional<PrologueOperand> prologue_operand(const Fusion& fusion, const Contraction& view, bool second,
                                                int64_t extent) {
  if (view.is_convolution() || view.siblings != 1 || view.compute != DataType::f32) return std::nullopt;
  const Expr& before = site_of_operand(fusion, second, 0);
  const DataType multiplied = yielded_node(before).type;
  const bool has_ops = yielded_node(before).kind != Node::Kind::load;
  if (!has_ops || (multiplied != DataType::f16 && multiplied != DataType::bf16)) return std::nullopt;
  const size_t at = largest_load(before);
  if (at == before.nodes.size()) return std::nullopt;
  const DataType type = type_of(fusion, before.nodes[at].access);
  if (before.nodes[at].type != type || !is_copied(type)) return std::nullopt;
  const auto stored = copied_load(fusion, view, second, at, extent);
  if (!stored || stored->map.dims[0] % kPrologueVector != 0) return std::nullopt;
  auto [ops, k_axis, across_axis] = matmul_site(fusion, view, second, 0);
  PrologueOperand passed{*stored, std::move(ops), stored->across_adjacent ? across_axis : k_axis};
  become_input(passed.ops.nodes[at]);
  mark_whole_vectors(fusion, passed.ops, passed.vector_axis, kPrologueVector);
  return passed;
}

}  // namespace fusor
