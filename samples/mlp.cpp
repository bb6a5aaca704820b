// A gated MLP, as Llama's: swish(x gate) * (x up), then down. The two products of x and what joins them are
// one fusion.
#include <fusor.h>

#include <iostream>

#include "sample_support.h"

namespace {

bool mlp() {
  using namespace fusor;
  GraphBuilder g("gated MLP");
  const Tensor x = g.input("x", {32, 128}, DataType::f16);
  const Tensor gate = g.input("gate", {128, 256}, DataType::f16);
  const Tensor up = g.input("up", {128, 256}, DataType::f16);
  const Tensor down = g.input("down", {256, 128}, DataType::f16);
  const Tensor hidden = g.mul(g.swish(g.matmul(x, gate)), g.matmul(x, up));
  g.output(g.matmul(hidden, down), {.name = "y"});
  const Graph graph = g.finish();

  std::cout << explain(graph, DeviceInfo::named("H200"));
  const Plan plan = build(graph, DeviceInfo::current());
  sample::GraphMemory memory(graph, plan.device);
  memory.run(load(plan));
  const VerifyReport report = verify(graph, memory.host(), 1, plan.notes);
  std::cout << to_string(report);
  return report.passed();
}

}  // namespace

int main() { return sample::guarded(mlp); }
