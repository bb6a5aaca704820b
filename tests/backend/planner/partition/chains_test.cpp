// Owns the tests of what belongs to a chain of two matmuls, and what it reads from memory.
#include <gmock/gmock.h>

#include <algorithm>
#include <string>

#include "backend/build.h"
#include "frontend/graph_builder.h"
#include "tests/backend/cpu_run.h"
#include "tests/backend/planner/planned_once.h"

namespace fusor {
namespace {

using testing::SizeIs;
using testing::StartsWith;

// Attention of layers with one mask of all of them.
struct Layers {
  static constexpr int64_t kBatch = 2, kHeads = 2, kLength = 128, kHead = 64;
  GraphBuilder g{"layers"};

  Tensor input(const std::string& name) {
    return g.input(name, {kBatch, kHeads, kLength, kHead}, DataType::bf16);
  }
  Tensor attention(const std::string& layer, const Tensor& mask) {
    const Tensor q = input("q" + layer), k = g.transpose(input("k" + layer), {0, 1, 3, 2});
    const Tensor scores = g.mul(g.matmul(q, k), g.constant(0.125));
    return g.matmul(g.softmax(g.add(scores, mask)).y, input("v" + layer));
  }
  // Whether so many of the fusions are attention and all others work on single elements.
  void expect_attention(const Graph& graph, size_t layers) const {
    const Plan plan = build(graph, DeviceInfo::named("H200"), {.compile = false});
    EXPECT_THAT(plan.fusions, SizeIs(layers + 1));
    EXPECT_EQ(static_cast<size_t>(std::ranges::count_if(
                  plan.fusions,
                  [](const PlannedFusion& fusion) { return fusion.config.engine.starts_with("attention"); })),
              layers);
    test::planned_once(graph);
    expect_right_on_cpu(graph);
  }
};

TEST(Chains, AMaskThatAllLayersReadIsStoredOnce) {
  Layers layers;
  GraphBuilder& g = layers.g;
  const Tensor kept = g.input("kept", {Layers::kBatch, 1, 1, Layers::kLength}, DataType::f32);
  const Tensor bias = g.input("bias", {Layers::kLength, Layers::kLength}, DataType::f32);
  const Tensor mask = g.add(g.mul(kept, g.constant(-100)), bias);
  for (const char* layer : {"1", "2"}) g.output(layers.attention(layer, mask), {.type = DataType::bf16});
  layers.expect_attention(g.finish(), 2);
}

TEST(Chains, ABiasThatIsAnOutputIsReadFromMemory) {
  Layers layers;
  GraphBuilder& g = layers.g;
  const Tensor bias =
      g.relu(g.input("bias", {Layers::kBatch, 1, Layers::kLength, Layers::kLength}, DataType::f32));
  g.output(bias);
  g.output(layers.attention("", bias), {.type = DataType::bf16});
  layers.expect_attention(g.finish(), 1);
}

// Scores that somebody else reads are none of a chain.
TEST(Chains, ScoresThatOthersReadAreStored) {
  Layers layers;
  GraphBuilder& g = layers.g;
  const Tensor scores = g.matmul(layers.input("q"), g.transpose(layers.input("k"), {0, 1, 3, 2}));
  g.output(g.relu(scores), {.type = DataType::bf16});
  g.output(g.matmul(g.softmax(scores).y, layers.input("v")), {.type = DataType::bf16});
  const Graph graph = g.finish();
  for (const PlannedFusion& fusion : build(graph, DeviceInfo::named("H200"), {.compile = false}).fusions)
    EXPECT_THAT(fusion.config.engine, testing::Not(StartsWith("attention")));
  expect_right_on_cpu(graph);
}

}  // namespace
}  // namespace fusor
