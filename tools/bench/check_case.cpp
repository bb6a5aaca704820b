// Owns the parting of a graph into what is checked on its own.
#include "tools/bench/check_case.h"

#include <variant>

namespace fusor::command {

namespace {

bool reduces_a_stored_result(const Graph& graph, const Op& op) {
  if (!std::holds_alternative<Reduction>(op.attributes)) return false;
  const int x = op.inputs[0];
  return graph.tensors[static_cast<size_t>(x)].memory == Memory::device && graph.producer(x) >= 0;
}

}  // namespace

VerifyReport check_case(const Graph& graph, std::span<void* const> tensors, uint64_t seed,
                        const Notes& notes) {
  Graph main = graph;
  Graph reductions = graph;
  std::erase_if(main.ops, [&](const Op& op) { return reduces_a_stored_result(graph, op); });
  std::erase_if(reductions.ops, [&](const Op& op) { return !reduces_a_stored_result(graph, op); });
  VerifyReport report = verify(main, tensors, seed, notes);
  if (reductions.ops.empty()) return report;
  for (OutputCheck& check : verify(reductions, tensors, seed, notes).outputs)
    report.outputs.push_back(std::move(check));
  return report;
}

}  // namespace fusor::command
