// Owns the tests of the rows engine on the GPU: every setting against the oracle.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "backend/engines/list.h"
#include "tests/backend/engines/rows/cases.h"
#include "tests/gpu/device_run.h"

namespace fusor {
namespace {

using namespace rows_cases;

void expect_every_setting_correct(const Graph& graph, const std::string& what) {
  static const Engine* const only[] = {&rows_engine()};
  PlannerOptions options;
  options.build.max_candidates = 16;
  options.engine_list = only;
  expect_every_candidate_correct(graph, what, options);
}

TEST(RowsGpu, SoftmaxOfEveryLength) {
  FUSOR_NEEDS_GPU();
  for (const int64_t columns : {2, 3, 7, 8, 31, 32, 64, 100, 128, 257, 1000, 1001, 1024, 4096, 5000, 16384})
    expect_every_setting_correct(softmax(DataType::bf16, {37, columns}, 1),
                                 fmt::format("{} columns", columns));
}

TEST(RowsGpu, LongRows) {
  FUSOR_NEEDS_GPU();
  expect_every_setting_correct(softmax(DataType::bf16, {5, 128256}, 1), "128256");
  expect_every_setting_correct(softmax(DataType::f32, {3, 100003}, 1), "100003");
  expect_every_setting_correct(softmax(DataType::f16, {2, 1000000}, 1), "1000000");
}

// Every tensor is larger than such an L2.
TEST(RowsGpu, ResultsThatStayInL2Longest) {
  FUSOR_NEEDS_GPU();
  DeviceInfo device = DeviceInfo::current();
  device.l2_bytes = 1024;
  for (const Graph& graph :
       {softmax(DataType::bf16, {37, 4096}, 1), rms_norm(DataType::f16, {41, 1001}),
        softmax_bwd(DataType::f32, {33, 1024}, 1), residual_norm_quantize(DataType::bf16, {41, 4096})}) {
    DeviceRun run(graph, build(graph, device));
    run.run();
    EXPECT_TRUE(run.gaps_are_untouched()) << graph.name;
    const VerifyReport report = run.check();
    EXPECT_TRUE(report.passed()) << graph.name << "\n" << to_string(report);
  }
}

TEST(RowsGpu, EveryType) {
  FUSOR_NEEDS_GPU();
  for (const DataType type :
       {DataType::f64, DataType::f32, DataType::f16, DataType::bf16, DataType::f8_e4m3, DataType::f8_e5m2}) {
    expect_every_setting_correct(softmax(type, {19, 520}, 1), std::string(to_string(type)));
    expect_every_setting_correct(softmax(type, {3, 52, 72}, 1), fmt::format("{} columns", to_string(type)));
  }
}

TEST(RowsGpu, Integers) {
  FUSOR_NEEDS_GPU();
  for (const DataType type : {DataType::i64, DataType::i32, DataType::i8, DataType::u8}) {
    GraphBuilder g("centered");
    const Tensor x = g.input("x", {33, 260}, type);
    g.output(g.sub(x, g.reduce(x, ReductionMode::max, {1})), named("y", DataType::i64));
    expect_every_setting_correct(g.finish(), std::string(to_string(type)));
  }
}

TEST(RowsGpu, EveryReductionFeedsBack) {
  FUSOR_NEEDS_GPU();
  for (int i = 0; i < reduction_mode_count(); ++i)
    for (const int64_t axis : {0, 1, 2}) {
      const auto mode = static_cast<ReductionMode>(i);
      GraphBuilder g("mode");
      const Tensor x = g.input("x", {5, 37, 68}, DataType::f32);
      g.output(g.sub(x, g.reduce(x, mode, {axis})), named("y", DataType::f32));
      expect_correct(g.finish(), fmt::format("{} over {}", to_string(mode), axis));
    }
}

TEST(RowsGpu, Norms) {
  FUSOR_NEEDS_GPU();
  for (const int64_t columns : {5, 128, 768, 1001, 4096, 12288}) {
    expect_every_setting_correct(layer_norm(DataType::bf16, {41, columns}), fmt::format("layer {}", columns));
    expect_every_setting_correct(rms_norm(DataType::f16, {41, columns}), fmt::format("rms {}", columns));
    expect_every_setting_correct(residual_norm_quantize(DataType::bf16, {41, columns}),
                                 fmt::format("quantize {}", columns));
  }
  expect_every_setting_correct(layer_norm(DataType::f32, {3, 7, 5, 200}), "four axes");
}

void expect_backward_norms_correct(const Dims& dims) {
  expect_every_setting_correct(rms_norm_bwd(DataType::bf16, dims), fmt::format("rms {}", to_string(dims)));
  expect_every_setting_correct(layer_norm_bwd(DataType::bf16, dims),
                               fmt::format("layer {}", to_string(dims)));
}

TEST(RowsGpu, BackwardNormsOfShortRows) {
  FUSOR_NEEDS_GPU();
  for (const Dims& dims : {Dims{1, 64}, Dims{3, 40}, Dims{1000, 128}}) expect_backward_norms_correct(dims);
  expect_every_setting_correct(layer_norm_bwd(DataType::f32, {20, 9, 136}), "three axes");
}

TEST(RowsGpu, BackwardNormsOfARowABlock) {
  FUSOR_NEEDS_GPU();
  for (const Dims& dims : {Dims{300, 777}, Dims{517, 4096}}) expect_backward_norms_correct(dims);
}

TEST(RowsGpu, BackwardNormsOfARowACluster) {
  FUSOR_NEEDS_GPU();
  expect_backward_norms_correct({200, 12288});
}

TEST(RowsGpu, MiddleAxes) {
  FUSOR_NEEDS_GPU();
  for (const Dims& dims : {Dims{3, 20, 64}, Dims{2, 1000, 24}, Dims{5, 7, 4096}, Dims{2, 301, 77}}) {
    expect_every_setting_correct(softmax(DataType::bf16, dims, 1), to_string(dims));
    expect_every_setting_correct(softmax_bwd(DataType::f32, dims, 1), to_string(dims));
  }
  expect_every_setting_correct(middle_norm(DataType::bf16, {4, 12, 13, 64}), "axes 1 and 2");
  expect_every_setting_correct(middle_norm(DataType::f32, {2, 3, 5, 33}), "odd axes 1 and 2");
}

TEST(RowsGpu, GroupNorm) {
  FUSOR_NEEDS_GPU();
  for (const bool last : {false, true}) {
    expect_every_setting_correct(group_norm(DataType::bf16, {2, 32, 10, 256}, last), "10 channels a group");
    expect_every_setting_correct(group_norm(DataType::f32, {3, 4, 3, 49}, last), "3 channels a group");
  }
}

// Results lie as x does, or otherwise.
TEST(RowsGpu, GroupNormWithStatistics) {
  FUSOR_NEEDS_GPU();
  for (const bool last : {true, false})
    for (const bool results_last : {true, false}) {
      const Graph graph = group_norm_saved(DataType::bf16, {2, 8, 10, 256}, last, results_last);
      expect_every_setting_correct(graph, "10 channels a group");
      expect_every_setting_correct(group_norm_saved(DataType::f32, {3, 4, 3, 49}, last, results_last),
                                   "3 channels a group");
    }
  expect_every_setting_correct(group_norm_bwd(DataType::bf16, {2, 8, 10, 256}, true), "backward");
}

TEST(RowsGpu, CrossEntropy) {
  FUSOR_NEEDS_GPU();
  expect_every_setting_correct(cross_entropy(DataType::bf16, 21, 1000), "1000 classes");
  expect_every_setting_correct(cross_entropy(DataType::f32, 3, 50257), "50257 classes");
}

TEST(RowsGpu, StridedRows) {
  FUSOR_NEEDS_GPU();
  for (const Strides& strides : {Strides{1040, 1}, Strides{1043, 1}, Strides{2100, 2}, Strides{1, 50}}) {
    GraphBuilder g("strided");
    const Tensor x = g.input("x", {37, 1003}, DataType::bf16, TensorOptions{.strides = strides});
    g.output(softmax_of(g, x, 1), {.name = "y", .type = DataType::bf16, .strides = Strides{1016, 1}});
    expect_every_setting_correct(g.finish(), to_string(strides));
  }
}

TEST(RowsGpu, HundredRunsHaveOneHash) {
  FUSOR_NEEDS_GPU();
  DeviceRun run(layer_norm_bwd(DataType::bf16, {3001, 1024}));
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    run.run();
    const auto& bytes = run.host("dgamma");
    seen.emplace(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  EXPECT_EQ(seen.size(), 1u);
}

}  // namespace
}  // namespace fusor
