// Owns the tests that values which several fusions read are computed again.
#include "backend/planner/rewrites/repeated_values.h"

#include <gmock/gmock.h>

#include "backend/planner/planner.h"
#include "frontend/graph_builder.h"
#include "tests/backend/cpu_run.h"
#include "tests/backend/planner/planned_once.h"

namespace fusor {
namespace {

// A value of x that two products' epilogues read: it is not stored for them, and what is planned stays as it
// is.
TEST(RepeatedValues, AreComputedInEveryFusionThatReadsThem) {
  GraphBuilder g;
  const Tensor x = g.input("x", {64, 32}, DataType::f16);
  const Tensor mean = g.reduce(x, ReductionMode::avg, {0}, {.name = "mean"});
  const Tensor centred = g.sub(x, mean, {.name = "centred"});
  const Tensor first = g.mul(g.matmul(x, g.input("w", {32, 32}, DataType::f16)), centred);
  const Tensor second = g.mul(g.matmul(g.exp(x), g.input("v", {32, 32}, DataType::f16)), centred);
  const Graph graph = g.finish({first, second});
  const Graph planned = test::planned_once(graph);
  const FoldedGraph folded = fold_views(planned);
  const auto groups = partition(planned, folded);
  for (const std::vector<int>& group : groups) {
    for (const int op : group) {
      const Op& described = planned.ops[static_cast<size_t>(op)];
      if (!described.name.starts_with("centred")) continue;
      for (const int reader : folded.index.consumers(described.outputs[0]))
        EXPECT_THAT(group, testing::Contains(reader)) << described.name;
    }
  }
  expect_right_on_cpu(graph);
}

}  // namespace
}  // namespace fusor
