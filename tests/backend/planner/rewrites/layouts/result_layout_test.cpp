// Owns the tests of the order in which results lie where views lead to their readers.
#include "backend/planner/rewrites/layouts/result_layout.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "backend/planner/planner.h"
#include "frontend/graph_builder.h"
#include "tests/backend/cpu_run.h"

namespace fusor {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

// Ops that were added, which are copies.
std::vector<std::string> added_to(const Graph& graph) {
  const Graph expanded = expand(graph);
  std::vector<std::string> added;
  for (const Op& op : expanded.ops)
    if (std::ranges::none_of(graph.ops, [&](const Op& given) { return given.name == op.name; }))
      added.push_back(op.name);
  return added;
}

// [n, h, s, d] -> [n, s, h, d] -> [n s, h d]
TEST(ResultLayout, HeadsAreMergedWhereTheyAreMade) {
  GraphBuilder g;
  const Tensor o = g.matmul(g.input("p", {2, 3, 4, 5}, DataType::f32),
                            g.input("v", {2, 3, 5, 6}, DataType::f32), {.name = "o"});
  const Tensor merged = g.reshape(g.transpose(o, {0, 2, 1, 3}), {8, 18});
  const Graph graph = g.finish({g.matmul(merged, g.input("w", {18, 7}, DataType::f32))});
  EXPECT_THAT(added_to(graph), IsEmpty());
  const Graph expanded = expand(graph);
  const auto made = std::ranges::find(expanded.ops, "o", &Op::name);
  ASSERT_NE(made, expanded.ops.end());
  EXPECT_EQ(expanded.tensors[static_cast<size_t>(made->outputs[0])].strides, (Strides{72, 6, 18, 1}));
  expect_right_on_cpu(graph);
}

TEST(ResultLayout, ACopyMergesWhatNoStridesMerge) {
  GraphBuilder g;
  const Tensor x = g.reshape(g.relu(g.input("x", {4, 6}, DataType::f32)), {2, 2, 6});
  const Tensor merged = g.reshape(g.transpose(x, {1, 2, 0}), {24});
  const Graph graph = g.finish({g.reduce(merged, ReductionMode::max, {0}, {.name = "max"}),
                                g.reduce(merged, ReductionMode::add, {0}, {.name = "sum"})});
  EXPECT_THAT(added_to(graph), SizeIs(1));
  expect_right_on_cpu(graph);
}

// Others read the result where it lies then; but no strides are right for two views that merge other axes.
TEST(ResultLayout, IsRightForAllWhoRead) {
  for (const bool merges_others : {false, true}) {
    GraphBuilder g;
    const Tensor x = g.relu(g.input("x", {2, 3, 4}, DataType::f32));
    const Tensor merged = g.reshape(g.transpose(x, {0, 2, 1}), {8, 3});
    const Tensor other = merges_others ? g.reshape(x, {6, 4}) : x;
    const Graph graph = g.finish({g.matmul(merged, g.input("w", {3, 5}, DataType::f32)),
                                  g.reduce(other, ReductionMode::max, {merges_others ? 1 : 2})});
    EXPECT_THAT(added_to(graph), SizeIs(merges_others ? 1 : 0));
    expect_right_on_cpu(graph);
  }
}

}  // namespace
}  // namespace fusor
