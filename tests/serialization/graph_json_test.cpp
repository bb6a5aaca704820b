// Tests graph <-> JSON: round trips, what may be left out, and the message for each kind of damage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "frontend/graph_builder.h"
#include "tests/serialization/sample_documents.h"

namespace fusor {
namespace {

using samples::error_of;
using samples::kConvGraph;
using samples::kMatmulGraph;
using samples::replaced;
using testing::HasSubstr;

/// The message for the conv graph with `from` turned into `to`.
std::string error_with(const std::string& from, const std::string& to) {
  return error_of([&] { graph_from_json(replaced(kConvGraph, from, to)); });
}

TEST(GraphJson, RoundTripKeepsEveryField) {
  for (const std::string& text : {kConvGraph, kMatmulGraph}) {
    const Graph graph = graph_from_json(text);
    EXPECT_EQ(graph_from_json(to_json(graph)), graph);
  }
}

TEST(GraphJson, GraphsOfTheBuilderSurvive) {
  GraphBuilder g("every kind of op");
  const Tensor x = g.input("x", {2, 8, 6, 6}, DataType::f16, Layout::nhwc);
  const Tensor w = g.input("w", {8, 4, 3, 3}, DataType::f16, {.alignment = 2, .uid = -5});
  Tensor y = g.conv_fprop(x, w, {.padding = {1, 1}, .stride = {2, 2}, .mode = ConvMode::convolution});
  y = g.relu(g.mul(g.add(y, g.constant(0.5)), g.scalar("s", DataType::f32)), {.upper_clip = 6});
  const Tensor index = g.add(g.gen_index(y, 1), g.constant(3, DataType::i32));
  const Tensor z = g.binary_select(y, g.neg(y), g.cmp_gt(index, g.constant(5, DataType::i64)));
  const Tensor mean = g.reduce(z, ReductionMode::avg, {0, 2, 3});
  const Tensor part = g.transpose(g.slice(z, {0, 0, 0, 0}, {2, 8, 2, 2}), {0, 2, 3, 1});
  const Tensor flat = g.reshape(part, {2, 32});
  const Tensor both = g.concatenate({flat, flat}, 0);
  const Tensor product = g.matmul(flat, g.reshape(part, {32, 2}));
  const Tensor dx = g.conv_dgrad(y, w, {2, 8, 6, 6}, {.padding = {1, 1}, .stride = {2, 2}});
  const Tensor dw = g.conv_wgrad(y, x, {8, 4, 3, 3}, {.padding = {1, 1}, .stride = {2, 2}});
  const Graph graph = g.finish({z, mean, both, product, dx, dw});
  EXPECT_EQ(graph_from_json(to_json(graph)), graph);
}

/// A graph of one op over x [2, 3, 4, 5].
std::string file_of(const std::string& op, const std::string& y) {
  return R"({"format": 1, "kind": "graph", "name": "g", "tensors": [
               {"name": "x", "type": "fp32", "dims": [2, 3, 4, 5]},
               {"name": "y", "type": "fp32", "dims": )" +
         y + R"(}], "ops": [{"name": "m", )" + op + R"(, "inputs": ["x"], "outputs": ["y"]}]})";
}

TEST(GraphJson, AxesAreCountedFromTheBackAndTheLastWhereTheyAreLeftOut) {
  const std::string same = "[2, 3, 4, 5]";
  const auto axis = [&](const std::string& more) {
    const Graph graph = graph_from_json(file_of(R"("op": "softmax")" + more, same));
    EXPECT_EQ(graph_from_json(to_json(graph)), graph);
    return std::get<Softmax>(graph.ops[0].attributes).axis;
  };
  EXPECT_EQ(axis(""), 3);
  EXPECT_EQ(axis(R"(, "axis": -1)"), 3);
  EXPECT_EQ(axis(R"(, "axis": -4)"), 0);
  EXPECT_EQ(axis(R"(, "axis": 1)"), 1);
  EXPECT_THAT(to_json(graph_from_json(file_of(R"("op": "softmax")", same))), HasSubstr(R"("axis": 3)"));
  const Graph norm = graph_from_json(file_of(R"("op": "norm_fwd", "normalized_axes": [-1, 2])", same));
  EXPECT_EQ(std::get<NormForward>(norm.ops[0].attributes).axes, (Dims{3, 2}));
  const Graph index = graph_from_json(
      replaced(file_of(R"("op": "pointwise", "mode": "gen_index", "compute": "int32", "axis": -3)", same),
               R"("name": "y", "type": "fp32")", R"("name": "y", "type": "int32")"));
  EXPECT_EQ(std::get<Pointwise>(index.ops[0].attributes).axis, 1);
  EXPECT_THAT(error_of([&] { graph_from_json(file_of(R"("op": "softmax", "axis": -5)", same)); }),
              HasSubstr("softmax 'm': axis -5 is out of range for 'x' [2, 3, 4, 5]"));
}

TEST(GraphJson, InterpolationNeedsItsSizeAlone) {
  const std::string sized = R"("op": "resample_fwd", "mode": "bilinear", "output_size": [8, 9])";
  for (const std::string more : {"", R"(, "align_corners": true)",
                                 R"(, "step": [8, 10], "shift": [-4, -4], "denominator": [16, 18])"}) {
    const Graph graph = graph_from_json(file_of(sized + more, "[2, 3, 8, 9]"));
    EXPECT_EQ(graph_from_json(to_json(graph)), graph);
  }
  const auto error = [&](const std::string& more) {
    return error_of([&] { graph_from_json(file_of(sized + more, "[2, 3, 8, 9]")); });
  };
  EXPECT_THAT(error(R"(, "step": [8, 10])"), HasSubstr("denominator [] has 0 entries"));
  EXPECT_THAT(
      error(R"(, "align_corners": true, "step": [8, 10], "shift": [-4, -4], "denominator": [16, 18])"),
      HasSubstr("says its coordinates twice"));
}

TEST(GraphJson, PrecisionIsKeptAndWithoutItGraphsAreExact) {
  const std::string text = to_json(graph_from_json(kMatmulGraph));
  EXPECT_EQ(text.find("precision"), std::string::npos);
  const Graph exact = graph_from_json(replaced(kMatmulGraph, R"("kind")", R"("precision": "exact", "kind")"));
  EXPECT_EQ(exact, graph_from_json(kMatmulGraph));
  const Graph tf32 =
      graph_from_json(replaced(kMatmulGraph, R"("kind")", R"("precision": "allow_tf32", "kind")"));
  EXPECT_EQ(tf32.precision, Precision::allow_tf32);
  EXPECT_NE(tf32, exact);
  EXPECT_EQ(graph_from_json(to_json(tf32)), tf32);
  EXPECT_THAT(error_with(R"("kind")", R"("precision": "tf32", "kind")"),
              HasSubstr("precision: 'tf32' is not one of strict, exact, allow_tf32, allow_short_sums"));
  EXPECT_THAT(error_with(R"("kind")", R"("precision": true, "kind")"), HasSubstr("precision: expected text"));
}

TEST(GraphJson, WritingTwiceGivesTheSameText) {
  const std::string once = to_json(graph_from_json(kConvGraph));
  EXPECT_EQ(to_json(graph_from_json(once)), once);
}

TEST(GraphJson, OmittedFieldsGetTheirDefaults) {
  const Graph graph = graph_from_json(kConvGraph);
  EXPECT_EQ(graph.tensors[0].uid, 7);
  EXPECT_EQ(graph.tensors[1].uid, 1);
  EXPECT_EQ(graph.tensors[2].uid, 2);
  EXPECT_EQ(graph.tensors[2].alignment, 16);
  EXPECT_EQ(graph.tensors[2].memory, Memory::device);
  EXPECT_EQ(graph.tensors[2].strides, (Strides{4, 1, 1, 1}));
  EXPECT_EQ(graph.tensors[0].strides, (Strides{200, 1, 40, 8}));
  const auto& conv = std::get<Conv>(graph.ops[0].attributes);
  EXPECT_EQ(conv.stride, (Dims{1, 1}));
  EXPECT_EQ(conv.dilation, (Dims{1, 1}));
  EXPECT_EQ(conv.compute, DataType::f32);
}

TEST(GraphJson, FreeUidsSkipTheOnesThatAreTaken) {
  const Graph graph = graph_from_json(replaced(kConvGraph, "\"uid\": 7", "\"uid\": 2"));
  EXPECT_EQ(graph.tensors[1].uid, 1);
  EXPECT_EQ(graph.tensors[2].uid, 3);
}

TEST(GraphJson, DefaultAttributesAreNotWritten) {
  const std::string text = to_json(graph_from_json(kConvGraph));
  EXPECT_THAT(text, HasSubstr(R"("mode": "relu")"));
  EXPECT_EQ(text.find("upper_clip"), std::string::npos);
  EXPECT_EQ(text.find("cross_correlation"), std::string::npos);
}

TEST(GraphJson, ClipsAndInfinitiesSurvive) {
  const Graph graph = graph_from_json(replaced(kConvGraph, R"("mode": "relu",)",
                                               R"("mode": "relu", "lower_clip": "-inf", "upper_clip": 6,)"));
  const auto& relu = std::get<Pointwise>(graph.ops[2].attributes);
  EXPECT_EQ(relu.lower_clip, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(relu.upper_clip, 6);
  EXPECT_EQ(graph_from_json(to_json(graph)), graph);
}

TEST(GraphJson, ConstantsKeepTheKindOfTheirType) {
  const std::string real = replaced(kMatmulGraph, "\"value\": \"inf\"", "\"value\": 2");
  EXPECT_EQ(graph_from_json(real).tensors[5].value, Scalar(2.0));
  const std::string integer =
      replaced(kMatmulGraph, R"("type": "fp32", "dims": [1, 1], "memory": "constant", "value": "inf")",
               R"("type": "int64", "dims": [1, 1], "memory": "constant", "value": 9007199254740993)");
  const Graph graph = graph_from_json(integer);
  EXPECT_EQ(graph.tensors[5].value, Scalar(int64_t{9007199254740993}));
  EXPECT_EQ(graph_from_json(to_json(graph)), graph);
}

TEST(GraphJson, EveryAttributeOfEveryOpIsRead) {
  const Graph graph = graph_from_json(R"({"format": 1, "kind": "graph", "name": "g",
    "tensors": [{"name": "x", "type": "fp64", "dims": [4, 6]}, {"name": "y", "type": "fp64", "dims": [2, 3]},
                {"name": "z", "type": "fp64", "dims": [4, 3]}],
    "ops": [{"name": "s", "op": "slice", "start": [1, 0], "limit": [4, 6], "step": [2, 2], "inputs": ["x"], "outputs": ["y"]},
            {"name": "c", "op": "concatenate", "axis": 0, "inputs": ["y", "y"], "outputs": ["z"]}]})");
  EXPECT_EQ(std::get<Slice>(graph.ops[0].attributes).step, (Dims{2, 2}));
  EXPECT_EQ(graph_from_json(to_json(graph)), graph);
}

TEST(GraphJson, TypesOfResultsMayBeLeftOut) {
  const std::string open = R"({"format": 1, "kind": "graph", "name": "mlp",
    "tensors": [{"name": "x", "type": "fp16", "dims": [8, 8]}, {"name": "w", "type": "fp16", "dims": [8, 8]},
                {"name": "h", "dims": [8, 8], "memory": "workspace"},
                {"name": "r", "dims": [8, 8], "memory": "workspace"}, {"name": "y", "dims": [8, 8]}],
    "ops": [{"name": "m1", "op": "matmul", "inputs": ["x", "w"], "outputs": ["h"]},
            {"name": "r1", "op": "pointwise", "mode": "relu", "inputs": ["h"], "outputs": ["r"]},
            {"name": "m2", "op": "matmul", "inputs": ["r", "w"], "outputs": ["y"]}]})";
  const Graph graph = graph_from_json(open);
  EXPECT_EQ(graph.tensors[2].type, DataType::f32);
  EXPECT_EQ(graph.tensors[3].type, DataType::f16);
  EXPECT_EQ(graph.tensors[4].type, DataType::f16);
  EXPECT_EQ(graph_from_json(to_json(graph)), graph);
  EXPECT_THAT(error_of([&] { graph_from_json(replaced(open, R"("w", "type": "fp16",)", R"("w",)")); }),
              HasSubstr("tensors[1]: 'type' is missing"));
}

