// Tests verify: a right run passes, a planted error is found and located, NaN and infinity count, large
// outputs are sampled.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "backend/reference/errors/error_bound.h"
#include "core/error.h"
#include "core/ops/expansion.h"
#include "tests/backend/reference/host_buffers.h"
#include "tests/support/attention_graph.h"

namespace fusor {
namespace {

struct Chain {
  Graph graph;
  Tensor y;
};

Chain conv_chain() {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 64, 14, 14}, DataType::f16, Layout::nhwc);
  const Tensor w = g.input("w", {64, 64, 3, 3}, DataType::f16),
               v = g.input("v", {32, 64, 1, 1}, DataType::f16);
  const Tensor h = g.gelu(g.conv_fprop(x, w, {.padding = {1, 1}}), {.type = DataType::f16});
  const Tensor y = g.output(g.conv_fprop(h, v), {.name = "y"});
  return {g.finish(), y};
}

TEST(Verify, ARunOfTheCpuDevicePasses) {
  const Chain chain = conv_chain();
  const HostTensors tensors(chain.graph);
  tensors.run(Reading::device);
  const VerifyReport report = verify(chain.graph, tensors.pointers());
  EXPECT_TRUE(report.passed()) << to_string(report);
  ASSERT_EQ(report.outputs.size(), 1u);
  EXPECT_EQ(report.outputs[0].checked, report.outputs[0].elements);
  EXPECT_GT(report.outputs[0].max_abs, 0) << "fp16 and fp64 cannot agree in every bit here";
}

TEST(Verify, ErrorsAreCountedInUnitsOfTheLastPlaceAndAsARootMeanSquare) {
  GraphBuilder g("halves");
  const Tensor x = g.input("x", {4}, DataType::f16);
  const Tensor y = g.output(g.relu(x), {.name = "y", .type = DataType::f16});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(x, {1, 2, 2048, 0});
  tensors.set(y, {1, 2 + 3 * 0x1p-9, 2048, 0x1p-23});  // the last: two steps among subnormal halves
  const OutputCheck check = verify(graph, tensors.pointers()).outputs[0];
  EXPECT_DOUBLE_EQ(check.max_ulp, 3);
  EXPECT_EQ(check.max_ulp_at, Dims({1}));
  EXPECT_NEAR(check.rms, 3 * 0x1p-9 / 2, 1e-9);
  EXPECT_THAT(to_string(verify(graph, tensors.pointers())),
              testing::HasSubstr("max 3 ulp at [1], rms 0.00293"));
}

TEST(Verify, TheLargestErrorIsToldAsAPartOfWhatIsAllowedWhereItIs) {
  GraphBuilder g("halves");
  const Tensor x = g.input("x", {2}, DataType::f16);
  const Tensor y = g.output(g.relu(x), {.name = "y", .type = DataType::f16});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(x, {1, 2048});
  tensors.set(y, {1 + 6 * 0x1p-10, 2052});  // farther beyond what is allowed than the larger error
  const OutputCheck check = verify(graph, tensors.pointers()).outputs[0];
  EXPECT_EQ(check.max_abs_at, Dims({1}));
  EXPECT_NEAR(check.of_tolerance, 6 * 0x1p-10 / (check.tolerance_abs + check.tolerance_rel), 1e-9);
  EXPECT_GT(check.of_tolerance, 4 / (check.tolerance_abs + 2048 * check.tolerance_rel));
}

// A product of 100352 terms a result: 24 channels' wgrad of a 1x1 convolution of 32 x 56 x 56 pixels.
TEST(Verify, LongSumsThatTensorCoresCutOffAreRight) {
  constexpr int64_t kSteps = 100352, kRows = 6, kColumns = 6, kOfInstruction = 16;
  GraphBuilder g("long");
  const Tensor a = g.input("a", {kRows, kSteps}, DataType::f16),
               b = g.input("b", {kSteps, kColumns}, DataType::f16);
  const Tensor y = g.output(g.matmul(a, b), {.name = "y", .type = DataType::f32});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  const auto toward_zero = [](double value) {
    const auto near = static_cast<float>(value);
    return std::abs(double{near}) > std::abs(value) ? std::nextafter(near, 0.0F) : near;
  };
  const std::vector<double> rows = tensors.get(a), columns = tensors.get(b);
  std::vector<double> sums;
  for (int64_t m = 0; m < kRows; ++m)
    for (int64_t n = 0; n < kColumns; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < kSteps; k += kOfInstruction) {
        for (int64_t i = k; i < k + kOfInstruction; ++i)
          sum += rows[static_cast<size_t>(m * kSteps + i)] * columns[static_cast<size_t>(i * kColumns + n)];
        sum = toward_zero(sum);
      }
      sums.push_back(sum);
    }
  tensors.set(y, sums);
  EXPECT_FALSE(verify(graph, tensors.pointers()).passed()) << "sums that are rounded do not drift";
  const VerifyReport report = verify(graph, tensors.pointers(), 1, {.tensor_cores = true});
  EXPECT_TRUE(report.passed()) << to_string(report);
  // A step of k that is missing is still found.
  sums[7] += 0.5;
  tensors.set(y, sums);
  EXPECT_FALSE(verify(graph, tensors.pointers(), 1, {.tensor_cores = true}).passed());
}

