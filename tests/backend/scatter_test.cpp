// Tests scatters and ragged stores that keep the rest: what they write on the CPU and what they leave, how
// they are planned, and the kernels that carry them out.
#include <gmock/gmock.h>

#include "backend/build.h"
#include "backend/executable.h"
#include "core/error.h"
#include "core/print.h"
#include "serialization/serialization.h"
#include "tests/backend/cpu_run.h"
#include "tests/backend/reference/host_buffers.h"

namespace fusor {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::vector<double> some(size_t count, double value) { return std::vector<double>(count, value); }

TEST(Scatter, WritesRowsAtAnIndexAndLeavesTheOthers) {
  GraphBuilder g;
  const Tensor x = g.input("x", {3, 2}, DataType::f32);
  const Tensor index = g.input("index", {3, 1}, DataType::i32);
  const Tensor y = g.output(g.scatter(x, index, {5, 2}, {.axis = 0}));
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(x, {1, 2, 3, 4, 5, 6});
  tensors.set(index, {3, -1, 0});
  tensors.set(y, some(10, 9));
  EXPECT_THAT(run_on_cpu(graph, tensors, y), ElementsAre(5, 6, 9, 9, 9, 9, 1, 2, 9, 9));
}

TEST(Scatter, WritesNothingWhereTheIndexIsOutsideOfTheExtent) {
  GraphBuilder g;
  const Tensor x = g.input("x", {4}, DataType::bf16);
  const Tensor index = g.input("index", {4}, DataType::i64);
  const Tensor y = g.output(g.scatter(x, index, {3}));
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(x, {1, 2, 3, 4});
  tensors.set(index, {3, 2, int64_t{1} << 40, -7});
  tensors.set(y, {9, 9, 9});
  EXPECT_THAT(run_on_cpu(graph, tensors, y), ElementsAre(9, 9, 2));
}

TEST(Scatter, OfManyAxesIntoOne) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2, 3}, DataType::f32);
  const Tensor index = g.input("index", {2, 3}, DataType::i32);
  const Tensor y = g.output(g.scatter(x, index, {8}, {.axis = 1}));
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(x, {1, 2, 3, 4, 5, 6});
  tensors.set(index, {7, 5, 3, 1, -1, 0});
  tensors.set(y, some(8, 9));
  EXPECT_THAT(run_on_cpu(graph, tensors, y), ElementsAre(6, 4, 9, 3, 9, 2, 9, 1));
}

TEST(Scatter, RoundsToTheResultsType) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2}, DataType::f32);
  const Tensor index = g.input("index", {2}, DataType::i32);
  const Tensor y = g.output(g.scatter(g.relu(x), index, {2}), {.type = DataType::f8_e4m3});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(x, {1.07, -3});
  tensors.set(index, {1, 0});
  EXPECT_THAT(run_on_cpu(graph, tensors, y), ElementsAre(0, 1.125));
}

TEST(Scatter, IsCheckedWhereSomethingIsWritten) {
  GraphBuilder g;
  const Tensor x = g.input("x", {3, 2}, DataType::f32);
  const Tensor index = g.input("index", {3, 1}, DataType::i32);
  const Tensor y = g.output(g.scatter(x, index, {5, 2}, {.axis = 0}));
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(x, {1, 2, 3, 4, 5, 6});
  tensors.set(index, {3, -1, 0});
  tensors.set(y, some(10, 1e30));
  run_on_cpu(graph, tensors, y);
  const VerifyReport report = verify(graph, tensors.pointers());
  EXPECT_EQ(report.outputs[0].checked, 4);
  EXPECT_EQ(report.outputs[0].unwritten, 6);
  EXPECT_FALSE(is_sampled(report.outputs[0]));
  // What nobody writes makes no error tolerable.
  EXPECT_LT(report.outputs[0].tolerance_abs, 1);
  EXPECT_THAT(to_string(report), HasSubstr("4 of 10 elements checked, 6 that no op writes, max abs"));
}

