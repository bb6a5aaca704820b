// Owns the tests of the window engine on the GPU: settings of every pass against the oracle, on odd sizes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <tuple>

#include "backend/engines/list.h"
#include "tests/backend/engines/window/cases.h"
#include "tests/gpu/device_run.h"

namespace fusor {
namespace {

using namespace window_cases;

void expect_every_setting_correct(const Graph& graph, const std::string& what) {
  static const Engine* const only[] = {&window_engine()};
  PlannerOptions options;
  options.build.max_candidates = 12;
  options.engine_list = only;
  expect_every_candidate_correct(graph, what, options);
}

void expect_all_correct(const Pool& pool, const std::string& what) {
  const bool is_maximum = pool.options.mode == ResampleMode::maxpool;
  expect_every_setting_correct(forward(pool), what + " forward");
  if (is_maximum) {
    expect_every_setting_correct(forward(pool, true), what + " forward with index");
    if (pool.overlaps()) expect_every_setting_correct(backward(pool, true), what + " backward by index");
  }
  if (pool.overlaps()) expect_every_setting_correct(backward(pool), what + " backward");
}

struct Shape {
  const char* name;
  Dims x;
  int64_t window, stride, padding;
};
void PrintTo(const Shape& shape, std::ostream* os) { *os << shape.name; }

using ModeLayoutShape = std::tuple<ResampleMode, bool, Shape>;

class WindowGpu : public testing::TestWithParam<ModeLayoutShape> {};

TEST_P(WindowGpu, EveryPass) {
  FUSOR_NEEDS_GPU();
  const auto& [mode, channels_last, shape] = GetParam();
  Pool pool = maximum(shape.x, shape.window, shape.stride, shape.padding);
  pool.options.mode = mode;
  pool.channels_last = channels_last;
  expect_all_correct(pool, fmt::format("{} of {} by {}, {}", to_string(mode), to_string(shape.x),
                                       shape.window, channels_last ? "nhwc" : "nchw"));
}

INSTANTIATE_TEST_SUITE_P(OddSizes, WindowGpu,
                         testing::Combine(testing::Values(ResampleMode::maxpool,
                                                          ResampleMode::avgpool_include_padding,
                                                          ResampleMode::avgpool_exclude_padding),
                                          testing::Bool(),
                                          testing::Values(Shape{"Overlapping", {2, 24, 13, 11}, 3, 2, 1},
                                                          Shape{"SideBySide", {3, 8, 9, 17}, 2, 2, 0},
                                                          Shape{"EveryElement", {1, 5, 7, 7}, 3, 1, 1},
                                                          Shape{"WholeVectors", {2, 16, 32, 32}, 3, 2, 1},
                                                          Shape{"Large", {2, 64, 16, 14}, 5, 3, 2},
                                                          Shape{"Gaps", {2, 8, 20, 23}, 2, 3, 0},
                                                          Shape{"OneChannel", {1, 1, 5, 5}, 2, 1, 0},
                                                          Shape{"OddChannels", {2, 12, 31, 6}, 3, 4, 1})),
                         [](const testing::TestParamInfo<ModeLayoutShape>& one) {
                           return fmt::format("{}_{}_{}", to_string(std::get<0>(one.param)),
                                              std::get<1>(one.param) ? "nhwc" : "nchw",
                                              std::get<2>(one.param).name);
                         });

class WindowTypesGpu : public testing::TestWithParam<std::tuple<DataType, bool>> {};

// Numbers of 8 bits are few, so that a window has its maximum in several places.
TEST_P(WindowTypesGpu, EveryPass) {
  FUSOR_NEEDS_GPU();
  const auto& [type, channels_last] = GetParam();
  Pool pool = maximum({2, 16, 14, 16}, 3, 2, 1);
  pool.type = type;
  pool.channels_last = channels_last;
  expect_all_correct(pool, std::string(to_string(type)));
}

INSTANTIATE_TEST_SUITE_P(AllTypes, WindowTypesGpu,
                         testing::Combine(testing::Values(DataType::f64, DataType::f32, DataType::bf16,
                                                          DataType::f8_e4m3, DataType::f8_e5m2),
                                          testing::Bool()),
                         [](const testing::TestParamInfo<std::tuple<DataType, bool>>& one) {
                           return fmt::format("{}_{}", to_string(std::get<0>(one.param)),
                                              std::get<1>(one.param) ? "nhwc" : "nchw");
                         });

// Pools of what another op yields: NaNs, and few different numbers.
void expect_pools_correct(const std::string& what, auto&& yield) {
  static const Engine* const both[] = {&window_engine(), &elementwise_engine()};
  for (const bool channels_last : {true, false})
    for (const DataType type : {DataType::f32, DataType::f16, DataType::bf16}) {
      Pool pool = maximum({2, 16, 14, 16}, 3, 2, 1);
      pool.type = type;
      pool.channels_last = channels_last;
      GraphBuilder g(what);
      const Tensor x = yield(g, pool.input(g, "x", pool.x, type));
      pool.output(g, x, "made", pool.x, type);
      const ResampleResults all = g.resample_fwd(x, pool.options);
      pool.output(g, all.y, "y", pool.y(), type);
      pool.output(g, all.index, "index", pool.y(), DataType::i8);
      const Tensor dy = pool.input(g, "dy", pool.y(), type);
      pool.output(g, g.resample_bwd(dy, pool.x, pool.options, x, Tensor{}), "dx", pool.x, type);
      PlannerOptions options;
      options.engine_list = both;
      expect_every_candidate_correct(g.finish(), fmt::format("{} {}", what, to_string(type)), options);
    }
}

TEST(WindowValuesGpu, NansAreMaxima) {
  FUSOR_NEEDS_GPU();
  expect_pools_correct("nan",
                       [](GraphBuilder& g, const Tensor& x) { return g.sqrt(g.add(x, g.constant(0.9))); });
}

TEST(WindowValuesGpu, TheFirstOfEqualMaximaCounts) {
  FUSOR_NEEDS_GPU();
  expect_pools_correct("ties", [](GraphBuilder& g, const Tensor& x) { return g.floor(g.add(x, x)); });
}

TEST(WindowValuesGpu, InfinitiesInThePaddingsNeighbourhood) {
  FUSOR_NEEDS_GPU();
  expect_pools_correct("infinite", [](GraphBuilder& g, const Tensor& x) {
    return g.mul(g.constant(-1.0), g.reciprocal(g.abs(g.floor(x))));
  });
}

TEST(WindowShapesGpu, OneAndThreeDims) {
  FUSOR_NEEDS_GPU();
  for (const bool channels_last : {true, false}) {
    Pool line = maximum({3, 16, 37}, 3, 2, 1);
    line.options.window = {3}, line.options.stride = {2};
    line.options.pre_padding = {1}, line.options.post_padding = {1};
    Pool block = maximum({2, 8, 7, 6, 9}, 2, 2, 0);
    block.options.window = {2, 2, 3}, block.options.stride = {2, 1, 2};
    block.options.pre_padding = {0, 1, 1}, block.options.post_padding = {1, 0, 1};
    for (Pool* const pool : {&line, &block}) {
      pool->channels_last = channels_last;
      expect_all_correct(*pool, fmt::format("{} dims", pool->options.window.rank()));
    }
  }
}

class WindowRandomGpu : public testing::TestWithParam<uint32_t> {};

TEST_P(WindowRandomGpu, EveryPass) {
  FUSOR_NEEDS_GPU();
  std::mt19937 random(GetParam());
  const auto pick = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  Pool pool = maximum({pick(1, 3), pick(1, 20), pick(4, 40), pick(4, 40)}, 1, 1, 0);
  if (pick(0, 1) == 1) pool.x[1] = 8 * pick(1, 4);
  if (pick(0, 1) == 1) pool.x[3] = 8 * pick(1, 5);
  for (int i = 0; i < 2; ++i) {
    pool.options.window[i] = pick(1, 4);
    pool.options.stride[i] = pick(1, 4);
    pool.options.pre_padding[i] = pick(0, pool.options.window[i] - 1);
    pool.options.post_padding[i] = pick(0, pool.options.window[i] - 1);
  }
  constexpr ResampleMode kModes[] = {ResampleMode::maxpool, ResampleMode::avgpool_include_padding};
  pool.options.mode = kModes[pick(0, 1)];
  constexpr DataType kTypes[] = {DataType::f16, DataType::bf16, DataType::f32};
  pool.type = kTypes[pick(0, 2)];
  pool.channels_last = pick(0, 1) == 1;
  // One place is no window: elementwise takes it.
  if (element_count(pool.options.window) == 1) pool.options.window[0] = 2;
  expect_all_correct(pool,
                     fmt::format("{} of {} by {} every {}", to_string(pool.options.mode), to_string(pool.x),
                                 to_string(pool.options.window), to_string(pool.options.stride)));
}

INSTANTIATE_TEST_SUITE_P(Pools, WindowRandomGpu, testing::Range(1u, 33u));

// Windows that are written by hand: what neighbours must not share, and what the engine leaves to others.
TEST(WindowShapesGpu, WindowsWrittenByHand) {
  FUSOR_NEEDS_GPU();
  static const Engine* const all[] = {&window_engine(), &rows_engine(), &elementwise_engine()};
  PlannerOptions options;
  options.build.max_candidates = 64;
  options.engine_list = all;
  for (const Graph& graph : {weighted_windows(), strided_windows({8, 34, 3}, 1),
                             strided_windows({34, 32, 1}, 0), guarded_windows(), spread_totals()})
    expect_every_candidate_correct(graph, graph.name, options);
}

TEST(WindowShapesGpu, PaddingsOfTwoSizes) {
  FUSOR_NEEDS_GPU();
  for (const bool channels_last : {true, false}) {
    Pool pool = maximum({2, 8, 16, 24}, 4, 2, 0);
    pool.options.window = {4, 3}, pool.options.stride = {2, 2};
    pool.options.pre_padding = {0, 2}, pool.options.post_padding = {3, 1};
    pool.channels_last = channels_last;
    expect_all_correct(pool, "uneven");
  }
}

}  // namespace
}  // namespace fusor
