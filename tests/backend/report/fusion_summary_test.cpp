// Tests of the short form of explanations.
#include "backend/report/fusion_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "frontend/graph_builder.h"

namespace fusor {
namespace {

using testing::HasSubstr;

std::vector<FusionSummary> summaries(const Graph& graph) {
  return explain_data(graph, DeviceInfo::named("H200"), BuildOptions()).fusions;
}

TEST(FusionSummary, CountsBytesAndOperationsOfAFusion) {
  GraphBuilder g;
  const Tensor a = g.input("a", {1024, 512}, DataType::f16);
  const Tensor b = g.input("b", {512, 2048}, DataType::f16);
  const Graph graph = g.finish({g.relu(g.matmul(a, b))});
  const std::vector<FusionSummary> found = summaries(graph);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].flops, 2.0 * 1024 * 512 * 2048);
  EXPECT_EQ(found[0].bytes, 2.0 * (1024 * 512 + 512 * 2048 + 1024 * 2048));
  EXPECT_EQ(found[0].config.engine, "wgmma");
  EXPECT_FALSE(found[0].runner_up.empty());
  EXPECT_GE(found[0].runner_up_seconds, found[0].seconds);
  EXPECT_TRUE(found[0].apart.empty());
}

TEST(FusionSummary, CountsOfATableTheElementsThatAreTaken) {
  GraphBuilder g;
  const Tensor table = g.input("table", {1 << 20, 64}, DataType::f32);
  const Tensor index = g.input("index", {256, 1}, DataType::i32);
  const std::vector<FusionSummary> found = summaries(g.finish({g.gather(table, index, {.axis = 0})}));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].bytes, 4.0 * (256 * 64 + 256 + 256 * 64));
}

// A causal mask leaves 512 x 513 / 2 of 512 x 512 scores. Two products read them forward, five backward.
TEST(FusionSummary, CountsTheScoresThatAMaskLeaves) {
  constexpr double kSeen = 2.0 * 4 * 512 * 513 / 2 * 64;
  const SdpaOptions causal{.attributes = {.attn_scale = 0.125, .right_bound = 0}};
  const auto input = [](GraphBuilder& g, const char* name) {
    return g.input(name, {1, 4, 512, 64}, DataType::bf16);
  };
  GraphBuilder forward;
  const Tensor q = input(forward, "q"), k = input(forward, "k"), v = input(forward, "v");
  EXPECT_DOUBLE_EQ(summaries(forward.finish({forward.sdpa_fwd(q, k, v, causal).o})).back().flops, 2 * kSeen);
  GraphBuilder g;
  const Tensor stats = g.input("stats", {1, 4, 512, 1}, DataType::f32);
  const SdpaGradients made =
      g.sdpa_bwd(input(g, "q"), input(g, "k"), input(g, "v"), input(g, "o"), input(g, "do"), stats, causal);
  EXPECT_DOUBLE_EQ(summaries(g.finish({made.dq, made.dk, made.dv})).back().flops, 5 * kSeen);
}

TEST(FusionSummary, NamesWhatBoundsAFusion) {
  const auto bound = [](int64_t k) {
    GraphBuilder g;
    const Tensor a = g.input("a", {4096, k}, DataType::f16);
    const Tensor b = g.input("b", {k, 4096}, DataType::f16);
    return summaries(g.finish({g.matmul(a, b)})).front().bound;
  };
  EXPECT_EQ(bound(4096), "tensor cores");
  EXPECT_EQ(bound(64), "memory");
}

TEST(FusionSummary, SaysWhyNeighboursAreApart) {
  GraphBuilder g;
  const Tensor a = g.input("a", {256, 256}, DataType::f16);
  const Tensor b = g.matmul(a, a);
  const std::vector<FusionSummary> found = summaries(g.finish({g.matmul(b, a)}));
  ASSERT_EQ(found.size(), 2U);
  ASSERT_EQ(found[1].apart.size(), 1U);
  EXPECT_EQ(found[1].apart[0].fusion, 0);
  EXPECT_FALSE(found[1].apart[0].why.empty());
  EXPECT_THAT(to_string(found), HasSubstr("apart from 1: "));
}

TEST(FusionSummary, LinesAreShortWhateverTheNames) {
  GraphBuilder g;
  Tensor x = g.input("x", {64, 64}, DataType::f32);
  for (int i = 0; i < 20; ++i) x = g.exp(x, {.name = std::string(40, 'n') + std::to_string(i)});
  const std::string text = to_string(summaries(g.finish({x})));
  EXPECT_THAT(text, HasSubstr("(20 ops)"));
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    EXPECT_LT(end - begin, 120U) << text;
    begin = end + 1;
  }
}

}  // namespace
}  // namespace fusor
