// Owns the tests of the engine of packed results: what it refuses and where it would be cut, which vectors it
// stores, and its kernels' text.
#include <gmock/gmock.h>

#include <numeric>

#include "backend/engines/list.h"
#include "backend/engines/rules.h"
#include "frontend/graph_builder.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tests/backend/engines/elementwise/cases.h"
#include "tests/backend/engines/golden_text.h"
#include "tests/support/packed_graphs.h"

namespace fusor {
namespace {

using elementwise_cases::h200;
using testing::HasSubstr;

const Engine& engine() { return packed_engine(); }

// The fusion that plans for a GPU have last.
Fusion last_fusion(const Graph& graph) {
  const Graph expanded = expand(graph);
  return make_single(expanded, static_cast<int>(expanded.ops.size()) - 1);
}

Fusion doubled(DataType type, const Dims& dims, const Strides& strides) {
  return last_fusion(test::doubled(type, dims, strides));
}

EngineConfig best(const Fusion& fusion) { return test::candidates(engine(), fusion, h200()).front().config; }

std::string text_of(const Fusion& fusion) {
  return test::generated_text(test::lower(engine(), fusion, best(fusion), h200()), 0);
}

const Launch& launch_of(const Lowered& lowered) { return std::get<Launch>(lowered.steps.at(0)); }

TEST(PackedEngine, RowsThatBeginBytesAreStoredInVectors) {
  for (const Strides& strides : {Strides{64, 1}, Strides{80, 1}}) {
    const Fusion fusion = doubled(DataType::i4, {8, 64}, strides);
    EXPECT_EQ(best(fusion).knob("vector", 0), 16);
    EXPECT_THAT(text_of(fusion), HasSubstr("whole_rows = true"));
    EXPECT_THAT(text_of(fusion), HasSubstr("whole_stores = true"));
  }
  // 5 bytes a row: whole rows, but no vector of 8 bytes begins on a multiple of them.
  const std::string text = text_of(doubled(DataType::f4_e2m1, {8, 9}, {10, 1}));
  EXPECT_THAT(text, HasSubstr("whole_rows = true"));
  EXPECT_THAT(text, HasSubstr("whole_stores = false"));
}

TEST(PackedEngine, OtherPlacesAreWalkedInTheOrderOfMemory) {
  for (const Strides& strides : {Strides{11, 1}, Strides{1, 11}, Strides{18, 2}})
    EXPECT_THAT(text_of(doubled(DataType::i4, {8, 9}, strides)), HasSubstr("whole_rows = false"));
  // Dense rows of odd extent are one row where the operands are, too.
  GraphBuilder g;
  const Tensor x = g.input("x", {3, 5}, DataType::f16);
  g.output(g.neg(x), {.type = DataType::b1});
  EXPECT_THAT(text_of(last_fusion(g.finish())), HasSubstr("whole_rows = true"));
}

TEST(PackedEngine, ThreadsHaveWholeBytes) {
  for (const DataType type : test::kPackedTypes)
    for (const EngineCandidate& candidate :
         test::candidates(engine(), doubled(type, {7, 129}, {129, 1}), h200()))
      EXPECT_EQ(candidate.config.knob("vector", 0) % elements_per_byte(type), 0);
}

TEST(PackedEngine, BlocksCoverEveryByte) {
  const Fusion fusion = doubled(DataType::i4, {3, 1001}, {1003, 1});
  const Lowered lowered =
      test::lower(engine(), fusion, {"packed", 1, {{"vector", 4}, {"threads", 64}}}, h200());
  EXPECT_EQ(launch_of(lowered).grid[0], ((2 * 1003 + 1001 + 1) / 2 + 127) / 128);
}

TEST(PackedEngine, ResultsBesideThePackedOneAreRefused) {
  GraphBuilder g;
  const Tensor x = g.input("x", {4, 6}, DataType::f16);
  const Tensor y = g.relu(x);
  g.output(y, {.name = "wide", .type = DataType::f16});
  g.output(g.neg(y), {.name = "narrow", .type = DataType::i4});
  const Graph graph = g.finish();
  const std::vector<int> ops{0, 1};
  const Fusion fusion = make_fusion(graph, fold_views(graph), ops);
  const Support support = test::supports(engine(), fusion, h200());
  ASSERT_FALSE(support);
  EXPECT_EQ(support.refusal->rule, "one-packed-result");
  EXPECT_EQ(support.refusal->op, 1);
}

// Engines without a way to load or store them refuse before they are asked, and say where; elementwise stores
// those that are scattered, and refuses others itself.
TEST(PackedEngine, OtherEnginesAreAskedForLoadsOnly) {
  const Fusion stores = doubled(DataType::i4, {3, 5}, {5, 1});
  const Fusion loads = last_fusion(test::moved(DataType::i4, {3, 5}, {5, 1}, {5, 1}));
  for (const Engine* each : engines()) {
    const bool stores_them = each == &packed_engine() || each == &cpu_engine() || each == &rows_engine() ||
                             each == &elementwise_engine();
    EXPECT_EQ(!refuse_packed(stores, each->packed_access()), stores_them) << each->name();
    const auto refusal = refuse_packed(loads, {.loads = each->packed_access().loads, .stores = true});
    EXPECT_EQ(!refusal, each->packed_access().loads) << each->name();
    if (refusal) {
      EXPECT_EQ(refusal->tensor, "x");
      EXPECT_THAT(refusal->actual, HasSubstr("int4, 2 elements a byte"));
      EXPECT_EQ(refusal->op, 0);
    }
  }
  const Support support = test::supports(elementwise_engine(), stores, h200());
  ASSERT_FALSE(support);
  EXPECT_EQ(support.refusal->rule, "whole-byte-stores");
}

// A vector of rows that is no whole byte, or not on one, is refused at the op that stores.
TEST(PackedEngine, RowsStoreWholeBytesOnly) {
  const auto asked = [&](const Graph& graph) {
    const Graph expanded = expand(graph);
    std::vector<int> ops(expanded.ops.size());
    std::iota(ops.begin(), ops.end(), 0);
    return test::supports(rows_engine(), make_fusion(expanded, fold_views(expanded), ops), h200());
  };
  for (const DataType type : test::kPackedTypes) {
    EXPECT_TRUE(asked(test::quantised(type, {512, 256})));
    const Support odd = asked(test::quantised(type, {512, 257}));
    ASSERT_FALSE(odd);
    EXPECT_EQ(odd.refusal->rule, "whole-byte-stores");
    EXPECT_EQ(odd.refusal->tensor, "y");
  }
}

TEST(PackedCompile, RowsStoreThem) {
  std::vector<test::KernelCase> cases;
  for (const DataType type : test::kPackedTypes)
    test::add_kernels(rows_engine(), std::string(to_string(type)),
                      test::fusion_of(expand(test::quantised(type, {512, 256}))), h200(), cases);
  test::expect_distinct_compiled(std::move(cases));
}

TEST(PackedText, IsTheGoldenText) {
  EXPECT_EQ(text_of(doubled(DataType::f4_e2m1, {33, 1000}, {1000, 1})), test::golden_text("packed/packed"));
  EXPECT_EQ(text_of(doubled(DataType::i4, {33, 7}, {9, 1})), test::golden_text("packed/packed.places"));
  EXPECT_EQ(text_of(doubled(DataType::i4, {33, 7}, {201, 1})), test::golden_text("packed/packed.runs"));
}

TEST(PackedText, ExtentsAreNoPartOfIt) {
  EXPECT_EQ(text_of(doubled(DataType::i4, {33, 7}, {9, 1})),
            text_of(doubled(DataType::i4, {99, 13}, {19, 1})));
}

TEST(PackedCompile, EveryCandidateCompilesWithoutSpills) {
  std::vector<test::KernelCase> cases;
  for (const DataType type : test::kPackedTypes)
    for (const auto& [dims, strides] : {std::pair(Dims{8, 64}, Strides{64, 1}),
                                        {Dims{8, 9}, Strides{11, 1}},
                                        {Dims{8, 9}, Strides{209, 1}},
                                        {Dims{2, 3, 9}, Strides{9, 19, 1}}})
      test::add_kernels(engine(), std::string(to_string(type)) + to_string(dims),
                        doubled(type, dims, strides), h200(), cases);
  for (const DataType type : test::kPackedTypes)
    test::add_kernels(engine(), "moved", last_fusion(test::moved(type, {8, 64}, {64, 1}, {1, 8})), h200(),
                      cases);
  test::expect_distinct_compiled(std::move(cases));
}

// A reshape that memory does not allow reads bytes of one element each, which nothing rounds again.
TEST(PackedCompile, ElementsFromBytesOfTheirOwn) {
  std::vector<test::KernelCase> cases;
  for (const DataType type : test::kPackedTypes) {
    GraphBuilder g;
    g.output(g.reshape(g.input("x", {32, 1, 1}, type), {16, 2, 1}));
    Graph graph = g.finish();
    graph.tensors.back().strides = {400, 1, 400};
    test::add_kernels(engine(), std::string(to_string(type)), last_fusion(graph), h200(), cases);
  }
  test::expect_distinct_compiled(std::move(cases));
}

// Every engine that says that it loads packed elements compiles such loads.
TEST(PackedCompile, LoadsCompileInEveryEngine) {
  std::vector<test::KernelCase> cases;
  const auto add = [&](const Engine& by, const Graph& graph) {
    const Graph expanded = expand(graph);
    const FoldedGraph folded = fold_views(expanded);
    std::vector<int> ops;
    for (int op = 0; op < std::ssize(expanded.ops); ++op)
      if (!folded.folded[static_cast<size_t>(op)]) ops.push_back(op);
    const Fusion fusion = make_fusion(expanded, folded, ops);
    ASSERT_TRUE(test::supports(by, fusion, h200())) << by.name();
    test::add_kernels(by, std::string(by.name()), fusion, h200(), cases);
  };
  for (const DataType type : test::kPackedTypes)
    for (const int64_t n : {64, 65}) {
      GraphBuilder rows, sums, product;
      rows.output(rows.softmax(rows.input("x", {16, n}, type)).y, {.type = DataType::f32});
      add(rows_engine(), rows.finish());
      sums.output(sums.reduce(sums.input("x", {16, n}, type), ReductionMode::amax, {1}));
      add(elementwise_engine(), sums.finish());
      const Tensor a = product.input("a", {32, 48}, DataType::f16);
      const Tensor w = product.mul(product.input("w", {48, n}, type),
                                   product.input("scale", {1, n}, DataType::f16), {.type = DataType::f16});
      product.output(product.matmul(a, w));
      const Graph graph = product.finish();
      add(direct_engine(), graph);
      if (type == DataType::i4) add(mma_engine(), graph);
    }
  test::expect_distinct_compiled(std::move(cases));
}

}  // namespace
}  // namespace fusor
