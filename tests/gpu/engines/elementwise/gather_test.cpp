// Owns the tests of gathers on the GPU: whole vectors, single lanes, reductions, two indices.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "frontend/graph_builder.h"
#include "tests/gpu/device_run.h"

namespace fusor {
namespace {

// Every third index lies outside of the extent.
Tensor some_index(GraphBuilder& g, const Dims& dims, int64_t extent, DataType type) {
  const Tensor like = g.input(fmt::format("like{}x{}", dims[0], dims[1]), dims, DataType::f32);
  Tensor index = g.gen_index(like, 0);
  for (int axis = 1; axis < dims.rank(); ++axis)
    index = g.add(g.mul(index, g.constant(5, DataType::i32)), g.gen_index(like, axis));
  const int64_t end = extent + extent / 2 + 1;
  index =
      g.mod(g.mul(index, g.constant(7, DataType::i32)), g.constant(static_cast<double>(end), DataType::i32));
  return g.identity(index, {.type = type});
}

TEST(GatherGpu, RowsInEveryType) {
  FUSOR_NEEDS_GPU();
  for (const DataType type : {DataType::f64, DataType::f32, DataType::bf16, DataType::i8})
    for (const int64_t columns : {1, 7, 64, 256}) {
      GraphBuilder g("rows");
      const Tensor x = g.input("x", {37, columns}, type);
      g.output(g.gather(x, some_index(g, {101, 1}, 37, DataType::i32)));
      expect_correct(g.finish(), fmt::format("{} x {}", to_string(type), columns));
    }
}

TEST(GatherGpu, AlongTheFastestAxis) {
  FUSOR_NEEDS_GPU();
  GraphBuilder g("columns");
  const Tensor x = g.input("x", {37, 129}, DataType::f16);
  const Tensor y = g.gather(x, some_index(g, {37, 64}, 129, DataType::i64), {.axis = 1});
  g.output(y);
  g.output(g.reduce(y, ReductionMode::add, {1}), {.type = DataType::f32});
  expect_correct(g.finish(), "columns and their sums");
}

// Labels outside of a row pick nothing.
TEST(GatherGpu, ElementsThatATotalPicks) {
  FUSOR_NEEDS_GPU();
  for (const DataType type : {DataType::f32, DataType::f16, DataType::bf16})
    for (const int64_t classes : {1, 33, 1000}) {
      GraphBuilder g("picked");
      const Tensor x = g.input("x", {41, classes}, type), total = g.input("total", {41, 1}, DataType::f32);
      const Tensor is_label = g.cmp_eq(g.gen_index(x, 1), some_index(g, {41, 1}, classes, DataType::i32));
      const Tensor one = g.binary_select(x, g.constant(0, DataType::f32), is_label);
      g.output(g.sub(total, g.reduce(one, ReductionMode::add, {1})), {.type = DataType::f32});
      expect_correct(g.finish(), fmt::format("{} of {}", to_string(type), classes));
    }
}

TEST(GatherGpu, OfAGather) {
  FUSOR_NEEDS_GPU();
  GraphBuilder g("pages");
  const Tensor x = g.input("x", {9, 16, 64}, DataType::bf16);
  const Tensor pages = some_index(g, {5, 1, 1}, 9, DataType::i32);
  const Tensor lines = some_index(g, {5, 33, 1}, 16, DataType::i32);
  g.output(g.gather(g.gather(x, pages), lines, {.axis = 1}));
  expect_correct(g.finish(), "pages and lines");
}

TEST(GatherGpu, BetweenMatmuls) {
  FUSOR_NEEDS_GPU();
  GraphBuilder g("experts");
  const Tensor x = g.input("x", {64, 64}, DataType::f16);
  const Tensor w = g.input("w", {64, 64}, DataType::f16);
  const Tensor c = g.matmul(g.gather(x, some_index(g, {48, 1}, 64, DataType::i32)), w);
  g.output(g.gather(g.relu(c), some_index(g, {70, 1}, 48, DataType::i64)));
  expect_correct(g.finish(), "matmul of a gather, and its gather");
}

}  // namespace
}  // namespace fusor