// The value that is there already is written all the same.
TEST(Scatter, ChecksWhatIsWrittenAsItWas) {
  GraphBuilder g;
  const Tensor x = g.input("x", {2}, DataType::f16);
  const Tensor index = g.input("index", {2}, DataType::i32);
  const Tensor y = g.output(g.scatter(x, index, {3}));
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(x, {7, 8});
  tensors.set(index, {2, 0});
  tensors.set(y, {8, 8, 7});
  EXPECT_EQ(verify(graph, tensors.pointers()).outputs[0].checked, 2);
  tensors.set(y, {8, 8, 6});
  const OutputCheck wrong = verify(graph, tensors.pointers()).outputs[0];
  EXPECT_EQ(wrong.wrong, 1);
  EXPECT_EQ(wrong.wrong_at, Dims{2});
}

TEST(Scatter, SamplesTellWhatIsWritten) {
  GraphBuilder g;
  const Tensor x = g.input("x", {4}, DataType::f32);
  const Tensor y = g.output(g.scatter(x, g.input("index", {4}, DataType::i32), {9}));
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(graph.tensors[1], {8, 2, -1, 0});
  tensors.set(y, some(9, 5));
  const std::vector<int64_t> elements{0, 1, 2, 3, 8};
  std::vector<bool> written;
  evaluate_sample(graph, tensors.pointers(), graph.find_uid(y.uid), elements, &written);
  EXPECT_THAT(written, ElementsAre(true, false, true, false, true));
}

bool is_deterministic(const Graph& graph, const DeviceInfo& device) {
  return build(graph, device, {.compile = false}).notes.deterministic;
}

TEST(Scatter, ByAnIndexInMemoryIsNotDeterministic) {
  GraphBuilder g;
  const Tensor x = g.input("x", {24, 64}, DataType::bf16);
  g.output(g.scatter(x, g.input("rows", {24, 1}, DataType::i32), {100, 64}));
  const Graph graph = g.finish();
  EXPECT_FALSE(is_deterministic(graph, DeviceInfo::cpu()));
  EXPECT_FALSE(is_deterministic(graph, DeviceInfo::named("H200")));
}

TEST(Scatter, ByCoordinatesIsDeterministic) {
  GraphBuilder g;
  const Tensor x = g.input("x", {4, 8}, DataType::f32);
  const Tensor shift = g.constant(3, DataType::i32);
  g.output(g.scatter(x, g.add(g.gen_index(x, 1), shift), {4, 12}, {.axis = 1}));
  const Graph graph = g.finish();
  EXPECT_TRUE(is_deterministic(graph, DeviceInfo::cpu()));
  EXPECT_TRUE(is_deterministic(graph, DeviceInfo::named("H200")));
}

TEST(Scatter, ByCoordinatesThatRepeatIsNotDeterministic) {
  const auto scattered = [](auto&& place, const Dims& dims) {
    GraphBuilder g;
    const Tensor x = g.input("x", {4, 8}, DataType::f32);
    g.output(g.scatter(x, place(g, x), dims, {.axis = 1}));
    const Graph graph = g.finish();
    return std::pair(is_deterministic(graph, DeviceInfo::cpu()),
                     is_deterministic(graph, DeviceInfo::named("H200")));
  };
  const auto number = [](GraphBuilder& g, int64_t value) { return g.constant(value, DataType::i32); };
  const std::pair neither(false, false);
  EXPECT_EQ(
      scattered([&](GraphBuilder& g, const Tensor& x) { return g.div(g.gen_index(x, 1), number(g, 2)); },
                {4, 12}),
      neither);
  EXPECT_EQ(
      scattered([&](GraphBuilder& g, const Tensor& x) { return g.mul(g.gen_index(x, 1), number(g, 0)); },
                {4, 12}),
      neither);
  EXPECT_EQ(scattered([&](GraphBuilder& g, const Tensor& x) { return g.gen_index(x, 0); }, {4, 12}), neither);
}

