// Owns the tests of the wgmma engine on the GPU: every candidate of matmuls and convolutions with tails,
// strides, paddings and epilogues, and the same bits in every run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>

#include "backend/engines.h"
#include "frontend/graph_builder.h"
#include "tests/gpu/device_run.h"
#include "tests/gpu/every_config.h"

namespace fusor {
namespace {

const std::array<const Engine*, 1> kWgmmaOnly{&wgmma_engine()};

void expect_every_config_correct(const Graph& graph, const std::string& what) {
  expect_every_config_correct(graph, kWgmmaOnly, what);
}

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

TEST(WgmmaGpu, SecondResultAndFp32Result) {
  FUSOR_NEEDS_HOPPER();
  GraphBuilder g("two_results");
  const Tensor a = g.input("a", {300, 192}, DataType::bf16);
  const Tensor b = g.input("b", {192, 264}, DataType::bf16);
  const Tensor pre = g.add(g.matmul(a, b), g.input("bias", {1, 264}, DataType::bf16));
  g.output(pre, {.name = "pre", .type = DataType::f32});
  g.output(g.relu(pre), {.type = DataType::bf16});
  expect_every_config_correct(g.finish(), "pre-activation in fp32, result in bf16");
}

// Both leave by the copy engine where they lie alike, along columns or along rows; odd extents in padded
// lines.
TEST(WgmmaGpu, TwoResultsWithTails) {
  FUSOR_NEEDS_HOPPER();
  for (const Dims& mnk : {Dims{128, 128, 64}, Dims{257, 136, 200}, Dims{16, 520, 1032}, Dims{520, 16, 1032},
                          Dims{1, 264, 72}, Dims{700, 776, 328}, Dims{1300, 1544, 456}})
    for (const DataType type : {DataType::bf16, DataType::f16, DataType::f32})
      for (const bool along_rows : {false, true}) {
        GraphBuilder g("two_results");
        const int64_t line = (mnk[0] + 7) / 8 * 8;
        const Strides strides = along_rows ? Strides{1, line} : Strides{mnk[1], 1};
        const Tensor a = g.input("a", {mnk[0], mnk[2]}, DataType::bf16);
        const Tensor b = g.input("b", {mnk[1], mnk[2]}, DataType::bf16);
        const Tensor sum =
            g.add(g.matmul(a, g.transpose(b, {1, 0})), g.input("bias", {1, mnk[1]}, DataType::bf16));
        const Tensor pre = g.output(sum, {.name = "pre", .type = type, .strides = strides});
        g.output(g.gelu(pre), {.name = "y", .type = DataType::bf16, .strides = strides});
        expect_every_config_correct(g.finish(), fmt::format("{} {} along {}", to_string(mnk), to_string(type),
                                                            along_rows ? "rows" : "columns"));
      }
}

// With operands of the epilogue, a batch, a reduction beside them, and a third result.
TEST(WgmmaGpu, TwoResultsOfABatch) {
  FUSOR_NEEDS_HOPPER();
  for (const bool reduces : {false, true})
    for (const bool third : {false, true}) {
      GraphBuilder g("batched");
      const Tensor a = g.input("a", {3, 2, 130, 96}, DataType::f16);
      const Tensor b = g.input("b", {96, 152}, DataType::f16);
      const Tensor residual = g.input("residual", {3, 2, 130, 152}, DataType::f16);
      const Tensor pre = g.output(g.add(g.matmul(a, b), residual), {.name = "pre", .type = DataType::f16});
      const Tensor y = g.output(g.gelu_tanh(pre), {.name = "y", .type = DataType::f16});
      if (third) g.output(g.cmp_gt(pre, y), {.name = "mask"});
      if (reduces)
        g.output(g.reduce(y, ReductionMode::add, {0, 1, 2}), {.name = "sums", .type = DataType::f32});
      expect_every_config_correct(g.finish(), reduces ? "reduced, too" : "pre-activation and result");
    }
}

TEST(WgmmaGpu, TwoResultsOfConvolutions) {
  FUSOR_NEEDS_HOPPER();
  for (const auto& [x, w] : {std::pair{Dims{2, 64, 14, 14}, Dims{72, 64, 3, 3}},
                             {Dims{2, 128, 10, 11}, Dims{256, 64, 3, 3}},
                             {Dims{3, 72, 13, 11}, Dims{40, 72, 1, 1}}}) {
    GraphBuilder g("two_results");
    const Tensor y = g.conv_fprop(g.input("x", x, DataType::f16, Layout::nhwc),
                                  g.input("w", w, DataType::f16, Layout::nhwc), {.padding = {1, 1}});
    const Tensor pre = g.output(g.add(y, g.input("bias", {1, w[0], 1, 1}, DataType::f16)),
                                {.name = "pre", .type = DataType::f16, .layout = Layout::nhwc});
    g.output(g.swish(pre), {.name = "y", .type = DataType::f16, .layout = Layout::nhwc});
    expect_every_config_correct(g.finish(), to_string(x));
  }
}

// --- Gated pairs ---

// Weights as they are multiplied, or stored transposed.
enum class Weights { across, along_k };

struct PairCase {
  Dims x;
  int64_t n;
  Weights weights = Weights::along_k;
  PointwiseMode gate = PointwiseMode::swish;
  DataType type = DataType::bf16;
  bool biases = false, saves = false;
};

Graph gated_pair(const PairCase& c) {
  GraphBuilder g("gated_pair");
  const Tensor x = g.input("x", c.x, c.type);
  const int64_t k = c.x.back();
  const auto product = [&](const std::string& name) {
    TensorOptions options;
    if (c.weights == Weights::along_k) options.strides = Strides{1, k};
    Tensor y = g.matmul(x, g.input(name, {k, c.n}, c.type, options));
    if (c.biases) y = g.add(y, g.input(name + "_bias", {1, c.n}, c.type));
    return c.saves ? g.output(y, {.name = name + "_saved", .type = c.type}) : y;
  };
  const Tensor gate = product("gate"), up = product("up");
  g.output(g.mul(g.pointwise(c.gate, {gate}), up), {.type = c.type});
  return g.finish();
}

TEST(WgmmaGpu, GatedPairsWithTails) {
  FUSOR_NEEDS_HOPPER();
  for (const Weights weights : {Weights::along_k, Weights::across})
    for (const auto& [x, n] : {std::pair{Dims{128, 64}, 128},
                               {Dims{257, 200}, 136},
                               {Dims{520, 1032}, 16},
                               {Dims{1, 72}, 264},
                               {Dims{700, 328}, 776}}) {
      const PairCase c{.x = x, .n = n, .weights = weights};
      expect_every_config_correct(gated_pair(c), fmt::format("{} to {} columns", to_string(x), n));
    }
}

TEST(WgmmaGpu, GatedPairsOfEveryActivationWithBiases) {
  FUSOR_NEEDS_HOPPER();
  for (const DataType type : {DataType::f16, DataType::bf16})
    for (const PointwiseMode gate : {PointwiseMode::swish, PointwiseMode::gelu, PointwiseMode::gelu_tanh,
                                     PointwiseMode::sigmoid, PointwiseMode::relu}) {
      const PairCase c{.x = {390, 136}, .n = 280, .gate = gate, .type = type, .biases = true};
      expect_every_config_correct(gated_pair(c), fmt::format("{} {}", to_string(gate), to_string(type)));
    }
}

TEST(WgmmaGpu, GatedPairsThatSaveTheirPreActivations) {
  FUSOR_NEEDS_HOPPER();
  for (const Weights weights : {Weights::along_k, Weights::across}) {
    const PairCase c{.x = {3, 130, 96}, .n = 152, .weights = weights, .biases = true, .saves = true};
    expect_every_config_correct(gated_pair(c), "three results");
  }
}

// Columns whose pairs are not whole, lines that the copy engine cannot store, weights of every entry.
TEST(WgmmaGpu, GatedPairsOfABatchWithOddColumns) {
  FUSOR_NEEDS_HOPPER();
  GraphBuilder g("batched");
  const Tensor x = g.input("x", {3, 130, 96}, DataType::bf16);
  const auto product = [&](const char* name) {
    return g.matmul(
        x, g.input(name, {3, 96, 75}, DataType::bf16, TensorOptions{.strides = Strides{7200, 1, 96}}));
  };
  const Tensor gate = product("gate"), up = product("up");
  g.output(g.mul(g.swish(gate), g.add(up, gate)), {.type = DataType::f32});
  expect_every_config_correct(g.finish(), "75 columns");
}

// --- Reductions of the result ---

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
    DeviceRun run(reduced_matmul({2048, 512}, {512, 1536}, over));
    run.run();
    const std::vector<std::byte> first = run.host("add");
    for (int i = 0; i < 50; ++i) {
      run.run();
      ASSERT_EQ(run.host("add"), first) << "run " << i << " over " << to_string(over);
    }
  }
}

