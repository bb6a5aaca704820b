// Owns the tests of the mma engine on the GPU: every candidate of every case against the oracle.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "backend/engines/list.h"
#include "frontend/graph_builder.h"
#include "tests/gpu/device_run.h"
#include "tests/gpu/engines/contraction_cases.h"

namespace fusor {
namespace {

using namespace contraction_cases;

// The engine, and one for what is cut off around it; a contraction that it refuses has no candidate.
void expect_correct_on_tensor_cores(const Graph& graph, const std::string& what) {
  static const std::array<const Engine*, 2> kEngines = {&mma_engine(), &elementwise_engine()};
  expect_every_candidate_correct(graph, what, {.engine_list = kEngines});
}

#define FUSOR_NEEDS_TENSOR_CORES() \
  FUSOR_NEEDS_GPU();               \
  if (DeviceInfo::current().compute_capability < 80) GTEST_SKIP() << "needs sm_80"

constexpr DataType kTypes[] = {DataType::f16,     DataType::bf16, DataType::f8_e4m3,
                               DataType::f8_e5m2, DataType::i8,   DataType::u8};

DataType stored(DataType type) { return is_real(type) ? type : DataType::i32; }

TEST(MmaGpu, MatmulOfOddSizesInEveryType) {
  FUSOR_NEEDS_TENSOR_CORES();
  for (const DataType type : kTypes)
    for (const Dims& mnk : {Dims{1, 1, 1}, Dims{17, 33, 65}, Dims{128, 128, 64}, Dims{129, 67, 1000},
                            Dims{1, 300, 77}, Dims{300, 1, 5}, Dims{200, 264, 136}}) {
      GraphBuilder g("matmul");
      const Tensor a = g.input("a", {mnk[0], mnk[2]}, type);
      const Tensor b = g.input("b", {mnk[2], mnk[1]}, type);
      g.output(g.matmul(a, b), {.type = stored(type)});
      expect_correct_on_tensor_cores(g.finish(), fmt::format("{} {}", to_string(type), to_string(mnk)));
    }
}

TEST(MmaGpu, MatmulOfTwoTypes) {
  FUSOR_NEEDS_TENSOR_CORES();
  const std::pair<DataType, DataType> pairs[] = {{DataType::f16, DataType::f8_e4m3},
                                                 {DataType::f8_e5m2, DataType::bf16},
                                                 {DataType::i8, DataType::u8},
                                                 {DataType::u8, DataType::i8},
                                                 {DataType::i8, DataType::f16}};
  for (const auto& [first, second] : pairs) {
    GraphBuilder g("mixed");
    const Tensor c = g.matmul(g.input("a", {70, 144}, first), g.input("b", {144, 90}, second));
    const bool real = is_real(first) || is_real(second);
    g.output(c, {.type = real ? DataType::f32 : DataType::i32});
    expect_correct_on_tensor_cores(g.finish(), fmt::format("{} x {}", to_string(first), to_string(second)));
  }
}

TEST(MmaGpu, MatmulOfEveryTranspose) {
  FUSOR_NEEDS_TENSOR_CORES();
  for (const DataType type : {DataType::f16, DataType::i8})
    for (const Strides& a_strides : {Strides{72, 1}, Strides{1, 160}, Strides{145, 2}, Strides{73, 1}})
      for (const Strides& b_strides : {Strides{208, 1}, Strides{1, 72}})
        for (const Strides& c_strides : {Strides{208, 1}, Strides{1, 160}, Strides{401, 2}}) {
          GraphBuilder g("matmul");
          const Tensor a = g.input("a", {160, 72}, type, TensorOptions{.strides = a_strides});
          const Tensor b = g.input("b", {72, 200}, type, TensorOptions{.strides = b_strides});
          g.output(g.matmul(a, b), {.type = stored(type), .strides = c_strides});
          expect_correct_on_tensor_cores(g.finish(),
                                         fmt::format("{} {} {} {}", to_string(type), to_string(a_strides),
                                                     to_string(b_strides), to_string(c_strides)));
        }
}

TEST(MmaGpu, MatmulOfMisalignedOperands) {
  FUSOR_NEEDS_TENSOR_CORES();
  for (const int64_t alignment : {2, 4, 8}) {
    GraphBuilder g("misaligned");
    const Tensor a = g.input("a", {72, 136}, DataType::f16, TensorOptions{.alignment = alignment});
    const Tensor b = g.input("b", {136, 80}, DataType::f16, TensorOptions{.alignment = alignment});
    g.output(g.matmul(a, b), {.alignment = alignment});
    expect_correct_on_tensor_cores(g.finish(), fmt::format("alignment {}", alignment));
  }
}

TEST(MmaGpu, BatchesBroadcastBothWays) {
  FUSOR_NEEDS_TENSOR_CORES();
  const std::pair<Dims, Dims> shapes[] = {{{3, 24, 32}, {3, 32, 40}},
                                          {{3, 20, 30}, {30, 40}},
                                          {{2, 1, 24, 32}, {1, 3, 32, 40}},
                                          {{2, 1, 3, 1, 5, 6}, {1, 2, 1, 4, 6, 7}}};
  for (const auto& [a_dims, b_dims] : shapes) {
    GraphBuilder g("batched");
    const Tensor c = g.matmul(g.input("a", a_dims, DataType::f16), g.input("b", b_dims, DataType::f16));
    expect_correct_on_tensor_cores(g.finish({c}),
                                   fmt::format("{} x {}", to_string(a_dims), to_string(b_dims)));
  }
}

TEST(MmaGpu, EpilogueWithEverything) {
  FUSOR_NEEDS_TENSOR_CORES();
  expect_correct_on_tensor_cores(everything_after_a_matmul(150, 208, 88), "vectors");
  expect_correct_on_tensor_cores(everything_after_a_matmul(150, 210, 90), "single elements");
}

TEST(MmaGpu, ProloguesOnBothOperands) {
  FUSOR_NEEDS_TENSOR_CORES();
  for (const int64_t k : {127, 128}) {
    GraphBuilder g("prologue");
    const Tensor a = g.input("a", {61, k}, DataType::i8);
    const Tensor scale = g.input("scale", {1, k}, DataType::f32);
    const Tensor b = g.input("b", {k, 48}, DataType::f16);
    const Tensor c =
        g.matmul(g.mul(a, scale, {.type = DataType::f16}), g.add(b, g.constant(1), {.type = DataType::f16}));
    g.output(c, {.type = DataType::f32});
    expect_correct_on_tensor_cores(g.finish(), fmt::format("dequantise and shift, k {}", k));
  }
}

TEST(MmaGpu, SplitsOfLongSums) {
  FUSOR_NEEDS_TENSOR_CORES();
  for (const Dims& mnk : {Dims{64, 64, 5000}, Dims{40, 72, 4096}, Dims{130, 33, 2001}}) {
    GraphBuilder g("split");
    const Tensor a = g.input("a", {mnk[0], mnk[2]}, DataType::f16);
    const Tensor b = g.input("b", {mnk[2], mnk[1]}, DataType::f16);
    expect_correct_on_tensor_cores(g.finish({g.relu(g.matmul(a, b))}), to_string(mnk));
  }
}

TEST(MmaGpu, ConvolutionsOfEveryPassAndLayout) {
  FUSOR_NEEDS_TENSOR_CORES();
  for (const PaddedConv& c : kConvs)
    for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad})
      for (const Layout layout : {Layout::nchw, Layout::nhwc})
        expect_correct_on_tensor_cores(
            convolution(c, pass, DataType::f16, layout, ConvMode::cross_correlation),
            to_string(c, pass, DataType::f16, layout));
}

