// Owns the words for plans and candidates.
#include "core/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/fail.h"

namespace fusor {

namespace {

std::string lines_of(const Graph& graph, const std::vector<PlannedFusion>& fusions) {
  std::string text;
  for (const PlannedFusion& fusion : fusions)
    text += fmt::format("{}: {}\n", fmt::join(op_names(graph, fusion), " + "), to_string(fusion.config));
  return text;
}

}  // namespace

std::vector<std::string> op_names(const Graph& graph, const PlannedFusion& fusion) {
  std::vector<std::string> names;
  names.reserve(fusion.ops.size());
  for (const int op : fusion.ops) {
    if (op < 0 || static_cast<size_t>(op) >= graph.ops.size())
      fail("the plan names op {} of {}", op, graph.ops.size());
    names.push_back(graph.ops[static_cast<size_t>(op)].name);
  }
  return names;
}

std::string to_string(const Candidate& candidate) {
  return candidate.graph == nullptr ? "" : lines_of(*candidate.graph, candidate.fusions);
}

std::string to_string(const Plan& plan) { return lines_of(plan.graph, plan.fusions); }

}  // namespace fusor
