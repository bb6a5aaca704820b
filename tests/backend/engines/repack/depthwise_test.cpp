// Owns the checks of the depthwise_repacked engine: what it takes, and the copies around the depthwise
// kernels.
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/engines/list.h"
#include "frontend/graph_builder.h"
#include "tests/backend/devices.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/planner/whole_fusion.h"

namespace fusor::depthwise_test {
namespace {

using test::h200;

Fusion depthwise(ConvPass pass, Layout layout, DataType type = DataType::bf16) {
  GraphBuilder g("depthwise");
  const Dims x{4, 24, 14, 15}, w{24, 1, 3, 3};
  const ConvOptions options{.padding = {1, 1}};
  const Tensor first = g.input("first", x, type, layout);
  const Tensor second = g.input("second", pass == ConvPass::wgrad ? x : w, type, layout);
  const Tensor result = pass == ConvPass::fprop   ? g.relu(g.conv_fprop(first, second, options))
                        : pass == ConvPass::dgrad ? g.conv_dgrad(first, second, x, options)
                                                  : g.conv_wgrad(first, second, w, options);
  return test::fusion_of(g.finish({g.output(result, {.type = type, .layout = layout})}));
}

std::string rule(const Fusion& fusion) {
  const Support support = test::supports(depthwise_repacked_engine(), fusion, h200());
  return support ? "" : support.refusal->rule;
}

std::vector<std::string> roots(const Lowered& lowered) {
  std::vector<std::string> names;
  for (const Step& step : lowered.steps) names.push_back(std::get<Launch>(step).source->root);
  return names;
}

TEST(DepthwiseRepacked, TakesPlanesOnly) {
  for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad}) {
    EXPECT_EQ(rule(depthwise(pass, Layout::nchw)), "");
    EXPECT_EQ(rule(depthwise(pass, Layout::nhwc)), "something-to-repack");
  }
  GraphBuilder g("dense");
  const Tensor x = g.input("x", {2, 16, 8, 8}, DataType::bf16),
               w = g.input("w", {16, 16, 3, 3}, DataType::bf16);
  g.output(g.conv_fprop(x, w), {.type = DataType::bf16});
  EXPECT_EQ(rule(test::fusion_of(g.finish())), "one-channel-groups");
}

// Both operands of a wgrad are copied, its filter is stored where it belongs; fprop copies in and out.
TEST(DepthwiseRepacked, CopiesWhatLiesApart) {
  const auto first_lowered = [](const Fusion& fusion) {
    const auto config = test::candidates(depthwise_repacked_engine(), fusion, h200()).front().config;
    return test::lower(depthwise_repacked_engine(), fusion, config, h200());
  };
  const Lowered forward = first_lowered(depthwise(ConvPass::fprop, Layout::nchw));
  ASSERT_EQ(forward.steps.size(), 3U);
  EXPECT_EQ(roots(forward)[1].substr(0, 10), "depthwise/");
  const Lowered gradient = first_lowered(depthwise(ConvPass::wgrad, Layout::nchw));
  const auto kernels = roots(gradient);
  EXPECT_EQ(kernels.back(), "depthwise/finish.cuh");
  EXPECT_EQ(std::ranges::count_if(kernels,
                                  [](const std::string& root) { return root.starts_with("elementwise/"); }),
            2);
}

}  // namespace
}  // namespace fusor::depthwise_test
