// Owns the GPU tests of reductions of the result on the wgmma engine.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/gpu/device_run.h"
#include "tests/gpu/engines/sm90/wgmma/cases.h"
#include "tests/gpu/same_bits.h"

namespace fusor {
namespace {

using namespace wgmma_cases;

// Rounds the matmul's result, stores it, and reduces what was stored.
Graph reduced_matmul(const Dims& a, const Dims& b, const Dims& over,
                     const std::vector<ReductionMode>& modes = {ReductionMode::add},
                     DataType type = DataType::bf16) {
  GraphBuilder g("reduced");
  const Tensor c = g.output(g.matmul(g.input("a", a, type), g.input("b", b, type)), {.type = type});
  for (const ReductionMode mode : modes)
    g.output(g.reduce(c, mode, over), {.name = std::string(to_string(mode)), .type = DataType::f32});
  return g.finish();
}

TEST(WgmmaGpu, BiasGradientsBesideAGeluGradient) {
  FUSOR_NEEDS_HOPPER();
  for (const Dims& mnk : {Dims{128, 128, 64}, Dims{257, 136, 200}, Dims{16, 520, 1032}, Dims{520, 16, 1032},
                          Dims{1, 264, 72}, Dims{700, 776, 328}}) {
    GraphBuilder g("dgelu");
    const Tensor c = g.matmul(g.input("dy", {mnk[0], mnk[2]}, DataType::bf16),
                              g.input("w", {mnk[2], mnk[1]}, DataType::bf16));
    const Tensor dx = g.output(g.gelu_bwd(c, g.input("z", {mnk[0], mnk[1]}, DataType::bf16)),
                               {.name = "dx", .type = DataType::bf16});
    g.output(g.reduce(dx, ReductionMode::add, {0}), {.name = "dbias", .type = DataType::f32});
    expect_every_config_correct(g.finish(), to_string(mnk));
  }
}

TEST(WgmmaGpu, ReductionsOfEveryModeOverRowsColumnsAndAll) {
  FUSOR_NEEDS_HOPPER();
  for (const Dims& over : {Dims{0}, Dims{1}, Dims{0, 1}})
    for (const auto& modes : {std::vector{ReductionMode::add}, std::vector{ReductionMode::amax},
                              std::vector{ReductionMode::avg, ReductionMode::norm1, ReductionMode::norm2},
                              std::vector{ReductionMode::min, ReductionMode::max}})
      expect_every_config_correct(reduced_matmul({390, 136}, {136, 280}, over, modes, DataType::f16),
                                  fmt::format("{} over {}", to_string(modes.front()), to_string(over)));
}

// Parts of 16 rows, which are added in groups first.
TEST(WgmmaGpu, ReductionsOfManyParts) {
  FUSOR_NEEDS_HOPPER();
  for (const int64_t columns : {16, 40})
    expect_every_config_correct(
        reduced_matmul({40000, 64}, {64, columns}, {0}, {ReductionMode::add, ReductionMode::amax}),
        fmt::format("{} columns", columns));
}

TEST(WgmmaGpu, ReductionsOfABatch) {
  FUSOR_NEEDS_HOPPER();
  for (const Dims& over : {Dims{0, 1}, Dims{1}, Dims{0, 2}, Dims{2}, Dims{0, 1, 2}})
    expect_every_config_correct(reduced_matmul({3, 130, 96}, {3, 96, 152}, over), "over " + to_string(over));
}

// Nothing else is stored; columns that make no pairs; a result whose rows are adjacent.
TEST(WgmmaGpu, ReductionsOfResultsThatLieOtherwise) {
  FUSOR_NEEDS_HOPPER();
  for (const Dims& over : {Dims{0}, Dims{1}, Dims{0, 1}}) {
    GraphBuilder alone("alone");
    const Tensor c = alone.matmul(alone.input("a", {300, 136}, DataType::bf16),
                                  alone.input("b", {136, 280}, DataType::bf16));
    alone.output(alone.reduce(c, ReductionMode::add, over), {.type = DataType::f32});
    expect_every_config_correct(alone.finish(), "nothing else, over " + to_string(over));

    GraphBuilder odd("odd");
    const Tensor b = odd.input("b", {136, 75}, DataType::bf16, TensorOptions{.strides = Strides{1, 136}});
    const Tensor y = odd.output(odd.relu(odd.matmul(odd.input("a", {301, 136}, DataType::bf16), b)),
                                {.name = "y", .type = DataType::f32});
    odd.output(odd.reduce(y, ReductionMode::amax, over), {.type = DataType::f32});
    expect_every_config_correct(odd.finish(), "75 columns, over " + to_string(over));

    GraphBuilder across("across");
    const Tensor z = across.output(across.matmul(across.input("a", {264, 136}, DataType::bf16),
                                                 across.input("b", {136, 200}, DataType::bf16)),
                                   {.name = "z", .type = DataType::bf16, .strides = Strides{1, 264}});
    across.output(across.reduce(z, ReductionMode::add, over), {.type = DataType::f32});
    expect_every_config_correct(across.finish(), "adjacent rows, over " + to_string(over));
  }
}

TEST(WgmmaGpu, LargestOfAGatedPair) {
  FUSOR_NEEDS_HOPPER();
  GraphBuilder g("pair");
  const Tensor x = g.input("x", {390, 136}, DataType::bf16);
  const Tensor gate = g.matmul(x, g.input("gate", {136, 280}, DataType::bf16));
  const Tensor up = g.matmul(x, g.input("up", {136, 280}, DataType::bf16));
  const Tensor y = g.output(g.mul(g.swish(gate), up), {.name = "y", .type = DataType::bf16});
  g.output(g.reduce(y, ReductionMode::amax, {0, 1}), {.type = DataType::f32});
  expect_every_config_correct(g.finish(), "amax of a pair");
}

// What batch normalisation asks of a convolution, with groups and without; the largest filter gradient.
TEST(WgmmaGpu, StatisticsOfConvolutions) {
  FUSOR_NEEDS_HOPPER();
  for (const auto& [x, w] : {std::pair{Dims{2, 64, 14, 14}, Dims{72, 64, 3, 3}},
                             {Dims{2, 128, 10, 11}, Dims{256, 64, 3, 3}},
                             {Dims{3, 72, 13, 11}, Dims{40, 72, 1, 1}}})
    for (const Dims& over : {Dims{0, 2, 3}, Dims{1}, Dims{0, 1, 2, 3}}) {
      GraphBuilder g("statistics");
      const Tensor c = g.conv_fprop(g.input("x", x, DataType::f16, Layout::nhwc),
                                    g.input("w", w, DataType::f16, Layout::nhwc), {.padding = {1, 1}});
      const Tensor y = g.output(c, {.name = "y", .type = DataType::f16, .layout = Layout::nhwc});
      g.output(g.reduce(y, ReductionMode::add, over), {.name = "sums", .type = DataType::f32});
      g.output(g.reduce(y, ReductionMode::norm2, over), {.name = "norms", .type = DataType::f32});
      expect_every_config_correct(g.finish(), to_string(x) + " over " + to_string(over));
    }
  GraphBuilder g("wgrad");
  const Tensor dw = g.conv_wgrad(g.input("dy", {2, 64, 12, 12}, DataType::bf16, Layout::nhwc),
                                 g.input("x", {2, 64, 12, 12}, DataType::bf16, Layout::nhwc), {64, 64, 3, 3},
                                 {.padding = {1, 1}});
  const Tensor y = g.output(dw, {.name = "dw", .type = DataType::f32, .layout = Layout::nhwc});
  g.output(g.reduce(y, ReductionMode::amax, {0, 1, 2, 3}), {.type = DataType::f32});
  expect_every_config_correct(g.finish(), "amax of a filter gradient");
}

// These are matmuls, whose axes are others than the convolution's.
TEST(WgmmaGpu, StatisticsOfPlanes) {
  FUSOR_NEEDS_HOPPER();
  for (const Dims& over : {Dims{0, 2, 3}, Dims{0, 1, 2, 3}}) {
    GraphBuilder g("planes");
    const Tensor x = g.input("x", {3, 128, 14, 14}, DataType::f16, Layout::nhwc);
    const Tensor w = g.input("w", {72, 128, 3, 3}, DataType::f16, Layout::nhwc);
    const Tensor y = g.relu(g.conv_fprop(x, w, {.padding = {1, 1}}));
    g.output(y, {.type = DataType::f16, .layout = Layout::nchw});
    g.output(g.reduce(y, ReductionMode::add, over), {.type = DataType::f32});
    expect_every_config_correct(g.finish(), "NCHW result, summed over " + to_string(over));
  }
}

TEST(WgmmaGpu, StatisticsOfPointwiseConvolutions) {
  FUSOR_NEEDS_HOPPER();
  for (const Layout layout : {Layout::nhwc, Layout::nchw})
    for (const Dims& over : {Dims{0, 2, 3}, Dims{0, 1, 2, 3}}) {
      GraphBuilder g("statistics");
      const Tensor c = g.conv_fprop(g.input("x", {3, 72, 13, 16}, DataType::f16, layout),
                                    g.input("w", {40, 72, 1, 1}, DataType::f16));
      const Tensor y = g.output(c, {.name = "y", .type = DataType::f16, .layout = layout});
      g.output(g.reduce(y, ReductionMode::add, over), {.name = "sums", .type = DataType::f32});
      expect_every_config_correct(g.finish(), layout == Layout::nhwc ? "channels last" : "channels first");
    }
}

TEST(WgmmaGpu, SameBitsInEveryReduction) {
  FUSOR_NEEDS_HOPPER();
  for (const Dims& over : {Dims{0}, Dims{1}, Dims{0, 1}}) {
    const Graph graph = reduced_matmul({2048, 512}, {512, 1536}, over);
    expect_same_bits(graph, build(graph, DeviceInfo::current()), "over " + to_string(over));
  }
}

}  // namespace
}  // namespace fusor
