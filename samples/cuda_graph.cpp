// Capture into a CUDA graph: a run launches and does nothing else, so that any stream capture takes it.
// Without a GPU there is nothing to capture, and the sample says so.
#include <fusor.h>

#include <iostream>

#include "sample_support.h"

namespace {

using namespace fusor;

bool cuda_graph() {
  const DeviceInfo device = DeviceInfo::current();
  if (device.is_cpu()) {
    std::cout << "there is no GPU, so there is nothing to capture\n";
    return true;
  }
  GraphBuilder g("captured");
  const Tensor x = g.input("x", {256, 256}, DataType::f32);
  const Tensor y = g.output(g.relu(g.matmul(x, x)), {.name = "y"});
  const Executable exe = load(build(g.finish(), device));
  const fusor::DeviceMemory px(device, x), py(device, y), workspace(device, exe.workspace_bytes());
  px.write(std::vector<float>(256 * 256, 1.0f / 16));

  const sample::Driver& driver = sample::Driver::get();  // cuda.h in a program of yours
  void *stream = nullptr, *captured = nullptr, *launchable = nullptr;
  driver.call<int(void**, unsigned)>("cuStreamCreate")(&stream, 1);
  driver.call<int(void*, int)>("cuStreamBeginCapture_v2")(stream, 0);
  exe.run({{x, px.get()}, {y, py.get()}}, workspace, stream);
  driver.call<int(void*, void**)>("cuStreamEndCapture")(stream, &captured);
  driver.call<int(void**, void*, unsigned long long)>("cuGraphInstantiateWithFlags")(&launchable, captured,
                                                                                     0);
  for (int i = 0; i < 10; ++i) driver.call<int(void*, void*)>("cuGraphLaunch")(launchable, stream);
  const bool right = py.read<float>(stream) == std::vector<float>(256 * 256, 1.0f);
  std::cout << "10 launches of a captured run: " << (right ? "right" : "wrong") << "\n";
  return right;
}

}  // namespace

int main() { return sample::guarded(cuda_graph); }
