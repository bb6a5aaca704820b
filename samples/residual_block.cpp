// A residual block: two convolutions with scale, bias and ReLU, the input added before the last ReLU. Two
// kernels on a GPU.
#include <fusor.h>

#include <iostream>

#include "sample_support.h"

namespace {

using namespace fusor;

Tensor conv_scale_bias(GraphBuilder& g, const Tensor& x, const std::string& name) {
  const Tensor w = g.input("w" + name, {32, 32, 3, 3}, DataType::f16, Layout::nhwc);
  const Tensor scale = g.input("scale" + name, {1, 32, 1, 1}, DataType::f32);
  const Tensor bias = g.input("bias" + name, {1, 32, 1, 1}, DataType::f32);
  return g.add(g.mul(g.conv_fprop(x, w, {.padding = {1, 1}}), scale), bias);
}

bool residual_block() {
  GraphBuilder g("residual block");
  const Tensor x = g.input("x", {2, 32, 14, 14}, DataType::f16, Layout::nhwc);
  const Tensor first = g.relu(conv_scale_bias(g, x, "1"), {.type = DataType::f16});
  g.output(g.relu(g.add(conv_scale_bias(g, first, "2"), x)), {.name = "y", .type = DataType::f16});
  const Graph graph = g.finish();

  const Plan plan = build(graph, DeviceInfo::current());
  std::cout << to_string(plan);
  sample::GraphMemory memory(graph, plan.device);
  memory.run(load(plan));
  const VerifyReport report = verify(graph, memory.host());
  std::cout << to_string(report);
  return report.passed();
}

}  // namespace

int main() { return sample::guarded(residual_block); }
