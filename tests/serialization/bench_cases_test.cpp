// Owns the tests of JSON -> BenchCase.
#include "serialization/bench_cases.h"

#include <gmock/gmock.h>

#include "core/error.h"

namespace fusor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string document(const std::string& rows) {
  return R"({"format": 1, "kind": "bench_cases", "cases": [)" + rows + "]}";
}

TEST(BenchCases, AMatmulIsRead) {
  const auto cases = bench_cases_from_json(document(
      R"({"id": "a", "group": "g", "op": "matmul", "mnk": [2, 3, 4], "type": "fp8_e4m3", "b": "nk",
          "result": "bf16", "epilogue": ["alpha", "amax"], "prologue": ["dequantize"]})"));
  ASSERT_EQ(cases.size(), 1u);
  const BenchCase& row = cases[0];
  EXPECT_FALSE(row.is_conv());
  EXPECT_EQ(row.batch, 1);
  EXPECT_EQ(row.n, 3);
  EXPECT_TRUE(row.transposed_b);
  EXPECT_EQ(row.result, DataType::bf16);
  EXPECT_THAT(row.epilogue, ElementsAre("alpha", "amax"));
  EXPECT_EQ(row.max_workspace, -1);
}

TEST(BenchCases, AConvolutionIsRead) {
  const auto cases = bench_cases_from_json(document(
      R"({"id": "a", "group": "g", "op": "conv_dgrad", "x": [2, 3, 8], "w": [4, 3, 3], "type": "fp16",
          "padding": [2], "post_padding": [0], "layout": "nchw", "max_workspace": 64})"));
  const BenchCase& row = cases.at(0);
  EXPECT_TRUE(row.is_conv());
  EXPECT_EQ(row.pre_padding, Dims{2});
  EXPECT_EQ(row.post_padding, Dims{0});
  EXPECT_EQ(row.layout, Layout::nchw);
  EXPECT_EQ(row.max_workspace, 64);
}

TEST(BenchCases, RowsAreRead) {
  const auto cases = bench_cases_from_json(document(
      R"({"id": "a", "group": "g", "op": "softmax", "x": [2, 3, 8], "axes": [1], "type": "bf16"},
         {"id": "b", "group": "g", "op": "group_norm", "x": [2, 6, 4, 4], "groups": 3, "layout": "nchw",
          "type": "fp16"})"));
  ASSERT_EQ(cases.size(), 2u);
  EXPECT_TRUE(cases[0].is_rows());
  EXPECT_FALSE(cases[0].is_conv());
  EXPECT_EQ(cases[0].axes, Dims{1});
  EXPECT_EQ(cases[1].axes, Dims{3});
  EXPECT_EQ(cases[1].groups, 3);
}

void expect_refused(const std::string& rows, const std::string& message) {
  try {
    bench_cases_from_json(document(rows));
    ADD_FAILURE() << rows << " was read";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(message));
  }
}

TEST(BenchCases, MistakesAreNamed) {
  const std::string matmul = R"({"id": "a", "group": "g", "op": "matmul", "type": "bf16", )";
  expect_refused(matmul + R"("mnk": [2, 3]})", "cases[0].mnk: expected m, n and k, got 2 numbers");
  expect_refused(matmul + R"("mnk": [2, 0, 3]})", "cases[0].mnk[1]: expected an extent of 1 or more");
  expect_refused(matmul + R"("mnk": [2, 3, 4], "padding": [1]})", "unknown key 'padding'");
  expect_refused(matmul + R"("mnk": [2, 3, 4], "b": "mk"})", "'mk' is not one of kn, nk");
  const std::string rows = R"({"id": "a", "group": "g", "op": "softmax", "type": "bf16", )";
  expect_refused(rows + R"("x": [4]})", "cases[0].x: expected rows of elements, got 1 axes");
  expect_refused(rows + R"("x": [4, 8], "axes": [2]})", "cases[0].axes[0]: expected an axis of x, got 2");
  expect_refused(rows + R"("x": [4, 8], "groups": 3})",
                 "cases[0].groups: expected a divisor of the channels");
  const std::string good = matmul + R"("mnk": [2, 3, 4]})";
  expect_refused(good + ", " + good, "cases[1].id: two cases are called 'a'");
}

TEST(BenchCases, AttentionHasDimsOfQueriesAndKeys) {
  const auto cases = bench_cases_from_json(R"({"format": 1, "kind": "bench_cases", "cases": [
      {"id": "A", "group": "g", "op": "attention_bwd", "q": [2, 8, 64, 96], "k": [2, 2, 128, 96],
       "value": 64, "causal": true, "type": "bf16"}]})");
  ASSERT_EQ(cases.size(), 1U);
  EXPECT_TRUE(cases[0].is_attention());
  EXPECT_FALSE(cases[0].is_rows());
  EXPECT_EQ(cases[0].keys, (Dims{2, 2, 128, 96}));
  EXPECT_EQ(cases[0].value, 64);
  EXPECT_TRUE(cases[0].causal);
  EXPECT_THROW(bench_cases_from_json(R"({"format": 1, "kind": "bench_cases", "cases": [
      {"id": "A", "group": "g", "op": "attention", "q": [2, 8, 64, 96], "k": [2, 3, 128, 96], "type": "bf16"}]})"),
               Error);
}

TEST(BenchCases, PagesDivideTheKeys) {
  const std::string head = R"({"format": 1, "kind": "bench_cases", "cases": [{"id": "A", "group": "g", )";
  const std::string dims = R"("q": [2, 8, 1, 64], "k": [2, 2, 128, 64], "type": "bf16", "page": )";
  const auto cases = bench_cases_from_json(head + R"("op": "attention", )" + dims + "16}]}");
  EXPECT_EQ(cases.at(0).page, 16);
  EXPECT_THROW(bench_cases_from_json(head + R"("op": "attention", )" + dims + "24}]}"), Error);
  EXPECT_THROW(bench_cases_from_json(head + R"("op": "attention_bwd", )" + dims + "16}]}"), Error);
}

TEST(BenchCases, MasksAndScoresAreOfAForwardPass) {
  const std::string head = R"({"format": 1, "kind": "bench_cases", "cases": [{"id": "A", "group": "g", )";
  const std::string dims = R"("q": [2, 8, 64, 64], "k": [2, 2, 64, 64], "type": "bf16", )";
  const std::string options = R"("newest": 16, "documents": 3, "ragged": true, "scores": ["bias"]}]})";
  const BenchCase parsed = bench_cases_from_json(head + R"("op": "attention", )" + dims + options).at(0);
  EXPECT_EQ(parsed.newest, 16);
  EXPECT_EQ(parsed.documents, 3);
  EXPECT_TRUE(parsed.ragged);
  EXPECT_EQ(parsed.scores, std::vector<std::string>{"bias"});
  EXPECT_THROW(bench_cases_from_json(head + R"("op": "attention_bwd", )" + dims + options), Error);
  EXPECT_THROW(bench_cases_from_json(head + R"("op": "attention", )" + dims + R"("newest": -1}]})"), Error);
  EXPECT_THROW(bench_cases_from_json(head + R"("op": "attention", "q": [2, 8, 64, 64], "k": [2, 8, 65, 64],
                                     "type": "bf16", "documents": 3}]})"),
               Error);
}

}  // namespace
}  // namespace fusor
