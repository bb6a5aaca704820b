// Owns the tests that a product with a sum of softmaxes is one of products with each.
#include "backend/planner/rewrites/products/distributed_products.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "backend/build.h"
#include "frontend/graph_builder.h"
#include "tests/backend/cpu_run.h"

namespace fusor {
namespace {

using testing::ElementsAre;

struct Differential {
  GraphBuilder g{"differential"};
  int64_t length = 128, head = 64;
  DataType type = DataType::bf16;

  Differential() = default;
  Differential(int64_t length_, int64_t head_) : length(length_), head(head_) {}

  Tensor input(const std::string& name) { return g.input(name, {1, 2, length, head}, type); }
  Tensor softmax_of(const std::string& name) {
    const Tensor s = g.matmul(input("q" + name), g.transpose(input("k" + name), {0, 1, 3, 2}));
    const Tensor exponential = g.exp(g.sub(s, g.reduce(s, ReductionMode::max, {3})));
    return g.div(exponential, g.reduce(exponential, ReductionMode::add, {3}));
  }
  Graph multiplied(const Tensor& p) {
    g.output(g.matmul(p, input("v")), {.name = "o", .type = type});
    return g.finish();
  }
  Graph difference() {
    const Tensor first = softmax_of("1");
    return multiplied(g.sub(first, g.mul(softmax_of("2"), g.constant(0.3))));
  }
};

std::vector<std::string> engines_for(const Graph& graph) {
  std::vector<std::string> engines;
  for (const PlannedFusion& fusion : build(graph, DeviceInfo::named("H200"), {.compile = false}).fusions)
    engines.push_back(fusion.config.engine);
  return engines;
}

TEST(DistributedProducts, ADifferenceOfSoftmaxesIsTwoChains) {
  EXPECT_THAT(engines_for(Differential{}.difference()), ElementsAre("attention", "attention"));
}

TEST(DistributedProducts, AFactorMayBeOneNumberARow) {
  Differential graph;
  const Tensor gate = graph.g.input("gate", {1, 2, graph.length, 1}, DataType::f32);
  const Tensor first = graph.softmax_of("1");
  const Graph finished = graph.multiplied(graph.g.add(first, graph.g.mul(gate, graph.softmax_of("2"))));
  EXPECT_THAT(engines_for(finished), ElementsAre("attention", "attention"));
}

TEST(DistributedProducts, ValuesAreRight) {
  Differential small(24, 16);
  expect_right_on_cpu(small.difference());
}

TEST(DistributedProducts, StrictGraphsRoundTheSumOnce) {
  Graph graph = Differential{}.difference();
  graph.precision = Precision::strict;
  EXPECT_GT(engines_for(graph).size(), 2U);
}

TEST(DistributedProducts, LongHeadsStayAsTheyAre) {
  Differential graph(128, 512);
  EXPECT_GT(engines_for(graph.difference()).size(), 2U);
}

// One that is stored is in memory anyway.
TEST(DistributedProducts, ASumThatOthersReadStays) {
  Differential graph;
  const Tensor first = graph.softmax_of("1");
  const Tensor sum = graph.g.sub(first, graph.softmax_of("2"));
  graph.g.output(sum, {.name = "p", .type = DataType::f32});
  EXPECT_GT(engines_for(graph.multiplied(sum)).size(), 2U);
}

}  // namespace
}  // namespace fusor
