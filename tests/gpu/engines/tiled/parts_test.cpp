// Owns the tests of fp32 in parts on the GPU: every candidate of the mma engine against the oracle, and on
// numbers chosen against it the error, that of wgmma_parts too, compared with that of the CUDA cores.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "backend/engines/list.h"
#include "frontend/graph_builder.h"
#include "tests/gpu/device_run.h"
#include "tests/gpu/engines/contraction_cases.h"

namespace fusor {
namespace {

using namespace contraction_cases;

#define FUSOR_NEEDS_TENSOR_CORES() \
  FUSOR_NEEDS_GPU();               \
  if (DeviceInfo::current().compute_capability < 80) GTEST_SKIP() << "needs sm_80"

const std::array<const Engine*, 1> kInParts = {&mma_engine()};
const std::array<const Engine*, 1> kByWgmma = {&wgmma_parts_engine()};
const std::array<const Engine*, 1> kOnCudaCores = {&direct_engine()};

// The lists of one engine each that this device has, and that take sums of k terms.
std::vector<std::span<const Engine* const>> ways_in_parts(int64_t k) {
  constexpr int64_t kFewestTerms = 16;
  std::vector<std::span<const Engine* const>> ways{kInParts};
  if (DeviceInfo::current().compute_capability / 10 == 9 && k >= kFewestTerms) ways.emplace_back(kByWgmma);
  return ways;
}

void expect_correct_in_parts(const Graph& graph, const std::string& what) {
  const PlannerOptions options{.build = {.compile = false}, .engine_list = kInParts};
  for (const Candidate& candidate : candidates(graph, DeviceInfo::current(), options))
    EXPECT_TRUE(candidate.notes.split_operands) << what;
  static const std::array<const Engine*, 2> kEngines = {&mma_engine(), &elementwise_engine()};
  expect_every_candidate_correct(graph, what, {.engine_list = kEngines});
}

TEST(PartsGpu, MatmulOfOddSizes) {
  FUSOR_NEEDS_TENSOR_CORES();
  for (const Dims& mnk : {Dims{1, 1, 1}, Dims{17, 33, 65}, Dims{128, 128, 64}, Dims{129, 67, 1000},
                          Dims{1, 300, 77}, Dims{300, 1, 5}, Dims{200, 264, 136}, Dims{64, 48, 6001}}) {
    GraphBuilder g("matmul");
    const Tensor a = g.input("a", {mnk[0], mnk[2]}, DataType::f32);
    const Tensor b = g.input("b", {mnk[2], mnk[1]}, DataType::f32);
    expect_correct_in_parts(g.finish({g.matmul(a, b)}), to_string(mnk));
  }
}

TEST(PartsGpu, MatmulOfEveryTransposeAndAlignment) {
  FUSOR_NEEDS_TENSOR_CORES();
  int64_t alignment = 4;
  for (const Strides& a_strides : {Strides{72, 1}, Strides{1, 160}, Strides{145, 2}, Strides{73, 1}})
    for (const Strides& b_strides : {Strides{208, 1}, Strides{1, 72}, Strides{2, 145}})
      for (const Strides& c_strides : {Strides{208, 1}, Strides{1, 160}}) {
        GraphBuilder g("matmul");
        const Tensor a =
            g.input("a", {160, 72}, DataType::f32, {.strides = a_strides, .alignment = alignment});
        const Tensor b = g.input("b", {72, 200}, DataType::f32, {.strides = b_strides});
        g.output(g.matmul(a, b), {.strides = c_strides});
        expect_correct_in_parts(
            g.finish(), fmt::format("{} {} {} alignment {}", to_string(a_strides), to_string(b_strides),
                                    to_string(c_strides), alignment));
        alignment = alignment == 16 ? 4 : 2 * alignment;
      }
}

TEST(PartsGpu, ProloguesMixturesAndBatches) {
  FUSOR_NEEDS_TENSOR_CORES();
  for (const int64_t k : {127, 128}) {
    GraphBuilder g("prologue");
    const Tensor a = g.input("a", {61, k}, DataType::i8);
    const Tensor scale = g.input("scale", {1, k}, DataType::f32);
    const Tensor b = g.input("b", {3, k, 48}, DataType::f32);
    expect_correct_in_parts(g.finish({g.relu(g.matmul(g.mul(a, scale), b))}), fmt::format("scale, k {}", k));
    for (const DataType other : {DataType::f32, DataType::f16}) {
      GraphBuilder mixed("mixture");
      const Tensor c =
          mixed.matmul(mixed.input("a", {70, k}, DataType::bf16), mixed.input("b", {k, 90}, other));
      expect_correct_in_parts(mixed.finish({c}), fmt::format("bf16 x {}, k {}", to_string(other), k));
    }
  }
}

void expect_correct_convolutions(Layout layout) {
  for (const PaddedConv& c : kConvs)
    for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad})
      expect_correct_in_parts(convolution(c, pass, DataType::f32, layout, ConvMode::cross_correlation),
                              to_string(c, pass, DataType::f32, layout));
}

