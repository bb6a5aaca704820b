// Owns the tests that values are computed where they are read.
#include "backend/planner/partition/late_values.h"

#include <gmock/gmock.h>

#include "frontend/graph_builder.h"
#include "tests/backend/cpu_run.h"
#include "tests/backend/planner/groups_by_name.h"

namespace fusor {
namespace {

using test::groups_by_name;
using testing::ElementsAre;
using testing::IsSupersetOf;

// A norm, a product, and what a backward pass makes of the normalized values behind the product.
struct NormAndProduct {
  GraphBuilder g;
  Tensor x, normalized, product;

  NormAndProduct() {
    x = g.input("x", {6, 64}, DataType::f32);
    const Tensor mean = g.reduce(x, ReductionMode::avg, {1}, {.name = "mean"});
    const Tensor centred = g.sub(x, mean, {.name = "centred"});
    const Tensor scale = g.rsqrt(g.reduce(g.mul(centred, centred), ReductionMode::avg, {1}));
    const Tensor y = g.mul(centred, scale, {.name = "y"});
    product = g.matmul(y, g.input("w", {64, 64}, DataType::f32), {.name = "product", .type = DataType::bf16});
    normalized = g.mul(g.sub(x, mean, {.name = "centred again"}), scale, {.name = "normalized"});
  }
};

TEST(LateValues, AreMadeAgainOfWhatLiesInMemory) {
  NormAndProduct parts;
  GraphBuilder& g = parts.g;
  const Tensor weighted = g.mul(parts.product, parts.normalized, {.name = "weighted"});
  const Tensor total = g.reduce(weighted, ReductionMode::avg, {1}, {.name = "total"});
  const Graph graph = g.finish({g.sub(weighted, total, {.name = "result"})});
  const auto groups = groups_by_name(graph);
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_THAT(groups[1], ElementsAre("product"));
  EXPECT_THAT(groups[2], ElementsAre("centred again", "normalized", "weighted", "total", "result"));
  expect_right_on_cpu(graph);
}

// Totals of columns are taken where the rows are read, not behind the product.
TEST(LateValues, ColumnsAreAddedUpWhereRowsAreRead) {
  NormAndProduct parts;
  GraphBuilder& g = parts.g;
  const Tensor columns = g.reduce(g.mul(parts.product, parts.normalized, {.name = "of columns"}),
                                  ReductionMode::add, {0}, {.name = "columns"});
  const Tensor scaled = g.mul(parts.product, g.input("s", {1, 64}, DataType::f32), {.name = "scaled"});
  const Tensor total = g.reduce(g.mul(scaled, parts.normalized, {.name = "of rows"}), ReductionMode::avg, {1},
                                {.name = "total"});
  const Tensor result = g.sub(scaled, g.mul(parts.normalized, total), {.name = "result"});
  const Graph graph = g.finish({columns, result});
  const auto groups = groups_by_name(graph);
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_THAT(groups[1], ElementsAre("product"));
  EXPECT_THAT(groups[2], IsSupersetOf({"normalized", "of columns", "columns", "total", "result"}));
  expect_right_on_cpu(graph);
}

// The same behind a sum of two products, which rows read: the gradient of a norm in front of a gated unit.
TEST(LateValues, ColumnsAreAddedUpWhereRowsOfASumOfProductsAreRead) {
  NormAndProduct parts;
  GraphBuilder& g = parts.g;
  const Tensor other = g.input("other", {6, 64}, DataType::bf16);
  const Tensor sum = g.add(parts.product, other, {.name = "sum", .type = DataType::bf16});
  const Tensor columns = g.reduce(g.mul(sum, parts.normalized, {.name = "of columns"}), ReductionMode::add,
                                  {0}, {.name = "columns"});
  const Tensor scaled = g.mul(sum, g.input("s", {1, 64}, DataType::f32), {.name = "scaled"});
  const Tensor total = g.reduce(g.mul(scaled, parts.normalized, {.name = "of rows"}), ReductionMode::avg, {1},
                                {.name = "total"});
  const Tensor result = g.sub(scaled, g.mul(parts.normalized, total), {.name = "result"});
  const Graph graph = g.finish({columns, result});
  const auto groups = groups_by_name(graph);
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_THAT(groups[1], ElementsAre("product", "sum"));
  EXPECT_THAT(groups[2], IsSupersetOf({"normalized", "of columns", "columns", "total", "result"}));
  expect_right_on_cpu(graph);
}

// An activation of 16 bits behind a product of 32 stays: its reader would read more.
TEST(LateValues, StayWhereTheyAreSmallerThanWhatTheyAreMadeOf) {
  GraphBuilder g;
  const Tensor product = g.matmul(g.input("x", {6, 32}, DataType::f16), g.input("w", {32, 64}, DataType::f16),
                                  {.name = "product"});
  const Tensor rounded = g.relu(product, {.name = "relu", .type = DataType::f16});
  const Tensor total = g.reduce(rounded, ReductionMode::max, {1}, {.name = "total"});
  const Graph graph = g.finish({g.sub(rounded, total, {.name = "result"})});
  EXPECT_THAT(groups_by_name(graph),
              ElementsAre(ElementsAre("product", "relu"), ElementsAre("total", "result")));
  expect_right_on_cpu(graph);
}

// A Philox word costs more than the byte that says what was dropped.
TEST(LateValues, DearValuesAreMadeOnce) {
  GraphBuilder g;
  const Tensor x = g.input("x", {6, 64}, DataType::f32);
  const Tensor kept = g.rng(x.dims, g.scalar("seed", DataType::i64), g.scalar("offset", DataType::i64),
                            {.distribution = Distribution::bernoulli, .probability = 0.5});
  const Tensor dropped = g.binary_select(x, g.constant(0), kept, {.name = "dropped"});
  const Tensor product = g.matmul(dropped, g.input("w", {64, 64}, DataType::f32), {.name = "product"});
  const Graph graph = g.finish({g.binary_select(product, g.constant(0), kept, {.name = "result"})});
  EXPECT_THAT(groups_by_name(graph).back(), ElementsAre("product", "result"));
  expect_right_on_cpu(graph);
}

}  // namespace
}  // namespace fusor
