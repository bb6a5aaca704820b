// Owns the tests of the choice between engines, with two engines that exist only here: one refuses a chosen
// op, one is priced slow.
#include "backend/choose.h"

#include <gmock/gmock.h>

#include "backend/build.h"
#include "backend/engines/list.h"
#include "backend/report/explain.h"
#include "core/error.h"
#include "frontend/graph_builder.h"

namespace fusor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::SizeIs;

EngineCandidate at_price(const std::string& engine, const char* knob, int64_t value, double flops,
                         int64_t scratch_bytes = 0) {
  Work work;
  work.fp32_flops = flops;
  work.scratch_bytes = scratch_bytes;
  return {{engine, 1, {{knob, value}}}, work};
}

// At a price, and at twice the price with scratch.
class AtTwoSpeeds final : public Prepared {
 public:
  AtTwoSpeeds(std::string engine, double flops) : engine_(std::move(engine)), flops_(flops) {}

  std::vector<Knob> knobs() const override { return {{"speed", {1, 2}}}; }
  std::vector<EngineCandidate> candidates() const override {
    return {at_price(engine_, "speed", 1, flops_), at_price(engine_, "speed", 2, 2 * flops_, 4096)};
  }
  Notes notes() const override { return {}; }
  Lowered lower(const EngineConfig& config) const override {
    Lowered lowered;
    if (config.knob("speed", 1) == 2) lowered.scratch = {4096};
    return lowered;
  }

 private:
  std::string engine_;
  double flops_;
};

// Takes anything but fusions with an op of the given name, at a price; counts how often it is asked.
class PickyEngine final : public Engine {
 public:
  PickyEngine(std::string name, double flops, std::string refused_op = "")
      : name_(std::move(name)), flops_(flops), refused_op_(std::move(refused_op)) {}

  std::string_view name() const override { return name_; }
  int number() const override { return 900; }
  PreparedOr prepare(const Fusion& fusion, const DeviceInfo&) const override {
    ++asked;
    for (size_t i = 0; i < fusion.ops.size(); ++i)
      if (fusion.op_names[i] == refused_op_)
        return Refusal{"test-refuses", refused_op_,    "",           "another op",
                       refused_op_,    "leave it out", fusion.ops[i]};
    return std::make_unique<const AtTwoSpeeds>(name_, flops_);
  }

  mutable int asked = 0;

 private:
  std::string name_;
  double flops_;
  std::string refused_op_;
};

// Fast with scratch, slow without.
class WithOrWithoutScratch final : public Prepared {
 public:
  std::vector<Knob> knobs() const override { return {{"scratch", {0, 1}}}; }
  std::vector<EngineCandidate> candidates() const override {
    return {at_price("scratch", "scratch", 1, 1e9), at_price("scratch", "scratch", 0, 1e12)};
  }
  Notes notes() const override { return {}; }
  Lowered lower(const EngineConfig& config) const override {
    Lowered lowered;
    if (config.knob("scratch", 1) == 1) lowered.scratch = {4096};
    return lowered;
  }
};

// Takes everything.
class ScratchEngine final : public Engine {
 public:
  std::string_view name() const override { return "scratch"; }
  int number() const override { return 901; }
  PreparedOr prepare(const Fusion&, const DeviceInfo&) const override {
    return std::make_unique<const WithOrWithoutScratch>();
  }
};

DeviceInfo device() {
  DeviceInfo h200 = DeviceInfo::named("H200");
  return h200;
}

Graph conv_relu_exp() {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {1, 8, 6, 6}, DataType::f32);
  const Tensor w = g.input("w", {8, 8, 3, 3}, DataType::f32);
  const Tensor c = g.conv_fprop(x, w, {.name = "conv"});
  return g.finish({g.exp(g.relu(c, {.name = "relu"}), {.name = "exp"})});
}

