// Threads: one executable runs in many at once, each with its own workspace and outputs.
#include <fusor.h>

#include <atomic>
#include <iostream>
#include <thread>

#include "sample_support.h"

namespace {

using namespace fusor;

bool threads() {
  GraphBuilder g("two matmuls");
  const Tensor x = g.input("x", {64, 64}, DataType::f32);
  const Tensor w = g.input("w", {64, 64}, DataType::f32);
  const Tensor y = g.output(g.matmul(g.matmul(x, w), w), {.name = "y"});
  const DeviceInfo device = DeviceInfo::current();
  const Executable exe = load(build(g.finish(), device));
  const DeviceMemory shared_w(device, w);
  shared_w.write(std::vector<float>(64 * 64, 1.0f / 64));  // every run keeps the mean of a row

  std::atomic<int> right = 0;
  std::vector<std::thread> team;
  team.reserve(4);
  for (int member = 0; member < 4; ++member)
    team.emplace_back([&, member] {
      const DeviceMemory px(device, x), py(device, y), workspace(device, exe.workspace_bytes());
      px.write(std::vector<float>(64 * 64, static_cast<float>(member)));
      for (int i = 0; i < 50; ++i) exe.run({{x, px.get()}, {w, shared_w.get()}, {y, py.get()}}, workspace);
      if (py.read<float>() == std::vector<float>(64 * 64, static_cast<float>(member))) ++right;
    });
  for (std::thread& member : team) member.join();
  std::cout << right << " of 4 threads have the right result\n";
  return right == 4;
}

}  // namespace

int main() { return sample::guarded(threads); }
