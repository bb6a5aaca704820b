// Owns the explain sample: why a graph is cut as it is, as text and as data, for a GPU that need not be here.
#include <fusor.h>

#include <iostream>

#include "sample_support.h"

namespace {

/// Two matmuls with pointwise neighbours: a fusion has one anchor, so this graph becomes two fusions at
/// least.
fusor::Graph two_layers() {
  using namespace fusor;
  GraphBuilder g("two_layers");
  const Tensor x = g.input("x", {256, 512}, DataType::f16);
  const Tensor w1 = g.input("w1", {512, 1024}, DataType::f16);
  const Tensor w2 = g.input("w2", {1024, 512}, DataType::f16);
  const Tensor hidden = g.matmul(x, w1, {.name = "up"});
  // The value that goes from one fusion to the next is stored: fp16 halves its bytes, and its rounding is
  // part of the graph, on every device.
  const Tensor activated = g.gelu_tanh(hidden, {.name = "gelu", .type = DataType::f16});
  const Tensor down = g.matmul(activated, w2, {.name = "down"});
  g.output(g.add(down, x, {.name = "residual"}), {.name = "y"});
  return g.finish();
}

bool explain_two_layers(const std::string& device_name) {
  using namespace fusor;
  const DeviceInfo device = DeviceInfo::named(device_name);
  const Graph graph = two_layers();

  // For people:
  std::cout << explain(graph, device) << '\n';

  // For programs: the same answers as data. A refusal names the rule, the op, and how to fix it.
  for (const Decision& decision : explain_data(graph, device).decisions)
    for (const EngineAnswer& answer : decision.answers) {
      std::cout << decision.ops.front() << " (" << decision.ops.size() << " ops), " << answer.engine << ": ";
      if (answer.support)
        std::cout << "yes, " << answer.config << ", " << answer.seconds * 1e6 << " us\n";
      else
        std::cout << "no, " << answer.support.refusal->rule << "; " << answer.support.refusal->remedy << '\n';
    }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string device = argc > 1 ? argv[1] : "H200";
  return sample::guarded([&] { return explain_two_layers(device); });
}