std::vector<std::vector<std::string>> chosen(const Graph& graph, std::initializer_list<const Engine*> list) {
  PlannerOptions options;
  const std::vector<const Engine*> engines(list);
  options.engine_list = engines;
  std::vector<std::vector<std::string>> out;
  for (const Choice& choice : choose(graph, device(), options).fusions) {
    out.push_back(choice.fusion().op_names);
    out.back().insert(out.back().begin(), std::string(choice.options.front().engine->name()));
  }
  return out;
}

constexpr double kFast = 1e9;
constexpr double kSlow = 1e15;

TEST(Choose, CheapestEngineThatAcceptsWins) {
  const PickyEngine slow("slow", kSlow);
  const PickyEngine fast("fast", kFast);
  EXPECT_THAT(chosen(conv_relu_exp(), {&slow, &fast}),
              ElementsAre(ElementsAre("fast", "conv", "relu", "exp")));
}

TEST(Choose, AnEngineIsAskedOncePerFusion) {
  const PickyEngine engine("engine", kFast);
  const std::vector<const Engine*> engines{&engine};
  const PlannerOptions options{.build = {.compile = false}, .engine_list = engines};
  build(conv_relu_exp(), device(), options);
  EXPECT_EQ(engine.asked, 1);
  explain_data(conv_relu_exp(), device(), options);
  EXPECT_EQ(engine.asked, 2);
}

TEST(Choose, RefusalCutsWhereThePartsAreCheaper) {
  const PickyEngine picky("picky", kFast, "exp");
  const PickyEngine slow("slow", kSlow);
  const PickyEngine plain("plain", 2 * kFast, "conv");
  EXPECT_THAT(chosen(conv_relu_exp(), {&picky, &plain, &slow}),
              ElementsAre(ElementsAre("picky", "conv", "relu"), ElementsAre("plain", "exp")));
}

TEST(Choose, FusionStaysWholeWhereThePartsAreDearer) {
  const PickyEngine picky("picky", kFast, "exp");
  const PickyEngine whole("whole", 1.5 * kFast);
  EXPECT_THAT(chosen(conv_relu_exp(), {&picky, &whole}),
              ElementsAre(ElementsAre("whole", "conv", "relu", "exp")));
}

TEST(Choose, CutIsTheOnlyWayWhereNobodyTakesTheWhole) {
  const PickyEngine first("first", kFast, "exp");
  const PickyEngine second("second", kFast, "conv");
  EXPECT_THAT(chosen(conv_relu_exp(), {&first, &second}),
              ElementsAre(ElementsAre("first", "conv", "relu"), ElementsAre("second", "exp")));
}

// The first sibling's operand is computed: cut at that sibling, it would be left to the other one.
TEST(Choose, AnOperandOfASiblingGoesWithIt) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {2, 48}, DataType::f16);
  const Tensor gate = g.input("gate", {48, 96}, DataType::i8), up = g.input("up", {48, 96}, DataType::f16);
  const Tensor first = g.matmul(x, g.relu(gate, {.name = "relu"}), {.name = "first"});
  const Tensor second = g.matmul(x, up, {.name = "second"});
  const Graph graph = g.finish({g.mul(g.swish(first), second)});
  for (const char* name : {"H200", "A100", "T4"}) {
    BuildOptions options;
    options.compile = false;
    EXPECT_NO_THROW(build(graph, DeviceInfo::named(name), options)) << name;
  }
}

// Operands as large as each other, of other shapes: no one fusion computes both.
TEST(Choose, OperandsOfTwoShapesAreNotCutOffTogether) {
  GraphBuilder g("g");
  const Tensor a = g.relu(g.input("a", {128, 64}, DataType::f16), {.name = "relu_a"});
  const Tensor b = g.exp(g.input("b", {64, 128}, DataType::f16), {.name = "exp_b"});
  const Graph graph = g.finish({g.matmul(a, b, {.name = "matmul"})});
  BuildOptions options;
  options.compile = false;
  for (const char* name : {"H200", "A100", "T4"})
    EXPECT_NO_THROW(build(graph, DeviceInfo::named(name), options)) << name;
}

