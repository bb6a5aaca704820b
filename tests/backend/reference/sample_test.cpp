// Tests evaluation by demand: a sample has the values that the whole evaluation has.
#include <algorithm>

#include "tests/backend/reference/host_buffers.h"

namespace fusor {
namespace {

void expect_sample_is_dense(const Graph& graph, const Tensor& output) {
  HostTensors tensors(graph);
  HostTensors dense(graph);
  evaluate_graph(graph, dense.pointers());
  const int tensor = graph.find(output.name);
  const int64_t count = element_count(output.dims);
  std::vector<int64_t> elements;
  for (int64_t i = 0; i < 200; ++i) elements.push_back(i * 7919 % count);
  const auto values = evaluate_sample(graph, tensors.pointers(), tensor, elements);
  const auto want = dense.get(output);
  const Strides packed = packed_strides(output.dims);
  for (size_t i = 0; i < elements.size(); ++i) {
    int64_t place = 0;
    for (int axis = 0; axis < output.dims.rank(); ++axis)
      place += elements[i] / packed[axis] % output.dims[axis] * output.strides[axis];
    ASSERT_EQ(values[i], want[static_cast<size_t>(place)]) << "element " << elements[i];
  }
}

TEST(Sample, OfAChainOfConvolutions) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 8, 10, 12}, DataType::f16, Layout::nhwc);
  const Tensor w1 = g.input("w1", {8, 4, 3, 3}, DataType::f16),
               w2 = g.input("w2", {6, 8, 3, 3}, DataType::f16);
  const Tensor h = g.relu(g.conv_fprop(x, w1, {.padding = {1, 1}}), {.type = DataType::f16});
  const Tensor y = g.output(g.conv_fprop(h, w2, {.padding = {1, 1}, .stride = {2, 2}}), {.name = "y"});
  expect_sample_is_dense(g.finish(), y);
}

TEST(Sample, OfGradients) {
  GraphBuilder g;
  const Tensor dy = g.input("dy", {2, 6, 5, 6}, DataType::f32), w = g.input("w", {6, 4, 3, 3}, DataType::f32);
  const Tensor x = g.input("x", {2, 4, 10, 12}, DataType::f32, Layout::nhwc);
  const ConvOptions options{.pre_padding = {1, 1}, .post_padding = {0, 0}, .stride = {2, 2}};
  const Tensor dx = g.output(g.mul(g.conv_dgrad(dy, w, x.dims, options), x), {.name = "dx"});
  const Tensor dw = g.output(g.conv_wgrad(g.relu(dy), x, w.dims, options), {.name = "dw"});
  const Graph graph = g.finish();
  expect_sample_is_dense(graph, dx);
  expect_sample_is_dense(graph, dw);
}

TEST(Sample, OfViewsReductionsAndIntegers) {
  GraphBuilder g;
  const Tensor a = g.input("a", {6, 8, 10}, DataType::i8), b = g.input("b", {10, 12}, DataType::i8);
  const Tensor c = g.matmul(a, b);  // [6, 8, 12]
  const Tensor flat = g.reshape(g.transpose(c, {2, 0, 1}), {12, 48});
  const Tensor cut = g.slice(flat, {2, 0}, {12, 48}, {2, 3});    // [5, 16]
  const Tensor both = g.concatenate({cut, g.mul(cut, cut)}, 0);  // [10, 16]
  const Tensor sums = g.reduce_to(both, ReductionMode::add, {5, 16});
  const Tensor y = g.output(g.add(sums, g.gen_index(sums, 1)), {.name = "y", .type = DataType::i32});
  expect_sample_is_dense(g.finish(), y);
}

}  // namespace
}  // namespace fusor
