// Tests gathers: what they give on the CPU, how they are planned, and the kernels that carry them out.
#include <gmock/gmock.h>

#include <map>
#include <string>

#include "backend/build.h"
#include "backend/executable.h"
#include "backend/planner/planner.h"
#include "core/error.h"
#include "core/print.h"
#include "serialization/serialization.h"
#include "tests/backend/cpu_run.h"
#include "tests/backend/reference/host_buffers.h"

namespace fusor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

size_t fusions_on(const char* device, const Graph& graph) {
  return build(graph, DeviceInfo::named(device), {.compile = false}).fusions.size();
}

TEST(Gather, TakesRowsAtAnIndexAndZerosOutsideOfTheExtent) {
  GraphBuilder g;
  const Tensor x = g.input("x", {3, 2}, DataType::f32);
  const Tensor index = g.input("index", {5, 1}, DataType::i32);
  const Tensor y = g.output(g.gather(x, index, {.axis = 0}));
  const Graph graph = g.finish();
  EXPECT_EQ(y.dims, (Dims{5, 2}));
  HostTensors tensors(graph);
  tensors.set(x, {1, 2, 3, 4, 5, 6});
  tensors.set(index, {2, -1, 0, 3, 2});
  EXPECT_THAT(run_on_cpu(graph, tensors, y), ElementsAre(5, 6, 0, 0, 1, 2, 0, 0, 5, 6));
}

TEST(Gather, BroadcastsTheIndexAndTheOperandAgainstEachOther) {
  GraphBuilder g;
  const Tensor x = g.input("x", {1, 3}, DataType::f16);
  const Tensor index = g.input("index", {2, 2}, DataType::i64);
  const Tensor y = g.output(g.gather(x, index, {.axis = -1}));
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(x, {7, 8, 9});
  tensors.set(index, {0, 2, 1, 1});
  EXPECT_THAT(run_on_cpu(graph, tensors, y), ElementsAre(7, 9, 8, 8));
}

TEST(Gather, ReadsComputedValuesFromMemoryAndComputedIndicesWhereTheyAre) {
  GraphBuilder g;
  const Tensor x = g.input("x", {4, 8}, DataType::f32);
  const Tensor shift = g.input("shift", {4, 8}, DataType::i32);
  const Tensor index = g.sub(g.gen_index(x, 1), shift);
  const Tensor y = g.output(g.neg(g.gather(g.relu(x), index, {.axis = 1})));
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  run_on_cpu(graph, tensors, y);
  // relu is stored; index, gather and neg are one kernel.
  EXPECT_EQ(fusions_on("h200", graph), 2U);
}

Graph gather_of_gather() {
  GraphBuilder g;
  const Tensor x = g.input("x", {6, 5, 16}, DataType::bf16);
  const Tensor rows = g.input("rows", {3, 1, 1}, DataType::i32);
  const Tensor columns = g.input("columns", {3, 4, 1}, DataType::i32);
  g.output(g.gather(g.gather(x, rows, {.axis = 0}), columns, {.axis = 1}));
  return g.finish();
}

TEST(Gather, OfAGatherIsOneLoadWithTwoIndices) {
  const Graph graph = gather_of_gather();
  HostTensors tensors(graph);
  for (const auto& [name, extent] : {std::pair("rows", 3), std::pair("columns", 12)})
    for (int64_t i = 0; i < extent; ++i)
      store_int(DataType::i32, tensors.pointers()[static_cast<size_t>(graph.find(name))], i, (i * 5) % 7);
  run_on_cpu(graph, tensors, graph.tensors[static_cast<size_t>(graph.ops[1].outputs[0])]);
  const Plan plan = build(graph, DeviceInfo::named("h200"), {.compile = false});
  ASSERT_EQ(plan.fusions.size(), 1U);
  const Fusion fusion = make_fusion(graph, fold_views(graph), std::vector{0, 1});
  EXPECT_THAT(print(fusion), HasSubstr("load o0 'x' [0, 0, 1] + 80 * v0 below 6 + 16 * v1 below 5"));
}

