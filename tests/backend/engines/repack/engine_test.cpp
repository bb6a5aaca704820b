// Owns the tests of the wgmma_repacked engine that need no GPU: what it takes, its steps and scratch, and
// when its price wins.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "backend/build.h"
#include "backend/engines/list.h"
#include "frontend/graph_builder.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tests/backend/engines/repack/cases.h"

namespace fusor {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::Ge;

using namespace repacked;

TEST(WgmmaRepacked, TakesWhatLiesOtherwise) {
  EXPECT_EQ(rule(fprop({2, 64, 9, 9}, {64, 64, 3, 3})), "");
  EXPECT_EQ(rule(fprop({2, 64, 9, 9}, {64, 64, 3, 3}, {Layout::nhwc, Layout::nchw, Layout::nhwc})), "");
  EXPECT_EQ(rule(fprop({2, 64, 9, 9}, {64, 64, 3, 3}, {Layout::nhwc, Layout::nhwc, Layout::nchw})), "");
  EXPECT_EQ(rule(fprop({2, 20, 9, 9}, {64, 20, 3, 3}, kChannelsLast)), "");
  EXPECT_EQ(rule(fprop({2, 3, 9, 9}, {64, 3, 3, 3})), "");
}

TEST(WgmmaRepacked, RefusesWhatNeedsNoRepackingAndWhatItDoesNotHelp) {
  EXPECT_EQ(rule(fprop({2, 64, 9, 9}, {64, 64, 3, 3}, kChannelsLast)), "something-to-repack");
  EXPECT_EQ(rule(fprop({2, 64, 400, 400}, {64, 64, 3, 3}, {}, {.padding = {150, 150}})), "window-limits");
  const Fusion fusion = fusion_of(fprop({2, 64, 9, 9}, {64, 64, 3, 3}));
  EXPECT_EQ(test::supports(wgmma_repacked_engine(), fusion, DeviceInfo::named("A100")).refusal->rule,
            "sm-90");
  GraphBuilder g("fp32");
  const Tensor a = g.input("a", {64, 62}, DataType::f32);
  EXPECT_EQ(rule(g.finish({g.matmul(a, g.input("b", {62, 64}, DataType::f32))})), "16-bit-operands");
}

// x [2, 64, 14, 12], w [96, 64, 3, 3], all NCHW.
Graph tf32_convolution(ConvPass pass) {
  GraphBuilder g("conv", Precision::allow_tf32);
  const Dims x{2, 64, 14, 12}, w{96, 64, 3, 3}, y{2, 96, 12, 10};
  const Tensor first = g.input("first", pass == ConvPass::fprop ? x : y, DataType::f32);
  const Tensor second = g.input("second", pass == ConvPass::wgrad ? x : w, DataType::f32);
  return g.finish({pass == ConvPass::fprop   ? g.conv_fprop(first, second)
                   : pass == ConvPass::dgrad ? g.conv_dgrad(first, second, x)
                                             : g.conv_wgrad(first, second, w)});
}

// wgmma transposes 16 bits only: k, which for a dgrad is the output channels, must be packed.
TEST(WgmmaRepacked, PacksTf32AlongK) {
  EXPECT_EQ(rule(tf32_convolution(ConvPass::fprop)), "");
  EXPECT_EQ(rule(tf32_convolution(ConvPass::dgrad)), "");
  EXPECT_EQ(rule(tf32_convolution(ConvPass::wgrad)), "") << "taps as planes";
  EXPECT_TRUE(test::notes(wgmma_repacked_engine(), fusion_of(tf32_convolution(ConvPass::fprop)),
                          DeviceInfo::named("H200"))
                  .tf32);
  const Fusion fusion = fusion_of(tf32_convolution(ConvPass::dgrad));
  for (const EngineCandidate& candidate : test::candidates(wgmma_repacked_engine(), fusion, h200())) {
    const Lowered parts = test::lower(wgmma_repacked_engine(), fusion, candidate.config, h200());
    const bool swapped = candidate.config.knob("swap", 0) != 0;
    const TensorMap& filter = std::get<Launch>(parts.steps.at(2)).arguments.maps().at(swapped ? 0 : 1);
    EXPECT_EQ(filter.dims, (Dims{96, 9, 64}));
    EXPECT_EQ(filter.stride_bytes, (Dims{96 * 4, 9 * 96 * 4}));
    EXPECT_EQ(filter.box[0], 32);
    EXPECT_TRUE(filter.rounds_to_tf32);
  }
  GraphBuilder g("matmul", Precision::allow_tf32);
  const Tensor a = g.input("a", {128, 64}, DataType::f32, TensorOptions{.strides = Strides{1, 128}});
  const Graph product = g.finish({g.matmul(a, g.input("b", {64, 256}, DataType::f32))});
  EXPECT_EQ(rule(product), "");
  const Lowered parts = lowered(product, 0);
  // b, the larger one, may lie across k: it is on the rows.
  ASSERT_EQ(parts.steps.size(), 2u);
  EXPECT_THAT(parts.scratch, ElementsAre(128 * 64 * 4));
  const std::vector<TensorMap>& maps = std::get<Launch>(parts.steps[1]).arguments.maps();
  EXPECT_EQ(maps.at(0).stride_bytes[0], 256 * 4);
  EXPECT_EQ(maps.at(1).stride_bytes[0], 64 * 4);
}

// Planes of positions are the rows, whose elements may lie across k; the filter's may not.
TEST(WgmmaRepacked, OfAPointwiseConvolutionOnlyTheFilterIsPacked) {
  GraphBuilder g("dgrad", Precision::allow_tf32);
  const Dims x{2, 64, 14, 12}, y{2, 96, 14, 12};
  g.output(g.conv_dgrad(g.input("dy", y, DataType::f32), g.input("w", {96, 64, 1, 1}, DataType::f32), x));
  const Graph dgrad = g.finish();
  EXPECT_EQ(rule(dgrad), "");
  const Lowered parts = lowered(dgrad, 0);
  EXPECT_THAT(parts.scratch, ElementsAre(96 * 64 * 4));
  ASSERT_EQ(parts.steps.size(), 2u);
  EXPECT_THAT(pointers(parts, 0), ElementsAre(std::pair(Kind::operand, 1), std::pair(Kind::scratch, 0)));
  EXPECT_THAT(pointers(parts, 1), ElementsAre(std::pair(Kind::tensor_map, 0), std::pair(Kind::scratch_map, 0),
                                              std::pair(Kind::tensor_map, 2)));
  // Lines of 20 channels are as long as copies want them in either layout of the pixels.
  EXPECT_THAT(lowered(fprop({2, 20, 16, 8}, {64, 20, 1, 1}), 0).scratch, ElementsAre(Ge(64 * 24 * 2 - 8)));
  // Planes whose lines are no multiples of 16 bytes are packed as before.
  EXPECT_EQ(lowered(fprop({2, 64, 7, 7}, {64, 64, 1, 1}), 0).scratch.size(), 1u);
}

// fp16 holds every number of fp8; bf16 does, too, and meets bf16.
TEST(WgmmaRepacked, BytesSummedInFp32BecomeSixteenBits) {
  const auto product = [](DataType first, DataType second) {
    GraphBuilder g("matmul");
    const Tensor a = g.input("a", {128, 64}, first), b = g.input("b", {64, 256}, second);
    return g.finish({g.output(g.matmul(a, b, {.compute = DataType::f32}), {.type = DataType::f32})});
  };
  for (const auto& [second, packed, scratch] : {std::tuple(DataType::f8_e4m3, DataType::f16, size_t{2}),
                                                {DataType::u8, DataType::f16, 2},
                                                {DataType::f16, DataType::f16, 1},
                                                {DataType::bf16, DataType::bf16, 1}}) {
    const Graph graph = product(DataType::f8_e5m2, second);
    EXPECT_EQ(rule(graph), "");
    const Lowered parts = lowered(graph, 0);
    EXPECT_EQ(parts.scratch.size(), scratch);
    EXPECT_EQ(parts.scratch.at(0), 128 * 64 * 2);
    for (size_t i : {0, 1})
      EXPECT_EQ(std::get<Launch>(parts.steps.back()).arguments.maps().at(i).type, packed);
    expect_parts_agree_with_the_whole(graph, 1);
  }
  EXPECT_EQ(rule(product(DataType::f8_e4m3, DataType::f32)), "16-bit-operands");
}

TEST(WgmmaRepacked, PacksFp8AlongKWhereShortSumsAreAllowed) {
  GraphBuilder g("matmul", Precision::allow_short_sums);
  const Tensor a = g.input("a", {128, 64}, DataType::f8_e4m3), b = g.input("b", {64, 256}, DataType::f8_e4m3);
  const Graph graph = g.finish({g.output(g.matmul(a, b), {.type = DataType::bf16})});
  EXPECT_EQ(rule(graph), "");
  EXPECT_TRUE(test::notes(wgmma_repacked_engine(), fusion_of(graph), DeviceInfo::named("H200")).short_sums);
  EXPECT_THAT(lowered(graph, 0).scratch, ElementsAre(64 * 256));
}

// A refusal that names an op is where the planner cuts: only worth its while on a device that could take the
// rest.
TEST(WgmmaRepacked, RefusesTheDeviceBeforeAReduction) {
  GraphBuilder g("sums");
  const Tensor dy = g.input("dy", {2, 128, 9, 9}, DataType::f16, Layout::nhwc);
  const Tensor x = g.input("x", {2, 128, 9, 9}, DataType::f16, Layout::nhwc);
  const Tensor dw = g.conv_wgrad(dy, x, {128, 4, 3, 3}, {.padding = {1, 1}});
  g.output(dw, {.layout = Layout::nhwc});
  g.output(g.reduce_to(dw, ReductionMode::add, {128, 1, 1, 1}));
  const Graph graph = g.finish();
  EXPECT_EQ(rule(graph), "no-epilogue-reduction");
  const Support elsewhere =
      test::supports(wgmma_repacked_engine(), fusion_of(graph), DeviceInfo::named("A100"));
  EXPECT_EQ(elsewhere.refusal->rule, "sm-90");
}

TEST(WgmmaRepacked, CopiesOperandsThenMultipliesThenCopiesTheResult) {
  const Graph graph = fprop({2, 64, 12, 12}, {72, 64, 3, 3});
  EXPECT_THAT(entries(lowered(graph, 0)),
              ElementsAre("transpose_planes", "elementwise", "wgmma_contraction"));
  const Lowered copied = lowered(graph, 1);
  EXPECT_THAT(entries(copied),
              ElementsAre("transpose_planes", "elementwise", "wgmma_contraction", "transpose_planes"));
  EXPECT_THAT(copied.scratch, ElementsAre(2 * 64 * 144 * 2, 72 * 64 * 9 * 2, 2 * 72 * 100 * 2));
  EXPECT_THAT(pointers(copied, 0), ElementsAre(std::pair(Kind::operand, 0), std::pair(Kind::scratch, 0)));
  EXPECT_THAT(pointers(copied, 1), ElementsAre(std::pair(Kind::operand, 1), std::pair(Kind::scratch, 1)));
  EXPECT_THAT(pointers(copied, 2),
              ElementsAre(std::pair(Kind::scratch_map, 0), std::pair(Kind::scratch_map, 1),
                          std::pair(Kind::scratch_map, 2)));
  EXPECT_THAT(pointers(copied, 3), ElementsAre(std::pair(Kind::scratch, 2), std::pair(Kind::operand, 2)));
}

TEST(WgmmaRepacked, LeavesWhatLiesRightWhereItIs) {
  const Lowered only_w =
      lowered(fprop({2, 64, 9, 9}, {64, 64, 3, 3}, {Layout::nhwc, Layout::nchw, Layout::nhwc}), 0);
  EXPECT_EQ(only_w.steps.size(), 2u);
  EXPECT_THAT(pointers(only_w, 1),
              ElementsAre(std::pair(Kind::tensor_map, 0), std::pair(Kind::scratch_map, 0),
                          std::pair(Kind::tensor_map, 2)));
  const Lowered only_y =
      lowered(fprop({2, 64, 9, 9}, {64, 64, 3, 3}, {Layout::nhwc, Layout::nhwc, Layout::nchw}), 1);
  EXPECT_EQ(only_y.steps.size(), 2u);
  EXPECT_THAT(only_y.scratch, ElementsAre(2 * 64 * 49 * 2));
}

TEST(WgmmaRepacked, EpilogueRunsInTheKernelOrInTheCopy) {
  const Graph graph = fused({2, 64, 12, 12}, {64, 64, 3, 3});
  const Lowered copied = lowered(graph, 1);
  const Lowered finished = lowered(graph, 2);
  const int64_t results = 2 * 64 * 100;
  EXPECT_EQ(copied.scratch.at(2), results * 2);
  EXPECT_EQ(finished.scratch.at(2), results * 4) << "the product is fp32";
  EXPECT_EQ(pointers(copied, 3).size(), 2u) << "result";
  EXPECT_EQ(pointers(finished, 3).size(), 4u) << "product, bias, residual, result";
  EXPECT_THAT(pointers(finished, 2), Each(testing::Pair(Kind::scratch_map, testing::_)));
}

TEST(WgmmaRepacked, LinesOfOddChannelsAreFilledUp) {
  const Lowered odd = lowered(fprop({2, 20, 9, 9}, {64, 20, 3, 3}, kChannelsLast), 0);
  EXPECT_THAT(odd.scratch, ElementsAre(Ge(2 * 81 * 24 * 2 - 8), Ge(64 * 9 * 24 * 2 - 8)));
  const TensorMap& pixels = std::get<Launch>(odd.steps.at(2)).arguments.maps().at(0);
  EXPECT_EQ(pixels.dims[0], 20);
  EXPECT_EQ(pixels.stride_bytes[0], 48);
}

TEST(WgmmaRepacked, PartsOfASplitFollowThePackedOperands) {
  GraphBuilder g("wgrad");
  const Tensor dy = g.input("dy", {16, 64, 28, 28}, DataType::bf16);
  const Tensor x = g.input("x", {16, 64, 28, 28}, DataType::bf16);
  g.output(g.conv_wgrad(dy, x, {64, 64, 3, 3}, {.padding = {1, 1}}), {.type = DataType::f32});
  const Fusion fusion = fusion_of(g.finish());
  for (const EngineCandidate& candidate : test::candidates(wgmma_repacked_engine(), fusion, h200())) {
    if (candidate.config.knob("split", 1) == 1 || candidate.config.knob("repack_y", 0) != 1) continue;
    const Lowered lowered = test::lower(wgmma_repacked_engine(), fusion, candidate.config, h200());
    EXPECT_EQ(entries(lowered).at(3), "split_finish");
    ASSERT_EQ(lowered.scratch.size(), 4u);
    EXPECT_THAT(pointers(lowered, 2), Contains(std::pair(Kind::scratch, 3)));
    EXPECT_THAT(pointers(lowered, 3), ElementsAre(std::pair(Kind::scratch, 3), std::pair(Kind::scratch, 2)));
    return;
  }
  FAIL() << "no split";
}

TEST(WgmmaRepacked, GuardsSpeakOfTheFusionsOperands) {
  for (const int64_t way : {0, 1, 2}) {
    const Lowered parts = lowered(fused({2, 64, 12, 12}, {64, 64, 3, 3}), way);
    std::vector<int> guarded;
    for (const Guard& guard : parts.guards) guarded.push_back(guard.operand);
    EXPECT_THAT(guarded, testing::UnorderedElementsAre(0, 1, 2, 3, 4));
  }
}

TEST(WgmmaRepacked, ReadsMisalignedRowsAndStrides) {
  GraphBuilder g("matmul");
  const Tensor a = g.input("a", {130, 70}, DataType::bf16);
  const Tensor b = g.input("b", {70, 99}, DataType::bf16, TensorOptions{.strides = Strides{200, 2}});
  const Graph graph = g.finish({g.matmul(a, b)});
  EXPECT_EQ(rule(graph), "");
  const Lowered parts = lowered(graph, 0);
  EXPECT_EQ(parts.steps.size(), 3u);
  EXPECT_EQ(std::get<Launch>(parts.steps.back()).arguments.maps().at(0).stride_bytes[0], 144);
}

TEST(WgmmaRepacked, CarriesOpsBeforeOperandsOutInTheCopy) {
  GraphBuilder g("prologue");
  const Tensor a = g.input("a", {64, 64}, DataType::f32);
  const Tensor half = g.relu(a, {.name = "relu", .type = DataType::f16});
  const Graph graph = g.finish({g.matmul(half, g.input("b", {64, 64}, DataType::f16))});
  EXPECT_EQ(rule(graph), "");
  EXPECT_THAT(lowered(graph, 0).scratch, ElementsAre(64 * 64 * 2));
}

TEST(WgmmaRepacked, PartsAgreeWithTheWhole) {
  expect_parts_agree_with_the_whole(fprop({2, 20, 7, 6}, {12, 20, 3, 3}, {}, {.padding = {1, 1}}), 2);
  expect_parts_agree_with_the_whole(fprop({2, 8, 7, 6}, {12, 4, 3, 3}, kChannelsLast), 1);
  expect_parts_agree_with_the_whole(fused({2, 5, 7, 6}, {6, 5, 3, 2}), 3);
  for (const ConvPass pass : {ConvPass::dgrad, ConvPass::wgrad}) {
    GraphBuilder g("backward");
    const Dims x{2, 5, 7, 6}, w{9, 5, 3, 3};
    const Tensor dy = g.input("dy", {2, 9, 5, 4}, DataType::f16);
    const Tensor other = g.input("other", pass == ConvPass::dgrad ? w : x, DataType::f16);
    g.output(pass == ConvPass::dgrad ? g.conv_dgrad(dy, other, x) : g.conv_wgrad(dy, other, w));
    expect_parts_agree_with_the_whole(g.finish(), 2);
  }
  for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad})
    expect_parts_agree_with_the_whole(tf32_convolution(pass), 2);
  GraphBuilder g("matmul");
  const Tensor a = g.input("a", {3, 2, 6, 7}, DataType::bf16);
  const Tensor b = g.input("b", {7, 5}, DataType::f32, TensorOptions{.strides = Strides{2, 14}});
  const Tensor c = g.matmul(g.relu(a, {.type = DataType::bf16}), g.sqrt(g.abs(b), {.type = DataType::bf16}));
  g.output(c, {.name = "c", .type = DataType::f32});
  g.output(g.mul(c, g.constant(0.5)), {.strides = Strides{1500, 700, 100, 2}});
  expect_parts_agree_with_the_whole(g.finish(), 3);
}

