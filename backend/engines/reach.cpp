// Owns how the reach of accesses is found.
#include "backend/engines/reach.h"

#include <algorithm>
#include <cstdlib>

namespace fusor {

namespace {

// Threads of the last block, and what they would store, go beyond the last element.
constexpr int64_t kBeyondTheLast = int64_t{1} << 24;

}  // namespace

int64_t reach(const Dims& domain, const Access& access) {
  int64_t span = 0;
  for (int axis = 0; axis < domain.rank(); ++axis)
    span += (domain[axis] - 1) * std::abs(access.strides[axis]);
  for (const IndexedAxis& indexed : access.indexed)
    if (indexed.extent > 0) span += (indexed.extent - 1) * std::abs(indexed.stride);
  return span;
}

int64_t reach(const Expr& site) {
  int64_t most = 0;
  for_each_access(site,
                  [&](const Access& access, DataType) { most = std::max(most, reach(site.domain, access)); });
  for (const Node& node : site.nodes)
    if (node.kind == Node::Kind::index)
      most = std::max(most, reach(site.domain, node.access) + std::abs(node.access.offset));
  return most;
}

int index_bits(const Expr& site) {
  return std::max(element_count(site.domain), reach(site)) > kMaxIndex32 - kBeyondTheLast ? 64 : 32;
}

}  // namespace fusor
