// Owns the tests of the wgmma_repacked engine that need no GPU: what it takes, its steps and scratch, and
// when its price wins.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "backend/build.h"
#include "backend/engines.h"
#include "backend/engines/joined_pixels.h"
#include "backend/engines/repack.h"
#include "backend/engines/stride_phases.h"
#include "backend/engines/unrolled_columns.h"
#include "backend/planner.h"
#include "frontend/graph_builder.h"
#include "heuristics/time_model.h"
#include "tests/backend/compiled_kernels.h"
#include "tests/backend/reference_test_support.h"

namespace fusor {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::Ge;

DeviceInfo h200() { return DeviceInfo::named("H200"); }

Fusion fusion_of(const Graph& graph) {
  std::vector<int> ops;
  for (size_t i = 0; i < graph.ops.size(); ++i) ops.push_back(static_cast<int>(i));
  return make_fusion(graph, fold_views(graph), ops);
}

struct Layouts {
  Layout x = Layout::nchw, w = Layout::nchw, y = Layout::nchw;
};
constexpr Layouts kChannelsLast{Layout::nhwc, Layout::nhwc, Layout::nhwc};

Graph fprop(const Dims& x, const Dims& w, Layouts layouts = {}, const ConvOptions& options = {}) {
  GraphBuilder g("fprop");
  const Tensor y = g.conv_fprop(g.input("x", x, DataType::f16, layouts.x),
                                g.input("w", w, DataType::f16, layouts.w), options);
  g.output(y, {.name = "y", .layout = layouts.y});
  return g.finish();
}

// relu(conv + bias) + residual, everything NCHW.
Graph fused(const Dims& x, const Dims& w) {
  GraphBuilder g("fused");
  const Tensor y = g.conv_fprop(g.input("x", x, DataType::f16), g.input("w", w, DataType::f16));
  const Tensor bias = g.input("bias", {1, w[0], 1, 1}, DataType::f16);
  const Tensor residual = g.input("residual", y.dims, DataType::f16);
  g.output(g.add(g.relu(g.add(y, bias)), residual), {.name = "y"});
  return g.finish();
}

std::string rule(const Graph& graph) {
  const Support support = wgmma_repacked_engine().supports(fusion_of(graph), h200());
  return support ? "" : support.refusal->rule;
}

// A setting without a split.
EngineConfig config(const Fusion& fusion, int64_t repack_y) {
  for (const EngineCandidate& candidate : wgmma_repacked_engine().candidates(fusion, h200()))
    if (candidate.config.knob("repack_y", -1) == repack_y) {
      EngineConfig whole = candidate.config;
      whole.set("split", 1);
      return whole;
    }
  return {};
}

Lowered lowered(const Graph& graph, int64_t repack_y) {
  const Fusion fusion = fusion_of(graph);
  return wgmma_repacked_engine().lower(fusion, config(fusion, repack_y), h200());
}

std::vector<std::string> entries(const Lowered& lowered) {
  std::vector<std::string> found;
  for (const Step& step : lowered.steps) found.push_back(std::get<Launch>(step).entry);
  return found;
}

using Kind = Patch::Kind;
// What the patches of a step say: kind and index.
std::vector<std::pair<Kind, int>> pointers(const Lowered& lowered, size_t step) {
  std::vector<std::pair<Kind, int>> found;
  const ArgumentBlock& block = std::get<Launch>(lowered.steps.at(step)).arguments;
  for (const Patch& patch : block.patches()) found.emplace_back(patch.kind, patch.index);
  return found;
}

// Carries the three parts out on the CPU, with scratch full of poison.
void run(const Repacked& repacked, const HostTensors& tensors) {
  std::vector<std::vector<std::byte>> scratch;
  for (const int64_t bytes : repacked.scratch)
    scratch.emplace_back(static_cast<size_t>(bytes), std::byte{0xff});
  for (const int zeroed : repacked.zeroed)
    std::ranges::fill(scratch[static_cast<size_t>(zeroed)], std::byte{0});
  std::vector<void*> operands;
  for (const Operand& operand : repacked.core.operands)
    operands.push_back(operand.tensor < 0 ? nullptr
                                          : tensors.pointers()[static_cast<size_t>(operand.tensor)]);
  for (size_t i = 0; i < scratch.size(); ++i)
    operands[operands.size() - scratch.size() + i] = scratch[i].data();
  for (const Fusion* part : {&repacked.loads, &repacked.core, &repacked.stores})
    if (!part->after.empty()) evaluate(*part, operands, Reading::oracle);
}

void expect_same_bytes(const Graph& graph, const HostTensors& parts, const HostTensors& whole,
                       const std::string& what) {
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    if (graph.tensors[i].is_virtual()) continue;
    EXPECT_EQ(parts.bytes(static_cast<int>(i)), whole.bytes(static_cast<int>(i)))
        << graph.name << " " << graph.tensors[i].name << " " << what;
  }
}

