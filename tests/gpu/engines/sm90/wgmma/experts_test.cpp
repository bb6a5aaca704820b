// Owns the GPU tests of matmuls whose rows belong to experts: experts without rows, rows without an expert,
// tiles that end with an expert, and results whose lines no box fills.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/gpu/engines/sm90/wgmma/cases.h"
#include "tests/support/expert_matmul.h"

namespace fusor {
namespace {

using namespace wgmma_cases;
using test::ExpertCase;

void expect_right(const ExpertCase& c) {
  const Graph graph = test::expert_matmul(c);
  const std::string what =
      fmt::format("{} rows, k {}, n {}, first rows {}", c.rows, c.k, c.n, fmt::join(c.first_rows, " "));
  const std::array<const Engine*, 1> engines{&wgmma_engine()};
  bool first = true;
  for (const Candidate& candidate :
       candidates(graph, DeviceInfo::current(), PlannerOptions{.engine_list = engines})) {
    const std::string config = to_string(candidate.fusions.back().config);
    const bool is_taken = first || test::is_sampled(what + config, 3);
    first = false;
    if (!is_taken) continue;
    DeviceRun run(graph,
                  build(graph, DeviceInfo::current(), candidate, PlannerOptions{.engine_list = engines}));
    test::fill_experts(c, [&](const std::string& name, const auto& write) { run.edit(name, write); });
    run.run();
    const VerifyReport report = run.check();
    EXPECT_TRUE(report.passed()) << what << " " << config << "\n" << to_string(report);
    EXPECT_TRUE(run.gaps_are_untouched()) << what << " " << config;
  }
}

TEST(ExpertsGpu, RowsMeetTheWeightsOfTheirExpert) {
  FUSOR_NEEDS_HOPPER();
  expect_right({});
  expect_right({.rows = 700, .k = 136, .n = 328, .first_rows = {0, 1, 130, 131, 640}});
  expect_right({.rows = 513, .k = 64, .n = 256, .first_rows = {0, 256, 512}, .has_epilogue = true});
  expect_right({.rows = 257, .k = 200, .n = 72, .first_rows = {0, 128}, .type = DataType::f16});
  expect_right({.rows = 5, .k = 72, .n = 8, .first_rows = {0, 1, 2, 3, 4}});
}

TEST(ExpertsGpu, WeightsLieEitherWayAndTokensMayBeAMatrix) {
  FUSOR_NEEDS_HOPPER();
  expect_right({.rows = 400, .k = 96, .n = 200, .first_rows = {0, 10, 390}, .lies_across = true});
  expect_right({.rows = 400, .k = 96, .n = 200, .first_rows = {0, 10, 390}, .has_matrix = true});
  expect_right({.rows = 333,
                .k = 72,
                .n = 120,
                .first_rows = {0, 200},
                .lies_across = true,
                .has_matrix = true,
                .has_epilogue = true});
}

TEST(ExpertsGpu, ResultsMayBeTwoAndLieAcross) {
  FUSOR_NEEDS_HOPPER();
  expect_right({.rows = 500,
                .k = 64,
                .n = 200,
                .first_rows = {0, 130, 140},
                .has_epilogue = true,
                .leaves_product = true});
  expect_right({.rows = 500,
                .k = 64,
                .n = 200,
                .first_rows = {7, 130, 140},
                .has_epilogue = true,
                .result_across = true});
  expect_right(
      {.rows = 250, .k = 64, .n = 64, .first_rows = {0, 130}, .type = DataType::f16, .result_across = true});
}

// Rows in front of the first expert are zero, as the epilogue sees them; those of an expert may be none.
TEST(ExpertsGpu, RowsOfNobodyAreZeroAndExpertsMayHaveNone) {
  FUSOR_NEEDS_HOPPER();
  expect_right({.rows = 300, .first_rows = {130, 130, 200, 300}, .has_epilogue = true});
  expect_right({.rows = 300, .first_rows = {300, 300}});
  expect_right({.rows = 300, .first_rows = {0, 0, 0, 300}});
  expect_right({.rows = 300, .first_rows = {-5, 40, 1000}, .has_epilogue = true});
}

// Nobody promises that the numbers ascend: a row belongs to the expert that as many begin in front of.
TEST(ExpertsGpu, FirstRowsInNoOrderMeanWhatTheyMeanElsewhere) {
  FUSOR_NEEDS_HOPPER();
  expect_right({.rows = 300, .first_rows = {200, 0, 250, 100}});
}

TEST(ExpertsGpu, ManyExpertsShareFewRows) {
  FUSOR_NEEDS_HOPPER();
  std::vector<int32_t> first(256);
  for (size_t i = 0; i < first.size(); ++i) first[i] = static_cast<int32_t>(i * i / 80);
  expect_right({.rows = 900, .k = 64, .n = 64, .first_rows = first});
  std::vector<int32_t> most(1024);
  std::iota(most.begin(), most.end(), 0);
  expect_right({.rows = 1030, .k = 8, .n = 16, .first_rows = most, .has_epilogue = true});
}

}  // namespace
}  // namespace fusor