TEST(WgmmaRepacked, CandidatesAreSettingsOfItsKnobs) {
  for (const Graph& graph : {fused({8, 64, 28, 28}, {64, 64, 3, 3}),
                             fprop({2, 64, 9, 9}, {64, 64, 3, 3}, {Layout::nhwc, Layout::nhwc, Layout::nchw}),
                             grouped(ConvPass::wgrad, {2, 128, 9, 9}, {128, 4, 3, 3}, kChannelsLast),
                             few_results(kStem, Layout::nhwc, false),
                             few_channels(kStemForward, Layout::nchw, true, DataType::f32),
                             strided_wgrad(kStemForward, Layout::nchw, true)}) {
    const Fusion fusion = fusion_of(graph);
    const std::vector<Knob> knobs = test::knobs(wgmma_repacked_engine(), fusion, h200());
    for (const EngineCandidate& candidate : test::candidates(wgmma_repacked_engine(), fusion, h200())) {
      EXPECT_EQ(candidate.config.engine, "wgmma_repacked");
      for (const auto& [name, value] : candidate.config.knobs) {
        const auto knob = std::ranges::find(knobs, name, &Knob::name);
        ASSERT_NE(knob, knobs.end()) << name;
        EXPECT_THAT(knob->values, Contains(value)) << name;
      }
    }
  }
}

