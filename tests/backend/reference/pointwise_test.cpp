// Tests the evaluator's pointwise side: strides, types, integers, special values, both readings.
#include <limits>
#include <numbers>

#include "tests/backend/reference/host_buffers.h"

namespace fusor {
namespace {

using testing::Test;
constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::nan("");

std::vector<double> evaluate_pointwise(PointwiseMode mode, DataType type,
                                       const std::vector<std::vector<double>>& values, Reading reading,
                                       const PointwiseOptions& options = {}) {
  GraphBuilder g;
  std::vector<Tensor> operands;
  for (size_t i = 0; i < values.size(); ++i)
    operands.push_back(g.input("x" + std::to_string(i), {static_cast<int64_t>(values[i].size())}, type));
  const Tensor y = g.output(g.pointwise(mode, operands, options), {.name = "y"});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  for (size_t i = 0; i < values.size(); ++i) tensors.set(operands[i], values[i]);
  tensors.run(reading);
  return tensors.get(y);
}

class EachReading : public testing::TestWithParam<Reading> {};
INSTANTIATE_TEST_SUITE_P(Readings, EachReading, testing::Values(Reading::oracle, Reading::device),
                         [](const auto& tested) {
                           return tested.param == Reading::oracle ? "Oracle" : "Device";
                         });

TEST_P(EachReading, IntegerArithmeticWrapsAndDivisionByZeroIsZero) {
  const double top = std::numeric_limits<int32_t>::max(), bottom = std::numeric_limits<int32_t>::min();
  const auto run = [&](PointwiseMode mode, double a, double b) {
    return evaluate_pointwise(mode, DataType::i32, {{a}, {b}}, GetParam()).front();
  };
  EXPECT_EQ(run(PointwiseMode::add, top, 1), bottom);
  EXPECT_EQ(run(PointwiseMode::mul, 65536, 65536), 0);
  EXPECT_EQ(run(PointwiseMode::div, -7, 2), -3);
  EXPECT_EQ(run(PointwiseMode::div, 7, 0), 0);
  EXPECT_EQ(run(PointwiseMode::mod, -7, 3), -1);
  EXPECT_EQ(run(PointwiseMode::mod, 7, 0), 0);
  EXPECT_EQ(run(PointwiseMode::div, bottom, -1), bottom);
}

TEST_P(EachReading, MaxAndMinPropagateNaN) {
  for (const PointwiseMode mode : {PointwiseMode::max, PointwiseMode::min}) {
    const auto y = evaluate_pointwise(mode, DataType::f32, {{kNaN, 1, 2}, {1, kNaN, 3}}, GetParam());
    EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]));
    EXPECT_EQ(y[2], mode == PointwiseMode::max ? 3 : 2);
  }
}

TEST_P(EachReading, SigmoidAndGeluKeepTheirTails) {
  const auto sigmoid =
      evaluate_pointwise(PointwiseMode::sigmoid, DataType::f64, {{-700, 700, -kInf, kInf}}, GetParam());
  EXPECT_NEAR(sigmoid[0] / std::exp(-700.0), 1, 1e-12);
  EXPECT_EQ(sigmoid[1], 1);
  EXPECT_EQ(sigmoid[2], 0);
  EXPECT_EQ(sigmoid[3], 1);
  const auto gelu = evaluate_pointwise(PointwiseMode::gelu, DataType::f64, {{-10}}, GetParam());
  EXPECT_NEAR(gelu[0] / (-10 * 0.5 * std::erfc(10 / std::sqrt(2.0))), 1, 1e-12);
}

using Exactly = long double;

// Slopes of the activations as their definitions say, in a type whose digits hide every cancellation below.
Exactly slope_of(PointwiseMode mode, Exactly x) {
  const auto sigmoid = [](Exactly u) {
    const Exactly tail = std::exp(-std::fabs(u));
    return (u < 0 ? tail : 1) / (1 + tail);
  };
  const auto gated = [&](Exactly u, Exactly du) { return sigmoid(u) * (1 + x * du * sigmoid(-u)); };
  const Exactly gate = 2 * std::sqrt(2 / std::numbers::pi_v<Exactly>);
  switch (mode) {
    case PointwiseMode::tanh_bwd:
      return 1 / (std::cosh(x) * std::cosh(x));
    case PointwiseMode::sigmoid_bwd:
      return sigmoid(x) * sigmoid(-x);
    case PointwiseMode::elu_bwd:
      return x > 0 ? 1 : std::exp(x);
    case PointwiseMode::gelu_bwd:
      return std::erfc(-x / std::numbers::sqrt2_v<Exactly>) / 2 +
             x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi_v<Exactly>);
    case PointwiseMode::gelu_tanh_bwd:
      return gated(gate * (x + 0.044715L * x * x * x), gate * (1 + 0.134145L * x * x));
    case PointwiseMode::softplus_bwd:
      return sigmoid(x);
    default:
      return gated(x, 1);  // swish_bwd
  }
}

