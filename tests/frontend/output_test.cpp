// Tests of outputs: their default types, their place in memory, and the conversions that are put in.
#include <gtest/gtest.h>

#include "frontend/graph_builder.h"

namespace fusor {
namespace {

class Output : public testing::Test {
 protected:
  DataType type_of(const Tensor& result) { return g.output(result).type; }

  GraphBuilder g;
  Tensor half = g.input("half", {4, 4}, DataType::f16);
  Tensor byte = g.input("byte", {4, 4}, DataType::i8);
  Tensor flag = g.input("flag", {4, 4}, DataType::b8);
};

TEST_F(Output, HasThePromotedTypeOfWhatItsOpReads) {
  const Tensor bias = g.input("bias", {4}, DataType::f32);
  EXPECT_EQ(type_of(g.matmul(half, g.input("w", {4, 2}, DataType::f32))), DataType::f32);
  EXPECT_EQ(type_of(g.exp(g.relu(g.add(half, bias)))), DataType::f32);
  EXPECT_EQ(type_of(g.add(bias, half)), DataType::f32);
  EXPECT_EQ(type_of(g.reduce(half, ReductionMode::add)), DataType::f16);
}

TEST_F(Output, SkipsScalarsInTheSearchForAType) {
  EXPECT_EQ(type_of(g.sub(g.constant(1), half)), DataType::f16);
  EXPECT_EQ(type_of(g.mul(g.scalar("alpha", DataType::f64), g.neg(half))), DataType::f16);
  EXPECT_EQ(type_of(g.neg(g.scalar("beta", DataType::f64))), DataType::f64);
}

TEST_F(Output, KeepsATypeAskedForBefore) {
  EXPECT_EQ(type_of(g.relu(half, {.type = DataType::f32})), DataType::f32);
  EXPECT_EQ(type_of(g.relu(g.exp(half, {.type = DataType::bf16}))), DataType::bf16);
}

TEST_F(Output, IntegerSumsHaveTheComputeType) {
  EXPECT_EQ(type_of(g.matmul(byte, byte)), DataType::i32);
  EXPECT_EQ(type_of(g.reduce(byte, ReductionMode::add)), DataType::i32);
  EXPECT_EQ(type_of(g.reduce(byte, ReductionMode::amax)), DataType::i32);
  EXPECT_EQ(type_of(g.reduce(byte, ReductionMode::max)), DataType::i8);
  EXPECT_EQ(type_of(g.relu(byte)), DataType::i8);
}

TEST_F(Output, DoesNotLoseTheKindOfItsNumbers) {
  EXPECT_EQ(type_of(g.exp(byte)), DataType::f32);
  EXPECT_EQ(type_of(g.reduce(byte, ReductionMode::avg)), DataType::f32);
  EXPECT_EQ(type_of(g.neg(half, {.compute = DataType::i32})), DataType::i32);
  EXPECT_EQ(type_of(g.add(flag, flag)), DataType::i32);
  EXPECT_EQ(type_of(g.binary_select(flag, flag, flag)), DataType::b8);
  EXPECT_EQ(type_of(g.cmp_eq(half, half)), DataType::b8);
  EXPECT_EQ(type_of(g.transpose(g.logical_not(half), {1, 0})), DataType::b8);
  EXPECT_EQ(type_of(g.gen_index(half, 0)), DataType::i32);
}

TEST_F(Output, TakesNameUidTypeAndPlace) {
  const Tensor t = g.relu(half);
  const Tensor y =
      g.output(t, {.name = "y", .type = DataType::f64, .strides = Strides{1, 8}, .alignment = 64, .uid = 99});
  EXPECT_EQ(y.name, "y");
  EXPECT_EQ(y.uid, 99);
  EXPECT_EQ(y.type, DataType::f64);
  EXPECT_EQ(y.strides, (Strides{1, 8}));
  EXPECT_EQ(y.alignment, 64);
  EXPECT_EQ(y.memory, Memory::device);
  const Graph graph = g.finish();
  EXPECT_EQ(graph.ops.size(), 1U);
  EXPECT_EQ(graph.tensors.back(), y);
}

TEST_F(Output, TakesALayout) {
  const Tensor x = g.input("x", {2, 3, 4, 5}, DataType::f16);
  EXPECT_EQ(g.output(g.relu(x), {.layout = Layout::nhwc}).strides, packed_strides(x.dims, Layout::nhwc));
}

TEST_F(Output, OlderCopiesOfARenamedTensorStayGood) {
  const Tensor t = g.relu(half);
  const Tensor y = g.output(t, {.name = "y", .uid = 99});
  const Tensor from_old = g.neg(t);
  const Tensor from_new = g.exp(y);
  const Graph graph = g.finish({t, from_old, from_new});
  EXPECT_EQ(graph.ops[1].inputs, graph.ops[2].inputs);
  EXPECT_EQ(graph.tensors[static_cast<size_t>(graph.ops[1].inputs[0])], y);
}

TEST_F(Output, FinishSkipsWhatIsAnOutputAlready) {
  const Tensor y = g.output(g.relu(half), {.type = DataType::f64});
  const Tensor z = g.neg(half);
  const Graph graph = g.finish({y, z, z});
  EXPECT_EQ(graph.ops.size(), 2U);
  EXPECT_EQ(graph.tensors[static_cast<size_t>(graph.ops[0].outputs[0])].type, DataType::f64);
}

TEST_F(Output, OfAViewInItsOwnTypeIsTheView) {
  const Tensor t = g.transpose(half, {1, 0});
  const Tensor y = g.output(t, {.layout = Layout::row_major});
  EXPECT_EQ(y.uid, t.uid);
  EXPECT_EQ(y.strides, (Strides{4, 1}));
  EXPECT_EQ(g.finish().ops.size(), 1U);
}

TEST_F(Output, OfAViewInAnotherTypeIsConverted) {
  const Tensor t = g.transpose(half, {1, 0});
  const Tensor y = g.output(t, {.name = "y", .type = DataType::f32});
  EXPECT_NE(y.uid, t.uid);
  const Graph graph = g.finish({t});
  ASSERT_EQ(graph.ops.size(), 2U);
  EXPECT_EQ(graph.ops[1].name, "identity2");
  EXPECT_EQ(graph.ops[1].attributes, Attributes(Pointwise{.mode = PointwiseMode::identity}));
  EXPECT_EQ(graph.tensors.back(), y);
  EXPECT_TRUE(graph.tensors[static_cast<size_t>(graph.find(t.name))].is_virtual());
}

TEST_F(Output, OfAnInputIsACopy) {
  const Tensor y = g.output(half, {.name = "copy"});
  EXPECT_EQ(y.type, DataType::f16);
  const Graph graph = g.finish();
  ASSERT_EQ(graph.ops.size(), 1U);
  EXPECT_EQ(graph.ops[0].inputs, std::vector<int>{0});
  EXPECT_EQ(graph.tensors[0], half);
}

// The view keeps the compute type's precision: only the output itself is rounded to fp16.
TEST_F(Output, OfWhatAViewReadsDoesNotChangeTheView) {
  const Tensor t = g.exp(half);
  const Tensor view = g.reshape(t, {16});
  const Tensor y = g.output(t);
  EXPECT_EQ(y.type, DataType::f16);
  const Graph graph = g.finish({view});
  EXPECT_EQ(graph.tensors[static_cast<size_t>(graph.find(t.name))].type, DataType::f32);
  EXPECT_EQ(graph.tensors[static_cast<size_t>(graph.find(view.name))].type, DataType::f32);
}

TEST_F(Output, OfASumKeepsTheOrderOfItsOperand) {
  const Tensor x = g.input("x", {2, 3, 4, 5}, DataType::f16, Layout::nhwc);
  EXPECT_EQ(g.output(g.add(x, g.constant(1))).strides, packed_strides(x.dims, Layout::nhwc));
}

}  // namespace
}  // namespace fusor
