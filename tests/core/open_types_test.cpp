// Tests of types left open: what operands of contractions, outputs and everything else get, whatever the
// order of calls.
#include "core/open_types.h"

#include <gtest/gtest.h>

#include "frontend/graph_builder.h"

namespace fusor {
namespace {

class OpenTypes : public testing::Test {
 protected:
  Tensor input(const std::string& name, DataType type) { return g.input(name, {64, 64}, type); }
  DataType finished(const Tensor& tensor, std::initializer_list<Tensor> outputs) {
    const Graph graph = g.finish(outputs);
    return graph.tensors[static_cast<size_t>(graph.find(tensor.name))].type;
  }
  GraphBuilder g;
  Tensor x = input("x", DataType::f16);
  Tensor w = input("w", DataType::f16);
};

TEST_F(OpenTypes, AnOperandTakesTheTypeOfTheOneBesideIt) {
  const Tensor h = g.relu(g.matmul(x, w));
  EXPECT_EQ(finished(h, {g.matmul(h, w)}), DataType::f16);
}

TEST_F(OpenTypes, OperandsOfAttentionTakeTheTypeOfTheOnesBesideThem) {
  const auto heads = [&](const Tensor& operand) { return g.reshape(operand, {1, 1, 64, 64}); };
  const Tensor q = g.matmul(x, w), k = g.matmul(x, w), v = g.relu(x);
  const Graph graph = g.finish({g.sdpa_fwd(heads(q), heads(k), heads(v)).o});
  for (const Tensor& each : {q, k, v})
    EXPECT_EQ(graph.tensors[static_cast<size_t>(graph.find(each.name))].type, DataType::f16) << each.name;
}

TEST_F(OpenTypes, TokensTakeTheTypeOfTheWeightsOfTheirExperts) {
  const Tensor weights = g.input("weights", {2, 64, 64}, DataType::f16);
  const Tensor offsets = g.input("offsets", {2}, DataType::i32);
  const Tensor h = g.relu(input("x32", DataType::f32));
  EXPECT_EQ(finished(h, {g.moe_grouped_matmul(h, weights, offsets)}), DataType::f16);
}

TEST_F(OpenTypes, SoDoesOneMadeOfFp32) {
  const Tensor h = g.relu(input("x32", DataType::f32));
  EXPECT_EQ(finished(h, {g.matmul(h, w)}), DataType::f16);
}

TEST_F(OpenTypes, AnOperandWhoseTypeWasSaidKeepsIt) {
  const Tensor h = g.relu(x, {.type = DataType::f32});
  EXPECT_EQ(finished(h, {g.matmul(h, w)}), DataType::f32);
}

TEST_F(OpenTypes, EverythingElseStaysInItsComputeType) {
  const Tensor h = g.exp(x);
  EXPECT_EQ(finished(h, {g.neg(h)}), DataType::f32);
}

// Four bits are what somebody said; what is made of them has more.
TEST_F(OpenTypes, NothingIsPackedUnlessThatWasSaid) {
  const Tensor f = input("f", DataType::f4_e2m1), i = input("i", DataType::i4), b = input("b", DataType::b1);
  const Tensor r = g.output(g.relu(f), {.name = "r"}), s = g.output(g.add(i, i), {.name = "s"}),
               n = g.output(g.logical_not(b), {.name = "n"}), m = g.output(g.matmul(x, f), {.name = "m"});
  const Graph graph = g.finish();
  const auto type = [&](const char* name) {
    return graph.tensors[static_cast<size_t>(graph.find(name))].type;
  };
  EXPECT_EQ(type("r"), DataType::f32);
  EXPECT_EQ(type("s"), DataType::i32);
  EXPECT_EQ(type("n"), DataType::b8);
  EXPECT_EQ(type("m"), DataType::f16);
}

TEST_F(OpenTypes, AnOperandBesidePackedOnesStaysInItsComputeType) {
  const Tensor h = g.exp(input("y32", DataType::f32));
  EXPECT_EQ(finished(h, {g.matmul(h, input("w4", DataType::f4_e2m1))}), DataType::f32);
}

TEST_F(OpenTypes, BesideFp32AnOperandStaysInItsComputeType) {
  const Tensor h = g.exp(x);
  EXPECT_EQ(finished(h, {g.matmul(h, input("w32", DataType::f32))}), DataType::f32);
}

TEST_F(OpenTypes, TwoOpenOperandsTakeWhatTheyAreMadeOf) {
  const Tensor a = g.relu(x), b = g.neg(input("z", DataType::f16));
  const Graph graph = g.finish({g.matmul(a, b)});
  for (const Tensor& each : {a, b})
    EXPECT_EQ(graph.tensors[static_cast<size_t>(graph.find(each.name))].type, DataType::f16);
}

TEST_F(OpenTypes, ThroughAViewTheValueItselfIsRounded) {
  const Tensor h = g.relu(x);
  const Tensor t = g.transpose(h, {1, 0});
  const Graph graph = g.finish({g.matmul(t, w)});
  for (const Tensor& each : {h, t})
    EXPECT_EQ(graph.tensors[static_cast<size_t>(graph.find(each.name))].type, DataType::f16);
}

TEST_F(OpenTypes, ContractionsThatAskForDifferentTypesGetNone) {
  const Tensor h = g.relu(x);
  const Tensor first = g.matmul(h, w);
  EXPECT_EQ(finished(h, {first, g.matmul(h, input("b", DataType::bf16))}), DataType::f32);
}

TEST_F(OpenTypes, AContractionAppendedLaterCounts) {
  const Tensor h = g.relu(x);
  const Tensor y = g.output(g.neg(h));
  EXPECT_EQ(y.type, DataType::f16);
  EXPECT_EQ(finished(h, {g.matmul(h, w)}), DataType::f16);
}

TEST_F(OpenTypes, IntegersStayExact) {
  const Tensor bytes = input("bytes", DataType::i8);
  const Tensor h = g.matmul(bytes, bytes);
  EXPECT_EQ(finished(h, {g.matmul(h, bytes)}), DataType::i32);
}

TEST_F(OpenTypes, BesideWeightsOfFp8AnActivationOfFp16StaysFp16) {
  const Tensor h = g.relu(x);
  EXPECT_EQ(finished(h, {g.matmul(h, input("w8", DataType::f8_e4m3))}), DataType::f16);
}

TEST_F(OpenTypes, BesideFp8WhatIsMadeOfFp8IsFp8) {
  const Tensor w8 = input("w8", DataType::f8_e4m3);
  const Tensor h = g.relu(g.matmul(w8, w8));
  EXPECT_EQ(finished(h, {g.matmul(h, w8)}), DataType::f8_e4m3);
}

TEST_F(OpenTypes, FoldedWeightsTakeTheTypeOfTheActivation) {
  const Tensor weight = g.mul(input("w8", DataType::i8), g.input("scale", {64}, DataType::f32));
  EXPECT_EQ(finished(weight, {g.matmul(x, weight)}), DataType::f16);
}

TEST_F(OpenTypes, AnOutputHasThePromotedTypeOfWhatItsOpReads) {
  const Tensor bias = g.input("bias", {64}, DataType::f32);
  EXPECT_EQ(g.output(g.mul(x, bias)).type, DataType::f32);
  EXPECT_EQ(g.output(g.mul(bias, x)).type, DataType::f32);
  EXPECT_EQ(g.output(g.add(x, input("b", DataType::bf16))).type, DataType::f32);
}

TEST_F(OpenTypes, AnOutputOfAContractionReadsItsOpenOperandAsItIsRounded) {
  const Tensor gamma = g.input("gamma", {64}, DataType::f32);
  EXPECT_EQ(g.output(g.matmul(g.mul(x, gamma), w)).type, DataType::f16);
}

TEST_F(OpenTypes, TheConditionOfASelectionIsNoNumber) {
  EXPECT_EQ(g.output(g.binary_select(x, w, input("mask", DataType::f32))).type, DataType::f16);
}

TEST(Promoted, IsTheTypeThatHoldsBoth) {
  EXPECT_EQ(promoted(DataType::f16, DataType::f32), DataType::f32);
  EXPECT_EQ(promoted(DataType::f16, DataType::bf16), DataType::f32);
  EXPECT_EQ(promoted(DataType::f8_e4m3, DataType::f8_e5m2), DataType::f16);
  EXPECT_EQ(promoted(DataType::bf16, DataType::f8_e4m3), DataType::bf16);
  EXPECT_EQ(promoted(DataType::i64, DataType::f16), DataType::f16);
  EXPECT_EQ(promoted(DataType::i8, DataType::u8), DataType::i32);
  EXPECT_EQ(promoted(DataType::i64, DataType::i32), DataType::i64);
  EXPECT_EQ(promoted(DataType::b8, DataType::i8), DataType::i8);
}

TEST(Promoted, DoesNotDependOnTheOrder) {
  const DataType all[] = {
#define FUSOR_DTYPE(id, name, bits, kind, device) DataType::id,
#include "core/dtype.def"
#undef FUSOR_DTYPE
  };
  for (const DataType a : all)
    for (const DataType b : all) EXPECT_EQ(promoted(a, b), promoted(b, a));
}

}  // namespace
}  // namespace fusor