void expect_parts_agree_with_the_whole(const Graph& graph, size_t ways, int64_t joined = 1) {
  const Fusion fusion = fusion_of(graph);
  const Contraction view = contraction_of(fusion).value();
  const HostTensors whole(graph);
  whole.run(fusion, Reading::oracle);
  EXPECT_EQ(ways_out(fusion, view, joined).size(), ways);
  for (const WayOut way : ways_out(fusion, view, joined)) {
    const HostTensors parts(graph);
    run(repack(fusion, view, {{true, true}, joined}, way), parts);
    expect_same_bytes(graph, parts, whole, fmt::format("way {}", static_cast<int>(way)));
  }
}

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
  EXPECT_EQ(wgmma_repacked_engine().supports(fusion, DeviceInfo::named("A100")).refusal->rule, "sm-90");
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
  EXPECT_TRUE(wgmma_repacked_engine().notes_on(fusion_of(tf32_convolution(ConvPass::fprop))).tf32);
  const Fusion fusion = fusion_of(tf32_convolution(ConvPass::dgrad));
  for (const EngineCandidate& candidate : wgmma_repacked_engine().candidates(fusion, h200())) {
    const Lowered parts = wgmma_repacked_engine().lower(fusion, candidate.config, h200());
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
  EXPECT_TRUE(wgmma_repacked_engine().notes_on(fusion_of(graph)).short_sums);
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
  const Support elsewhere = wgmma_repacked_engine().supports(fusion_of(graph), DeviceInfo::named("A100"));
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
  for (const EngineCandidate& candidate : wgmma_repacked_engine().candidates(fusion, h200())) {
    if (candidate.config.knob("split", 1) == 1 || candidate.config.knob("repack_y", 0) != 1) continue;
    const Lowered lowered = wgmma_repacked_engine().lower(fusion, candidate.config, h200());
    EXPECT_EQ(entries(lowered).at(3), "direct_finish");
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

Graph grouped(ConvPass pass, const Dims& x, const Dims& w, Layouts layouts) {
  GraphBuilder g("grouped");
  const ConvOptions options{.padding = {1, 1}};
  const Dims y{x[0], w[0], x[2], x[3]};
  const Tensor first = g.input("first", pass == ConvPass::fprop ? x : y, DataType::f16,
                               pass == ConvPass::fprop ? layouts.x : layouts.y);
  const Tensor second = g.input("second", pass == ConvPass::wgrad ? x : w, DataType::f16,
                                pass == ConvPass::wgrad ? layouts.x : layouts.w);
  const Tensor result = pass == ConvPass::fprop   ? g.conv_fprop(first, second, options)
                        : pass == ConvPass::dgrad ? g.conv_dgrad(first, second, x, options)
                                                  : g.conv_wgrad(first, second, w, options);
  const Layout layout = pass == ConvPass::fprop ? layouts.y : pass == ConvPass::dgrad ? layouts.x : layouts.w;
  g.output(g.mul(g.relu(result), g.constant(0.5)),
           {.name = "result", .type = DataType::f16, .layout = layout});
  return g.finish();
}
constexpr ConvPass kPasses[] = {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad};

TEST(WgmmaRepacked, JoinedGroupsAgreeWithTheWhole) {
  for (const ConvPass pass : kPasses)
    for (const Layouts& layouts : {kChannelsLast, Layouts{}}) {
      const size_t ways = pass == ConvPass::wgrad || layouts.x == Layout::nhwc ? 1 : 3;
      for (const int64_t joined : {2, 3, 6})
        expect_parts_agree_with_the_whole(grouped(pass, {2, 12, 7, 6}, {18, 2, 3, 3}, layouts), ways, joined);
    }
}

TEST(WgmmaRepacked, JoinsGroupsIntoBlocksOrAltogether) {
  const auto joined = [](const Dims& x, const Dims& w, ConvPass pass = ConvPass::fprop) {
    const Fusion fusion = fusion_of(grouped(pass, x, w, kChannelsLast));
    return joined_groups(fusion, contraction_of(fusion).value(), 64);
  };
  EXPECT_EQ(joined({2, 128, 9, 9}, {128, 4, 3, 3}), 16);
  EXPECT_EQ(joined({2, 128, 9, 9}, {256, 4, 3, 3}), 16);
  EXPECT_EQ(joined({2, 128, 9, 9}, {256, 4, 3, 3}, ConvPass::dgrad), 8) << "of 8 output channels each";
  EXPECT_EQ(joined({2, 32, 9, 9}, {32, 4, 3, 3}), 8) << "all of them are less than a block";
  EXPECT_EQ(joined({2, 96, 9, 9}, {96, 8, 3, 3}), 12) << "no whole blocks";
  EXPECT_EQ(joined({2, 192, 9, 9}, {192, 24, 3, 3}), 8);
  EXPECT_EQ(joined({2, 128, 9, 9}, {128, 64, 3, 3}), 1);
  EXPECT_EQ(joined({2, 40, 9, 9}, {40, 40, 3, 3}), 1);
  EXPECT_EQ(joined({2, 128, 9, 9}, {128, 1, 3, 3}), 1) << "depthwise";
}

TEST(WgmmaRepacked, JoinedGroupsFillTheFilterWithZerosFirst) {
  const Graph graph = grouped(ConvPass::fprop, {2, 128, 9, 9}, {128, 4, 3, 3}, kChannelsLast);
  EXPECT_EQ(rule(graph), "");
  const Lowered parts = lowered(graph, 0);
  ASSERT_EQ(parts.steps.size(), 3u);
  const Fill& fill = std::get<Fill>(parts.steps[0]);
  EXPECT_EQ(fill.scratch, 0);
  EXPECT_EQ(fill.bytes, 128 * 9 * 64 * 2);
  EXPECT_EQ(parts.scratch.at(0), fill.bytes);
  EXPECT_THAT(pointers(parts, 1), ElementsAre(std::pair(Kind::operand, 1), std::pair(Kind::scratch, 0)));
  EXPECT_EQ(std::get<Launch>(parts.steps[2]).entry, "wgmma_contraction");
  const Lowered wgrad = lowered(grouped(ConvPass::wgrad, {2, 128, 9, 9}, {128, 4, 3, 3}, kChannelsLast), 2);
  EXPECT_THAT(entries(wgrad), ElementsAre("wgmma_contraction", "elementwise"));
  EXPECT_EQ(wgrad.scratch.at(0), 128 * 9 * 64 * 4);
}

TEST(WgmmaRepacked, ZerosOfJoinedGroupsArePriced) {
  const Fusion fusion =
      fusion_of(grouped(ConvPass::fprop, {128, 128, 56, 56}, {128, 4, 3, 3}, kChannelsLast));
  const double dense = 2.0 * 128 * 56 * 56 * 128 * 64 * 9;
  for (const EngineCandidate& candidate : wgmma_repacked_engine().candidates(fusion, h200())) {
    EXPECT_GE(candidate.work.tensor_flops, dense);
    EXPECT_EQ(candidate.work.fills, 1);
    EXPECT_LT(candidate.work.serial_dram_bytes, 1e6);
  }
}

// --- Joined pixels ---

struct FewResults {
  ConvPass pass = ConvPass::dgrad;
  Dims x, w;
  ConvOptions options;
};

// dgrad of few input channels, or fprop of few output channels.
Graph few_results(const FewResults& c, Layout layout, bool fused, DataType type = DataType::f16) {
  GraphBuilder g("few results", type == DataType::f32 ? Precision::allow_tf32 : Precision::exact);
  const Tensor w = g.input("w", c.w, type, layout);
  Tensor result;
  if (c.pass == ConvPass::dgrad) {
    GraphBuilder shape("shape");
    const Dims y = shape.conv_fprop(shape.input("x", c.x, type), shape.input("w", c.w, type), c.options).dims;
    result = g.conv_dgrad(g.input("dy", y, type, layout), w, c.x, c.options);
  } else {
    result = g.conv_fprop(g.input("x", c.x, type, layout), w, c.options);
  }
  if (fused) {
    Dims bias_dims = Dims::filled(c.x.rank(), 1);
    bias_dims[1] = result.dims[1];
    result = g.add(result, g.input("bias", bias_dims, type));
    result = g.add(g.relu(result), g.input("residual", result.dims, type));
  }
  g.output(g.mul(result, g.constant(0.5)), {.name = "result", .type = type, .layout = layout});
  return g.finish();
}

const FewResults kFewResults[] = {
    {ConvPass::dgrad, {2, 3, 16, 16}, {8, 3, 7, 7}, {.padding = {3, 3}, .stride = {2, 2}}},
    {ConvPass::dgrad, {2, 3, 15, 17}, {9, 3, 7, 7}, {.padding = {3, 3}, .stride = {2, 2}}},
    {ConvPass::dgrad, {1, 2, 13, 11}, {8, 2, 2, 1}, {.stride = {3, 3}}},
    {ConvPass::dgrad,
     {1, 1, 14, 9},
     {8, 1, 5, 4},
     {.pre_padding = {1, 2}, .post_padding = {0, 3}, .stride = {3, 1}}},
    {ConvPass::dgrad, {2, 3, 9, 8}, {8, 3, 3, 3}, {.padding = {1, 1}}},
    {ConvPass::dgrad, {1, 3, 8, 8}, {8, 3, 4, 4}, {.stride = {4, 4}}},
    {ConvPass::dgrad,
     {2, 3, 12, 10},
     {8, 3, 5, 5},
     {.padding = {4, 4}, .stride = {2, 2}, .mode = ConvMode::convolution}},
    {ConvPass::dgrad, {2, 2, 29}, {8, 2, 5}, {.padding = {2}, .stride = {2}}},
    {ConvPass::dgrad, {1, 2, 5, 8, 7}, {8, 2, 3, 3, 3}, {.padding = {1, 1, 1}, .stride = {2, 2, 2}}},
    {ConvPass::fprop, {2, 8, 9, 11}, {3, 8, 3, 3}, {.padding = {1, 1}}},
    {ConvPass::fprop, {1, 9, 14, 13}, {2, 9, 4, 3}, {.padding = {1, 2}, .stride = {2, 3}}},
    {ConvPass::fprop, {1, 8, 12, 9}, {1, 8, 3, 3}, {.padding = {1, 1}, .mode = ConvMode::convolution}},
};

TEST(WgmmaRepacked, JoinedPixelsAgreeWithTheWhole) {
  for (const FewResults& c : kFewResults)
    for (const Layout layout : {Layout::nhwc, Layout::nchw})
      for (const bool fused : {false, true}) {
        const Graph graph = few_results(c, layout, fused);
        const Fusion fusion = fusion_of(graph);
        const Contraction view = contraction_of(fusion).value();
        const HostTensors whole(graph);
        whole.run(fusion, Reading::oracle);
        int joined = 0;
        for (const int64_t pixels : {1, 2, 4, 6}) {
          const auto way = way_out_of_pixels(fusion, view, pixels);
          if (!way) continue;
          ++joined;
          EXPECT_EQ(*way, fused ? WayOut::finished : WayOut::copied);
          const Repacked repacked = repack(fusion, view, {{layout == Layout::nchw, true}, 1, pixels}, *way);
          EXPECT_TRUE(contraction_of(repacked.core));
          const HostTensors parts(graph);
          run(repacked, parts);
          expect_same_bytes(
              graph, parts, whole,
              fmt::format("{} * {} pixels {} fused {}", to_string(c.x), to_string(c.w), pixels, fused));
        }
        EXPECT_GE(joined, 2);
      }
}

// Both operands are packed as one type, whichever is packed first.
TEST(WgmmaRepacked, JoinedPixelsOfBytesAgreeWithTheWhole) {
  for (const DataType type : {DataType::i8, DataType::f8_e4m3})
    for (const Precision precision : {Precision::exact, Precision::allow_short_sums}) {
      GraphBuilder g("bytes", precision);
      const Tensor dy = g.input("dy", {2, 20, 6, 5}, type), w = g.input("w", {20, 3, 3, 3}, type);
      const Tensor dx = g.conv_dgrad(dy, w, {2, 3, 11, 10}, {.padding = {1, 1}, .stride = {2, 2}});
      g.output(dx, {.type = type == DataType::i8 ? DataType::i32 : DataType::bf16});
      const Graph graph = g.finish();
      const Fusion fusion = fusion_of(graph);
      const Contraction view = contraction_of(fusion).value();
      const Repacked repacked = repack(fusion, view, {{true, true}, 1, 2}, WayOut::copied);
      EXPECT_EQ(repacked.core.before[0].nodes[0].type, repacked.core.before[1].nodes[0].type);
      EXPECT_TRUE(wgmma_engine().supports(repacked.core, h200()));
      const HostTensors whole(graph), parts(graph);
      whole.run(fusion, Reading::oracle);
      run(repacked, parts);
      expect_same_bytes(graph, parts, whole, to_string(type).data());
    }
}

const FewResults kStem{
    ConvPass::dgrad, {128, 3, 224, 224}, {64, 3, 7, 7}, {.padding = {3, 3}, .stride = {2, 2}}};

// 7 taps of stride 2 are 4 and 3; together 4 sources, and one more for each further position.
TEST(WgmmaRepacked, JoinedPixelsShareOneWindow) {
  const Contraction view = contraction_of(fusion_of(few_results(kStem, Layout::nhwc, false))).value();
  const JoinedPixels classes = joined_pixels(view, 1, true).value();
  EXPECT_EQ(classes.channels, 16) << "12, filled up";
  for (const JoinedAxis& axis : classes.axes) {
    EXPECT_EQ(axis.block, 2);
    EXPECT_EQ(axis.positions, 112);
    EXPECT_EQ(axis.window, 4);
    EXPECT_EQ(axis.stride, 1);
    EXPECT_EQ(axis.taps, 8);
  }
  EXPECT_EQ(classes.boxes().size(), 1u);
  const JoinedPixels blocks = joined_pixels(view, 8, true).value();
  EXPECT_EQ(blocks.channels, 96);
  EXPECT_EQ(blocks.axes[0].block, 4);
  EXPECT_EQ(blocks.axes[0].window, 5);
  EXPECT_EQ(blocks.axes[0].stride, 2);
  EXPECT_EQ(blocks.axes[1].block, 8);
  EXPECT_EQ(blocks.axes[1].window, 7);
  EXPECT_EQ(blocks.axes[1].stride, 4);
  FewResults odd = kStem;
  odd.x[2] = 225;
  const Contraction odd_view = contraction_of(fusion_of(few_results(odd, Layout::nhwc, false))).value();
  EXPECT_EQ(joined_pixels(odd_view, 1, true).value().boxes().size(), 2u) << "and the last row";
}

TEST(WgmmaRepacked, JoinsPixelsOnlyOfFewChannelsWithoutGroupsAndDilation) {
  const auto joins = [](const Graph& graph, int64_t pixels = 2) {
    const Fusion fusion = fusion_of(graph);
    return way_out_of_pixels(fusion, contraction_of(fusion).value(), pixels).has_value();
  };
  const auto plain = [](const FewResults& c) { return few_results(c, Layout::nhwc, false); };
  EXPECT_TRUE(joins(plain({ConvPass::dgrad, {2, 16, 9, 9}, {8, 16, 3, 3}, {}})));
  EXPECT_FALSE(joins(plain({ConvPass::dgrad, {2, 17, 9, 9}, {8, 17, 3, 3}, {}})));
  EXPECT_FALSE(joins(plain({ConvPass::dgrad, {2, 16, 9, 9}, {8, 8, 3, 3}, {}}))) << "groups";
  EXPECT_FALSE(joins(plain({ConvPass::dgrad, {2, 3, 9, 9}, {8, 3, 3, 3}, {.dilation = {2, 2}}})));
  EXPECT_FALSE(joins(plain({ConvPass::dgrad, {2, 3, 9, 9}, {8, 3, 3, 3}, {}}), 1)) << "one pixel";
  EXPECT_FALSE(joins(plain(kStem), 32)) << "too many channels";
  EXPECT_FALSE(joins(plain(kStem), 0));
  EXPECT_FALSE(joins(grouped(ConvPass::wgrad, {2, 12, 7, 6}, {18, 2, 3, 3}, kChannelsLast)));
  GraphBuilder g("sums");
  const Tensor dy = g.input("dy", {2, 8, 9, 9}, DataType::f16), w = g.input("w", {8, 3, 3, 3}, DataType::f16);
  const Tensor dx = g.conv_dgrad(dy, w, {2, 3, 9, 9}, {.padding = {1, 1}});
  g.output(dx);
  g.output(g.reduce_to(dx, ReductionMode::add, {1, 3, 1, 1}));
  EXPECT_FALSE(joins(g.finish())) << "a reduction";
  GraphBuilder h("coordinates");
  const Tensor product =
      h.conv_dgrad(h.input("dy", {2, 8, 9, 9}, DataType::f16), h.input("w", {8, 3, 3, 3}, DataType::f16),
                   {2, 3, 9, 9}, {.padding = {1, 1}});
  h.output(h.add(product, h.gen_index(product, 3, {.type = DataType::f32})));
  EXPECT_FALSE(joins(h.finish())) << "an epilogue that names pixels";
}

TEST(WgmmaRepacked, JoinedPixelsArePackedMultipliedAndSpread) {
  const Graph graph = few_results(kStem, Layout::nhwc, false);
  EXPECT_EQ(rule(graph), "");
  const Fusion fusion = fusion_of(graph);
  bool found = false;
  for (const EngineCandidate& candidate : wgmma_repacked_engine().candidates(fusion, h200())) {
    if (candidate.config.knob("join", 0) != 8 || candidate.config.knob("split", 1) != 1) continue;
    found = true;
    const Lowered parts = wgmma_repacked_engine().lower(fusion, candidate.config, h200());
    ASSERT_EQ(parts.steps.size(), 5u);
    EXPECT_EQ(std::get<Fill>(parts.steps[0]).bytes, 64 * 3 * 12 * 20 * 2);
    EXPECT_EQ(parts.scratch.at(1), 96 * 64 * 5 * 7 * 2);
    EXPECT_EQ(parts.scratch.at(2), int64_t{128} * 56 * 28 * 96 * 2);
    EXPECT_EQ(std::get<Launch>(parts.steps[3]).entry, "wgmma_contraction");
    EXPECT_THAT(pointers(parts, 4), ElementsAre(std::pair(Kind::scratch, 2), std::pair(Kind::operand, 3)));
    EXPECT_LT(candidate.work.serial_dram_bytes, 85e6);
  }
  EXPECT_TRUE(found);
}

TEST(WgmmaRepacked, PriceJoinsPixelsOfFirstLayers) {
  for (const DataType type : {DataType::f16, DataType::f32})
    for (const Layout layout : {Layout::nhwc, Layout::nchw}) {
      const Plan plan = build(few_results(kStem, layout, false, type), h200(), {.compile = false});
      EXPECT_EQ(plan.fusions.at(0).config.engine, "wgmma_repacked");
      EXPECT_EQ(plan.fusions.at(0).config.knob("join", 0), 8);
    }
  const Graph patches = few_results(
      {ConvPass::dgrad, {64, 3, 224, 224}, {768, 3, 16, 16}, {.stride = {16, 16}}}, Layout::nhwc, false);
  EXPECT_EQ(build(patches, h200(), {.compile = false}).fusions.at(0).config.knob("join", 0), 1)
      << "a matmul, each patch a row";
}

TEST(WgmmaRepacked, EveryKernelOfJoinedPixelsCompiles) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  std::vector<test::KernelCase> kernels;
  const FewResults volume{
      ConvPass::dgrad, {2, 2, 9, 8, 7}, {64, 2, 3, 3, 3}, {.padding = {1, 1, 1}, .stride = {2, 2, 2}}};
  for (const FewResults& c :
       {FewResults{ConvPass::dgrad, {2, 3, 31, 32}, {64, 3, 7, 7}, kStem.options}, volume})
    for (const DataType type : {DataType::f16, DataType::f32}) {
      if (c.x.rank() == 5 && type == DataType::f32) continue;
      const Fusion fusion = fusion_of(few_results(c, Layout::nchw, true, type));
      std::vector<int64_t> seen;
      for (const EngineCandidate& candidate : wgmma_repacked_engine().candidates(fusion, h200())) {
        const int64_t join = candidate.config.knob("join", 0);
        if (join == 0 || std::ranges::find(seen, join) != seen.end()) continue;
        seen.push_back(join);
        test::add_kernels(to_string(candidate.config),
                          wgmma_repacked_engine().lower(fusion, candidate.config, h200()), kernels);
      }
      EXPECT_GE(seen.size(), 3u);
    }
  test::expect_all_compiled(kernels);
}

// --- Unrolled columns ---

struct FewChannels {
  Dims x, w;
  ConvOptions options = {};
};

// fprop of few input channels; with relu(2 x) before it, and bias, relu and residual behind it.
Graph few_channels(const FewChannels& c, Layout layout, bool fused, DataType type = DataType::f16) {
  GraphBuilder g("few channels", type == DataType::f32 ? Precision::allow_tf32 : Precision::exact);
  Tensor x = g.input("x", c.x, type, layout);
  if (fused) x = g.relu(g.mul(x, g.constant(2)), {.type = type});
  Tensor y = g.conv_fprop(x, g.input("w", c.w, type, layout), c.options);
  if (fused) {
    Dims bias_dims = Dims::filled(c.x.rank(), 1);
    bias_dims[1] = c.w[0];
    y = g.relu(g.add(y, g.input("bias", bias_dims, type)));
    y = g.add(y, g.input("residual", y.dims, type));
  }
  g.output(y, {.name = "y", .type = type == DataType::i8 ? DataType::i32 : type, .layout = layout});
  return g.finish();
}

const FewChannels kStemForward{{128, 3, 224, 224}, {64, 3, 7, 7}, {.padding = {3, 3}, .stride = {2, 2}}};

// Odd widths, padding that differs or is wider than the image's columns reach, columns and rows that no
// window meets, dilation, strides of 1 to 4, flipped taps, one and three spatial axes.
const FewChannels kFewChannels[] = {
    {{2, 3, 16, 16}, {8, 3, 7, 7}, {.padding = {3, 3}, .stride = {2, 2}}},
    {{2, 3, 15, 17}, {9, 3, 7, 7}, {.padding = {3, 3}, .stride = {2, 2}}},
    {{1, 5, 9, 12}, {8, 5, 7, 7}, {.padding = {3, 3}, .stride = {3, 3}}},
    {{2, 3, 12, 19}, {8, 3, 4, 4}, {.stride = {4, 4}}},
    {{1, 1, 10, 13}, {8, 1, 3, 3}, {.padding = {1, 1}}},
    {{1, 3, 14, 9}, {8, 3, 5, 4}, {.pre_padding = {1, 2}, .post_padding = {0, 3}, .stride = {3, 1}}},
    {{1, 3, 11, 13}, {8, 3, 2, 3}, {.padding = {0, 4}, .stride = {1, 2}, .dilation = {2, 2}}},
    {{2, 3, 12, 10}, {8, 3, 5, 5}, {.padding = {4, 4}, .stride = {2, 2}, .mode = ConvMode::convolution}},
    {{1, 2, 8, 11}, {8, 2, 3, 3}, {.padding = {1, 2}, .dilation = {1, 2}, .mode = ConvMode::convolution}},
    {{2, 2, 29}, {8, 2, 5}, {.padding = {2}, .stride = {2}}},
    {{1, 2, 5, 8, 7}, {8, 2, 3, 3, 3}, {.padding = {1, 1, 1}, .stride = {2, 2, 2}}},
};

TEST(WgmmaRepacked, UnrolledColumnsAgreeWithTheWhole) {
  for (const FewChannels& c : kFewChannels)
    for (const DataType type : {DataType::f16, DataType::f32, DataType::i8})
      for (const Layout layout : {Layout::nhwc, Layout::nchw})
        for (const bool fused : {false, true}) {
          if (type == DataType::i8 && fused) continue;
          const Graph graph = few_channels(c, layout, fused, type);
          const Fusion fusion = fusion_of(graph);
          const Contraction view = contraction_of(fusion).value();
          ASSERT_TRUE(unrolls_columns(fusion, view)) << to_string(c.x) << " * " << to_string(c.w);
          const HostTensors whole(graph);
          whole.run(fusion, Reading::oracle);
          for (const WayOut way : ways_out(fusion, view, 1)) {
            const Repacked repacked = repack(fusion, view, {.columns = true}, way);
            EXPECT_TRUE(wgmma_engine().supports(repacked.core, h200()));
            const HostTensors parts(graph);
            run(repacked, parts);
            expect_same_bytes(graph, parts, whole,
                              fmt::format("{} * {} {} way {} fused {}", to_string(c.x), to_string(c.w),
                                          to_string(type), static_cast<int>(way), fused));
          }
        }
}

TEST(WgmmaRepacked, UnrolledColumnsAreRunsThatOverlap) {
  const Contraction view = contraction_of(fusion_of(few_channels(kStemForward, Layout::nchw, false))).value();
  for (const auto& [type, channels] : {std::pair(DataType::f32, 4), {DataType::f16, 4}, {DataType::i8, 8}}) {
    const UnrolledColumns unrolled = unrolled_columns(view, type).value();
    EXPECT_EQ(unrolled.channels_of_column, channels);
    EXPECT_EQ(unrolled.channels, 7 * channels);
    EXPECT_EQ(unrolled.columns, 2 * 111 + 7 + 1) << "a whole number of strides";
    EXPECT_EQ(unrolled.first_column, -3);
    EXPECT_EQ(unrolled.image_begin(), 0);
    EXPECT_EQ(unrolled.image_columns(224), 224);
  }
  const FewChannels patches{{1, 3, 224, 223}, {64, 3, 4, 4}, {.stride = {4, 4}}};
  const Contraction of_patches =
      contraction_of(fusion_of(few_channels(patches, Layout::nchw, false))).value();
  const UnrolledColumns runs = unrolled_columns(of_patches, DataType::f32).value();
  EXPECT_EQ(runs.channels_of_column, 3) << "runs of 4 columns begin 48 bytes apart";
  EXPECT_EQ(runs.columns, 220);
  EXPECT_EQ(runs.image_columns(223), 220) << "no window meets the last three";
  const Fusion of_full = fusion_of(few_channels(patches, Layout::nchw, false, DataType::f32));
  const Repacked full = repack(of_full, contraction_of(of_full).value(), {.columns = true}, WayOut::direct);
  EXPECT_THAT(full.zeroed, ElementsAre(1)) << "the filter alone: the image fills its rows";
}

TEST(WgmmaRepacked, UnrollsColumnsOnlyOfFewChannelsOfOneGroupInFprop) {
  const auto unrolls = [](const Graph& graph) {
    const Fusion fusion = fusion_of(graph);
    return unrolls_columns(fusion, contraction_of(fusion).value());
  };
  const auto plain = [](const FewChannels& c, DataType type = DataType::f16) {
    return few_channels(c, Layout::nchw, false, type);
  };
  EXPECT_TRUE(unrolls(plain({{2, 16, 9, 9}, {8, 16, 3, 3}})));
  EXPECT_TRUE(unrolls(plain({{2, 32, 9, 9}, {8, 32, 3, 3}}))) << "two steps in place of three";
  EXPECT_FALSE(unrolls(plain({{2, 33, 9, 9}, {8, 33, 3, 3}})));
  EXPECT_FALSE(unrolls(plain({{2, 32, 9, 9}, {8, 32, 3, 3}}, DataType::f32)));
  EXPECT_FALSE(unrolls(plain({{2, 3, 9, 9}, {8, 3, 3, 1}}))) << "one column";
  EXPECT_FALSE(unrolls(plain({{2, 4, 9, 9}, {8, 2, 3, 3}}))) << "groups";
  EXPECT_FALSE(unrolls(plain({{2, 3, 9, 99}, {8, 3, 3, 3}, {.dilation = {1, 40}}})))
      << "the columns between the taps are more steps than the taps";
  EXPECT_FALSE(unrolls(few_results({ConvPass::dgrad, {2, 3, 9, 9}, {8, 3, 3, 3}, {}}, Layout::nhwc, false)));
  GraphBuilder g("matmul");
  EXPECT_FALSE(unrolls(
      g.finish({g.matmul(g.input("a", {64, 64}, DataType::f16), g.input("b", {64, 64}, DataType::f16))})));
  GraphBuilder h("coordinates");
  const Tensor x = h.input("x", {2, 3, 9, 9}, DataType::f16);
  const Tensor sum = h.add(x, h.gen_index(x, 3, {.type = DataType::f16}), {.type = DataType::f16});
  h.output(h.conv_fprop(sum, h.input("w", {8, 3, 3, 3}, DataType::f16)));
  EXPECT_FALSE(unrolls(h.finish())) << "ops before the input that name columns";
}

// The copy engine reads a run of 7 columns for every pixel, 32 bytes apart.
TEST(WgmmaRepacked, UnrolledColumnsAreReadThroughOneMap) {
  const Fusion fusion = fusion_of(few_channels(kStemForward, Layout::nchw, false, DataType::f32));
  bool found = false;
  for (const EngineCandidate& candidate : wgmma_repacked_engine().candidates(fusion, h200())) {
    if (candidate.config.knob("unroll", 0) == 0 || candidate.config.knob("repack_y", 0) != 0) continue;
    found = true;
    const Lowered parts = wgmma_repacked_engine().lower(fusion, candidate.config, h200());
    ASSERT_EQ(parts.steps.size(), 5u);
    const int64_t row = 230 * 4 * 4;
    EXPECT_EQ(std::get<Fill>(parts.steps[0]).bytes, 128 * 224 * row);
    EXPECT_EQ(std::get<Fill>(parts.steps[1]).bytes, 64 * 7 * 28 * 4);
    EXPECT_THAT(pointers(parts, 2), ElementsAre(std::pair(Kind::operand, 0), std::pair(Kind::scratch, 0)));
    EXPECT_THAT(pointers(parts, 3), ElementsAre(std::pair(Kind::operand, 1), std::pair(Kind::scratch, 1)));
    const auto& maps = std::get<Launch>(parts.steps[4]).arguments.maps();
    const auto pixels =
        std::ranges::find_if(maps, [](const TensorMap& map) { return map.window.has_value(); });
    ASSERT_NE(pixels, maps.end());
    EXPECT_EQ(pixels->dims, (Dims{28, 112, 224, 128}));
    EXPECT_EQ(pixels->stride_bytes, (Dims{32, row, 224 * row}));
    EXPECT_EQ(pixels->window->strides, (Dims{1, 2}));
    EXPECT_EQ(pixels->window->lower, (Dims{0, -3}));
    EXPECT_TRUE(pixels->rounds_to_tf32);
    EXPECT_LT(candidate.work.serial_dram_bytes, 350e6);
  }
  EXPECT_TRUE(found);
}

TEST(WgmmaRepacked, PriceUnrollsColumnsOfFirstLayers) {
  for (const Layout layout : {Layout::nhwc, Layout::nchw})
    for (const bool fused : {false, true}) {
      const Plan plan =
          build(few_channels(kStemForward, layout, fused, DataType::f32), h200(), {.compile = false});
      EXPECT_EQ(plan.fusions.at(0).config.engine, "wgmma_repacked");
      EXPECT_EQ(plan.fusions.at(0).config.knob("unroll", 0), 1);
    }
  const FewChannels eight{{64, 8, 224, 224}, {64, 8, 7, 7}, {.padding = {3, 3}, .stride = {2, 2}}};
  EXPECT_EQ(build(few_channels(eight, Layout::nhwc, false), h200(), {.compile = false})
                .fusions.at(0)
                .config.knob("unroll", 0),
            1);
}

TEST(WgmmaRepacked, EveryKernelOfUnrolledColumnsCompiles) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  std::vector<test::KernelCase> kernels;
  for (const FewChannels& c :
       {FewChannels{{2, 3, 31, 33}, {64, 3, 7, 7}, kStemForward.options}, kFewChannels[9], kFewChannels[10]})
    for (const DataType type : {DataType::f16, DataType::f32}) {
      const Fusion fusion = fusion_of(few_channels(c, Layout::nchw, true, type));
      std::vector<int64_t> seen;
      for (const EngineCandidate& candidate : wgmma_repacked_engine().candidates(fusion, h200())) {
        const int64_t way = candidate.config.knob("repack_y", 0);
        if (candidate.config.knob("unroll", 0) == 0 || std::ranges::find(seen, way) != seen.end()) continue;
        seen.push_back(way);
        test::add_kernels(to_string(candidate.config),
                          wgmma_repacked_engine().lower(fusion, candidate.config, h200()), kernels);
      }
      EXPECT_EQ(seen.size(), 3u);
    }
  test::expect_all_compiled(kernels);
}