// The plan reads x through both reshapes; the oracle computes one after the other.
TEST(Verify, ReshapesBetweenPaddedTensorsAreEvaluated) {
  GraphBuilder g("padded");
  const Tensor inner = g.reshape(g.input("x", {4, 5, 3}, DataType::f32), {4, 15});
  const Tensor y = g.output(g.reshape(inner, {2, 30}), {.name = "y"});
  Graph graph = g.finish();
  for (Tensor& tensor : graph.tensors)
    if (tensor.uid == inner.uid || tensor.uid == y.uid) tensor.strides = {64, 2};
  const HostTensors tensors(graph);
  EXPECT_NO_THROW(verify(graph, tensors.pointers()));
}

TEST(Verify, AProductBelowTheNumbersOfItsTypeMayBeZero) {
  GraphBuilder g("small");
  const Tensor x = g.input("x", {300}, DataType::f32);
  const Tensor y = g.output(g.reduce(x, ReductionMode::mul, {0}), {.name = "y", .type = DataType::f64});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(x, std::vector<double>(300, 0.5));
  tensors.set(y, {0});
  const VerifyReport report = verify(graph, tensors.pointers());
  EXPECT_TRUE(report.passed()) << to_string(report);
}

// Equal inputs have equal errors, which a sum in fp64 keeps.
TEST(Verify, SumsOfValuesComputedInFewerDigitsKeepTheirRoundings) {
  for (const ReductionMode mode : {ReductionMode::add, ReductionMode::norm2}) {
    GraphBuilder g("sums");
    const Tensor x = g.input("x", {400}, DataType::f32);
    const Tensor h = g.sigmoid(x, {.type = DataType::f64, .compute = DataType::f32});
    const Tensor y =
        g.output(g.reduce(h, mode, {0}, {.type = DataType::f64, .compute = DataType::f64}), {.name = "y"});
    const Graph graph = g.finish();
    HostTensors tensors(graph);
    tensors.set(x, std::vector<double>(400, 1.375));
    tensors.run(Reading::device);
    const VerifyReport report = verify(graph, tensors.pointers());
    EXPECT_TRUE(report.passed()) << to_string(report);
    EXPECT_LT(report.outputs[0].tolerance_abs, 1e-3);
    EXPECT_EQ(tensors.get(y).size(), 1u);
  }
}

// Runs y, plants `got` as its first element, and says whether that passes.
bool passes_with(const Graph& graph, const std::vector<double>& xs, double got) {
  HostTensors tensors(graph);
  const Tensor& x = graph.tensors[static_cast<size_t>(graph.find("x"))];
  const Tensor& y = graph.tensors[static_cast<size_t>(graph.find("y"))];
  tensors.set(x, xs);
  tensors.run(Reading::device);
  EXPECT_TRUE(verify(graph, tensors.pointers()).passed());
  std::vector<double> ys = tensors.get(y);
  ys[0] = got;
  tensors.set(y, ys);
  return verify(graph, tensors.pointers()).passed();
}

TEST(Verify, PackedElementsThatAreOnlyMovedOrConvertedAreExact) {
  for (const DataType type : {DataType::f4_e2m1, DataType::i4})
    for (const DataType from : {type, DataType::f16}) {
      GraphBuilder g("moved");
      const Tensor x = g.input("x", {2, 4}, from);
      const Tensor turned = g.transpose(x, {1, 0});
      g.output(g.identity(g.concatenate({turned, turned}, 0)), {.name = "y", .type = type});
      const Graph graph = g.finish();
      const std::vector<double> xs{2, 1, -4, 6, 1, 0, -1, 3};
      EXPECT_TRUE(passes_with(graph, xs, 2)) << to_string(type);
      for (const double wrong : {3.0, 1.0}) EXPECT_FALSE(passes_with(graph, xs, wrong)) << to_string(type);
    }
}

