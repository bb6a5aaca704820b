// Owns the tests of folding, fusion making and partitioning.
#include "backend/planner/planner.h"

#include <gmock/gmock.h>

#include "backend/build.h"
#include "backend/report/explain.h"
#include "core/error.h"
#include "core/infer.h"
#include "frontend/graph_builder.h"
#include "tests/backend/cpu_run.h"
#include "tests/backend/planner/groups_by_name.h"
#include "tests/support/attention_graph.h"

namespace fusor {
namespace {

using test::groups_by_name;
using testing::ElementsAre;
using testing::SizeIs;

Graph conv_bias_relu() {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {2, 8, 6, 6}, DataType::f16, Layout::nhwc);
  const Tensor w = g.input("w", {4, 8, 3, 3}, DataType::f16, Layout::nhwc);
  const Tensor b = g.input("b", {1, 4, 1, 1}, DataType::f16);
  const Tensor c = g.conv_fprop(x, w, {.padding = {1, 1}, .name = "conv"});
  return g.finish({g.relu(g.add(c, b, {.name = "bias"}), {.name = "relu"})});
}

TEST(Partition, ContractionAbsorbsPointwiseOpsBehindIt) {
  EXPECT_THAT(groups_by_name(conv_bias_relu()), ElementsAre(ElementsAre("conv", "bias", "relu")));
}

TEST(Partition, TwoContractionsStayApart) {
  GraphBuilder g("g");
  const Tensor a = g.input("a", {4, 4}, DataType::f32);
  const Tensor first = g.matmul(a, a, {.name = "first"});
  const Tensor second = g.matmul(g.relu(first, {.name = "relu"}), a, {.name = "second"});
  EXPECT_THAT(groups_by_name(g.finish({second})),
              ElementsAre(ElementsAre("first", "relu"), ElementsAre("second")));
}

TEST(Partition, ASoftmaxBetweenTwoMatmulsIsAChain) {
  const Graph graph = test::attention({.mask = test::Mask::causal}, true);
  const std::vector<std::vector<std::string>> groups = groups_by_name(graph);
  ASSERT_THAT(groups, SizeIs(1));
  EXPECT_THAT(groups[0], SizeIs(graph.ops.size()));
}

// A row's maximum has readers beside the softmax, which meet and part again: ways along them are many, ops
// few.
TEST(Partition, ReadersOfARowThatMeetAgainAreWalkedOnce) {
  constexpr int kMeetings = 60;
  GraphBuilder g("g");
  const Tensor s = g.matmul(g.input("q", {16, 8}, DataType::f32), g.input("k", {8, 16}, DataType::f32));
  const Tensor largest = g.reduce(s, ReductionMode::max, {1});
  const Tensor p = g.exp(g.sub(s, largest));
  Tensor beside = g.slice(largest, {0, 0}, {8, 1});
  for (int i = 0; i < kMeetings; ++i) beside = g.add(g.tanh(beside), g.relu(beside));
  const Tensor o = g.matmul(p, g.input("v", {16, 8}, DataType::f32));
  EXPECT_GE(groups_by_name(g.finish({beside, o})).size(), 2U);
}

// Totals along one axis and along the other take turns: each way to part them is another one.
TEST(Partition, ManySiblingsAlongTwoAxesArePartedInTime) {
  constexpr int kMany = 40;
  GraphBuilder g("g");
  const Tensor x = g.input("x", {64, 64}, DataType::f16);
  std::vector<Tensor> outputs;
  for (int i = 0; i < kMany; ++i) {
    const Tensor n = g.constant(i + 1);
    outputs.push_back(g.mul(g.reduce(g.mul(x, n), ReductionMode::add, {i % 2}), n));
  }
  const Plan plan = build(g.finish(outputs), DeviceInfo::named("H200"), {.compile = false});
  EXPECT_GE(plan.fusions.size(), 2U);
}

TEST(Partition, AnOperandThatIsATotalOfTheFirstProductIsNoChain) {
  GraphBuilder g("g");
  const Tensor s = g.matmul(g.input("a", {1, 4, 8}, DataType::f32), g.input("b", {1, 8, 9}, DataType::f32));
  const Tensor total = g.reduce(g.exp(s), ReductionMode::add, {2});
  EXPECT_GT(groups_by_name(g.finish({g.matmul(total, g.input("c", {1, 1, 5}, DataType::f32))})).size(), 1);
}

TEST(MakeFusion, AValueInFrontOfAContractionIsReadByNobodyElse) {
  GraphBuilder g("g");
  const Tensor x = g.relu(g.input("a", {4, 8}, DataType::f32));
  const Tensor y = g.matmul(x, g.input("b", {8, 4}, DataType::f32));
  const Graph graph = g.finish({y, g.exp(x)});
  const std::vector<int> ops{0, 1};
  EXPECT_THROW(make_fusion(graph, fold_views(graph), ops), Error);
}

TEST(Partition, AChainAbsorbsWhatItsOperandsPass) {
  GraphBuilder g("g");
  const auto scaled = [&](const char* name, const Dims& dims) {
    return g.mul(g.input(name, dims, DataType::i8), g.constant(1.0 / 64), {.type = DataType::bf16});
  };
  const Tensor score = g.matmul(scaled("q", {2, 150, 64}), scaled("k", {2, 64, 200}));
  const Tensor exponential = g.exp(g.sub(score, g.reduce(score, ReductionMode::max, {2})));
  const Tensor p = g.div(exponential, g.reduce(exponential, ReductionMode::add, {2}));
  const Graph graph = g.finish({g.matmul(p, scaled("v", {2, 200, 64}))});
  const std::vector<std::vector<std::string>> groups = groups_by_name(graph);
  ASSERT_THAT(groups, SizeIs(1));
  EXPECT_THAT(groups[0], SizeIs(graph.ops.size()));
}

// Lengths are views of inputs where heads share keys, and values lose their padding in front.
TEST(Partition, AChainReadsMasksThroughViews) {
  GraphBuilder g("g");
  const Tensor q = g.input("q", {2, 8, 300, 64}, DataType::bf16);
  const Tensor k = g.input("k", {2, 2, 400, 64}, DataType::bf16);
  SdpaOptions options{.attributes = {.padding_mask = true}};
  options.seq_len_q = g.input("seq_len_q", {2, 1, 1, 1}, DataType::i32);
  options.seq_len_kv = g.input("seq_len_kv", {2, 1, 1, 1}, DataType::i32);
  g.output(g.sdpa_fwd(q, k, k, options).o, {.name = "o", .type = DataType::bf16});
  EXPECT_THAT(groups_by_name(g.finish()), SizeIs(1));
}

TEST(Partition, WhatIsReducedBehindAChainStaysApart) {
  EXPECT_THAT(groups_by_name(test::attention_and_gradients({.heads = 2, .shared_heads = 2}, {})), SizeIs(3));
}

TEST(Partition, ProbabilitiesThatOthersReadLeaveTheMatmulsApart) {
  test::AttentionGraph attention({});
  attention.g.output(attention.g.abs(attention.score), {.name = "scores"});
  EXPECT_GT(groups_by_name(attention.finish()).size(), 1);
}

TEST(Partition, AChainDoesNotWaitForItself) {
  GraphBuilder g("g");
  const Tensor a = g.input("a", {8, 8}, DataType::f32);
  const Tensor s = g.matmul(a, a, {.name = "first"});
  const Tensor total = g.reduce(s, ReductionMode::add, {1});
  const Tensor v = g.mul(a, g.matmul(total, g.input("row", {1, 8}, DataType::f32), {.name = "outer"}));
  EXPECT_GT(groups_by_name(g.finish({g.matmul(g.div(s, total), v, {.name = "second"})})).size(), 1);
}

TEST(Partition, CheapPointwiseOpMovesBeforeTheContraction) {
  GraphBuilder g("g");
  const Tensor a = g.input("a", {4, 4}, DataType::f32);
  const Tensor b = g.input("b", {4, 4}, DataType::f32);
  const Tensor y = g.matmul(g.relu(a, {.name = "relu"}), b, {.name = "mm"});
  EXPECT_THAT(groups_by_name(g.finish({y})), ElementsAre(ElementsAre("relu", "mm")));
}

TEST(Partition, CheapValueWithTwoReadersIsComputedAtBoth) {
  GraphBuilder g("g");
  const Tensor a = g.input("a", {4, 4}, DataType::f32);
  const Tensor r = g.relu(a, {.name = "relu"});
  const Tensor y = g.add(g.matmul(r, a, {.name = "mm"}), r, {.name = "residual"});
  EXPECT_THAT(groups_by_name(g.finish({y})), ElementsAre(ElementsAre("relu", "mm", "residual")));
}

TEST(Partition, DearValueWithTwoReadersIsComputedOnce) {
  GraphBuilder g("g");
  const Tensor a = g.input("a", {4, 4}, DataType::f32);
  const Tensor r = g.gelu(a, {.name = "gelu"});
  const Tensor y = g.add(g.matmul(r, a, {.name = "mm"}), r, {.name = "residual"});
  EXPECT_THAT(groups_by_name(g.finish({y})), ElementsAre(ElementsAre("gelu"), ElementsAre("mm", "residual")));
}

TEST(Partition, CheapValueThatIsAlsoAnOutputIsComputedOnce) {
  GraphBuilder g("g");
  const Tensor a = g.input("a", {4, 4}, DataType::f32);
  const Tensor r = g.relu(a, {.name = "relu"});
  const Tensor y = g.add(g.matmul(r, a, {.name = "mm"}), r, {.name = "residual"});
  EXPECT_THAT(groups_by_name(g.finish({y, r})),
              ElementsAre(ElementsAre("relu"), ElementsAre("mm", "residual")));
}

Graph gated_pair() {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {8, 4}, DataType::f32);
  const Tensor gate = g.matmul(x, g.input("wg", {4, 6}, DataType::f32), {.name = "gate"});
  const Tensor swish = g.swish(gate, {.name = "swish"});
  const Tensor up = g.matmul(x, g.input("wu", {4, 6}, DataType::f32), {.name = "up"});
  return g.finish({g.mul(swish, up, {.name = "mul"})});
}

