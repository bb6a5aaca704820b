// Owns groups_by_name: a graph's partition as tests read it.
#pragma once

#include <string>
#include <vector>

#include "backend/planner/planner.h"

namespace fusor::test {

/// The names of the ops of each group, of the graph as it is planned.
inline std::vector<std::vector<std::string>> groups_by_name(const Graph& graph) {
  const Graph expanded = expand(graph);
  std::vector<std::vector<std::string>> groups;
  for (const std::vector<int>& group : partition(expanded, fold_views(expanded))) {
    groups.emplace_back();
    for (const int op : group) groups.back().push_back(expanded.ops[static_cast<size_t>(op)].name);
  }
  return groups;
}

}  // namespace fusor::test