// wgrad of TF32 and a stride: nothing but its phases can be multiplied.
TEST(WgmmaRepacked, PlansThatLeaveKnobsOutAreCarriedOutByARewriteThatThereIs) {
  GraphBuilder g("wgrad", Precision::allow_tf32);
  const Tensor dy = g.input("dy", {2, 64, 8, 8}, DataType::f32),
               x = g.input("x", {2, 64, 16, 16}, DataType::f32);
  const Fusion fusion =
      fusion_of(g.finish({g.conv_wgrad(dy, x, {64, 64, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}})}));
  ASSERT_TRUE(test::supports(wgmma_repacked_engine(), fusion, h200()));
  const EngineConfig best = test::candidates(wgmma_repacked_engine(), fusion, h200()).front().config;
  ASSERT_EQ(best.knob("phases", 0), 1);
  EngineConfig bare{best.engine, best.revision, {}};
  for (const char* knob : {"tile_m", "tile_n", "ping_pong", "split"}) bare.set(knob, best.knob(knob, 1));
  const Lowered asked = test::lower(wgmma_repacked_engine(), fusion, best, h200());
  EXPECT_EQ(test::lower(wgmma_repacked_engine(), fusion, bare, h200()).scratch, asked.scratch);
}

TEST(WgmmaRepacked, CopiesArePricedBesideTheProduct) {
  const Fusion fusion = fusion_of(fprop({128, 64, 56, 56}, {64, 64, 3, 3}, {}, {.padding = {1, 1}}));
  const double x_bytes = 128.0 * 64 * 56 * 56 * 2;
  for (const EngineCandidate& candidate : test::candidates(wgmma_repacked_engine(), fusion, h200())) {
    const bool copied = candidate.config.knob("repack_y", 0) == 1;
    EXPECT_NEAR(candidate.work.serial_dram_bytes, (copied ? 4 : 2) * x_bytes, 0.05 * x_bytes);
    EXPECT_GE(candidate.work.launches, copied ? 4 : 3);
    EXPECT_GT(static_cast<double>(candidate.work.scratch_bytes), (copied ? 2 : 1) * x_bytes);
  }
}

