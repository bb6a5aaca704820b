// Tests of what types that were left open do to plans: graphs written without any keep the tensor cores.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/build.h"
#include "backend/report/explain.h"
#include "backend/report/type_remarks.h"
#include "core/device_info.h"
#include "frontend/graph_builder.h"

namespace fusor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

/// The engines of the fusions of contractions, in order.
std::vector<std::string> contraction_engines(const Graph& graph) {
  const Plan plan = build(graph, DeviceInfo::named("h200"), {.compile = false});
  std::vector<std::string> engines;
  for (const PlannedFusion& fusion : plan.fusions)
    for (const int op : fusion.ops)
      if (is_contraction(plan.graph.ops[static_cast<size_t>(op)].attributes))
        engines.push_back(fusion.config.engine);
  EXPECT_TRUE(plan.remarks.empty());
  return engines;
}

class WrittenWithoutTypes : public testing::TestWithParam<DataType> {
 protected:
  Tensor input(const std::string& name, const Dims& dims, Layout layout = Layout::row_major) {
    return g.input(name, dims, GetParam(), layout);
  }
  GraphBuilder g;
};
INSTANTIATE_TEST_SUITE_P(Types, WrittenWithoutTypes, testing::Values(DataType::f16, DataType::bf16));

TEST_P(WrittenWithoutTypes, AnMlpUsesTheTensorCores) {
  const Tensor h = g.relu(g.matmul(input("x", {4096, 4096}), input("w1", {4096, 4096})));
  EXPECT_EQ(contraction_engines(g.finish({g.matmul(h, input("w2", {4096, 4096}))})),
            (std::vector<std::string>{"wgmma", "wgmma"}));
}

TEST_P(WrittenWithoutTypes, TwoConvolutionsUseTheTensorCores) {
  const ConvOptions padded{.padding = {1, 1}};
  const Tensor x = input("x", {32, 64, 56, 56}, Layout::nhwc);
  const Tensor w1 = input("w1", {64, 64, 3, 3}, Layout::nhwc), w2 = input("w2", {64, 64, 3, 3}, Layout::nhwc);
  const Tensor h = g.relu(g.conv_fprop(x, w1, padded));
  EXPECT_EQ(contraction_engines(g.finish({g.conv_fprop(h, w2, padded)})),
            (std::vector<std::string>{"wgmma", "wgmma"}));
}

TEST_P(WrittenWithoutTypes, ANormalisedLinearLayerUsesTheTensorCores) {
  const Tensor x = input("x", {4096, 4096});
  const Tensor square = g.reduce(g.mul(x, x), ReductionMode::avg, {1});
  const Tensor norm =
      g.mul(g.mul(x, g.rsqrt(g.add(square, g.constant(1e-5)))), g.input("gamma", {4096}, DataType::f32));
  EXPECT_THAT(contraction_engines(g.finish({g.matmul(norm, input("w", {4096, 4096}))})),
              ElementsAre(StartsWith("wgmma")));
}

TEST(TypeRemarks, NameTheOperandThatTakesAContractionToParts) {
  GraphBuilder g;
  const Tensor x = g.input("x", {256, 256}, DataType::f16);
  const Tensor h = g.relu(x, {.name = "act", .type = DataType::f32});
  const Graph graph = g.finish({g.matmul(h, g.input("w", {256, 256}, DataType::f16), {.name = "mm"})});
  const std::string remark =
      "matmul 'mm' takes six bf16 products on the tensor cores, for 'act:y' is fp32 beside fp16 'w'; "
      "fix: declare 'act:y' as fp16, or precision allow_tf32";
  EXPECT_EQ(type_remarks(graph), std::vector<std::string>{remark});
  EXPECT_THAT(explain(graph, DeviceInfo::named("h200")), HasSubstr("remark: " + remark));
  EXPECT_EQ(build(graph, DeviceInfo::named("h200"), {.compile = false}).remarks,
            std::vector<std::string>{remark});
}

TEST(TypeRemarks, NameTheOperandThatKeepsAContractionOffTheTensorCores) {
  struct Case {
    DataType x, w;
    Precision precision;
    std::string remark;
  };
  const std::vector<Case> cases = {{DataType::i8, DataType::i32, Precision::exact,
                                    "matmul 'mm' runs on CUDA cores: no tensor core multiplies int32, for "
                                    "'w' is int32 beside int8 'x'; fix: declare 'w' "
                                    "as int8"},
                                   {DataType::f16, DataType::f64, Precision::exact,
                                    "matmul 'mm' runs on CUDA cores: no tensor core multiplies fp64, for 'w' "
                                    "is fp64 beside fp16 'x'; fix: declare 'w' "
                                    "as fp16"},
                                   {DataType::f16, DataType::f32, Precision::strict,
                                    "matmul 'mm' runs on CUDA cores: strict splits no fp32 into parts, for "
                                    "'w' is fp32 beside fp16 'x'; fix: declare "
                                    "'w' as fp16"}};
  for (const auto& [x, w, precision, remark] : cases) {
    GraphBuilder g("wide", precision);
    const Tensor y = g.matmul(g.input("x", {256, 256}, x), g.input("w", {256, 256}, w), {.name = "mm"});
    const Graph graph = g.finish({y});
    EXPECT_EQ(type_remarks(graph), std::vector<std::string>{remark});
    EXPECT_FALSE(build(graph, DeviceInfo::named("h200"), {.compile = false}).notes.tensor_cores) << remark;
  }
}

TEST(TypeRemarks, SayNothingWhereAllIsWell) {
  GraphBuilder g("allowed", Precision::allow_tf32);
  const Tensor x = g.input("x", {256, 256}, DataType::f32);
  EXPECT_TRUE(type_remarks(g.finish({g.matmul(x, g.input("w", {256, 256}, DataType::f16))})).empty());
}

}  // namespace
}  // namespace fusor