// Cut between the siblings, one part would have to store what both compute along the way.
TEST(Choose, WhatBothSiblingsReadIsComputedBefore) {
  GraphBuilder g("g");
  const Tensor x = g.input("x", {64, 48}, DataType::f32);
  const Tensor bias = g.input("bias", {1, 96}, DataType::f32),
               scale = g.input("scale", {1, 96}, DataType::f32);
  const Tensor scaled = g.mul(bias, scale, {.name = "scaled"});
  const auto half = [&](const char* name) {
    return g.add(g.matmul(x, g.input(name, {48, 96}, DataType::f32)), scaled);
  };
  const Tensor gate = half("gate");
  const Graph graph = g.finish({g.mul(g.swish(gate), half("up"))});
  BuildOptions options;
  options.compile = false;
  for (const char* name : {"H200", "A100", "T4"})
    EXPECT_NO_THROW(build(graph, DeviceInfo::named(name), options)) << name;
}

// Their phases, classes and blocks are as many as the stride is wide: they must not be counted out.
TEST(Choose, StridesBeyondTheImageArePlannedAtOnce) {
  constexpr int64_t kStride = 2147483647;
  for (const ConvPass pass : {ConvPass::dgrad, ConvPass::wgrad}) {
    GraphBuilder g("g");
    const Dims x{2, 8, 5, 5}, w{16, 8, 1, 1};
    const Tensor dy = g.input("dy", {2, 16, 1, 5}, DataType::f16);
    const ConvOptions options{.stride = {kStride, 1}};
    const Tensor result = pass == ConvPass::dgrad
                              ? g.conv_dgrad(dy, g.input("w", w, DataType::f16), x, options)
                              : g.conv_wgrad(dy, g.input("x", x, DataType::f16), w, options);
    BuildOptions build_options;
    build_options.compile = false;
    EXPECT_NO_THROW(build(g.finish({result}), DeviceInfo::named("H200"), build_options));
  }
}

// Sum and sum of squares of what a convolution leaves: one pass reads it, and no square is stored.
TEST(Choose, StatisticsBehindAConvolutionShareAPass) {
  GraphBuilder g;
  const Tensor x = g.input("x", {8, 64, 28, 28}, DataType::bf16, Layout::nhwc);
  const Tensor w = g.input("w", {64, 64, 3, 3}, DataType::bf16);
  const Tensor y = g.relu(g.conv_fprop(x, w, {.padding = {1, 1}}));
  const GenStatsResults made = g.gen_stats(y);
  const Plan plan =
      build(g.finish({y, made.sum, made.sq_sum}), DeviceInfo::named("H200"), BuildOptions{.compile = false});
  const auto reductions = [&](const PlannedFusion& fusion) {
    return std::ranges::count_if(fusion.ops, [&](int op) {
      return std::holds_alternative<Reduction>(plan.graph.ops[static_cast<size_t>(op)].attributes);
    });
  };
  EXPECT_EQ(std::ranges::count(plan.fusions, 2, reductions), 1);
  EXPECT_LT(plan.workspace_bytes, 8 * 64 * 28 * 28);
}

// The backward pass of a norm in front of a depthwise convolution: its sums read the gradient and the norm's
// operand; their product is not stored.
TEST(Choose, ProductsBehindAConvolutionAreComputedWhereTheyAreAddedUp) {
  GraphBuilder g;
  const Dims dims{32, 96, 56, 56}, channels{1, 96, 1, 1};
  const Tensor dy = g.input("dy", {32, 96, 28, 28}, DataType::bf16, Layout::nhwc);
  const Tensor w = g.input("w", {96, 1, 3, 3}, DataType::bf16);
  const Tensor dx = g.conv_dgrad(dy, w, dims, {.padding = {1, 1}, .stride = {2, 2}, .groups = 96});
  const Tensor slope =
      g.swish_bwd(dx, g.input("a", dims, DataType::bf16, Layout::nhwc), {.type = DataType::bf16});
  const Tensor apart =
      g.sub(g.input("x", dims, DataType::bf16, Layout::nhwc), g.input("mean", channels, DataType::f32));
  const Tensor normed = g.mul(apart, g.input("inv_std", channels, DataType::f32));
  const Tensor sum = g.reduce(slope, ReductionMode::add, {0, 2, 3});
  const Tensor product = g.reduce(g.mul(slope, normed), ReductionMode::add, {0, 2, 3});
  g.output(slope, {.name = "slope", .layout = Layout::nhwc});
  const Plan plan =
      build(g.finish({sum, product}), DeviceInfo::named("H200"), BuildOptions{.compile = false});
  EXPECT_EQ(plan.fusions.size(), 2U);
  EXPECT_LT(plan.workspace_bytes, element_count(dims));
}