TEST(Partition, GatedPairIsOneFusion) {
  EXPECT_THAT(groups_by_name(gated_pair()), ElementsAre(ElementsAre("gate", "swish", "up", "mul")));
}

TEST(Partition, OnlySiblingsShareAFusion) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {4, 4}, DataType::f32);
  const Tensor z = g.input("z", {4, 4}, DataType::f32);
  const Tensor first = g.matmul(x, z, {.name = "first"});
  const Tensor other = g.matmul(z, x, {.name = "other"});
  EXPECT_THAT(groups_by_name(g.finish({g.mul(first, other, {.name = "mul"})})),
              ElementsAre(ElementsAre("first"), ElementsAre("other", "mul")));
}

TEST(Partition, SiblingThatWaitsForTheOtherStaysApart) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {4, 4}, DataType::f32);
  const Tensor first = g.matmul(x, x, {.name = "first"});
  const Tensor second = g.matmul(x, g.relu(first, {.name = "relu"}), {.name = "second"});
  EXPECT_THAT(groups_by_name(g.finish({g.mul(first, second, {.name = "mul"})})),
              ElementsAre(ElementsAre("first", "relu"), ElementsAre("second", "mul")));
}

TEST(Partition, ThirdSiblingStaysApart) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {8, 4}, DataType::f32);
  const auto product = [&](const char* name) {
    return g.matmul(x, g.input(std::string("w") + name, {4, 6}, DataType::f32), {.name = name});
  };
  const Tensor p = product("p"), q = product("q");
  const Tensor sum = g.add(p, q, {.name = "sum"});
  EXPECT_THAT(groups_by_name(g.finish({g.add(sum, product("r"), {.name = "all"})})),
              ElementsAre(ElementsAre("p", "q", "sum"), ElementsAre("r", "all")));
}

