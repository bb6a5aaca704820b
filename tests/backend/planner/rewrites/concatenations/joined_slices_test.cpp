// Owns the tests that concatenations read neighbouring slices as one.
#include "backend/planner/rewrites/concatenations/joined_slices.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "backend/planner/planner.h"
#include "frontend/graph_builder.h"
#include "tests/backend/cpu_run.h"
#include "tests/backend/planner/groups_by_name.h"
#include "tests/backend/planner/planned_once.h"

namespace fusor {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

// The tensors that the concatenation of a planned graph reads.
std::vector<std::string> parts_of(const Graph& graph) {
  const Graph planned = test::planned_once(graph);
  std::vector<std::string> names;
  for (const Op& op : planned.ops)
    if (op.name == "all")
      for (const int input : op.inputs) names.push_back(planned.tensors[static_cast<size_t>(input)].name);
  return names;
}

Tensor columns(GraphBuilder& g, const Tensor& x, int64_t start, int64_t limit) {
  return g.slice(x, {0, start}, {x.dims[0], limit}, {});
}

struct Products {
  GraphBuilder g{"products"};
  Tensor x = g.input("x", {4, 8}, DataType::f16);
  Tensor product(const Tensor& a, const std::string& name) {
    return g.matmul(a, g.input(name + ".w", {a.dims[1], 6}, DataType::f16),
                    {.name = name, .type = DataType::f16});
  }
};

// As YOLO's blocks have it: the product is written to its place once.
TEST(JoinedSlices, AllPartsOfATensorAreTheTensor) {
  Products p;
  const Tensor y = p.product(p.x, "y");
  const Tensor b = columns(p.g, y, 3, 6);
  const Graph graph =
      p.g.finish({p.g.concatenate({columns(p.g, y, 0, 3), b, p.product(b, "c")}, 1, {.name = "all"})});
  EXPECT_THAT(parts_of(graph), ElementsAre("y:c", "c:c"));
  EXPECT_THAT(test::groups_by_name(graph), SizeIs(2));
  expect_right_on_cpu(graph);
}

TEST(JoinedSlices, SomeNeighboursAreOneSlice) {
  Products p;
  const Tensor y = p.product(p.x, "y");
  const Graph graph = p.g.finish(
      {p.g.concatenate({columns(p.g, y, 1, 2), columns(p.g, y, 2, 5), p.g.input("z", {4, 2}, DataType::f16)},
                       1, {.name = "all"})});
  EXPECT_THAT(parts_of(graph), SizeIs(2));
  expect_right_on_cpu(graph);
}

// Halves that change places, slices of other tensors, and every other column.
TEST(JoinedSlices, OthersStay) {
  Products p;
  const Tensor y = p.product(p.x, "y"), z = p.product(p.x, "z");
  const Graph graph =
      p.g.finish({p.g.concatenate({columns(p.g, y, 3, 6), columns(p.g, y, 0, 3), columns(p.g, z, 3, 6),
                                   p.g.slice(z, {0, 0}, {4, 6}, {1, 2})},
                                  1, {.name = "all"})});
  EXPECT_THAT(parts_of(graph), SizeIs(4));
  expect_right_on_cpu(graph);
}

}  // namespace
}  // namespace fusor
