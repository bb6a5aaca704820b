// Tests of frontend/graph_builder: what the ops append. Outputs are in output_test, mistakes in tests/errors.
#include "frontend/graph_builder.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"

namespace fusor {
namespace {

const Op& only_op(const Graph& graph) {
  EXPECT_EQ(graph.ops.size(), 1U);
  return graph.ops.front();
}

template <class Attribute>
const Attribute& attributes_of(const Op& op) {
  return std::get<Attribute>(op.attributes);
}

TEST(Inputs, TakeLayoutStridesAlignmentAndUid) {
  GraphBuilder g;
  EXPECT_EQ(g.input("a", {2, 3, 4, 5}, DataType::f16).strides, (Strides{60, 20, 5, 1}));
  EXPECT_EQ(g.input("b", {2, 3, 4, 5}, DataType::f16, Layout::nhwc).strides, (Strides{60, 1, 15, 3}));
  const Tensor c =
      g.input("c", {2, 3}, DataType::f32, {.strides = Strides{0, 2}, .alignment = 256, .uid = -7});
  EXPECT_EQ(c.strides, (Strides{0, 2}));
  EXPECT_EQ(c.alignment, 256);
  EXPECT_EQ(c.uid, -7);
  EXPECT_EQ(c.memory, Memory::device);
}

TEST(Inputs, UidsCountUpAndLeaveOutTheTakenOnes) {
  GraphBuilder g;
  EXPECT_EQ(g.input("a", {2}, DataType::f16, {.uid = 2}).uid, 2);
  EXPECT_EQ(g.input("b", {2}, DataType::f16).uid, 3);
  EXPECT_EQ(g.input("c", {2}, DataType::f16, {.uid = 0}).uid, 0);
  EXPECT_EQ(g.input("d", {2}, DataType::f16).uid, 4);
}

TEST(Scalars, AreHostMemoryOfOneElement) {
  GraphBuilder g;
  const Tensor s = g.scalar("s", DataType::f32);
  EXPECT_EQ(s.memory, Memory::host);
  EXPECT_EQ(s.dims, Dims{1});
}

TEST(Constants, HoldTheirValueInTheKindOfTheirType) {
  GraphBuilder g;
  const Tensor half = g.constant(0.5);
  EXPECT_EQ(half.memory, Memory::constant);
  EXPECT_EQ(half.name, "const1");
  EXPECT_EQ(half.type, DataType::f32);
  EXPECT_EQ(std::get<double>(half.value), 0.5);
  const Tensor three = g.constant(3, DataType::i32);
  EXPECT_EQ(three.name, "const2");
  EXPECT_EQ(std::get<int64_t>(three.value), 3);
}

TEST(Constants, KeepClearOfTheUsersNames) {
  GraphBuilder g;
  g.input("const1", {2}, DataType::f16);
  EXPECT_EQ(g.constant(1).name, "const2");
}

// Neither names nor uids are searched for among all that there are.
TEST(Constants, ThousandsAreNamedInNoTime) {
  constexpr int kMany = 20000;
  GraphBuilder g;
  Tensor x = g.input("x", {4}, DataType::f32);
  for (int i = 0; i < kMany; ++i) x = g.add(x, g.constant(1));
  const Graph graph = g.finish({x});
  EXPECT_EQ(graph.tensors[graph.tensors.size() - 2].name, "const20000");
  EXPECT_EQ(graph.tensors.back().uid, 2 * kMany + 1);
}

TEST(Names, AreKindAndPosition) {
  GraphBuilder g;
  const Tensor x = g.input("x", {1, 2, 4, 4}, DataType::f16);
  const Tensor w = g.input("w", {2, 2, 1, 1}, DataType::f16);
  EXPECT_EQ(g.relu(x).name, "relu1:y");
  const Tensor y = g.conv_fprop(x, w);
  EXPECT_EQ(y.name, "conv_fprop2:y");
  EXPECT_EQ(g.conv_dgrad(y, w, x.dims).name, "conv_dgrad3:dx");
  EXPECT_EQ(g.conv_wgrad(y, x, w.dims).name, "conv_wgrad4:dw");
  EXPECT_EQ(g.matmul(x, x).name, "matmul5:c");
  EXPECT_EQ(g.reduce(x, ReductionMode::avg).name, "avg6:y");
  EXPECT_EQ(g.neg(x, {.name = "minus"}).name, "minus:y");
}

TEST(Names, KeepClearOfTheUsersNames) {
  GraphBuilder g;
  const Tensor x = g.input("relu2:y", {2}, DataType::f16);
  g.neg(x, {.name = "relu3"});
  EXPECT_EQ(g.relu(x).name, "relu4:y");
}

TEST(Results, AreVirtualInTheComputeType) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 3}, DataType::f16);
  const Tensor y = g.relu(x);
  EXPECT_EQ(y.memory, Memory::workspace);
  EXPECT_EQ(y.type, DataType::f32);
  EXPECT_EQ(g.relu(x, {.type = DataType::bf16}).type, DataType::bf16);
  EXPECT_EQ(g.relu(x, {.compute = DataType::f64}).type, DataType::f64);
  EXPECT_EQ(g.cmp_gt(x, y).type, DataType::b8);
  const Tensor i = g.input("i", {3, 3}, DataType::i8);
  EXPECT_EQ(g.matmul(i, i).type, DataType::i32);
  EXPECT_EQ(g.exp(i).type, DataType::f32);
  EXPECT_EQ(g.reshape(i, {9}).type, DataType::i8);
}

