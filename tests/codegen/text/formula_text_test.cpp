// Owns the tests of formulas as text: written out over their operands, or called where they read parameters.
#include "codegen/text/formula_text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fusor {
namespace {

std::string text_of(PointwiseMode mode, const std::vector<std::string>& operands,
                    DataType compute = DataType::f32, std::string_view parameters = "") {
  Pointwise pointwise;
  pointwise.mode = mode;
  pointwise.compute = compute;
  return formula_text(pointwise, "Fn", operands, parameters);
}

TEST(FormulaText, OperatorsStandBetweenTheOperands) {
  EXPECT_EQ(text_of(PointwiseMode::add, {"v0[i]", "row.v1[0]"}), "v0[i] + row.v1[0]");
  EXPECT_EQ(text_of(PointwiseMode::add_square, {"v0", "v1"}), "v0 + v1 * v1");
  EXPECT_EQ(text_of(PointwiseMode::identity, {"narrow<float>(v0)"}), "narrow<float>(v0)");
}

TEST(FormulaText, FunctionsAreThoseOfTheSite) {
  EXPECT_EQ(text_of(PointwiseMode::exp, {"v0"}), "Fn::exp(v0)");
  EXPECT_EQ(text_of(PointwiseMode::gelu, {"v0"}), "v0 * Fn::normal_cdf(v0)");
}

TEST(FormulaText, ConstantsAreOfTheComputeType) {
  EXPECT_EQ(text_of(PointwiseMode::binary_select, {"v0", "v1", "v2"}, DataType::i32),
            "v2 != i32(0) ? v0 : v1");
  EXPECT_EQ(text_of(PointwiseMode::reciprocal, {"v0"}, DataType::f64), "Fn::div(double(1), v0)");
}

TEST(FormulaText, FormulasWithParametersAreCalled) {
  EXPECT_TRUE(reads_parameters(PointwiseMode::relu));
  EXPECT_FALSE(reads_parameters(PointwiseMode::exp));
  EXPECT_EQ(text_of(PointwiseMode::relu, {"v0"}), "op_relu<Fn>(v0)");
  EXPECT_EQ(text_of(PointwiseMode::elu_bwd, {"v0", "v1"}, DataType::f32, "p2"), "op_elu_bwd<Fn>(v0, v1, p2)");
}

// A letter of an operand's name is no operand, and none of a formula's own names is taken for one.
TEST(FormulaText, NothingOfTheTableIsLeft) {
  for (int mode = 0; mode < pointwise_mode_count(); ++mode) {
    const std::string text = text_of(static_cast<PointwiseMode>(mode), {"in.a1", "in.b1", "in.c1"});
    for (const char* const left : {"fn::", "T(", " a ", " b ", " c ", "(a", "(b", "(c"})
      EXPECT_EQ(text.find(left), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace fusor