// Real arithmetic in front of them may round to either side of a boundary, which is one step of the type.
TEST(Verify, PackedElementsBehindRoundingsMayBeOneStepOff) {
  for (const DataType type : {DataType::f4_e2m1, DataType::i4}) {
    GraphBuilder h("products");
    const Tensor a = h.input("x", {4}, DataType::f32);
    const Tensor scaled = h.mul(h.div(a, h.constant(0.001)), h.constant(0.001));
    h.output(h.identity(h.transpose(h.reshape(scaled, {2, 2}), {1, 0}), {.type = type}), {.name = "y"});
    const Graph graph = h.finish();
    const bool is_real = type == DataType::f4_e2m1;
    for (const double want : {2.0, 4.0}) {
      const std::vector<double> xs{want, 6, 6, 6};
      const double above = is_real && want == 4 ? 6 : want + 1, below = is_real && want == 2 ? 1.5 : want - 1;
      EXPECT_TRUE(passes_with(graph, xs, above)) << to_string(type) << want;
      EXPECT_TRUE(passes_with(graph, xs, below)) << to_string(type) << want;
      EXPECT_FALSE(passes_with(graph, xs, want - 2)) << to_string(type) << want;
      EXPECT_FALSE(passes_with(graph, xs, is_real && want == 2 ? 1 : 0)) << to_string(type) << want;
    }
  }
}

TEST(Verify, TheToleranceIsAFewPartsInAThousandOfTheLargestValueForHalf) {
  const Chain chain = conv_chain();
  const HostTensors tensors(chain.graph);
  tensors.run(Reading::device);
  double largest = 0;
  for (const double value : tensors.get(chain.y)) largest = std::max(largest, std::fabs(value));
  EXPECT_LT(verify(chain.graph, tensors.pointers()).outputs[0].tolerance_abs, 4e-3 * largest);
}

// Cuts off what TF32 has no room for, as tensor cores do with operands that nobody has rounded.
void cut_off(std::vector<double>& values) {
  for (double& value : values) {
    auto narrow = static_cast<float>(value);
    uint32_t bits = 0;
    std::memcpy(&bits, &narrow, sizeof bits);
    bits &= ~uint32_t{0x1fff};
    std::memcpy(&narrow, &bits, sizeof bits);
    value = narrow;
  }
}

TEST(Verify, Tf32IsTakenIntoAccountWhereTheNotesSaySoAndOnlyThere) {
  for (const int64_t k : {1, 7, 500, 20000}) {
    GraphBuilder g("product", Precision::allow_tf32);
    const Tensor a = g.input("a", {9, k}, DataType::f32), b = g.input("b", {k, 11}, DataType::f32);
    const Tensor y = g.output(g.relu(g.matmul(g.abs(a), b)), {.name = "y"});
    const Graph graph = g.finish();
    HostTensors tensors(graph);
    const std::vector<double> first = tensors.get(a), second = tensors.get(b);
    std::vector<double> cut_first = first, cut_second = second;
    cut_off(cut_first);
    cut_off(cut_second);
    tensors.set(a, cut_first);
    tensors.set(b, cut_second);
    tensors.run(Reading::device);
    tensors.set(a, first);
    tensors.set(b, second);
    const Notes notes{.tf32 = true};
    const VerifyReport report = verify(graph, tensors.pointers(), 1, notes);
    EXPECT_TRUE(report.passed()) << k << "\n" << to_string(report);
    EXPECT_FALSE(verify(graph, tensors.pointers()).passed()) << k;
    double largest = 0;
    for (const double value : tensors.get(y)) largest = std::max(largest, std::fabs(value));
    EXPECT_LT(report.outputs[0].tolerance_abs, 0.02 * largest) << "still finds what bf16 would do";
  }
}