struct ConvCase {
  Dims x, w;
  ConvOptions options;
};

const ConvCase kConvCases[] = {
    {{2, 64, 14, 14}, {64, 64, 3, 3}, {.padding = {1, 1}}},
    {{3, 72, 13, 11}, {40, 72, 3, 3}, {.padding = {1, 1}}},
    {{2, 128, 15, 9}, {136, 128, 1, 1}, {}},
    {{1, 16, 20, 18}, {24, 16, 5, 3}, {.pre_padding = {2, 0}, .post_padding = {1, 3}}},
    {{2, 64, 17, 16}, {72, 64, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}}},
    {{2, 64, 12, 12}, {64, 64, 1, 1}, {.stride = {2, 2}}},
    {{2, 64, 19, 17}, {64, 64, 3, 3}, {.padding = {2, 2}, .dilation = {2, 2}}},
    {{2, 128, 10, 10}, {256, 64, 3, 3}, {.padding = {1, 1}}},
    {{2, 64, 10, 12}, {64, 64, 3, 3}, {.padding = {1, 1}, .mode = ConvMode::convolution}},
    {{4, 64, 100}, {96, 64, 5}, {.padding = {2}}},
    {{2, 64, 5, 8, 7}, {64, 64, 3, 3, 3}, {.padding = {1, 1, 1}}},
    {{2, 48, 6, 9, 7}, {40, 48, 2, 3, 2}, {.padding = {1, 1, 0}}},
    {{40, 64, 40, 40}, {64, 64, 3, 3}, {.padding = {1, 1}}},
    {{2, 64, 18, 20}, {64, 64, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}}},
    {{2, 72, 13, 11}, {40, 72, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}}},
    {{3, 128, 13, 14}, {136, 128, 1, 1}, {.stride = {2, 2}}},
    {{2, 64, 19, 16}, {64, 64, 5, 5}, {.padding = {2, 2}, .stride = {2, 2}}},
    {{2, 64, 17, 18}, {64, 64, 3, 3}, {.padding = {1, 1}, .stride = {3, 3}}},
    {{2, 64, 15, 14}, {72, 64, 3, 3}, {.padding = {1, 1}, .stride = {2, 1}}},
    {{2, 64, 19, 17}, {64, 64, 3, 3}, {.padding = {2, 2}, .stride = {2, 2}, .dilation = {2, 2}}},
    {{2, 64, 16, 16}, {64, 64, 2, 3}, {.padding = {1, 1}, .stride = {4, 4}}},
    {{2, 128, 11, 10}, {256, 64, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}}},
    {{2, 64, 10, 13}, {64, 64, 3, 2}, {.padding = {1, 1}, .stride = {2, 2}, .mode = ConvMode::convolution}},
    {{4, 64, 101}, {96, 64, 5}, {.padding = {2}, .stride = {2}}},
    {{2, 64, 5, 8, 7}, {64, 64, 3, 3, 3}, {.padding = {1, 1, 1}, .stride = {2, 2, 2}}},
    {{40, 64, 40, 40}, {64, 64, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}}},
};

