// In place: an output may take the memory of an input that its own ops read element by element. What may not
// is refused.
#include <fusor.h>

#include <iostream>

#include "sample_support.h"

namespace {

using namespace fusor;

bool in_place() {
  GraphBuilder g("accumulate");
  const Tensor sum = g.input("sum", {1024}, DataType::f32);
  const Tensor x = g.input("x", {1024}, DataType::f32);
  const Tensor next = g.output(g.add(sum, x), {.name = "next"});
  const DeviceInfo device = DeviceInfo::current();
  const Executable exe = load(build(g.finish(), device));
  const DeviceMemory total(device, sum), px(device, x), workspace(device, exe.workspace_bytes());
  total.write(std::vector<float>(1024, 0));
  px.write(std::vector<float>(1024, 0.5f));
  for (int i = 0; i < 8; ++i) exe.run({{sum, total.get()}, {x, px.get()}, {next, total.get()}}, workspace);
  std::cout << "sum " << total.read<float>()[7] << "\n";

  try {  // half of the output over the input: refused before anything runs
    exe.run({{sum, total.get()}, {x, px.get()}, {next, static_cast<float*>(px.get()) + 512}}, workspace);
    return false;
  } catch (const Error& error) {
    std::cout << "refused: " << error.what() << "\n";
  }
  return total.read<float>() == std::vector<float>(1024, 4.0f);
}

}  // namespace

int main() { return sample::guarded(in_place); }
