// Two GPUs: a plan is loaded once on each device, in that device's context, and runs there. With fewer the
// sample says so.
#include <fusor.h>

#include <iostream>

#include "sample_support.h"

namespace {

using namespace fusor;

bool run_on(int ordinal) {
  sample::Driver::get().make_current(ordinal);  // fusor works in the calling thread's context
  GraphBuilder g("on each");
  const Tensor x = g.input("x", {128, 128}, DataType::f32);
  const Tensor y = g.output(g.matmul(x, x), {.name = "y"});
  const DeviceInfo device = DeviceInfo::current();
  const Executable exe = load(build(g.finish(), device));
  const fusor::DeviceMemory px(device, x), py(device, y), workspace(device, exe.workspace_bytes());
  px.write(std::vector<float>(128 * 128, 0.125f));
  exe.run({{x, px.get()}, {y, py.get()}}, workspace);
  const bool right = py.read<float>() == std::vector<float>(128 * 128, 2.0f);
  std::cout << "GPU " << ordinal << " (" << device.name << "): " << (right ? "right" : "wrong") << "\n";
  return right;
}

bool two_gpus() {
  if (DeviceInfo::current().is_cpu()) {
    std::cout << "there is no GPU\n";
    return true;
  }
  int count = 0;
  sample::Driver::get().call<int(int*)>("cuDeviceGetCount")(&count);
  if (count < 2) std::cout << "there is one GPU: the second run is left out\n";
  return run_on(0) && (count < 2 || run_on(1));
}

}  // namespace

int main() { return sample::guarded(two_gpus); }