// Keys and values of a layer: nothing reads both, and one launch computes them.
TEST(Partition, ProductsOfOneOperandShareALaunch) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {256, 128}, DataType::f16);
  const auto product = [&](const char* name, int64_t columns) {
    return g.matmul(x, g.input(std::string("w") + name, {128, columns}, DataType::f16),
                    {.name = name, .type = DataType::f16});
  };
  const Tensor q = product("q", 256), k = product("k", 64), v = product("v", 64);
  const Graph graph = g.finish({q, g.relu(k, {.name = "relu"}), v});
  EXPECT_THAT(groups_by_name(graph), ElementsAre(ElementsAre("q"), ElementsAre("k", "v", "relu")));
  EXPECT_EQ(build(graph, DeviceInfo::named("H200"), {.compile = false}).fusions.size(), 2u);
  expect_right_on_cpu(graph);
}

// What both wait for is computed before either, and again where the epilogue reads it.
TEST(Partition, PairTakesACheapPrologueThatItsEpilogueReads) {
  GraphBuilder g("g");
  const Tensor x = g.relu(g.input("x", {4, 4}, DataType::f32), {.name = "relu"});
  const Tensor gate = g.matmul(x, g.input("wg", {4, 4}, DataType::f32), {.name = "gate"});
  const Tensor up = g.matmul(x, g.input("wu", {4, 4}, DataType::f32), {.name = "up"});
  const Tensor y = g.add(g.mul(gate, up, {.name = "mul"}), x, {.name = "residual"});
  const Graph graph = g.finish({y});
  EXPECT_THAT(groups_by_name(graph), ElementsAre(ElementsAre("relu", "gate", "up", "mul", "residual")));
  const Fusion fusion = make_fusion(graph, fold_views(graph), std::vector<int>{0, 1, 2, 3, 4});
  EXPECT_THAT(operand_site(fusion, 0, 0).nodes, SizeIs(2));
}

