// Owns the first sample: y = relu(conv(x, w) + b), from the graph to a verified run, on a GPU or on the CPU.
#include <fusor.h>

#include <iostream>

#include "sample_support.h"

namespace {

bool conv_bias_relu() {
  using namespace fusor;
  // The GPU of this machine, or its CPU. DeviceInfo::named("H200") would plan for a GPU that is not here.
  const DeviceInfo device = DeviceInfo::current();
  const int64_t batch = device.is_cpu() ? 1 : 8;

  // 1. Say what is to be computed. Dims are N, C, H, W; nhwc says how the elements lie in memory. Nothing
  // runs yet, and
  //    the results in between exist only in the graph: in the end they will live in registers.
  GraphBuilder g("conv_bias_relu");
  const Tensor x = g.input("x", {batch, 64, 56, 56}, DataType::f16, Layout::nhwc);
  const Tensor w = g.input("w", {64, 64, 3, 3}, DataType::f16, Layout::nhwc);
  const Tensor b = g.input("b", {1, 64, 1, 1}, DataType::f16);
  const Tensor conv = g.conv_fprop(x, w, {.padding = {1, 1}, .name = "conv"});
  const Tensor biased = g.add(conv, b, {.name = "bias"});
  const Tensor y = g.output(g.relu(biased, {.name = "relu"}), {.name = "y"});
  const Graph graph = g.finish();

  // 2. See what fusor would do and why: which ops become one kernel, who could carry it out, what it would
  // cost.
  std::cout << explain(graph, device) << '\n';

  // 3. Plan: choose, generate the kernels and compile them (or take them from the cache). No GPU is needed
  // for this.
  const Plan plan = build(graph, device);

  // 4. Load and run. `run` only patches pointers and launches. A program with memory of its own writes
  //    executable.run({{x, px}, {w, pw}, {b, pb}, {y, py}}, workspace, stream).
  const Executable executable = load(plan);
  sample::GraphMemory memory(graph, device);
  memory.run(executable);

  // 5. Check: every element is compared with a float64 evaluation of the same graph.
  const VerifyReport report = verify(graph, memory.host());
  std::cout << "ran " << y.name << ' ' << to_string(y.dims) << " on " << device.name << '\n'
            << to_string(report) << '\n';
  return report.passed();
}

}  // namespace

int main() { return sample::guarded(conv_bias_relu); }
