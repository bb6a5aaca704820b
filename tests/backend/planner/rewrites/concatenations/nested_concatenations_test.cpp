// Owns the tests that concatenations which are parts of others lie in these.
#include "backend/planner/rewrites/concatenations/nested_concatenations.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "backend/build.h"
#include "backend/planner/planner.h"
#include "frontend/graph_builder.h"
#include "tests/backend/planner/rewrites/expect_fusions.h"

namespace fusor {
namespace {

using test::expect_fusions;
using testing::IsEmpty;
using testing::SizeIs;

// Layers that read the results of all in front of them, channels last: [pixels, channels].
struct Dense {
  GraphBuilder g{"dense"};
  int64_t width = 32;
  std::vector<Tensor> results = {g.relu(g.input("x", {20, width}, DataType::f32))};

  Tensor all() { return results.size() == 1 ? results[0] : g.concatenate(results, 1); }
  void add_layer() {
    const Tensor x = all();
    const std::string name = "w" + std::to_string(results.size());
    results.push_back(g.matmul(x, g.input(name, {x.dims[1], width}, DataType::f32)));
  }
};

TEST(NestedConcatenations, ResultsOfDenseLayersAreWrittenOnce) {
  Dense dense;
  for (int i = 0; i < 4; ++i) dense.add_layer();
  const Graph graph = dense.g.finish({dense.g.relu(dense.all())});
  const Graph expanded = expand(graph);
  EXPECT_THAT(nested_concatenations(expanded), SizeIs(3));
  EXPECT_EQ(expanded.ops.size(), graph.ops.size()) << "no copies";
  const FoldedGraph folded = fold_views(expanded);
  std::vector<int> buffers;
  for (const Op& op : expanded.ops)
    if (std::holds_alternative<Concatenate>(op.attributes))
      buffers.push_back(folded.placements[static_cast<size_t>(op.outputs[0])].buffer);
  EXPECT_THAT(buffers, testing::Each(buffers.back()));
  expect_fusions(graph, 6);
}

// The last one is the user's own, with strides that it asks for; a part may be in the middle.
TEST(NestedConcatenations, PartsLieInAnOutput) {
  GraphBuilder g;
  const auto part = [&](const char* name) { return g.relu(g.input(name, {6, 16}, DataType::f32)); };
  const Tensor a = part("a"), b = part("b"), c = part("c");
  const Tensor product = g.matmul(g.concatenate({b, c}, 1), g.input("w", {32, 16}, DataType::f32));
  g.output(g.concatenate({a, b, c, product}, 1), {.name = "y", .strides = Strides{80, 1}});
  const Graph graph = g.finish();
  EXPECT_THAT(nested_concatenations(expand(graph)), SizeIs(1));
  expect_right_on_cpu(graph);
}

// An input is copied in for both; of a value that is there twice, one is a copy.
TEST(NestedConcatenations, CopiesAreSharedToo) {
  GraphBuilder g;
  const Tensor x = g.input("x", {6, 16}, DataType::f32), y = g.relu(x);
  const Tensor first = g.concatenate({x, y, y}, 1);
  const Tensor product = g.matmul(first, g.input("w", {48, 16}, DataType::f32));
  const Graph graph = g.finish({g.relu(g.concatenate({x, y, y, product}, 1))});
  EXPECT_EQ(expand(graph).ops.size(), graph.ops.size() + 2);
  test::planned_once(graph);
  expect_right_on_cpu(graph);
}

// Rows of three numbers each, in rows of six: half of what memory moves would be of others.
TEST(NestedConcatenations, ShortRowsLieAlone) {
  Dense dense{.width = 3};
  for (int i = 0; i < 2; ++i) dense.add_layer();
  const Graph graph = dense.g.finish({dense.g.relu(dense.all())});
  EXPECT_THAT(nested_concatenations(expand(graph)), IsEmpty());
  expect_right_on_cpu(graph);
}

// Outputs lie where users have them, and what a view shows may have to lie otherwise.
TEST(NestedConcatenations, OutputsAndWhatViewsReadLieAlone) {
  for (const bool is_output : {false, true}) {
    Dense dense;
    GraphBuilder& g = dense.g;
    dense.add_layer();
    const Tensor both = dense.all();
    if (is_output)
      g.output(both);
    else
      g.output(g.relu(g.reshape(both, {20 * 64})));
    dense.add_layer();
    const Graph graph = g.finish({g.relu(dense.all())});
    test::planned_once(graph);
    expect_right_on_cpu(graph);
  }
}

}  // namespace
}  // namespace fusor
