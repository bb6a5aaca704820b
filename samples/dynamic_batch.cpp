// Dynamic batch: a plan for each batch that comes along. Extents are arguments of kernels, so that batches
// whose choice is the same share their compiled kernels; plans are kept by batch.
#include <fusor.h>

#include <iostream>
#include <map>

#include "sample_support.h"

namespace {

using namespace fusor;

struct Layer {
  Tensor x, w, y;
  Executable exe;
};

Layer layer(int64_t batch, const DeviceInfo& device) {
  GraphBuilder g("layer of " + std::to_string(batch));
  const Tensor x = g.input("x", {batch, 128}, DataType::f32);
  const Tensor w = g.input("w", {128, 64}, DataType::f32);
  const Tensor y = g.output(g.relu(g.matmul(x, w)), {.name = "y"});
  return {x, w, y, load(build(g.finish(), device))};
}

bool dynamic_batch() {
  const DeviceInfo device = DeviceInfo::current();
  std::map<int64_t, Layer> layers;
  bool right = true;
  for (const int64_t batch : {1, 24, 7, 24, 1, 100}) {
    const bool is_new = !layers.contains(batch);
    if (is_new) layers.emplace(batch, layer(batch, device));
    const Layer& it = layers.at(batch);
    const DeviceMemory px(device, it.x), pw(device, it.w), py(device, it.y),
        workspace(device, it.exe.workspace_bytes());
    px.write(std::vector<float>(static_cast<size_t>(batch) * 128, 1));
    pw.write(std::vector<float>(128 * 64, 0.25f));
    it.exe.run({{it.x, px.get()}, {it.w, pw.get()}, {it.y, py.get()}}, workspace);
    right &= py.read<float>() == std::vector<float>(static_cast<size_t>(batch) * 64, 32);
    std::cout << "batch " << batch << (is_new ? ": planned, " : ": known, ") << cache_stats().compilations
              << " kernels compiled so far\n";
  }
  return right;
}

}  // namespace

int main() { return sample::guarded(dynamic_batch); }