TEST(Scatter, OfARaggedStoreIsDeterministic) {
  GraphBuilder g;
  const Tensor x = g.input("x", {3, 2, 4, 3}, DataType::f32);
  const Tensor offset = g.input("offset", {4, 1, 1, 1}, DataType::i64);
  g.output(g.ragged_store(x, offset, 72, {3, 6, 1}, {}, true));
  const Graph graph = g.finish();
  EXPECT_TRUE(is_deterministic(graph, DeviceInfo::cpu()));
  EXPECT_TRUE(is_deterministic(graph, DeviceInfo::named("H200")));
}

TEST(Scatter, IsSampledWithComputedIndices) {
  GraphBuilder g;
  const Tensor x = g.input("x", {4, 8}, DataType::f32);
  const Tensor place = g.sub(g.constant(9, DataType::i32), g.gen_index(x, 1));
  const Tensor y = g.output(g.scatter(g.neg(x), place, {4, 9}, {.axis = 1}));
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(y, some(36, 1000));
  const std::vector<double> whole = run_on_cpu(graph, tensors, y);
  const std::vector<int64_t> elements{0, 1, 2, 8, 9, 17, 35};
  const std::vector<double> sampled =
      evaluate_sample(graph, tensors.pointers(), graph.find_uid(y.uid), elements);
  for (size_t i = 0; i < elements.size(); ++i)
    EXPECT_EQ(sampled[i], whole[static_cast<size_t>(elements[i])]) << elements[i];
}

TEST(Scatter, IsOneFusionWithItsIndexAndItsValues) {
  GraphBuilder g;
  const Tensor x = g.input("x", {4, 8}, DataType::f32);
  const Tensor shift = g.input("shift", {4, 8}, DataType::i32);
  g.output(g.scatter(g.relu(x), g.sub(g.gen_index(x, 1), shift), {4, 8}, {.axis = 1}));
  const Graph graph = g.finish();
  const Plan plan = build(graph, DeviceInfo::named("h200"), {.compile = false});
  ASSERT_EQ(plan.fusions.size(), 1U);
  EXPECT_THAT(print(make_fusion(graph, fold_views(graph), std::vector{0, 1, 2, 3})),
              HasSubstr("[8, 0] + 1 * v4 below 8"));
}

TEST(Scatter, IsAFusionOfItsOwnBehindAContractionAndARow) {
  GraphBuilder g;
  const Tensor a = g.input("a", {64, 64}, DataType::f16), b = g.input("b", {64, 64}, DataType::f16);
  const Tensor rows = g.input("rows", {64, 1}, DataType::i32);
  g.output(g.scatter(g.softmax(g.matmul(a, b)).y, rows, {100, 64}));
  const Graph graph = g.finish();
  for (const DeviceInfo& device : DeviceInfo::profiles()) {
    const Plan plan = build(graph, device, {.compile = false});
    EXPECT_EQ(plan.fusions.back().ops.size(), 1U) << device.name;
  }
}

TEST(Scatter, IsCompiledLaneByLane) {
  GraphBuilder g;
  const Tensor x = g.input("x", {24, 64}, DataType::f16);
  const Tensor index = g.input("index", {24, 64}, DataType::i64);
  g.output(g.scatter(x, index, {24, 128}, {.axis = 1}));
  const std::string text = source(build(g.finish(), DeviceInfo::named("h200")));
  EXPECT_THAT(text, HasSubstr("< args.out0_index0_extent ?"));
  EXPECT_THAT(text, HasSubstr("store_places<false>(args.out0 + "));
}