// --- Stride phases ---

// wgrad; with 0.5 * relu(dw) + decay * w behind it.
Graph strided_wgrad(const FewChannels& c, Layout layout, bool fused, DataType type = DataType::f32) {
  GraphBuilder g("strided wgrad", type == DataType::f32 ? Precision::allow_tf32 : Precision::exact);
  GraphBuilder shape("shape");
  const Tensor y = shape.conv_fprop(shape.input("x", c.x, type), shape.input("w", c.w, type), c.options);
  const Tensor dy = g.input("dy", y.dims, type, layout), x = g.input("x", c.x, type, layout);
  Tensor dw = g.conv_wgrad(dy, x, c.w, c.options);
  if (fused) dw = g.add(g.mul(g.relu(dw), g.constant(0.5)), g.input("w", c.w, type, layout));
  g.output(dw, {.name = "dw", .type = type == DataType::i8 ? DataType::i32 : type, .layout = layout});
  return g.finish();
}

// Odd extents, padding that differs, strides of 1 to 4, rows that no window meets, dilation, flipped taps,
// groups, one and three spatial axes.
const FewChannels kStrided[] = {
    {{2, 3, 16, 16}, {8, 3, 7, 7}, {.padding = {3, 3}, .stride = {2, 2}}},
    {{2, 3, 15, 17}, {9, 3, 7, 7}, {.padding = {3, 3}, .stride = {2, 2}}},
    {{1, 5, 9, 12}, {8, 5, 3, 4}, {.padding = {1, 1}, .stride = {3, 2}}},
    {{2, 3, 12, 19}, {8, 3, 4, 4}, {.stride = {4, 4}}},
    {{1, 3, 14, 9}, {8, 3, 5, 4}, {.pre_padding = {1, 2}, .post_padding = {0, 3}, .stride = {3, 1}}},
    {{1, 3, 11, 16}, {8, 3, 3, 3}, {.padding = {1, 4}, .stride = {1, 2}, .dilation = {2, 3}}},
    {{2, 3, 12, 10}, {8, 3, 5, 5}, {.padding = {4, 4}, .stride = {2, 2}, .mode = ConvMode::convolution}},
    {{2, 6, 12, 10}, {8, 3, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}}},
    {{2, 2, 29}, {8, 2, 5}, {.padding = {2}, .stride = {2}}},
    {{1, 2, 5, 8, 7}, {8, 2, 3, 3, 3}, {.padding = {1, 1, 1}, .stride = {2, 2, 2}}},
};

