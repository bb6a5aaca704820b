// Owns the tests that what lies between convolutions lies channels last.
#include "backend/planner/rewrites/layouts/channels_last.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "backend/planner/planner.h"
#include "core/dims.h"
#include "frontend/graph_builder.h"
#include "tests/backend/cpu_run.h"
#include "tests/backend/planner/planned_once.h"

namespace fusor {
namespace {

constexpr DataType kType = DataType::f16;

// Convolutions of images of 5 x 6, each with a bias.
struct Network {
  GraphBuilder g{"network"};
  int count = 0;

  Tensor image(const std::string& name, int64_t channels, Layout layout = Layout::nchw) {
    return g.input(name, {2, channels, 5, 6}, kType, TensorOptions{.layout = layout});
  }
  Tensor convolution(const Tensor& x, int64_t channels, int64_t window, bool is_depthwise = false) {
    const std::string number = std::to_string(count++);
    const Dims filter{channels, is_depthwise ? 1 : x.dims[1], window, window};
    const Dims padding = Dims::filled(2, window / 2);
    const Tensor y = g.conv_fprop(x, g.input("w" + number, filter, kType),
                                  {.pre_padding = padding, .post_padding = padding});
    return g.add(y, g.input("b" + number, {1, channels, 1, 1}, kType),
                 {.name = "biased" + number, .type = kType});
  }
};

// The layout in which the planner lays the result of an op.
Layout layout_of(const Graph& graph, const std::string& op) {
  const Graph planned = test::planned_once(graph);
  for (const Op& one : planned.ops) {
    if (one.name != op) continue;
    const Tensor& y = planned.tensors[static_cast<size_t>(one.outputs[0])];
    for (const Layout layout : {Layout::nchw, Layout::nhwc})
      if (y.strides == packed_strides(y.dims, layout)) return layout;
  }
  ADD_FAILURE() << op << " has no result in a layout";
  return Layout::nchw;
}

TEST(ChannelsLast, BetweenConvolutionsOfPlanes) {
  Network n;
  const Tensor x = n.image("x", 3);
  const Tensor middle = n.convolution(x, 8, 3);
  const Graph graph = n.g.finish({n.convolution(n.g.relu(middle, {.name = "middle", .type = kType}), 4, 1)});
  EXPECT_EQ(layout_of(graph, "middle"), Layout::nhwc);
  EXPECT_EQ(layout_of(graph, "biased1"), Layout::nchw);
  expect_right_on_cpu(graph);
}

TEST(ChannelsLast, PlanesBetweenImagesWithChannelsLast) {
  Network n;
  const Tensor x = n.image("x", 3, Layout::nhwc);
  const Tensor planes = n.g.transpose(n.g.transpose(x, {0, 2, 3, 1}), {0, 3, 1, 2});
  const Tensor middle = n.g.relu(planes, {.name = "middle", .type = kType});
  const Graph graph = n.g.finish({n.convolution(middle, 4, 3)});
  EXPECT_EQ(layout_of(graph, "middle"), Layout::nhwc);
  expect_right_on_cpu(graph);
}

// A block's sum is tied to its operand, and so is what the next block adds.
TEST(ChannelsLast, WhatIsTiedToPlanesOfTheUserStays) {
  Network n;
  Tensor x = n.image("x", 4);
  for (int block = 0; block < 2; ++block) {
    const Tensor inner = n.convolution(x, 8, 3);
    x = n.g.add(n.convolution(inner, 4, 3), x, {.name = "sum" + std::to_string(block), .type = kType});
  }
  const Graph graph = n.g.finish({x});
  EXPECT_EQ(layout_of(graph, "sum0"), Layout::nchw);
  EXPECT_EQ(layout_of(graph, "biased0"), Layout::nhwc);
  EXPECT_EQ(layout_of(graph, "biased2"), Layout::nhwc);
  expect_right_on_cpu(graph);
}

TEST(ChannelsLast, ADepthwiseConvolutionKeepsTheOrder) {
  for (const bool is_given : {false, true}) {
    Network n;
    const Tensor x = n.image("x", 8);
    const Tensor wide = is_given ? x : n.convolution(x, 8, 1);
    const Tensor middle = n.convolution(wide, 8, 3, true);
    const Graph graph = n.g.finish({n.convolution(middle, 4, 1)});
    EXPECT_EQ(layout_of(graph, is_given ? "biased0" : "biased1"), is_given ? Layout::nchw : Layout::nhwc);
    expect_right_on_cpu(graph);
  }
}

// Pools and concatenations along channels read and write one order.
TEST(ChannelsLast, PoolsAndConcatenationsFollow) {
  Network n;
  const Tensor x = n.image("x", 4);
  const ResampleOptions pool{.mode = ResampleMode::maxpool, .window = {2, 2}, .stride = {1, 1}};
  const Tensor pooled =
      n.g.identity(n.g.resample_fwd(n.convolution(x, 4, 3), pool).y, {.name = "pooled", .type = kType});
  const Tensor other = n.g.slice(n.convolution(x, 4, 3), {0, 0, 0, 0}, {2, 4, 4, 5}, {});
  const Tensor both = n.g.concatenate({pooled, other}, 1);
  const Graph graph = n.g.finish({n.convolution(both, 4, 3)});
  EXPECT_EQ(layout_of(graph, "biased0"), Layout::nhwc);
  EXPECT_EQ(layout_of(graph, "biased1"), Layout::nhwc);
  expect_right_on_cpu(graph);
}

// Rows of all elements of an image have no order but the planes'.
TEST(ChannelsLast, WhatIsReadAsRowsOfPlanesStays) {
  Network n;
  const Tensor middle = n.convolution(n.image("x", 4), 8, 3);
  const Tensor rows = n.g.reshape(middle, {2, 240});
  const Graph graph =
      n.g.finish({n.convolution(middle, 4, 3), n.g.matmul(rows, n.g.input("v", {240, 4}, kType))});
  EXPECT_EQ(layout_of(graph, "biased0"), Layout::nchw);
  expect_right_on_cpu(graph);
}

// A given tensor is copied to its place in a concatenation, in the order of the others.
TEST(ChannelsLast, GivenPartsOfAConcatenationFollow) {
  Network n;
  const Tensor both = n.g.concatenate({n.image("skip", 4), n.convolution(n.image("x", 3), 4, 3)}, 1);
  const Graph graph = n.g.finish({n.convolution(both, 4, 3)});
  EXPECT_EQ(layout_of(graph, "biased0"), Layout::nhwc);
  expect_right_on_cpu(graph);
}

// Three windows over the same planes, of which one is 1 x 1 and has lines of its own.
TEST(ChannelsLast, PlanesThatSeveralConvolutionsReadAreCopiedOnce) {
  Network n;
  const Tensor x = n.image("x", 4);
  const Graph graph = n.g.finish({n.convolution(x, 4, 3), n.convolution(x, 8, 3), n.convolution(x, 8, 1)});
  EXPECT_EQ(layout_of(graph, "x.last"), Layout::nhwc);
  const Graph planned = expand(graph);
  const auto reads_given = [&](const Op& op) {
    return std::holds_alternative<Conv>(op.attributes) &&
           planned.tensors[static_cast<size_t>(op.inputs[0])].name == "x";
  };
  EXPECT_EQ(std::ranges::count_if(planned.ops, reads_given), 1);
  expect_right_on_cpu(graph);
}

TEST(ChannelsLast, PlanesOfOneConvolutionStay) {
  Network n;
  const Tensor x = n.image("x", 4);
  const Tensor rows = n.g.input("pixels", {2, 4, 1, 1}, kType);  // lie in both orders
  const Graph graph =
      n.g.finish({n.convolution(x, 4, 3), n.g.relu(x), n.convolution(rows, 4, 3), n.convolution(rows, 4, 3)});
  for (const Op& op : expand(graph).ops) EXPECT_FALSE(op.name.ends_with(".last")) << op.name;
}

// Tensor cores take fp32 in planes as well.
TEST(ChannelsLast, NumbersOfThirtyTwoBitsStay) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 4, 5, 6}, DataType::f32);
  const Tensor middle =
      g.relu(g.conv_fprop(x, g.input("w", {8, 4, 1, 1}, DataType::f32), {}), {.name = "middle"});
  const Graph graph = g.finish({g.conv_fprop(middle, g.input("v", {4, 8, 1, 1}, DataType::f32), {})});
  EXPECT_EQ(layout_of(graph, "middle"), Layout::nchw);
}

}  // namespace
}  // namespace fusor