class EachSlope : public testing::TestWithParam<PointwiseMode> {};
INSTANTIATE_TEST_SUITE_P(Modes, EachSlope,
                         testing::Values(PointwiseMode::tanh_bwd, PointwiseMode::sigmoid_bwd,
                                         PointwiseMode::elu_bwd, PointwiseMode::gelu_bwd,
                                         PointwiseMode::gelu_tanh_bwd, PointwiseMode::softplus_bwd,
                                         PointwiseMode::swish_bwd),
                         [](const auto& tested) { return std::string(to_string(tested.param)); });

// Where the slopes of gelu and swish pass through zero every formula cancels; beside it, the argument of an
// exponential is rounded, which costs as many digits as its size has.
TEST_P(EachSlope, KeepsItsDigitsWhereItSaturates) {
  std::vector<double> xs;
  for (double size = 1e-42; size<1e38; size *= size> 1e-3 && size < 200 ? 1.03 : 10)
    for (const double sign : {-1.0, 1.0}) xs.push_back(static_cast<float>(sign * size));
  for (const DataType type : {DataType::f32, DataType::f64}) {
    const double unit = type == DataType::f32 ? 0x1p-23 : 0x1p-52;
    const double least = type == DataType::f32 ? 0x1p-126 : 0x1p-1022;
    const auto slopes =
        evaluate_pointwise(GetParam(), type, {std::vector<double>(xs.size(), 1), xs}, Reading::device);
    for (size_t i = 0; i < xs.size(); ++i) {
      const Exactly want = slope_of(GetParam(), xs[i]);
      if (std::fabs(xs[i]) > 1e30 || std::fabs(want) < 2 * least) {
        ASSERT_NEAR(slopes[i], xs[i] > 0 && want > 0.5L ? 1 : 0, 2 * least) << xs[i];
        continue;
      }
      const double digits = 16 + 4 * std::fabs(std::log(std::fabs(static_cast<double>(want))));
      const double size = xs[i] < -0.3 && xs[i] > -3 ? 1 : std::fabs(static_cast<double>(want));
      ASSERT_NEAR(slopes[i], static_cast<double>(want), digits * unit * size)
          << to_string(type) << ' ' << xs[i];
    }
  }
}

TEST_P(EachSlope, InfinitiesGiveTheLimitsAndNaNStays) {
  const bool falls = GetParam() == PointwiseMode::tanh_bwd || GetParam() == PointwiseMode::sigmoid_bwd;
  for (const DataType type : {DataType::f32, DataType::f64})
    for (const Reading reading : {Reading::oracle, Reading::device}) {
      const auto slopes =
          evaluate_pointwise(GetParam(), type, {{1, 1, 1, kNaN}, {-kInf, kInf, kNaN, 1}}, reading);
      EXPECT_EQ(slopes[0], 0);
      EXPECT_EQ(slopes[1], falls ? 0 : 1);
      EXPECT_TRUE(std::isnan(slopes[2]) && std::isnan(slopes[3]));
    }
}

TEST_P(EachSlope, SaturatedGradientsAreVerified) {
  for (const double x : {-60.0, -12.0, -9.0, 9.0, 12.0, 60.0}) {
    GraphBuilder g;
    const Tensor dy = g.input("dy", {4}, DataType::f32);
    const Tensor at = g.input("x", {4}, DataType::f32);
    g.output(g.pointwise(GetParam(), {dy, at}), {.name = "dx"});
    const Graph graph = g.finish();
    HostTensors tensors(graph);
    tensors.set(at, {x, x + 0.1, x + 0.2, x + 0.3});
    tensors.run(Reading::device);
    const VerifyReport report = verify(graph, tensors.pointers());
    EXPECT_TRUE(report.passed()) << x << ' ' << to_string(report);
  }
}

TEST_P(EachReading, ReluClipsOnBothSides) {
  const PointwiseOptions options{.lower_clip = -1, .upper_clip = 2, .lower_clip_slope = 0.5};
  EXPECT_EQ(evaluate_pointwise(PointwiseMode::relu, DataType::f32, {{-3, -1, 0, 2, 5}}, GetParam(), options),
            (std::vector<double>{-2, -1, 0, 2, 2}));
  EXPECT_EQ(evaluate_pointwise(PointwiseMode::relu, DataType::f32, {{-kInf}}, GetParam()),
            std::vector<double>{0});
  const PointwiseOptions between{.lower_clip = 1, .upper_clip = 6};
  const auto clipped = evaluate_pointwise(PointwiseMode::relu, DataType::f32, {{-kInf, 0, 3, 7, kInf, kNaN}},
                                          GetParam(), between);
  EXPECT_EQ(std::vector(clipped.begin(), clipped.begin() + 5), (std::vector<double>{1, 1, 3, 6, 6}));
  EXPECT_TRUE(std::isnan(clipped[5]));
}

