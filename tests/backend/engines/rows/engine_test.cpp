// Owns the tests of what the rows engine takes, refuses and offers.
#include <gmock/gmock.h>

#include <algorithm>
#include <bit>

#include "backend/engines/knobs.h"
#include "backend/engines/list.h"
#include "backend/engines/rows/schedule.h"
#include "backend/planning.h"
#include "heuristics/time_model.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/golden_text.h"
#include "tests/backend/engines/rows/cases.h"

namespace fusor {
namespace {

using namespace rows_cases;
using testing::SizeIs;

std::string rule_of(const Graph& graph, const DeviceInfo& device = h200()) {
  const Support support = test::supports(rows_engine(), whole(graph), device);
  return support ? "" : support.refusal->rule;
}

KnobSetting knob_of(const char* name, int64_t value) { return {name, value}; }

int64_t knob(const EngineCandidate& candidate, std::string_view name) {
  return candidate.config.knob(name, -1);
}

const EngineCandidate& cheapest(const std::vector<EngineCandidate>& all) {
  return *std::ranges::min_element(
      all, {}, [](const EngineCandidate& one) { return estimate_seconds(one.work, h200()); });
}

TEST(RowsEngine, TakesWhatFeedsBack) {
  EXPECT_EQ(rule_of(softmax(DataType::bf16, {64, 512}, 1)), "");
  EXPECT_EQ(rule_of(softmax(DataType::bf16, {64, 20, 512}, 1)), "");
  EXPECT_EQ(rule_of(layer_norm(DataType::f32, {8, 16, 100})), "");
  EXPECT_EQ(rule_of(layer_norm_bwd(DataType::bf16, {64, 512})), "");
  EXPECT_EQ(rule_of(group_norm(DataType::f16, {2, 4, 8, 64}, true)), "");
}

// As measured on an H200: 51.6 us, where four lanes take 57.2.
TEST(RowsEngine, BlocksThatAreQuantisedHaveTwoLanes) {
  GraphBuilder g;
  const Tensor x = g.input("x", {8192, 8192}, DataType::bf16);
  const auto quantised = g.block_scale_quantize(
      x, {.block_size = 32, .y_type = DataType::f8_e4m3, .scale_type = DataType::f8_e8m0});
  const Plan plan = build(g.finish({quantised.y, quantised.scale}), h200(), {.compile = false});
  ASSERT_EQ(plan.fusions.size(), 1U);
  EXPECT_THAT(to_string(plan.fusions[0].config), testing::HasSubstr("group=2, "));
}

// One block waits for its loads and totals, and not longer because it is alone.
TEST(RowsEngine, ANormOfOneRowIsOneLaunch) {
  GraphBuilder g;
  const Tensor x = g.input("x", {1, 4096}, DataType::bf16);
  const Tensor scale = g.input("scale", {1, 4096}, DataType::bf16);
  const Graph graph = g.finish({g.norm_fwd(x, {.norm = NormMode::rms_norm, .scale = scale}).y});
  const Plan plan = build(graph, h200(), {.compile = false});
  ASSERT_EQ(plan.fusions.size(), 1U) << to_string(plan);
  EXPECT_EQ(plan.fusions[0].config.engine, "rows");
}

// As measured on an H200: softmax of 134 MB takes 61.4 us, elsewise 64.8; where rows are read again from
// L2, batch norm backward 244.6 and 240.0.
TEST(RowsEngine, ResultsLargerThanL2StayThereLongest) {
  const auto stays = [](const Graph& graph, int64_t held) {
    const EngineConfig config{"rows",
                              1,
                              {knob_of("vector", 8), knob_of("threads", 128), knob_of("group", 128),
                               knob_of("cluster", 1), knob_of("held", held), knob_of("batch", 1),
                               knob_of("blocks", 1), knob_of("join", 0), knob_of("split", 0)}};
    const Lowered lowered = test::lower(rows_engine(), whole(graph), config, h200());
    return std::get<Launch>(lowered.steps.front()).source->sites.front().expr.stores[0].stays_in_l2;
  };
  const Graph large = softmax(DataType::bf16, {16384, 4096}, 1);
  EXPECT_TRUE(stays(large, RowsKnobs::in_registers));
  EXPECT_FALSE(stays(large, RowsKnobs::in_memory));
  EXPECT_FALSE(stays(softmax(DataType::bf16, {4096, 4096}, 1), RowsKnobs::in_registers));
}

TEST(RowsEngine, RefusesTheCpu) {
  EXPECT_EQ(rule_of(softmax(DataType::bf16, {64, 512}, 1), DeviceInfo::cpu()), "needs-gpu");
}

TEST(RowsEngine, RefusesWhatReducesNothing) {
  GraphBuilder g;
  const Tensor x = g.input("x", {64, 512}, DataType::bf16);
  EXPECT_EQ(rule_of(g.finish({g.relu(x)})), "rows-form");
}

TEST(RowsEngine, RefusesFeedbackAlongOtherRows) {
  GraphBuilder g;
  const Tensor x = g.input("x", {64, 512}, DataType::f32);
  const Tensor first = g.sub(x, g.reduce(x, ReductionMode::max, {1}));
  EXPECT_EQ(rule_of(g.finish({g.sub(first, g.reduce(first, ReductionMode::max, {0}))})), "one-row");
}

TEST(RowsEngine, RefusesTotalsOfSomeOfTheOtherAxes) {
  GraphBuilder g;
  const Tensor x = g.input("x", {8, 64, 512}, DataType::f32);
  const Tensor y = g.sub(x, g.reduce(x, ReductionMode::max, {2}));
  g.output(y);
  g.output(g.reduce(y, ReductionMode::add, {0}));
  EXPECT_EQ(rule_of(g.finish()), "row-or-column");
}

TEST(RowsEngine, RefusesColumnsOfAdjacentRows) {
  GraphBuilder g;
  const Tensor x = g.input("x", {64, 512}, DataType::f32);
  const Tensor y = g.sub(x, g.reduce(x, ReductionMode::max, {0}));
  g.output(y);
  g.output(g.reduce(y, ReductionMode::add, {1}));
  EXPECT_EQ(rule_of(g.finish()), "columns-of-adjacent-rows");
}

TEST(RowsEngine, ShortRowsShareAWarp) {
  const auto all = test::candidates(rows_engine(), whole(rms_norm(DataType::bf16, {131072, 128})), h200());
  EXPECT_LE(knob(cheapest(all), "group"), 16);
  EXPECT_EQ(knob(cheapest(all), "held"), 0);
}

TEST(RowsEngine, LongRowsShareACluster) {
  const auto all = test::candidates(rows_engine(), whole(softmax(DataType::bf16, {8192, 128256}, 1)), h200());
  EXPECT_GE(knob(cheapest(all), "cluster"), 2);
  EXPECT_LE(knob(cheapest(all), "held"), 1);
}

TEST(RowsEngine, RowsThatNobodyHoldsAreReadByEachPhase) {
  DeviceInfo device = DeviceInfo::named("sm_80");
  const auto all = test::candidates(rows_engine(), whole(softmax(DataType::f32, {4, 1000000}, 1)), device);
  for (const EngineCandidate& one : all) EXPECT_TRUE(knob(one, "held") == 2 || knob(one, "split") == 1);
}

// The logarithm of a softmax of equal values is one number a row, and a result of elements all the same.
TEST(RowsEngine, OneValueOfARowIsStoredForEachElement) {
  GraphBuilder g;
  const Tensor x = g.input("x", {64, 512}, DataType::f32, {.strides = Strides{1, 0}});
  const Tensor less = g.sub(x, g.reduce(x, ReductionMode::max, {1}));
  g.output(g.sub(less, g.log(g.reduce(g.exp(less), ReductionMode::add, {1}))), {.name = "y"});
  const Fusion fusion = whole(g.finish());
  const EngineCandidate candidate = test::candidates(rows_engine(), fusion, h200()).front();
  const Lowered lowered = test::lower(rows_engine(), fusion, candidate.config, h200());
  EXPECT_THAT(test::generated_text(lowered, 0), testing::HasSubstr("kStoresElements = true"));
}

std::string cheapest_text(const Fusion& fusion) {
  const EngineCandidate candidate = test::candidates(rows_engine(), fusion, h200()).front();
  return test::generated_text(test::lower(rows_engine(), fusion, candidate.config, h200()), 0);
}

TEST(RowsEngine, WideCrossEntropyIsReadOnce) {
  const std::string text = cheapest_text(whole(cross_entropy(DataType::bf16, 8192, 128256)));
  EXPECT_THAT(text, testing::HasSubstr("kPhases = 1 }"));
  EXPECT_THAT(text, testing::HasSubstr("reduction_exp_sum<float>"));
}

// Every element compared with the label would be a third of the work.
TEST(RowsEngine, ElementOfALabelIsALoad) {
  const std::string text = cheapest_text(whole(cross_entropy(DataType::bf16, 8192, 1024)));
  EXPECT_THAT(text, testing::HasSubstr("load_where(args.in"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr(" == ")));
}

// The rows engine has nothing to walk where the only total of a row is one of its elements.
TEST(RowsEngine, RefusesRowsOfWhichOneElementIsTaken) {
  EXPECT_EQ(rule_of(labelled(DataType::bf16, 64, 1000)), "rows-form");
}

// The loads of vectors that may be partial have a second way, which would be compiled for nothing.
TEST(RowsEngine, OnlyTextsOfPartialVectorsCountElements) {
  const auto text_of = [](int64_t extent) {
    GraphBuilder g("softmax");
    const Strides strides{1032, 1};
    const Tensor x = g.input("x", {4096, extent}, DataType::bf16, {.strides = strides});
    g.output(g.softmax(x).y, {.type = DataType::bf16, .strides = strides});
    return cheapest_text(whole(g.finish()));
  };
  EXPECT_THAT(text_of(1024), testing::Not(testing::HasSubstr(", count)")));
  EXPECT_THAT(text_of(1027), testing::HasSubstr(", count)"));
}

TEST(RowsEngine, StrictGraphsPassOverMaximumAndSumApart) {
  Fusion fusion = whole(cross_entropy(DataType::bf16, 8192, 128256));
  fusion.precision = Precision::strict;
  EXPECT_THAT(cheapest_text(fusion), testing::HasSubstr("kPhases = 2 }"));
}

TEST(RowsEngine, NormsOfDistancesToTheMeanJoin) {
  for (const EngineCandidate& one :
       test::candidates(rows_engine(), whole(layer_norm(DataType::bf16, {512, 65536})), h200()))
    EXPECT_TRUE(knob(one, "join") == 1 || (knob(one, "held") % 4 == 0 && knob(one, "cluster") == 1));
}

// Blocks that see many rows and wait for one another must all be there at once.
TEST(RowsEngine, ClustersThatStayHaveRoomAtOnce) {
  const Fusion fusion = whole(layer_norm_bwd(DataType::bf16, {1024, 12288}));
  for (const EngineCandidate& one : test::candidates(rows_engine(), fusion, h200())) {
    if (knob(one, "cluster") < 4) continue;
    const Lowered lowered = test::lower(rows_engine(), fusion, one.config, h200());
    EXPECT_LE(std::get<Launch>(lowered.steps.front()).grid[0], 120 * knob(one, "blocks"));
  }
}

// 256 rows of 401,408 elements: no cluster has work for all SMs.
TEST(RowsEngine, FewLongRowsAreSplit) {
  const Fusion fusion = whole(batch_norm(DataType::bf16, {128, 256, 3136}, true));
  const auto all = test::candidates(rows_engine(), fusion, h200());
  EXPECT_EQ(knob(cheapest(all), "split"), 1);
  const Lowered lowered = test::lower(rows_engine(), fusion, cheapest(all).config, h200());
  ASSERT_THAT(lowered.steps, SizeIs(3));
  for (const size_t pass : {0, 2}) {
    const auto& grid = std::get<Launch>(lowered.steps[pass]).grid;
    EXPECT_GE(grid[0] * grid[1], 132u);
  }
}

TEST(RowsEngine, StatisticsOfSplitRowsAloneEndInOneBlockARow) {
  GraphBuilder g;
  const Tensor x = g.input("x", {100000, 64}, DataType::bf16);
  const Tensor centered = g.sub(x, g.reduce(x, ReductionMode::avg, {0}));
  g.output(g.reduce(g.mul(centered, centered), ReductionMode::avg, {0}), {.name = "variance"});
  const Fusion fusion = whole(g.finish());
  const auto all = test::candidates(rows_engine(), fusion, h200());
  const auto split = std::ranges::find_if(
      all, [](const auto& one) { return knob(one, "split") == 1 && knob(one, "held") == 2; });
  ASSERT_NE(split, all.end());
  const Lowered lowered = test::lower(rows_engine(), fusion, split->config, h200());
  EXPECT_EQ(std::get<Launch>(lowered.steps.back()).grid[0], 1u);
}

// 10 channels a group: vectors of 8 reach over two groups.
TEST(RowsEngine, GroupsOfNeighbouringChannelsFold) {
  const auto all =
      test::candidates(rows_engine(), whole(group_norm(DataType::bf16, {2, 32, 10, 16384}, true)), h200());
  const auto folded = std::ranges::find_if(all, [](const auto& one) { return knob(one, "split") == 2; });
  ASSERT_NE(folded, all.end());
  EXPECT_EQ(knob(*folded, "vector"), 8);
}

// A schedule whose blocks meet, if there is room for any.
std::optional<RowsSchedule> resident_of(const std::optional<RowsProblem>& problem) {
  if (!problem) return std::nullopt;
  for (const RowsSchedule& one : rows_schedules(*problem))
    if (one.is_resident()) return one;
  return std::nullopt;
}

RowsProblem problem_of(const Fusion& fusion) { return std::get<RowsProblem>(rows_problem(fusion, h200())); }

TEST(RowsEngine, GroupsWhoseStatisticsAreStoredFold) {
  for (const Dims& dims :
       {Dims{2, 32, 10, 4096}, Dims{2, 16, 20, 1000}, Dims{3, 10, 4, 2001}, Dims{1, 4, 6, 5003}}) {
    const Fusion fusion = whole(group_norm_saved(DataType::bf16, dims, true, true));
    EXPECT_TRUE(resident_of(folded(problem_of(fusion)))) << to_string(dims);
  }
}

TEST(RowsEngine, GroupsWhoseStatisticsAreLoadedFold) {
  const Fusion fusion = whole(group_norm_bwd(DataType::bf16, {2, 32, 10, 4096}, true));
  EXPECT_TRUE(resident_of(folded(problem_of(fusion))));
}

// Channels of x are neighbours, and pixels of its results: blocks turn what they keep.
TEST(RowsEngine, GroupsWhoseResultsLieOtherwiseTurn) {
  for (const DataType type : {DataType::bf16, DataType::f32})
    for (const Dims& dims : {Dims{2, 32, 10, 1024}, Dims{2, 16, 20, 1000}, Dims{2, 5, 32, 1024}}) {
      const Fusion fusion = whole(group_norm_saved(type, dims, true, false));
      const std::optional<RowsProblem> problem = turned(problem_of(fusion));
      const std::optional<RowsSchedule> schedule = resident_of(problem);
      ASSERT_TRUE(schedule) << to_string(dims);
      const Lowered lowered = lower(*problem, *schedule);
      ASSERT_THAT(lowered.steps, SizeIs(1));
      EXPECT_EQ(std::get<Launch>(lowered.steps.front()).entry, "rows_turned");
      EXPECT_TRUE(std::get<Launch>(lowered.steps.front()).cooperative);
    }
}

// Lanes that share neighbouring rows are combined by halves: ten vectors of rows in a block made totals of
// five eighths of the elements.
TEST(RowsEngine, LanesOfAWarpThatShareRowsArePowersOfTwo) {
  const Fusion fusion = whole(group_norm_saved(DataType::bf16, {2, 32, 10, 1024}, true, false));
  const std::optional<RowsProblem> problem = turned(problem_of(fusion));
  ASSERT_TRUE(problem);
  for (const RowsSchedule& schedule : rows_schedules(*problem)) {
    const auto slots = static_cast<uint64_t>(schedule.slots());
    EXPECT_TRUE(slots > kWarp / 2 || std::has_single_bit(slots)) << slots;
  }
}

// A thread's vectors lie in one unit of its block, and end where the row does.
TEST(RowsEngine, TurnedRowsAreWholeVectors) {
  for (const int64_t pixels : {1000, 1004}) {
    const Fusion fusion = whole(group_norm_saved(DataType::bf16, {2, 32, 10, pixels}, true, false));
    for (const EngineCandidate& one : test::candidates(rows_engine(), fusion, h200())) {
      const bool turns = knob(one, "split") == RowsKnobs::turns;
      EXPECT_FALSE(turns && (pixels % 8 != 0 || knob(one, "group") % 8 != 0)) << to_string(one.config);
    }
  }
}

// A sector moves for each element of x, in each pass: 147 us were measured, and 28 for what lies alike.
TEST(RowsEngine, PassesOverScatteredElementsAreDear) {
  const auto seconds_in_memory = [](bool channels_last) {
    const Fusion fusion = whole(group_norm_saved(DataType::bf16, {8, 32, 10, 4096}, channels_last, false));
    double best = 1;
    for (const EngineCandidate& one : test::candidates(rows_engine(), fusion, h200()))
      if (knob(one, "held") == 2) best = std::min(best, estimate_seconds(one.work, h200()));
    return best;
  };
  EXPECT_GT(seconds_in_memory(true), 3 * seconds_in_memory(false));
}

TEST(RowsEngine, SumAndAverageOfOneValueAreOneTotal) {
  GraphBuilder g;
  const Tensor x = g.input("x", {64, 512}, DataType::f32);
  g.output(g.sub(x, g.reduce(x, ReductionMode::avg, {1})));
  g.output(g.reduce(x, ReductionMode::add, {1}));
  const std::string text = cheapest_text(whole(g.finish()));
  EXPECT_THAT(text, testing::HasSubstr("reduction_avg<float>"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("reduction_add<float>")));
}

TEST(RowsEngine, EveryCandidateLowersToItsOwnSetting) {
  for (const Graph& graph :
       {softmax(DataType::bf16, {640, 4096}, 1), layer_norm_bwd(DataType::bf16, {512, 768}),
        softmax(DataType::f16, {8, 100, 512}, 1), batch_norm(DataType::bf16, {16, 64, 3136}, true)}) {
    const Fusion fusion = whole(graph);
    const DeviceInfo& device = h200();
    const auto answer = rows_problem(fusion, device);
    const RowsProblem& problem = std::get<RowsProblem>(answer);
    for (const EngineCandidate& one : test::candidates(rows_engine(), fusion, h200())) {
      const Lowered lowered = test::lower(rows_engine(), fusion, one.config, h200());
      const Lowered own = lower(problem, RowsSchedule(problem, knobs_of<RowsKnobs>(one.config)));
      ASSERT_EQ(lowered.steps.size(), own.steps.size());
      for (size_t step = 0; step < own.steps.size(); ++step) {
        EXPECT_EQ(test::generated_text(lowered, step), test::generated_text(own, step));
        EXPECT_EQ(std::get<Launch>(lowered.steps[step]).grid, std::get<Launch>(own.steps[step]).grid);
      }
      const auto& launch = std::get<Launch>(lowered.steps.front());
      EXPECT_EQ(launch.block[0], knob(one, "threads"));
      EXPECT_EQ(launch.cluster[0], knob(one, "cluster"));
      EXPECT_LE(launch.shared_bytes, h200().shared_per_block);
    }
  }
}

EngineConfig in_registers(int64_t threads) {
  return {"rows",
          1,
          {{"vector", 8},
           {"threads", threads},
           {"group", threads},
           {"cluster", 1},
           {"held", 0},
           {"batch", 1},
           {"blocks", 1},
           {"join", 0}}};
}

TEST(RowsEngine, HeaderOfSoftmaxEqualsTheGoldenText) {
  const Lowered lowered =
      test::lower(rows_engine(), whole(softmax(DataType::bf16, {640, 2048}, 1)), in_registers(128), h200());
  ASSERT_THAT(lowered.steps, SizeIs(1));
  EXPECT_EQ(test::generated_text(lowered, 0), test::golden_text("rows/rows"));
}

TEST(RowsEngine, HeadersOfASplitNormEqualTheGoldenTexts) {
  const EngineConfig config{"rows",
                            1,
                            {{"vector", 8},
                             {"threads", 256},
                             {"group", 32},
                             {"cluster", 1},
                             {"held", 2},
                             {"batch", 4},
                             {"blocks", 1},
                             {"join", 1},
                             {"split", 1}}};
  const Lowered lowered =
      test::lower(rows_engine(), whole(batch_norm(DataType::bf16, {32, 64, 784}, true)), config, h200());
  ASSERT_THAT(lowered.steps, SizeIs(3));
  EXPECT_EQ(test::generated_text(lowered, 0), test::golden_text("rows/split"));
  EXPECT_EQ(test::generated_text(lowered, 1), test::golden_text("rows/totals"));
  EXPECT_EQ(test::generated_text(lowered, 2), test::golden_text("rows/split.finish"));
}

TEST(RowsEngine, HeaderOfABackwardNormInARingEqualsTheGoldenText) {
  const EngineConfig config{"rows",
                            1,
                            {{"vector", 8},
                             {"threads", 256},
                             {"group", 256},
                             {"cluster", 1},
                             {"held", 3},
                             {"batch", 1},
                             {"blocks", 2},
                             {"join", 0},
                             {"split", 0}}};
  const Lowered lowered =
      test::lower(rows_engine(), whole(rms_norm_bwd(DataType::bf16, {640, 2048})), config, h200());
  ASSERT_THAT(lowered.steps, SizeIs(2));
  EXPECT_EQ(test::generated_text(lowered, 0), test::golden_text("rows/ring"));
}

TEST(RowsEngine, HeaderOfCopiedRowsEqualsTheGoldenText) {
  const EngineConfig config{"rows",
                            1,
                            {knob_of("vector", 8), knob_of("threads", 128), knob_of("group", 16),
                             knob_of("cluster", 1), knob_of("held", 4), knob_of("batch", 1),
                             knob_of("blocks", 1), knob_of("join", 0), knob_of("split", 0)}};
  const Lowered lowered =
      test::lower(rows_engine(), whole(softmax(DataType::bf16, {64, 512, 2048}, 1)), config, h200());
  ASSERT_THAT(lowered.steps, SizeIs(1));
  EXPECT_EQ(test::generated_text(lowered, 0), test::golden_text("rows/rows.copied"));
  // 512 rows of 64 neighbours.
  EXPECT_EQ(std::get<Launch>(lowered.steps.front()).shared_bytes, 512 * 64 * 2);
}

const EngineConfig& resident_group_norm() {
  static const EngineConfig config{"rows",
                                   1,
                                   {knob_of("vector", 8), knob_of("threads", 320), knob_of("group", 8),
                                    knob_of("cluster", 1), knob_of("held", 4), knob_of("batch", 1),
                                    knob_of("blocks", 1), knob_of("join", 1), knob_of("split", 2)}};
  return config;
}

TEST(RowsEngine, HeaderOfAResidentNormEqualsTheGoldenText) {
  const Fusion fusion = whole(group_norm(DataType::bf16, {2, 32, 10, 16384}, true));
  const Lowered lowered = test::lower(rows_engine(), fusion, resident_group_norm(), h200());
  ASSERT_THAT(lowered.steps, SizeIs(1));
  EXPECT_EQ(test::generated_text(lowered, 0), test::golden_text("rows/resident"));
}

TEST(RowsEngine, HeaderOfAResidentNormWithStatisticsEqualsTheGoldenText) {
  const Fusion fusion = whole(group_norm_saved(DataType::bf16, {2, 32, 10, 16384}, true, true));
  const Lowered lowered = test::lower(rows_engine(), fusion, resident_group_norm(), h200());
  ASSERT_THAT(lowered.steps, SizeIs(1));
  EXPECT_EQ(test::generated_text(lowered, 0), test::golden_text("rows/resident.saved"));
}

TEST(RowsEngine, HeaderOfATurnedNormEqualsTheGoldenText) {
  const Fusion fusion = whole(group_norm_saved(DataType::bf16, {2, 32, 10, 16384}, true, false));
  EngineConfig config = resident_group_norm();
  config.knobs.back().value = RowsKnobs::turns;
  const Lowered lowered = test::lower(rows_engine(), fusion, config, h200());
  ASSERT_THAT(lowered.steps, SizeIs(1));
  EXPECT_EQ(test::generated_text(lowered, 0), test::golden_text("rows/turned"));
}

// Blocks that wait for each other all run at once, and shared memory holds every element.
TEST(RowsEngine, ResidentRowsHaveRoomAtOnce) {
  const Fusion fusion = whole(group_norm(DataType::bf16, {2, 32, 10, 16384}, true));
  size_t found = 0;
  for (const EngineCandidate& one : test::candidates(rows_engine(), fusion, h200())) {
    if (knob(one, "held") != 4) continue;
    ++found;
    const Launch launch =
        std::get<Launch>(test::lower(rows_engine(), fusion, one.config, h200()).steps.front());
    EXPECT_TRUE(launch.cooperative);
    EXPECT_LE(launch.grid[0] * launch.grid[1], 132 * knob(one, "blocks"));
    EXPECT_LE(launch.shared_bytes * knob(one, "blocks"), h200().shared_per_sm);
    EXPECT_GE(launch.shared_bytes * launch.grid[0] * launch.grid[1], int64_t{2} * 2 * 320 * 16384);
  }
  EXPECT_GT(found, 0u);
}

// Shared memory is given in units of 128 bytes: five blocks of 45632 and 1024 bytes lack 128 bytes of an
// SM's.
TEST(RowsEngine, ResidentColumnsHaveRoomInWholeUnits) {
  const Graph graph = [] {
    GraphBuilder g;
    return g.finish({g.reduce(g.input("x", {6304, 2304}, DataType::bf16), ReductionMode::add, {0})});
  }();
  for (const EngineCandidate& one : test::candidates(rows_engine(), whole(graph), h200())) {
    const bool is_that = knob(one, "threads") == 256 && knob(one, "group") == 64 && knob(one, "held") == 4;
    EXPECT_FALSE(is_that && knob(one, "blocks") == 5);
  }
}

// A block combines the channels of a group before it leaves their total to the others.
TEST(RowsEngine, ResidentBlocksHaveWholeGroups) {
  for (const Dims& dims : {Dims{2, 32, 10, 16384}, Dims{4, 8, 24, 5003}, Dims{3, 2, 20, 2000}}) {
    const Fusion fusion = whole(group_norm(DataType::bf16, dims, true));
    for (const EngineCandidate& one : test::candidates(rows_engine(), fusion, h200())) {
      if (knob(one, "held") != 4 || knob(one, "split") < 2) continue;
      const int64_t channels = knob(one, "threads") / knob(one, "group") * knob(one, "vector");
      EXPECT_TRUE(channels % dims[2] == 0 || channels >= dims[0] * dims[1] * dims[2])
          << to_string(one.config);
    }
  }
}

// 128 x 256 x 56 x 56 are 205 MB.
TEST(RowsEngine, RowsOfMoreThanSharedMemoryHoldsAreNotResident) {
  const Fusion fusion = whole(batch_norm(DataType::bf16, {128, 256, 3136}, true));
  for (const EngineCandidate& one : test::candidates(rows_engine(), fusion, h200()))
    EXPECT_FALSE(knob(one, "held") == 4 && knob(one, "split") == 1);
}

// Copies move pieces of 16 bytes.
TEST(RowsEngine, CopiedRowsAreWholeVectors) {
  for (const Graph& graph :
       {softmax(DataType::bf16, {5, 100003}, 1), softmax(DataType::bf16, {4, 500, 1001}, 1)})
    for (const EngineCandidate& one : test::candidates(rows_engine(), whole(graph), h200()))
      EXPECT_NE(knob(one, "held"), 4);
  for (const EngineCandidate& one : test::candidates(
           rows_engine(), whole(softmax(DataType::bf16, {64, 512, 2048}, 1)), DeviceInfo::named("T4")))
    EXPECT_NE(knob(one, "held"), 4);
}

// Bulk copies move whole rows of 16-byte pieces.
TEST(RowsEngine, RingsTakeRowsInOnePiece) {
  for (const EngineCandidate& one :
       test::candidates(rows_engine(), whole(layer_norm_bwd(DataType::bf16, {512, 1001})), h200()))
    EXPECT_NE(knob(one, "held"), 3);
}

TEST(RowsEngine, HeadersOfABackwardNormEqualTheGoldenTexts) {
  const Lowered lowered =
      test::lower(rows_engine(), whole(rms_norm_bwd(DataType::bf16, {640, 2048})), in_registers(128), h200());
  ASSERT_THAT(lowered.steps, SizeIs(2));
  EXPECT_EQ(test::generated_text(lowered, 0), test::golden_text("rows/rows.columns"));
  EXPECT_EQ(test::generated_text(lowered, 1), test::golden_text("rows/columns"));
}

}  // namespace
}  // namespace fusor