TEST(Partition, PointwiseOpDoesNotJoinAGroupItWaitsForThroughAnother) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {4, 4}, DataType::f32);
  const Tensor r = g.relu(x, {.name = "relu"});
  const Tensor m = g.matmul(r, x, {.name = "mm"});
  const Tensor t = g.matmul(m, m, {.name = "mm2"});
  const Tensor y = g.add(g.add(r, t, {.name = "sum"}), m, {.name = "sum2"});
  const auto groups = groups_by_name(g.finish({y}));
  EXPECT_THAT(groups, ElementsAre(ElementsAre("relu"), ElementsAre("mm"), ElementsAre("mm2", "sum", "sum2")));
}

TEST(Partition, ReductionJoinsTheOpsThatFeedIt) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {4, 8}, DataType::f32);
  const Tensor y = g.reduce(g.mul(x, x, {.name = "square"}), ReductionMode::add, {1}, {.name = "sum"});
  EXPECT_THAT(groups_by_name(g.finish({y})), ElementsAre(ElementsAre("square", "sum")));
}

TEST(Partition, ReaderOfASumWorksInALaterPhase) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {4, 8}, DataType::f32);
  const Tensor e = g.exp(x, {.name = "exp"});
  const Tensor s = g.reduce(e, ReductionMode::add, {1}, {.name = "sum"});
  const Tensor y = g.div(e, s, {.name = "div"});
  EXPECT_THAT(groups_by_name(g.finish({y})), ElementsAre(ElementsAre("exp", "sum", "div")));
}

TEST(Partition, SmallPointwiseOpIsComputedAgainAtItsReader) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {4, 8}, DataType::f32);
  const Tensor b = g.input("b", {1, 8}, DataType::f32);
  const Tensor y = g.add(x, g.neg(b, {.name = "neg"}), {.name = "add"});
  EXPECT_THAT(groups_by_name(g.finish({y})), ElementsAre(ElementsAre("neg", "add")));
}

TEST(Partition, SmallValueOfSeveralCheapOpsIsComputedAgainAtItsReader) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {4, 8}, DataType::f32);
  const Tensor b = g.input("b", {1, 8}, DataType::f32);
  const Tensor y = g.add(x, g.relu(g.neg(b, {.name = "neg"}), {.name = "relu"}), {.name = "add"});
  EXPECT_THAT(groups_by_name(g.finish({y})), ElementsAre(ElementsAre("neg", "relu", "add")));
}

TEST(Partition, SmallValueOfDearOpsIsComputedOnce) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {4, 8}, DataType::f32);
  const Tensor b = g.input("b", {1, 8}, DataType::f32);
  const Tensor dear = g.gelu(g.gelu(b, {.name = "first"}), {.name = "second"});
  EXPECT_THAT(groups_by_name(g.finish({g.add(x, dear, {.name = "add"})})),
              ElementsAre(ElementsAre("first", "second"), ElementsAre("add")));
}

// A condition on the rows of an operand is computed beside its elements, whatever shape it has.
TEST(Partition, AConditionOfCoordinatesMovesBeforeTheContraction) {
  GraphBuilder g("g");
  const Tensor a = g.input("a", {2, 4, 8}, DataType::f32), b = g.input("b", {2, 8, 4}, DataType::f32);
  const Tensor length = g.input("length", {2, 1, 1}, DataType::i32);
  const Tensor number = g.gen_index(g.input("shape", {1, 8, 1}, DataType::i32), 1, {.name = "number"});
  const Tensor exists = g.cmp_lt(number, length, {.name = "exists"});
  const Tensor existing = g.binary_select(b, g.constant(0), exists, {.name = "select"});
  EXPECT_THAT(groups_by_name(g.finish({g.matmul(a, existing, {.name = "mm"})})),
              ElementsAre(ElementsAre("number", "exists", "select", "mm")));
}