// The sums of Hopper's tensor cores as they are described: addends of 32 products are cut off behind the 13th
// bit of the largest, in fp32 after 128.
double short_sum(const std::vector<double>& products) {
  double sum = 0;
  for (size_t first = 0; first < products.size(); first += 128) {
    double of_step = 0;
    for (size_t k = first; k < std::min(first + 128, products.size()); k += 32) {
      std::vector<double> addends(
          products.begin() + static_cast<std::ptrdiff_t>(k),
          products.begin() + static_cast<std::ptrdiff_t>(std::min(k + 32, products.size())));
      addends.push_back(of_step);
      int exponent = -1000;
      for (const double addend : addends)
        if (addend != 0) exponent = std::max(exponent, std::ilogb(addend));
      const double spacing = std::ldexp(1.0, exponent - 13);
      of_step = 0;
      for (const double addend : addends) of_step += std::trunc(addend / spacing) * spacing;
    }
    sum += of_step;
  }
  return sum;
}

TEST(Verify, ShortSumsAreTakenIntoAccountWhereTheNotesSaySoAndOnlyThere) {
  for (const int64_t k : {100, 2000, 8192}) {
    GraphBuilder g("product", Precision::allow_short_sums);
    const Tensor a = g.input("a", {17, k}, DataType::f8_e4m3), b = g.input("b", {k, 23}, DataType::f8_e5m2);
    const Tensor y = g.output(g.matmul(a, b), {.name = "y", .type = DataType::f32});
    const Graph graph = g.finish();
    HostTensors tensors(graph);
    const std::vector<double> first = tensors.get(a), second = tensors.get(b);
    std::vector<double> sums;
    for (int64_t m = 0; m < 17; ++m)
      for (int64_t n = 0; n < 23; ++n) {
        std::vector<double> products;
        for (int64_t i = 0; i < k; ++i)
          products.push_back(first[static_cast<size_t>(m * k + i)] * second[static_cast<size_t>(i * 23 + n)]);
        sums.push_back(short_sum(products));
      }
    tensors.set(y, sums);
    const VerifyReport report = verify(graph, tensors.pointers(), 1, {.short_sums = true});
    EXPECT_TRUE(report.passed()) << k << "\n" << to_string(report);
    EXPECT_FALSE(verify(graph, tensors.pointers()).passed()) << k;
    EXPECT_LT(report.outputs[0].tolerance_abs, 25 * report.outputs[0].max_abs);
  }
}

// Attention of one head as a kernel in fp8 computes it: probabilities are rounded before they are divided.
std::vector<double> attention_divided_late(const std::vector<double>& q, const std::vector<double>& k,
                                           const std::vector<double>& v, size_t head, bool causal) {
  const size_t rows = q.size() / head, keys = k.size() / head;
  std::vector<double> o(rows * head);
  for (size_t row = 0; row < rows; ++row) {
    std::vector<double> scores(causal ? row + 1 : keys);
    for (size_t key = 0; key < scores.size(); ++key)
      for (size_t d = 0; d < head; ++d)
        scores[key] += q[row * head + d] * k[key * head + d] / std::sqrt(static_cast<double>(head));
    const double largest = *std::ranges::max_element(scores);
    double sum = 0;
    for (size_t key = 0; key < scores.size(); ++key) {
      const double exponential = std::exp(scores[key] - largest);
      sum += exponential;
      const double rounded = round_to(DataType::f8_e4m3, exponential * 256) / 256;
      for (size_t d = 0; d < head; ++d) o[row * head + d] += rounded * v[key * head + d];
    }
    for (size_t d = 0; d < head; ++d) o[row * head + d] /= sum;
  }
  return o;
}

// As of a sample, of which only the results' sizes are known.
TEST(Verify, LateDivisionIsTakenIntoAccountWhereTheNotesSaySoAndOnlyThere) {
  for (const bool causal : {false, true}) {
    SdpaAttributes attributes{.attn_scale = 0.125};
    if (causal) attributes.right_bound = 0;
    const Graph graph = expand_composites(test::attention_in_fp8({.queries = 500, .keys = 500}, attributes));
    const HostTensors tensors(graph);
    tensors.run(Reading::oracle);
    const auto values_of = [&](const char* name) {
      return tensors.get(graph.tensors[static_cast<size_t>(graph.find(name))]);
    };
    const std::vector<double> wanted = values_of("o"),
                              late = attention_divided_late(values_of("q"), values_of("k"), values_of("v"),
                                                            64, causal);
    reference::Magnitude size;
    double error = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      size.rms += wanted[i] * wanted[i] / static_cast<double>(wanted.size());
      size.largest = std::max(size.largest, std::abs(wanted[i]));
      error = std::max(error, std::abs(late[i] - wanted[i]));
    }
    size.rms = std::sqrt(size.rms);
    const auto bound = [&](bool late_division) {
      return reference::error_bound(graph, graph.find("o"), std::vector<bool>(graph.ops.size(), true), size,
                                    {.short_sums = true, .late_division = late_division})
          .absolute;
    };
    EXPECT_LT(error, bound(true)) << causal;
    EXPECT_GT(error, bound(false)) << causal;
    EXPECT_LT(bound(true), 8 * error) << causal;
  }
}

