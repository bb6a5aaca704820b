// Owns the tests on the GPU of epilogue operands that the wgmma engine has brought by TMA: every
// candidate, with tails, batches, two results, elements of other sizes, and boxes that come around often.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>

#include "backend/engines/list.h"
#include "frontend/graph_builder.h"
#include "tests/gpu/device_run.h"
#include "tests/gpu/engines/every_config.h"
#include "tests/gpu/same_bits.h"

namespace fusor {
namespace {

const std::array<const Engine*, 1> kWgmmaOnly{&wgmma_engine()};

void expect_every_config_correct(const Graph& graph, const std::string& what) {
  expect_every_config_correct(graph, kWgmmaOnly, what);
}

// Settings of whole tiles without clusters: the others differ in what epilogues know nothing of.
void expect_wide_configs_correct(const Graph& graph, const std::string& what) {
  for (const Candidate& candidate :
       candidates(graph, DeviceInfo::current(), PlannerOptions{.engine_list = kWgmmaOnly})) {
    const EngineConfig& config = candidate.fusions.front().config;
    if (config.knob("cluster", 1) > 1 || config.knob("split", 1) > 1 || config.knob("tile_n", 0) < 64)
      continue;
    expect_config_correct(graph, candidate, kWgmmaOnly, what);
  }
}

Tensor product(GraphBuilder& g, const Dims& mnk, DataType type = DataType::bf16) {
  const Tensor b = g.input("b", {mnk[1], mnk[2]}, type);
  return g.matmul(g.input("a", {mnk[0], mnk[2]}, type), g.transpose(b, {1, 0}));
}

// Less than a tile, odd numbers of rows, columns that end in a tile, and many tiles a block.
const std::array<Dims, 6> kExtents{Dims{128, 128, 64}, Dims{257, 136, 200}, Dims{16, 520, 1032},
                                   Dims{1, 264, 72},   Dims{700, 776, 328}, Dims{2600, 3080, 136}};

TEST(WgmmaOperandsGpu, ResidualsWithTails) {
  FUSOR_NEEDS_HOPPER();
  for (const Dims& mnk : kExtents)
    for (const bool along_rows : {false, true}) {
      GraphBuilder g("residual");
      const int64_t line = (mnk[0] + 7) / 8 * 8;
      const Strides strides = along_rows ? Strides{1, line} : Strides{mnk[1], 1};
      const Tensor residual =
          g.input("residual", {mnk[0], mnk[1]}, DataType::bf16, TensorOptions{.strides = strides});
      g.output(g.add(product(g, mnk), residual), {.type = DataType::bf16, .strides = strides});
      expect_every_config_correct(g.finish(),
                                  fmt::format("{} {}", to_string(mnk), along_rows ? "rows" : "columns"));
    }
}

// Elements as wide as the result's, or wider, or narrower.
TEST(WgmmaOperandsGpu, ResidualsOfOtherTypes) {
  FUSOR_NEEDS_HOPPER();
  for (const Dims& mnk : {Dims{257, 136, 200}, Dims{1300, 1544, 72}})
    for (const DataType of_residual : {DataType::f16, DataType::bf16, DataType::f32})
      for (const DataType of_result : {DataType::f16, DataType::f32})
        for (const bool along_rows : {false, true}) {
          GraphBuilder g("residual");
          const int64_t line = (mnk[0] + 7) / 8 * 8;
          const Strides strides = along_rows ? Strides{1, line} : Strides{mnk[1], 1};
          const Tensor residual =
              g.input("residual", {mnk[0], mnk[1]}, of_residual, TensorOptions{.strides = strides});
          g.output(g.add(product(g, mnk, DataType::f16), residual), {.type = of_result, .strides = strides});
          expect_wide_configs_correct(g.finish(), fmt::format("{} {} to {}", to_string(mnk),
                                                              to_string(of_residual), to_string(of_result)));
        }
}

TEST(WgmmaOperandsGpu, GeluGradientsAndTheirColumnSums) {
  FUSOR_NEEDS_HOPPER();
  for (const Dims& mnk : kExtents)
    for (const Dims& summed : {Dims{0}, Dims{1}, Dims{0, 1}}) {
      GraphBuilder g("gelu_gradient");
      const Tensor z = g.input("z", {mnk[0], mnk[1]}, DataType::bf16);
      const Tensor y = g.output(g.gelu_bwd(product(g, mnk), z), {.name = "y", .type = DataType::bf16});
      g.output(g.reduce(y, ReductionMode::add, summed), {.name = "sums", .type = DataType::f32});
      expect_wide_configs_correct(g.finish(),
                                  fmt::format("{} summed over {}", to_string(mnk), to_string(summed)));
    }
}

// A bias along either axis beside the residual: the same for all columns of a row where they are swapped.
TEST(WgmmaOperandsGpu, ResidualAndBias) {
  FUSOR_NEEDS_HOPPER();
  for (const Dims& mnk : {Dims{257, 136, 200}, Dims{1300, 1544, 72}})
    for (const bool of_rows : {false, true}) {
      GraphBuilder g("bias_and_residual");
      const Tensor bias = g.input("bias", of_rows ? Dims{mnk[0], 1} : Dims{1, mnk[1]}, DataType::f32);
      const Tensor residual = g.input("residual", {mnk[0], mnk[1]}, DataType::bf16);
      g.output(g.relu(g.add(g.add(product(g, mnk), bias), residual)), {.type = DataType::bf16});
      expect_wide_configs_correct(g.finish(),
                                  fmt::format("{} bias of {}", to_string(mnk), of_rows ? "rows" : "columns"));
    }
}

TEST(WgmmaOperandsGpu, OperandsOfABatch) {
  FUSOR_NEEDS_HOPPER();
  GraphBuilder g("batched");
  const Tensor a = g.input("a", {3, 2, 130, 96}, DataType::bf16);
  const Tensor b = g.input("b", {96, 152}, DataType::bf16);
  const Tensor residual = g.input("residual", {3, 2, 130, 152}, DataType::bf16);
  g.output(g.add(g.matmul(a, b), residual), {.type = DataType::bf16});
  expect_every_config_correct(g.finish(), "a batch of residuals");
}

// Both operands take a result's place, or one of them has a box of its own.
TEST(WgmmaOperandsGpu, TwoOperandsAndTwoResults) {
  FUSOR_NEEDS_HOPPER();
  for (const Dims& mnk : kExtents)
    for (const DataType of_gate : {DataType::bf16, DataType::f32}) {
      GraphBuilder g("gated_gradients");
      const Tensor dy = product(g, mnk);
      const Tensor gate = g.input("gate", {mnk[0], mnk[1]}, of_gate);
      const Tensor up = g.input("up", {mnk[0], mnk[1]}, DataType::bf16);
      g.output(g.mul(dy, g.swish(gate)), {.name = "dup", .type = DataType::bf16});
      g.output(g.mul(g.swish_bwd(dy, gate), up), {.name = "dgate", .type = DataType::bf16});
      expect_wide_configs_correct(g.finish(), fmt::format("{} {}", to_string(mnk), to_string(of_gate)));
    }
}

TEST(WgmmaOperandsGpu, TwoOperandsAndOneResult) {
  FUSOR_NEEDS_HOPPER();
  for (const Dims& mnk : {Dims{257, 136, 200}, Dims{1300, 1544, 72}}) {
    GraphBuilder g("two");
    Tensor y = product(g, mnk);
    y = g.mul(y, g.input("first", {mnk[0], mnk[1]}, DataType::bf16));
    y = g.add(y, g.input("second", {mnk[0], mnk[1]}, DataType::f16));
    g.output(y, {.type = DataType::bf16});
    expect_wide_configs_correct(g.finish(), to_string(mnk));
  }
}

TEST(WgmmaOperandsGpu, AGatedPairAndItsResidual) {
  FUSOR_NEEDS_HOPPER();
  GraphBuilder g("pair");
  const Tensor x = g.input("x", {700, 200}, DataType::bf16);
  const Tensor gate = g.matmul(x, g.input("gate", {200, 520}, DataType::bf16));
  const Tensor up = g.matmul(x, g.input("up", {200, 520}, DataType::bf16));
  const Tensor residual = g.input("residual", {700, 520}, DataType::bf16);
  g.output(g.add(g.mul(g.swish(gate), up), residual), {.type = DataType::bf16});
  expect_every_config_correct(g.finish(), "a gated pair and a residual");
}

TEST(WgmmaOperandsGpu, ResidualsOfConvolutions) {
  FUSOR_NEEDS_HOPPER();
  for (const int64_t window : {1, 3})
    for (const int64_t groups : {1, 2}) {
      GraphBuilder g("conv");
      const Tensor x = g.input("x", {5, 128, 19, 23}, DataType::f16, Layout::nhwc);
      const Tensor w =
          g.input("w", {192 * groups, 128 / groups, window, window}, DataType::f16, Layout::nhwc);
      const Dims y{5, 192 * groups, 19, 23};
      const Tensor residual = g.input("residual", y, DataType::f16, Layout::nhwc);
      const Dims padding{window / 2, window / 2};
      const Tensor sums = g.conv_fprop(x, w, {.padding = padding});
      g.output(g.relu(g.add(sums, residual)), {.type = DataType::f16, .layout = Layout::nhwc});
      expect_every_config_correct(g.finish(), fmt::format("window {}, {} groups", window, groups));
    }
}

TEST(WgmmaOperandsGpu, SameBitsInEveryRun) {
  FUSOR_NEEDS_HOPPER();
  GraphBuilder g("gelu_gradient");
  const Dims mnk{4104, 5000, 200};
  const Tensor z = g.input("z", {mnk[0], mnk[1]}, DataType::bf16);
  const Tensor y = g.output(g.gelu_bwd(product(g, mnk), z), {.name = "y", .type = DataType::bf16});
  g.output(g.reduce(y, ReductionMode::add, {0}), {.name = "sums", .type = DataType::f32});
  expect_same_bits_of_every_config(g.finish(), kWgmmaOnly);
}

}  // namespace
}  // namespace fusor