// One method per row of the table, each with as many operands as the row says.
TEST(Pointwise, EveryRowHasItsMethod) {
  GraphBuilder g;
  const Tensor a = g.input("a", {2}, DataType::f16);
  const Tensor b = g.input("b", {2}, DataType::f16);
  const Tensor c = g.input("c", {2}, DataType::b8);
  std::vector<Tensor> results;
#define FUSOR_OPERANDS_1 a
#define FUSOR_OPERANDS_2 a, b
#define FUSOR_OPERANDS_3 a, b, c
#define FUSOR_CALL_real(mode, inputs) results.push_back(g.mode(FUSOR_OPERANDS_##inputs));
#define FUSOR_CALL_any(mode, inputs) FUSOR_CALL_real(mode, inputs)
#define FUSOR_CALL_compare(mode, inputs) FUSOR_CALL_real(mode, inputs)
#define FUSOR_CALL_logical(mode, inputs) FUSOR_CALL_real(mode, inputs)
#define FUSOR_CALL_index(mode, inputs) results.push_back(g.mode(a, 0));
#define FUSOR_POINTWISE(mode, inputs, domain, alu, sfu, formula) FUSOR_CALL_##domain(mode, inputs)
#include "core/pointwise.def"
#undef FUSOR_POINTWISE
  const Graph graph = g.finish(results);
  ASSERT_EQ(graph.ops.size(), static_cast<size_t>(pointwise_mode_count()));
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const auto mode = attributes_of<Pointwise>(graph.ops[i]).mode;
    EXPECT_EQ(mode, static_cast<PointwiseMode>(i));
    EXPECT_EQ(graph.ops[i].inputs.size(), static_cast<size_t>(info(mode).inputs));
  }
}

TEST(Pointwise, OptionsBecomeAttributes) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2}, DataType::f64);
  const DataType compute = DataType::f64;
  const Tensor relu = g.relu(x, {.lower_clip = 1, .upper_clip = 6, .lower_clip_slope = 0.25});
  const Graph graph = g.finish(
      {relu, g.elu(x, {.elu_alpha = 3}), g.softplus(x, {.softplus_beta = 4}), g.swish(x, {.swish_beta = 5})});
  const std::vector<Pointwise> expected = {
      {.mode = PointwiseMode::relu,
       .compute = compute,
       .lower_clip = 1,
       .upper_clip = 6,
       .lower_clip_slope = 0.25},
      {.mode = PointwiseMode::elu, .compute = compute, .elu_alpha = 3},
      {.mode = PointwiseMode::softplus, .compute = compute, .softplus_beta = 4},
      {.mode = PointwiseMode::swish, .compute = compute, .swish_beta = 5}};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(graph.ops[i].attributes, Attributes(expected[i]));
}

