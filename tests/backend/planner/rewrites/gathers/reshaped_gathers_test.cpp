// Owns the tests that rows of a table are taken where they are used.
#include "backend/planner/rewrites/gathers/reshaped_gathers.h"

#include <gmock/gmock.h>

#include "backend/planner/planner.h"
#include "frontend/graph_builder.h"
#include "tests/backend/cpu_run.h"
#include "tests/backend/planner/groups_by_name.h"
#include "tests/backend/planner/planned_once.h"

namespace fusor {
namespace {

using testing::SizeIs;

// The rows of 4 words for each of 3 sentences, as [sentences, words, numbers].
Tensor words(GraphBuilder& g, const Dims& shape) {
  const Tensor table = g.input("table", {9, 6}, DataType::f16);
  const Tensor index = g.input("index", {12, 1}, DataType::i32);
  return g.reshape(g.gather(table, index, {.axis = 0}), shape);
}

TEST(ReshapedGathers, BagsAreSummedWhereTheyAreRead) {
  GraphBuilder g;
  const Graph graph = g.finish({g.reduce(words(g, {3, 4, 6}), ReductionMode::add, {1})});
  test::planned_once(graph);
  EXPECT_THAT(test::groups_by_name(graph), SizeIs(1));
  expect_right_on_cpu(graph);
}

TEST(ReshapedGathers, PositionsAreAddedWhereTheyAreRead) {
  GraphBuilder g;
  const Tensor position = g.input("position", {1, 4, 6}, DataType::f32);
  const Graph graph = g.finish({g.add(words(g, {3, 4, 6}), position)});
  test::planned_once(graph);
  EXPECT_THAT(test::groups_by_name(graph), SizeIs(1));
  expect_right_on_cpu(graph);
}

TEST(ReshapedGathers, RowsThatAreTakenApartStay) {
  for (const Dims& shape : {Dims{12, 3, 2}, Dims{3, 24}, Dims{72}}) {
    GraphBuilder g;
    const Graph graph = g.finish({g.exp(words(g, shape))});
    test::planned_once(graph);
    expect_right_on_cpu(graph);
  }
}

}  // namespace
}  // namespace fusor
