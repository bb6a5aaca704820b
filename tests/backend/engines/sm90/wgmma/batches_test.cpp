// Owns the tests of matmuls on the wgmma engine whose batch no one stride walks: what it takes and refuses,
// that every entry is found in every map, and that the kernels compile. None needs a GPU.
#include <gmock/gmock.h>

#include <cstring>
#include <optional>

#include "backend/build.h"
#include "backend/engines/contraction/product.h"
#include "tests/backend/engines/golden_text.h"
#include "tests/backend/engines/host_divisor.h"
#include "tests/backend/engines/sm90/wgmma/cases.h"
#include "tests/support/batched_matmul.h"

#define __device__  // NOLINT(bugprone-reserved-identifier): CUDA's word
namespace device {
#include "codegen/device/sm90/pipeline/map_entry.cuh"
}  // namespace device
#undef __device__

namespace fusor {
namespace {

using namespace wgmma_cases;
using test::batched_matmuls;
using test::BatchedMatmul;
using test::Lie;
using Walk = device::EntryWalk<int64_t, test::HostDivisor>;
template <int kAxes>
using OwnWalk = device::OwnEntryWalk<kAxes, int64_t, test::HostDivisor>;

constexpr DataType kBf16 = DataType::bf16;

Graph graph_of(const BatchedMatmul& c, DataType type = kBf16) {
  return test::batched_matmul(c, {320, 136, 72}, type, type == DataType::f32 ? type : kBf16,
                              type == DataType::f32 ? Precision::allow_tf32 : Precision::allow_short_sums);
}

std::optional<int> place_of(const Launch& launch, const std::string& path) {
  const auto found = std::ranges::find(launch.source->parameters, path, &ParameterField::path);
  return found == launch.source->parameters.end() ? std::nullopt : std::optional(found->at);
}

template <class T>
T argument(const Launch& launch, int at) {
  T value;
  std::memcpy(&value, launch.arguments.bytes().data() + at, sizeof value);
  return value;
}

// Bytes from a tensor's first element to those of an entry, as the kernel finds them: `path` is where its
// arguments say how.
int64_t bytes_on_device(const Launch& launch, const TensorMap& map, const std::string& path, int64_t entry) {
  const auto walk = place_of(launch, path + ".shared"), extents = place_of(launch, path + ".extent");
  const auto bytes_at = [&](const auto& place) {
    int64_t bytes = 0;
    for (int i = 0; i < 3; ++i) {
      EXPECT_LT(place.at[2 - i], map.dims[2 + i]) << path;
      bytes += place.at[2 - i] * map.stride_bytes[1 + i];
    }
    return bytes;
  };
  if (walk) return bytes_at(argument<Walk>(launch, *walk).place(entry));
  if (extents && config_value(*launch.source, "result_axes") == 2)
    return bytes_at(argument<OwnWalk<2>>(launch, *extents).place(entry));
  if (extents) return bytes_at(argument<OwnWalk<3>>(launch, *extents).place(entry));
  const auto batched = place_of(launch, path);
  const bool own = !batched || argument<int64_t>(launch, *batched) != 0;
  return own ? entry * map.stride_bytes[1] : 0;
}

int64_t bytes_of_entry(const Dims& batch, const Dims& dims, const Strides& strides, DataType type,
                       int64_t entry) {
  int64_t element = 0;
  for (int axis = batch.rank() - 1; axis >= 0; --axis) {
    if (dims[axis] > 1) element += entry % batch[axis] * strides[axis];
    entry /= batch[axis];
  }
  return element * byte_size(type);
}

// A map of a launch: its number, where the kernel's arguments have its entries, and the tensor.
void expect_entries_found(const Launch& launch, size_t number, const std::string& path,
                          const BatchedMatmul& c, int64_t rows, int64_t columns, const Lie& lie) {
  SCOPED_TRACE(path);
  const TensorMap& map = launch.arguments.maps().at(number);
  EXPECT_EQ(map.box.rank(), map.dims.rank());
  EXPECT_EQ(map.stride_bytes.rank(), map.dims.rank() - 1);
  const Dims dims = test::over(c.batch, rows, columns, lie);
  const Strides strides = test::strides_of(dims, map.type, lie);
  for (int64_t entry = 0; entry < element_count(c.batch); ++entry)
    EXPECT_EQ(bytes_on_device(launch, map, path, entry),
              bytes_of_entry(c.batch, dims, strides, map.type, entry))
        << "entry " << entry;
}

TEST(WgmmaBatches, EveryEntryIsFoundInEveryMap) {
  for (const BatchedMatmul& c : batched_matmuls()) {
    const Graph graph = graph_of(c);
    if (contraction_of(test::fusion_of(graph)).value().entries != element_count(c.batch)) continue;  // rows
    for (const Lowered& one : lowerings(graph)) {
      SCOPED_TRACE(c.name);
      const Launch& launch = launch_of(one);
      const bool swapped = config_value(*launch.source, "swapped") != 0;
      expect_entries_found(launch, swapped ? 1 : 0, swapped ? "operands.batched_b" : "operands.batched_a", c,
                           320, 72, c.a);
      expect_entries_found(launch, swapped ? 0 : 1, swapped ? "operands.batched_a" : "operands.batched_b", c,
                           72, 136, c.b);
      if (launch.arguments.maps().size() > 2)
        expect_entries_found(launch, 2, "schedule.entries", c, 320, 136, c.y);
    }
  }
}

// Whether a candidate stores its tiles itself; others add up parts first.
bool stores_tiles(const Lowered& one) {
  return one.steps.size() == 1 && config_value(source_of(one), "gathered") == 1;
}

TEST(WgmmaBatches, ResultsLeaveInBoxesHoweverTheirEntriesLie) {
  constexpr int64_t kBoxes = 1;
  for (const BatchedMatmul& c : batched_matmuls())
    for (const Lowered& one : lowerings(graph_of(c))) {
      const bool walks = config_value(source_of(one), "result_axes") != 0;
      EXPECT_EQ(walks, place_of(launch_of(one), "schedule.entries").has_value()) << c.name;
      if (stores_tiles(one)) {
        EXPECT_EQ(config_value(source_of(one), "store"), kBoxes) << c.name;
      }
    }
}

TEST(WgmmaBatches, OneStrideNeedsNoWalk) {
  const BatchedMatmul plain{"plain", {3, 5}}, shared{"shared", {3, 5}, {}, {.shared = {0, 1}}};
  for (const BatchedMatmul& c : {plain, shared})
    for (const Lowered& one : lowerings(graph_of(c))) {
      for (const char* name : {"walks_a", "walks_b", "result_axes"})
        EXPECT_EQ(config_value(source_of(one), name), 0) << c.name;
      for (const TensorMap& map : launch_of(one).arguments.maps()) EXPECT_EQ(map.dims.rank(), 3);
    }
}

TEST(WgmmaBatches, EveryTypeIsTaken) {
  for (const BatchedMatmul& c : batched_matmuls())
    for (const DataType type : {DataType::f16, kBf16}) EXPECT_EQ(rule(graph_of(c, type)), "") << c.name;
  const BatchedMatmul along_k{"along k", {3, 5}, {}, {.shared = {0}, .order = {0, 1, 3, 2}}};
  for (const DataType type : {DataType::f8_e4m3, DataType::f32}) EXPECT_EQ(rule(graph_of(along_k, type)), "");
}

TEST(WgmmaBatches, FourStridesAreRefused) {
  const BatchedMatmul four{"four", {2, 3, 2, 3}, {.order = {3, 2, 1, 0, 4, 5}}};
  const Support support =
      test::supports(wgmma_engine(), fusion_of(graph_of(four)), DeviceInfo::named("H200"));
  ASSERT_FALSE(support);
  EXPECT_EQ(support.refusal->rule, "batch-strides");
  EXPECT_EQ(support.refusal->tensor, "a");
  EXPECT_EQ(support.refusal->expected, "leading axes that 3 strides walk");
  EXPECT_EQ(support.refusal->actual, "[23040, 46080, 138240, 276480, 72, 1]");
}

// A result is stored by threads there, as one whose lines TMA cannot address.
TEST(WgmmaBatches, AResultOfFourStridesIsStoredByThreads) {
  constexpr int64_t kThreads = 0;
  const BatchedMatmul four{"four", {2, 3, 2, 3}, {}, {}, {.order = {3, 2, 1, 0, 4, 5}}};
  for (const Lowered& one : lowerings(graph_of(four))) {
    if (!stores_tiles(one)) continue;
    EXPECT_EQ(config_value(source_of(one), "store"), kThreads);
  }
}

// Threads count entries by one stride.
TEST(WgmmaBatches, LinesThatTheCopyEngineCannotWalkWantOneStride) {
  const BatchedMatmul c{"odd", {3, 5}, {}, {.shared = {0}, .unit = 2}};
  const Graph graph = test::batched_matmul(c, {320, 135, 72}, kBf16, kBf16);
  EXPECT_EQ(rule(graph), "16-byte-lines");
  const Support packed = test::supports(wgmma_repacked_engine(), fusion_of(graph), DeviceInfo::named("H200"));
  EXPECT_TRUE(packed) << "it packs them";
  const BatchedMatmul other{"odd", {3, 5}, {.shared = {0, 1}, .unit = 2}, {.shared = {0}}};
  EXPECT_EQ(rule(test::batched_matmul(other, {320, 136, 71}, kBf16, kBf16)), "");
}

Graph gated(const Lie& gate, const Lie& up) {
  GraphBuilder g("gated");
  const Dims batch{3, 5};
  const Tensor x = test::laid_out(g, "x", test::over(batch, 320, 72, {}), kBf16, {});
  const auto weights = [&](const char* name, const Lie& lie) {
    return test::laid_out(g, name, test::over(batch, 72, 136, lie), kBf16, lie);
  };
  const Tensor first = g.matmul(x, weights("gate", gate)), second = g.matmul(x, weights("up", up));
  g.output(g.mul(g.swish(first), second), {.type = kBf16});
  return g.finish();
}

TEST(WgmmaBatches, SiblingsShareTheSameAxes) {
  const Lie heads{.shared = {0}}, inner_first{.order = {1, 0, 2, 3}};
  EXPECT_EQ(rule(gated(heads, heads)), "");
  EXPECT_EQ(rule(gated(inner_first, inner_first)), "");
  EXPECT_EQ(rule(gated(inner_first, {})), "like-siblings");
}

Graph with_residual(const BatchedMatmul& c, const Lie& residual) {
  GraphBuilder g("residual");
  const Dims mnk{320, 136, 72};
  const Tensor sum = test::product(g, c, mnk, kBf16);
  const Dims dims = test::over(c.batch, mnk[0], mnk[1], residual);
  const Tensor y = g.add(sum, test::laid_out(g, "residual", dims, kBf16, residual));
  test::store(g, y, c, mnk, kBf16);
  return g.finish();
}

TEST(WgmmaBatches, WhatLiesAlongTheResultsAxesComesBesideIt) {
  const Lie heads_last{.order = {0, 2, 1, 3}};
  const BatchedMatmul permuted{"permuted", {3, 5}, heads_last, {.shared = {0}}, heads_last},
      plain{"plain", {3, 5}, heads_last, {.shared = {0}}};
  const auto staged = [](const Graph& graph) {
    int64_t most = 0;
    for (const Lowered& one : lowerings(graph)) most = std::max(most, config_value(source_of(one), "staged"));
    return most;
  };
  EXPECT_EQ(staged(with_residual(permuted, heads_last)), 1);
  EXPECT_EQ(staged(with_residual(permuted, {})), 1) << "the same two axes, by other strides";
  EXPECT_EQ(staged(with_residual(plain, {})), 1);
  EXPECT_EQ(staged(with_residual(plain, heads_last)), 0) << "one axis of the result is two of the residual";
  EXPECT_EQ(staged(with_residual(permuted, {.shared = {0}})), 0);
}

TEST(WgmmaBatches, IsChosenWhereWeightsAreSharedAlongOneOfTwoAxes) {
  const BatchedMatmul c{"heads", {8, 16}, {}, {.shared = {0}}};
  const Plan plan = build(test::batched_matmul(c, {2048, 512, 128}, kBf16, kBf16), DeviceInfo::named("H200"),
                          {.compile = false});
  EXPECT_EQ(plan.fusions.at(0).config.engine, "wgmma");
}

TEST(WgmmaBatches, LowersEverySettingOfItsKnobs) {
  for (const BatchedMatmul& c : batched_matmuls()) expect_every_setting_lowers(graph_of(c));
}

// Both operands and the result have a walk each. A residual that lies otherwise keeps entries from being
// rows.
TEST(WgmmaBatches, TextIsTheGoldenText) {
  const Lie heads_last{.order = {0, 2, 1, 3}};
  const BatchedMatmul c{"heads last", {3, 5}, heads_last, {.shared = {0}}, heads_last};
  const Lowered lowered = lowerings(with_residual(c, {})).front();
  EXPECT_EQ(test::generated_text(lowered, 0), test::golden_text("sm90/wgmma/contraction.batches"));
}

// Weights of heads of 8 bits with a scale for each column, which threads apply.
Graph scaled_weights() {
  GraphBuilder g("scaled");
  const Lie heads{.shared = {0}}, heads_last{.order = {0, 2, 1, 3}};
  const Dims batch{3, 5};
  const Tensor a = test::laid_out(g, "a", test::over(batch, 320, 208, {}), kBf16, heads_last);
  const Tensor b = test::laid_out(g, "b", test::over(batch, 208, 136, heads), DataType::i8, heads);
  const Tensor scale = g.input("scale", test::over(batch, 1, 136, heads), DataType::f32);
  g.output(g.matmul(a, g.mul(b, scale, {.type = kBf16, .compute = DataType::f32})), {.type = kBf16});
  return g.finish();
}

// Odd lines of a are loaded by threads.
Graph beside_threads() {
  const BatchedMatmul c{"odd", {3, 5}, {.unit = 2}, {.shared = {0}}, {.order = {0, 2, 1, 3}}};
  return test::batched_matmul(c, {320, 136, 71}, kBf16, kBf16);
}

TEST(WgmmaBatches, WalksOneOperandBesideAnotherThatThreadsBring) {
  for (const Graph& graph : {scaled_weights(), beside_threads()}) {
    EXPECT_EQ(rule(graph), "");
    for (const Lowered& one : lowerings(graph))
      EXPECT_TRUE(config_value(source_of(one), "walks_a") || config_value(source_of(one), "walks_b"));
  }
}

TEST(WgmmaBatches, KernelsCompileCleanly) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  const Lie heads{.shared = {0}}, heads_last{.order = {0, 2, 1, 3}},
      along_k{.shared = {0}, .order = {0, 1, 3, 2}};
  for (const BatchedMatmul& c :
       {BatchedMatmul{"heads last", {3, 5}, heads_last, heads, heads_last},
        {"three orders",
         {2, 3, 4},
         {.order = {2, 3, 0, 1, 4}},
         {.order = {1, 0, 4, 2, 3}},
         {.order = {0, 3, 2, 1, 4}}},
        {"along rows", {2, 3}, {.order = {1, 0, 3, 2}}, {}, {.order = {1, 3, 0, 2}}}})
    expect_clean_kernels(graph_of(c));
  expect_clean_kernels(graph_of({"along k", {3, 5}, heads_last, along_k}, DataType::f32));
  expect_clean_kernels(graph_of({"along k", {3, 5}, heads_last, along_k}, DataType::f8_e4m3));
  expect_clean_kernels(with_residual({"permuted", {3, 5}, heads_last, heads, heads_last}, {}));
  for (const Graph& graph : {gated(heads, heads), scaled_weights(), beside_threads()})
    expect_clean_kernels(graph);
}

// Blocks of a cluster send a share of a walked operand to each other.
TEST(WgmmaBatches, KernelsOfClustersCompileCleanly) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  const DeviceInfo device = DeviceInfo::named("H200");
  const BatchedMatmul both{"both", {3, 5}, {.shared = {1}}, {.shared = {0}}};
  const Fusion fusion = fusion_of(test::batched_matmul(both, {1024, 1024, 512}, kBf16, kBf16));
  std::vector<test::KernelCase> kernels;
  for (const EngineConfig& config : configs(fusion, device))
    if (config.knob("cluster", 1) > 1)
      test::add_kernels(to_string(config), test::lower(wgmma_engine(), fusion, config, device), kernels);
  ASSERT_FALSE(kernels.empty());
  test::expect_all_compiled(kernels);
}

}  // namespace
}  // namespace fusor
