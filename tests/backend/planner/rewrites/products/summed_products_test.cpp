// Owns the tests that sums of products of slices become one product.
#include "backend/planner/rewrites/products/summed_products.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "backend/planner/planner.h"
#include "frontend/graph_builder.h"
#include "tests/backend/cpu_run.h"
#include "tests/backend/planner/planned_once.h"

namespace fusor::summed_products_test {
namespace {

int products_of(const Graph& graph) {
  return static_cast<int>(std::ranges::count_if(test::planned_once(graph).ops, [](const Op& op) {
    return std::holds_alternative<Matmul>(op.attributes);
  }));
}

struct SumCase {
  bool swapped = false;    // the slices' order
  bool transposed = true;  // lines of the tensor are columns of the operand
  int64_t limit = 24;      // of the second slice, of 24
  int64_t start = 16;      // of it
  int64_t rows = 4;
  DataType rounded = DataType::f32;  // products
};

Graph sum_of_products(const SumCase& c) {
  GraphBuilder g;
  const Tensor b =
      c.transposed ? g.input("b", {2, 30, 24}, DataType::f16) : g.input("b", {2, 24, 30}, DataType::f16);
  const auto part = [&](int64_t start, int64_t limit) {
    return c.transposed ? g.transpose(g.slice(b, {0, 0, start}, {2, 30, limit}), {0, 2, 1})
                        : g.slice(b, {0, start, 0}, {2, limit, 30});
  };
  const PointwiseOptions rounded{.type = c.rounded};
  const Tensor first =
      g.matmul(g.input("first", {2, c.rows, 16}, DataType::f16), part(0, 16), {.type = c.rounded});
  const Tensor second = g.matmul(g.input("second", {2, c.rows, c.limit - c.start}, DataType::f16),
                                 part(c.start, c.limit), {.type = c.rounded});
  return g.finish({g.tanh(c.swapped ? g.add(second, first) : g.add(first, second))});
}

TEST(SummedProducts, OfNeighbouringSlicesAreOne) {
  for (const bool swapped : {false, true})
    for (const bool transposed : {false, true})
      for (const int64_t limit : {24, 20}) {
        const Graph graph = sum_of_products({.swapped = swapped, .transposed = transposed, .limit = limit});
        EXPECT_EQ(products_of(graph), 1);
        expect_right_on_cpu(graph);
      }
}

// Slices that overlap, products that are rounded, and first operands that are the larger ones.
TEST(SummedProducts, OthersStay) {
  for (const SumCase& c : {SumCase{.start = 15}, {.rounded = DataType::f16}, {.rows = 64}}) {
    const Graph graph = sum_of_products(c);
    EXPECT_EQ(products_of(graph), 2);
    expect_right_on_cpu(graph);
  }
}

}  // namespace
}  // namespace fusor::summed_products_test
