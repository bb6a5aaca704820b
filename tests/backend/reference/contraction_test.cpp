// Tests matmul and the three convolution passes: the device's blocked products against the oracle's
// enumeration of terms, which the golden cases check against another program.
#include <numeric>

#include "tests/backend/reference/host_buffers.h"

namespace fusor {
namespace {

// Largest difference of the two readings over all outputs, relative to the largest value.
double difference_of_readings(const Graph& graph) {
  HostTensors oracle(graph), device(graph);
  oracle.run(Reading::oracle);
  device.run(Reading::device);
  double worst = 0, scale = 0;
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const auto want = oracle.get(graph.tensors[i]), got = device.get(graph.tensors[i]);
    if (graph.producer(static_cast<int>(i)) < 0) continue;
    for (size_t e = 0; e < want.size(); ++e) {
      worst = std::max(worst, std::fabs(got[e] - want[e]));
      scale = std::max(scale, std::fabs(want[e]));
    }
  }
  return worst / scale;
}

double bound_of(DataType compute) { return is_real(compute) ? 60 * epsilon(compute) : 0; }

struct MatmulCase {
  Dims a, b;
};

TEST(ReferenceMatmul, DeviceAgreesWithOracleForEveryComputeType) {
  const MatmulCase cases[] = {{{7, 9}, {9, 5}},       {{300, 70}, {70, 300}},        {{1, 513}, {513, 600}},
                              {{3, 4, 8}, {1, 8, 6}}, {{2, 1, 5, 7}, {3, 7, 2}},     {{4, 8}, {2, 3, 8, 5}},
                              {{513, 1}, {1, 3}},     {{2, 3, 1, 16}, {2, 3, 16, 1}}};
  for (const MatmulCase& shape : cases)
    for (const DataType type : {DataType::f64, DataType::f32, DataType::i64, DataType::i32}) {
      GraphBuilder g;
      const Tensor c = g.matmul(g.input("a", shape.a, type), g.input("b", shape.b, type), {.compute = type});
      EXPECT_LE(difference_of_readings(g.finish({c})), bound_of(type))
          << to_string(shape.a) << to_string(type);
    }
}

TEST(ReferenceMatmul, ReadsAnyStrides) {
  GraphBuilder g;
  const Tensor a = g.input("a", {2, 33, 40}, DataType::f16, {.strides = Strides{3, 6, 250}});
  const Tensor b = g.input("b", {2, 40, 21}, DataType::f16, {.strides = Strides{2000, 1, 45}});
  const Tensor c =
      g.output(g.matmul(a, b), {.name = "c", .type = DataType::f32, .strides = Strides{1, 2, 70}});
  HostTensors tensors(g.finish());
  const Graph graph = g.finish();
  HostTensors device(graph);
  device.run(Reading::device);
  const auto va = device.get(a), vb = device.get(b), vc = device.get(c);
  for (size_t n = 0; n < 2; ++n)
    for (size_t i = 0; i < 33; ++i)
      for (size_t j = 0; j < 21; ++j) {
        double sum = 0;
        for (size_t k = 0; k < 40; ++k) sum += va[n * 3 + i * 6 + k * 250] * vb[n * 2000 + k + j * 45];
        ASSERT_NEAR(vc[n + i * 2 + j * 70], sum, 1e-5);
      }
}

TEST(ReferenceMatmul, IntegerProductsWrap) {
  for (const Reading reading : {Reading::oracle, Reading::device}) {
    GraphBuilder g;
    const Tensor a = g.input("a", {1, 2}, DataType::i32), b = g.input("b", {2, 1}, DataType::i32);
    const Tensor c = g.output(g.matmul(a, b), {.name = "c", .type = DataType::i32});
    const Graph graph = g.finish();
    HostTensors tensors(graph);
    tensors.set(a, {65536, 1});
    tensors.set(b, {65536, 5});
    tensors.run(reading);
    EXPECT_EQ(tensors.get(c).front(), 5);
  }
}

struct ConvCase {
  std::string name;
  Dims x, w;
  ConvOptions options;
};

std::vector<ConvCase> conv_cases() {
  return {
      {"pointwise 1x1", {2, 24, 9, 11}, {40, 24, 1, 1}, {}},
      {"strided 1x1", {2, 24, 9, 11}, {40, 24, 1, 1}, {.stride = {2, 3}}},
      {"3x3", {2, 8, 13, 12}, {17, 8, 3, 3}, {.padding = {1, 1}}},
      {"first layer", {1, 3, 33, 31}, {16, 3, 7, 7}, {.padding = {3, 3}, .stride = {2, 2}}},
      {"one-sided padding",
       {1, 4, 10, 9},
       {6, 4, 3, 2},
       {.pre_padding = {2, 0}, .post_padding = {0, 3}, .stride = {2, 1}}},
      {"dilated, mirrored",
       {2, 6, 14, 15},
       {6, 6, 3, 3},
       {.padding = {2, 2}, .dilation = {2, 3}, .mode = ConvMode::convolution}},
      {"wide groups", {2, 32, 8, 8}, {48, 16, 3, 3}, {.padding = {1, 1}}},
      {"narrow groups", {2, 12, 8, 8}, {24, 3, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}}},
      {"depthwise", {2, 37, 12, 11}, {37, 1, 3, 3}, {.padding = {1, 1}}},
      {"depthwise, two filters", {1, 5, 9, 9}, {10, 1, 5, 5}, {.padding = {2, 2}, .stride = {2, 2}}},
      {"one dim", {3, 5, 40}, {7, 5, 4}, {.padding = {2}, .stride = {3}, .dilation = {2}}},
      {"three dims", {1, 4, 6, 7, 8}, {6, 2, 3, 2, 3}, {.padding = {1, 0, 1}, .stride = {1, 2, 2}}},
      {"many channels", {1, 160, 5, 5}, {150, 160, 3, 3}, {.padding = {1, 1}}},
  };
}

