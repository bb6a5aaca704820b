// Owns the plan-file sample: run it twice with one file. The first run plans and saves, the second loads and
// compiles nothing.
#include <fusor.h>

#include <filesystem>
#include <iostream>

#include "sample_support.h"

namespace {

fusor::Graph softplus_rows() {
  using namespace fusor;
  GraphBuilder g("softplus_rows");
  const Tensor x = g.input("x", {512, 1000}, DataType::f32);
  const Tensor scale = g.scalar("scale", DataType::f32);  // read from host memory during each run
  const Tensor activated = g.softplus(g.mul(x, scale, {.name = "scaled"}), {.name = "softplus"});
  g.output(g.reduce(activated, ReductionMode::add, {1}, {.name = "row_sum"}), {.name = "sums"});
  return g.finish();
}

bool save_load(const std::string& path) {
  using namespace fusor;
  if (!std::filesystem::exists(path)) {
    save(build(softplus_rows(), DeviceInfo::current()), path);
    std::cout << "planned and saved " << path << ": " << cache_stats().compilations
              << " kernels compiled; run this once more\n";
  }

  // A plan file holds the graph and the choices. Kernels come from the cache on disk, or are compiled now.
  const int64_t compiled_before = cache_stats().compilations;
  const Plan plan = read_plan(path);
  const Executable executable = load(plan);
  std::cout << "loaded " << path << ": " << cache_stats().compilations - compiled_before
            << " kernels compiled\n";
  for (const std::string& remark : executable.plan().remarks) std::cout << "  " << remark << '\n';

  sample::GraphMemory memory(plan.graph, plan.device);
  memory.run(executable);
  const VerifyReport report = verify(plan.graph, memory.host());
  std::cout << to_string(report) << '\n';
  return report.passed();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : "softplus_rows.plan.json";
  return sample::guarded([&] { return save_load(path); });
}