TEST(Partition, AGatherThatAUnaryOpReadsIsNoInnerOne) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {4, 8}, DataType::f32), at = g.input("at", {2, 1}, DataType::i32);
  const Tensor taken = g.gather(x, at, {.axis = 0, .name = "gather"});
  EXPECT_THAT(groups_by_name(g.finish({g.relu(taken, {.name = "relu"})})),
              ElementsAre(ElementsAre("gather", "relu")));
}

TEST(Expand, AReductionOfNoAxisIsAnIdentity) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {4, 8}, DataType::f32);
  const Tensor same = g.reduce_to(x, ReductionMode::max, x.dims),
               sizes = g.reduce_to(x, ReductionMode::amax, x.dims);
  const Graph expanded = expand(g.finish({same, sizes}));
  EXPECT_EQ(std::get<Pointwise>(expanded.ops[0].attributes).mode, PointwiseMode::identity);
  EXPECT_TRUE(std::holds_alternative<Reduction>(expanded.ops[1].attributes));
}

TEST(Partition, ReductionsOfOneTensorShareAPass) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {4, 8}, DataType::f32);
  const Tensor s = g.reduce(x, ReductionMode::add, {0}, {.name = "sum"});
  const Tensor q = g.reduce(g.mul(x, x, {.name = "square"}), ReductionMode::add, {0}, {.name = "squares"});
  EXPECT_THAT(groups_by_name(g.finish({s, q})), ElementsAre(ElementsAre("sum", "square", "squares")));
}

TEST(FoldViews, TransposeOfAnInputIsReadInPlace) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {2, 3}, DataType::f32);
  const Tensor t = g.transpose(x, {1, 0}, {.name = "t"});
  const Graph graph = g.finish({g.relu(t, {.name = "relu"})});
  const FoldedGraph folded = fold_views(graph);
  const Placement& place = folded.placements[graph.find_uid(t.uid)];
  EXPECT_EQ(place.buffer, graph.find("x"));
  EXPECT_EQ(place.strides, (Strides{1, 3}));
}

TEST(FoldViews, SliceBecomesAnOffsetAndSteps) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {6, 10}, DataType::f32);
  const Tensor s = g.slice(x, {1, 2}, {6, 10}, {2, 3});
  const Graph graph = g.finish({g.relu(s)});
  const Placement place = fold_views(graph).placements[graph.find_uid(s.uid)];
  EXPECT_EQ(place.offset, 12);
  EXPECT_EQ(place.strides, (Strides{20, 3}));
}

TEST(FoldViews, ValueThatIsOnlyTransposedIsStoredTransposed) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {2, 3}, DataType::f32);
  const Tensor y = g.transpose(g.relu(x, {.name = "relu"}), {1, 0}, {.name = "t"});
  const Graph graph = g.finish({y});
  EXPECT_THAT(groups_by_name(graph), ElementsAre(ElementsAre("relu")));
  const Fusion fusion = make_fusion(graph, fold_views(graph), std::vector<int>{0});
  EXPECT_EQ(result_site(fusion).stores[0].access.strides,
            (Strides{1, 2}));  // y is packed: its rows are x's columns
}

TEST(FoldViews, ConcatenatedValuesAreWrittenInPlace) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {2, 3}, DataType::f32);
  const Tensor y =
      g.concatenate({g.relu(x, {.name = "relu"}), g.neg(x, {.name = "neg"})}, 1, {.name = "cat"});
  const Graph graph = g.finish({y});
  const FoldedGraph folded = fold_views(graph);
  const int neg = graph.ops[1].outputs[0];
  EXPECT_EQ(folded.placements[neg].offset, 3);
  EXPECT_EQ(folded.placements[neg].strides, (Strides{6, 1}));
  EXPECT_TRUE(folded.folded[2]);
}

TEST(Expand, ConcatenatedInputIsCopied) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {2, 3}, DataType::f32);
  const Graph graph = expand(g.finish({g.concatenate({x, x}, 0, {.name = "cat"})}));
  ASSERT_THAT(graph.ops, SizeIs(3));
  EXPECT_EQ(graph.ops[0].name, "cat.x0");
  EXPECT_NO_THROW(validate(graph));
  EXPECT_EQ(expand(graph), graph);
}

TEST(Expand, ReshapeThatNoStridesExpressReadsARowMajorCopy) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {2, 3, 4}, DataType::f32, TensorOptions{.strides = Strides{1, 2, 6}});
  const Graph graph =
      expand(g.finish({g.reshape(x, {6, 4}, {.name = "r"}), g.relu(g.reshape(x, {24}, {.name = "q"}))}));
  EXPECT_NO_THROW(validate(graph));
  EXPECT_NE(graph.find("q.x0:y"), -1);
}