std::string words(const ConvCase& c) { return to_string(c.x) + " * " + to_string(c.w); }
void PrintTo(const ConvCase& c, std::ostream* out) { *out << words(c); }

Dims output_dims(const ConvCase& c) {
  GraphBuilder g("shape");
  return g.conv_fprop(g.input("x", c.x, DataType::f16), g.input("w", c.w, DataType::f16), c.options).dims;
}

class WgmmaConvGpu : public testing::TestWithParam<ConvCase> {};

TEST_P(WgmmaConvGpu, FpropWithBiasAndRelu) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  GraphBuilder g("fprop");
  const Tensor x = g.input("x", c.x, DataType::f16, Layout::nhwc);
  const Tensor w = g.input("w", c.w, DataType::f16, Layout::nhwc);
  Dims bias_dims = Dims::filled(c.x.rank(), 1);
  bias_dims[1] = c.w[0];
  const Tensor bias = g.input("bias", bias_dims, DataType::f16);
  g.output(g.relu(g.add(g.conv_fprop(x, w, c.options), bias)), {.layout = Layout::nhwc});
  expect_every_config_correct(g.finish(), "fprop " + words(c));
}

TEST_P(WgmmaConvGpu, Dgrad) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  GraphBuilder g("dgrad");
  const Tensor dy = g.input("dy", output_dims(c), DataType::bf16, Layout::nhwc);
  const Tensor w = g.input("w", c.w, DataType::bf16, Layout::nhwc);
  g.output(g.conv_dgrad(dy, w, c.x, c.options), {.layout = Layout::nhwc});
  expect_every_config_correct(g.finish(), "dgrad " + words(c));
}

