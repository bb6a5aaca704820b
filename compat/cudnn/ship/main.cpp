// Owns the program that compiles the kernels of usual networks into the folder from which libcudnn takes what
// it would compile. No GPU is needed. usage: fusor_cudnn_ship_kernels FOLDER DEVICE BATCH...
#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/build.h"
#include "backend/planning.h"
#include "codegen/kernel_cache.h"
#include "codegen/nvrtc.h"
#include "compat/cudnn/ship/graphs.h"

namespace {

using namespace fusor;  // NOLINT(google-build-using-namespace)

// Every kernel once, by the key that other machines know it by.
using Kernels = std::map<std::string, std::shared_ptr<const KernelSource>>;

void add_kernels(Kernels& found, const std::vector<cudnn::GraphMaker>& makers, const DeviceInfo& device) {
  for (const cudnn::GraphMaker& make : makers)
    for (const PlannedKernel& kernel : kernels(build(make(), device, {.compile = false})))
      found.emplace(portable_key(*kernel.launch.source), kernel.launch.source);
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) {
    std::fputs("usage: fusor_cudnn_ship_kernels FOLDER DEVICE BATCH...\n", stderr);
    return 2;
  }
  // A build goes on without them: the library compiles what it needs.
  if (std::string problem; !nvrtc::available(&problem)) {
    fmt::print("no kernels are shipped: {}\n", problem);
    return 0;
  }
  const DeviceInfo device = DeviceInfo::named(arguments[2]);
  std::vector<int64_t> batches;
  for (int i = 3; i < count; ++i) batches.push_back(std::stoll(arguments[i]));
  Kernels found;
  const auto add = [&](const char* what, const std::vector<cudnn::GraphMaker>& makers) {
    const size_t before = found.size();
    add_kernels(found, makers, device);
    fmt::print("{} kernels of {}\n", found.size() - before, what);
    std::fflush(stdout);
  };
  add("recurrent layers", cudnn::shipped_recurrent_layers());
  add("attention", cudnn::shipped_attention());
  add("convolutions", cudnn::shipped_convolutions(batches));
  add("batch norms", cudnn::shipped_batch_norms(batches));
  std::vector<std::shared_ptr<const KernelSource>> sources;
  sources.reserve(found.size());
  for (const auto& [key, source] : found) sources.push_back(source);
  compiled_kernels(sources);  // in parallel
  for (const auto& source : sources) ship_kernel(*source, arguments[1]);
  return 0;
}
