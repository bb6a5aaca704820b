// Owns the tests of convolutions in groups of few channels on the GPU: every candidate and many more settings
// of odd sizes, strides, dilations and paddings, fused and plain.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "backend/engines/list.h"
#include "frontend/graph_builder.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/planner/whole_fusion.h"
#include "tests/gpu/engines/every_config.h"

namespace fusor {
namespace {

struct GroupedCase {
  int64_t images, groups, in, out;  // channels of a group
  Dims extent, window, pre, post, stride, dilation;
};

// Groups that blocks have too many or few of, images of less than a tile and of many, rows that end beside
// one, padding of all widths and none, windows that are not square, strides that pass over pixels.
const GroupedCase kCases[] = {
    {3, 5, 24, 24, {14, 14}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {2, 3, 24, 24, {28, 27}, {3, 3}, {1, 1}, {1, 1}, {2, 2}, {1, 1}},
    {9, 7, 8, 8, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {2, 4, 16, 16, {31, 19}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {1, 6, 32, 32, {13, 22}, {3, 3}, {1, 1}, {1, 1}, {2, 2}, {1, 1}},
    {2, 2, 40, 40, {9, 11}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {1, 3, 48, 48, {16, 16}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {2, 3, 8, 24, {20, 18}, {5, 5}, {2, 2}, {2, 2}, {1, 1}, {1, 1}},
    {2, 2, 24, 8, {12, 15}, {1, 3}, {0, 2}, {0, 0}, {1, 1}, {1, 1}},
    {1, 3, 16, 32, {21, 23}, {3, 2}, {2, 0}, {1, 1}, {1, 2}, {1, 1}},
    {2, 2, 8, 16, {17, 17}, {7, 7}, {3, 3}, {3, 3}, {3, 3}, {1, 1}},
    {3, 2, 24, 24, {15, 14}, {1, 1}, {0, 0}, {0, 0}, {2, 2}, {1, 1}},
    {1, 2, 16, 16, {5, 150}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {2, 3, 24, 16, {300}, {3}, {1}, {1}, {1}, {1}},
};
const GroupedCase kDilated{2, 3, 24, 24, {18, 20}, {3, 3}, {2, 2}, {2, 2}, {1, 2}, {2, 3}};

Dims with_channels(int64_t images, int64_t channels, const Dims& extents) {
  Dims dims{images, channels};
  for (const int64_t extent : extents) dims.push_back(extent);
  return dims;
}

Dims results(const GroupedCase& c) {
  Dims extents;
  for (int i = 0; i < c.window.rank(); ++i)
    extents.push_back(
        (c.extent[i] + c.pre[i] + c.post[i] - c.dilation[i] * (c.window[i] - 1) - 1) / c.stride[i] + 1);
  return extents;
}

enum class Epilogue { none, scale_residual_relu, relu_bwd };

Graph graph_of(const GroupedCase& c, ConvPass pass, DataType type, ConvMode mode, Epilogue epilogue) {
  const ConvOptions options{
      .pre_padding = c.pre, .post_padding = c.post, .stride = c.stride, .dilation = c.dilation, .mode = mode};
  const Dims x = with_channels(c.images, c.groups * c.in, c.extent),
             y = with_channels(c.images, c.groups * c.out, results(c));
  const bool forward = pass == ConvPass::fprop;
  const Dims& dims = forward ? y : x;
  GraphBuilder g("grouped");
  const Tensor first = g.input("first", forward ? x : y, type, Layout::nhwc);
  const Tensor filters =
      g.input("filters", with_channels(c.groups * c.out, c.in, c.window), type, Layout::nhwc);
  Tensor result = forward ? g.conv_fprop(first, filters, options) : g.conv_dgrad(first, filters, x, options);
  if (epilogue == Epilogue::scale_residual_relu) {
    Dims channels = Dims::filled(dims.rank(), 1);
    channels[1] = dims[1];
    result = g.relu(g.add(g.mul(result, g.input("scale", channels, DataType::f32)),
                          g.input("residual", dims, type, Layout::nhwc)));
  }
  if (epilogue == Epilogue::relu_bwd) result = g.relu_bwd(result, g.input("y", dims, type, Layout::nhwc));
  return g.finish({g.output(result, {.type = type, .layout = Layout::nhwc})});
}

// Whatever the knobs say that fits, also what no candidate offers: one in six.
void check(const GroupedCase& c, ConvPass pass, DataType type, ConvMode mode, Epilogue epilogue) {
  const Graph graph = graph_of(c, pass, type, mode, epilogue);
  const std::string what =
      fmt::format("{} {} {} groups of {} and {}, {} window {} stride {} {} epilogue {}", to_string(pass),
                  to_string(type), c.groups, c.in, c.out, to_string(c.extent), to_string(c.window),
                  to_string(c.stride), to_string(mode), static_cast<int>(epilogue));
  const std::vector<const Engine*> engines{&grouped_engine()};
  expect_every_config_correct(graph, engines, what);
  Candidate candidate =
      candidates(graph, DeviceInfo::current(), PlannerOptions{.engine_list = engines}).front();
  const int64_t chunks = (pass == ConvPass::fprop ? c.out : c.in) / 8;
  for (const int64_t pixels : {16, 64, 256})
    for (const int64_t groups : {1, 2, 3})
      for (const int64_t tiles : {1, 2, 4})
        for (const int64_t warps : {4, 8})
          for (const int64_t stages : {1, 2}) {
            if (tiles * chunks > 16) continue;
            EngineConfig& config = candidate.fusions.at(0).config;
            config = {"grouped", grouped_engine().revision(), {}};
            config.knobs = {{"pixels", pixels},
                            {"groups", groups},
                            {"tiles", tiles},
                            {"warps", warps},
                            {"stages", stages}};
            if (!test::is_sampled(what + to_string(config), 12)) continue;
            const Lowered lowered =
                test::lower(grouped_engine(), test::fusion_of(graph), config, DeviceInfo::current());
            if (std::get<Launch>(lowered.steps.at(0)).shared_bytes > DeviceInfo::current().shared_per_block)
              continue;
            expect_config_correct(graph, candidate, engines, what);
          }
}

TEST(GroupedGpu, EveryConvolution) {
  FUSOR_NEEDS_GPU();
  for (const GroupedCase& c : kCases)
    check(c, ConvPass::fprop, DataType::bf16, ConvMode::cross_correlation, Epilogue::none);
  check(kDilated, ConvPass::fprop, DataType::f16, ConvMode::cross_correlation, Epilogue::none);
}

TEST(GroupedGpu, EveryDataGradient) {
  FUSOR_NEEDS_GPU();
  for (const GroupedCase& c : kCases)
    check(c, ConvPass::dgrad, DataType::bf16, ConvMode::cross_correlation, Epilogue::none);
}

TEST(GroupedGpu, EveryEpilogue) {
  FUSOR_NEEDS_GPU();
  for (const GroupedCase& c : {kCases[0], kCases[1], kCases[7], kCases[9]}) {
    check(c, ConvPass::fprop, DataType::bf16, ConvMode::cross_correlation, Epilogue::scale_residual_relu);
    check(c, ConvPass::dgrad, DataType::bf16, ConvMode::cross_correlation, Epilogue::relu_bwd);
  }
}

TEST(GroupedGpu, MirroredFiltersInFp16) {
  FUSOR_NEEDS_GPU();
  for (const GroupedCase& c : {kCases[0], kCases[4], kCases[8], kCases[9]})
    for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad})
      check(c, pass, DataType::f16, ConvMode::convolution, Epilogue::none);
}

TEST(GroupedGpu, FiltersOfFp32AreNarrowedOnTheirWay) {
  FUSOR_NEEDS_GPU();
  for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad}) {
    GraphBuilder g("grouped");
    const Tensor first = g.input("first", {3, 96, 14, 14}, DataType::bf16, Layout::nhwc);
    const Tensor filters =
        g.identity(g.input("filters", {96, 24, 3, 3}, DataType::f32), {.type = DataType::bf16});
    const ConvOptions options{.padding = {1, 1}};
    const Tensor result = pass == ConvPass::fprop ? g.conv_fprop(first, filters, options)
                                                  : g.conv_dgrad(first, filters, {3, 96, 14, 14}, options);
    const Graph graph = g.finish({g.output(result, {.type = DataType::bf16, .layout = Layout::nhwc})});
    const std::vector<const Engine*> engines{&grouped_engine(), &elementwise_engine()};
    expect_every_config_correct(graph, engines, std::string(to_string(pass)));
  }
}

}  // namespace
}  // namespace fusor