TEST(WgmmaRepacked, StridePhasesAgreeWithTheWhole) {
  for (const FewChannels& c : kStrided)
    for (const Layout layout : {Layout::nhwc, Layout::nchw})
      for (const bool fused : {false, true})
        for (const bool packed : {false, true}) {
          const Graph graph = strided_wgrad(c, layout, fused);
          const Fusion fusion = fusion_of(graph);
          const Contraction view = contraction_of(fusion).value();
          ASSERT_TRUE(splits_phases(fusion, view)) << to_string(c.x) << " * " << to_string(c.w);
          const Repacked repacked =
              repack(fusion, view, {.sites = {packed, true}, .phases = true}, WayOut::finished);
          ASSERT_TRUE(contraction_of(repacked.core));
          EXPECT_TRUE(contraction_of(repacked.core)->has_unit_stride());
          EXPECT_TRUE(!packed || wgmma_engine().supports(repacked.core, h200())) << to_string(c.x);
          const HostTensors whole(graph), parts(graph);
          whole.run(fusion, Reading::oracle);
          run(repacked, parts);
          expect_same_bytes(
              graph, parts, whole,
              fmt::format("{} * {} fused {} packed {}", to_string(c.x), to_string(c.w), fused, packed));
        }
}

// 7 taps of stride 2 from 3 before on: remainder 0 meets taps 1, 3, 5, remainder 1 taps 0, 2, 4, 6.
TEST(WgmmaRepacked, StridePhasesShareAWindow) {
  const Contraction view =
      contraction_of(fusion_of(strided_wgrad(kStemForward, Layout::nchw, false))).value();
  const StridePhases phases = stride_phases(view).value();
  EXPECT_EQ(phases.count, 2);
  EXPECT_EQ(phases.channels(), 14) << "rows of 2 remainders, columns of 7 taps";
  const PhaseAxis& rows = phases.axes.at(0);
  EXPECT_EQ(rows.window, 4);
  EXPECT_EQ(rows.pre_padding, 2);
  EXPECT_EQ(rows.post_padding, 1);
  EXPECT_EQ(rows.phases.at(0).first, 1);
  EXPECT_EQ(rows.phases.at(0).count, 3);
  EXPECT_EQ(rows.phases.at(0).first_of_window, 1);
  EXPECT_EQ(rows.phases.at(1).first, 0);
  EXPECT_EQ(rows.phases.at(1).count, 4);
  EXPECT_EQ(rows.phases.at(1).first_of_window, 0);
  EXPECT_EQ(phases.axes.at(1).window, 1);
  EXPECT_EQ(phases.taps.at(0).first_output, 2) << "3 columns of padding";
  EXPECT_EQ(phases.taps.at(0).first_input, 1);
  EXPECT_EQ(phases.taps.at(0).outputs, 110);
  EXPECT_EQ(phases.taps.at(6).first_output, 0);
  EXPECT_EQ(phases.taps.at(6).first_input, 3);
  EXPECT_EQ(phases.taps.at(6).outputs, 111);
}

