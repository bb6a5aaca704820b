// Tests of core/graph and core/tensor: look-ups in a graph, and what a tensor says of itself.
#include "core/graph.h"

#include <gtest/gtest.h>

namespace fusor {
namespace {

Tensor tensor(const char* name, int64_t uid, Memory memory = Memory::device) {
  Tensor made{.name = name, .uid = uid, .type = DataType::f16, .dims = {2, 3}, .strides = {3, 1}};
  made.memory = memory;
  return made;
}

// x -> neg -> t; t + x -> y
Graph small() {
  Graph graph;
  graph.tensors = {tensor("x", 10), tensor("t", 0, Memory::workspace), tensor("y", -5)};
  graph.ops = {{"neg1", Pointwise{.mode = PointwiseMode::neg}, {0}, {1}},
               {"add2", Pointwise{.mode = PointwiseMode::add}, {1, 0}, {2}}};
  return graph;
}

TEST(Graph, ProducerIsTheOpThatWrites) {
  EXPECT_EQ(small().producer(0), -1);
  EXPECT_EQ(small().producer(1), 0);
  EXPECT_EQ(small().producer(2), 1);
}

TEST(Graph, ConsumersAreInOrder) {
  EXPECT_EQ(small().consumers(0), (std::vector<int>{0, 1}));
  EXPECT_EQ(small().consumers(1), std::vector<int>{1});
  EXPECT_TRUE(small().consumers(2).empty());
}

TEST(Graph, AnOpThatReadsATensorTwiceIsOneConsumer) {
  Graph graph = small();
  graph.ops[1].inputs = {1, 1};
  EXPECT_EQ(graph.consumers(1), std::vector<int>{1});
}

TEST(Graph, TensorsAreFoundByNameAndUid) {
  EXPECT_EQ(small().find("t"), 1);
  EXPECT_EQ(small().find("z"), -1);
  EXPECT_EQ(small().find_uid(-5), 2);
  EXPECT_EQ(small().find_uid(0), 1);
  EXPECT_EQ(small().find_uid(1), -1);
}

TEST(Graph, EqualityCoversAttributes) {
  Graph other = small();
  EXPECT_EQ(other, small());
  std::get<Pointwise>(other.ops[0].attributes).elu_alpha = 2;
  EXPECT_NE(other, small());
}

TEST(Tensor, BytesCoverTheSpan) {
  Tensor x = tensor("x", 1);
  EXPECT_EQ(x.bytes(), 12);
  x.strides = {10, 1};
  EXPECT_EQ(x.bytes(), 26);
}

TEST(Tensor, ScalarsAreHostAndConstantMemory) {
  EXPECT_TRUE(tensor("x", 1, Memory::host).is_scalar());
  EXPECT_TRUE(tensor("x", 1, Memory::constant).is_scalar());
  EXPECT_FALSE(tensor("x", 1, Memory::workspace).is_scalar());
  EXPECT_TRUE(tensor("x", 1, Memory::workspace).is_virtual());
}

}  // namespace
}  // namespace fusor