TEST(Verify, Tf32ChangesNothingForOperandsThatItHolds) {
  const Chain chain = conv_chain();
  const HostTensors tensors(chain.graph);
  tensors.run(Reading::device);
  EXPECT_EQ(verify(chain.graph, tensors.pointers(), 1, {.tf32 = true}).outputs[0].tolerance_abs,
            verify(chain.graph, tensors.pointers()).outputs[0].tolerance_abs);
}

TEST(Verify, APlantedErrorIsFoundWhereItIs) {
  const Chain chain = conv_chain();
  HostTensors tensors(chain.graph);
  tensors.run(Reading::device);
  auto values = tensors.get(chain.y);
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::fabs(value));
  values[1234] += 0.01 * largest;
  tensors.set(chain.y, values);
  const VerifyReport report = verify(chain.graph, tensors.pointers());
  EXPECT_FALSE(report.passed());
  EXPECT_EQ(report.outputs[0].wrong, 1);
  int64_t place = 0;
  for (int i = 0; i < 4; ++i) place += report.outputs[0].wrong_at[i] * chain.y.strides[i];
  EXPECT_EQ(place, 1234);
  EXPECT_NE(to_string(report).find("1 WRONG"), std::string::npos);
}

TEST(Verify, AMissingTermOfAFloatSumIsFound) {
  GraphBuilder g;
  const Tensor a = g.input("a", {40, 512}, DataType::f32), b = g.input("b", {512, 40}, DataType::f32);
  const Tensor c = g.output(g.matmul(a, b), {.name = "c"});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.run(Reading::device);
  ASSERT_TRUE(verify(graph, tensors.pointers()).passed());
  auto values = tensors.get(c);
  values[7 * 40 + 9] -= tensors.get(a)[7 * 512 + 100] * tensors.get(b)[100 * 40 + 9];
  tensors.set(c, values);
  const VerifyReport report = verify(graph, tensors.pointers());
  EXPECT_EQ(report.outputs[0].wrong_at, (Dims{7, 9}));
}

// The bound of an infinite error times zero is NaN. It must not become a tolerance of 0.
TEST(Verify, ErrorsThatGrowBeyondAllNumbersBoundNothing) {
  constexpr int kFactors = 12;
  GraphBuilder g("far");
  const Tensor x = g.input("x", {4}, DataType::f32), zero = g.input("zero", {4}, DataType::f32);
  const Tensor large = g.mul(x, x);
  Tensor nothing = g.sub(large, g.mul(x, x));
  for (int i = 0; i < kFactors; ++i) nothing = g.mul(nothing, large);
  const Tensor y = g.output(g.mul(nothing, zero), {.name = "y"});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(x, {1e15, 1e15, 1e15, 1e15});
  tensors.set(zero, {0, 0, 0, 0});
  tensors.set(y, {0, 0, 0, 1});
  const VerifyReport report = verify(graph, tensors.pointers());
  EXPECT_TRUE(report.passed()) << to_string(report);
  EXPECT_TRUE(std::isinf(report.outputs[0].tolerance_abs));
  EXPECT_THAT(to_string(report), testing::HasSubstr("no tolerance"));
}

TEST(Verify, AGraphThatIsNoneIsRefused) {
  Chain chain = conv_chain();
  const HostTensors tensors(chain.graph);
  chain.graph.ops[0].inputs[0] = 99;
  EXPECT_THROW(verify(chain.graph, tensors.pointers()), Error);
}

