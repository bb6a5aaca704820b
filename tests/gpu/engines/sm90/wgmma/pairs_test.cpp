// Owns the GPU tests of gated pairs on the wgmma engine.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/gpu/engines/sm90/wgmma/cases.h"

namespace fusor {
namespace {

using namespace wgmma_cases;

// Weights as they are multiplied, or stored transposed.
enum class Weights { across, along_k };

struct PairCase {
  Dims x;
  int64_t n;
  Weights weights = Weights::along_k;
  PointwiseMode gate = PointwiseMode::swish;
  DataType type = DataType::bf16;
  bool biases = false, saves = false;
};

Graph gated_pair(const PairCase& c) {
  GraphBuilder g("gated_pair");
  const Tensor x = g.input("x", c.x, c.type);
  const int64_t k = c.x.back();
  const auto product = [&](const std::string& name) {
    TensorOptions options;
    if (c.weights == Weights::along_k) options.strides = Strides{1, k};
    Tensor y = g.matmul(x, g.input(name, {k, c.n}, c.type, options));
    if (c.biases) y = g.add(y, g.input(name + "_bias", {1, c.n}, c.type));
    return c.saves ? g.output(y, {.name = name + "_saved", .type = c.type}) : y;
  };
  const Tensor gate = product("gate"), up = product("up");
  g.output(g.mul(g.pointwise(c.gate, {gate}), up), {.type = c.type});
  return g.finish();
}

TEST(WgmmaGpu, GatedPairsWithTails) {
  FUSOR_NEEDS_HOPPER();
  for (const Weights weights : {Weights::along_k, Weights::across})
    for (const auto& [x, n] : {std::pair{Dims{128, 64}, 128},
                               {Dims{257, 200}, 136},
                               {Dims{520, 1032}, 16},
                               {Dims{1, 72}, 264},
                               {Dims{700, 328}, 776}}) {
      const PairCase c{.x = x, .n = n, .weights = weights};
      expect_every_config_correct(gated_pair(c), fmt::format("{} to {} columns", to_string(x), n));
    }
}

TEST(WgmmaGpu, GatedPairsOfEveryActivationWithBiases) {
  FUSOR_NEEDS_HOPPER();
  for (const DataType type : {DataType::f16, DataType::bf16})
    for (const PointwiseMode gate : {PointwiseMode::swish, PointwiseMode::gelu, PointwiseMode::gelu_tanh,
                                     PointwiseMode::sigmoid, PointwiseMode::relu}) {
      const PairCase c{.x = {390, 136}, .n = 280, .gate = gate, .type = type, .biases = true};
      expect_every_config_correct(gated_pair(c), fmt::format("{} {}", to_string(gate), to_string(type)));
    }
}

TEST(WgmmaGpu, GatedPairsThatSaveTheirPreActivations) {
  FUSOR_NEEDS_HOPPER();
  for (const Weights weights : {Weights::along_k, Weights::across}) {
    const PairCase c{.x = {3, 130, 96}, .n = 152, .weights = weights, .biases = true, .saves = true};
    expect_every_config_correct(gated_pair(c), "three results");
  }
}

// Columns whose pairs are not whole, lines that TMA cannot store, weights of every entry.
TEST(WgmmaGpu, GatedPairsOfABatchWithOddColumns) {
  FUSOR_NEEDS_HOPPER();
  GraphBuilder g("batched");
  const Tensor x = g.input("x", {3, 130, 96}, DataType::bf16);
  const auto product = [&](const char* name) {
    return g.matmul(
        x, g.input(name, {3, 96, 75}, DataType::bf16, TensorOptions{.strides = Strides{7200, 1, 96}}));
  };
  const Tensor gate = product("gate"), up = product("up");
  g.output(g.mul(g.swish(gate), g.add(up, gate)), {.type = DataType::f32});
  expect_every_config_correct(g.finish(), "75 columns");
}

// Keys and values of a layer: two products of one operand, each with an epilogue and a result of its own.
TEST(WgmmaGpu, ProductsOfOneOperand) {
  FUSOR_NEEDS_HOPPER();
  for (const Weights weights : {Weights::along_k, Weights::across})
    for (const auto& [x, n] :
         {std::pair{Dims{128, 64}, 128}, {Dims{257, 200}, 136}, {Dims{8, 1032}, 64}, {Dims{3, 70, 96}, 152}})
      for (const DataType second : {DataType::bf16, DataType::f32}) {
        GraphBuilder g("products");
        const Tensor read = g.input("x", x, DataType::bf16);
        const int64_t k = x.back();
        const auto product = [&](const std::string& name) {
          TensorOptions options;
          if (weights == Weights::along_k) options.strides = Strides{1, k};
          return g.matmul(read, g.input(name, {k, n}, DataType::bf16, options));
        };
        const Tensor keys = g.add(product("k"), g.input("bias", {1, n}, DataType::bf16));
        g.output(keys, {.name = "keys", .type = DataType::bf16});
        g.output(g.relu(product("v")), {.name = "values", .type = second});
        const Graph graph = g.finish();
        expect_every_config_correct(graph, fmt::format("{} to {} columns", to_string(x), n));
      }
}

}  // namespace
}  // namespace fusor