TEST(GraphJson, DamagedGraphsWithOpenTypesAreRefused) {
  const auto damaged = [](const std::string& ops) {
    return error_of([&] {
      graph_from_json(R"({"format": 1, "kind": "graph", "name": "g",
        "tensors": [{"name": "x", "type": "fp16", "dims": [8, 8]}, {"name": "y", "dims": [8, 8]}], "ops": [)" +
                      ops + "]}");
    });
  };
  EXPECT_THAT(damaged(R"({"name": "m", "op": "matmul", "inputs": ["x"], "outputs": ["y"]})"),
              HasSubstr("takes 2 operands, got 1"));
  EXPECT_THAT(damaged(R"({"name": "m", "op": "matmul", "inputs": ["x", ""], "outputs": ["y"]})"),
              HasSubstr("the operand b is missing"));
  EXPECT_THAT(damaged(R"({"name": "m", "op": "matmul", "inputs": ["y", "y"], "outputs": ["y"]})"),
              HasSubstr("reads tensor 'y' before"));
  EXPECT_THAT(damaged(R"({"name": "c", "op": "concatenate", "inputs": [], "outputs": ["y"]})"),
              HasSubstr("takes 1 operand or more, got 0"));
  EXPECT_THAT(damaged(R"({"name": "m", "op": "reshape", "inputs": ["x"], "outputs": ["y", "y"]})"),
              HasSubstr("has 2 results instead of 1"));
}