TEST(Scatter, OfWholeRowsIsCompiled) {
  GraphBuilder g;
  const Tensor x = g.input("x", {24, 64}, DataType::bf16);
  g.output(g.scatter(x, g.input("rows", {24, 1}, DataType::i32), {100, 64}));
  EXPECT_THAT(source(build(g.finish(), DeviceInfo::named("a100"))),
              HasSubstr("store_whole(args.out0 + at[1] + Index(v1) * args.out0_index0_stride, "));
}

// Rows of five elements begin anywhere in a byte: what shares it stays, on either side.
TEST(Scatter, OfElementsThatShareBytesKeepsTheOthers) {
  for (const DataType type : {DataType::i4, DataType::f4_e2m1, DataType::b1}) {
    GraphBuilder g;
    const Tensor x = g.input("x", {3, 5}, type);
    const Tensor index = g.input("index", {3, 1}, DataType::i32);
    const Tensor y = g.output(g.scatter(x, index, {5, 5}, {.axis = 0}));
    const Graph graph = g.finish();
    HostTensors tensors(graph);
    std::vector<double> xs(15), before(25), want(25);
    for (size_t i = 0; i < 15; ++i) xs[i] = static_cast<double>(type == DataType::b1 ? i % 2 : i / 2 % 4);
    for (size_t i = 0; i < 25; ++i) want[i] = before[i] = static_cast<double>(i % 3 == 0);
    tensors.set(x, xs);
    tensors.set(index, {3, -1, 0});
    tensors.set(y, before);
    std::copy_n(xs.begin(), 5, want.begin() + 15);
    std::copy_n(xs.begin() + 10, 5, want.begin());
    EXPECT_EQ(run_on_cpu(graph, tensors, y), want) << to_string(type);
  }
}

TEST(Scatter, OfElementsThatShareBytesMergesWords) {
  GraphBuilder g;
  const Tensor x = g.input("x", {24, 7}, DataType::f16);
  const Tensor rows = g.input("rows", {24, 1}, DataType::i32);
  g.output(g.scatter(x, rows, {100, 7}), {.type = DataType::i4});
  g.output(g.scatter(x, g.input("places", {24, 7}, DataType::i32), {24, 9}, {.axis = 1}),
           {.type = DataType::b1});
  const std::string text = source(build(g.finish(), DeviceInfo::named("h200")));
  EXPECT_THAT(text, HasSubstr("store_strided(ScatteredPlace<i4>{"));
  EXPECT_THAT(text, HasSubstr("store_places<false>(ScatteredPlace<b1>{"));
}

TEST(Scatter, OfRowsOfWholeBytesMergesNothing) {
  GraphBuilder g;
  const Tensor x = g.input("x", {24, 64}, DataType::bf16);
  g.output(g.scatter(x, g.input("rows", {24, 1}, DataType::i32), {100, 64}), {.type = DataType::f4_e2m1});
  const std::string text = source(build(g.finish(), DeviceInfo::named("a100")));
  EXPECT_THAT(text, HasSubstr("store_whole(PackedPlace<f4_e2m1>{"));
  EXPECT_THAT(text, Not(HasSubstr("ScatteredPlace<f4_e2m1>{")));
}

TEST(Scatter, SurvivesAFile) {
  GraphBuilder g;
  const Tensor x = g.input("x", {6, 5}, DataType::bf16);
  g.output(g.scatter(x, g.input("rows", {6, 1}, DataType::i32), {9, 5}));
  g.output(g.ragged_store(x, g.input("offset", {7}, DataType::i64), 30, {1}, {}, true));
  const Graph graph = g.finish();
  EXPECT_EQ(graph_from_json(to_json(graph)), graph);
}

// Rows of 2 heads of 3 elements: 2, 0 and 3 of them.
struct RaggedRows {
  GraphBuilder g;
  Tensor x = g.input("x", {3, 2, 4, 3}, DataType::f32);
  Tensor offset = g.input("offset", {4, 1, 1, 1}, DataType::i64);
};

