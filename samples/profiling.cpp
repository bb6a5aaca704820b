// Profiling: where the time of a run goes, beside what was estimated and what the device could do at most.
#include <fusor.h>

#include <iostream>

#include "model_graphs.h"
#include "sample_support.h"

namespace {

using namespace fusor;

bool profiling() {
  const Graph graph = sample::resnet50_bottleneck(1);
  const DeviceInfo device = DeviceInfo::current();
  const Executable exe = load(build(graph, device));
  std::vector<fusor::DeviceMemory> memory;
  std::vector<Binding> bindings;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.memory != Memory::device) continue;
    memory.emplace_back(device, tensor);
    memory.back().write(std::vector<std::byte>(static_cast<size_t>(tensor.bytes())));
    bindings.emplace_back(tensor, memory.back().get());
  }
  const fusor::DeviceMemory workspace(device, exe.workspace_bytes());
  ProfileOptions options;
  options.runs = 5;
  const Profile profile = exe.profile(bindings, workspace, nullptr, options);
  std::cout << to_string(profile);
  return profile.fusions.size() == 3 && profile.seconds > 0;
}

}  // namespace

int main() { return sample::guarded(profiling); }