// Each index lies along an axis of its own; a fourth gather reads memory.
TEST(Gather, ChainsOfGathersAreOneLoadWithThreeIndices) {
  for (const auto& [gathers, fusions] : {std::pair(3, 1U), std::pair(4, 2U)}) {
    GraphBuilder g("chain");
    Tensor x = g.input("x", {4, 5, 6, 7, 8}, DataType::f32);
    for (int i = 0; i < gathers; ++i) {
      Dims dims = {1, 1, 1, 1, 1};
      dims[i] = 3;
      x = g.gather(x, g.input("at" + std::to_string(i), dims, DataType::i32), {.axis = i});
    }
    const Graph graph = g.finish({x});
    HostTensors tensors(graph);
    for (int i = 0; i < gathers; ++i)
      for (int64_t k = 0; k < 3; ++k)
        store_int(DataType::i32,
                  tensors.pointers()[static_cast<size_t>(graph.find("at" + std::to_string(i)))], k,
                  2 * k + 1);
    run_on_cpu(graph, tensors, graph.tensors[static_cast<size_t>(graph.ops.back().outputs[0])]);
    EXPECT_EQ(fusions_on("h200", graph), fusions) << gathers;
  }
}

// Windows over numbers that are counted: the numbers lie in memory before a window takes them.
TEST(Gather, TakesCountedNumbersFromAFusionBeforeItsOwn) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 6, 3}, DataType::f32);
  const Tensor channel = g.gen_index(x, 1, {.compute = DataType::i32});
  const Tensor y = g.output(g.lrn(channel, {.window = 4, .alpha = 0.5}));
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  run_on_cpu(graph, tensors, y);
  EXPECT_EQ(fusions_on("h200", graph), 2);
}

TEST(Gather, IsRefusedInTheFusionThatComputesItsOperand) {
  GraphBuilder g;
  const Tensor x = g.relu(g.input("x", {4, 3}, DataType::f32));
  g.output(g.add(g.gather(x, g.input("rows", {4, 1}, DataType::i32)), x));
  const Graph graph = g.finish();
  try {
    make_fusion(graph, fold_views(graph), std::vector<int>{0, 1, 2});
    FAIL() << "was taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("gather from what they compute ('gather2')"));
  }
}

TEST(Gather, IsPlannedBesideAContractionOnEveryDevice) {
  GraphBuilder g;
  const Tensor table = g.input("table", {50, 64}, DataType::f16);
  const Tensor tokens = g.input("tokens", {24, 1}, DataType::i32);
  const Tensor w = g.input("w", {64, 32}, DataType::f16);
  const Tensor c = g.matmul(g.gather(table, tokens), w);
  const Tensor picked = g.gather(c, g.input("order", {24, 1}, DataType::i64));
  g.output(g.add(picked, c));
  const Graph graph = g.finish();
  for (const DeviceInfo& device : DeviceInfo::profiles())
    EXPECT_GE(build(graph, device, {.compile = false}).fusions.size(), 1U) << device.name;
}

TEST(Gather, IsCompiledWithWholeVectorsAndLaneByLane) {
  GraphBuilder g;
  const Tensor x = g.input("x", {24, 64}, DataType::f16);
  const Tensor rows = g.input("rows", {24, 1}, DataType::i32);
  const Tensor columns = g.input("columns", {24, 64}, DataType::i64);
  const Tensor taken = g.gather(x, rows);
  g.output(taken);
  g.output(g.reduce(g.gather(x, columns, {.axis = 1}), ReductionMode::add, {1}), {.type = DataType::f32});
  const Graph graph = g.finish();
  const std::string text = source(build(graph, DeviceInfo::named("h200")));
  EXPECT_THAT(text, HasSubstr("load_whole<N>(args.in1"));
  EXPECT_THAT(text, HasSubstr("load_places<N, false>(args.in"));
}

TEST(Gather, SurvivesAFile) {
  const Graph graph = gather_of_gather();
  EXPECT_EQ(graph_from_json(to_json(graph)), graph);
}

}  // namespace
}  // namespace fusor