TEST(RaggedStore, KeepsWhatLiesBehindTheLastOffset) {
  RaggedRows rows;
  const Tensor y = rows.g.output(rows.g.ragged_store(rows.x, rows.offset, 72, {3, 6, 1}, {}, true));
  const Graph graph = rows.g.finish();
  HostTensors tensors(graph);
  tensors.set(rows.offset, {0, 12, 12, 30});
  tensors.set(y, some(72, 1000));
  const std::vector<double> got = run_on_cpu(graph, tensors, y);
  const std::vector<double> x = tensors.get(rows.x);
  const auto at = [&](size_t b, size_t h, size_t s, size_t d) { return x[((b * 2 + h) * 4 + s) * 3 + d]; };
  for (size_t s = 0; s < 2; ++s)
    for (size_t h = 0; h < 2; ++h)
      for (size_t d = 0; d < 3; ++d) EXPECT_EQ(got[s * 6 + h * 3 + d], at(0, h, s, d));
  for (size_t s = 0; s < 3; ++s)
    for (size_t h = 0; h < 2; ++h)
      for (size_t d = 0; d < 3; ++d) EXPECT_EQ(got[12 + s * 6 + h * 3 + d], at(2, h, s, d));
  EXPECT_THAT(std::vector(got.begin() + 30, got.end()), Each(1000));
}

// Two tensors that lie row by row beside each other: neither writes between its rows.
TEST(RaggedStore, KeepsWhatLiesBetweenRows) {
  RaggedRows rows;
  const Tensor y = rows.g.output(rows.g.ragged_store(rows.x, rows.offset, 144, {3, 12, 1}, {}, true));
  const Graph graph = rows.g.finish();
  HostTensors tensors(graph);
  tensors.set(rows.offset, {0, 24, 24, 60});
  tensors.set(y, some(144, 1000));
  const std::vector<double> got = run_on_cpu(graph, tensors, y);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i] == 1000, i % 12 >= 6 || i >= 60) << i;
}

TEST(RaggedStore, IsTheWayBackFromALoad) {
  RaggedRows rows;
  GraphBuilder& g = rows.g;
  const Tensor flat = g.input("flat", {72}, DataType::f32);
  const Tensor y = g.output(g.ragged_store(g.ragged_load(flat, rows.offset, {3, 2, 4, 3}, {3, 6, 1}),
                                           rows.offset, 72, {3, 6, 1}, {}, true));
  g.output(g.neg(rows.x));
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(rows.offset, {0, 12, 12, 30});
  tensors.set(y, some(72, 1000));
  std::vector<double> want = tensors.get(flat);
  std::fill(want.begin() + 30, want.end(), 1000);
  EXPECT_EQ(run_on_cpu(graph, tensors, y), want);
}

// Places beyond 32 bits belong to nobody, and do not come round to the first.
TEST(RaggedStore, CountsPlacesInAsManyBitsAsTheyNeed) {
  GraphBuilder g;
  const Tensor x = g.input("x", {1, 65538}, DataType::f32);
  const Tensor offset = g.input("offset", {2}, DataType::i64);
  const Tensor flat = g.input("flat", {4}, DataType::f32);
  const Tensor y = g.output(g.ragged_store(x, offset, 4, {65536}, {}, true));
  const Tensor z = g.output(g.ragged_load(flat, offset, {1, 65538}, {65536}));
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(offset, {0, 4});
  tensors.set(flat, {5, 6, 7, 8});
  std::vector<double> ones = some(65538, 1);
  ones[0] = 3;
  tensors.set(x, ones);
  tensors.set(y, some(4, 9));
  EXPECT_THAT(run_on_cpu(graph, tensors, y), ElementsAre(3, 9, 9, 9));
  std::vector<double> loaded = some(65538, 0);
  loaded[0] = 5;
  EXPECT_EQ(tensors.get(z), loaded);
}