TEST(WgmmaRepacked, SplitsPhasesOnlyOfStridesThatTapsMeet) {
  const auto splits = [](const Graph& graph) {
    const Fusion fusion = fusion_of(graph);
    return splits_phases(fusion, contraction_of(fusion).value());
  };
  const auto plain = [](const FewChannels& c) { return strided_wgrad(c, Layout::nchw, false); };
  EXPECT_TRUE(splits(plain({{2, 8, 9, 9}, {8, 8, 3, 3}, {.stride = {2, 1}}})));
  EXPECT_TRUE(splits(plain({{2, 8, 9, 9}, {8, 8, 3, 3}}))) << "taps along the last axis";
  EXPECT_FALSE(splits(plain({{2, 8, 9, 9}, {8, 8, 3, 1}}))) << "neither those nor strides";
  EXPECT_FALSE(splits(plain({{2, 8, 9, 9}, {8, 8, 1, 1}, {.stride = {2, 2}}}))) << "one phase of four is met";
  EXPECT_FALSE(splits(plain({{2, 8, 9, 9}, {8, 8, 3, 3}, {.stride = {2, 2}, .dilation = {2, 2}}})));
  EXPECT_FALSE(splits(plain({{2, 3, 40, 40}, {8, 3, 17, 5}, {.stride = {17, 5}}}))) << "17 phases";
  EXPECT_FALSE(splits(few_channels(kStemForward, Layout::nchw, false)));
}