TEST(ReshapeStrides, SplitsAndMergesAxes) {
  Strides out;
  ASSERT_TRUE(reshape_strides({6, 20}, {20, 1}, {2, 3, 4, 5}, out));
  EXPECT_EQ(out, (Strides{60, 20, 5, 1}));
  ASSERT_TRUE(reshape_strides({2, 3, 4}, {12, 4, 1}, {24}, out));
  EXPECT_EQ(out, (Strides{1}));
  EXPECT_FALSE(reshape_strides({2, 3}, {1, 2}, {6}, out));
  ASSERT_TRUE(reshape_strides({1, 5, 1}, {77, 2, 99}, {5}, out));
  EXPECT_EQ(out, (Strides{2}));
}

TEST(MakeFusion, BroadcastOperandHasStrideZero) {
  const Graph graph = conv_bias_relu();
  const Fusion fusion = make_fusion(graph, fold_views(graph), std::vector<int>{0, 1, 2});
  ASSERT_THAT(operand_sites(fusion), SizeIs(2));
  EXPECT_EQ(operand_site(fusion, 0, 0).domain, (Dims{2, 8, 6, 6}));
  EXPECT_EQ(result_site(fusion).domain, (Dims{2, 4, 6, 6}));
  bool found = false;
  for (const Node& node : result_site(fusion).nodes)
    if (node.kind == Node::Kind::load) {
      found = true;
      EXPECT_EQ(node.access.strides, (Strides{0, 1, 0, 0}));
    }
  EXPECT_TRUE(found);
  EXPECT_THAT(result_site(fusion).stores, SizeIs(1));
}

TEST(MakeFusion, SiblingsShareTheFirstOperandAndMeetInOneExpr) {
  const Graph graph = gated_pair();
  const Fusion fusion = make_fusion(graph, fold_views(graph), std::vector<int>{0, 1, 2, 3});
  EXPECT_EQ(form_of(fusion), Form::siblings);
  ASSERT_THAT(operand_sites(fusion), SizeIs(3));
  EXPECT_EQ(operand_site(fusion, 0, 0).domain, (Dims{8, 4}));
  EXPECT_EQ(fusion.name_of(operand_site(fusion, 0, 1).nodes[0].access.operand), "wg");
  EXPECT_EQ(fusion.name_of(operand_site(fusion, 1, 1).nodes[0].access.operand), "wu");
  for (int sibling = 0; sibling < 2; ++sibling) {
    const Node& sum = result_site(fusion).nodes[static_cast<size_t>(sibling)];
    EXPECT_EQ(sum.kind, Node::Kind::input);
    EXPECT_EQ(sum.input, sibling);
  }
  EXPECT_THAT(result_site(fusion).stores, SizeIs(1));
}

TEST(MakeFusion, ContractionsThatAreNoSiblingsAreRefused) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {4, 4}, DataType::f32);
  const Tensor first = g.matmul(x, x);
  const Tensor waiting = g.matmul(x, g.transpose(first, {1, 0}));
  const Graph graph = g.finish({g.mul(first, waiting)});
  const FoldedGraph folded = fold_views(graph);
  std::vector<int> ops;
  for (size_t i = 0; i < graph.ops.size(); ++i)
    if (!folded.folded[i]) ops.push_back(static_cast<int>(i));
  EXPECT_THROW(make_fusion(graph, folded, ops), Error);
}

// It read in front of the domain's axes.
TEST(MakeFusion, AViewOfHigherRankThanTheDomainIsRefused) {
  GraphBuilder g("g");
  const Tensor flat = g.relu(g.input("x", {2, 3}, DataType::f32));
  const Tensor deep = g.neg(g.reshape(flat, {1, 1, 2, 3}));
  const Graph graph = g.finish({flat, deep});
  const FoldedGraph folded = fold_views(graph);
  std::vector<int> ops;
  for (size_t i = 0; i < graph.ops.size(); ++i)
    if (!folded.folded[i]) ops.push_back(static_cast<int>(i));
  ASSERT_THAT(ops, SizeIs(2));
  EXPECT_THROW(make_fusion(graph, folded, ops), Error);
}

TEST(MakeFusion, IntermediateThatIsAlsoAnOutputIsStored) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {4}, DataType::f32);
  const Tensor r = g.relu(x);
  const Graph graph = g.finish({r, g.neg(r)});
  const Fusion fusion = make_fusion(graph, fold_views(graph), std::vector<int>{0, 1});
  EXPECT_THAT(result_site(fusion).stores, SizeIs(2));
}

