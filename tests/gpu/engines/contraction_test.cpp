// Owns the tests of matmul and convolution on the GPU: every pass, type, odd size, stride and padding, fused
// and plain.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "frontend/graph_builder.h"
#include "tests/gpu/device_run.h"
#include "tests/gpu/engines/contraction_cases.h"

namespace fusor {
namespace {

using namespace contraction_cases;

TEST(MatmulGpu, OddSizesInEveryType) {
  FUSOR_NEEDS_GPU();
  for (const DataType type : {DataType::f64, DataType::f32, DataType::f16, DataType::bf16, DataType::f8_e4m3,
                              DataType::f8_e5m2, DataType::i64, DataType::i32, DataType::i8, DataType::u8})
    for (const Dims& mnk : {Dims{1, 1, 1}, Dims{17, 33, 65}, Dims{128, 128, 64}, Dims{129, 67, 1000},
                            Dims{1, 300, 77}, Dims{300, 1, 5}}) {
      GraphBuilder g("matmul");
      const Tensor a = g.input("a", {mnk[0], mnk[2]}, type);
      const Tensor b = g.input("b", {mnk[2], mnk[1]}, type);
      g.output(g.matmul(a, b), {.type = is_real(type) ? type : DataType::i32});
      expect_correct(g.finish(), fmt::format("{} {}", to_string(type), to_string(mnk)));
    }
}

TEST(MatmulGpu, TransposedAndPaddedOperands) {
  FUSOR_NEEDS_GPU();
  for (const Strides& a_strides : {Strides{70, 1}, Strides{1, 45}, Strides{143, 2}})
    for (const Strides& b_strides : {Strides{50, 1}, Strides{1, 70}})
      for (const Strides& c_strides : {Strides{50, 1}, Strides{1, 45}, Strides{101, 2}}) {
        GraphBuilder g("matmul");
        const Tensor a = g.input("a", {45, 70}, DataType::f16, TensorOptions{.strides = a_strides});
        const Tensor b = g.input("b", {70, 50}, DataType::f16, TensorOptions{.strides = b_strides});
        g.output(g.matmul(a, b), {.strides = c_strides});
        expect_correct(g.finish(), fmt::format("{} {} {}", to_string(a_strides), to_string(b_strides),
                                               to_string(c_strides)));
      }
}

TEST(MatmulGpu, BatchesBroadcastBothWays) {
  FUSOR_NEEDS_GPU();
  const std::pair<Dims, Dims> shapes[] = {{{3, 20, 30}, {3, 30, 40}},
                                          {{3, 20, 30}, {30, 40}},
                                          {{2, 1, 20, 30}, {1, 3, 30, 40}},
                                          {{1, 20, 30}, {5, 30, 40}},
                                          {{2, 1, 3, 1, 5, 6}, {1, 2, 1, 4, 6, 7}}};
  for (const auto& [a_dims, b_dims] : shapes) {
    GraphBuilder g("batched");
    const Tensor c = g.matmul(g.input("a", a_dims, DataType::f16), g.input("b", b_dims, DataType::f16));
    expect_correct(g.finish({c}), fmt::format("{} x {}", to_string(a_dims), to_string(b_dims)));
  }
}

TEST(MatmulGpu, EpilogueWithEverything) {
  FUSOR_NEEDS_GPU();
  expect_correct(everything_after_a_matmul(150, 210, 90), "two stores, two biases, residual, scalar");
}

TEST(MatmulGpu, ProloguesOnBothOperands) {
  FUSOR_NEEDS_GPU();
  GraphBuilder g("prologue");
  const Tensor a = g.input("a", {61, 127}, DataType::i8);
  const Tensor scale = g.input("scale", {1, 127}, DataType::f32);
  const Tensor b = g.input("b", {127, 45}, DataType::f16);
  const Tensor c = g.matmul(g.mul(a, scale), g.add(b, g.constant(1)));
  g.output(c, {.type = DataType::f32});
  expect_correct(g.finish(), "dequantise and shift");
}

TEST(MatmulGpu, SumOfTheResultIsCutOff) {
  FUSOR_NEEDS_GPU();
  GraphBuilder g("dbias");
  const Tensor c = g.matmul(g.input("a", {70, 40}, DataType::f16), g.input("b", {40, 90}, DataType::f16));
  g.output(c, {.name = "c"});
  g.output(g.reduce(c, ReductionMode::add, {0}), {.type = DataType::f32});
  expect_correct(g.finish(), "matmul and column sums");
}

TEST(MatmulGpu, GatedPair) {
  FUSOR_NEEDS_GPU();
  GraphBuilder g("swiglu");
  const Tensor x = g.input("x", {33, 64}, DataType::bf16);
  const Tensor gate = g.matmul(x, g.input("wg", {64, 96}, DataType::bf16));
  const Tensor up = g.matmul(x, g.input("wu", {64, 96}, DataType::bf16));
  g.output(
      g.matmul(g.mul(g.swish(gate), up, {.type = DataType::bf16}), g.input("wd", {96, 64}, DataType::bf16)));
  expect_correct(g.finish(), "swiglu");
}

TEST(MatmulGpu, EveryCandidateOnTensorCoresWithTails) {
  FUSOR_NEEDS_GPU();
  for (const DataType type : {DataType::f16, DataType::bf16})
    for (const Dims& mnk : {Dims{128, 256, 64}, Dims{200, 312, 136}, Dims{8, 520, 1000}, Dims{1000, 24, 72},
                            Dims{640, 640, 8}}) {
      GraphBuilder g("matmul");
      const Tensor a = g.input("a", {mnk[0], mnk[2]}, type);
      const Tensor b = g.input("b", {mnk[2], mnk[1]}, type);
      expect_every_candidate_correct(g.finish({g.matmul(a, b)}),
                                     fmt::format("{} {}", to_string(type), to_string(mnk)));
    }
}

TEST(MatmulGpu, EveryCandidateForEveryTranspose) {
  FUSOR_NEEDS_GPU();
  for (const Strides& a_strides : {Strides{72, 1}, Strides{1, 160}})
    for (const Strides& b_strides : {Strides{208, 1}, Strides{1, 72}})
      for (const Strides& c_strides : {Strides{208, 1}, Strides{1, 160}}) {
        GraphBuilder g("matmul");
        const Tensor a = g.input("a", {160, 72}, DataType::f16, TensorOptions{.strides = a_strides});
        const Tensor b = g.input("b", {72, 200}, DataType::f16, TensorOptions{.strides = b_strides});
        g.output(g.matmul(a, b), {.strides = c_strides});
        expect_every_candidate_correct(g.finish(), fmt::format("{} {} {}", to_string(a_strides),
                                                               to_string(b_strides), to_string(c_strides)));
      }
}

TEST(MatmulGpu, EveryCandidateOfAFusedBatch) {
  FUSOR_NEEDS_GPU();
  GraphBuilder g("fused");
  const Tensor a = g.input("a", {2, 3, 136, 80}, DataType::bf16);
  const Tensor b = g.input("b", {80, 264}, DataType::bf16);
  const Tensor bias = g.input("bias", {1, 264}, DataType::bf16);
  const Tensor residual = g.input("residual", {2, 3, 136, 264}, DataType::bf16);
  const Tensor pre = g.add(g.matmul(a, b), bias);
  g.output(pre, {.name = "pre", .type = DataType::f32});
  g.output(g.add(g.gelu(pre), residual), {.type = DataType::bf16});
  expect_every_candidate_correct(g.finish(), "batch, bias, gelu, residual, pre-activation");
}

void check(const PaddedConv& c, ConvPass pass, DataType type, Layout layout, ConvMode mode) {
  expect_correct(convolution(c, pass, type, layout, mode), to_string(c, pass, type, layout));
}

TEST(ConvGpu, EveryPassAndLayoutInFp16) {
  FUSOR_NEEDS_GPU();
  for (const PaddedConv& c : kConvs)
    for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad})
      for (const Layout layout : {Layout::nchw, Layout::nhwc})
        check(c, pass, DataType::f16, layout, ConvMode::cross_correlation);
}

