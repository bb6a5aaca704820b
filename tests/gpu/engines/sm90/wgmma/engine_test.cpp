// Owns the tests of the wgmma engine on the GPU for matmuls of 16 bits: every candidate, with tails, batches
// and epilogues, and the same bits in every run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/gpu/device_run.h"
#include "tests/gpu/engines/sm90/wgmma/cases.h"
#include "tests/gpu/same_bits.h"

namespace fusor {
namespace {

using namespace wgmma_cases;

TEST(WgmmaGpu, MatmulWithTails) {
  FUSOR_NEEDS_HOPPER();
  for (const Dims& mnk : {Dims{128, 128, 64}, Dims{257, 136, 200}, Dims{16, 520, 1032}, Dims{520, 16, 1032},
                          Dims{1, 264, 72}, Dims{700, 776, 328}}) {
    GraphBuilder g("matmul");
    const Tensor a = g.input("a", {mnk[0], mnk[2]}, DataType::bf16);
    const Tensor b = g.input("b", {mnk[1], mnk[2]}, DataType::bf16);
    const Tensor c = g.matmul(a, g.transpose(b, {1, 0}));
    expect_every_config_correct(g.finish({c}), to_string(mnk));
  }
}

TEST(WgmmaGpu, MatmulInEveryTranspose) {
  FUSOR_NEEDS_HOPPER();
  for (const Strides& a : {Strides{328, 1}, Strides{1, 264}})
    for (const Strides& b : {Strides{200, 1}, Strides{1, 328}})
      for (const Strides& c : {Strides{200, 1}, Strides{1, 264}, Strides{401, 2}}) {
        GraphBuilder g("matmul");
        const Tensor left = g.input("a", {260, 328}, DataType::f16, TensorOptions{.strides = a});
        const Tensor right = g.input("b", {328, 200}, DataType::f16, TensorOptions{.strides = b});
        g.output(g.matmul(left, right), {.strides = c});
        expect_every_config_correct(g.finish(),
                                    fmt::format("{} {} {}", to_string(a), to_string(b), to_string(c)));
      }
}

TEST(WgmmaGpu, PaddedLines) {
  FUSOR_NEEDS_HOPPER();
  GraphBuilder g("padded");
  const Tensor a = g.input("a", {130, 70}, DataType::bf16, TensorOptions{.strides = Strides{72, 1}});
  const Tensor b = g.input("b", {70, 99}, DataType::bf16, TensorOptions{.strides = Strides{104, 1}});
  const Tensor bias = g.input("bias", {1, 99}, DataType::bf16);
  g.output(g.add(g.matmul(a, b), bias), {.strides = Strides{104, 1}});
  expect_every_config_correct(g.finish(), "odd extents in padded lines");
}

TEST(WgmmaGpu, BatchedMatmulWithEpilogue) {
  FUSOR_NEEDS_HOPPER();
  GraphBuilder g("batched");
  const Tensor a = g.input("a", {3, 2, 130, 96}, DataType::bf16);
  const Tensor b = g.input("b", {96, 152}, DataType::bf16);
  const Tensor bias = g.input("bias", {152}, DataType::f32);
  const Tensor residual = g.input("residual", {3, 2, 130, 152}, DataType::bf16);
  const Tensor pre = g.add(g.matmul(a, b), bias);
  g.output(g.add(g.gelu(pre), residual));
  expect_every_config_correct(g.finish(), "bias, gelu, residual");
}

// Tiles of one step are multiplied faster than they leave: boxes come around while others are under way, and
// some are of rows that do not exist.
TEST(WgmmaGpu, BoxesOfManyTilesOfOneStep) {
  FUSOR_NEEDS_HOPPER();
  for (const Strides& c : {Strides{72 * 264, 264, 1}, Strides{72 * 264, 1, 72}}) {
    GraphBuilder g("one_step");
    const Tensor a = g.input("a", {400, 72, 64}, DataType::bf16);
    const Tensor b = g.input("b", {400, 64, 264}, DataType::bf16);
    g.output(g.matmul(a, b), {.type = DataType::bf16, .strides = c});
    expect_every_config_correct(g.finish(), to_string(c));
  }
}

TEST(WgmmaGpu, SameBitsInEveryRun) {
  FUSOR_NEEDS_HOPPER();
  GraphBuilder g("wgrad");
  const Tensor dy = g.input("dy", {8, 64, 28, 28}, DataType::bf16, Layout::nhwc);
  const Tensor x = g.input("x", {8, 64, 28, 28}, DataType::bf16, Layout::nhwc);
  g.output(g.conv_wgrad(dy, x, {64, 64, 3, 3}, {.padding = {1, 1}}), {.name = "dw", .layout = Layout::nhwc});
  const Graph graph = g.finish();
  expect_same_bits(graph, build(graph, DeviceInfo::current()));
}

}  // namespace
}  // namespace fusor
