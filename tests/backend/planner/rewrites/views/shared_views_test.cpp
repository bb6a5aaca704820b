// Owns the tests that views which show the same are one.
#include "backend/planner/rewrites/views/shared_views.h"

#include <gmock/gmock.h>

#include "backend/build.h"
#include "backend/planner/planner.h"
#include "core/infer.h"
#include "frontend/graph_builder.h"
#include "tests/backend/cpu_run.h"

namespace fusor {
namespace {

using testing::SizeIs;

TEST(SharedViews, AGatedPairBehindReshapesOfItsOwnIsOneFusion) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 64, 128}, DataType::bf16);
  const auto linear = [&](const char* name) {
    return g.matmul(g.reshape(x, {128, 128}), g.input(name, {128, 256}, DataType::bf16));
  };
  const Tensor gate = g.swish(linear("gate"));
  const Graph graph = g.finish({g.mul(gate, linear("value"))});
  EXPECT_THAT(build(graph, DeviceInfo::named("H200"), {.compile = false}).fusions, SizeIs(1));
  expect_right_on_cpu(graph);
}

// Views of views are followed; other shapes, other parts and the user's own tensors stay apart.
TEST(SharedViews, AreThoseThatShowTheSame) {
  GraphBuilder g;
  const Tensor x = g.input("x", {4, 6}, DataType::f32);
  const auto crossed = [&] { return g.transpose(g.reshape(x, {2, 2, 6}), {2, 0, 1}); };
  const Tensor sum = g.add(crossed(), crossed());
  const Tensor parts = g.add(g.slice(x, {0, 0}, {2, 6}), g.slice(x, {2, 0}, {4, 6}));
  const Tensor shapes = g.add(g.reshape(x, {24}), g.reshape(x, {1, 24}));
  g.output(g.reshape(x, {24}), {.name = "flat"});
  const Graph graph = g.finish({sum, parts, shapes});
  Graph shared = graph;
  share_views(shared);
  EXPECT_NO_THROW(validate(shared));
  EXPECT_EQ(shared.ops.size() + 2, graph.ops.size());
  EXPECT_EQ(shared.tensors.size(), graph.tensors.size());
  expect_right_on_cpu(graph);
}

TEST(SharedViews, ReshapesThatEndAsTheyBeganGo) {
  GraphBuilder g;
  const Tensor x = g.relu(g.input("x", {4, 6}, DataType::f32), {.name = "relu"});
  const Tensor same = g.reshape(g.reshape(g.reshape(x, {24}), {2, 12}), {4, 6});
  Graph graph = g.finish({g.exp(same, {.name = "exp"})});
  share_views(graph);
  EXPECT_NO_THROW(validate(graph));
  EXPECT_THAT(graph.ops, SizeIs(2));
}

TEST(SharedViews, AReshapeOfAReshapeReadsWhatThatOneDoes) {
  GraphBuilder g;
  const Tensor x = g.relu(g.input("x", {4, 6}, DataType::f32), {.name = "relu"});
  Graph graph = g.finish({g.exp(g.reshape(g.reshape(x, {24}), {2, 12}), {.name = "exp"})});
  EXPECT_TRUE(share_views(graph));
  EXPECT_NO_THROW(validate(graph));
  EXPECT_THAT(graph.ops, SizeIs(3));
  EXPECT_FALSE(share_views(graph));
}

// A copy that a shape needs is made once.
TEST(SharedViews, AReshapeThatOthersReadIsReadByAll) {
  GraphBuilder g;
  const Tensor x = g.relu(g.input("x", {4, 6}, DataType::f32), {.name = "relu"});
  const Tensor flat = g.reshape(x, {24});
  Graph graph = g.finish({g.exp(flat), g.relu(g.reshape(flat, {2, 12}))});
  EXPECT_FALSE(share_views(graph));
}

}  // namespace
}  // namespace fusor