TEST(MmaGpu, ConvolutionsOfEveryType) {
  FUSOR_NEEDS_TENSOR_CORES();
  for (const DataType type : kTypes)
    for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad})
      for (const Layout layout : {Layout::nchw, Layout::nhwc})
        expect_correct_on_tensor_cores(convolution(kConvs[2], pass, type, layout, ConvMode::convolution),
                                       to_string(kConvs[2], pass, type, layout));
}

// --- TF32: fp32 operands in a graph that allows it ---

void expect_correct_in_tf32(const Graph& graph, const std::string& what) {
  static const std::array<const Engine*, 1> kEngines = {&mma_engine()};
  const PlannerOptions options{.build = {.compile = false}, .engine_list = kEngines};
  for (const Candidate& candidate : candidates(graph, DeviceInfo::current(), options))
    EXPECT_TRUE(candidate.notes.tf32) << what;
  expect_correct_on_tensor_cores(graph, what);
}

TEST(MmaGpu, Tf32MatmulOfOddSizes) {
  FUSOR_NEEDS_TENSOR_CORES();
  for (const Dims& mnk : {Dims{1, 1, 1}, Dims{17, 33, 65}, Dims{128, 128, 64}, Dims{129, 67, 1000},
                          Dims{1, 300, 77}, Dims{300, 1, 5}, Dims{200, 264, 136}, Dims{64, 48, 6001}}) {
    GraphBuilder g("matmul", Precision::allow_tf32);
    const Tensor a = g.input("a", {mnk[0], mnk[2]}, DataType::f32);
    const Tensor b = g.input("b", {mnk[2], mnk[1]}, DataType::f32);
    expect_correct_in_tf32(g.finish({g.matmul(a, b)}), to_string(mnk));
  }
}