TEST(GraphJson, AnAttributeThatTheOpDoesNotHaveIsRefused) {
  EXPECT_THAT(error_with(R"("mode": "relu",)", R"("mode": "gelu", "lower_clip_slope": 0.0,)"),
              HasSubstr("ops[2]: unknown key 'lower_clip_slope'"));
  EXPECT_THAT(error_with(R"("mode": "relu",)", R"("mode": "relu", "lower_clip_slope": "nan",)"),
              HasSubstr("lower_clip_slope is NaN"));
}

TEST(GraphJson, GroupsOfAConvolutionAreChecked) {
  const Graph graph =
      graph_from_json(replaced(kConvGraph, R"("op": "conv_fprop",)", R"("op": "conv_fprop", "groups": 1,)"));
  EXPECT_EQ(std::get<Conv>(graph.ops[0].attributes).groups, 1);
  EXPECT_EQ(graph_from_json(to_json(graph)), graph);
  EXPECT_THAT(error_with(R"("op": "conv_fprop",)", R"("op": "conv_fprop", "groups": 4,)"),
              HasSubstr("groups is 4, but C=8 of x and C=8 of w make 1"));
}

TEST(GraphJson, MessagesNameThePlace) {
  EXPECT_THAT(error_with("[4, 8, 3, 3]", "[4, 8, 3.5, 3]"),
              HasSubstr("tensors[1].dims[2]: expected an integer, got '3.5'"));
  EXPECT_THAT(error_with("[4, 8, 3, 3]", "[4, 8, -3, 3]"),
              HasSubstr("tensors[1].dims[2]: expected an extent of 1 or more"));
  EXPECT_THAT(error_with("[4, 8, 3, 3]", "[1,2,3,4,5,6,7,8,9]"),
              HasSubstr("tensors[1].dims: a tensor has up to 8 dims; got 9"));
  EXPECT_THAT(error_with("[4, 8, 3, 3]", "{}"), HasSubstr("tensors[1].dims: expected a list, got object"));
  EXPECT_THAT(error_with("[4, 8, 3, 3]", "[4611686018427387904, 8, 3, 3]"), HasSubstr("tensors[1].dims: "));
  EXPECT_THAT(error_with("\"uid\": 7", "\"uid\": 9223372036854775808"), HasSubstr("tensors[0].uid: "));
  EXPECT_THAT(error_with("\"uid\": 7", "\"uid\": 1e300"), HasSubstr("tensors[0].uid: expected an integer"));
  EXPECT_THAT(error_with("\"uid\": 7", "\"udi\": 7"),
              HasSubstr("tensors[0]: unknown key 'udi'; known: name, uid, type"));
  EXPECT_THAT(error_with("\"alignment\": 8", "\"value\": 8"), HasSubstr("tensors[5].value: only tensors"));
  EXPECT_THAT(error_with("\"mode\": \"relu\"", "\"mode\": \"rleu\""),
              HasSubstr("ops[2].mode: 'rleu' is not one of identity, add"));
  EXPECT_THAT(error_with("\"mode\": \"relu\", ", ""), HasSubstr("ops[2]: 'mode' is missing"));
  EXPECT_THAT(error_with("\"conv_fprop\"", "\"conv\""),
              HasSubstr("ops[0].op: 'conv' is not one of pointwise"));
  EXPECT_THAT(error_with("[\"u\"]}", "[\"no\"]}"), HasSubstr("ops[1].outputs[0]: no tensor is named 'no'"));
  EXPECT_THAT(error_with("\"pre_padding\": [1, 1],", "\"padding\": [1, 1],"),
              HasSubstr("ops[0]: unknown key 'padding'"));
  EXPECT_THAT(error_with("\"format\": 1", "\"format\": 2"),
              HasSubstr("format: this library reads format 1, the file has format 2"));
  EXPECT_THAT(error_with("\"kind\": \"graph\"", "\"kind\": \"plan\""),
              HasSubstr("kind: expected a graph, got 'plan'"));
}