// With operands of the epilogue, a second result, and one that no lines hold.
TEST_P(WgmmaConvGpu, DgradWithResidual) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  if (c.options.stride.empty()) GTEST_SKIP() << "the others leave by the copy engine, like fprop";
  for (const Layout layout : {Layout::nhwc, Layout::nchw}) {
    GraphBuilder g("dgrad");
    const Tensor dy = g.input("dy", output_dims(c), DataType::bf16, Layout::nhwc);
    const Tensor w = g.input("w", c.w, DataType::bf16, Layout::nhwc);
    const Tensor dx = g.conv_dgrad(dy, w, c.x, c.options);
    const Tensor sum = g.add(dx, g.input("residual", c.x, DataType::bf16, layout));
    g.output(sum, {.name = "sum", .type = DataType::f32, .layout = layout});
    g.output(g.relu(sum), {.type = DataType::bf16, .layout = Layout::nhwc});
    expect_every_config_correct(g.finish(), "dgrad with residual " + words(c));
  }
}

TEST_P(WgmmaConvGpu, Wgrad) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  if (c.w[1] % 64 != 0) GTEST_SKIP() << "wgrad of ragged channels is another engine's";
  GraphBuilder g("wgrad");
  const Tensor dy = g.input("dy", output_dims(c), DataType::bf16, Layout::nhwc);
  const Tensor x = g.input("x", c.x, DataType::bf16, Layout::nhwc);
  g.output(g.conv_wgrad(dy, x, c.w, c.options), {.type = DataType::f32, .layout = Layout::nhwc});
  expect_every_config_correct(g.finish(), "wgrad " + words(c));
}

// fp32 in a graph that allows TF32: lines of 32 elements, along k.
TEST_P(WgmmaConvGpu, Tf32Fprop) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  GraphBuilder g("fprop", Precision::allow_tf32);
  const Tensor x = g.input("x", c.x, DataType::f32, Layout::nhwc);
  const Tensor w = g.input("w", c.w, DataType::f32, Layout::nhwc);
  g.output(g.relu(g.conv_fprop(x, w, c.options)), {.layout = Layout::nhwc});
  expect_every_config_correct(g.finish(), "tf32 fprop " + words(c));
}

