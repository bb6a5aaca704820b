// Owns the tests of building, loading and running on the CPU device: fusions, views and intermediates end to
// end.
#include <gmock/gmock.h>

#include <memory>

#include "backend/build.h"
#include "backend/executable.h"
#include "backend/verify.h"
#include "frontend/graph_builder.h"

namespace fusor {
namespace {

// Builds, runs with random inputs and holds the outputs against the oracle.
void expect_correct(const Graph& graph) {
  const Executable exe = load(build(graph, DeviceInfo::cpu()));
  std::vector<std::vector<std::byte>> buffers(graph.tensors.size());
  std::vector<void*> tensors(graph.tensors.size());
  std::vector<void*> slots(static_cast<size_t>(exe.slot_count()));
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& tensor = graph.tensors[i];
    if (tensor.memory != Memory::device && tensor.memory != Memory::host) continue;
    buffers[i].assign(static_cast<size_t>(tensor.bytes()), std::byte{0xa7});
    if (graph.producer(static_cast<int>(i)) < 0) fill_random(tensor, buffers[i].data(), i + 1);
    tensors[i] = buffers[i].data();
    slots[exe.slot(tensor.name)] = buffers[i].data();
  }
  std::vector<std::byte> workspace(static_cast<size_t>(exe.workspace_bytes()) + 256, std::byte{0xff});
  void* aligned = workspace.data();
  size_t room = workspace.size();
  std::align(256, 1, aligned, room);
  exe.run(slots, aligned);
  const VerifyReport report = verify(graph, tensors);
  EXPECT_TRUE(report.passed()) << to_string(report);
}

TEST(CpuRun, ConvBiasRelu) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {2, 8, 9, 7}, DataType::f16, Layout::nhwc);
  const Tensor w = g.input("w", {12, 8, 3, 3}, DataType::f16, Layout::nhwc);
  const Tensor b = g.input("b", {1, 12, 1, 1}, DataType::f16);
  expect_correct(g.finish({g.relu(g.add(g.conv_fprop(x, w, {.padding = {1, 1}}), b))}));
}

TEST(CpuRun, PrologueIsMaskedAfterwards) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {1, 4, 6, 6}, DataType::f32);
  const Tensor w = g.input("w", {4, 4, 3, 3}, DataType::f32);
  expect_correct(g.finish({g.conv_fprop(g.relu(g.add(x, g.constant(1.5))), w, {.padding = {1, 1}})}));
}

TEST(CpuRun, GatedPairWithBiasesAndSavedPreActivations) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {2, 9, 16}, DataType::f16);
  const Tensor gate =
      g.add(g.matmul(x, g.input("wg", {16, 12}, DataType::f16)), g.input("bg", {1, 12}, DataType::f16));
  const Tensor up =
      g.add(g.matmul(x, g.input("wu", {16, 12}, DataType::f16)), g.input("bu", {1, 12}, DataType::f16));
  const Tensor y = g.mul(g.gelu(gate), up);
  const Graph graph = g.finish({gate, up, y});
  EXPECT_EQ(build(graph, DeviceInfo::cpu()).fusions.size(), 1u);
  expect_correct(graph);
}

TEST(CpuRun, GatedPairBehindAPrologue) {
  GraphBuilder g("g");
  const Tensor x = g.relu(g.input("x", {6, 6}, DataType::f32));
  const Tensor gate = g.matmul(x, g.neg(g.input("wg", {6, 6}, DataType::f32)));
  const Tensor up = g.matmul(x, g.input("wu", {6, 6}, DataType::f32));
  expect_correct(g.finish({g.add(g.mul(g.sigmoid(gate), up), x)}));
}

TEST(CpuRun, SumOfTwoConvolutionsOfOneImage) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {2, 4, 7, 6}, DataType::f32);
  const Tensor a = g.conv_fprop(x, g.input("w", {8, 4, 3, 3}, DataType::f32), {.padding = {1, 1}});
  const Tensor b = g.conv_fprop(x, g.input("v", {8, 4, 3, 3}, DataType::f32), {.padding = {1, 1}});
  const Graph graph = g.finish({g.relu(g.add(a, b))});
  EXPECT_EQ(build(graph, DeviceInfo::cpu()).fusions.size(), 1u);
  expect_correct(graph);
}

TEST(CpuRun, IntermediatesShareTheWorkspace) {
  GraphBuilder g("g");
  Tensor x = g.input("x", {24, 24}, DataType::f32);
  const Tensor w = g.input("w", {24, 24}, DataType::f32);
  for (int i = 0; i < 5; ++i) x = g.tanh(g.matmul(x, w));
  const Graph graph = g.finish({x});
  EXPECT_EQ(build(graph, DeviceInfo::cpu()).workspace_bytes, 2 * 2304);
  expect_correct(graph);
}

TEST(CpuRun, ViewsAndConcatenations) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {4, 10, 12}, DataType::f32);
  const Tensor z = g.input("z", {4, 6, 12}, DataType::f32);
  const Tensor cut = g.slice(x, {0, 1, 0}, {4, 9, 12}, {1, 2, 1});
  const Tensor joined = g.concatenate({g.relu(cut), z, g.neg(cut)}, 1);
  expect_correct(g.finish(
      {g.reshape(g.transpose(joined, {0, 2, 1}), {4, 168}), g.reduce(joined, ReductionMode::max, {1})}));
}

TEST(CpuRun, ValueThatIsConcatenatedAndReadElsewhere) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {3, 5}, DataType::f32);
  const Tensor r = g.relu(x);
  const Tensor joined = g.concatenate({r, r, x}, 0);
  expect_correct(g.finish({joined, g.transpose(r, {1, 0})}));
}

TEST(CpuRun, SoftmaxWrittenOut) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {7, 33}, DataType::f32);
  const Tensor e = g.exp(g.sub(x, g.reduce(x, ReductionMode::max, {1})));
  expect_correct(g.finish({g.div(e, g.reduce(e, ReductionMode::add, {1}))}));
}

TEST(CpuRun, ScalarsAndMasks) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {5, 5}, DataType::f32);
  const Tensor keep = g.cmp_ge(g.gen_index(x, 0), g.gen_index(x, 1));
  expect_correct(g.finish({g.binary_select(g.mul(x, g.scalar("s", DataType::f32)), g.constant(-1), keep)}));
}

TEST(CpuRun, GroupedReduction) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {2, 12, 5}, DataType::f32);
  expect_correct(g.finish({g.reduce_to(g.abs(x), ReductionMode::add, {2, 3, 5})}));
}

}  // namespace
}  // namespace fusor
