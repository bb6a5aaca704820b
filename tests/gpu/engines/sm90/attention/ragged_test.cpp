// Owns the GPU tests of attention that reads and writes sequences where they lie, one behind the other:
// lengths of 0, 1 and odd ones, NaN in rows that do not exist, and places that no TMA map can begin at.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>

#include "backend/engines/list.h"
#include "tests/gpu/engines/every_config.h"
#include "tests/support/ragged_attention.h"

namespace fusor {
namespace {

using test::RaggedCase;

std::string name_of(const RaggedCase& c) {
  return fmt::format("{} and {} of {}({}) heads of {} and {}, causal {}, gap {}, shift {}", c.queries.front(),
                     c.keys.front(), c.heads, c.shared_heads, c.head, c.value, c.is_causal, c.gap, c.shift);
}

const RaggedCase kRaggedCases[] = {
    {{300, 0, 1, 129}, {300, 0, 1, 129}, 2, 2, 64, 64, 0, 0, true},
    {{300, 0, 1, 129}, {300, 0, 1, 129}, 2, 2, 128, 128, 5, 0, true},
    {{300, 0, 1, 129, 77}, {40, 500, 129, 0, 128}, 4, 2, 128, 128, 1, 0, false},
    {{257, 128, 13}, {100, 257, 64}, 4, 1, 64, 128, 3, 8, false},
    {{257, 128, 13}, {257, 128, 13}, 2, 2, 64, 64, 2, 3, true},
    {{200, 1, 40}, {200, 7, 40}, 2, 1, 80, 40, 1, 1, false, true, DataType::f16},
    {{150, 30, 0}, {150, 60, 9}, 2, 2, 64, 64, 0, 0, false, false},
    {{150, 30, 0}, {150, 60, 9}, 2, 2, 64, 64, 0, 5, false, false},
    {{190, 130}, {190, 130}, 2, 2, 256, 256, 0, 0, true},
    // Keys in front of the first query, as of a sequence that goes on; blocks behind a query's last key are
    // passed over.
    {{300, 0, 1, 700}, {900, 40, 1200, 750}, 4, 2, 128, 128, 1, 0, true, true, DataType::bf16, true},
    {{200, 129}, {190, 1500}, 2, 2, 64, 64, 0, 3, true, true, DataType::f16, true},
};

class RaggedAttentionGpu : public testing::TestWithParam<RaggedCase> {};

TEST_P(RaggedAttentionGpu, IsReadAndWrittenInPlace) {
  FUSOR_NEEDS_HOPPER();
  const RaggedCase& c = GetParam();
  const Graph graph = test::ragged_attention(c);
  const std::array<const Engine*, 1> engines{&attention_engine()};
  for (const Candidate& candidate :
       candidates(graph, DeviceInfo::current(), PlannerOptions{.engine_list = engines})) {
    if (!test::is_sampled(name_of(c) + to_string(candidate.fusions.back().config), 3)) continue;
    DeviceRun run(graph,
                  build(graph, DeviceInfo::current(), candidate, PlannerOptions{.engine_list = engines}));
    test::fill_ragged(c, [&](const std::string& name, const auto& write) { run.edit(name, write); });
    run.run();
    const VerifyReport report = run.check();
    EXPECT_TRUE(report.passed()) << name_of(c) << "\n" << to_string(report);
    EXPECT_TRUE(run.gaps_are_untouched()) << name_of(c);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, RaggedAttentionGpu, testing::ValuesIn(kRaggedCases));

TEST(PaddedAttentionGpu, LengthsBesideABlockMaskAndAWindow) {
  FUSOR_NEEDS_HOPPER();
  for (const RaggedCase& c : {RaggedCase{{300, 1, 129}, {300, 40, 500}, 4, 2, 128, 128, 0, 0, true},
                              RaggedCase{{400, 0, 270}, {400, 0, 270}, 2, 2, 64, 64, 0, 0, false}}) {
    const Graph graph = test::padded_attention_of_blocks(c, 150);
    const std::array<const Engine*, 2> engines{&elementwise_engine(), &attention_engine()};
    DeviceRun run(graph, build(graph, DeviceInfo::current(), PlannerOptions{.engine_list = engines}));
    test::fill_padded_of_blocks(c,
                                [&](const std::string& name, const auto& write) { run.edit(name, write); });
    run.run();
    const VerifyReport report = run.check();
    EXPECT_TRUE(report.passed()) << name_of(c) << "\n" << to_string(report);
    EXPECT_TRUE(run.gaps_are_untouched()) << name_of(c);
  }
}

const RaggedCase kRaggedGradientCases[] = {
    {{300, 0, 1, 129}, {300, 0, 1, 129}, 2, 2, 64, 64, 0, 0, true},
    {{300, 0, 1, 129}, {300, 0, 1, 129}, 2, 2, 128, 128, 5, 0, true},
    {{300, 0, 1, 129, 77}, {40, 500, 129, 0, 128}, 4, 2, 128, 128, 1, 0, false},
    {{257, 128, 13}, {100, 257, 64}, 4, 1, 64, 64, 3, 8, false},
    {{257, 128, 13}, {257, 128, 13}, 8, 4, 64, 64, 2, 3, true},
    {{200, 1, 40}, {200, 1, 40}, 2, 1, 80, 80, 1, 1, true, true, DataType::f16},
    {{300, 0, 40}, {13, 0, 500}, 2, 2, 64, 64, 2, 3, false, true, DataType::bf16, false, true},
    // The diagonal goes through the last query and key, which the device alone knows.
    {{200, 129, 0}, {190, 400, 7}, 4, 2, 128, 128, 1, 0, true, true, DataType::bf16, true},
};

class RaggedGradientsGpu : public testing::TestWithParam<RaggedCase> {};

// Runs the first candidate of attention's gradients and some of the others; sums of rows are in front of the
// op's.
void check_gradients(const RaggedCase& c, const Graph& graph,
                     void (*fill)(const RaggedCase&, const test::EditInput&)) {
  const std::array<const Engine*, 2> engines{&elementwise_engine(), &attention_backward_engine()};
  bool first = true;
  for (const Candidate& candidate :
       candidates(graph, DeviceInfo::current(), PlannerOptions{.engine_list = engines})) {
    const bool is_taken =
        first || test::is_sampled(name_of(c) + to_string(candidate.fusions.back().config), 4);
    first = false;
    if (!is_taken) continue;
    DeviceRun run(graph,
                  build(graph, DeviceInfo::current(), candidate, PlannerOptions{.engine_list = engines}));
    fill(c, [&](const std::string& name, const auto& write) { run.edit(name, write); });
    run.run();
    const VerifyReport report = run.check();
    EXPECT_TRUE(report.passed()) << name_of(c) << " " << to_string(candidate.fusions.back().config) << "\n"
                                 << to_string(report);
    EXPECT_TRUE(run.gaps_are_untouched()) << name_of(c);
  }
}

TEST_P(RaggedGradientsGpu, AreReadAndWrittenInPlace) {
  FUSOR_NEEDS_HOPPER();
  check_gradients(GetParam(), test::ragged_gradients(GetParam()), test::fill_ragged_gradients);
}

TEST_P(RaggedGradientsGpu, OfTheOpAreReadAndWrittenInPlace) {
  FUSOR_NEEDS_HOPPER();
  check_gradients(GetParam(), test::ragged_gradients_by_op(GetParam()), test::fill_ragged_gradients_by_op);
}

TEST_P(RaggedGradientsGpu, OfPaddedTensorsReadNothingBehindLengths) {
  FUSOR_NEEDS_HOPPER();
  RaggedCase c = GetParam();
  c.is_padded = true;
  check_gradients(c, test::ragged_gradients_by_op(c), test::fill_ragged_gradients_by_op);
}

INSTANTIATE_TEST_SUITE_P(Cases, RaggedGradientsGpu, testing::ValuesIn(kRaggedGradientCases));

}  // namespace
}  // namespace fusor