// Of the filter, output channels lie side by side.
TEST_P(WgmmaConvGpu, Tf32Dgrad) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  GraphBuilder g("dgrad", Precision::allow_tf32);
  Strides strides = packed_strides(c.w);
  int64_t next = c.w[0];
  strides[0] = 1;
  for (int i = c.w.rank() - 1; i >= 1; --i) {
    strides[i] = next;
    next *= c.w[i];
  }
  const Tensor dy = g.input("dy", output_dims(c), DataType::f32, Layout::nhwc);
  const Tensor w = g.input("w", c.w, DataType::f32, TensorOptions{.strides = strides});
  g.output(g.conv_dgrad(dy, w, c.x, c.options), {.layout = Layout::nhwc});
  expect_every_config_correct(g.finish(), "tf32 dgrad " + words(c));
}

TEST_P(WgmmaConvGpu, Int8Fprop) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  const int64_t groups = c.x[1] / c.w[1];
  if (c.w[1] % 16 != 0 || (groups > 1 && c.w[1] % 128 != 0)) GTEST_SKIP() << "lines of 16 bytes";
  for (const DataType type : {DataType::i8, DataType::u8}) {
    GraphBuilder g("fprop");
    const Tensor x = g.input("x", c.x, type, Layout::nhwc);
    const Tensor w = g.input("w", c.w, DataType::i8, Layout::nhwc);
    const Tensor y = g.conv_fprop(x, w, c.options);
    g.output(y, {.name = "sums", .type = DataType::i32, .layout = Layout::nhwc});
    g.output(g.mul(y, g.scalar("scale", DataType::f32)), {.type = DataType::f16, .layout = Layout::nhwc});
    expect_every_config_correct(g.finish(), "int8 fprop " + words(c));
  }
}

INSTANTIATE_TEST_SUITE_P(, WgmmaConvGpu, testing::ValuesIn(kConvCases));

// Pointwise convolutions, which are matmuls: channels last or first, tails of positions and channels.
const ConvCase kPointwiseCases[] = {
    {{2, 64, 16, 16}, {128, 64, 1, 1}, {}},    {{3, 72, 12, 14}, {40, 72, 1, 1}, {}},
    {{5, 128, 28, 28}, {264, 128, 1, 1}, {}},  {{1, 64, 24, 17}, {72, 64, 1, 1}, {}},
    {{24, 64, 28, 28}, {136, 64, 1, 1}, {}},   {{4, 64, 200}, {96, 64, 1}, {}},
    {{2, 64, 3, 8, 7}, {64, 64, 1, 1, 1}, {}},
};

class WgmmaPointwiseGpu : public testing::TestWithParam<ConvCase> {};

TEST_P(WgmmaPointwiseGpu, FpropWithBiasResidualAndRelu) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  for (const Layout from : {Layout::nhwc, Layout::nchw})
    for (const Layout to : {Layout::nhwc, Layout::nchw}) {
      GraphBuilder g("fprop");
      const Tensor x = g.input("x", c.x, DataType::f16, from);
      const Tensor w = g.input("w", c.w, DataType::f16);
      Dims bias_dims = Dims::filled(c.x.rank(), 1);
      bias_dims[1] = c.w[0];
      const Tensor bias = g.input("bias", bias_dims, DataType::f16);
      const Tensor residual = g.input("residual", output_dims(c), DataType::f16, to);
      g.output(g.relu(g.add(g.add(g.conv_fprop(x, w), bias), residual)), {.layout = to});
      expect_every_config_correct(g.finish(), "pointwise fprop " + words(c));
    }
}

TEST_P(WgmmaPointwiseGpu, DgradWithTwoResults) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  for (const Layout layout : {Layout::nhwc, Layout::nchw}) {
    GraphBuilder g("dgrad");
    const Tensor dy = g.input("dy", output_dims(c), DataType::bf16, layout);
    const Tensor dx = g.conv_dgrad(dy, g.input("w", c.w, DataType::bf16), c.x);
    g.output(dx, {.name = "dx", .type = DataType::bf16, .layout = layout});
    g.output(g.mul(dx, g.constant(0.5)), {.type = DataType::f32, .layout = layout});
    expect_every_config_correct(g.finish(), "pointwise dgrad " + words(c));
  }
}

