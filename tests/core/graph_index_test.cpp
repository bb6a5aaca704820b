// Tests of core/graph_index: it answers as the graph's own look-ups do.
#include "core/graph_index.h"

#include <gtest/gtest.h>

namespace fusor::graph_index_test {
namespace {

// x -> neg -> t; t * t -> u; u + x -> y
Graph small() {
  Graph graph;
  graph.tensors.resize(4);
  graph.ops = {{"neg1", Pointwise{.mode = PointwiseMode::neg}, {0}, {1}},
               {"mul2", Pointwise{.mode = PointwiseMode::mul}, {1, 1}, {2}},
               {"add3", Pointwise{.mode = PointwiseMode::add}, {2, 0}, {3}}};
  return graph;
}

TEST(GraphIndex, KnowsProducersAndConsumersOfEveryTensor) {
  const Graph graph = small();
  const GraphIndex index(graph);
  for (int tensor = 0; tensor < 4; ++tensor) {
    EXPECT_EQ(index.producer(tensor), graph.producer(tensor));
    const auto readers = index.consumers(tensor);
    EXPECT_EQ(std::vector<int>(readers.begin(), readers.end()), graph.consumers(tensor));
  }
}

TEST(GraphIndex, PassesOverOperandsAndResultsThatAreLeftOut) {
  Graph graph = small();
  graph.ops[0].inputs.push_back(-1);
  graph.ops[0].outputs.push_back(-1);
  const GraphIndex index(graph);
  EXPECT_EQ(index.producer(1), 0);
  EXPECT_EQ(index.consumers(0).size(), 2u);
}

}  // namespace
}  // namespace fusor::graph_index_test
