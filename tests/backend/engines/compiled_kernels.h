// Owns the compilation of an engine's kernels in tests: what its candidates launch, and what ptxas says of
// it.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/engines/engine.h"
#include "codegen/nvrtc.h"
#include "codegen/text/expr_emitter.h"
#include "core/environment.h"
#include "core/parallel.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/instructions.h"
#include "tests/support/sample.h"

namespace fusor::test {

struct KernelCase {
  std::string name;
  std::shared_ptr<const KernelSource> source;
};

/// Every kernel that is launched.
inline void add_kernels(const std::string& name, const Lowered& lowered, std::vector<KernelCase>& cases) {
  for (const Step& step : lowered.steps)
    if (const auto* launch = std::get_if<Launch>(&step)) cases.push_back({name, launch->source});
}

/// Every kernel that the engine's candidates launch for the fusion.
inline void add_kernels(const Engine& engine, const std::string& name, const Fusion& fusion,
                        const DeviceInfo& device, std::vector<KernelCase>& cases) {
  for (const EngineCandidate& candidate : test::candidates(engine, fusion, device))
    add_kernels(name + " " + to_string(candidate.config),
                test::lower(engine, fusion, candidate.config, device), cases);
}

/// What the compiler said of a kernel, and what it made.
struct CompilerReport {
  double milliseconds = 0;
  int early_loads = 0;  ///< in front of the wait for the launch in front
  std::string log;
};

/// The same text is compiled once for all tests that share the folder FUSOR_TEST_KERNELS: tools/test.sh gives
/// both of its builds one. Without it, everything is compiled where it is asked for.
inline CompilerReport report_of(const KernelCase& one) {
  const std::string header = emit_header(*one.source);
  const char* const folder = std::getenv("FUSOR_TEST_KERNELS");
  std::filesystem::path file;
  if (folder != nullptr) {
    file = std::filesystem::path(folder) /
           Hasher().add(one.source->root).add(header).add(one.source->target).hex();
    if (std::ifstream known(file); known) {
      CompilerReport report;
      known >> report.milliseconds >> report.early_loads;
      report.log.assign(std::istreambuf_iterator<char>(known), {});
      return report;
    }
  }
  const nvrtc::Compilation compilation = nvrtc::compile(one.source->root, header, one.source->target);
  EXPECT_FALSE(compilation.cubin.empty()) << one.name;
  CompilerReport report{compilation.milliseconds, loads_before_wait(compilation.cubin), compilation.log};
  if (folder != nullptr && !compilation.cubin.empty()) {
    // Another process may be writing the same: whoever is last replaces the whole.
    const std::filesystem::path draft = file.string() + fmt::format(".{}", std::random_device()());
    std::ofstream(draft) << report.milliseconds << " " << report.early_loads << "\n" << report.log;
    std::filesystem::rename(draft, file);
  }
  return report;
}

/// Whether a kernel means to load before it waits what was there before the launch in front began: elements,
/// or flags that say whether it is needed.
inline bool loads_early(const KernelSource& source) {
  const auto is_guarded = [](const ConfigValue& each) {
    return each.name == "guarded" && each.number() != 0;
  };
  return source.root == "rows/split.cuh" ||
         (source.root == "tiled/mma.cuh" && std::ranges::any_of(source.config, is_guarded));
}

/// ptxas must have nothing to say but that all is well, and move no load across the wait for the launch in
/// front: it takes memory that is only read for memory that nobody writes. Returns the milliseconds that it
/// took.
inline double expect_compiled(const KernelCase& one) {
  const CompilerReport report = report_of(one);
  EXPECT_NE(report.log.find("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"),
            std::string::npos)
      << one.name << "\n"
      << report.log;
  for (const char* complaint : {"warning", "serialized"})
    EXPECT_EQ(report.log.find(complaint), std::string::npos) << one.name << "\n" << report.log;
  EXPECT_TRUE(report.early_loads == 0 || loads_early(*one.source)) << one.name << "\n"
                                                                   << report.early_loads << " loads";
  return report.milliseconds;
}

/// One kernel in eight is compiled, and the first of every list (tests/support/sample.h).
inline bool is_sampled(const KernelCase& one) {
  return is_sampled(one.source->root + emit_header(*one.source) + one.source->target, 8);
}

inline void expect_all_compiled(std::vector<KernelCase> cases) {
  if (cases.empty()) return;
  cases.erase(
      std::remove_if(cases.begin() + 1, cases.end(), [](const KernelCase& one) { return !is_sampled(one); }),
      cases.end());
  parallel_for(static_cast<int64_t>(cases.size()), environment::threads(),
               [&](int64_t i) { expect_compiled(cases[static_cast<size_t>(i)]); });
}

/// The same kernel but once.
inline void expect_distinct_compiled(std::vector<KernelCase> cases) {
  std::set<std::string> known;
  std::erase_if(cases, [&](const KernelCase& one) {
    return !known.insert(emit_header(*one.source) + one.source->root).second;
  });
  expect_all_compiled(cases);
}

}  // namespace fusor::test
