// Owns the tests of convolutions of patches as convolutions of strides 1: which are, and that nothing
// changes.
#include "backend/engines/contraction/patches.h"

#include <gtest/gtest.h>

#include "backend/engines/contraction/product.h"
#include "backend/engines/list.h"
#include "tests/backend/devices.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tests/backend/engines/contraction/rewritten.h"
#include "tests/backend/planner/whole_fusion.h"

namespace fusor::patches_test {
namespace {

using test::fusion_of;

using test::h200;

struct Case {
  ConvPass pass = ConvPass::fprop;
  Dims x{2, 3, 6, 8}, w{5, 3, 2, 4};
  Layout layout = Layout::nhwc;
};

Graph graph_of(const Case& c, ConvOptions options = {}) {
  Dims y{c.x[0], c.w[0]};
  for (int axis = 2; axis < c.x.rank(); ++axis) {
    y.push_back(c.x[axis] / c.w[axis]);
    if (options.stride.rank() < axis - 1) options.stride.push_back(c.w[axis]);
  }
  GraphBuilder g("patches");
  const auto input = [&](const char* name, const Dims& dims) {
    return g.input(name, dims, DataType::f16, c.layout);
  };
  Tensor result = c.pass == ConvPass::fprop   ? g.conv_fprop(input("x", c.x), input("w", c.w), options)
                  : c.pass == ConvPass::dgrad ? g.conv_dgrad(input("dy", y), input("w", c.w), c.x, options)
                                              : g.conv_wgrad(input("dy", y), input("x", c.x), c.w, options);
  if (c.pass == ConvPass::fprop) {
    Dims per_channel = Dims::filled(y.rank(), 1);
    per_channel[1] = y[1];
    result = g.relu(g.add(result, g.input("bias", per_channel, DataType::f32)));
  }
  g.output(result, {.name = "result", .type = DataType::f16, .layout = c.layout});
  return g.finish();
}

void expect_the_same(const Case& c) {
  SCOPED_TRACE(testing::Message() << to_string(c.pass) << to_string(c.x) << to_string(c.w));
  const Graph graph = graph_of(c);
  const Fusion fusion = fusion_of(graph);
  const auto patches = as_convolution_of_patches(fusion);
  ASSERT_TRUE(patches);
  expect_same_bytes(graph, fusion, *patches);
}

TEST(Patches, AreTheSameAsWindows) {
  for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad}) {
    expect_the_same({.pass = pass});
    expect_the_same({.pass = pass, .x = {3, 2, 4, 9}, .w = {4, 2, 1, 3}});
    expect_the_same({.pass = pass, .x = {2, 3, 8, 5}, .w = {4, 3, 4, 1}});
    expect_the_same({.pass = pass, .x = {2, 3, 12}, .w = {4, 3, 4}});
    expect_the_same({.pass = pass, .x = {2, 3, 4, 6, 4}, .w = {4, 3, 1, 3, 2}});
  }
}

TEST(Patches, HaveTheRowsOfAWindowAsHeight) {
  const auto patches =
      as_convolution_of_patches(fusion_of(graph_of({.x = {2, 3, 32, 64}, .w = {8, 3, 16, 16}})));
  ASSERT_TRUE(patches);
  EXPECT_EQ(operand_site(*patches, 0, 0).domain, (Dims{4, 48, 16, 4}));
  EXPECT_EQ(operand_site(*patches, 0, 1).domain, (Dims{8, 48, 16, 1}));
  EXPECT_EQ(result_site(*patches).domain, (Dims{4, 8, 1, 4}));
}

// A vision transformer adds a position to each patch, the same for all images.
TEST(Patches, ImagesMayShareOperands) {
  for (const Layout layout : {Layout::nhwc, Layout::row_major}) {
    GraphBuilder g("patches");
    const Tensor x = g.input("x", {2, 3, 6, 8}, DataType::f16, Layout::nhwc);
    const Tensor w = g.input("w", {5, 3, 2, 4}, DataType::f16, Layout::nhwc);
    const Tensor y = g.conv_fprop(x, w, {.stride = {2, 4}});
    g.output(g.add(y, g.input("position", {1, 5, 3, 2}, DataType::f16, layout)),
             {.name = "result", .type = DataType::f16, .layout = layout});
    const Graph graph = g.finish();
    const Fusion fusion = fusion_of(graph);
    const auto patches = as_convolution_of_patches(fusion);
    ASSERT_TRUE(patches);
    EXPECT_EQ(operand_site(*patches, 0, 0).domain, (Dims{2, 12, 3, 2, 2}));
    EXPECT_EQ(result_site(*patches).domain, (Dims{2, 5, 3, 1, 2}));
    expect_same_bytes(graph, fusion, *patches);
  }
}

TEST(Patches, OtherWindowsAreNone) {
  const auto are_patches = [](const Case& c, const ConvOptions& options = {}) {
    return as_convolution_of_patches(fusion_of(graph_of(c, options))).has_value();
  };
  EXPECT_TRUE(are_patches({}));
  EXPECT_FALSE(are_patches({.w = {5, 3, 1, 1}})) << "a matmul";
  EXPECT_FALSE(are_patches({.x = {2, 3, 7, 8}})) << "a row that no window meets";
  EXPECT_FALSE(are_patches({.x = {2, 6, 6, 8}, .w = {6, 3, 2, 4}})) << "groups";
  EXPECT_FALSE(are_patches({.layout = Layout::nchw})) << "two strides of a row and its channels";
  EXPECT_FALSE(are_patches({.x = {2, 3, 4, 6, 4}, .w = {4, 3, 2, 3, 2}})) << "two strides of an image";
  EXPECT_FALSE(are_patches({}, {.mode = ConvMode::convolution}));
  EXPECT_FALSE(are_patches({.w = {5, 3, 1, 2}}, {.stride = {1, 4}}));
}

TEST(Patches, OfSixteenByThreeChannelsAreReadInPlace) {
  for (const ConvPass pass : {ConvPass::fprop, ConvPass::wgrad}) {
    const Fusion fusion = fusion_of(graph_of({.pass = pass, .x = {8, 3, 64, 64}, .w = {64, 3, 16, 16}}));
    EXPECT_TRUE(test::supports(wgmma_engine(), fusion, h200())) << to_string(pass);
  }
}

}  // namespace
}  // namespace fusor::patches_test
