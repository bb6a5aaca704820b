// Owns the tests that views come behind the pointwise ops that read them.
#include "backend/planner/rewrites/views/late_views.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "backend/planner/planner.h"
#include "frontend/graph_builder.h"
#include "tests/backend/cpu_run.h"
#include "tests/backend/planner/groups_by_name.h"
#include "tests/backend/planner/planned_once.h"

namespace fusor {
namespace {

using testing::ElementsAre;

// The ops of each group by name; the graph is planned in one form, however often it is expanded.
std::vector<std::vector<std::string>> named_groups(const Graph& graph) {
  test::planned_once(graph);
  return test::groups_by_name(graph);
}

// As PyTorch writes linear layers: rows are merged for the product alone.
struct Linear {
  GraphBuilder g{"linear"};
  Tensor x = g.input("x", {2, 3, 8}, DataType::f32);
  Tensor product = g.matmul(g.reshape(x, {6, 8}), g.input("w", {8, 8}, DataType::f32), {.name = "matmul"});
  Tensor y = g.reshape(product, {2, 3, 8});
};

TEST(LateViews, AnActivationBehindAReshapeIsPartOfTheProduct) {
  Linear linear;
  const Graph graph = linear.g.finish({linear.g.relu(linear.y, {.name = "relu"})});
  EXPECT_THAT(named_groups(graph), ElementsAre(ElementsAre("matmul", "relu")));
  expect_right_on_cpu(graph);
}

TEST(LateViews, AResidualIsSeenInTheShapeOfTheProduct) {
  Linear linear;
  const Graph graph = linear.g.finish({linear.g.add(linear.x, linear.y, {.name = "residual"})});
  EXPECT_THAT(named_groups(graph), ElementsAre(ElementsAre("matmul", "residual")));
  expect_right_on_cpu(graph);
}

// The gradient of a gelu: what its slope is made of was saved in the product's shape, and is read behind
// reshapes of its own.
TEST(LateViews, ValuesOfWhatLiesInMemoryMeetTheProductInItsShape) {
  Linear linear;
  GraphBuilder& g = linear.g;
  const Tensor saved = g.input("saved", {6, 8}, DataType::f32);
  const Tensor first = g.reshape(saved, {2, 3, 8}), again = g.reshape(saved, {2, 3, 8});
  const Tensor tanh = g.tanh(g.mul(first, g.mul(first, again), {.name = "cube"}), {.name = "tanh"});
  const Tensor half = g.mul(linear.y, g.mul(again, g.constant(0.5), {.name = "half"}), {.name = "halved"});
  const Tensor slope = g.sub(g.constant(1.0), g.mul(tanh, tanh, {.name = "square"}), {.name = "slope"});
  const Tensor sum =
      g.add(g.mul(half, slope, {.name = "inner"}), g.mul(linear.y, tanh, {.name = "outer"}), {.name = "sum"});
  const Graph graph = g.finish({sum});
  EXPECT_THAT(named_groups(graph), ElementsAre(testing::Contains("matmul")));
  expect_right_on_cpu(graph);
}

TEST(LateViews, ValuesOfMemoryThatMeetNoProductKeepTheirShape) {
  GraphBuilder g;
  const Tensor saved = g.input("saved", {6, 8}, DataType::f32);
  const Tensor y = g.relu(g.reshape(saved, {2, 3, 8}), {.name = "relu"});
  const Tensor rows = g.reduce(y, ReductionMode::add, {1}, {.name = "rows"});
  const Graph graph = g.finish({g.mul(y, rows, {.name = "mul"})});
  Graph moved = graph;
  Additions additions(moved);
  EXPECT_FALSE(move_views_behind(moved, additions));
  expect_right_on_cpu(graph);
}

// The sum of the first layer is read where it is, not through the view that its other readers need.
TEST(LateViews, ResidualsOfSeveralLayersStayInOneShape) {
  Linear linear;
  GraphBuilder& g = linear.g;
  const Tensor first = g.add(linear.x, linear.y, {.name = "first"});
  const Tensor totals = g.reduce(first, ReductionMode::max, {2}, {.name = "totals"});
  const Tensor product =
      g.matmul(g.reshape(first, {6, 8}), g.input("v", {8, 8}, DataType::f32), {.name = "second"});
  const Tensor sum = g.add(first, g.reshape(product, {2, 3, 8}), {.name = "sum"});
  const Graph graph = g.finish({sum, totals});
  EXPECT_THAT(named_groups(graph),
              ElementsAre(ElementsAre("matmul", "first", "totals"), ElementsAre("second", "sum")));
  expect_right_on_cpu(graph);
}

// ConvNeXt's block ends so: its image has channels last.
TEST(LateViews, AScaleAndAResidualComeInFrontOfReshapeAndTranspose) {
  GraphBuilder g;
  const Tensor image = g.input("image", {2, 8, 3, 5}, DataType::f32, Layout::nhwc);
  const Tensor product = g.matmul(g.input("x", {30, 16}, DataType::f32), g.input("w", {16, 8}, DataType::f32),
                                  {.name = "matmul"});
  const Tensor y = g.transpose(g.reshape(product, {2, 3, 5, 8}), {0, 3, 1, 2});
  const Tensor scaled = g.mul(y, g.input("gamma", {8, 1, 1}, DataType::f32), {.name = "scale"});
  const Tensor sum = g.add(image, scaled, {.name = "residual"});
  const Graph graph = g.finish({g.relu(sum, {.name = "relu"})});
  EXPECT_THAT(named_groups(graph), ElementsAre(ElementsAre("matmul", "scale", "residual", "relu")));
  expect_right_on_cpu(graph);
}

// x * sigmoid(x): two readers of the view, one value behind them.
TEST(LateViews, SeveralReadersThatMakeOneValueMoveTogether) {
  Linear linear;
  const Tensor gate = linear.g.sigmoid(linear.y, {.name = "gate"});
  const Graph graph = linear.g.finish({linear.g.mul(linear.y, gate, {.name = "swish"})});
  EXPECT_THAT(named_groups(graph), ElementsAre(ElementsAre("matmul", "gate", "swish")));
  expect_right_on_cpu(graph);
}

// A norm of each head: its squares alone could move, and would be stored beside the product.
TEST(LateViews, WhatIsReducedBehindAViewStaysThere) {
  GraphBuilder g;
  const Tensor product = g.matmul(g.input("x", {6, 16}, DataType::f32), g.input("w", {16, 8}, DataType::f32),
                                  {.name = "matmul"});
  const Tensor heads = g.reshape(product, {2, 3, 2, 4});
  const Tensor squares = g.mul(heads, heads, {.name = "squares"});
  const Tensor mean = g.reduce(squares, ReductionMode::avg, {3}, {.name = "mean"});
  const Graph graph = g.finish({g.mul(heads, g.rsqrt(mean, {.name = "rsqrt"}), {.name = "norm"})});
  EXPECT_THAT(named_groups(graph),
              ElementsAre(ElementsAre("matmul"), ElementsAre("squares", "mean", "rsqrt", "norm")));
  expect_right_on_cpu(graph);
}

// Rows that a product alone reads behind them have its shape, whatever they are made of; but what works on
// rows beside a condition of each sequence does so in one shape.
TEST(LateViews, WholeRowsMoveOrNone) {
  for (const bool has_scale_of_sequences : {false, true}) {
    Linear linear;
    GraphBuilder& g = linear.g;
    const Tensor centred =
        g.sub(linear.y, g.reduce(linear.y, ReductionMode::avg, {2}, {.name = "mean"}), {.name = "centred"});
    const Tensor scaled = has_scale_of_sequences
                              ? g.mul(centred, g.input("s", {2, 1, 8}, DataType::f32), {.name = "scaled"})
                              : g.relu(centred, {.name = "scaled"});
    const Graph graph = g.finish(
        {g.matmul(g.reshape(scaled, {6, 8}), g.input("v", {8, 4}, DataType::f32), {.name = "second"})});
    const auto groups = named_groups(graph);
    if (has_scale_of_sequences) {
      EXPECT_THAT(groups, ElementsAre(ElementsAre("matmul"), ElementsAre("mean", "centred", "scaled"),
                                      ElementsAre("second")));
    }
    const Graph expanded = expand(graph);
    const auto mean = std::ranges::find(expanded.ops, "mean", &Op::name);
    EXPECT_EQ(expanded.tensors[static_cast<size_t>(mean->inputs[0])].dims.rank(),
              has_scale_of_sequences ? 3 : 2);
    expect_right_on_cpu(graph);
  }
}

// Behind a transpose, a reshape would merge what does not lie together.
TEST(LateViews, NoViewNeedsACopyBecauseAnotherMoved) {
  GraphBuilder g;
  Tensor y = g.matmul(g.input("x", {24, 4}, DataType::f32), g.input("w", {4, 4}, DataType::f32));
  for (int i = 0; i < 4; ++i)
    y = g.reshape(g.relu(g.transpose(g.reshape(y, {2, 12, 4}), {1, 0, 2})), {24, 4});
  const Graph graph = g.finish({y});
  EXPECT_LE(named_groups(graph).size(), 5U);
  expect_right_on_cpu(graph);
}

// Each sum in the other shape: all of them end in one.
TEST(LateViews, ManyViewsInTurnMove) {
  GraphBuilder g;
  Tensor y = g.matmul(g.input("x", {24, 4}, DataType::f32), g.input("w", {4, 4}, DataType::f32));
  for (int i = 0; i < 40; ++i) {
    const Dims dims = i % 2 == 0 ? Dims{2, 12, 4} : Dims{24, 4};
    y = g.add(g.reshape(y, dims), g.input("x" + std::to_string(i), dims, DataType::f32));
  }
  const Graph graph = g.finish({y});
  EXPECT_EQ(named_groups(graph).size(), 1U);
  expect_right_on_cpu(graph);
}

// A value that is wider than the view's result has no shape in front of the view.
TEST(LateViews, ValuesThatAreRepeatedKeepTheirShape) {
  GraphBuilder g;
  const Tensor product = g.matmul(g.input("x", {4, 8}, DataType::f32), g.input("w", {8, 2}, DataType::f32));
  const Tensor y = g.reshape(product, {8, 1}), other = g.input("other", {8, 3}, DataType::f32);
  const Graph graph =
      g.finish({g.mul(y, other), g.add(g.transpose(product, {1, 0}), g.reshape(y, {4, 2, 1}))});
  EXPECT_NO_THROW(named_groups(graph));
  expect_right_on_cpu(graph);
}

TEST(LateViews, CoordinatesKeepTheirShape) {
  GraphBuilder g;
  const Tensor merged = g.reshape(g.relu(g.input("x", {2, 3}, DataType::f32)), {6});
  const Graph graph = g.finish({g.gen_index(merged, 0)});
  EXPECT_NO_THROW(named_groups(graph));
  expect_right_on_cpu(graph);
}

// Both operands are products of their own: neither is seen in the other's shape.
TEST(LateViews, TwoProductsMeetWhereOneOfThemIs) {
  Linear linear;
  GraphBuilder& g = linear.g;
  const Tensor other = g.matmul(linear.x, g.input("v", {1, 8, 8}, DataType::f32), {.name = "other"});
  const Graph graph = g.finish({g.add(linear.y, other, {.name = "sum"})});
  EXPECT_THAT(named_groups(graph), ElementsAre(ElementsAre("matmul"), ElementsAre("other", "sum")));
  expect_right_on_cpu(graph);
}

TEST(LateViews, AnOutputOfOtherStridesIsWrittenAsItIsAskedFor) {
  Linear linear;
  GraphBuilder& g = linear.g;
  g.output(g.relu(linear.y, {.name = "relu"}), {.name = "y", .strides = Strides{40, 10, 1}});
  const Graph graph = g.finish();
  EXPECT_NO_THROW(named_groups(graph));
  expect_right_on_cpu(graph);
}

TEST(LateViews, OpsAndTensorsThatUsersNamedKeepTheirNames) {
  Linear linear;
  linear.g.output(linear.g.relu(linear.y, {.name = "relu"}), {.name = "y"});
  const Graph expanded = expand(linear.g.finish());
  EXPECT_GE(expanded.find("y"), 0);
  EXPECT_EQ(expanded.ops.back().name, "relu.out");
}

// A norm over groups of channels, whose image has channels last: so has what a convolution reads.
TEST(LateViews, ChannelsThatWereLastStayLast) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 8, 4, 4}, DataType::f16, Layout::nhwc);
  const Tensor y = g.swish(g.norm_fwd(x, {.norm = NormMode::group_norm, .groups = 2}).y, {.name = "swish"});
  g.output(g.conv_fprop(y, g.input("w", {8, 8, 3, 3}, DataType::f16, Layout::nhwc),
                        {.pre_padding = {1, 1}, .post_padding = {1, 1}}));
  const Graph graph = g.finish(), planned = expand(graph);
  const FoldedGraph folded = fold_views(planned);
  const auto conv =
      std::ranges::find_if(planned.ops, [](const Op& op) { return is_contraction(op.attributes); });
  ASSERT_NE(conv, planned.ops.end());
  EXPECT_EQ(folded.placements[static_cast<size_t>(conv->inputs[0])].strides[1], 1);
  expect_right_on_cpu(graph);
}