TEST_P(WgmmaPointwiseGpu, Wgrad) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  for (const Layout layout : {Layout::nhwc, Layout::nchw})
    for (const DataType type : {DataType::f32, DataType::bf16}) {
      GraphBuilder g("wgrad");
      const Tensor dy = g.input("dy", output_dims(c), DataType::bf16, layout);
      const Tensor x = g.input("x", c.x, DataType::bf16, layout);
      g.output(g.conv_wgrad(dy, x, c.w), {.type = type});
      expect_every_config_correct(g.finish(), "pointwise wgrad " + words(c));
    }
}

// k side by side: channels of NHWC, positions of NCHW.
TEST_P(WgmmaPointwiseGpu, Tf32FpropAndWgrad) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  GraphBuilder forward("fprop", Precision::allow_tf32);
  const Tensor rows = forward.input("x", c.x, DataType::f32, Layout::nhwc);
  forward.output(forward.conv_fprop(rows, forward.input("w", c.w, DataType::f32)), {.layout = Layout::nhwc});
  expect_every_config_correct(forward.finish(), "tf32 pointwise fprop " + words(c));
  GraphBuilder g("wgrad", Precision::allow_tf32);
  const Tensor dy = g.input("dy", output_dims(c), DataType::f32), x = g.input("x", c.x, DataType::f32);
  g.output(g.conv_wgrad(dy, x, c.w));
  expect_every_config_correct(g.finish(), "tf32 pointwise wgrad " + words(c));
}

// Positions are the rows, and lie across k.
TEST_P(WgmmaPointwiseGpu, Tf32FpropOfPlanesWithBiasAndRelu) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  int64_t positions = 1;
  for (int i = 2; i < c.x.rank(); ++i) positions *= c.x[i];
  if (positions % 4 != 0 || c.w[1] % 4 != 0) GTEST_SKIP() << "lines of 16 bytes";
  for (const DataType type : {DataType::f32, DataType::f16}) {
    GraphBuilder g("fprop", Precision::allow_tf32);
    const Tensor y = g.conv_fprop(g.input("x", c.x, DataType::f32), g.input("w", c.w, DataType::f32));
    Dims bias_dims = Dims::filled(c.x.rank(), 1);
    bias_dims[1] = c.w[0];
    g.output(g.relu(g.add(y, g.input("bias", bias_dims, DataType::f32))), {.type = type});
    expect_every_config_correct(g.finish(), "tf32 planes " + words(c));
  }
}

INSTANTIATE_TEST_SUITE_P(, WgmmaPointwiseGpu, testing::ValuesIn(kPointwiseCases));

TEST(WgmmaGpu, Tf32MatmulWithTailsAndBatches) {
  FUSOR_NEEDS_HOPPER();
  for (const Dims& mnk : {Dims{128, 128, 32}, Dims{257, 136, 200}, Dims{16, 520, 1032}, Dims{520, 16, 1032},
                          Dims{1, 264, 36}, Dims{700, 776, 328}, Dims{131, 99, 4100}}) {
    GraphBuilder g("matmul", Precision::allow_tf32);
    const Tensor a = g.input("a", {2, mnk[0], mnk[2]}, DataType::f32);
    const Tensor b = g.input("b", {mnk[1], mnk[2]}, DataType::f32);
    const Tensor bias = g.input("bias", {1, mnk[1]}, DataType::f32);
    const Tensor c = g.add(g.matmul(a, g.transpose(b, {1, 0})), bias);
    expect_every_config_correct(g.finish({c}), "tf32 " + to_string(mnk));
  }
}

TEST(WgmmaGpu, Tf32IntoEveryLayoutAndType) {
  FUSOR_NEEDS_HOPPER();
  for (const Strides& strides : {Strides{200, 1}, Strides{1, 264}, Strides{401, 2}})
    for (const DataType type : {DataType::f32, DataType::bf16}) {
      GraphBuilder g("matmul", Precision::allow_tf32);
      const Tensor a = g.input("a", {260, 328}, DataType::f32);
      const Tensor b = g.input("b", {200, 328}, DataType::f32);
      g.output(g.matmul(a, g.transpose(b, {1, 0})), {.type = type, .strides = strides});
      expect_every_config_correct(g.finish(), "tf32 into " + to_string(strides));
    }
}

