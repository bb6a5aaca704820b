// Owns the tests of reductions on the GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "frontend/graph_builder.h"
#include "tests/gpu/device_run.h"

namespace fusor {
namespace {

TEST(ReductionGpu, EveryModeOverEveryMask) {
  FUSOR_NEEDS_GPU();
  for (int i = 0; i < reduction_mode_count(); ++i) {
    const auto mode = static_cast<ReductionMode>(i);
    for (const Dims& axes : {Dims{0}, Dims{1}, Dims{2}, Dims{0, 1}, Dims{0, 2}, Dims{1, 2}, Dims{0, 1, 2}}) {
      GraphBuilder g("reduce");
      const Tensor x = g.input("x", {5, 37, 67}, DataType::f32);
      expect_correct(g.finish({g.reduce(x, mode, axes)}),
                     fmt::format("{} over {}", to_string(mode), to_string(axes)));
    }
  }
}

TEST(ReductionGpu, EveryTypeByRowAndColumn) {
  FUSOR_NEEDS_GPU();
  for (const DataType type : {DataType::f64, DataType::f32, DataType::f16, DataType::bf16, DataType::f8_e4m3,
                              DataType::f8_e5m2, DataType::i64, DataType::i32, DataType::i8, DataType::u8})
    for (const int64_t axis : {0, 1})
      for (const ReductionMode mode : {ReductionMode::add, ReductionMode::max, ReductionMode::avg}) {
        GraphBuilder g("reduce");
        const Tensor x = g.input("x", {301, 403}, type);
        g.output(g.reduce(x, mode, {axis}), {.type = is_real(type) ? DataType::f32 : DataType::i64});
        expect_correct(g.finish(), fmt::format("{} {} over {}", to_string(type), to_string(mode), axis));
      }
}

TEST(ReductionGpu, LongShortAndAligned) {
  FUSOR_NEEDS_GPU();
  for (const Dims& dims : {Dims{1, 1}, Dims{1, 1000003}, Dims{1000003, 1}, Dims{4096, 3}, Dims{3, 4096},
                           Dims{2048, 1024}, Dims{64, 65536}, Dims{65536, 64}, Dims{100000, 8}})
    for (const int64_t axis : {0, 1}) {
      GraphBuilder g("reduce");
      const Tensor x = g.input("x", dims, DataType::bf16);
      g.output(g.reduce(x, ReductionMode::add, {axis}), {.type = DataType::f32});
      expect_correct(g.finish(), fmt::format("{} over {}", to_string(dims), axis));
    }
}

TEST(ReductionGpu, StridedOperandsAndResults) {
  FUSOR_NEEDS_GPU();
  for (const Dims& axes : {Dims{0, 2, 3}, Dims{1}, Dims{2, 3}}) {
    GraphBuilder g("strided");
    const Tensor x = g.input("x", {3, 40, 9, 11}, DataType::f16, Layout::nhwc);
    const Tensor sum = g.reduce(x, ReductionMode::add, axes);
    Strides strides = packed_strides(sum.dims);
    for (int64_t& stride : strides) stride *= 3;
    g.output(sum, {.type = DataType::f32, .strides = strides});
    expect_correct(g.finish(), to_string(axes));
  }
}

TEST(ReductionGpu, SeveralReductionsAndAStoreInOnePass) {
  FUSOR_NEEDS_GPU();
  for (const Dims& axes : {Dims{0}, Dims{1}, Dims{0, 1}}) {
    GraphBuilder g("stats");
    const Tensor x = g.input("x", {513, 260}, DataType::f16);
    const Tensor r = g.relu(x);
    g.output(r);
    g.output(g.reduce(r, ReductionMode::add, axes), {.type = DataType::f32});
    g.output(g.reduce(g.mul(r, r), ReductionMode::add, axes), {.type = DataType::f32});
    g.output(g.reduce(r, ReductionMode::amax, axes), {.type = DataType::f32});
    expect_correct(g.finish(), to_string(axes));
  }
}

TEST(ReductionGpu, DifferentMasksAreCutApart) {
  FUSOR_NEEDS_GPU();
  GraphBuilder g("masks");
  const Tensor x = g.input("x", {130, 70}, DataType::f32);
  const Tensor e = g.exp(x);
  expect_correct(g.finish({g.reduce(e, ReductionMode::add, {0}), g.reduce(e, ReductionMode::add, {1}), e}),
                 "two masks");
}

TEST(ReductionGpu, GroupedExtent) {
  FUSOR_NEEDS_GPU();
  GraphBuilder g("grouped");
  const Tensor x = g.input("x", {2, 32, 17, 8}, DataType::f16);
  g.output(g.reduce_to(x, ReductionMode::add, {2, 8, 17, 8}), {.type = DataType::f32});
  expect_correct(g.finish(), "grouped");
}

TEST(ReductionGpu, SoftmaxWrittenOut) {
  FUSOR_NEEDS_GPU();
  GraphBuilder g("softmax");
  const Tensor x = g.input("x", {77, 1031}, DataType::f32);
  const Tensor e = g.exp(g.sub(x, g.reduce(x, ReductionMode::max, {1})));
  expect_correct(g.finish({g.div(e, g.reduce(e, ReductionMode::add, {1}))}), "softmax");
}

TEST(ReductionGpu, HundredColumnSumsHaveOneHash) {
  FUSOR_NEEDS_GPU();
  GraphBuilder g("columns");
  const Tensor x = g.input("x", {8191, 1025}, DataType::bf16);
  g.output(g.reduce(x, ReductionMode::add, {0}), {.name = "sums", .type = DataType::f32});
  DeviceRun run(g.finish());
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    run.run();
    const auto& bytes = run.host("sums");
    seen.emplace(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  EXPECT_EQ(seen.size(), 1u);
}

}  // namespace
}  // namespace fusor
