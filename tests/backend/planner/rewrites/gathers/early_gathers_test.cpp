// Owns the tests that gathers of computed values store none of what they do not take.
#include "backend/planner/rewrites/gathers/early_gathers.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <vector>

#include "backend/planner/planner.h"
#include "frontend/graph_builder.h"
#include "tests/backend/cpu_run.h"
#include "tests/backend/planner/groups_by_name.h"
#include "tests/backend/planner/planned_once.h"

namespace fusor {
namespace {

using testing::SizeIs;

// Elements of the largest tensor that one fusion leaves to another.
int64_t most_stored(const Graph& graph) {
  const Graph planned = test::planned_once(graph);
  const FoldedGraph folded = fold_views(planned);
  int64_t most = 0;
  std::vector<int> group_of(planned.ops.size(), -1);
  const auto groups = partition(planned, folded);
  for (size_t i = 0; i < groups.size(); ++i)
    for (const int op : groups[i]) group_of[static_cast<size_t>(op)] = static_cast<int>(i);
  for (size_t i = 0; i < planned.ops.size(); ++i)
    for (const int x : planned.ops[i].inputs) {
      const int producer = folded.index.producer(x);
      if (producer >= 0 && group_of[i] >= 0 && group_of[static_cast<size_t>(producer)] != group_of[i])
        most = std::max(most, element_count(planned.tensors[static_cast<size_t>(x)].dims));
    }
  return most;
}

Tensor log_softmax(GraphBuilder& g, const Tensor& x) {
  const Tensor shifted = g.sub(x, g.reduce(x, ReductionMode::max, {-1}));
  return g.sub(shifted, g.log(g.reduce(g.exp(shifted), ReductionMode::add, {-1})));
}

// A loss by labels as frameworks write it out; `labels` of a row.
Graph loss(int64_t labels) {
  GraphBuilder g;
  const Tensor x = g.input("x", {6, 40}, DataType::f32);
  const Tensor index = g.input("index", {6, labels}, DataType::i64);
  return g.finish({g.neg(g.gather(log_softmax(g, x), index, {.axis = 1}))});
}

TEST(EarlyGathers, LossByLabelsStoresNoProbabilities) {
  for (const int64_t labels : {1, 3}) {
    EXPECT_LE(most_stored(loss(labels)), 6 * labels);
    expect_right_on_cpu(loss(labels));
  }
}

// The elements of a converted table are converted where they are taken.
TEST(EarlyGathers, TablesAreConvertedWhereTheyAreRead) {
  GraphBuilder g;
  const Tensor table = g.input("table", {500, 16}, DataType::f16),
               bias = g.input("bias", {16}, DataType::f32);
  const Tensor index = g.input("index", {7, 1}, DataType::i32);
  const Tensor wide = g.add(g.mul(table, g.constant(2), {.type = DataType::f32}), bias);
  const Graph graph = g.finish({g.gather(wide, index, {.axis = 0})});
  EXPECT_THAT(test::groups_by_name(graph), SizeIs(1));
  expect_right_on_cpu(graph);
}

// An index outside of the extent reads 0, and no function of 0.
TEST(EarlyGathers, IndicesOutsideReadZero) {
  GraphBuilder g;
  const Tensor x = g.input("x", {4, 5}, DataType::f32), index = g.input("index", {4, 3}, DataType::i32);
  const Graph graph = g.finish({g.gather(g.exp(x), index, {.axis = 1})});
  const Graph expanded = expand(graph);
  expect_right_on_cpu(graph);
  EXPECT_THAT(test::groups_by_name(graph), SizeIs(1));
}

TEST(EarlyGathers, StoredValuesAreReadFromMemory) {
  GraphBuilder g;
  const Tensor x = g.input("x", {4, 50}, DataType::f32), index = g.input("index", {4, 1}, DataType::i32);
  const Tensor y = g.exp(x);
  const Graph graph = g.finish({y, g.gather(y, index, {.axis = 1})});
  EXPECT_EQ(expand(graph).ops.size(), 2U);
  expect_right_on_cpu(graph);
}

// Small groups share a launch, but not one that another takes elements from.
TEST(EarlyGathers, WhatIsTakenFromIsStoredFirst) {
  GraphBuilder g;
  const Tensor x = g.input("x", {1, 1, 4}, DataType::f32), index = g.input("index", {1, 1, 4}, DataType::i32);
  const Tensor y = g.exp(x);
  expect_right_on_cpu(g.finish({g.gather(y, index, {.axis = 2}), g.transpose(y, {0, 2, 1})}));
}

TEST(EarlyGathers, CoordinatesStayWhereTheyAre) {
  GraphBuilder g;
  const Tensor x = g.input("x", {4, 50}, DataType::i32), index = g.input("index", {4, 1}, DataType::i32);
  const Tensor places = g.add(x, g.gen_index(x, 1));
  expect_right_on_cpu(g.finish({g.gather(places, index, {.axis = 1})}));
}

// Elements of a product, of which each row's sum is read, too, are chosen while it is there.
TEST(EarlyGathers, OneElementOfEachRowOfAProductIsATotal) {
  GraphBuilder g;
  const Tensor a = g.input("a", {64, 32}, DataType::f16), b = g.input("b", {32, 200}, DataType::f16);
  const Tensor index = g.input("index", {64, 1}, DataType::i64);
  const Tensor y = g.mul(g.matmul(a, b), g.constant(0.5));
  const Graph graph = g.finish({g.gather(y, index, {.axis = 1}), g.reduce(y, ReductionMode::max, {1})});
  EXPECT_LE(most_stored(graph), 64);
  expect_right_on_cpu(graph);
}

}  // namespace
}  // namespace fusor
