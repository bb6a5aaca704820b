// Tests resampling beyond the golden cases: places that 32 bits do not count, gradients as transposes, and
// how many launches either pass takes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/print.h"
#include "tests/backend/cpu_run.h"

namespace fusor {
namespace {

// Audio of 16 kHz at 44.1 kHz. The oracle evaluates the same expansion: this is compared with the formula.
TEST(Resample, NearestFindsItsElementsInLongLines) {
  constexpr int64_t kFrom = 160000, kTo = 441000;
  GraphBuilder g;
  const Tensor x = g.input("x", {1, 1, kFrom}, DataType::f32);
  const Tensor y = g.output(g.resample_fwd(x, {.mode = ResampleMode::nearest, .output_size = {kTo}}).y);
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  std::vector<double> values(kFrom);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  tensors.set(x, values);
  run_on_cpu(graph, tensors);
  const std::vector<double> got = tensors.get(y);
  for (int64_t i = 0; i < kTo; ++i) {
    const int64_t taken = i * kFrom / kTo;
    ASSERT_EQ(got[static_cast<size_t>(i)], static_cast<double>(taken)) << i;
  }
}

TEST(Resample, BilinearOfTheSameSizeCopiesLongLines) {
  constexpr int64_t kElements = 70000;
  GraphBuilder g;
  const Tensor x = g.input("x", {1, 1, kElements}, DataType::f32);
  const Tensor y = g.output(
      g.resample_fwd(x, {.mode = ResampleMode::bilinear, .output_size = {kElements}, .align_corners = true})
          .y);
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  std::vector<double> values(kElements);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 1000);
  tensors.set(x, values);
  run_on_cpu(graph, tensors);
  EXPECT_EQ(tensors.get(y), values);
}

TEST(Resample, AMaximumOfNanIsThePlaceOfAWindowsFirstElement) {
  GraphBuilder g;
  const Tensor x = g.input("x", {1, 1, 4}, DataType::f32);
  const ResampleOptions options{.window = {3}, .stride = {2}, .padding = {1}};
  const ResampleResults pool = g.resample_fwd(x, options);
  const Tensor index = g.output(pool.index), dy = g.input("dy", pool.y.dims, DataType::f32);
  const Tensor dx = g.output(g.resample_bwd(dy, x.dims, options, x));
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(x, {1, std::nan(""), 3, 2});  // windows: padding, 1, NaN; NaN, 3, 2
  tensors.set(dy, {5, 7});
  run_on_cpu(graph, tensors);
  EXPECT_EQ(tensors.get(index), (std::vector<double>{1, 0}));
  EXPECT_EQ(tensors.get(dx), (std::vector<double>{5, 7, 0, 0}));
}

struct ResampleCase {
  ResampleOptions options;
  Dims from;
};

// Both passes of one op: dy times the results of x is x times the gradients of dy.
void expect_transposed(const ResampleCase& c) {
  const std::string what = fmt::format("{} from {}", to_string(c.options.mode), to_string(c.from));
  GraphBuilder g;
  Dims x_dims = c.from;
  x_dims.insert(0, 2);
  x_dims.insert(0, 3);
  const Tensor x = g.input("x", x_dims, DataType::f64);
  const Tensor y = g.output(g.resample_fwd(x, c.options).y, {.name = "y"});
  const Tensor dy = g.input("dy", y.dims, DataType::f64);
  const Tensor dx = g.output(g.resample_bwd(dy, x_dims, c.options), {.name = "dx"});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  run_on_cpu(graph, tensors);
  const auto product = [&](const Tensor& a, const Tensor& b) {
    const std::vector<double> first = tensors.get(a), second = tensors.get(b);
    return std::inner_product(first.begin(), first.end(), second.begin(), 0.0);
  };
  EXPECT_NEAR(product(dy, y), product(dx, x), 1e-10) << what;
}

// Windows that share no element: each gradient is repeated, and what comes behind is in the same kernel.
TEST(Resample, GradientsOfMeansSideBySideAreRepeated) {
  for (const ResampleMode mode :
       {ResampleMode::avgpool_include_padding, ResampleMode::avgpool_exclude_padding})
    for (const Dims& window : {Dims{2, 3}, Dims{4}, Dims{2, 1, 2}}) {
      Dims from;
      for (const int64_t extent : window) from.push_back(3 * extent);
      expect_transposed({{.mode = mode, .window = window, .stride = window}, from});
    }
  GraphBuilder g;
  const Dims dims{2, 8, 4, 6};
  const Tensor dy = g.input("dy", {2, 8, 2, 3}, DataType::f16, Layout::nhwc);
  const Tensor dx = g.resample_bwd(
      dy, dims, {.mode = ResampleMode::avgpool_include_padding, .window = {2, 2}, .stride = {2, 2}});
  g.output(g.relu_bwd(dx, g.input("x", dims, DataType::f16, Layout::nhwc)));
  const Graph graph = g.finish();
  EXPECT_EQ(build(graph, DeviceInfo::named("H200"), {.compile = false}).fusions.size(), 1U);
  expect_right_on_cpu(graph);
}

TEST(Resample, GradientsOfInterpolationAreItsTranspose) {
  for (const ResampleMode mode : {ResampleMode::bilinear, ResampleMode::nearest}) {
    for (const auto& [from, to] : {std::pair{Dims{5, 7}, Dims{9, 4}},
                                   {Dims{6, 6}, Dims{12, 18}},
                                   {Dims{1, 8}, Dims{7, 8}},
                                   {Dims{9}, Dims{2}},
                                   {Dims{2, 3, 4}, Dims{4, 3, 9}},
                                   {Dims{2}, Dims{100}},
                                   {Dims{50}, Dims{3}},
                                   {Dims{4, 1}, Dims{1, 1}}})
      for (const bool corners : {false, true})
        if (mode == ResampleMode::bilinear || !corners)
          expect_transposed({{.mode = mode, .output_size = to, .align_corners = corners}, from});
    // Coordinates that the graph says: in front of the first element and behind the last one, too.
    for (const auto& [step, shift] : {std::pair{3, 1}, {1, -9}, {5, -2}, {2, 40}, {0, 3}})
      expect_transposed(
          {{.mode = mode, .output_size = {11}, .step = {step}, .shift = {shift}, .denominator = {4}},
           Dims{6}});
  }
}

// Nobody counts the results of lines that are longer than any image: what reads them is a product then.
TEST(Resample, GradientsOfLinesOfAnyLengthArePlanned) {
  GraphBuilder g;
  constexpr int64_t kTo = int64_t{1} << 23;
  const Tensor dy = g.input("dy", {1, 1, kTo}, DataType::f32);
  const Graph graph =
      g.finish({g.resample_bwd(dy, {1, 1, 8}, {.mode = ResampleMode::nearest, .output_size = {kTo}})});
  EXPECT_GT(build(graph, DeviceInfo::named("H200"), BuildOptions{.compile = false}).seconds, 0);
}

TEST(Resample, GradientsOfAveragesAreTheirTranspose) {
  for (const ResampleMode mode :
       {ResampleMode::avgpool_include_padding, ResampleMode::avgpool_exclude_padding}) {
    expect_transposed({{.mode = mode, .window = {5, 4}}, {5, 4}});
    expect_transposed({{.mode = mode, .window = {5, 4}, .stride = {1, 1}}, {6, 4}});
    expect_transposed({{.mode = mode, .window = {4}, .stride = {1}, .padding = {2}}, {3}});
    expect_transposed({{.mode = mode, .window = {3}, .stride = {2}, .padding = {1}}, {9}});
  }
}

// As a product of dense matrices, or of all places with all elements, either would take a thousand times the
// time of what is moved.
TEST(Resample, OfTheOpIsOneLaunchInBothPasses) {
  constexpr int64_t kFrom = 56;
  const auto launches = [](const ResampleOptions& options, Layout layout, bool backward) {
    GraphBuilder g;
    const Dims dims{4, 32, kFrom, kFrom};
    const Tensor x = g.input("x", dims, DataType::f16, layout), y = g.resample_fwd(x, options).y;
    if (!backward) return build(g.finish({y}), DeviceInfo::named("H200"), BuildOptions{.compile = false});
    GraphBuilder back;
    const Tensor dy = back.input("dy", y.dims, DataType::f16, layout);
    return build(back.finish({back.resample_bwd(dy, dims, options)}), DeviceInfo::named("H200"),
                 BuildOptions{.compile = false});
  };
  for (const Layout layout : {Layout::row_major, Layout::nhwc})
    for (const bool backward : {false, true})
      for (const ResampleOptions& options :
           {ResampleOptions{.mode = ResampleMode::bilinear, .output_size = {2 * kFrom, 2 * kFrom}},
            {.mode = ResampleMode::bilinear, .output_size = {75, 33}},
            {.mode = ResampleMode::avgpool_exclude_padding, .window = {kFrom, kFrom}, .stride = {1, 1}}}) {
        const Plan plan = launches(options, layout, backward);
        EXPECT_EQ(plan.fusions.size(), 1U) << to_string(options.mode) << " " << backward;
        EXPECT_LT(plan.seconds, 60e-6) << to_string(options.mode) << " " << backward;
      }
}

}  // namespace
}  // namespace fusor
