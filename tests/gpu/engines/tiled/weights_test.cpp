// Owns the tests of the mma_weights engine on the GPU: every candidate of every case against the oracle.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>

#include "backend/engines/list.h"
#include "frontend/graph_builder.h"
#include "tests/gpu/device_run.h"
#include "tests/gpu/engines/contraction_cases.h"

namespace fusor::weights_test {
namespace {

// The engine, and one for what is cut off around it.
void expect_correct_by_weights(const Graph& graph, const std::string& what) {
  static const std::array<const Engine*, 2> kEngines = {&mma_weights_engine(), &elementwise_engine()};
  EXPECT_FALSE(candidates(graph, DeviceInfo::current(), {.engine_list = kEngines}).empty()) << what;
  expect_every_candidate_correct(graph, what, {.engine_list = kEngines});
}

#define FUSOR_NEEDS_SM_80() \
  FUSOR_NEEDS_GPU();        \
  if (DeviceInfo::current().compute_capability < 80) GTEST_SKIP() << "needs sm_80"

struct Case {
  Dims mnk;
  DataType weights, type = DataType::bf16;
  bool along_k = true;
  int64_t block = 0;
  std::optional<DataType> scales = std::nullopt, zeros = std::nullopt;
};

Graph product(const Case& c) {
  GraphBuilder g("product");
  const int64_t n = c.mnk[1], k = c.mnk[2];
  const bool blocked = c.block > 0;
  const Dims dims = blocked ? Dims{k / c.block, c.block, n} : Dims{k, n};
  const Dims few = blocked ? Dims{k / c.block, 1, n} : Dims{1, n};
  TensorOptions options;
  if (c.along_k) options.strides = blocked ? Strides{c.block, 1, k} : Strides{1, k};
  Tensor value = g.input("w", dims, c.weights, options);
  const PointwiseOptions in_floats{.type = DataType::f32, .compute = DataType::f32};
  const PointwiseOptions rounded{.type = c.type, .compute = DataType::f32};
  if (c.zeros) value = g.sub(value, g.input("zeros", few, *c.zeros), in_floats);
  value = c.scales ? g.mul(value, g.input("scales", few, *c.scales), rounded) : g.identity(value, rounded);
  if (blocked) value = g.reshape(value, {k, n});
  g.output(g.matmul(g.input("x", {c.mnk[0], k}, c.type), value), {.type = c.type});
  return g.finish();
}

std::string name_of(const Case& c) {
  return fmt::format("{} {} {} by {}", to_string(c.mnk), to_string(c.weights), to_string(c.type), c.block);
}

TEST(WeightsGpu, EveryTypeAndLayout) {
  FUSOR_NEEDS_SM_80();
  for (const DataType weights :
       {DataType::i8, DataType::u8, DataType::f8_e4m3, DataType::f8_e5m2, DataType::i4, DataType::f4_e2m1})
    for (const DataType type : {DataType::f16, DataType::bf16})
      for (const bool along_k : {false, true}) {
        const Case c{{13, 136, 416}, weights, type, along_k, 32, type};
        expect_correct_by_weights(product(c), name_of(c));
      }
}

TEST(WeightsGpu, TailsOfRowsColumnsAndSteps) {
  FUSOR_NEEDS_SM_80();
  for (const int64_t m : {1, 3, 9, 33, 70, 130}) {
    const Case along_k{{m, 200, 360}, DataType::i8, DataType::f16, true, 0, DataType::f16};
    const Case along_n{{m, 200, 360}, DataType::i8, DataType::bf16, false, 0, DataType::bf16};
    for (const Case& c : {along_k, along_n}) expect_correct_by_weights(product(c), name_of(c));
  }
}

TEST(WeightsGpu, ZeroPointsInPairsAndInFloats) {
  FUSOR_NEEDS_SM_80();
  for (const DataType type : {DataType::f16, DataType::bf16})
    for (const bool along_k : {false, true})
      for (const DataType scales : {type, DataType::f32}) {
        const Case c{{17, 256, 640}, DataType::i4, type, along_k, 64, scales, DataType::u8};
        expect_correct_by_weights(product(c), name_of(c));
      }
}

}  // namespace
}  // namespace fusor::weights_test