// An exception for what ragged ops expand to, and for nothing else.
TEST(RaggedStore, OtherTensorsOfOneAxisMayNotOverlapResults) {
  GraphBuilder g;
  const Tensor x = g.input("x", {4096}, DataType::f32);
  const Tensor y = g.output(g.reshape(x, {64, 64}));
  const Executable run = load(build(g.finish(), DeviceInfo::cpu()));
  std::vector<float> memory(8192);
  EXPECT_THROW(run.run({{x.uid, memory.data()}, {y.uid, memory.data() + 16}}, nullptr), Error);
  GraphBuilder h;
  const Tensor table = h.input("table", {64}, DataType::f32), at = h.input("at", {32}, DataType::i32);
  const Tensor taken = h.output(h.gather(table, at));
  const Executable gather = load(build(h.finish(), DeviceInfo::cpu()));
  std::vector<int32_t> places(32, 0);
  EXPECT_THROW(
      gather.run({{table.uid, memory.data()}, {at.uid, places.data()}, {taken.uid, memory.data() + 16}},
                 nullptr),
      Error);
}

// The memory ends where the last offset says: other tensors may begin there, far within the declared extent.
TEST(RaggedStore, MayHaveLessMemoryThanItsExtent) {
  RaggedRows rows;
  GraphBuilder& g = rows.g;
  constexpr int64_t kReach = int64_t{1} << 30;
  const Tensor flat = g.input("flat", {kReach}, DataType::f32);
  const Tensor x = g.ragged_load(flat, rows.offset, {3, 2, 4, 3}, {3, 6, 1});
  const Tensor y = g.output(g.ragged_store(x, rows.offset, kReach, {3, 6, 1}, {}, true));
  const Tensor z = g.output(g.ragged_store(g.neg(x), rows.offset, kReach, {3, 6, 1}, {}, true));
  g.output(g.neg(rows.x), {.name = "w"});
  const Graph graph = g.finish();
  const Executable run = load(build(graph, DeviceInfo::cpu()));
  std::vector<float> xs(72), w(72), memory(96, 7);
  for (size_t i = 0; i < 30; ++i) memory[i] = static_cast<float>(i + 1);
  std::vector<int64_t> offsets{0, 12, 12, 30};
  std::vector<std::byte> space(static_cast<size_t>(run.workspace_bytes()) + 256);
  void* workspace = space.data();
  size_t left = space.size();
  run.run({{flat.uid, memory.data()},
           {rows.offset.uid, offsets.data()},
           {rows.x.uid, xs.data()},
           {y.uid, memory.data() + 32},
           {z.uid, memory.data() + 64},
           {graph.tensors[static_cast<size_t>(graph.find("w"))].uid, w.data()}},
          std::align(256, left - 256, workspace, left));
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(memory[32 + i], i < 30 ? static_cast<float>(i + 1) : 7);
    EXPECT_EQ(memory[64 + i], i < 30 ? -static_cast<float>(i + 1) : 7);
  }
}

TEST(RaggedStore, IsOneKernelBehindItsValues) {
  for (const DeviceInfo& device : DeviceInfo::profiles()) {
    RaggedRows rows;
    rows.g.output(rows.g.ragged_store(rows.g.relu(rows.x), rows.offset, 72, {3, 6, 1}, {}, true));
    EXPECT_EQ(build(rows.g.finish(), device, {.compile = false}).fusions.size(), 1U) << device.name;
  }
}

TEST(RaggedLoad, IsOneKernel) {
  for (const DeviceInfo& device : DeviceInfo::profiles()) {
    RaggedRows rows;
    const Tensor flat = rows.g.input("flat", {72}, DataType::f32);
    rows.g.output(rows.g.add(rows.g.ragged_load(flat, rows.offset, {3, 2, 4, 3}, {3, 6, 1}), rows.x));
    EXPECT_EQ(build(rows.g.finish(), device, {.compile = false}).fusions.size(), 1U) << device.name;
  }
}

}  // namespace
}  // namespace fusor