TEST(MmaGpu, Tf32MatmulOfEveryTransposeAndAlignment) {
  FUSOR_NEEDS_TENSOR_CORES();
  for (const Strides& a_strides : {Strides{72, 1}, Strides{1, 160}, Strides{145, 2}, Strides{73, 1}})
    for (const Strides& b_strides : {Strides{208, 1}, Strides{1, 72}, Strides{2, 145}})
      for (const Strides& c_strides : {Strides{208, 1}, Strides{1, 160}, Strides{401, 2}})
        for (const int64_t alignment : {4, 8, 16}) {
          GraphBuilder g("matmul", Precision::allow_tf32);
          const Tensor a =
              g.input("a", {160, 72}, DataType::f32, {.strides = a_strides, .alignment = alignment});
          const Tensor b = g.input("b", {72, 200}, DataType::f32, {.strides = b_strides});
          g.output(g.matmul(a, b), {.strides = c_strides});
          expect_correct_in_tf32(
              g.finish(), fmt::format("{} {} {} alignment {}", to_string(a_strides), to_string(b_strides),
                                      to_string(c_strides), alignment));
        }
}

TEST(MmaGpu, Tf32WithPrologueMixtureAndBatches) {
  FUSOR_NEEDS_TENSOR_CORES();
  for (const int64_t k : {127, 128}) {
    GraphBuilder g("prologue", Precision::allow_tf32);
    const Tensor a = g.input("a", {61, k}, DataType::i8);
    const Tensor scale = g.input("scale", {1, k}, DataType::f32);
    const Tensor b = g.input("b", {3, k, 48}, DataType::f32);
    expect_correct_in_tf32(g.finish({g.relu(g.matmul(g.mul(a, scale), b))}), fmt::format("scale, k {}", k));
    GraphBuilder mixed("mixture", Precision::allow_tf32);
    const Tensor c =
        mixed.matmul(mixed.input("a", {70, k}, DataType::bf16), mixed.input("b", {k, 90}, DataType::f32));
    expect_correct_in_tf32(mixed.finish({c}), fmt::format("bf16 x fp32, k {}", k));
  }
}

TEST(MmaGpu, Tf32ConvolutionsOfEveryPassAndLayout) {
  FUSOR_NEEDS_TENSOR_CORES();
  for (const PaddedConv& c : kConvs)
    for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad})
      for (const Layout layout : {Layout::nchw, Layout::nhwc})
        expect_correct_in_tf32(
            convolution(c, pass, DataType::f32, layout, ConvMode::cross_correlation, Precision::allow_tf32),
            to_string(c, pass, DataType::f32, layout));
}

// What has no number stays what it is: a NaN whose last bits are set would round to zero.
TEST(MmaGpu, Tf32KeepsInfinitiesAndNans) {
  FUSOR_NEEDS_TENSOR_CORES();
  GraphBuilder g("not a number", Precision::allow_tf32);
  const Tensor a = g.input("a", {64, 64}, DataType::f32), b = g.input("b", {64, 64}, DataType::f32);
  const Tensor root = g.sqrt(a, {.name = "root"});  // NaN for half of the inputs
  expect_correct_in_tf32(g.finish({g.matmul(root, b)}), "NaN");
  GraphBuilder h("infinities", Precision::allow_tf32);
  const Tensor x = h.input("x", {64, 64}, DataType::f32), y = h.input("y", {64, 64}, DataType::f32);
  const Tensor infinity = h.constant(std::numeric_limits<double>::infinity());
  const Tensor few = h.binary_select(infinity, x, h.cmp_gt(x, h.constant(0.99)));
  expect_correct_in_tf32(h.finish({h.matmul(few, y)}), "infinities");
}

// Zero padding comes after the prologue: relu(0 * scale + shift) would not be zero.
TEST(MmaGpu, PaddingIsMaskedAfterThePrologue) {
  FUSOR_NEEDS_TENSOR_CORES();
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    GraphBuilder g("prologue");
    const Tensor x = g.input("x", {2, 16, 9, 9}, DataType::f16, layout);
    const Tensor scale = g.input("scale", {1, 16, 1, 1}, DataType::f32);
    const Tensor w = g.input("w", {24, 16, 3, 3}, DataType::f16, layout);
    const Tensor b = g.input("b", {1, 24, 1, 1}, DataType::f16);
    const Tensor shifted = g.relu(g.add(g.mul(x, scale), g.constant(1.5)), {.type = DataType::f16});
    const Tensor y = g.relu(g.add(g.conv_fprop(shifted, w, {.padding = {1, 1}}), b));
    expect_correct_on_tensor_cores(g.finish({y}), "scale, shift, relu, padded convolution, bias, relu");
  }
}

}  // namespace
}  // namespace fusor
