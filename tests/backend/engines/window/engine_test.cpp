// Owns the tests of the window engine: which fusions it takes, what tiles of windows share, its text.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <gtest/gtest.h>
#include <set>

#include <limits>

#include "backend/build.h"
#include "backend/engines/list.h"
#include "backend/engines/window/problem.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/golden_text.h"
#include "tests/backend/engines/window/cases.h"
#include "tests/backend/engines/window/settings.h"

namespace fusor {
namespace {

using namespace window_cases;
using testing::SizeIs;

WindowProblem problem_of(const Fusion& fusion, const DeviceInfo& device) {
  return std::get<WindowProblem>(window_problem(fusion, device));
}

TEST(WindowEngine, PoolingIsOneFusion) {
  const Pool pool = maximum({4, 16, 20, 20}, 3, 2, 1);
  for (const bool channels_last : {true, false}) {
    Pool laid = pool;
    laid.channels_last = channels_last;
    for (const Graph& graph :
         {forward(laid), forward(laid, true), backward(laid, true), forward(average(laid.x, 3, 2, 1, false)),
          forward(average(laid.x, 2, 2, 0, true)), backward(average(laid.x, 3, 2, 1, false))}) {
      const std::vector<Fusion> fusions = fusions_of(graph);
      ASSERT_THAT(fusions, SizeIs(1)) << graph.name;
      EXPECT_TRUE(test::supports(window_engine(), fusions[0], h200())) << graph.name;
    }
  }
}

// A load takes elements through three indices.
TEST(WindowEngine, PoolingOfThreeDimsIsOneFusion) {
  Pool pool = maximum({2, 8, 7, 6, 9}, 2, 2, 0);
  pool.options.window = {2, 2, 3}, pool.options.stride = {2, 1, 2};
  pool.options.pre_padding = {0, 1, 1}, pool.options.post_padding = {1, 0, 1};
  for (const Graph& graph : {forward(pool), forward(pool, true), backward(pool, true)}) {
    const std::vector<Fusion> fusions = fusions_of(graph);
    ASSERT_THAT(fusions, SizeIs(1)) << graph.name;
    EXPECT_TRUE(test::supports(window_engine(), fusions[0], h200())) << graph.name;
  }
}

TEST(WindowEngine, ByXTheMaximaAreFoundFirst) {
  const std::vector<Fusion> fusions = fusions_of(backward(maximum({4, 16, 20, 20}, 3, 2, 1)));
  ASSERT_THAT(fusions, SizeIs(2));
  for (const Fusion& fusion : fusions) EXPECT_TRUE(test::supports(window_engine(), fusion, h200()));
}

TEST(WindowEngine, RefusesElementsTakenThroughWhatIsRead) {
  GraphBuilder g("rows");
  const Tensor x = g.input("x", {100, 1, 64}, DataType::f32), at = g.input("at", {8, 3, 1}, DataType::i32);
  g.output(g.reduce(g.gather(x, at, {.axis = 0}), ReductionMode::max, {1}), {.name = "y"});
  for (const Fusion& fusion : fusions_of(g.finish())) {
    const Support support = test::supports(window_engine(), fusion, h200());
    ASSERT_FALSE(support);
    EXPECT_EQ(support.refusal->rule, "counted-places");
  }
}

// A thread would hold no element of any place.
TEST(WindowEngine, RefusesElementsThatAllPlacesShare) {
  GraphBuilder g("shared");
  const Tensor x = g.input("x", {2, 1, 1}, DataType::f32, {.strides = Strides{0, 0, 2}});
  const Tensor wider = g.resample_fwd(x, {.mode = ResampleMode::nearest, .output_size = {2}}).y;
  g.output(g.reduce(wider, ReductionMode::add, {0}), {.name = "y"});
  for (const Fusion& fusion : fusions_of(g.finish()))
    EXPECT_FALSE(test::supports(window_engine(), fusion, h200()));
}

TEST(WindowEngine, RefusesNumbersThatNoTextCounts) {
  GraphBuilder g("rows");
  const Tensor x = g.input("x", {100, 1, 64}, DataType::f32);
  const Tensor window = g.gen_index(g.input("like", {8, 3, 1}, DataType::i32), 0);
  const Tensor at = g.mod(window, g.constant(int64_t{5}, DataType::i32));
  g.output(g.reduce(g.gather(x, at, {.axis = 0}), ReductionMode::max, {1}), {.name = "y"});
  for (const Fusion& fusion : fusions_of(g.finish()))
    EXPECT_FALSE(test::supports(window_engine(), fusion, h200()));
}

// The largest of elements or, in the padding, of -infinity.
Graph largest_within(int64_t bound) {
  GraphBuilder g("padded");
  const Tensor x = g.input("x", {100, 1, 64}, DataType::f32),
               like = g.input("like", {60, 3, 1}, DataType::i32);
  const auto whole = [&](int64_t value) { return g.constant(value, DataType::i32); };
  const Tensor place = g.sub(g.add(g.mul(g.gen_index(like, 0), whole(2)), g.gen_index(like, 1)), whole(1));
  const Tensor fits = g.logical_and(g.cmp_ge(place, whole(0)), g.cmp_lt(place, whole(bound)));
  const Tensor at = g.binary_select(place, whole(-1), fits);
  const Tensor lowest = g.constant(-std::numeric_limits<double>::infinity());
  const Tensor values = g.binary_select(g.gather(x, at, {.axis = 0}), lowest, fits);
  g.output(g.reduce(values, ReductionMode::max, {1}), {.name = "y"});
  return g.finish();
}

TEST(WindowEngine, PaddingIsFilledByTheLoad) {
  const std::vector<Fusion> fusions = fusions_of(largest_within(100));
  ASSERT_THAT(fusions, SizeIs(1));
  EXPECT_TRUE(test::supports(window_engine(), fusions[0], h200()));
}

// Beyond the last element a gather gives 0, and so must the choice.
TEST(WindowEngine, RefusesChoicesBeyondTheElements) {
  const std::vector<Fusion> fusions = fusions_of(largest_within(110));
  ASSERT_THAT(fusions, SizeIs(1));
  const Support support = test::supports(window_engine(), fusions[0], h200());
  ASSERT_FALSE(support);
  EXPECT_EQ(support.refusal->rule, "places-inside");
}

void expect_no_tiles(const Graph& graph) {
  for (const Fusion& fusion : fusions_of(graph)) {
    ASSERT_TRUE(test::supports(window_engine(), fusion, h200()));
    for (const EngineCandidate& one : test::candidates(window_engine(), fusion, h200())) {
      EXPECT_EQ(one.config.knob("tile_rows", 0), 1) << to_string(one.config);
      EXPECT_EQ(one.config.knob("tile_columns", 0), 1) << to_string(one.config);
    }
  }
}

// Places that meet in x have weights of their own.
TEST(WindowEngine, WeightsOfPlacesAreNotShared) { expect_no_tiles(weighted_windows()); }

// Elements lie along windows, or along their places, beside the index.
TEST(WindowEngine, ElementsWithStridesOfTheirOwnAreNotShared) {
  expect_no_tiles(strided_windows({8, 34, 3}, 1));
  expect_no_tiles(strided_windows({34, 32, 1}, 0));
}

// Guards that are narrower than the extent part a run.
TEST(WindowEngine, RunsAreInsideAsAWhole) {
  const std::vector<Fusion> fusions = fusions_of(guarded_windows());
  ASSERT_THAT(fusions, SizeIs(1));
  EXPECT_LE(problem_of(fusions[0], h200()).run(4), 2);
}

TEST(WindowEngine, RefusesResultsOfEveryPlace) {
  for (const Fusion& fusion : fusions_of(spread_totals())) {
    const Support support = test::supports(window_engine(), fusion, h200());
    ASSERT_FALSE(support);
    EXPECT_EQ(support.refusal->rule, "totals-of-windows");
  }
}

// Counted in 32 bits, 8 times 2^29 would wrap.
TEST(WindowEngine, RefusesNumbersThatMayWrap) {
  GraphBuilder g("wide");
  const Tensor x = g.input("x", {8, 100, 1}, DataType::f32);
  const Tensor far = window_places(g, {1, 9, 3}, int64_t{1} << 29);
  const Tensor at = g.div(far, g.constant(int64_t{1} << 29, DataType::i32));
  g.output(g.reduce(g.gather(x, at, {.axis = 1}), ReductionMode::add, {2}), {.name = "y"});
  for (const Fusion& fusion : fusions_of(g.finish())) {
    const Support support = test::supports(window_engine(), fusion, h200());
    ASSERT_FALSE(support);
    EXPECT_EQ(support.refusal->rule, "narrow-places");
  }
}

TEST(WindowEngine, RefusesWindowsThatAThreadDoesNotHold) {
  const std::vector<Fusion> fusions = fusions_of(forward(average({2, 8, 40, 40}, 9, 1, 0, true)));
  for (const Fusion& fusion : fusions) EXPECT_FALSE(test::supports(window_engine(), fusion, h200()));
}

TEST(WindowEngine, RefusesADeviceWithoutThreads) {
  const std::vector<Fusion> fusions = fusions_of(forward(maximum({2, 8, 9, 9}, 3, 2, 1)));
  EXPECT_FALSE(test::supports(window_engine(), fusions[0], DeviceInfo::cpu()));
}

TEST(WindowEngine, VectorsLieAlongChannelsOrAreSingle) {
  const DeviceInfo& device = h200();
  Pool pool = maximum({4, 16, 20, 20}, 3, 2, 1);
  const std::vector<Fusion> last = fusions_of(forward(pool));
  EXPECT_EQ(problem_of(last[0], device).widest, 8);
  pool.channels_last = false;
  const std::vector<Fusion> planes = fusions_of(forward(pool));
  EXPECT_EQ(problem_of(planes[0], device).widest, 1);
}

TEST(WindowEngine, NeighbouringWindowsShareElements) {
  const DeviceInfo& device = h200();
  const std::vector<Fusion> fusions = fusions_of(forward(maximum({4, 16, 20, 20}, 3, 2, 1)));
  const WindowProblem problem = problem_of(fusions[0], device);
  EXPECT_EQ(problem.places(), 9);
  EXPECT_EQ(problem.columns.period, 1);
  EXPECT_EQ(reach_of(problem, 1, 1).loads, 9);
  EXPECT_EQ(reach_of(problem, 2, 2).loads, 25);
  EXPECT_EQ(problem.columns.meeting[2].step, 2);
  EXPECT_EQ(problem.columns.meeting[2].divisor, 1);
}

TEST(WindowEngine, ElementsOfAPeriodShareWindows) {
  const DeviceInfo& device = h200();
  const std::vector<Fusion> fusions = fusions_of(backward(maximum({4, 16, 20, 20}, 3, 2, 1), true));
  const WindowProblem problem = problem_of(fusions[0], device);
  EXPECT_EQ(problem.columns.period, 2);
  EXPECT_EQ(problem.columns.meeting[2].divisor, 2);
  // dy and the index of four windows, for four elements.
  EXPECT_EQ(reach_of(problem, 2, 2).loads, 8);
  EXPECT_EQ(reach_of(problem, 2, 2).places, 9);
}

// The last window that begins at or before an element may end before it, beside elements that it reaches.
TEST(WindowEngine, ElementsMeetWindowsThatDoNotReachThem) {
  const DeviceInfo& device = h200();
  const std::vector<Fusion> fusions = fusions_of(backward(maximum({4, 16, 20, 20}, 3, 2, 1), true));
  const WindowMeeting meeting = problem_of(fusions[0], device).columns.meeting[4];
  EXPECT_NE(meeting.never, 0U);
}

// A row of 20 elements is loaded 4 at a time, those of 4 windows and of the one in front of them.
TEST(WindowEngine, PlanesAreLoadedInRuns) {
  const DeviceInfo& device = h200();
  const auto run = [&](const Pool& asked, int64_t columns) {
    Pool pool = asked;
    pool.channels_last = false;
    const std::vector<Fusion> fusions = fusions_of(forward(pool));
    return problem_of(fusions[0], device).run(columns);
  };
  EXPECT_EQ(run(maximum({4, 16, 20, 20}, 3, 2, 1), 1), 1);
  EXPECT_EQ(run(maximum({4, 16, 20, 20}, 3, 2, 1), 2), 4);
  EXPECT_EQ(run(maximum({4, 16, 20, 20}, 3, 2, 1), 4), 4);
  EXPECT_EQ(run(maximum({4, 16, 20, 32}, 3, 2, 1), 4), 8);
  EXPECT_EQ(run(maximum({4, 16, 20, 22}, 3, 2, 1), 4), 2);
  EXPECT_EQ(run(maximum({4, 16, 20, 21}, 3, 2, 1), 4), 1);
  EXPECT_EQ(run(maximum({4, 16, 20, 33}, 3, 3, 0), 2), 1);
  Pool wide = maximum({4, 16, 20, 32}, 3, 2, 1);
  wide.type = DataType::f32;
  EXPECT_EQ(run(wide, 4), 4);
}

// Channels last need no runs: their vectors lie across windows.
TEST(WindowEngine, ChannelsAreLoadedInVectors) {
  const std::vector<Fusion> fusions = fusions_of(forward(maximum({4, 16, 32, 32}, 3, 2, 1)));
  const DeviceInfo& device = h200();
  EXPECT_EQ(problem_of(fusions[0], device).run(4), 1);
}

// Windows that do not overlap are no windows backward: each element lies in one at most.
TEST(WindowEngine, OnePlaceIsNoWindow) {
  for (const Fusion& fusion : fusions_of(backward(average({4, 16, 20, 20}, 2, 2, 0, true))))
    EXPECT_FALSE(test::supports(window_engine(), fusion, h200()));
}

TEST(WindowEngine, TilesHoldWholePeriods) {
  const std::vector<Fusion> fusions = fusions_of(backward(maximum({4, 16, 20, 20}, 3, 2, 1), true));
  for (const EngineCandidate& one : test::candidates(window_engine(), fusions[0], h200())) {
    const int64_t rows = one.config.knob("tile_rows", 0), columns = one.config.knob("tile_columns", 0);
    EXPECT_TRUE((rows == 1 && columns == 1) || (rows % 2 == 0 && columns % 2 == 0)) << to_string(one.config);
  }
}

// Planes of channels, or images where channels are last: their places and weights are the same.
TEST(WindowEngine, ImagesShareTheWeightsOfPlaces) {
  for (const bool channels_last : {false, true}) {
    const std::vector<Fusion> fusions =
        fusions_of(interpolation({20, 16, 10, 12}, {20, 16, 20, 24}, channels_last));
    ASSERT_EQ(fusions.size(), 1u);
    const WindowProblem problem = problem_of(fusions[0], h200());
    EXPECT_EQ(problem.domain()[problem.images], channels_last ? 20 : 20 * 16);
    std::set<int64_t> counts;
    for (const EngineCandidate& one : test::candidates(window_engine(), fusions[0], h200()))
      counts.insert(one.config.knob("images", 0));
    EXPECT_EQ(counts, (std::set<int64_t>{1, 4, 16}));
  }
  EXPECT_EQ(problem_of(fusions_of(forward(maximum({4, 16, 20, 20}, 3, 2, 1)))[0], h200()).images, -1);
}

// A structure's text holds windows, strides and paddings, but no extents.
TEST(WindowEngine, ExtentsAreArguments) {
  const auto text = [](int64_t height, int64_t width) {
    const std::vector<Fusion> fusions = fusions_of(forward(maximum({4, 16, height, width}, 3, 2, 1), true));
    const EngineConfig config{"window", 1, {{"vector", 8}, {"tile_rows", 2}, {"tile_columns", 2}}};
    return test::generated_text(test::lower(window_engine(), fusions[0], config, h200()), 0);
  };
  EXPECT_EQ(text(40, 56), text(64, 80));
  EXPECT_NE(text(40, 56), text(42, 56));  // an odd number of rows: the last tiles are not whole
}

// Sums of zeros outside have no text; a maximum has one of its own there.
TEST(WindowEngine, SumsIgnorePlacesOutside) {
  const EngineConfig config{"window", 1, {{"vector", 8}, {"tile_rows", 2}, {"tile_columns", 2}}};
  const auto text = [&](const Graph& graph) {
    return test::generated_text(test::lower(window_engine(), fusions_of(graph)[0], config, h200()), 0);
  };
  EXPECT_THAT(text(backward(maximum({4, 16, 20, 20}, 3, 2, 1), true)),
              testing::HasSubstr("kSumsIgnoreOutside = true"));
  EXPECT_THAT(text(forward(maximum({4, 16, 20, 20}, 3, 2, 1), true)),
              testing::HasSubstr("kSumsIgnoreOutside = false"));
}

void expect_golden(const Graph& graph, const EngineConfig& config, const char* file) {
  const std::vector<Fusion> fusions = fusions_of(graph);
  const Lowered lowered = test::lower(window_engine(), fusions[0], config, h200());
  ASSERT_THAT(lowered.steps, SizeIs(1));
  EXPECT_EQ(test::generated_text(lowered, 0), test::golden_text(file));
}

// What a GPU is tested with (tests/gpu): no value of a knob is left out.
TEST(WindowEngine, SettingsOfTheTestsHaveEveryValueOfEveryKnob) {
  KnobValues known, covered;
  for (const auto& [name, graph] : graphs_of_all_settings()) {
    const std::vector<Candidate> settings = covering_settings(graph, h200());
    EXPECT_LE(settings.size(), 16u) << name;
    for (const Candidate& candidate : settings) {
      ASSERT_EQ(candidate.fusions.size(), 1u) << name;
      covered.merge(values_of(candidate.fusions.front().config));
    }
    const Candidate& first = settings.front();
    const Graph& planned = *first.graph;
    const Fusion fusion = make_fusion(planned, fold_views(planned), first.fusions.front().ops);
    const DeviceInfo& device = h200();
    const PreparedOr prepared = window_engine().prepare(fusion, device);
    for (const Knob& knob : std::get<std::unique_ptr<const Prepared>>(prepared)->knobs())
      for (const int64_t value : knob.values) known.emplace(knob.name, value);
  }
  EXPECT_EQ(covered, known);
}

TEST(WindowEngine, HeaderEqualsTheGoldenText) {
  Pool pool = maximum({4, 16, 40, 40}, 3, 2, 1);
  expect_golden(backward(pool, true), {"window", 1, {{"vector", 8}, {"tile_rows", 2}, {"tile_columns", 2}}},
                "window/window");
  pool.channels_last = false;
  expect_golden(forward(pool, true), {"window", 1, {{"vector", 1}, {"tile_rows", 2}, {"tile_columns", 4}}},
                "window/window.runs");
}

}  // namespace
}  // namespace fusor
