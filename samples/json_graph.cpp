// Graphs as JSON: another program's or another language's graph is text, and every mistake in it is named.
#include <fusor.h>

#include <iostream>

#include "sample_support.h"

namespace {

using namespace fusor;

constexpr const char* kGraph = R"({
  "format": 1, "kind": "graph", "name": "scaled sum",
  "tensors": [
    {"name": "x", "uid": 1, "type": "fp32", "dims": [8, 16], "memory": "device"},
    {"name": "y", "uid": 2, "type": "fp32", "dims": [8, 16], "memory": "device"}],
  "ops": [{"name": "twice", "op": "pointwise", "mode": "add", "inputs": ["x", "x"], "outputs": ["y"]}]
})";

bool json_graph() {
  const Graph graph = graph_from_json(kGraph);
  std::cout << to_json(graph) << "\n";
  const Plan plan = build(graph, DeviceInfo::current());
  sample::GraphMemory memory(graph, plan.device);
  memory.run(load(plan));

  std::string wrong = kGraph;
  wrong.replace(wrong.find("[8, 16]"), 7, "[8, 17]");
  try {
    graph_from_json(wrong);
    return false;
  } catch (const Error& error) {
    std::cout << "refused: " << error.what() << "\n";
  }
  return graph_from_json(to_json(graph)) == graph && verify(graph, memory.host()).passed();
}

}  // namespace

int main() { return sample::guarded(json_graph); }