TEST(MakeFusion, GroupedReductionSplitsItsAxis) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {2, 12, 5}, DataType::f32);
  const Graph graph = g.finish({g.reduce_to(x, ReductionMode::add, {2, 3, 5})});
  const Expr expr = result_site(make_fusion(graph, fold_views(graph), std::vector<int>{0}));
  EXPECT_EQ(expr.domain, (Dims{2, 3, 4, 5}));
  EXPECT_EQ(reduction_of(expr, expr.stores[0])->over, 1u << 2);
  EXPECT_EQ(expr.stores[0].access.strides, (Strides{15, 5, 0, 1}));
}

TEST(MakeFusion, OpsOfDifferentShapesAreRefusedByName) {
  GraphBuilder g("g");
  const Tensor a = g.relu(g.input("a", {3}, DataType::f32), {.name = "ra"});
  const Tensor b = g.relu(g.input("b", {4}, DataType::f32), {.name = "rb"});
  const Graph graph = g.finish({a, b});
  const FoldedGraph folded = fold_views(graph);
  EXPECT_THROW(make_fusion(graph, folded, std::vector<int>{0, 1}), Error);
}

// Strides and steps as large as integers are, where nobody walks.
TEST(FoldViews, HugeStridesAlongAnExtentOfOneAreNotMultiplied) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  GraphBuilder g("g");
  const Tensor x = g.input("x", {4, 1, 6}, DataType::f32, TensorOptions{.strides = Strides{6, kHuge, 1}});
  const Tensor part = g.slice(x, {1, 0, 0}, {4, 1, 6}, {kHuge, kHuge, 2});
  const Graph graph = g.finish({g.relu(part)});
  const FoldedGraph folded = fold_views(graph);
  const Placement& placed = folded.placements[graph.ops[0].outputs[0]];
  EXPECT_EQ(placed.offset, 6);
  EXPECT_EQ(placed.strides, (Strides{6, 0, 2}));
}

TEST(Partition, IndexAlongASplitAxisStaysApartFromTheGroupedReduction) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {4, 12}, DataType::f32);
  const Tensor sum = g.add(x, g.gen_index(x, 1, {.name = "index"}), {.name = "add"});
  const Graph graph = g.finish({g.reduce_to(sum, ReductionMode::add, {4, 3}, {.name = "groups"})});
  const FoldedGraph folded = fold_views(graph);
  for (const std::vector<int>& ops : partition(graph, folded))
    EXPECT_NO_THROW(make_fusion(graph, folded, ops));
}

TEST(Partition, IndexAlongAnotherAxisJoinsTheGroupedReduction) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {4, 12}, DataType::f32);
  const Tensor sum = g.add(x, g.gen_index(x, 0, {.name = "index"}), {.name = "add"});
  EXPECT_THAT(groups_by_name(g.finish({g.reduce_to(sum, ReductionMode::add, {4, 3}, {.name = "groups"})})),
              ElementsAre(ElementsAre("index", "add", "groups")));
}

TEST(Partition, FusionHasAnUpperLimitOfOps) {
  GraphBuilder g("g");
  Tensor x = g.input("x", {4, 4}, DataType::f32);
  for (size_t i = 0; i < 2 * kMaxFusionOps; ++i) x = g.neg(x);
  const auto groups = groups_by_name(g.finish({x}));
  ASSERT_THAT(groups, SizeIs(2));
  for (const auto& group : groups) EXPECT_THAT(group, SizeIs(kMaxFusionOps));
}

// A slice shows the second part of a concatenation alone, which the sum reads from memory: the fusion that
// writes it there must have ended. Once the walk looked at first parts only.
TEST(Partition, ASliceOfAConcatenationReadsEveryPartWhenItIsThere) {
  GraphBuilder g("shift");
  const Tensor x = g.input("x", {1, 4, 2}, DataType::f32), s = g.input("s", {1, 1, 2}, DataType::f32);
  const Tensor joined = g.concatenate({s, x}, 1);
  expect_right_on_cpu(g.finish({g.sub(x, g.slice(joined, {0, 0, 0}, {1, 4, 2}), {.name = "y"})}));
}