TEST(PartsGpu, ConvolutionsOfEveryPassInNchw) {
  FUSOR_NEEDS_TENSOR_CORES();
  expect_correct_convolutions(Layout::nchw);
}

TEST(PartsGpu, ConvolutionsOfEveryPassInNhwc) {
  FUSOR_NEEDS_TENSOR_CORES();
  expect_correct_convolutions(Layout::nhwc);
}

// --- Numbers chosen against the parts ---

constexpr int64_t kRows = 97, kColumns = 130;

struct Product {
  int64_t k;
  std::vector<float> a, b;  // kRows x k, k x kColumns

  Product(int64_t steps, const std::function<float(int64_t row, int64_t k)>& of_a,
          const std::function<float(int64_t k, int64_t column)>& of_b)
      : k(steps) {
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t step = 0; step < k; ++step) a.push_back(of_a(row, step));
    for (int64_t step = 0; step < k; ++step)
      for (int64_t column = 0; column < kColumns; ++column) b.push_back(of_b(step, column));
  }
};

std::vector<float> run(const Plan& plan, const Product& product) {
  const auto upload = [](const std::vector<float>& values) {
    cuda::DeviceBuffer buffer(static_cast<int64_t>(values.size() * sizeof(float)));
    cuda::copy_to_device(buffer.get(), values.data(), buffer.bytes());
    return buffer;
  };
  const Executable executable = load(plan);
  const cuda::DeviceBuffer a = upload(product.a), b = upload(product.b);
  std::vector<float> c(kRows * kColumns);
  const cuda::DeviceBuffer result = upload(c);
  const cuda::DeviceBuffer workspace(std::max<int64_t>(executable.workspace_bytes(), 256));
  std::vector<void*> slots(static_cast<size_t>(executable.slot_count()));
  slots[executable.slot("a")] = a.get();
  slots[executable.slot("b")] = b.get();
  slots[executable.slot("c")] = result.get();
  executable.run(slots, workspace.get());
  cuda::synchronize(nullptr);
  cuda::copy_to_host(c.data(), result.get(), result.bytes());
  return c;
}

// The results of every candidate of one engine; `splits`: also of those that split the sums.
std::vector<std::vector<float>> results(const Product& product, std::span<const Engine* const> engines,
                                        bool splits = true) {
  GraphBuilder g("product");
  const Tensor a = g.input("a", {kRows, product.k}, DataType::f32);
  const Tensor b = g.input("b", {product.k, kColumns}, DataType::f32);
  g.output(g.matmul(a, b), {.name = "c"});
  const Graph graph = g.finish();
  const PlannerOptions options{.engine_list = engines};
  std::vector<std::vector<float>> all;
  for (const Candidate& candidate : candidates(graph, DeviceInfo::current(), options))
    if (splits || candidate.fusions.front().config.knob("split", 1) == 1)
      all.push_back(run(build(graph, DeviceInfo::current(), candidate, options), product));
  return all;
}

