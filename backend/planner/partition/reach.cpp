// Owns the sweeps over a set of ops: append order is topological, so one is enough.
#include "backend/planner/partition/reach.h"

#include <algorithm>

namespace fusor {

int position_in(std::span<const int> ops, int op) {
  const auto found = std::ranges::lower_bound(ops, op);
  return found != ops.end() && *found == op ? static_cast<int>(found - ops.begin()) : -1;
}

std::vector<bool> upstream_of(const FoldedGraph& folded, std::span<const int> ops,
                              std::span<const int> targets) {
  std::vector<bool> upstream(ops.size(), false);
  std::vector<bool> asks(ops.size(), false);
  for (const int target : targets)
    if (const int at = position_in(ops, target); at >= 0) asks[static_cast<size_t>(at)] = true;
  for (size_t i = ops.size(); i-- > 0;) {
    if (!asks[i]) continue;
    for (const int wait : folded.dependencies[static_cast<size_t>(ops[i])]) {
      const int at = position_in(ops, wait);
      if (at < 0) continue;
      upstream[static_cast<size_t>(at)] = true;
      asks[static_cast<size_t>(at)] = true;
    }
  }
  return upstream;
}

std::vector<bool> downstream_of(const FoldedGraph& folded, std::span<const int> ops, int source) {
  std::vector<bool> downstream(ops.size(), false);
  for (size_t i = 0; i < ops.size(); ++i) {
    const auto waits = [&](int wait) {
      const int at = position_in(ops, wait);
      return at >= 0 && downstream[static_cast<size_t>(at)];
    };
    downstream[i] =
        ops[i] == source || std::ranges::any_of(folded.dependencies[static_cast<size_t>(ops[i])], waits);
  }
  return downstream;
}

}  // namespace fusor
