// Owns the tests that convolutions whose windows stand side by side are products of patches.
#include "backend/planner/rewrites/products/patch_products.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "backend/build.h"
#include "backend/planner/kinds.h"
#include "backend/planner/planner.h"
#include "frontend/graph_builder.h"
#include "tests/backend/cpu_run.h"
#include "tests/backend/planner/planned_once.h"

namespace fusor {
namespace {

bool has_convolution(const Graph& graph) {
  return std::ranges::any_of(expand(graph).ops,
                             [](const Op& op) { return std::holds_alternative<Conv>(op.attributes); });
}

void expect_product(const Graph& graph) {
  EXPECT_FALSE(has_convolution(graph));
  test::planned_once(graph);
  expect_right_on_cpu(graph);
}

TEST(PatchProducts, PatchesOfAnImageAreMultiplied) {
  for (const Layout image : {Layout::nchw, Layout::nhwc})
    for (const Layout filters : {Layout::nchw, Layout::nhwc}) {
      GraphBuilder g;
      const Tensor x = g.input("x", {2, 3, 8, 12}, DataType::f16, image),
                   w = g.input("w", {5, 3, 4, 3}, DataType::f16, filters);
      const Tensor y = g.conv_fprop(x, w, {.stride = {4, 3}});
      g.output(g.add(y, g.input("bias", {5, 1, 1}, DataType::f16)), {.type = DataType::f16});
      expect_product(g.finish());
    }
}

TEST(PatchProducts, LinesAndVolumesHavePatchesToo) {
  for (const int spatial : {1, 3}) {
    GraphBuilder g;
    Dims x{2, 3}, w{5, 3}, stride;
    for (int i = 0; i < spatial; ++i) {
      x.push_back(4 * (i + 1));
      w.push_back(2);
      stride.push_back(2);
    }
    const Tensor y =
        g.conv_fprop(g.input("x", x, DataType::f32), g.input("w", w, DataType::f32), {.stride = stride});
    expect_product(g.finish({g.relu(y)}));
  }
}

TEST(PatchProducts, GradientsOfFiltersAreProductsOfPatches) {
  for (const Layout filters : {Layout::nchw, Layout::nhwc}) {
    GraphBuilder g;
    const Tensor x = g.input("x", {2, 3, 8, 12}, DataType::f16),
                 dy = g.input("dy", {2, 5, 2, 4}, DataType::f16);
    const Tensor dw = g.conv_wgrad(dy, x, {5, 3, 4, 3}, {.stride = {4, 3}});
    g.output(dw, {.type = DataType::f16, .layout = filters});
    expect_product(g.finish());
  }
}

// Planes of an image, as PyTorch has it: no kernel of convolutions reads windows of 32.
TEST(PatchProducts, ReachTensorCores) {
  GraphBuilder g;
  const Tensor x = g.input("x", {8, 3, 224, 224}, DataType::bf16),
               w = g.input("w", {768, 3, 32, 32}, DataType::bf16);
  g.output(g.conv_fprop(x, w, {.stride = {32, 32}}), {.type = DataType::bf16, .layout = Layout::nhwc});
  const Plan plan = build(g.finish(), DeviceInfo::named("H200"), {.compile = false});
  ASSERT_EQ(plan.fusions.size(), 2U);
  EXPECT_EQ(plan.fusions.back().config.engine, "wgmma");
}

TEST(PatchProducts, OtherConvolutionsStay) {
  const auto stays = [](const Dims& x, const Dims& w, const ConvOptions& options) {
    GraphBuilder g;
    const Tensor y = g.conv_fprop(g.input("x", x, DataType::f16), g.input("w", w, DataType::f16), options);
    return has_convolution(g.finish({g.relu(y)}));
  };
  const Dims x{2, 3, 8, 12}, w{6, 3, 4, 4};
  EXPECT_FALSE(stays(x, w, {.stride = {4, 4}}));
  EXPECT_TRUE(stays(x, w, {.stride = {2, 4}})) << "windows overlap";
  EXPECT_TRUE(stays({2, 3, 9, 12}, w, {.stride = {4, 4}})) << "a line is left over";
  EXPECT_TRUE(stays({2, 3, 6, 12}, w, {.pre_padding = {2, 0}, .stride = {4, 4}})) << "padding";
  EXPECT_TRUE(stays({2, 6, 8, 12}, w, {.stride = {4, 4}})) << "groups";
  EXPECT_TRUE(stays(x, {6, 3, 1, 1}, {})) << "windows of one element";
  EXPECT_TRUE(stays({2, 8, 8, 12}, {6, 8, 4, 4}, {.stride = {4, 4}})) << "channels in chunks of 16 bytes";
}

}  // namespace
}  // namespace fusor