TEST(WgmmaRepacked, PriceSplitsPhasesOfFirstLayers) {
  for (const bool fused : {false, true}) {
    const Graph graph = strided_wgrad(kStemForward, Layout::nchw, fused);
    const Plan plan = build(graph, h200(), {.compile = false});
    const EngineConfig& config = plan.fusions.at(0).config;
    EXPECT_EQ(config.engine, "wgmma_repacked");
    EXPECT_EQ(config.knob("phases", 0), 1);
    const Lowered parts = wgmma_repacked_engine().lower(fusion_of(graph), config, h200());
    EXPECT_EQ(parts.scratch.at(0), int64_t{128} * 42 * 112 * 112 * 4)
        << "the output gradient is read as it is";
    EXPECT_EQ(std::get<Launch>(parts.steps.at(8)).entry, "wgmma_contraction") << "a fill and a copy a tap";
  }
}

TEST(WgmmaRepacked, EveryKernelOfStridePhasesCompiles) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  std::vector<test::KernelCase> kernels;
  for (const FewChannels& c :
       {FewChannels{{2, 3, 32, 64}, {64, 3, 7, 7}, kStemForward.options}, kStrided[1]}) {
    const Fusion fusion = fusion_of(strided_wgrad(c, Layout::nchw, true));
    int taken = 0;
    for (const EngineCandidate& candidate : wgmma_repacked_engine().candidates(fusion, h200()))
      if (candidate.config.knob("phases", 0) != 0 && taken++ < 3)
        test::add_kernels(to_string(candidate.config),
                          wgmma_repacked_engine().lower(fusion, candidate.config, h200()), kernels);
    EXPECT_GT(taken, 0);
  }
  test::expect_all_compiled(kernels);
}

