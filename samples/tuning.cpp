// Tuning: every candidate of a graph is timed here, and the fastest is kept as a plan. `fusor tune` does the
// same for single fusions and remembers the times for later plans.
#include <fusor.h>

#include <algorithm>
#include <iostream>

#include "sample_support.h"

namespace {

using namespace fusor;

bool tuning() {
  GraphBuilder g("tuned matmul");
  const Tensor x = g.input("x", {96, 256}, DataType::f16);
  const Tensor w = g.input("w", {256, 128}, DataType::f16);
  const Tensor y = g.output(g.relu(g.matmul(x, w)), {.name = "y"});
  const Graph graph = g.finish();
  const DeviceInfo device = DeviceInfo::current();
  const DeviceMemory px(device, x), pw(device, w), py(device, y);
  px.write(std::vector<uint16_t>(96 * 256, 0x3c00));   // 1 in fp16
  pw.write(std::vector<uint16_t>(256 * 128, 0x3800));  // 0.5

  BuildOptions options;
  options.max_candidates = 4;
  double best_seconds = 1e9;
  Plan best;
  for (const Candidate& candidate : candidates(graph, device, options)) {
    const Plan plan = build(graph, device, candidate, options);
    const Executable exe = load(plan);
    const DeviceMemory workspace(device, exe.workspace_bytes());
    const Binding bindings[] = {{x, px.get()}, {w, pw.get()}, {y, py.get()}};
    const Profile profile = exe.profile(bindings, workspace);
    std::cout << to_string(plan.fusions[0].config) << ": " << profile.seconds * 1e6 << " us, estimated "
              << plan.seconds * 1e6 << " us\n";
    if (profile.seconds < best_seconds) {
      best_seconds = profile.seconds;
      best = plan;
    }
  }
  save(best, "tuned.plan.json");
  return py.read<uint16_t>()[0] == 0x5800;  // 128: 256 times 1 * 0.5
}

}  // namespace

int main() { return sample::guarded(tuning); }
