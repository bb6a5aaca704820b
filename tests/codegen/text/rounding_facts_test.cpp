// Owns the tests of which values need no rounding.
#include "codegen/text/rounding_facts.h"

#include <gtest/gtest.h>

namespace fusor {
namespace {

// A node of `mode` and `type` over loads of those types, or scalars where nodes are fp32.
struct Chosen {
  Expr expr;
  Node node;

  Chosen(PointwiseMode mode, DataType type, std::initializer_list<DataType> from) {
    node.kind = Node::Kind::pointwise;
    node.type = type;
    node.pointwise.mode = mode;
    node.args = {-1, -1, -1};
    for (const DataType each : from) {
      Node arg;
      arg.kind = each == DataType::f32 ? Node::Kind::scalar : Node::Kind::load;
      arg.type = each;
      node.args[expr.nodes.size()] = static_cast<int>(expr.nodes.size());
      expr.nodes.push_back(arg);
    }
  }
  bool needs_no_rounding() const { return chooses_elements(expr, node); }
};

TEST(RoundingFacts, WhatIsChosenAmongElementsNeedsNoRounding) {
  for (const DataType type : {DataType::bf16, DataType::f16}) {
    EXPECT_TRUE(Chosen(PointwiseMode::identity, type, {type}).needs_no_rounding());
    EXPECT_TRUE(Chosen(PointwiseMode::relu, type, {type}).needs_no_rounding());
    EXPECT_TRUE(Chosen(PointwiseMode::max, type, {type, type}).needs_no_rounding());
    EXPECT_TRUE(Chosen(PointwiseMode::binary_select, type, {type, type, DataType::b8}).needs_no_rounding());
  }
}

TEST(RoundingFacts, WhatIsComputedOrOfAnotherTypeIsRounded) {
  EXPECT_FALSE(
      Chosen(PointwiseMode::add, DataType::bf16, {DataType::bf16, DataType::bf16}).needs_no_rounding());
  EXPECT_FALSE(Chosen(PointwiseMode::identity, DataType::bf16, {DataType::f16}).needs_no_rounding());
  EXPECT_FALSE(
      Chosen(PointwiseMode::max, DataType::bf16, {DataType::bf16, DataType::f16}).needs_no_rounding());
  EXPECT_FALSE(Chosen(PointwiseMode::identity, DataType::f8_e4m3, {DataType::f8_e4m3}).needs_no_rounding());
  Chosen clipped(PointwiseMode::relu, DataType::bf16, {DataType::bf16});
  clipped.node.pointwise.upper_clip = 1.1;
  EXPECT_FALSE(clipped.needs_no_rounding());
}

TEST(RoundingFacts, ScalarsAreRoundedThemselves) {
  const Chosen chosen(PointwiseMode::binary_select, DataType::bf16,
                      {DataType::bf16, DataType::f32, DataType::f32});
  EXPECT_TRUE(chosen.needs_no_rounding());
  EXPECT_FALSE(is_chosen_scalar(chosen.expr, chosen.node, 0));
  EXPECT_TRUE(is_chosen_scalar(chosen.expr, chosen.node, 1));
  EXPECT_FALSE(is_chosen_scalar(chosen.expr, chosen.node, 2));
}

}  // namespace
}  // namespace fusor
