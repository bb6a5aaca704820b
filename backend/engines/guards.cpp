// Owns the guards of kernels: how their accesses need the operands aligned.
#include "backend/engines/guards.h"

#include <algorithm>

namespace fusor {

void guard(std::vector<Guard>& guards, const Guard& asked) {
  const auto known = std::ranges::find(guards, asked.operand, &Guard::operand);
  if (known == guards.end())
    guards.push_back(asked);
  else
    known->alignment = std::max(known->alignment, asked.alignment);
}

void guard_accesses(std::vector<Guard>& guards, const KernelSite& site,
                    const std::function<int64_t(const Access&)>& together) {
  const auto add = [&](const Access& access, DataType type) {
    guard(guards, {access.operand, std::min(together(access) * byte_size(type), kMaxAccessBytes)});
  };
  for (const Node& node : site.expr.nodes)
    if (node.kind == Node::Kind::load) add(node.access, node.type);
  for (const Store& store : site.expr.stores) add(store.access, store.type);
}

void guard_accesses(std::vector<Guard>& guards, const KernelSite& site, int64_t vector) {
  guard_accesses(guards, site,
                 [vector](const Access& access) { return access.whole_vectors ? vector : int64_t{1}; });
}

}  // namespace fusor
