// Owns the tests of depthwise convolutions on the GPU: every candidate of every pass, type, rank, odd size,
// stride, dilation and padding, fused and plain.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "backend/engines/list.h"
#include "frontend/graph_builder.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/planner/whole_fusion.h"
#include "tests/gpu/engines/every_config.h"

namespace fusor {
namespace {

struct DepthwiseCase {
  Dims x, window;
  Dims pre, post, stride, dilation;
};

const DepthwiseCase kCases[] = {
    {{2, 16, 9, 11}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {{1, 8, 14, 14}, {5, 5}, {2, 2}, {2, 2}, {1, 1}, {1, 1}},
    {{2, 20, 13, 30}, {3, 2}, {0, 1}, {2, 0}, {2, 1}, {1, 1}},
    {{3, 7, 17, 16}, {7, 7}, {3, 3}, {3, 3}, {2, 2}, {1, 1}},
    {{2, 24, 20, 19}, {3, 3}, {2, 4}, {3, 1}, {1, 2}, {2, 4}},
    {{1, 6, 12, 23}, {2, 3}, {0, 0}, {0, 0}, {3, 5}, {1, 1}},
    {{2, 64, 15, 15}, {1, 1}, {0, 0}, {0, 0}, {2, 2}, {1, 1}},
    {{1, 12, 40, 33}, {3, 17}, {1, 8}, {1, 8}, {1, 1}, {1, 1}},
    {{2, 40, 50, 1}, {4, 1}, {3, 0}, {0, 0}, {1, 1}, {1, 1}},
    {{2, 264, 50}, {4}, {3}, {0}, {1}, {1}},
    {{2, 10, 50}, {4}, {3}, {0}, {3}, {2}},
    {{1, 16, 5, 6, 7}, {3, 2, 3}, {1, 0, 1}, {1, 1, 1}, {1, 1, 2}, {1, 1, 1}},
    {{2, 8, 6, 9, 6}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {2, 2, 2}, {1, 2, 1}},
    {{2, 8, 6, 9, 1}, {2, 3, 1}, {0, 1, 1}, {0, 1, 0}, {1, 1, 2}, {1, 1, 1}},
};

Dims filter_dims(const DepthwiseCase& c) {
  Dims w{c.x[1], 1};
  for (const int64_t taps : c.window) w.push_back(taps);
  return w;
}

Dims y_dims(const DepthwiseCase& c) {
  Dims y{c.x[0], c.x[1]};
  for (int i = 0; i < c.window.rank(); ++i)
    y.push_back((c.x[i + 2] + c.pre[i] + c.post[i] - c.dilation[i] * (c.window[i] - 1) - 1) / c.stride[i] +
                1);
  return y;
}

Dims per_channel(const DepthwiseCase& c) {
  Dims dims = Dims::filled(c.x.rank(), 1);
  dims[1] = c.x[1];
  return dims;
}

// With `fused`: scale, shift and ReLU before, which make nonzero of zero, so that padding must be masked
// after them; bias and ReLU after.
Graph graph_of(const DepthwiseCase& c, ConvPass pass, DataType type, ConvMode mode, bool fused,
               Layout layout = Layout::nhwc) {
  const ConvOptions options{
      .pre_padding = c.pre, .post_padding = c.post, .stride = c.stride, .dilation = c.dilation, .mode = mode};
  GraphBuilder g("depthwise");
  const auto vector = [&](const char* name) { return g.input(name, per_channel(c), DataType::f32); };
  const Tensor first = g.input("first", pass == ConvPass::fprop ? c.x : y_dims(c), type, layout);
  const Tensor second = g.input("second", pass == ConvPass::wgrad ? c.x : filter_dims(c), type, layout);
  const Tensor left =
      fused ? g.relu(g.add(g.mul(first, vector("scale")), g.add(vector("shift"), g.constant(1.5)))) : first;
  Tensor result = pass == ConvPass::fprop   ? g.conv_fprop(left, second, options)
                  : pass == ConvPass::dgrad ? g.conv_dgrad(left, second, c.x, options)
                                            : g.conv_wgrad(left, second, filter_dims(c), options);
  if (fused && pass == ConvPass::wgrad) result = g.mul(result, g.constant(0.25));
  if (fused && pass != ConvPass::wgrad) result = g.relu(g.add(result, vector("bias")));
  return g.finish({g.output(result, {.type = type, .layout = layout})});
}

void check(const DepthwiseCase& c, ConvPass pass, DataType type, ConvMode mode, bool fused) {
  expect_every_candidate_correct(
      graph_of(c, pass, type, mode, fused),
      fmt::format("{} {} x {} window {} {}{}", to_string(pass), to_string(type), to_string(c.x),
                  to_string(c.window), to_string(mode), fused ? " fused" : ""));
}

constexpr std::array kPasses{ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad};

TEST(DepthwiseGpu, EveryCandidateOfEveryPassInFp16) {
  FUSOR_NEEDS_GPU();
  for (const DepthwiseCase& c : kCases)
    for (const ConvPass pass : kPasses) check(c, pass, DataType::f16, ConvMode::cross_correlation, false);
}

// Channels are planes: rows that loads of 8, 4, 2 pixels and of one divide, images with few strips and many,
// more channels than a block has, windows on their side, strides, dilations, one and three spatial axes. The
// first three are marched in every way.
const DepthwiseCase kPlanes[] = {
    {{2, 6, 56, 56}, {5, 5}, {2, 2}, {2, 2}, {2, 2}, {1, 1}},
    {{2, 40, 14, 14}, {7, 7}, {3, 3}, {3, 3}, {1, 1}, {1, 1}},
    {{1, 12, 3, 22}, {3, 3}, {2, 0}, {2, 1}, {1, 1}, {1, 1}},
    {{2, 20, 13, 30}, {3, 2}, {0, 1}, {2, 0}, {2, 1}, {1, 1}},
    {{2, 10, 50}, {4}, {3}, {0}, {3}, {2}},
    {{1, 16, 5, 6, 7}, {3, 2, 3}, {1, 0, 1}, {1, 1, 1}, {1, 1, 2}, {1, 1, 1}},
    {{2, 6, 56, 56}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {{3, 150, 7, 7}, {5, 5}, {2, 2}, {2, 2}, {1, 1}, {1, 1}},
    {{1, 5, 14, 13}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {{2, 6, 30, 30}, {1, 7}, {0, 3}, {0, 3}, {1, 1}, {1, 1}},
    {{2, 6, 30, 32}, {7, 1}, {3, 0}, {3, 0}, {1, 1}, {1, 1}},
    {{2, 6, 20, 28}, {3, 3}, {2, 2}, {2, 2}, {1, 1}, {2, 2}},
    {{1, 6, 31, 40}, {3, 5}, {2, 1}, {0, 4}, {1, 2}, {1, 1}},
    {{2, 8, 6, 9, 16}, {1, 3, 3}, {0, 1, 1}, {0, 1, 1}, {1, 1, 1}, {1, 1, 1}},
    {{4, 96, 7, 7}, {7, 7}, {0, 0}, {0, 0}, {1, 1}, {1, 1}},
};

TEST(DepthwiseGpu, EveryCandidateOfPlanes) {
  FUSOR_NEEDS_GPU();
  int number = 0;
  for (const DepthwiseCase& c : kPlanes)
    for (const ConvPass pass : kPasses) {
      const bool fused = number % 2 == 1;
      // Every fifth in fp32, so that passes and fused ones take turns.
      const DataType type = std::array{DataType::bf16, DataType::f16, DataType::f32, DataType::bf16,
                                       DataType::f16}[static_cast<size_t>(number++ % 5)];
      expect_every_candidate_correct(
          graph_of(c, pass, type, number % 4 == 0 ? ConvMode::convolution : ConvMode::cross_correlation,
                   fused, Layout::nchw),
          fmt::format("planes {} {} x {} window {} {}", to_string(pass), to_string(type), to_string(c.x),
                      to_string(c.window), fused ? "fused" : ""));
    }
}

TEST(DepthwiseGpu, EveryCandidateWithPrologueAndEpilogue) {
  FUSOR_NEEDS_GPU();
  for (const DepthwiseCase& c : {kCases[0], kCases[2], kCases[4], kCases[9], kCases[12]})
    for (const ConvPass pass : kPasses) check(c, pass, DataType::bf16, ConvMode::cross_correlation, true);
}

TEST(DepthwiseGpu, EveryCandidateInFp32WithMirroredFilters) {
  FUSOR_NEEDS_GPU();
  for (const DepthwiseCase& c : {kCases[0], kCases[2], kCases[5], kCases[7], kCases[11]})
    for (const ConvPass pass : kPasses) check(c, pass, DataType::f32, ConvMode::convolution, false);
}

// Images lower than the march, strips that end beside the image, padding that windows lie in altogether,
// strides and dilations down and across, more rows than lines in a part; windows that lie on their side.
const DepthwiseCase kMarches[] = {
    {{2, 16, 9, 11}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {{3, 40, 14, 14}, {5, 5}, {2, 2}, {2, 2}, {1, 1}, {1, 1}},
    {{1, 12, 3, 22}, {3, 3}, {2, 0}, {2, 1}, {1, 1}, {1, 1}},
    {{2, 24, 31, 16}, {3, 4}, {0, 3}, {2, 1}, {2, 2}, {1, 1}},
    {{1, 7, 23, 13}, {4, 5}, {3, 1}, {0, 4}, {3, 1}, {1, 1}},
    {{2, 8, 26, 17}, {3, 3}, {2, 2}, {2, 3}, {1, 1}, {2, 2}},
    {{1, 20, 18, 25}, {5, 2}, {0, 1}, {1, 0}, {1, 2}, {1, 3}},
};

// Whatever the knobs say of strips that are marched down, in registers or not.
void check_marches(const DepthwiseCase& c, ConvPass pass, DataType type, bool fused,
                   Layout layout = Layout::nhwc) {
  const Graph graph = graph_of(c, pass, type, ConvMode::cross_correlation, fused, layout);
  const std::vector<const Engine*> engines{&depthwise_engine(), &elementwise_engine(), &direct_engine()};
  // Whether or not a cut before the convolution were cheaper.
  const Candidate cut =
      candidates(graph, DeviceInfo::current(), PlannerOptions{.engine_list = engines}).front();
  Candidate whole;
  whole.fusions.resize(1);
  std::vector<int>& ops = whole.fusions[0].ops;
  for (const PlannedFusion& fusion : cut.fusions) ops.insert(ops.end(), fusion.ops.begin(), fusion.ops.end());
  std::ranges::sort(ops);
  const std::vector<Knob> knobs =
      test::knobs(depthwise_engine(), test::fusion_of(graph), DeviceInfo::current());
  for (const int64_t vector : knobs[0].values)
    for (const int64_t strip : knobs[1].values)
      for (const int64_t rows : knobs[2].values) {
        // Others are left to the candidates.
        if (rows <= 2 || strip < 4 || vector * strip > 32) continue;
        Candidate candidate = whole;
        EngineConfig& config = candidate.fusions[0].config;
        config = {"depthwise", depthwise_engine().revision(), {}};
        config.knobs = {{"vector", vector}, {"strip", strip}, {"rows", rows}};
        if (pass == ConvPass::wgrad) config.knobs.push_back({"split", strip == 4 ? 1 : 0});
        if (layout == Layout::nchw) config.knobs.push_back({"load", strip == 8 ? 4 : 0});
        expect_config_correct(graph, candidate, engines,
                              fmt::format("{} {} x {} window {}{}", to_string(pass), to_string(type),
                                          to_string(c.x), to_string(c.window), fused ? " fused" : ""));
      }
}

TEST(DepthwiseGpu, EveryMarchOfEveryPass) {
  FUSOR_NEEDS_GPU();
  for (const DepthwiseCase& c : kMarches)
    for (const ConvPass pass : kPasses) check_marches(c, pass, DataType::bf16, false);
}

TEST(DepthwiseGpu, MarchesWithPrologueAndInFp32) {
  FUSOR_NEEDS_GPU();
  for (const DepthwiseCase& c : {kMarches[0], kMarches[3]})
    for (const ConvPass pass : kPasses) {
      check_marches(c, pass, DataType::f16, true);
      check_marches(c, pass, DataType::f32, false);
    }
}

TEST(DepthwiseGpu, EveryMarchOfPlanes) {
  FUSOR_NEEDS_GPU();
  for (const DepthwiseCase& c : {kPlanes[0], kPlanes[1], kPlanes[2]})
    for (const ConvPass pass : kPasses) check_marches(c, pass, DataType::bf16, c.x[3] == 14, Layout::nchw);
}

// On tensor cores: images of one octet and of many, which end beside it, groups of channels that blocks have
// too many or few of, more and fewer images than octets at once, padding of all widths and none, windows that
// are not square. Every split that the knobs offer is rows of x shared out otherwise.
const DepthwiseCase kOctets[] = {
    {{33, 32, 7, 7}, {7, 7}, {3, 3}, {3, 3}, {1, 1}, {1, 1}},
    {{1, 96, 28, 28}, {7, 7}, {3, 3}, {3, 3}, {1, 1}, {1, 1}},
    {{2, 40, 13, 19}, {7, 7}, {3, 3}, {3, 3}, {1, 1}, {1, 1}},
    {{1, 8, 30, 31}, {5, 5}, {2, 2}, {2, 2}, {1, 1}, {1, 1}},
    {{5, 16, 14, 14}, {5, 5}, {4, 4}, {0, 1}, {1, 1}, {1, 1}},
    {{3, 72, 9, 11}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {{2, 48, 10, 33}, {4, 6}, {0, 5}, {3, 0}, {1, 1}, {1, 1}},
    {{2, 24, 17, 9}, {7, 2}, {0, 0}, {0, 0}, {1, 1}, {1, 1}},
    {{1, 8, 1, 3}, {5, 7}, {6, 3}, {5, 8}, {1, 1}, {1, 1}},
};
// Images enough for several runs a block, whole or in parts.
const DepthwiseCase kManyOctets[] = {
    {{160, 96, 20, 40}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {{33, 264, 21, 15}, {7, 7}, {3, 3}, {3, 3}, {1, 1}, {1, 1}},
    {{130, 768, 7, 7}, {7, 7}, {3, 3}, {3, 3}, {1, 1}, {1, 1}},
};

void check_octets(const Graph& graph, const std::string& what) {
  const std::vector<const Engine*> engines{&depthwise_engine()};
  Candidate candidate =
      candidates(graph, DeviceInfo::current(), PlannerOptions{.engine_list = engines}).front();
  ASSERT_EQ(candidate.fusions.size(), 1u) << what;
  const std::vector<Knob> knobs =
      test::knobs(depthwise_engine(), test::fusion_of(graph), DeviceInfo::current());
  const auto named = [&](const char* name) { return std::ranges::find(knobs, name, &Knob::name); };
  if (named("mma") == knobs.end()) return;
  const auto split = named("split");
  for (const int64_t parts : split == knobs.end() ? std::vector<int64_t>{0} : split->values) {
    if (parts > 64) continue;
    EngineConfig& config = candidate.fusions.at(0).config;
    config = {"depthwise", depthwise_engine().revision(), {}};
    config.knobs = {{"vector", 8}, {"strip", 8}, {"rows", 1}, {"mma", 1}};
    if (split != knobs.end()) config.knobs.push_back({"split", parts});
    expect_config_correct(graph, candidate, engines, what);
  }
}

void check_octets(const DepthwiseCase& c, ConvPass pass, DataType type, ConvMode mode) {
  check_octets(graph_of(c, pass, type, mode, false),
               fmt::format("{} {} x {} window {} {}", to_string(pass), to_string(type), to_string(c.x),
                           to_string(c.window), to_string(mode)));
}

TEST(DepthwiseGpu, EveryPassOnTensorCores) {
  FUSOR_NEEDS_GPU();
  for (const DepthwiseCase& c : kOctets)
    for (const ConvPass pass : kPasses) {
      check_octets(c, pass, DataType::bf16, ConvMode::cross_correlation);
      check_octets(c, pass, DataType::f16, ConvMode::convolution);
    }
}

TEST(DepthwiseGpu, ManyRunsOnTensorCores) {
  FUSOR_NEEDS_GPU();
  for (const DepthwiseCase& c : kManyOctets)
    for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad})
      check_octets(c, pass, DataType::bf16, ConvMode::cross_correlation);
}

// Bias, what a residual adds, and ReLU; also what is before the ReLU is a result, in fp32.
Graph with_epilogue(const DepthwiseCase& c, ConvPass pass, DataType type) {
  const ConvOptions options{.pre_padding = c.pre, .post_padding = c.post};
  GraphBuilder g("epilogue");
  const Dims result = pass == ConvPass::fprop ? y_dims(c) : c.x;
  const Tensor first = g.input("first", pass == ConvPass::fprop ? c.x : y_dims(c), type, Layout::nhwc);
  const Tensor filters = g.input("second", filter_dims(c), type);
  const Tensor y = pass == ConvPass::fprop ? g.conv_fprop(first, filters, options)
                                           : g.conv_dgrad(first, filters, c.x, options);
  const Tensor sum = g.add(g.add(y, g.input("bias", per_channel(c), DataType::f32)),
                           g.input("residual", result, type, Layout::nhwc));
  return g.finish({g.output(g.relu(sum), {.name = "result", .type = type, .layout = Layout::nhwc}),
                   g.output(sum, {.name = "sum", .type = DataType::f32, .layout = Layout::nhwc})});
}

TEST(DepthwiseGpu, EpiloguesOnTensorCores) {
  FUSOR_NEEDS_GPU();
  for (const DepthwiseCase& c : {kOctets[0], kOctets[2], kOctets[4], kOctets[5]})
    for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad})
      for (const DataType type : {DataType::bf16, DataType::f16})
        check_octets(with_epilogue(c, pass, type),
                     fmt::format("{} {} x {} window {}, epilogue", to_string(pass), to_string(type),
                                 to_string(c.x), to_string(c.window)));
}

TEST(DepthwiseGpu, IsTheChoiceForChannelsLast) {
  FUSOR_NEEDS_GPU();
  for (const ConvPass pass : kPasses) {
    const DepthwiseCase c{{16, 144, 56, 56}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
    const Graph graph = graph_of(c, pass, DataType::f16, ConvMode::cross_correlation, false);
    const Plan plan = build(graph, DeviceInfo::current());
    ASSERT_EQ(plan.fusions.size(), 1u);
    EXPECT_EQ(plan.fusions[0].config.engine, "depthwise");
    expect_correct(graph, std::string(to_string(pass)));
  }
}

// Where a channel slice starts off the vectors' multiples, or rows are padded.
TEST(DepthwiseGpu, StridesAndSlicesOfAnyAlignment) {
  FUSOR_NEEDS_GPU();
  for (const int64_t start : {0, 3, 4, 8}) {
    GraphBuilder g("slice");
    const Tensor x = g.input("x", {2, 32, 10, 11}, DataType::f16, Layout::nhwc);
    const Tensor part = g.slice(x, {0, start, 0, 0}, {2, start + 16, 10, 11});
    const Tensor y = g.conv_fprop(part, g.input("w", {16, 1, 3, 3}, DataType::f16), {.padding = {1, 1}});
    expect_every_candidate_correct(g.finish({g.output(y, {.layout = Layout::nhwc})}),
                                   fmt::format("channels from {}", start));
  }
}

}  // namespace
}  // namespace fusor