// Totals that no pass over rows leaves have one pass of their own together, which reads what the gradient
// reads: nothing of the size of x is stored between the two.
TEST(Choose, TotalsOfNormsShareAPassThatReadsWhatIsGiven) {
  const auto plan_of = [](NormMode norm, const Dims& dims, const Dims& scale, const Dims& statistics,
                          Layout layout, int64_t groups) {
    GraphBuilder g;
    const Tensor dy = g.input("dy", dims, DataType::bf16, layout),
                 x = g.input("x", dims, DataType::bf16, layout);
    const NormGradients made = g.norm_bwd(dy, x,
                                          {.norm = norm,
                                           .groups = groups,
                                           .scale = g.input("scale", scale, DataType::f32),
                                           .mean = g.input("mean", statistics, DataType::f32),
                                           .inv_std = g.input("inv_std", statistics, DataType::f32)});
    return build(g.finish({made.dx, made.dscale, made.dbias}), DeviceInfo::named("H200"),
                 BuildOptions{.compile = false});
  };
  const Dims image{2, 320, 64, 64}, channels{1, 320, 1, 1};
  for (const Plan& plan :
       {plan_of(NormMode::group_norm, image, channels, {2, 32, 1, 1}, Layout::nhwc, 32),
        plan_of(NormMode::group_norm, image, channels, {2, 32, 1, 1}, Layout::row_major, 32),
        plan_of(NormMode::adaptive_layer_norm, {4, 1024, 1024}, {4, 1, 1024}, {4, 1024, 1}, Layout::row_major,
                1)}) {
    EXPECT_EQ(plan.fusions.size(), 2U);
    EXPECT_LT(plan.workspace_bytes, element_count(plan.graph.tensors[0].dims));
  }
}

// Where gradients of scores lie in memory for a bias's gradient, that of queries is a product of them: nobody
// computes scores for it again. Elsewhere it stays with those of keys and values.
TEST(Choose, GradientsOfQueriesAreAProductOfWhatABiasStores) {
  const auto engines_of = [](const Dims& bias, bool is_learnt) {
    GraphBuilder g;
    const Dims dims{8, 12, 512, 64};
    const auto input = [&](const char* name) { return g.input(name, dims, DataType::bf16); };
    const Tensor stats = g.input("stats", {8, 12, 512, 1}, DataType::f32);
    const SdpaGradients made = g.sdpa_bwd(input("q"), input("k"), input("v"), input("o"), input("dy"), stats,
                                          {.bias = g.input("bias", bias, DataType::bf16)});
    std::vector<Tensor> results{made.dq, made.dk, made.dv};
    if (is_learnt) results.push_back(made.dbias);
    const Plan plan = build(g.finish(results), device(), BuildOptions{.compile = false});
    std::vector<std::string> engines;
    for (const PlannedFusion& fusion : plan.fusions) engines.push_back(fusion.config.engine);
    return engines;
  };
  for (const Dims& bias : {Dims{1, 12, 512, 512}, Dims{8, 12, 512, 512}}) {
    EXPECT_THAT(engines_of(bias, true), IsSupersetOf({"attention_backward", "wgmma"})) << to_string(bias);
    EXPECT_THAT(engines_of(bias, false), ElementsAre("elementwise", "attention_backward")) << to_string(bias);
  }
}

