// Owns the tests of where kernels may use the short elementary functions.
#include "backend/engines/short_forms.h"

#include <gtest/gtest.h>

#include "frontend/graph_builder.h"
#include "tests/backend/planner/whole_fusion.h"

namespace fusor {
namespace {

bool fits(const Graph& graph) { return fits_short_forms(result_site(test::fusion_of(graph))); }

Tensor x(GraphBuilder& g) { return g.input("x", {4, 8}, DataType::bf16); }

TEST(ShortForms, FitWhereAFunctionIsStoredIn16Bits) {
  for (const DataType type : {DataType::bf16, DataType::f16, DataType::f8_e5m2, DataType::f32}) {
    GraphBuilder g;
    g.output(g.exp(x(g)), {.name = "y", .type = type});
    EXPECT_EQ(fits(g.finish()), type != DataType::f32);
  }
}

TEST(ShortForms, FitWhereAFunctionIsRoundedBeforeItIsAddedUp) {
  GraphBuilder g;
  const Tensor slope = g.swish_bwd(x(g), g.input("a", {4, 8}, DataType::bf16), {.type = DataType::bf16});
  const Tensor product = g.mul(slope, g.input("b", {4, 8}, DataType::f32));
  g.output(slope, {.name = "slope"});
  g.output(g.reduce(product, ReductionMode::add, {0}), {.name = "sum", .type = DataType::f32});
  EXPECT_TRUE(fits(g.finish()));
}

TEST(ShortForms, DoNotFitSumsOfWhatIsNotRounded) {
  GraphBuilder g;
  g.output(g.reduce(g.exp(x(g)), ReductionMode::add, {1}), {.name = "sum", .type = DataType::f32});
  EXPECT_FALSE(fits(g.finish()));
}

TEST(ShortForms, DoNotFitComparisonsOfWhatIsNotRounded) {
  GraphBuilder g;
  g.output(g.cmp_gt(g.exp(x(g)), g.constant(1.0)), {.name = "y"});
  EXPECT_FALSE(fits(g.finish()));
}

TEST(ShortForms, OtherResultsMayBeWide) {
  GraphBuilder g;
  const Tensor a = x(g);
  g.output(g.exp(a), {.name = "y", .type = DataType::bf16});
  g.output(g.mul(a, a), {.name = "square", .type = DataType::f32});
  EXPECT_TRUE(fits(g.finish()));
}

}  // namespace
}  // namespace fusor
