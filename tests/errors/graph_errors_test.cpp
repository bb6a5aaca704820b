// The mistakes that only a graph from elsewhere (a file, a struct filled in by hand) can hold: core/validate.
#include <gtest/gtest.h>

#include "core/infer.h"
#include "tests/errors/mistake.h"

namespace fusor::graph_errors_test {
namespace {

class GraphErrors : public testing::TestWithParam<Mistake<Graph>> {};

Tensor tensor(const char* name, int64_t uid, const Dims& dims, Memory memory = Memory::device) {
  Tensor made{.name = name, .uid = uid, .type = DataType::f16, .dims = dims, .strides = packed_strides(dims)};
  made.memory = memory;
  return made;
}

// y = relu(x) + s; z = transpose(y)
Graph valid() {
  Graph graph;
  graph.name = "net";
  graph.tensors = {tensor("x", 1, {2, 3}), tensor("s", 2, {1}, Memory::host),
                   tensor("t", 3, {2, 3}, Memory::workspace), tensor("y", 4, {2, 3}), tensor("z", 5, {3, 2})};
  graph.ops = {{"r", Pointwise{.mode = PointwiseMode::relu}, {0}, {2}},
               {"a", Pointwise{.mode = PointwiseMode::add}, {2, 1}, {3}},
               {"v", Transpose{{1, 0}}, {3}, {4}}};
  return graph;
}

TEST_P(GraphErrors, SayWhatIsWrong) {
  Graph graph = valid();
  ASSERT_NO_THROW(validate(graph));
  GetParam().make(graph);
  expect_message(GetParam().message, [&] { validate(graph); });
}

const Mistake<Graph> kTensors[] = {
    {"NoName", [](Graph& g) { g.tensors[0].name.clear(); }, "the tensor with uid 1 has no name"},
    {"NameIsTooLong", [](Graph& g) { g.tensors[0].name.assign(1025, 'n'); },
     "the name of tensor 'nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn' has 1025 bytes; it must have 1 to 1024"},
    {"NameIsNotUtf8", [](Graph& g) { g.tensors[0].name = "x\xff"; },
     "the name of a tensor is not UTF-8: byte 0xff at 1, behind 'x'"},
    {"GraphHasNoName", [](Graph& g) { g.name.clear(); },
     "the name of graph '' has 0 bytes; it must have 1 to 1024"},
    {"NoDims", [](Graph& g) { g.tensors[0].dims = g.tensors[0].strides = {}; },
     "tensor 'x' has no dims; one of a single element has dims [1]"},
    {"RanksDiffer", [](Graph& g) { g.tensors[0].strides = {1}; },
     "tensor 'x': dims [2, 3] and strides [1] have different ranks"},
    {"NegativeExtent",
     [](Graph& g) {
       g.tensors[0].dims = {2, -3};
     },
     "tensor 'x': dims [2, -3] have an extent below 1"},
    {"NegativeStride",
     [](Graph& g) {
       g.tensors[0].strides = {3, -1};
     },
     "tensor 'x': strides [3, -1] have a negative one"},
    {"SpanDoesNotFit",
     [](Graph& g) {
       g.tensors[0].strides = {int64_t{1} << 61, 1};
     },
     "tensor 'x': fp16 dims [2, 3] with strides [2305843009213693952, 1] take more than 2^48 bytes"},
    {"AlignmentIsNoPowerOfTwo", [](Graph& g) { g.tensors[0].alignment = 0; },
     "tensor 'x': alignment 0 is not a power of two"},
    {"AlignmentIsBelowTheElement", [](Graph& g) { g.tensors[0].alignment = 1; },
     "tensor 'x': alignment 1 is less than the 2 bytes of one fp16 element"},
    {"ScalarOfSeveralElements", [](Graph& g) { g.tensors[1] = tensor("s", 2, {3}, Memory::host); },
     "by-value scalar 's' has dims [3]; it must have one element"},
    {"SameName", [](Graph& g) { g.tensors[4].name = g.tensors[0].name; }, "two tensors have the name 'x'"},
    {"SameUid", [](Graph& g) { g.tensors[4].uid = 1; }, "tensors 'x' and 'z' have the same uid 1"},
};
INSTANTIATE_TEST_SUITE_P(Tensors, GraphErrors, testing::ValuesIn(kTensors), name_of<Graph>);

const Mistake<Graph> kOps[] = {
    {"None", [](Graph& g) { g.ops.clear(); }, "graph 'net' has no ops"},
    {"NoName", [](Graph& g) { g.ops[1].name.clear(); }, "op number 1 (pointwise) has no name"},
    {"NameOfTwoLines", [](Graph& g) { g.ops[1].name = "a\nb"; },
     "the name of op 'a\nb' holds the control character 0x0a"},
    {"SameName", [](Graph& g) { g.ops[1].name = g.ops[0].name; }, "two ops have the name 'r'"},
    {"NoResult", [](Graph& g) { g.ops[1].outputs = {}; }, "op 'a' has 0 results instead of 1"},
    {"TwoResults",
     [](Graph& g) {
       g.ops[2].outputs = {4, 2};
     },
     "op 'v' has 2 results instead of 1"},
    {"InputOutOfRange", [](Graph& g) { g.ops[1].inputs[1] = 5; },
     "op 'a' names tensor number 5; the graph has 5"},
    {"NegativeOutput", [](Graph& g) { g.ops[1].outputs[0] = -1; },
     "op 'a' names tensor number -1; the graph has 5"},
    {"WrittenTwice", [](Graph& g) { g.ops[1].outputs[0] = 2; },
     "tensor 't' is written by two ops, 'r' and 'a'"},
    {"WritesAScalar", [](Graph& g) { g.ops[1].outputs[0] = 1; }, "by-value scalar 's' is written by an op"},
    {"OutOfOrder", [](Graph& g) { std::swap(g.ops[0], g.ops[1]); },
     "op 'a' reads tensor 't' before op 'r' has written it"},
    {"ReadsItsOwnResult", [](Graph& g) { g.ops[0].inputs[0] = 2; },
     "op 'r' reads tensor 't' before op 'r' has written it"},
    {"ResultDims",
     [](Graph& g) {
       g.tensors[2] = tensor("t", 3, {3, 2}, Memory::workspace);
     },
     "relu 'r': the result has dims [3, 2], the operands give [2, 3]"},
    {"ResultTypeOfAView", [](Graph& g) { g.tensors[4].type = DataType::f32; },
     "transpose 'v': moves elements of type fp16, but its result 'z' is fp32"},
    {"AttributeOutOfRange",
     [](Graph& g) {
       g.ops[2].attributes = Transpose{{1, 7}};
     },
     "transpose 'v': [1, 7] is not a permutation of the 2 axes of 'y'"},
    {"ViewOperands",
     [](Graph& g) {
       g.ops[2].inputs = {3, 0};
     },
     "transpose 'v': takes 1 operand, got 2"},
};
INSTANTIATE_TEST_SUITE_P(Ops, GraphErrors, testing::ValuesIn(kOps), name_of<Graph>);

const Mistake<Graph> kUses[] = {
    {"VirtualTensorNeverWritten", [](Graph& g) { g.tensors[0].memory = Memory::workspace; },
     "virtual tensor 'x' is written by no op"},
    {"NoOutput",
     [](Graph& g) {
       g.tensors[3].memory = Memory::workspace;
       g.tensors[4].memory = Memory::workspace;
     },
     "graph 'net' has no output"},
    {"ResultUnused", [](Graph& g) { g.tensors[4].memory = Memory::workspace; },
     "op 'v' has a result that nothing uses"},
    {"ResultOverlapsItself",
     [](Graph& g) {
       g.tensors[3].strides = {1, 1};
     },
     "tensor 'y': strides [1, 1] of dims [2, 3] do not nest, so that elements may overlap"},
};
INSTANTIATE_TEST_SUITE_P(Uses, GraphErrors, testing::ValuesIn(kUses), name_of<Graph>);

}  // namespace
}  // namespace fusor::graph_errors_test