TEST_P(EachReading, ComparisonsGiveBooleans) {
  EXPECT_EQ(evaluate_pointwise(PointwiseMode::cmp_gt, DataType::f32, {{1, 2, kNaN}, {2, 1, 0}}, GetParam()),
            (std::vector<double>{0, 1, 0}));
}

TEST_P(EachReading, IndexFollowsItsAxisThroughAnyLayout) {
  GraphBuilder g;
  const Tensor x = g.input("x", {3, 5, 40}, DataType::f32, Layout::nhwc);
  const Tensor y = g.output(g.gen_index(x, 1), {.name = "y", .layout = Layout::row_major});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.run(GetParam());
  const auto values = tensors.get(y);
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], static_cast<double>(i / 40 % 5));
}

TEST_P(EachReading, StridesBroadcastAndGapsAreRespected) {
  GraphBuilder g;
  const Tensor a = g.input("a", {4, 6, 70}, DataType::f16, {.strides = Strides{1, 300, 4}});
  const Tensor b = g.input("b", {6, 1}, DataType::f32);
  const Tensor y =
      g.output(g.add(a, b), {.name = "y", .type = DataType::f32, .strides = Strides{500, 80, 1}});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  const auto before = tensors.get(y);
  tensors.run(GetParam());
  const auto va = tensors.get(a), vb = tensors.get(b), vy = tensors.get(y);
  std::vector<bool> written(vy.size(), false);
  for (size_t i = 0; i < 4; ++i)
    for (size_t j = 0; j < 6; ++j)
      for (size_t k = 0; k < 70; ++k) {
        written[i * 500 + j * 80 + k] = true;
        ASSERT_EQ(vy[i * 500 + j * 80 + k], static_cast<float>(va[i + j * 300 + k * 4] + vb[j]));
      }
  for (size_t i = 0; i < vy.size(); ++i) ASSERT_TRUE(written[i] || vy[i] == before[i]) << "gap at " << i;
}

TEST_P(EachReading, VirtualTypesRound) {
  GraphBuilder g;
  const Tensor x = g.input("x", {1}, DataType::f32);
  const Tensor narrow = g.add(x, x, {.type = DataType::f8_e4m3});
  const Tensor y = g.output(g.mul(narrow, narrow), {.name = "y", .type = DataType::f32});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(x, {1.1});
  const std::vector<int> ops = {0, 1};
  tensors.run(make_fusion(graph, fold_views(graph), ops), GetParam());
  EXPECT_EQ(tensors.get(y).front(), 2.25 * 2.25);
}

TEST_P(EachReading, AVirtualBooleanIsNotZero) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2}, DataType::f32);
  const Tensor flag = g.add(x, x, {.type = DataType::b8});
  const Tensor y = g.output(g.mul(flag, x), {.name = "y", .type = DataType::f32});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(x, {0.125, 0});
  const std::vector<int> ops = {0, 1};
  tensors.run(make_fusion(graph, fold_views(graph), ops), GetParam());
  EXPECT_EQ(tensors.get(y), (std::vector<double>{0.125, 0}));
}

TEST_P(EachReading, HostScalarsAndConstantsAreRead) {
  GraphBuilder g;
  const Tensor x = g.input("x", {3}, DataType::f32);
  const Tensor s = g.scalar("s", DataType::f16);
  const Tensor y = g.output(g.mul(g.add(x, s), g.constant(0.5)), {.name = "y"});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(x, {1, 2, 3});
  tensors.set(s, {4});
  tensors.run(GetParam());
  EXPECT_EQ(tensors.get(y), (std::vector<double>{2.5, 3, 3.5}));
}

TEST(Oracle, ComputesInDoubleWhatTheDeviceComputesInFloat) {
  const std::vector<std::vector<double>> values = {{16777216}, {1}};
  EXPECT_EQ(evaluate_pointwise(PointwiseMode::add, DataType::f32, values, Reading::device).front(), 16777216);
  GraphBuilder g;
  const Tensor a = g.input("a", {1}, DataType::f32);
  const Tensor b = g.input("b", {1}, DataType::f32);
  const Tensor y = g.output(g.add(a, b, {.type = DataType::f64}), {.name = "y", .type = DataType::f64});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(a, values[0]);
  tensors.set(b, values[1]);
  tensors.run(Reading::oracle);
  EXPECT_EQ(tensors.get(y).front(), 16777217);
}

TEST(Oracle, EvaluatesAReshapeThatNoStridesExpress) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 3, 4}, DataType::f32, {.strides = Strides{1, 8, 2}});
  const Tensor y = g.output(g.reshape(x, {4, 6}), {.name = "y", .strides = Strides{1, 4}});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  evaluate_graph(graph, tensors.pointers());
  const auto vx = tensors.get(x), vy = tensors.get(y);
  for (size_t i = 0; i < 24; ++i)
    ASSERT_EQ(vy[i / 6 + i % 6 * 4], vx[i / 12 + i / 4 % 3 * 8 + i % 4 * 2]) << i;
}

}  // namespace
}  // namespace fusor