TEST(GenIndex, CountsNegativeAxesFromTheBack) {
  GraphBuilder g;
  const Graph graph = g.finish({g.gen_index(g.input("x", {2, 3}, DataType::f16), -1)});
  EXPECT_EQ(attributes_of<Pointwise>(only_op(graph)).axis, 1);
  EXPECT_EQ(graph.tensors.back().type, DataType::i32);
}

TEST(Reduce, TakesAxesFromEitherEnd) {
  GraphBuilder g;
  const Tensor x = g.input("x", {4, 6, 8}, DataType::f16);
  EXPECT_EQ(g.reduce(x, ReductionMode::add, {0, -1}).dims, (Dims{1, 6, 1}));
  EXPECT_EQ(g.reduce(x, ReductionMode::max).dims, (Dims{1, 1, 1}));
  EXPECT_EQ(g.reduce_to(x, ReductionMode::avg, {4, 2, 8}).dims, (Dims{4, 2, 8}));
}

TEST(Conv, EmptyListsAreFilledIn) {
  GraphBuilder g;
  const Tensor x = g.input("x", {1, 2, 5, 5, 5}, DataType::f16);
  const Tensor w = g.input("w", {4, 2, 3, 3, 3}, DataType::f16);
  const Graph graph = g.finish({g.conv_fprop(x, w)});
  const Conv& conv = attributes_of<Conv>(only_op(graph));
  EXPECT_EQ(conv.pre_padding, (Dims{0, 0, 0}));
  EXPECT_EQ(conv.post_padding, (Dims{0, 0, 0}));
  EXPECT_EQ(conv.stride, (Dims{1, 1, 1}));
  EXPECT_EQ(conv.dilation, (Dims{1, 1, 1}));
  EXPECT_EQ(graph.tensors.back().dims, (Dims{1, 4, 3, 3, 3}));
}

TEST(Conv, PaddingIsBothPaddings) {
  GraphBuilder g;
  const Tensor x = g.input("x", {1, 2, 5, 5}, DataType::f16);
  const Tensor w = g.input("w", {4, 2, 3, 3}, DataType::f16);
  const Tensor y = g.conv_fprop(x, w, {.padding = {1, 2}, .mode = ConvMode::convolution});
  EXPECT_EQ(y.dims, (Dims{1, 4, 5, 7}));
  const Tensor z = g.conv_fprop(x, w, {.post_padding = {2, 0}});
  EXPECT_EQ(z.dims, (Dims{1, 4, 5, 3}));
  const Graph graph = g.finish({y, z});
  EXPECT_EQ(attributes_of<Conv>(graph.ops[0]).pre_padding, (Dims{1, 2}));
  EXPECT_EQ(attributes_of<Conv>(graph.ops[0]).post_padding, (Dims{1, 2}));
  EXPECT_EQ(attributes_of<Conv>(graph.ops[0]).mode, ConvMode::convolution);
  EXPECT_EQ(attributes_of<Conv>(graph.ops[1]).pre_padding, (Dims{0, 0}));
}

TEST(Slice, AnEmptyStepIsOne) {
  GraphBuilder g;
  const Graph graph = g.finish({g.slice(g.input("x", {4, 6}, DataType::f16), {0, 1}, {4, 4})});
  EXPECT_EQ(attributes_of<Slice>(only_op(graph)).step, (Dims{1, 1}));
}

