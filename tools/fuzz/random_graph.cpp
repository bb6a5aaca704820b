// Owns the growth of a random graph: families propose ops until there are enough of them.
#include "tools/fuzz/random_graph.h"

#include "core/infer.h"
#include "tools/fuzz/op_families.h"

namespace fusor::fuzz {

namespace {

const OpFamily& any_family(Random& random) {
  int64_t total = 0;
  for (const OpFamily& family : op_families()) total += family.share;
  int64_t at = random.below(total);
  for (const OpFamily& family : op_families()) {
    if (at < family.share) return family;
    at -= family.share;
  }
  return op_families().front();
}

}  // namespace

Graph random_graph(uint64_t seed, int64_t index, const Limits& limits) {
  Draft draft(seed, index, limits);
  const int64_t wanted = draft.random.between(1, limits.ops);
  while (static_cast<int64_t>(draft.graph().ops.size()) < wanted)
    if (const auto proposal = any_family(draft.random).propose(draft)) draft.append(*proposal);
  Graph graph = draft.finish();
  validate(graph);
  return graph;
}

}  // namespace fusor::fuzz
