// Tests of what front-ends in other languages read: the kinds of ops, and the attributes of one op.
#include <gmock/gmock.h>

#include "core/error.h"
#include "serialization/op_text.h"
#include "serialization/serialization.h"

namespace fusor {
namespace {

using testing::HasSubstr;

TEST(OpKinds, NameOperandsAndDefaults) {
  const std::string kinds = op_kinds_json();
  EXPECT_THAT(kinds, HasSubstr(R"("op": "matmul", "inputs": [{"name": "a"}, {"name": "b"}])"));
  EXPECT_THAT(kinds, HasSubstr(R"("mode": "swish", "compute": "fp32", "swish_beta": 1.0)"));
}

TEST(OpKinds, AllSayFormulaShapesTypesAndErrors) {
  const std::string kinds = op_kinds_json();
  for (const char* empty : {R"("formula": "")", R"("shapes": "")", R"("types": "")", R"("errors": "")"})
    EXPECT_EQ(kinds.find(empty), std::string::npos) << empty;
}

TEST(OpKinds, FormulasOfPointwiseOpsAreThoseOfTheTableMadeReadable) {
  const auto formula = [](PointwiseMode mode) { return op_text(Pointwise{.mode = mode}).formula; };
  EXPECT_EQ(formula(PointwiseMode::reciprocal), "y = 1 / x");
  EXPECT_EQ(formula(PointwiseMode::binary_select), "y = t != 0 ? a : b");
  EXPECT_EQ(formula(PointwiseMode::elu), "y = x > 0 ? x : elu_alpha * expm1(x); expm1(t) = exp(t) - 1");
  EXPECT_THAT(formula(PointwiseMode::gelu_bwd), HasSubstr("y = dy * (x * normal_pdf(x) + normal_cdf(x)); "));
  EXPECT_THAT(formula(PointwiseMode::swish_bwd),
              HasSubstr("gated_slope(u, v) = sigmoid(u) * (1 + v * sigmoid(-u)); "));
  for (int i = 0; i < pointwise_mode_count(); ++i)
    for (const char* inner : {"fn::", "T(", "p."})
      EXPECT_EQ(formula(static_cast<PointwiseMode>(i)).find(inner), std::string::npos) << i << inner;
}

TEST(OpKinds, AttributesAreReadAsInGraphFiles) {
  const Attributes read = attributes_from_json(R"({"op": "pointwise", "mode": "relu", "upper_clip": 6})", 2);
  EXPECT_EQ(std::get<Pointwise>(read).upper_clip, 6);
}

TEST(OpKinds, AnAttributeOfAnotherKindIsRefused) {
  EXPECT_THROW(attributes_from_json(R"({"op": "matmul", "axis": 1})", 2), Error);
}

}  // namespace
}  // namespace fusor