TEST(WgmmaRepacked, CandidatesAreSettingsOfItsKnobs) {
  for (const Graph& graph : {fused({8, 64, 28, 28}, {64, 64, 3, 3}),
                             fprop({2, 64, 9, 9}, {64, 64, 3, 3}, {Layout::nhwc, Layout::nhwc, Layout::nchw}),
                             grouped(ConvPass::wgrad, {2, 128, 9, 9}, {128, 4, 3, 3}, kChannelsLast),
                             few_results(kStem, Layout::nhwc, false),
                             few_channels(kStemForward, Layout::nchw, true, DataType::f32),
                             strided_wgrad(kStemForward, Layout::nchw, true)}) {
    const Fusion fusion = fusion_of(graph);
    const std::vector<Knob> knobs = wgmma_repacked_engine().knobs(fusion, h200());
    for (const EngineCandidate& candidate : wgmma_repacked_engine().candidates(fusion, h200())) {
      EXPECT_EQ(candidate.config.engine, "wgmma_repacked");
      for (const auto& [name, value] : candidate.config.knobs) {
        const auto knob = std::ranges::find(knobs, name, &Knob::name);
        ASSERT_NE(knob, knobs.end()) << name;
        EXPECT_THAT(knob->values, Contains(value)) << name;
      }
    }
  }
}