// The largest error, against the sum of the products' magnitudes; the last place of a subnormal is free.
double worst_error(const Product& product, const std::vector<float>& c) {
  double worst = 0;
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t column = 0; column < kColumns; ++column) {
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < product.k; ++k) {
        const double term = double(product.a[row * product.k + k]) * product.b[k * kColumns + column];
        sum += term, magnitude += std::abs(term);
      }
      const double error = std::abs(double(c[row * kColumns + column]) - sum) - 0x1p-149;
      if (!(error <= 0)) worst = std::max(worst, error / magnitude);
      if (std::isnan(error)) return std::numeric_limits<double>::infinity();
    }
  return worst;
}

// No candidate errs more than the CUDA cores do, whose tiles all sum in the same order.
void expect_no_larger_error(const std::string& what, const Product& product, double allowed = 1) {
  const double on_cuda_cores = worst_error(product, results(product, kOnCudaCores, false).front());
  for (const auto way : ways_in_parts(product.k)) {
    double in_parts = 0;
    for (const auto& c : results(product, way)) in_parts = std::max(in_parts, worst_error(product, c));
    const std::string name(way.front()->name());
    testing::Test::RecordProperty(fmt::format("{}_{}", what, name),
                                  fmt::format("in parts {:.3f}, on CUDA cores {:.3f} of 2^-24",
                                              in_parts * 0x1p24, on_cuda_cores * 0x1p24));
    EXPECT_LE(in_parts, allowed * on_cuda_cores) << what << ", " << name;
  }
}

struct Numbers {
  std::mt19937 engine{7};
  double uniform(double low, double high) { return std::uniform_real_distribution<>(low, high)(engine); }
  float sign() { return uniform(-1, 1) < 0 ? -1.0F : 1.0F; }
  /// A number of any sign and mantissa, the exponent between two.
  float with_exponent(double low, double high) {
    return sign() * std::ldexp(static_cast<float>(uniform(1, 2)), static_cast<int>(uniform(low, high)));
  }
};

TEST(PartsGpu, OrdinaryNumbersErrNoMoreThanOnCudaCores) {
  FUSOR_NEEDS_TENSOR_CORES();
  Numbers n;
  for (const int64_t k : {16, 100, 2000}) {
    expect_no_larger_error(fmt::format("signed_{}", k),
                           Product(
                               k, [&](int64_t, int64_t) { return float(n.uniform(-1, 1)); },
                               [&](int64_t, int64_t) { return float(n.uniform(-1, 1)); }));
    expect_no_larger_error(fmt::format("positive_{}", k),
                           Product(
                               k, [&](int64_t, int64_t) { return float(n.uniform(0, 1)); },
                               [&](int64_t, int64_t) { return float(n.uniform(0, 1)); }));
  }
}

// A single product is rounded once on CUDA cores. In parts, products below 2^-26 of it are left out.
TEST(PartsGpu, ShortSumsErrByTheirRoundingAndTheLeastParts) {
  FUSOR_NEEDS_TENSOR_CORES();
  Numbers n;
  for (const int64_t k : {1, 2, 3})
    expect_no_larger_error(fmt::format("short_{}", k),
                           Product(
                               k, [&](int64_t, int64_t) { return n.with_exponent(-3, 3); },
                               [&](int64_t, int64_t) { return n.with_exponent(-3, 3); }),
                           1.3);
}

// Where few products count, rounding is by chance, and the worst of many results by which one is looked at.
TEST(PartsGpu, WideExponentsErrAsOnCudaCores) {
  FUSOR_NEEDS_TENSOR_CORES();
  Numbers n;
  expect_no_larger_error("wide_20",
                         Product(
                             500, [&](int64_t, int64_t) { return n.with_exponent(-20, 20); },
                             [&](int64_t, int64_t) { return n.with_exponent(-20, 20); }),
                         1.3);
  expect_no_larger_error("wide_60",
                         Product(
                             500, [&](int64_t, int64_t) { return n.with_exponent(-60, 60); },
                             [&](int64_t, int64_t) { return n.with_exponent(-60, 60); }),
                         1.3);
  // Factors of hundreds of binary places that make up for each other.
  std::vector<double> shift;
  shift.reserve(500);
  for (int k = 0; k < 500; ++k) shift.push_back(n.uniform(-122, 122));
  expect_no_larger_error("opposed",
                         Product(
                             500, [&](int64_t, int64_t k) { return n.with_exponent(shift[k], shift[k] + 3); },
                             [&](int64_t k, int64_t) { return n.with_exponent(-shift[k], -shift[k] + 3); }),
                         1.3);
}