// What a part's ops are computed from moves to the other part with all that reads it, or not at all.
TEST(Choose, PartsOfAnAverageOverSparseElementsWaitOneWay) {
  GraphBuilder g;
  const Dims dims{1, 1, 256, 24, 1};
  const Tensor dy = g.input("dy", {1, 1, 257, 13, 2}, DataType::f32);
  const Tensor dx = g.resample_bwd(dy, dims,
                                   {.mode = ResampleMode::avgpool_exclude_padding,
                                    .window = {4, 2, 4},
                                    .stride = {1, 2, 2},
                                    .pre_padding = {3, 1, 3},
                                    .post_padding = {1, 1, 3}});
  EXPECT_FALSE(build(g.finish({dx}), DeviceInfo::cpu(), BuildOptions{.compile = false}).fusions.empty());
}

// A vector of a group's elements shares its channel's scale and bias, which are found for each: half as many
// vectors took 40 us on an H200, twice as many 57.
TEST(Choose, GroupNormsOfPlanesMoveWideVectors) {
  GraphBuilder g;
  const Tensor x = g.input("x", {32, 256, 56, 56}, DataType::bf16);
  const auto of_channel = [&](const char* name) { return g.input(name, {1, 256, 1, 1}, DataType::f32); };
  const NormResults made = g.norm_fwd(
      x,
      {.norm = NormMode::group_norm, .groups = 32, .scale = of_channel("scale"), .bias = of_channel("bias")});
  const Plan plan = build(g.finish({made.y}), DeviceInfo::named("H200"), BuildOptions{.compile = false});
  ASSERT_EQ(plan.fusions.size(), 1U);
  EXPECT_NE(to_string(plan.fusions[0].config).find("vector=8"), std::string::npos);
}

// The gradient of a sampled image by a product whose second operand, shares of all samples in all pixels, is
// stored: the fastest way, as long as there is room.
TEST(Choose, AQuarterOfTheMemoryIsTheMostThatNobodyAskedFor) {
  GraphBuilder g;
  const Dims image{2, 32, 32, 32};
  const Tensor dy = g.input("dy", image, DataType::f16), x = g.input("x", image, DataType::f16);
  const Graph graph = g.finish({g.grid_sample_bwd(dy, x, g.input("grid", {2, 32, 32, 2}, DataType::f32)).dx});
  DeviceInfo device = DeviceInfo::named("H200");
  const auto workspace = [&](int64_t limit) {
    return build(graph, device, BuildOptions{.max_workspace = limit, .compile = false}).workspace_bytes;
  };
  const int64_t most = workspace(kNoWorkspaceLimit);
  ASSERT_GT(most, 1 << 20);
  device.memory_bytes = 4 * (most - 1);
  EXPECT_LT(workspace(kNoWorkspaceLimit), most);
  EXPECT_EQ(workspace(most), most);
  // Nothing takes so little.
  device.memory_bytes = 4;
  EXPECT_EQ(workspace(kNoWorkspaceLimit), most);
}

TEST(Choose, ExplanationHoldsRefusalAndBothPrices) {
  const PickyEngine picky("picky", kFast, "exp");
  const PickyEngine whole("whole", 1.5 * kFast);
  const std::vector<const Engine*> engines{&picky, &whole};
  PlannerOptions options;
  options.engine_list = engines;
  const Explanation explanation = explain_data(conv_relu_exp(), device(), options);
  const Decision& decision = explanation.decisions.back();
  EXPECT_EQ(decision.cut_at, "exp");
  EXPECT_FALSE(decision.cut);
  EXPECT_GT(decision.parts_seconds, decision.whole_seconds);
  EXPECT_EQ(decision.answers[0].support.refusal->rule, "test-refuses");
  EXPECT_THAT(explain(conv_relu_exp(), device(), options),
              HasSubstr("picky refuses: rule 'test-refuses' at op 'exp'"));
}