TEST(GraphJson, DuplicatesAreRefused) {
  EXPECT_THAT(error_with("\"uid\": 7", "\"name\": \"x\""), HasSubstr("tensors[0]: key 'name' appears twice"));
  EXPECT_THAT(error_with("\"name\": \"w\"", "\"name\": \"x\""),
              HasSubstr("tensors[1].name: tensor 'x' appears twice"));
}

TEST(GraphJson, NamesThatWouldBreakALineAreRefused) {
  EXPECT_THAT(error_with("\"name\": \"w\"", "\"name\": \"w\\n#include\""), HasSubstr("control character"));
  EXPECT_THAT(error_with("\"name\": \"w\"", "\"name\": \"\""), HasSubstr("tensors[1].name: expected a name"));
}

TEST(GraphJson, BrokenTextIsRefused) {
  const auto error = [](const std::string& text) { return error_of([&] { graph_from_json(text); }); };
  EXPECT_THAT(error(""), HasSubstr("not JSON: "));
  EXPECT_THAT(error("{\"format\": NaN}"), HasSubstr("not JSON: "));
  EXPECT_THAT(error("{\"format\": 1e999}"), HasSubstr("not JSON: "));
  EXPECT_THAT(error("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(error(std::string(1'000'000, '[')), HasSubstr("nested deeper than 16 levels"));
  EXPECT_THAT(error("{\"format\": 1} x"), HasSubstr("not JSON: "));
  EXPECT_THAT(error("{\"format\": \"\xff\"}"), HasSubstr("not JSON: "));
  std::string many = "{";
  for (int i = 0; i < 100'000; ++i) many += "\"" + std::to_string(i) + "\": 1,";
  EXPECT_THAT(error(many), HasSubstr("more than 64 keys"));
}

TEST(GraphJson, RulesOfTheGraphAreChecked) {
  EXPECT_THAT(error_with("[4, 8, 3, 3]", "[4, 7, 3, 3]"), HasSubstr("'c1'"));
}

TEST(GraphJson, NamesThatAreNotUtf8CannotBeWritten) {
  Graph graph = graph_from_json(kConvGraph);
  graph.tensors[0].name = "\xff";
  EXPECT_THAT(error_of([&] { to_json(graph); }), HasSubstr("cannot be written as JSON"));
}

}  // namespace
}  // namespace fusor
