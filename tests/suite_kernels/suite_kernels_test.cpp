// Owns the check that the benchmark suite's kernels compile: of every case of bench/cases, the candidates
// that are best by estimate on an H200; without spills, and without wgmmas that ptxas serialises.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "backend/choose.h"
#include "core/tuning_table.h"
#include "serialization/bench_cases.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tools/bench/case_graph.h"

namespace fusor {
namespace {

using test::KernelCase;

constexpr size_t kCandidates = 8;  // of a fusion: 714 kernels, of which a sample is compiled
constexpr int kParts = 16;         // of all kernels: one process each under ctest

std::vector<BenchCase> all_cases() {
  std::vector<std::string> paths;
  for (const auto& file : std::filesystem::directory_iterator(FUSOR_BENCH_CASES))
    if (const std::string name = file.path().stem().string();
        !name.starts_with("networks") && name != "sweeps" && name != "attention")
      paths.push_back(file.path().string());
  std::ranges::sort(paths);
  std::vector<BenchCase> cases;
  for (const std::string& path : paths)
    for (BenchCase& row : read_bench_cases(path)) cases.push_back(std::move(row));
  return cases;
}

// Every distinct kernel, by its structure: named after the first case that launches it.
std::map<std::string, KernelCase> all_kernels() {
  const DeviceInfo device = DeviceInfo::named("H200");
  const TuningTable nothing_measured;
  BuildOptions options;
  options.tuning = &nothing_measured;
  std::map<std::string, KernelCase> kernels;
  for (const BenchCase& row : all_cases())
    for (const Choice& choice : choose(command::graph_of(row), device, {options}).fusions)
      for (size_t i = 0; i < std::min(kCandidates, choice.options.size()); ++i) {
        const EngineOption& option = choice.options[i];
        for (const Step& step : choice.by(option).lower(option.config).steps)
          if (const auto* launch = std::get_if<Launch>(&step))
            kernels.try_emplace(
                structure_hash(*launch->source),
                KernelCase{fmt::format("{} {}", row.id, to_string(option.config)), launch->source});
      }
  return kernels;
}

class SuiteKernels : public testing::TestWithParam<int> {};

TEST_P(SuiteKernels, CompileWithoutSpillsOrSerialisation) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  std::vector<KernelCase> mine;
  int number = 0;
  for (auto& [hash, kernel] : all_kernels())
    if (number++ % kParts == GetParam() && (mine.empty() || test::is_sampled(kernel)))
      mine.push_back(std::move(kernel));
  ASSERT_FALSE(mine.empty());
  std::vector<double> times;
  times.reserve(mine.size());
  for (const KernelCase& kernel : mine) times.push_back(test::expect_compiled(kernel));
  std::ranges::sort(times);
  fmt::print("{} of {} kernels: p50 {:.0f} ms, max {:.0f} ms\n", times.size(), number,
             times[times.size() / 2], times.back());
}

INSTANTIATE_TEST_SUITE_P(Parts, SuiteKernels, testing::Range(0, kParts));

}  // namespace
}  // namespace fusor
