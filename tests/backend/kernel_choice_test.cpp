// Owns the tests of choices among compiled kernels.
#include <gmock/gmock.h>

#include <cstdlib>

#include "backend/build.h"
#include "backend/choose.h"
#include "codegen/kernel_cache.h"
#include "codegen/nvrtc.h"
#include "core/error.h"
#include "frontend/graph_builder.h"
#include "heuristics/tuning.h"
#include "tests/backend/devices.h"

namespace fusor {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

using test::h200;

Graph product() {
  GraphBuilder g("product");
  const Tensor a = g.input("a", {300, 128}, DataType::f16), b = g.input("b", {128, 256}, DataType::f16);
  return g.finish({g.relu(g.matmul(a, b, {.name = "mm"}))});
}

// Nothing is compiled when a test begins, and nothing is on disk.
class KernelChoices : public testing::Test {
 protected:
  void SetUp() override {
    std::string problem;
    if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
    setenv("FUSOR_CACHE_DIR", "", 1);
    clear_memory_cache();
    const Choice measured = choose(product(), h200(), {options(KernelChoice::best)}).fusions.front();
    TunedFusion tuned{h200().name, fusion_key(measured.fusion()), "", {}};
    // 1.00 s, 1.05 s, 1.15 s.
    for (const double seconds : {1.0, 1.05, 1.15}) {
      configs_.push_back(measured.options[configs_.size()].config);
      tuned.configs.push_back({configs_.back(), seconds, seconds, seconds});
    }
    table_.put(tuned);
  }
  void TearDown() override { unsetenv("FUSOR_CACHE_DIR"); }

  BuildOptions options(KernelChoice kernels) const {
    BuildOptions options;
    options.kernels = kernels;
    options.tuning = &table_;
    return options;
  }
  void compile(const EngineConfig& config) const {
    for (const Candidate& candidate : candidates(product(), h200(), options(KernelChoice::best)))
      if (candidate.fusions.front().config == config)
        build(product(), h200(), candidate, options(KernelChoice::best));
  }
  EngineConfig chosen(KernelChoice kernels) const {
    return choose(product(), h200(), {options(kernels)}).fusions.front().options.front().config;
  }

  TuningTable table_;
  std::vector<EngineConfig> configs_;
};

TEST_F(KernelChoices, BestEffortTakesACompiledOneWithinTenPercent) {
  EXPECT_EQ(chosen(KernelChoice::best_effort), configs_[0]) << "nothing is compiled";
  compile(configs_[2]);
  EXPECT_EQ(chosen(KernelChoice::best_effort), configs_[0]) << "15 % is too much";
  compile(configs_[1]);
  EXPECT_EQ(chosen(KernelChoice::best_effort), configs_[1]);
  EXPECT_EQ(chosen(KernelChoice::best), configs_[0]);
  compile(configs_[0]);
  EXPECT_EQ(chosen(KernelChoice::best_effort), configs_[0]);
}

TEST_F(KernelChoices, OnlyCompiledTakesWhatThereIsOrSaysThatThereIsNothing) {
  EXPECT_THAT([&] { chosen(KernelChoice::only_compiled); },
              ThrowsMessage<Error>(AllOf(HasSubstr("with kernels that are compiled already"),
                                         HasSubstr("takes it, and has no compiled kernel"))));
  compile(configs_[2]);
  EXPECT_EQ(chosen(KernelChoice::only_compiled), configs_[2]);
  const int64_t before = cache_stats().compilations;
  build(product(), h200(), options(KernelChoice::only_compiled));
  EXPECT_EQ(cache_stats().compilations, before);
}

}  // namespace
}  // namespace fusor