TEST(Verify, IntegersMustBeExact) {
  GraphBuilder g;
  const Tensor a = g.input("a", {4, 32}, DataType::i8), b = g.input("b", {32, 4}, DataType::i8);
  const Tensor c = g.output(g.matmul(a, b), {.name = "c"});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.run(Reading::device);
  EXPECT_TRUE(verify(graph, tensors.pointers()).passed());
  auto values = tensors.get(c);
  values[5] += 1;
  tensors.set(c, values);
  EXPECT_EQ(verify(graph, tensors.pointers()).outputs[0].wrong, 1);
}

TEST(Verify, EqualNaNAndInfinityAgreeOthersDoNot) {
  const double inf = std::numeric_limits<double>::infinity();
  GraphBuilder g;
  const Tensor x = g.input("x", {5}, DataType::f32);
  const Tensor y = g.output(g.log(x), {.name = "y"});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(x, {0, -1, 1, 2, inf});
  tensors.run(Reading::device);
  const VerifyReport right = verify(graph, tensors.pointers());
  EXPECT_TRUE(right.passed()) << to_string(right);
  EXPECT_EQ(right.outputs[0].nans, 1);
  EXPECT_EQ(right.outputs[0].infs, 2);
  for (const double planted : {inf, std::nan("")}) {
    auto values = tensors.get(y);
    values[3] = planted;
    HostTensors wrong(graph);
    wrong.set(x, {0, -1, 1, 2, inf});
    wrong.set(y, values);
    EXPECT_EQ(verify(graph, wrong.pointers()).outputs[0].wrong, 1);
  }
}

TEST(Verify, SumsThatCancelAreNotHeldAgainstTheRun) {
  GraphBuilder g;
  const Tensor x = g.input("x", {1 << 20}, DataType::f32);
  const Tensor y = g.output(g.reduce(x, ReductionMode::add), {.name = "y"});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  auto values = tensors.get(x);
  for (size_t i = 0; i < values.size(); i += 2) values[i + 1] = -values[values.size() - 2 - i];
  tensors.set(x, values);
  tensors.run(Reading::device);
  const VerifyReport report = verify(graph, tensors.pointers());
  EXPECT_TRUE(report.passed()) << to_string(report);
  EXPECT_LT(report.outputs[0].tolerance_abs, 0.25);
}

// Convolutions, scales, residual and ReLU with fp16 in between: a step that rounds once, or not at all, is
// not taken for a formula, nor ReLU for something steeper than 1.
TEST(Verify, ABottleneckIsHeldToWhatItsStepsRound) {
  GraphBuilder g;
  const Tensor x = g.input("x", {1, 128, 20, 20}, DataType::f16);
  const auto layer = [&](const Tensor& from, const std::string& name, const Dims& w, int64_t padding) {
    const Dims channels{1, w[0], 1, 1};
    const Tensor product =
        g.conv_fprop(from, g.input("w" + name, w, DataType::f16), {.padding = {padding, padding}});
    return g.add(g.mul(product, g.input("scale" + name, channels, DataType::f32)),
                 g.input("bias" + name, channels, DataType::f32));
  };
  const Tensor narrow = g.relu(layer(x, "1", {32, 128, 1, 1}, 0), {.type = DataType::f16});
  const Tensor middle = g.relu(layer(narrow, "2", {32, 32, 3, 3}, 1), {.type = DataType::f16});
  g.output(g.relu(g.add(layer(middle, "3", {128, 32, 1, 1}, 0), x)), {.name = "y", .type = DataType::f16});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.run(Reading::device);
  const VerifyReport report = verify(graph, tensors.pointers());
  EXPECT_TRUE(report.passed()) << to_string(report);
  EXPECT_LT(report.outputs[0].tolerance_abs, 0.12) << "0.17 with eight roundings a step";
}

TEST(Verify, OperandsThatTheComputeTypeRoundsAreTakenIntoAccount) {
  GraphBuilder g;
  const Tensor x = g.input("x", {16, 5}, DataType::f64), n = g.input("n", {16, 5}, DataType::i32);
  const OpOptions in_fp32{.type = DataType::f64, .compute = DataType::f32};
  g.output(g.reduce(x, ReductionMode::amax, {1}, in_fp32), {.name = "largest"});
  g.output(g.sub(x, g.mul(x, x), {.type = DataType::f64, .compute = DataType::f32}), {.name = "difference"});
  g.output(g.reduce(n, ReductionMode::max, {0}, in_fp32), {.name = "largest_integer"});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  std::vector<double> values = tensors.get(n);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 16777217.0 + 1000 * static_cast<double>(i);
  tensors.set(n, values);
  tensors.run(Reading::device);
  const VerifyReport report = verify(graph, tensors.pointers());
  EXPECT_TRUE(report.passed()) << to_string(report);
}