TEST(PartsGpu, CancellationErrsNoMoreThanOnCudaCores) {
  FUSOR_NEEDS_TENSOR_CORES();
  Numbers n;
  for (const double noise : {0x1p-22, 0x1p-12}) {
    Product product(
        512, [&](int64_t, int64_t) { return float(n.uniform(-1, 1)); },
        [&](int64_t, int64_t) { return float(n.uniform(-1, 1)); });
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t k = 1; k < product.k; k += 2)
        product.a[row * product.k + k] =
            float(-product.a[row * product.k + k - 1] * (1 + noise * n.uniform(-1, 1)));
    for (int64_t k = 1; k < product.k; k += 2)
      for (int64_t column = 0; column < kColumns; ++column)
        product.b[k * kColumns + column] = product.b[(k - 1) * kColumns + column];
    expect_no_larger_error(fmt::format("cancelled_{}", std::ilogb(noise)), product);
  }
}

TEST(PartsGpu, SubnormalsErrNoMoreThanOnCudaCores) {
  FUSOR_NEEDS_TENSOR_CORES();
  Numbers n;
  const auto large = [&](int64_t, int64_t) { return n.with_exponent(90, 110); };
  expect_no_larger_error(
      "subnormal",
      Product(
          300, [&](int64_t, int64_t) { return n.sign() * float(n.uniform(0, 0x1p-126)); }, large));
  expect_no_larger_error("few_subnormal", Product(
                                              300,
                                              [&](int64_t, int64_t) {
                                                return n.uniform(0, 1) < 0.002 ? float(0x1.234568p-130)
                                                                               : n.with_exponent(-120, -100);
                                              },
                                              large));
}

void expect_the_same_kinds(const std::string& what, const Product& product) {
  const auto expected = results(product, kOnCudaCores, false).front();
  for (const auto way : ways_in_parts(product.k)) {
    int candidate = 0;
    for (const auto& c : results(product, way)) {
      int64_t wrong = 0;
      for (size_t i = 0; i < c.size(); ++i)
        wrong +=
            std::isnan(c[i]) != std::isnan(expected[i]) ||
            (std::isinf(c[i]) || std::isinf(expected[i]) ? !(c[i] == expected[i] || std::isnan(c[i])) : 0);
      EXPECT_EQ(wrong, 0) << what << ", " << way.front()->name() << ", candidate " << candidate;
      ++candidate;
    }
  }
}

TEST(PartsGpu, WhatIsNotFiniteIsSoOnCudaCoresToo) {
  FUSOR_NEEDS_TENSOR_CORES();
  Numbers n;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto ordinary = [&](int64_t, int64_t) { return float(n.uniform(-1, 1)); };
  // bf16 has few enough bits for middle and low parts of zero, which an infinity would turn into NaN.
  const auto short_numbers = [&](int64_t, int64_t) { return std::round(float(n.uniform(-8, 8))); };
  const auto seldom = [&](float value) {
    return [&n, value](int64_t, int64_t) {
      return n.uniform(0, 1) < 0.0005 ? n.sign() * value : float(n.uniform(-1, 1));
    };
  };
  for (const float value : {kInfinity, std::nanf("")}) {
    expect_the_same_kinds(fmt::format("{} in a", value), Product(300, seldom(value), ordinary));
    expect_the_same_kinds(fmt::format("{} in b", value), Product(300, short_numbers, seldom(value)));
  }
}

// Products just below the largest float: their high parts alone are above it.
TEST(PartsGpu, TheLargestResultsDoNotOverflow) {
  FUSOR_NEEDS_TENSOR_CORES();
  Numbers n;
  const Product product(
      300, [&](int64_t row, int64_t k) { return k == row ? float(0x1.ffffp63) : 0.0F; },
      [&](int64_t, int64_t) { return n.sign() * float(0x1.fffep63); });
  expect_the_same_kinds("largest", product);
  expect_no_larger_error("largest", product, 1.3);
}

}  // namespace
}  // namespace fusor