TEST(Choose, ForbiddenEngineIsPassedOver) {
  const PickyEngine fast("fast", kFast);
  const PickyEngine slow("slow", kSlow);
  const std::vector<const Engine*> engines{&fast, &slow};
  PlannerOptions options;
  options.engine_list = engines;
  options.build.forbid = {"fast"};
  EXPECT_EQ(choose(conv_relu_exp(), device(), options).fusions[0].options[0].engine, &slow);
  options.build.forbid = {"fast", "slow"};
  try {
    choose(conv_relu_exp(), device(), options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("fast refuses: rule 'forbidden'"));
  }
}

TEST(Choose, UnknownEngineIsRefusedByName) {
  PlannerOptions options;
  options.build.forbid = {"nosuch"};
  try {
    choose(conv_relu_exp(), device(), options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "forbid: there is no engine 'nosuch'; there are attention, attention_backward, "
                 "attention_latent, attention_decode, attention_mma, recurrent, wgmma, wgmma_repacked, "
                 "wgmma_narrow, wgmma_taps, wgmma_parts, mma_stream, mma_weights, mma, "
                 "grouped, depthwise, depthwise_repacked, window, rows, elementwise, packed, direct, cpu");
  }
}

TEST(Choose, ForcedEngineWinsOverPrice) {
  const PickyEngine fast("fast", kFast);
  const PickyEngine slow("slow", kSlow);
  setenv("FUSOR_ENGINE", "slow", 1);
  const auto result = chosen(conv_relu_exp(), {&fast, &slow});
  unsetenv("FUSOR_ENGINE");
  EXPECT_THAT(result, ElementsAre(ElementsAre("slow", "conv", "relu", "exp")));
}

// Where the forced engine takes the parts of a fusion only, the parts it is.
TEST(Choose, ForcedEngineWinsOverTheWholeOfAnother) {
  const PickyEngine fast("fast", kFast);
  const PickyEngine slow("slow", kSlow, "exp");
  setenv("FUSOR_ENGINE", "slow", 1);
  const auto result = chosen(conv_relu_exp(), {&fast, &slow});
  unsetenv("FUSOR_ENGINE");
  EXPECT_THAT(result, ElementsAre(ElementsAre("slow", "conv", "relu"), ElementsAre("fast", "exp")));
}

TEST(Candidates, VaryTheDearestFusionBestFirst) {
  const PickyEngine fast("fast", kFast);
  const std::vector<const Engine*> engines{&fast};
  PlannerOptions options;
  options.engine_list = engines;
  const std::vector<Candidate> found = candidates(conv_relu_exp(), device(), options);
  ASSERT_THAT(found, SizeIs(2));
  EXPECT_LT(found[0].seconds, found[1].seconds);
  EXPECT_EQ(found[0].workspace_bytes, 0);
  EXPECT_EQ(found[1].workspace_bytes, 4096);
}

TEST(Candidates, WorkspaceLimitIsKeptOrRefusedWithNumbers) {
  const PickyEngine fast("fast", kFast);
  const std::vector<const Engine*> engines{&fast};
  PlannerOptions options;
  options.engine_list = engines;
  options.build.max_workspace = 100;
  EXPECT_THAT(candidates(conv_relu_exp(), device(), options), SizeIs(1));
  GraphBuilder g("two");
  const Tensor x = g.input("x", {64, 64}, DataType::f32);
  const Graph two = g.finish({g.matmul(g.matmul(x, x), x)});
  try {
    candidates(two, device(), options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("no candidate needs at most 100 bytes of workspace; the smallest needs 16384"));
  }
}

