// The mistakes that the front-end answers itself: tensors, names, uids, outputs.
#include <gtest/gtest.h>

#include "frontend/graph_builder.h"
#include "tests/errors/mistake.h"

namespace fusor::builder_errors_test {
namespace {

using G = GraphBuilder;

class BuilderErrors : public testing::TestWithParam<Mistake<G>> {};

TEST_P(BuilderErrors, SayWhatIsWrong) {
  G g("net");
  expect_message(GetParam().message, [&] { GetParam().make(g); });
}

Tensor half(G& g, const char* name, const Dims& dims) { return g.input(name, dims, DataType::f16); }

const Mistake<G> kTensors[] = {
    {"NameIsTaken",
     [](G& g) {
       half(g, "x", {2});
       half(g, "x", {3});
     },
     "tensor 'x': the name 'x' is taken"},
    {"NameOfAnEarlierResultIsTaken",
     [](G& g) {
       g.output(g.relu(half(g, "x", {2})), {.name = "y"});
       half(g, "relu1:y", {2});
     },
     "tensor 'relu1:y': the name 'relu1:y' is taken"},
    {"ResultNameIsTaken", [](G& g) { g.relu(half(g, "act:y", {2}), {.name = "act"}); },
     "tensor 'act:y': the name 'act:y' is taken"},
    {"UidIsTaken",
     [](G& g) {
       g.input("x", {2}, DataType::f16, {.uid = 7});
       g.input("y", {2}, DataType::f16, {.uid = 7});
     },
     "tensor 'y': uid 7 is taken by tensor 'x'"},
    {"StridesOfAnotherRank",
     [](G& g) {
       g.input("x", {2, 3}, DataType::f16, {.strides = Strides{3}});
     },
     "tensor 'x': dims [2, 3] and strides [3] have different ranks"},
    {"ExtentOfZero",
     [](G& g) {
       half(g, "x", {2, 0});
     },
     "tensor 'x': dims [2, 0] have an extent below 1"},
    {"AlignmentOfThree", [](G& g) { g.input("x", {2}, DataType::f16, {.alignment = 3}); },
     "tensor 'x': alignment 3 is not a power of two"},
    {"ScalarWithoutName", [](G& g) { g.scalar("", DataType::f32); }, "the tensor with uid 1 has no name"},
    {"NineDims",
     [](G& g) {
       half(g, "x", {1, 1, 1, 1, 1, 1, 1, 1, 2});
     },
     "a tensor has up to 8 dims; got 9: [1, 1, 1, 1, 1, 1, 1, 1, 2]"},
    {"ProductDoesNotFit",
     [](G& g) {
       half(g, "x", {int64_t{1} << 40, int64_t{1} << 40});
     },
     "tensor 'x': fp16 dims [1099511627776, 1099511627776] have more than 2^48 bytes of elements"},
    {"RepeatedElementsAreTooMany",
     [](G& g) {
       g.input("x", {int64_t{1} << 48, 2}, DataType::f16, {.strides = Strides{0, 1}});
     },
     "tensor 'x': fp16 dims [281474976710656, 2] have more than 2^48 bytes of elements, of which those "
     "count, "
     "too, that strides of 0 repeat"},
    {"ConstantIsNoInteger", [](G& g) { g.constant(0.5, DataType::i32); },
     "constant 0.5: is not a whole number of type int32"},
    {"ConstantIsTooBig", [](G& g) { g.constant(1e30, DataType::i64); },
     "constant 1e+30: is not a whole number of type int64"},
    {"ConstantIsBeyondItsType", [](G& g) { g.constant(300, DataType::i8); },
     "constant 300: is not a number of type int8, in which it would be 127"},
    {"ConstantIsBelowItsType", [](G& g) { g.constant(-1, DataType::u8); },
     "constant -1: is not a number of type uint8, in which it would be 0"},
};
INSTANTIATE_TEST_SUITE_P(Tensors, BuilderErrors, testing::ValuesIn(kTensors), name_of<G>);

const Mistake<G> kOps[] = {
    {"NameIsTaken",
     [](G& g) {
       const Tensor x = half(g, "x", {2});
       g.relu(x, {.name = "act"});
       g.neg(x, {.name = "act"});
     },
     "neg 'act': another op has that name"},
    {"SlopeOfIntegersIsNoInteger",
     [](G& g) {
       const Tensor x = g.input("x", {2}, DataType::i32);
       g.relu(x, {.lower_clip_slope = 0.25, .name = "act"});
     },
     "relu 'act': lower_clip_slope 0.25 is no whole number; compute type int32 has only these"},
    {"TensorOfAnotherBuilder",
     [](G& g) {
       G other;
       g.relu(half(other, "x", {2, 3}));
     },
     "relu 'relu1': tensor 'x' [2, 3] belongs to graph 'graph' of another builder, not to graph 'net'"},
    {"TensorOfAnotherBuilderWithOurUid",
     [](G& g) {
       G other;
       half(g, "a", {2, 3});
       g.relu(half(other, "b", {2, 3}));
     },
     "relu 'relu1': tensor 'b' [2, 3] belongs to graph 'graph' of another builder, not to graph 'net'"},
    {"TensorOfAnotherBuilderWithOurName",
     [](G& g) {
       G other;
       half(g, "x", {4});
       g.relu(half(other, "x", {2, 3}));
     },
     "relu 'relu1': tensor 'x' [2, 3] belongs to graph 'graph' of another builder, not to graph 'net'"},
    {"TensorOfAnotherBuilderAlikeInAllButTheType",
     [](G& g) {
       G other("twin");
       g.input("x", {2, 3}, DataType::f32);
       g.relu(half(other, "x", {2, 3}));
     },
     "relu 'relu1': tensor 'x' [2, 3] belongs to graph 'twin' of another builder, not to graph 'net'"},
    {"TensorOfAFinishedGraph",
     [](G& g) {
       const Graph graph = g.finish({g.relu(half(g, "x", {2, 3}))});
       g.neg(graph.tensors[0]);
     },
     "neg 'neg2': tensor 'x' [2, 3] belongs to no builder, not to graph 'net'"},
    {"TensorOfACopyOfTheBuilder",
     [](G& g) {
       G copy = g;
       g.relu(half(copy, "x", {2, 3}));
     },
     "relu 'relu1': tensor 'x' [2, 3] with uid 1 does not belong to graph 'net'"},
};
INSTANTIATE_TEST_SUITE_P(Ops, BuilderErrors, testing::ValuesIn(kOps), name_of<G>);

const Mistake<G> kOutputs[] = {
    {"Twice",
     [](G& g) {
       const Tensor y = g.relu(half(g, "x", {2}));
       g.output(y);
       g.output(y);
     },
     "output: tensor 'relu1:y' is an output already"},
    {"TwiceAfterAConversion",
     [](G& g) {
       const Tensor x = half(g, "x", {2});
       g.output(x);
       g.output(x);
     },
     "output: tensor 'x' is an output already"},
    {"OfAnotherBuilder",
     [](G& g) {
       G other;
       g.output(half(other, "x", {2}));
     },
     "output: tensor 'x' [2] belongs to graph 'graph' of another builder, not to graph 'net'"},
    {"NameIsTaken", [](G& g) { g.output(g.relu(half(g, "x", {2})), {.name = "x"}); },
     "output 'x': the name 'x' is taken"},
    {"NameOfItsOwnInputIsTaken", [](G& g) { g.output(half(g, "x", {2}), {.name = "x"}); },
     "output 'x': the name 'x' is taken"},
    {"UidIsTaken", [](G& g) { g.output(g.relu(half(g, "x", {2})), {.uid = 1}); },
     "output 'relu1:y': uid 1 is taken by tensor 'x'"},
    {"ElementsOverlap",
     [](G& g) {
       g.output(g.relu(half(g, "x", {2, 3})), {.strides = Strides{2, 1}});
     },
     "tensor 'relu1:y': strides [2, 1] of dims [2, 3] do not nest, so that elements may overlap"},
    {"FinishOfAnotherBuilder",
     [](G& g) {
       G other;
       g.relu(half(g, "x", {2}));
       g.finish({half(other, "z", {2})});
     },
     "finish: tensor 'z' [2] belongs to graph 'graph' of another builder, not to graph 'net'"},
    {"ResultUnused",
     [](G& g) {
       const Tensor x = half(g, "x", {2});
       const Tensor y = g.neg(x);
       g.exp(x);
       g.relu(x);
       g.finish({y});
     },
     "op 'exp2' has a result that nothing uses"},
    {"NoOutput",
     [](G& g) {
       g.relu(half(g, "x", {2}));
       g.finish();
     },
     "graph 'net' has no output"},
    {"NoOps",
     [](G& g) {
       half(g, "x", {2});
       g.finish();
     },
     "graph 'net' has no ops"},
};
INSTANTIATE_TEST_SUITE_P(Outputs, BuilderErrors, testing::ValuesIn(kOutputs), name_of<G>);

}  // namespace
}  // namespace fusor::builder_errors_test