TEST(Concatenate, CountsNegativeAxesFromTheBack) {
  GraphBuilder g;
  const Tensor x = g.input("x", {4, 6}, DataType::f16);
  EXPECT_EQ(g.concatenate({x, x, x}, -1).dims, (Dims{4, 18}));
  EXPECT_EQ(g.concatenate({x, x}, 0).dims, (Dims{8, 6}));
}

TEST(GraphBuilder, BuildsTheGraphOfTheReadme) {
  GraphBuilder g("bottleneck");
  const Tensor x = g.input("x", {32, 64, 56, 56}, DataType::f16, Layout::nhwc);
  const Tensor w = g.input("w", {64, 64, 3, 3}, DataType::f16, Layout::nhwc);
  const Tensor b = g.input("b", {1, 64, 1, 1}, DataType::f16);
  const Tensor y = g.relu(g.add(g.conv_fprop(x, w, {.padding = {1, 1}}), b));
  const Graph graph = g.finish({y});
  EXPECT_EQ(graph.name, "bottleneck");
  ASSERT_EQ(graph.tensors.size(), 6U);
  const Tensor& out = graph.tensors.back();
  EXPECT_EQ(out.uid, y.uid);
  EXPECT_EQ(out.memory, Memory::device);
  EXPECT_EQ(out.type, DataType::f16);
  EXPECT_EQ(out.strides, packed_strides(out.dims, Layout::nhwc));
  EXPECT_TRUE(graph.tensors[3].is_virtual());
  EXPECT_EQ(graph.tensors[3].type, DataType::f32);
}

using Mistake = void (*)(GraphBuilder& g, const Tensor& x, const Tensor& t);

Graph graph_after(std::initializer_list<Mistake> mistakes) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 3}, DataType::f16);
  const Tensor t = g.neg(x);
  for (const Mistake mistake : mistakes) EXPECT_THROW(mistake(g, x, t), Error);
  return g.finish({g.exp(t)});
}

TEST(GraphBuilder, AFailedCallLeavesItAsItWas) {
  const Graph after = graph_after({
      [](GraphBuilder& g, const Tensor&, const Tensor&) { g.input("x", {4}, DataType::f16); },
      [](GraphBuilder& g, const Tensor&, const Tensor&) { g.constant(0.5, DataType::i32); },
      [](GraphBuilder& g, const Tensor& x, const Tensor& t) { g.matmul(x, t); },
      [](GraphBuilder& g, const Tensor&, const Tensor& t) { g.relu(t, {.name = "neg1"}); },
      [](GraphBuilder& g, const Tensor&, const Tensor& t) {
        g.output(t, {.strides = Strides{0, 1}});
      },
      [](GraphBuilder& g, const Tensor&, const Tensor& t) { g.output(t, {.name = "x"}); },
      [](GraphBuilder& g, const Tensor& x, const Tensor&) { g.output(x, {.alignment = 3}); },
      [](GraphBuilder& g, const Tensor&, const Tensor&) { g.finish(); },
  });
  EXPECT_EQ(after, graph_after({}));
}

TEST(GraphBuilder, AFailedOutputTakesItsConversionBack) {
  GraphBuilder g;
  const Tensor x = g.input("x", {4}, DataType::f32);
  EXPECT_THROW(g.output(x, {.name = "x2", .strides = Strides{0}}), Error);
  EXPECT_EQ(g.output(x, {.name = "x2"}).uid, 2);
  EXPECT_EQ(g.finish().ops.size(), 1u);
}

TEST(GraphBuilder, AFailedFinishMarksNoOutput) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2}, DataType::f16);
  const Tensor y = g.neg(x);
  const Tensor unused = g.exp(x);
  EXPECT_THROW(g.finish({y}), Error);
  const Graph graph = g.finish({unused, y});
  EXPECT_EQ(graph.ops.size(), 2U);
}

TEST(GraphBuilder, IsACopyableValue) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2}, DataType::f16);
  GraphBuilder other = g;
  EXPECT_EQ(g.finish({g.relu(x)}), other.finish({other.relu(x)}));
}

}  // namespace
}  // namespace fusor