// Either operand may lie across k: it is on the rows, from registers.
TEST(WgmmaGpu, Tf32AcrossKWithTailsAndBatches) {
  FUSOR_NEEDS_HOPPER();
  for (const Dims& mnk : {Dims{128, 128, 32}, Dims{257, 136, 200}, Dims{16, 520, 1032}, Dims{520, 16, 1032},
                          Dims{5, 264, 36}, Dims{265, 3, 40}, Dims{700, 776, 328}, Dims{131, 99, 4100}})
    for (const bool second : {false, true}) {
      const int64_t m = mnk[0], n = mnk[1], k = mnk[2];
      const int64_t line_m = (m + 3) / 4 * 4, line_n = (n + 3) / 4 * 4;
      GraphBuilder g("matmul", Precision::allow_tf32);
      const Strides a_strides = second ? Strides{m * k, k, 1} : Strides{k * line_m, 1, line_m};
      const Strides b_strides = second ? Strides{line_n, 1} : Strides{1, k};
      const Tensor a = g.input("a", {2, m, k}, DataType::f32, TensorOptions{.strides = a_strides});
      const Tensor b = g.input("b", {k, n}, DataType::f32, TensorOptions{.strides = b_strides});
      const Tensor pre = g.add(g.matmul(a, b), g.input("bias", {1, n}, DataType::f32));
      const Tensor y = g.add(g.relu(pre), g.input("residual", {2, m, n}, DataType::f32));
      g.output(y, {.strides = Strides{m * line_n, line_n, 1}});
      expect_every_config_correct(g.finish(), fmt::format("tf32 {}, {}", second, to_string(mnk)));
    }
}

TEST(WgmmaGpu, Tf32AcrossKIntoEveryLayoutAndType) {
  FUSOR_NEEDS_HOPPER();
  for (const bool second : {false, true})
    for (const Strides& strides : {Strides{200, 1}, Strides{1, 264}, Strides{401, 2}})
      for (const DataType type : {DataType::f32, DataType::bf16}) {
        GraphBuilder g("matmul", Precision::allow_tf32);
        const Strides a_strides = second ? Strides{328, 1} : Strides{1, 264};
        const Strides b_strides = second ? Strides{200, 1} : Strides{1, 328};
        const Tensor a = g.input("a", {260, 328}, DataType::f32, TensorOptions{.strides = a_strides});
        const Tensor b = g.input("b", {328, 200}, DataType::f32, TensorOptions{.strides = b_strides});
        g.output(g.matmul(a, b), {.type = type, .strides = strides});
        expect_every_config_correct(g.finish(), fmt::format("tf32 {} into {}", second, to_string(strides)));
      }
}

TEST(WgmmaGpu, Tf32AcrossKOfAnUnbatchedOperandWithTwoResults) {
  FUSOR_NEEDS_HOPPER();
  GraphBuilder g("planes", Precision::allow_tf32);
  const Tensor a = g.input("a", {200, 72}, DataType::f32);
  const Tensor b = g.input("b", {3, 72, 332}, DataType::f32);
  const Tensor pre = g.output(g.matmul(a, b), {.name = "pre", .type = DataType::f32});
  g.output(g.gelu(pre), {.name = "y", .type = DataType::f16});
  expect_every_config_correct(g.finish(), "one filter of three planes");
}