TEST(WgmmaRepacked, CopiesArePricedBesideTheProduct) {
  const Fusion fusion = fusion_of(fprop({128, 64, 56, 56}, {64, 64, 3, 3}, {}, {.padding = {1, 1}}));
  const double x_bytes = 128.0 * 64 * 56 * 56 * 2;
  for (const EngineCandidate& candidate : wgmma_repacked_engine().candidates(fusion, h200())) {
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

// ---- Results whose positions lie side by side ----

Graph planes(const Dims& x, const Dims& w, OutputOptions y = {}, DataType type = DataType::f16) {
  GraphBuilder g("planes", Precision::allow_tf32);
  const ConvOptions padded{.padding = Dims::filled(x.rank() - 2, w[2] / 2)};
  y.type = type;
  g.output(g.relu(g.conv_fprop(g.input("x", x, type), g.input("w", w, type), padded)), y);
  return g.finish();
}

int64_t value_of(const KernelSource& source, std::string_view name) {
  const auto found = std::ranges::find(source.config, name, &ConfigValue::name);
  return found == source.config.end() ? -1 : found->value;
}

// The product of the cheapest setting of the first way out.
Launch product(const Graph& graph) {
  const Fusion fusion = fusion_of(graph);
  const EngineCandidate* best = nullptr;
  const auto all = wgmma_repacked_engine().candidates(fusion, h200());
  for (const EngineCandidate& candidate : all)
    if (candidate.config.knob("repack_y", 0) == 0 &&
        (best == nullptr || estimate_seconds(candidate.work, h200()) < estimate_seconds(best->work, h200())))
      best = &candidate;
  for (const Step& step : wgmma_repacked_engine().lower(fusion, best->config, h200()).steps)
    if (std::get<Launch>(step).entry.starts_with("wgmma")) return std::get<Launch>(step);
  return {};
}

TEST(WgmmaRepacked, PlanesLeaveInTheLargestUnitsThatStayInAnImage) {
  constexpr int64_t kPlanesStored = 4;
  const auto unit = [&](const Launch& launch) {
    EXPECT_EQ(value_of(*launch.source, "way_out"), kPlanesStored);
    return value_of(*launch.source, "unit");
  };
  const Dims w{128, 128, 3, 3};
  EXPECT_EQ(unit(product(planes({128, 128, 16, 16}, w))), 8);
  EXPECT_EQ(unit(product(planes({128, 128, 14, 14}, w))), 4);
  EXPECT_EQ(unit(product(planes({128, 128, 13, 14}, w))), 2);
  EXPECT_EQ(unit(product(planes({128, 128, 7, 7}, w))), 1);
  EXPECT_EQ(unit(product(planes({128, 128, 16, 16}, w, {}, DataType::f32))), 4);
  EXPECT_EQ(unit(product(planes({64, 128, 8, 8, 8}, {128, 128, 3, 3, 3}))), 8);
  // Planes that are further apart; addresses that promise less.
  EXPECT_EQ(unit(product(planes({128, 128, 16, 16}, w, {.strides = Strides{128 * 260, 260, 16, 1}}))), 4);
  EXPECT_EQ(unit(product(planes({128, 128, 16, 16}, w, {.alignment = 4}))), 2);
  // Rows of the padded grid have 58 positions, 56 of which are pixels.
  const Launch window = product(planes({128, 64, 56, 56}, {64, 64, 3, 3}));
  EXPECT_EQ(window.entry, "wgmma_window");
  EXPECT_EQ(unit(window), 2);
}

TEST(WgmmaRepacked, PlanesNeedNoCopyOfTheResult) {
  for (const Dims& x : {Dims{128, 256, 14, 14}, Dims{128, 64, 56, 56}}) {
    const Plan plan = build(planes(x, {x[1], x[1], 3, 3}), h200(), {.compile = false});
    EXPECT_EQ(plan.fusions.at(0).config.engine, "wgmma_repacked");
    EXPECT_EQ(plan.fusions.at(0).config.knob("repack_y", -1), 0) << to_string(x);
  }
}

TEST(WgmmaRepacked, OnlyWhatThreadsScatterIsPricedAsSuch) {
  const auto l2_bytes = [](Layout layout, int64_t tile_n) {
    const Fusion fusion = fusion_of(planes({128, 256, 14, 14}, {256, 256, 3, 3}, {.layout = layout}));
    for (const EngineCandidate& candidate : wgmma_repacked_engine().candidates(fusion, h200())) {
      const EngineConfig& config = candidate.config;
      if (config.knob("swap", 0) == 1 && config.knob("tile_n", 0) == tile_n &&
          config.knob("tile_m", 0) == 128 && config.knob("ping_pong", 0) == 1 &&
          config.knob("repack_y", 0) == 0)
        return candidate.work.l2_bytes;
    }
    return 0.0;
  };
  ASSERT_GT(l2_bytes(Layout::nhwc, 192), 0);
  EXPECT_EQ(l2_bytes(Layout::nchw, 192), l2_bytes(Layout::nhwc, 192));
  // Boxes of 96 columns are no whole lines: of 8 bytes of L2 a thread uses 2.
  EXPECT_EQ(l2_bytes(Layout::nchw, 96), l2_bytes(Layout::nhwc, 96) + 128.0 * 256 * 14 * 14 * 6);
}

TEST(WgmmaRepacked, EveryKernelOfPlanesCompiles) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  std::vector<test::KernelCase> kernels;
  const auto add = [&](const std::string& name, const Graph& graph) {
    const Fusion fusion = fusion_of(graph);
    for (const EngineCandidate& candidate : wgmma_repacked_engine().candidates(fusion, h200())) {
      const EngineConfig& config = candidate.config;
      if (config.knob("repack_y", 0) != 0 || config.knob("cluster", 1) != 1) continue;
      const int64_t tile_n = config.knob("tile_n", 0);
      if (tile_n == 16 || tile_n == 192)
        test::add_kernels(name + " " + to_string(config),
                          wgmma_repacked_engine().lower(fusion, config, h200()), kernels);
    }
  };
  add("units of 4", planes({128, 128, 14, 14}, {136, 128, 3, 3}));
  add("a window", planes({128, 64, 56, 56}, {64, 64, 3, 3}));
  test::expect_all_compiled(kernels);
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
  for (const ConvPass pass : kPasses)
    test::add_kernels("grouped",
                      lowered(grouped(pass, {2, 128, 9, 9}, {128, 4, 3, 3}, kChannelsLast),
                              pass == ConvPass::wgrad ? 2 : 0),
                      kernels);
  test::expect_all_compiled(kernels);
}

}  // namespace
}  // namespace fusor