// Two fusions of one engine, each with a slow option that needs no scratch: the one fusion that the limit
// leaves no room for makes do, and so do both.
TEST(Candidates, EveryFusionMayMakeDoWithLessWorkspace) {
  const ScratchEngine engine;
  const std::vector<const Engine*> engines{&engine};
  GraphBuilder g("two");
  const Tensor x = g.input("x", {64, 64}, DataType::f32);
  const Graph two = g.finish({g.matmul(g.matmul(x, x), x)});
  PlannerOptions options;
  options.engine_list = engines;
  options.build.compile = false;
  EXPECT_EQ(build(two, device(), options).workspace_bytes, 16384 + 4096);
  options.build.max_workspace = 16384;
  const Plan plan = build(two, device(), options);
  EXPECT_EQ(plan.workspace_bytes, 16384);
  for (const PlannedFusion& fusion : plan.fusions) EXPECT_EQ(fusion.config.knob("scratch", 1), 0);
  EXPECT_EQ(candidates(two, device(), options).front().fusions, plan.fusions);
}

TEST(BuildOptions, NonsenseIsRefused) {
  BuildOptions options;
  options.compile = false;
  options.max_workspace = -5;
  EXPECT_THROW(build(conv_relu_exp(), device(), options), Error);
  options.max_workspace = kNoWorkspaceLimit;
  options.max_candidates = 0;
  EXPECT_THROW(candidates(conv_relu_exp(), device(), options), Error);
}

// The parts of a cut that elementwise asks for would be its own.
TEST(Choose, ForbiddingTheEngineOfAPartLeavesTheWhole) {
  GraphBuilder g("g");
  const Tensor a = g.input("a", {128, 128}, DataType::f16);
  const Graph graph = g.finish({g.relu(g.matmul(g.relu(a), a))});
  BuildOptions options;
  options.compile = false;
  options.forbid = {"elementwise"};
  EXPECT_NO_THROW(build(graph, device(), options));
}

TEST(Choose, FusionOfMoreArgumentsThanAKernelTakesIsCut) {
  GraphBuilder g("g");
  const Dims dims{2, 2, 2, 2, 2, 2, 2, 2};
  Tensor sum = g.input("x", dims, DataType::f32);
  for (int i = 0; i < 250; ++i) {
    Strides strides;
    for (int axis = 0; axis < 8; ++axis) strides.push_back((int64_t{1} << (2 * (7 - axis))) + i);
    const Tensor next =
        g.input("x" + std::to_string(i), dims, DataType::f32, TensorOptions{.strides = strides});
    sum = g.add(sum, g.binary_select(next, sum, sum));
  }
  BuildOptions options;
  options.compile = false;
  const Plan plan = build(g.finish({sum}), device(), options);
  for (const PlannedKernel& kernel : kernels(plan)) EXPECT_LE(kernel.launch.arguments.bytes().size(), 32764u);
}

// Each diamond doubles the ways from the first op to the last.
TEST(Choose, ManyDiamondsArePlannedAtOnce) {
  GraphBuilder g("diamonds");
  Tensor x = g.input("x", {64, 32}, DataType::f32);
  for (int i = 0; i < 64; ++i) x = g.add(g.neg(x), g.abs(x));
  const Tensor rows = g.reduce(x, ReductionMode::add, {0}), columns = g.reduce(x, ReductionMode::add, {1});
  BuildOptions options;
  options.compile = false;
  EXPECT_NO_THROW(build(g.finish({rows, columns}), device(), options));
}

TEST(Explain, PartsOfARejectedCutStandBelowIt) {
  const PickyEngine picky("picky", kFast, "exp");
  const PickyEngine whole("whole", 1.5 * kFast);
  const std::vector<const Engine*> engines{&picky, &whole};
  PlannerOptions options;
  options.engine_list = engines;
  const std::string text = explain(conv_relu_exp(), device(), options);
  EXPECT_LT(text.find("* whole"), text.find("picky refuses"));
  EXPECT_LT(text.find("kept whole"), text.find("    fusion conv + relu"));
}

TEST(Explain, EnginesOfAnotherDeviceAreOneLine) {
  BuildOptions options;
  EXPECT_THAT(
      explain(conv_relu_exp(), DeviceInfo::named("A100"), options, Detail::all),
      HasSubstr("for other devices: attention, attention_backward, attention_latent, wgmma, wgmma_repacked, "
                "wgmma_narrow, wgmma_taps, wgmma_parts, cpu"));
}

}  // namespace
}  // namespace fusor