std::string chosen(const Graph& graph) {
  return build(graph, h200(), {.compile = false}).fusions.at(0).config.engine;
}

TEST(WgmmaRepacked, PriceDecides) {
  const ConvOptions padded{.padding = {1, 1}};
  EXPECT_EQ(chosen(fprop({128, 64, 56, 56}, {64, 64, 3, 3}, {}, padded)), "wgmma_repacked");
  EXPECT_EQ(chosen(fprop({32, 256, 28, 28}, {256, 256, 3, 3}, {}, padded)), "wgmma_repacked");
  EXPECT_EQ(chosen(fprop({128, 64, 56, 56}, {64, 64, 3, 3}, kChannelsLast, padded)), "wgmma");
  const Graph resnext = grouped(ConvPass::fprop, {128, 128, 56, 56}, {128, 4, 3, 3}, kChannelsLast);
  EXPECT_EQ(chosen(resnext), "wgmma_repacked");
  // Three channels fill a twentieth of the kernel's steps.
  const ConvOptions stem{.padding = {3, 3}, .stride = {2, 2}};
  EXPECT_EQ(chosen(fprop({128, 3, 224, 224}, {64, 3, 7, 7}, {}, stem)), "wgmma_narrow");
}

TEST(WgmmaRepacked, EveryKernelOfTf32Compiles) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad}) {
    const Fusion fusion = fusion_of(tf32_convolution(pass));
    std::vector<test::KernelCase> cases;
    test::add_kernels(wgmma_repacked_engine(), to_string(pass).data(), fusion, h200(), cases);
    test::expect_all_compiled(cases);
  }
}

TEST(WgmmaRepacked, EveryKernelCompiles) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  std::vector<test::KernelCase> kernels;
  for (const int64_t way : {0, 1, 2})
    test::add_kernels(fmt::format("way {}", way), lowered(fused({2, 20, 13, 11}, {36, 20, 3, 3}), way),
                      kernels);
  test::expect_all_compiled(kernels);
}

}  // namespace
}  // namespace fusor