// Training stores the norm and what becomes of it.
TEST(LateViews, AnActivationJoinsTheNormOverGroupsThatIsAnOutputItself) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 8, 4, 4}, DataType::f16, Layout::nhwc);
  const Tensor y = g.norm_fwd(x, {.norm = NormMode::group_norm, .groups = 2}).y;
  g.output(y, {.type = DataType::f16});
  g.output(g.swish(y, {.name = "swish"}));
  const Graph graph = g.finish();
  EXPECT_THAT(named_groups(graph), testing::SizeIs(1));
  expect_right_on_cpu(graph);
}

// PyTorch's saved statistics: their axes of one go by two reshapes, then they are rounded.
TEST(LateViews, StatisticsAreRoundedByTheNormThatMakesThem) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 8, 4, 4}, DataType::f16, Layout::nhwc);
  const auto norm = g.norm_fwd(x, {.norm = NormMode::group_norm, .groups = 2});
  const auto leave = [&](const Tensor& statistic) {
    g.output(g.identity(g.reshape(statistic, {2, 2})), {.type = DataType::f16});
  };
  g.output(norm.y);
  leave(norm.mean);
  leave(norm.inv_std);
  const Graph graph = g.finish();
  EXPECT_THAT(named_groups(graph), testing::SizeIs(1));
  expect_right_on_cpu(graph);
}

