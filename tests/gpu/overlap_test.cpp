// Owns the tests of launches that overlap: nothing is read before it is there, and nothing written that is
// still read.
#include <gtest/gtest.h>

#include <string>

#include "frontend/graph_builder.h"
#include "tests/gpu/device_run.h"
#include "tests/gpu/same_bits.h"

namespace fusor {
namespace {

// Launches of few blocks and of many behind each other, each of which reads what all blocks of the one in
// front wrote.
Graph transposes(int64_t rows, int64_t columns) {
  GraphBuilder g("transposes");
  Tensor x = g.input("x", {rows, columns}, DataType::f32);
  for (int i = 0; i < 12; ++i) {
    x = g.transpose(g.add(x, g.reduce(x, ReductionMode::max, {1})), {1, 0});
    x = g.mul(x, g.reduce(x, ReductionMode::avg, {1}));
    x = g.sub(x, g.reduce(x, ReductionMode::avg, {0, 1}));
  }
  g.output(x, {.name = "y"});
  return g.finish();
}

TEST(Overlap, ChainsOfReductionsReadWhatIsThere) {
  FUSOR_NEEDS_GPU();
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{64, 48}, {1000, 2000}}) {
    const Graph graph = transposes(rows, columns);
    expect_correct(graph, graph.name);
    expect_same_bits(graph, build(graph, DeviceInfo::current()));
  }
}

// Branches of a network of small images: convolutions, pools and matmuls beside each other, which write parts
// of one tensor.
Graph branches(int64_t images) {
  GraphBuilder g("branches");
  Tensor x = g.input("x", {images, 32, 14, 14}, DataType::f16, Layout::nhwc);
  const auto conv = [&](const Tensor& from, const std::string& name, int64_t channels, int64_t window) {
    const Tensor w = g.input(name, {channels, from.dims[1], window, window}, DataType::f16, Layout::nhwc);
    return g.relu(g.conv_fprop(from, w, {.padding = {window / 2, window / 2}}));
  };
  for (const char* name : {"first", "second", "third"}) {
    const std::string own(name);
    const Tensor pool =
        g.resample_fwd(x,
                       {.mode = ResampleMode::maxpool, .window = {3, 3}, .stride = {1, 1}, .padding = {1, 1}})
            .y;
    x = g.concatenate({conv(x, own + "1", 8, 1), conv(conv(x, own + "2", 16, 1), own + "3", 8, 3),
                       conv(conv(x, own + "4", 8, 1), own + "5", 8, 5), conv(pool, own + "6", 8, 1)},
                      1);
  }
  g.output(g.reduce(x, ReductionMode::avg, {2, 3}), {.name = "y"});
  return g.finish();
}

TEST(Overlap, BranchesRunBesideEachOther) {
  FUSOR_NEEDS_GPU();
  for (const int64_t images : {1, 16}) {
    const Graph graph = branches(images);
    expect_correct(graph, graph.name);
    expect_same_bits(graph, build(graph, DeviceInfo::current()));
  }
}

// Layers of few rows, whose weights are on their way before the launch in front has ended; the last one's are
// made by the plan.
TEST(Overlap, WeightsAreReadAheadOfRowsThatAreStillMade) {
  FUSOR_NEEDS_GPU();
  for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{1, 512}, {16, 2048}, {64, 1024}}) {
    GraphBuilder g("layers");
    Tensor x = g.input("x", {rows, width}, DataType::bf16);
    for (const char* name : {"1", "2", "3", "4", "5"}) {
      const Tensor w = g.input(std::string("w") + name, {width, width}, DataType::bf16);
      x = g.mul(g.relu(g.matmul(x, w)), g.constant(0.1, DataType::f32), {.type = DataType::bf16});
    }
    const Tensor made = g.matmul(g.input("u", {width, 64}, DataType::bf16),
                                 g.input("v", {64, width}, DataType::bf16), {.type = DataType::bf16});
    g.output(g.matmul(x, made), {.name = "y", .type = DataType::bf16});
    const Graph graph = g.finish();
    expect_correct(graph, graph.name);
    expect_same_bits(graph, build(graph, DeviceInfo::current()));
  }
}

// Gradients of both operands of each layer, of one tensor of gradients.
TEST(Overlap, GradientsRunBesideEachOther) {
  FUSOR_NEEDS_GPU();
  GraphBuilder g("gradients");
  Tensor dy = g.input("dy", {256, 512}, DataType::bf16);
  for (const char* name : {"1", "2", "3"}) {
    const Tensor x = g.input(std::string("x") + name, {256, 512}, DataType::bf16);
    const Tensor w = g.input(std::string("w") + name, {512, 512}, DataType::bf16);
    g.output(g.matmul(g.transpose(x, {1, 0}), dy), {.name = std::string("dw") + name});
    dy = g.relu_bwd(g.matmul(dy, g.transpose(w, {1, 0})), x);
  }
  g.output(dy, {.name = "dx"});
  const Graph graph = g.finish();
  expect_correct(graph, graph.name);
  expect_same_bits(graph, build(graph, DeviceInfo::current()));
}

}  // namespace
}  // namespace fusor
