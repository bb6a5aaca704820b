// Tests that verify allows what roundings can do and little more: attention's gradients, small elements
// beside large ones, views, errors that the elements of a row share.
#include <algorithm>
#include <cmath>

#include "core/convert.h"
#include "core/ops/expansion.h"
#include "tests/backend/reference/host_buffers.h"
#include "tests/support/attention_graph.h"

namespace fusor {
namespace {

Graph both_passes(DataType type, test::Mask mask) {
  const test::AttentionCase c{
      .heads = 2, .shared_heads = 2, .queries = 96, .keys = 96, .mask = mask, .type = type};
  return expand_composites(test::attention_and_gradients(c, test::attributes_of(c)));
}

const Tensor& named(const Graph& graph, const char* name) {
  return graph.tensors[static_cast<size_t>(graph.find(name))];
}

VerifyReport checked_run(const Graph& graph, uint64_t seed = 7) {
  const HostTensors tensors(graph, seed);
  tensors.run(Reading::device);
  return verify(graph, tensors.pointers());
}

TEST(ErrorBound, GradientsOfAttentionAreHeldTo30TimesWhatIsSeen) {
  for (const uint64_t seed : {7, 77}) {
    const VerifyReport report = checked_run(both_passes(DataType::f32, test::Mask::none), seed);
    EXPECT_TRUE(report.passed()) << to_string(report);
    for (const OutputCheck& check : report.outputs)
      EXPECT_LT(check.tolerance_abs, 30 * check.max_abs) << check.tensor << "\n" << to_string(report);
  }
}

// A run that multiplies by a scale behind a product rounds the product's operand without the scale.
VerifyReport check_of_late_scale(DataType type, double scale, const Notes& notes) {
  constexpr int64_t kRows = 64, kTerms = 96;
  GraphBuilder g("gradients");
  const Tensor a = g.input("a", {kRows, kTerms}, DataType::f32), b = g.input("b", {kTerms, kRows}, type);
  const Tensor rounded = g.identity(g.mul(a, g.constant(scale)), {.type = type});
  const Tensor y = g.output(g.matmul(rounded, b), {.name = "y", .type = DataType::f32});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.run(Reading::device);
  const std::vector<double> as = tensors.get(a), bs = tensors.get(b);
  std::vector<double> late;
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t column = 0; column < kRows; ++column) {
      double sum = 0;
      for (int64_t k = 0; k < kTerms; ++k)
        sum += round_to(type, as[static_cast<size_t>(row * kTerms + k)]) *
               bs[static_cast<size_t>(k * kRows + column)];
      late.push_back(scale * sum);
    }
  tensors.set(y, late);
  return verify(graph, tensors.pointers(), 1, notes);
}

TEST(ErrorBound, ALateScaleMayRoundOtherwise) {
  EXPECT_GT(check_of_late_scale(DataType::bf16, 0.3, {}).outputs[0].wrong, 0);
  const VerifyReport report = check_of_late_scale(DataType::bf16, 0.3, {.late_scale = true});
  EXPECT_TRUE(report.passed()) << to_string(report);
  EXPECT_GT(report.outputs[0].of_tolerance, 0.1);
}

// Scaled, the numbers are below half of fp8's smallest.
TEST(ErrorBound, ALateScaleMayKeepWhatWouldHaveBeenRoundedToZero) {
  EXPECT_GT(check_of_late_scale(DataType::f8_e4m3, 0.0009, {}).outputs[0].wrong, 0);
  const VerifyReport report = check_of_late_scale(DataType::f8_e4m3, 0.0009, {.late_scale = true});
  EXPECT_TRUE(report.passed()) << to_string(report);
  EXPECT_GT(report.outputs[0].of_tolerance, 0.05);
}

// Flips of a probability near 1 reach as far as they do, but no further.
TEST(ErrorBound, GradientsOfMaskedAttentionIn16BitsAreHeldToASpacingOfTheLargestProbability) {
  for (const DataType type : {DataType::bf16, DataType::f16}) {
    const VerifyReport report = checked_run(both_passes(type, test::Mask::causal));
    EXPECT_TRUE(report.passed()) << to_string(report);
    for (const OutputCheck& check : report.outputs)
      EXPECT_LT(check.tolerance_abs, 1.2 * epsilon(type)) << check.tensor << "\n" << to_string(report);
  }
}

TEST(ErrorBound, AnErrorOf20TimesTheUsualOnesInAGradientIsFound) {
  const Graph graph = both_passes(DataType::f32, test::Mask::none);
  HostTensors tensors(graph);
  tensors.run(Reading::device);
  const auto dq_of = [&] {
    const VerifyReport report = verify(graph, tensors.pointers());
    return *std::ranges::find(report.outputs, "dq", &OutputCheck::tensor);
  };
  const OutputCheck right = dq_of();
  EXPECT_EQ(right.wrong, 0);
  std::vector<double> dq = tensors.get(named(graph, "dq"));
  dq[1234] += 20 * right.max_abs;
  tensors.set(named(graph, "dq"), dq);
  EXPECT_EQ(dq_of().wrong, 1);
}

// The largest score of a row without any is the least number.
TEST(ErrorBound, RowsThatAttendToNothingDoNotWidenTheOthers) {
  GraphBuilder g("padded");
  const auto tensor = [&](const char* name) { return g.input(name, {2, 2, 64, 32}, DataType::f32); };
  const Tensor q = tensor("q"), k = tensor("k"), v = tensor("v"), dy = tensor("dy");
  SdpaOptions options{.attributes = {.attn_scale = 0.2, .padding_mask = true}};
  options.seq_len_q = g.input("seq_len_q", {2, 1, 1, 1}, DataType::i32);
  options.seq_len_kv = g.input("seq_len_kv", {2, 1, 1, 1}, DataType::i32);
  const SdpaResults forward = g.sdpa_fwd(q, k, v, options);
  const Tensor o = g.output(forward.o, {.name = "o"}), stats = g.output(forward.stats, {.name = "stats"});
  const SdpaGradients back = g.sdpa_bwd(q, k, v, o, dy, stats, options);
  g.output(back.dq, {.name = "dq"});
  g.output(back.dk, {.name = "dk"});
  const Graph graph = expand_composites(g.finish());
  HostTensors tensors(graph);
  for (const char* lengths : {"seq_len_q", "seq_len_kv"}) tensors.set(named(graph, lengths), {50, 64});
  tensors.run(Reading::device);
  const VerifyReport report = verify(graph, tensors.pointers());
  EXPECT_TRUE(report.passed()) << to_string(report);
  for (const OutputCheck& check : report.outputs)
    EXPECT_LT(check.tolerance_abs, 1e-4) << check.tensor << "\n" << to_string(report);
}

TEST(ErrorBound, ASmallProbabilityIsHeldToItsOwnSize) {
  GraphBuilder g("softmax");
  const Tensor x = g.input("x", {4, 256}, DataType::f32);
  const Tensor y = g.output(g.softmax(g.mul(x, g.constant(16)), {.axis = 1}).y, {.name = "y"});
  const Graph graph = expand_composites(g.finish());
  HostTensors tensors(graph);
  tensors.run(Reading::device);
  EXPECT_TRUE(verify(graph, tensors.pointers()).passed());
  std::vector<double> ys = tensors.get(y);
  double& least = *std::ranges::min_element(ys);
  EXPECT_LT(least, 1e-12);
  least *= 1 + 1e-3;
  tensors.set(y, ys);
  EXPECT_EQ(verify(graph, tensors.pointers()).outputs[0].wrong, 1);
}

TEST(ErrorBound, ViewsRoundNothing) {
  const auto tolerance = [](int turns) {
    GraphBuilder g("turned");
    const Tensor a = g.input("a", {64, 64}, DataType::bf16), b = g.input("b", {64, 64}, DataType::bf16),
                 c = g.input("c", {64, 64}, DataType::bf16);
    Tensor h = g.matmul(a, b, {.type = DataType::bf16});
    for (int i = 0; i < turns; ++i) h = g.transpose(h, {1, 0});
    g.output(g.matmul(h, c), {.name = "y", .type = DataType::f32});
    return checked_run(g.finish()).outputs[0].tolerance_abs;
  };
  EXPECT_DOUBLE_EQ(tolerance(4), tolerance(0));
}

// A row's factor that falls on the other side of a boundary: all its elements move together, and a product
// with columns of one sign adds them up.
TEST(ErrorBound, ARoundingThatARowSharesMayFallOnEitherSide) {
  for (const bool subtracts : {true, false}) {
    GraphBuilder g("rows");
    const Tensor values = g.input("x", {64, 256}, DataType::f32);
    const Tensor shared = g.reduce(values, ReductionMode::avg, {1}, {.type = DataType::bf16});
    const Tensor moved = subtracts ? g.sub(values, shared) : g.mul(values, shared);
    const Tensor weights = g.input("w", {256, 64}, DataType::f32);
    g.output(g.matmul(moved, weights), {.name = "y", .type = DataType::f32});
    const Graph graph = g.finish();
    HostTensors tensors(graph);
    for (const char* name : {"x", "w"}) {
      std::vector<double> positive = tensors.get(named(graph, name));
      for (double& value : positive) value = 0.5 + std::abs(value);
      tensors.set(named(graph, name), positive);
    }
    for (size_t op = 0; op < graph.ops.size(); ++op) {
      tensors.run(make_single(graph, static_cast<int>(op)), Reading::device);
      if (op > 0) continue;
      const Tensor& rounded = graph.tensors[static_cast<size_t>(graph.ops[0].outputs[0])];
      std::vector<double> flipped = tensors.get(rounded);
      flipped[5] += epsilon(DataType::bf16) / 2 * flipped[5];
      tensors.set(rounded, flipped);
    }
    const VerifyReport report = verify(graph, tensors.pointers());
    EXPECT_TRUE(report.passed()) << subtracts << "\n" << to_string(report);
    EXPECT_GT(report.outputs[0].of_tolerance, 0.1) << subtracts << "\n" << to_string(report);
  }
}

// Terms of one value fall on the other side of a boundary together, in a sum as in a product.
TEST(ErrorBound, EqualTermsOfASumMayFallOnTheOtherSideTogether) {
  constexpr int64_t kRows = 32, kTerms = 8, kEqual = 4;
  for (const bool multiplies : {false, true}) {
    GraphBuilder g("equal");
    const Tensor values = g.input("x", {kRows, kTerms}, DataType::f32),
                 weights = g.input("w", {kTerms, 8}, DataType::f32);
    const Tensor rounded = g.mul(values, g.constant(0.3), {.type = DataType::f16});
    const Tensor sum = multiplies ? g.matmul(rounded, weights) : g.reduce(rounded, ReductionMode::add, {1});
    g.output(sum, {.name = "y", .type = DataType::f32});
    const Graph graph = g.finish();
    HostTensors tensors(graph);
    std::vector<double> equal = tensors.get(values);
    for (double& value : equal) value = 0.5 + std::abs(value) / 2;
    for (size_t i = 0; i < equal.size(); ++i) equal[i] = equal[i / kEqual * kEqual];
    tensors.set(values, equal);
    tensors.set(weights, std::vector<double>(static_cast<size_t>(kTerms * 8), 1.0));
    for (size_t op = 0; op < graph.ops.size(); ++op) {
      tensors.run(make_single(graph, static_cast<int>(op)), Reading::device);
      if (op > 0) continue;
      const Tensor& factors = graph.tensors[static_cast<size_t>(graph.ops[0].outputs[0])];
      std::vector<double> flipped = tensors.get(factors);
      const auto largest = static_cast<size_t>(std::ranges::max_element(flipped) - flipped.begin());
      for (size_t i = largest / kEqual * kEqual; i < largest / kEqual * kEqual + kEqual; ++i)
        flipped[i] += epsilon(DataType::f16) / 4;
      tensors.set(factors, flipped);
    }
    const VerifyReport report = verify(graph, tensors.pointers());
    EXPECT_TRUE(report.passed()) << multiplies << "\n" << to_string(report);
    EXPECT_GT(report.outputs[0].of_tolerance, 0.4) << multiplies << "\n" << to_string(report);
  }
}

// Slices that are equal have equal roundings, however many other values there are.
TEST(ErrorBound, EqualSlicesMayFallOnTheOtherSideTogether) {
  constexpr int64_t kRows = 25, kTerms = 138, kCopies = 2;
  GraphBuilder g("slices");
  const Tensor values = g.input("x", {kRows, kTerms, kCopies}, DataType::f32);
  const Tensor rounded = g.mul(values, g.constant(0.3), {.type = DataType::f16});
  g.output(g.reduce(rounded, ReductionMode::add, {1, 2}), {.name = "y", .type = DataType::f32});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  std::vector<double> equal = tensors.get(values);
  for (double& value : equal) value = std::exp2(2 * std::min(value, 2.0));
  for (size_t i = 0; i < equal.size(); ++i) equal[i] = equal[i / kCopies * kCopies];
  constexpr size_t kLargest = 40;  // one pair is far larger than the others
  equal[kLargest] = equal[kLargest + 1] = 40;
  tensors.set(values, equal);
  for (size_t op = 0; op < graph.ops.size(); ++op) {
    tensors.run(make_single(graph, static_cast<int>(op)), Reading::device);
    if (op > 0) continue;
    const Tensor& factors = graph.tensors[static_cast<size_t>(graph.ops[0].outputs[0])];
    std::vector<double> flipped = tensors.get(factors);
    for (const size_t at : {kLargest, kLargest + 1}) flipped[at] += 8 * epsilon(DataType::f16);
    tensors.set(factors, flipped);
  }
  const VerifyReport report = verify(graph, tensors.pointers());
  EXPECT_TRUE(report.passed()) << to_string(report);
  EXPECT_GT(report.outputs[0].of_tolerance, 0.4) << to_string(report);
}

// The distances of equal numbers from their mean are roundings, and so are the products of two of them.
TEST(ErrorBound, FactorsThatShouldBeZeroMayBothBeOff) {
  constexpr int64_t kRows = 64, kTerms = 7;
  GraphBuilder g("constant_rows");
  const Tensor values = g.input("x", {kRows, kTerms}, DataType::f32);
  const Tensor distance = g.sub(values, g.reduce(values, ReductionMode::avg, {1}));
  const Tensor scale = g.input("scale", {1, 1}, DataType::f64);
  const Tensor scaled = g.mul(distance, scale);
  g.output(g.mul(distance, scaled), {.name = "y", .type = DataType::f64});
  g.output(g.add_square(g.constant(0, DataType::f64), scaled), {.name = "square", .type = DataType::f64});
  g.output(g.matmul(scaled, g.transpose(scaled, {1, 0})), {.name = "products", .type = DataType::f64});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  std::vector<double> equal = tensors.get(values);
  for (size_t i = 0; i < equal.size(); ++i) equal[i] = equal[i / kTerms * kTerms];
  tensors.set(values, equal);
  tensors.set(scale, {3.0});
  tensors.run(Reading::device);
  const VerifyReport report = verify(graph, tensors.pointers());
  EXPECT_TRUE(report.passed()) << to_string(report);
  for (const OutputCheck& output : report.outputs) EXPECT_GT(output.of_tolerance, 0.0) << to_string(report);
}

// Rows that are equal say nothing of the terms of one row's sum.
TEST(ErrorBound, EqualRowsDoNotWidenSumsAlongThem) {
  const auto tolerance = [](bool equal_rows) {
    constexpr int64_t kRows = 64, kTerms = 4096;
    GraphBuilder g("rows");
    const Tensor values = g.input("x", {kRows, kTerms}, DataType::f32);
    const Tensor rounded = g.mul(values, g.constant(0.3), {.type = DataType::f16});
    g.output(g.reduce(rounded, ReductionMode::add, {1}), {.name = "y", .type = DataType::f32});
    const Graph graph = g.finish();
    HostTensors tensors(graph);
    std::vector<double> wide = tensors.get(values);
    for (double& value : wide) value = std::exp2(2 * std::min(value, 2.0));
    for (size_t i = 0; i < wide.size() && equal_rows; ++i) wide[i] = wide[i % kTerms];
    tensors.set(values, wide);
    tensors.run(Reading::device);
    return verify(graph, tensors.pointers()).outputs[0].tolerance_abs;
  };
  EXPECT_LT(tolerance(true), 2 * tolerance(false));
}

}  // namespace
}  // namespace fusor