TEST(ConvGpu, MirroredFilter) {
  FUSOR_NEEDS_GPU();
  for (const PaddedConv& c : {kConvs[1], kConvs[2], kConvs[9]})
    for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad})
      check(c, pass, DataType::f32, Layout::nchw, ConvMode::convolution);
}

TEST(ConvGpu, EveryType) {
  FUSOR_NEEDS_GPU();
  for (const DataType type :
       {DataType::f64, DataType::f32, DataType::bf16, DataType::f8_e4m3, DataType::f8_e5m2, DataType::i8})
    for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad})
      check(kConvs[2], pass, type, Layout::nhwc, ConvMode::cross_correlation);
}

TEST(ConvGpu, BiasAndReluInOneKernel) {
  FUSOR_NEEDS_GPU();
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    GraphBuilder g("fused");
    const Tensor x = g.input("x", {2, 64, 20, 23}, DataType::f16, layout);
    const Tensor w = g.input("w", {72, 64, 3, 3}, DataType::f16, layout);
    const Tensor b = g.input("b", {1, 72, 1, 1}, DataType::f16);
    const Graph graph = g.finish({g.relu(g.add(g.conv_fprop(x, w, {.padding = {1, 1}}), b))});
    EXPECT_EQ(build(graph, DeviceInfo::current()).fusions.size(), 1u);
    expect_correct(graph, "conv + bias + relu");
  }
}

// Zero padding comes after the prologue: relu(0 * scale + shift) would not be zero.
TEST(ConvGpu, PaddingIsMaskedAfterThePrologue) {
  FUSOR_NEEDS_GPU();
  GraphBuilder g("prologue");
  const Tensor x = g.input("x", {2, 16, 9, 9}, DataType::f16, Layout::nhwc);
  const Tensor scale = g.input("scale", {1, 16, 1, 1}, DataType::f32);
  const Tensor w = g.input("w", {24, 16, 3, 3}, DataType::f16, Layout::nhwc);
  const Tensor shifted = g.relu(g.add(g.mul(x, scale), g.constant(1.5)));
  expect_correct(g.finish({g.conv_fprop(shifted, w, {.padding = {1, 1}})}),
                 "scale, shift, relu before a padded convolution");
}

TEST(ConvGpu, ConcatenationOfTwoConvolutionsWritesInPlace) {
  FUSOR_NEEDS_GPU();
  GraphBuilder g("inception");
  const Tensor x = g.input("x", {2, 16, 12, 12}, DataType::f16, Layout::nhwc);
  const Tensor a = g.relu(g.conv_fprop(x, g.input("w1", {8, 16, 1, 1}, DataType::f16, Layout::nhwc)),
                          {.type = DataType::f16});
  const Tensor b =
      g.relu(g.conv_fprop(x, g.input("w3", {24, 16, 3, 3}, DataType::f16, Layout::nhwc), {.padding = {1, 1}}),
             {.type = DataType::f16});
  g.output(g.concatenate({a, b}, 1), {.layout = Layout::nhwc});
  expect_correct(g.finish(), "inception");
}

}  // namespace
}  // namespace fusor