// A total behind a product may be made where rows read the product, unless what reads the total is waited for
// there: these plans once waited for themselves.
TEST(Partition, ATotalMovesNowhereThatWaitsForItsReaders) {
  GraphBuilder g("circle");
  const Tensor a = g.input("a", {64, 64}, DataType::f32), b = g.input("b", {64, 64}, DataType::f32);
  const Tensor square = g.matmul(b, b), product = g.matmul(a, b), shifted = g.add(a, product);
  g.output(g.add(square, g.sub(b, a)), {.name = "y0"});
  g.output(g.add(g.reduce(a, ReductionMode::max, {0}), shifted), {.name = "y1"});
  g.output(g.add(product, g.sub(g.reduce(shifted, ReductionMode::max, {1}), square)), {.name = "y2"});
  expect_right_on_cpu(g.finish());

  GraphBuilder h("second circle");
  const Tensor c = h.input("a", {64, 64}, DataType::f32), d = h.input("b", {64, 64}, DataType::f32);
  const Tensor s = h.sub(c, h.reduce(h.relu(h.matmul(d, c)), ReductionMode::max, {1}));
  const Tensor p = h.matmul(d, d), q = h.matmul(d, p);
  h.output(h.sub(q, s), {.name = "u"});
  h.output(h.sub(h.add(p, s), h.reduce(q, ReductionMode::max, {0})), {.name = "v"});
  expect_right_on_cpu(h.finish());
}

// Each level reads the one in front in two ways, which are the same two at every level.
TEST(Partition, ValuesBesideTheirTransposesAreComputedOnceEachWay) {
  GraphBuilder g("symmetric");
  Tensor x = g.input("x", {8, 8}, DataType::f32);
  for (int i = 0; i < 24; ++i) x = g.mul(g.add(x, g.transpose(x, {1, 0})), g.constant(0.5, DataType::f32));
  const Graph graph = g.finish({x});
  expect_right_on_cpu(graph);
  const FoldedGraph folded = fold_views(graph);
  for (const std::vector<int>& ops : partition(graph, folded))
    for (const Site& site : make_fusion(graph, folded, ops).sites) EXPECT_LT(site.expr.nodes.size(), 200U);
}

// Walks along views that nobody computes: of as many as these, a call for each would not fit the stack.
TEST(Partition, AVeryLongChainOfViewsIsOneFusion) {
  constexpr int kViews = 200'000;
  GraphBuilder g("g");
  Tensor x = g.input("x", {4, 6}, DataType::f32);
  for (int i = 0; i < kViews; ++i) x = g.transpose(x, {1, 0});
  const Explanation explanation = explain_data(g.finish({x}), DeviceInfo::named("H200"));
  EXPECT_THAT(explanation.fusions, SizeIs(1));
  EXPECT_THAT(explanation.folded, SizeIs(kViews - 1));
}

// Whoever holds buffers for the tensors of the graph as it was given evaluates the expanded one into them.
TEST(Expand, AReshapeThatWaitsLeavesGivenTensorsAsTheyAre) {
  GraphBuilder g;
  const Tensor halves = g.relu(g.input("x", {2, 3}, DataType::f16), {.type = DataType::f16});
  const Graph graph = g.finish({g.identity(g.reshape(halves, {6}), {.type = DataType::f32})});
  const Graph expanded = expand(graph);
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor &given = graph.tensors[i], &left = expanded.tensors[i];
    if (left.memory == Memory::constant) continue;
    EXPECT_EQ(left.type, given.type) << given.name;
    EXPECT_EQ(left.dims, given.dims) << given.name;
  }
}

TEST(Expand, GroupedReductionOfEightAxesIsMadeOverFewer) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {2, 3, 2, 1, 2, 3, 2, 6}, DataType::f32);
  const Graph graph =
      expand(g.finish({g.reduce_to(x, ReductionMode::add, {2, 3, 2, 1, 1, 3, 2, 2}, {.name = "groups"})}));
  EXPECT_NO_THROW(validate(graph));
  EXPECT_EQ(expand(graph), graph);
  const FoldedGraph folded = fold_views(graph);
  for (const std::vector<int>& ops : partition(graph, folded))
    EXPECT_NO_THROW(make_fusion(graph, folded, ops));
}

TEST(Expand, GroupsAlongEveryOneOfEightAxesAreReducedInTurn) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", Dims::filled(8, 4), DataType::f32);
  const Graph graph = expand(g.finish({g.reduce_to(x, ReductionMode::max, Dims::filled(8, 2))}));
  EXPECT_NO_THROW(validate(graph));
  const FoldedGraph folded = fold_views(graph);
  for (const std::vector<int>& ops : partition(graph, folded))
    EXPECT_NO_THROW(make_fusion(graph, folded, ops));
}

}  // namespace
}  // namespace fusor