TEST(Verify, SlopesThatAreDifferencesAreNotHeldAgainstTheRun) {
  for (const PointwiseMode mode :
       {PointwiseMode::gelu_bwd, PointwiseMode::gelu_tanh_bwd, PointwiseMode::swish_bwd}) {
    GraphBuilder g;
    const Tensor dy = g.input("dy", {64}, DataType::f32), x = g.input("x", {1}, DataType::f32);
    g.output(g.pointwise(mode, {dy, x}), {.name = "dx"});
    const Graph graph = g.finish();
    HostTensors tensors(graph);
    // Around the zeros of the slopes: -0.7518 for gelu, -1.2785 for swish.
    const double first = mode == PointwiseMode::swish_bwd ? -1.285 : -0.757;
    for (int step = 0; step < 120; ++step) {
      const double at = first + 1e-4 * step;
      tensors.set(x, {at});
      tensors.run(Reading::device);
      const VerifyReport report = verify(graph, tensors.pointers());
      EXPECT_TRUE(report.passed()) << to_string(mode) << " at " << at << "\n" << to_string(report);
    }
  }
}

TEST(Verify, EqualErrorsOfEqualValuesAreNotHeldAgainstTheRun) {
  for (const double value : {1.25, 1.5, 1.75, -1.25}) {
    GraphBuilder g;
    const Tensor x = g.input("x", {1 << 16}, DataType::f8_e5m2);
    const Tensor y = g.swish(x, {.type = DataType::f32});
    const OpOptions in_fp64{.type = DataType::f64, .compute = DataType::f64};
    const Graph graph = g.finish({g.reduce(y, ReductionMode::norm1, {}, in_fp64)});
    HostTensors tensors(graph);
    tensors.set(x, std::vector<double>(1 << 16, value));
    tensors.run(Reading::device);
    const VerifyReport report = verify(graph, tensors.pointers());
    EXPECT_TRUE(report.passed()) << value << "\n" << to_string(report);
  }
}

TEST(Verify, DearOutputsAreSampledAndErrorsStillFound) {
  GraphBuilder g;
  const Tensor a = g.input("a", {1024, 2560}, DataType::f16), b = g.input("b", {2560, 2048}, DataType::f16);
  const Tensor c = g.output(g.relu(g.matmul(a, b)), {.name = "c"});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.run(Reading::device);
  const VerifyReport right = verify(graph, tensors.pointers(), 3);
  EXPECT_TRUE(right.passed()) << to_string(right);
  EXPECT_EQ(right.outputs[0].checked, 4096);
  EXPECT_NE(to_string(right).find("4096 of 2097152 elements checked (seed 3)"), std::string::npos)
      << to_string(right);
  auto values = tensors.get(c);
  for (size_t i = 0; i < values.size(); i += 100) values[i] += 5;  // 1 in 100: some 41 of the sample
  tensors.set(c, values);
  const int64_t found = verify(graph, tensors.pointers(), 3).outputs[0].wrong;
  EXPECT_GT(found, 10);
  EXPECT_LT(found, 100);
}

TEST(FillRandom, IsSeededAndSuitsTheType) {
  GraphBuilder g;
  for (const DataType type : {DataType::f32, DataType::f8_e4m3, DataType::i8, DataType::u8, DataType::b8}) {
    const Tensor x = g.input(std::string(to_string(type)), {1000}, type);
    std::vector<std::byte> one(static_cast<size_t>(x.bytes())), same(one), other(one);
    fill_random(x, one.data(), 1);
    fill_random(x, same.data(), 1);
    fill_random(x, other.data(), 2);
    EXPECT_EQ(one, same);
    EXPECT_NE(one, other);
    double lowest = 100, highest = -100;
    for (int64_t i = 0; i < 1000; ++i) {
      lowest = std::min(lowest, load_real(type, one.data(), i));
      highest = std::max(highest, load_real(type, one.data(), i));
    }
    EXPECT_GE(lowest, is_real(type) ? -1 : type == DataType::i8 ? -4 : 0);
    EXPECT_LE(highest, is_real(type) || type == DataType::b8 ? 1 : 8);
    EXPECT_GT(highest, lowest);
  }
}

}  // namespace
}  // namespace fusor