TEST(WgmmaGpu, BytesInInt32) {
  FUSOR_NEEDS_HOPPER();
  for (const DataType first : {DataType::i8, DataType::u8})
    for (const DataType second : {DataType::i8, DataType::u8})
      for (const Dims& mnk : {Dims{128, 128, 128}, Dims{257, 136, 208}, Dims{16, 520, 1040},
                              Dims{520, 16, 1040}, Dims{1, 264, 48}, Dims{131, 99, 4112}})
        for (const DataType result : {DataType::i32, DataType::bf16}) {
          GraphBuilder g("matmul");
          const Tensor a = g.input("a", {2, mnk[0], mnk[2]}, first);
          const Tensor b = g.input("b", {mnk[1], mnk[2]}, second);
          const Tensor c = g.matmul(a, g.transpose(b, {1, 0}));
          const Tensor scale = g.input("scale", {1, mnk[1]}, DataType::f32);
          g.output(result == DataType::i32 ? c : g.mul(c, scale), {.type = result});
          expect_every_config_correct(g.finish(),
                                      fmt::format("{} x {} into {} {}", to_string(first), to_string(second),
                                                  to_string(result), to_string(mnk)));
        }
}

// fp8 as it is, in a graph that allows short sums.
class WgmmaFp8Gpu : public testing::TestWithParam<std::pair<DataType, DataType>> {};

TEST_P(WgmmaFp8Gpu, MatmulInShortSums) {
  FUSOR_NEEDS_HOPPER();
  const auto [first, second] = GetParam();
  for (const Dims& mnk : {Dims{128, 128, 128}, Dims{257, 136, 208}, Dims{16, 520, 1040}, Dims{520, 16, 1040},
                          Dims{1, 264, 48}, Dims{131, 99, 4112}, Dims{1000, 1100, 8192}})
    for (const DataType result : {DataType::f32, DataType::bf16}) {
      GraphBuilder g("matmul", Precision::allow_short_sums);
      const Tensor a = g.input("a", {mnk[0], mnk[2]}, first);
      const Tensor b = g.input("b", {mnk[1], mnk[2]}, second);
      const Tensor c = g.matmul(a, g.transpose(b, {1, 0}));
      g.output(g.mul(c, g.scalar("alpha", DataType::f32)), {.type = result});
      expect_every_config_correct(g.finish(),
                                  fmt::format("{} x {} into {} {}", to_string(first), to_string(second),
                                              to_string(result), to_string(mnk)));
    }
}

constexpr DataType kE4m3 = DataType::f8_e4m3, kE5m2 = DataType::f8_e5m2;
INSTANTIATE_TEST_SUITE_P(, WgmmaFp8Gpu,
                         testing::Values(std::pair{kE4m3, kE4m3}, std::pair{kE4m3, kE5m2},
                                         std::pair{kE5m2, kE4m3}, std::pair{kE5m2, kE5m2}));

TEST_P(WgmmaConvGpu, Fp8FpropInShortSums) {
  FUSOR_NEEDS_HOPPER();
  const ConvCase& c = GetParam();
  const int64_t groups = c.x[1] / c.w[1];
  if (c.w[1] % 16 != 0 || (groups > 1 && c.w[1] % 128 != 0)) GTEST_SKIP() << "lines of 16 bytes";
  GraphBuilder g("fprop", Precision::allow_short_sums);
  const Tensor x = g.input("x", c.x, DataType::f8_e4m3, Layout::nhwc);
  const Tensor w = g.input("w", c.w, DataType::f8_e4m3, Layout::nhwc);
  g.output(g.relu(g.conv_fprop(x, w, c.options)), {.type = DataType::bf16, .layout = Layout::nhwc});
  expect_every_config_correct(g.finish(), "fp8 fprop " + words(c));
}

TEST(WgmmaGpu, SameBitsInEveryRun) {
  FUSOR_NEEDS_HOPPER();
  GraphBuilder g("wgrad");
  const Tensor dy = g.input("dy", {8, 64, 28, 28}, DataType::bf16, Layout::nhwc);
  const Tensor x = g.input("x", {8, 64, 28, 28}, DataType::bf16, Layout::nhwc);
  g.output(g.conv_wgrad(dy, x, {64, 64, 3, 3}, {.padding = {1, 1}}), {.name = "dw", .layout = Layout::nhwc});
  DeviceRun run(g.finish());
  run.run();
  const std::vector<std::byte> first = run.host("dw");
  for (int i = 0; i < 100; ++i) {
    run.run();
    ASSERT_EQ(run.host("dw"), first) << "run " << i;
  }
}

}  // namespace
}  // namespace fusor