class EveryConv : public testing::TestWithParam<DataType> {};
INSTANTIATE_TEST_SUITE_P(Compute, EveryConv,
                         testing::Values(DataType::f64, DataType::f32, DataType::i64, DataType::i32),
                         [](const auto& tested) { return std::string(to_string(tested.param)); });

TEST_P(EveryConv, DeviceAgreesWithOracleInAllPasses) {
  const DataType type = GetParam();
  for (ConvCase test : conv_cases()) {
    test.options.compute = type;
    GraphBuilder g;
    const Tensor x = g.input("x", test.x, type), w = g.input("w", test.w, type, Layout::nhwc);
    const Tensor y = g.output(g.conv_fprop(x, w, test.options), {.name = "y"});
    EXPECT_LE(difference_of_readings(g.finish()), bound_of(type)) << test.name << " fprop";

    GraphBuilder data;
    data.output(
        data.conv_dgrad(data.input("dy", y.dims, type), data.input("w", test.w, type), test.x, test.options),
        {.name = "dx"});
    EXPECT_LE(difference_of_readings(data.finish()), bound_of(type)) << test.name << " dgrad";

    GraphBuilder filter;
    filter.output(filter.conv_wgrad(filter.input("dy", y.dims, type, Layout::nhwc),
                                    filter.input("x", test.x, type), test.w, test.options),
                  {.name = "dw"});
    EXPECT_LE(difference_of_readings(filter.finish()), bound_of(type)) << test.name << " wgrad";
  }
}

TEST(ReferenceConv, PaddingIsZeroAfterThePrologue) {
  GraphBuilder g;
  const Tensor x = g.input("x", {1, 1, 2}, DataType::f32), w = g.input("w", {1, 1, 3}, DataType::f32);
  const Tensor shifted = g.add(x, g.constant(10.0));
  const Tensor y = g.output(g.conv_fprop(shifted, w, {.padding = {1}}), {.name = "y"});
  const Graph graph = g.finish();
  const std::vector<int> ops = {0, 1};
  const Fusion fusion = make_fusion(graph, fold_views(graph), ops);
  for (const Reading reading : {Reading::oracle, Reading::device}) {
    HostTensors tensors(graph);
    tensors.set(x, {1, 2});
    tensors.set(w, {1, 1, 1});
    tensors.run(fusion, reading);
    EXPECT_EQ(tensors.get(y), (std::vector<double>{23, 23}));
  }
}

TEST(ReferenceConv, EpilogueReadsTheRoundedAnchorAndSumsItsColumns) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 16, 6, 6}, DataType::f16, Layout::nhwc);
  const Tensor w = g.input("w", {20, 16, 3, 3}, DataType::f16, Layout::nhwc);
  const Tensor b = g.input("b", {1, 20, 1, 1}, DataType::f16);
  const Tensor conv = g.conv_fprop(x, w, {.padding = {1, 1}, .type = DataType::f16});
  const Tensor y = g.output(g.relu(g.add(conv, b)), {.name = "y"});
  const Tensor s = g.output(g.reduce(y, ReductionMode::add, {0, 2, 3}), {.name = "s", .type = DataType::f32});
  const Graph graph = g.finish();
  const std::vector<int> ops = {0, 1, 2, 3};
  HostTensors fused(graph), apart(graph);
  fused.run(make_fusion(graph, fold_views(graph), ops), Reading::device);
  apart.run(Reading::device);
  EXPECT_EQ(fused.get(y), apart.get(y));
  const auto one = fused.get(s), other = apart.get(s);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], other[i], 1e-4);
}

TEST(ReferenceConv, AnIndexInTheEpilogueIsTheLogicalCoordinate) {
  GraphBuilder g;
  const Tensor x = g.input("x", {1, 2, 3, 3}, DataType::f32, Layout::nhwc),
               w = g.input("w", {4, 2, 1, 1}, DataType::f32);
  const Tensor conv = g.conv_fprop(x, w);
  const Tensor channel = g.gen_index(conv, 1);
  const Tensor y =
      g.output(g.add(g.mul(conv, g.constant(0.0)), channel), {.name = "y", .layout = Layout::row_major});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  std::vector<int> ops(graph.ops.size());
  std::iota(ops.begin(), ops.end(), 0);
  tensors.run(make_fusion(graph, fold_views(graph), ops), Reading::device);
  const auto values = tensors.get(y);
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t expected = i / 9;
    ASSERT_EQ(values[i], static_cast<double>(expected));
  }
}

}  // namespace
}  // namespace fusor