// The places of windows are axes of one behind their total.
TEST(LateViews, AResidualIsPartOfThePoolInFrontOfIt) {
  GraphBuilder g("pool");
  const Tensor x = g.input("x", {2, 3, 8, 8}, DataType::f32);
  const ResampleOptions options{.mode = ResampleMode::maxpool, .window = {2, 2}, .stride = {2, 2}};
  const Tensor y = g.resample_fwd(x, options).y;
  const Graph graph = g.finish({g.add(y, g.input("residual", {2, 3, 4, 4}, DataType::f32))});
  EXPECT_THAT(named_groups(graph), testing::SizeIs(1));
  expect_right_on_cpu(graph);
}

// A number may be written with more axes than the shape in front of a view has.
TEST(LateViews, NumbersOfMoreAxesKeepTheView) {
  GraphBuilder g;
  const Tensor a = g.input("a", {3, 4}, DataType::f32), b = g.input("b", {4, 5}, DataType::f32);
  const Tensor y = g.mul(g.reshape(g.matmul(a, b), {1, 1, 3, 5}), g.constant(2));
  Graph graph = g.finish({y});
  for (Tensor& tensor : graph.tensors)
    if (tensor.memory == Memory::constant) tensor.dims = tensor.strides = {1, 1, 1};
  ASSERT_NO_THROW(validate(graph));
  test::planned_once(graph);
  expect_right_on_cpu(graph);
}

}  // namespace
}  // namespace fusor
