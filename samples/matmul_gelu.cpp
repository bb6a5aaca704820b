// Owns the matmul sample: one hidden layer of a transformer, gelu(x * w + b), and the kernel that was written
// for it.
#include <fusor.h>

#include <iostream>

#include "sample_support.h"

namespace {

bool matmul_gelu() {
  using namespace fusor;
  const DeviceInfo device = DeviceInfo::current();
  const int64_t tokens = device.is_cpu() ? 64 : 1024;
  const int64_t width = 768, hidden = 3072;

  GraphBuilder g("matmul_gelu");
  const Tensor x = g.input("x", {tokens, width}, DataType::bf16);
  // Checkpoints store weights as [out, in]: strides say so, and no transpose runs.
  const Tensor w = g.input("w", {width, hidden}, DataType::bf16, {.strides = Strides{1, width}});
  const Tensor b = g.input("b", {1, hidden}, DataType::bf16);
  const Tensor product = g.matmul(x, w, {.name = "matmul"});
  g.output(g.gelu(g.add(product, b, {.name = "bias"}), {.name = "gelu"}), {.name = "y"});
  const Graph graph = g.finish();

  // Ways to run the graph, best estimate first. build(graph, device, candidate) takes one of them.
  const std::vector<Candidate> ways = candidates(graph, device);
  std::cout << ways.size() << " candidates; the best is estimated at " << ways.front().seconds * 1e6
            << " us with " << ways.front().workspace_bytes << " bytes of workspace\n";
  const Plan plan = build(graph, device, ways.front());

  // The generated CUDA, with this graph's names in its comments; a plan for the CPU has none.
  std::cout << source(plan) << '\n';

  const Executable executable = load(plan);
  sample::GraphMemory memory(graph, device);
  memory.run(executable);
  const VerifyReport report = verify(graph, memory.host());
  std::cout << to_string(report) << '\n';
  return report.passed();
}

}  // namespace

int main() { return sample::guarded(matmul_gelu); }
