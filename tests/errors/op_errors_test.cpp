// The mistakes that ops answer (core/infer), made through the front-end.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "frontend/graph_builder.h"
#include "tests/errors/mistake.h"

namespace fusor {
namespace {

using G = GraphBuilder;

class OpErrors : public testing::TestWithParam<Mistake<G>> {};

TEST_P(OpErrors, SayWhatIsWrong) {
  G g;
  expect_message(GetParam().message, [&] { GetParam().make(g); });
}

Tensor half(G& g, const char* name, const Dims& dims) { return g.input(name, dims, DataType::f16); }
Tensor bytes(G& g, const char* name, const Dims& dims) { return g.input(name, dims, DataType::i8); }

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

const Mistake<G> kPointwise[] = {
    {"TooFewOperands", [](G& g) { g.pointwise(PointwiseMode::add, {half(g, "x", {2})}, {.name = "sum"}); },
     "add 'sum': takes 2 operands, got 1"},
    {"TooManyOperands",
     [](G& g) {
       const Tensor x = half(g, "x", {2});
       g.pointwise(PointwiseMode::relu, {x, x});
     },
     "relu 'relu1': takes 1 operand, got 2"},
    {"NoOperands", [](G& g) { g.pointwise(PointwiseMode::relu, {}); },
     "relu 'relu1': takes 1 operand, got 0"},
    {"DimsDoNotBroadcast",
     [](G& g) {
       g.add(half(g, "x", {2, 3}), half(g, "b", {2}), {.name = "sum"});
     },
     "add 'sum': 'b' [2] does not broadcast against [2, 3]"},
    {"ComputeTypeIsAStorageType", [](G& g) { g.neg(half(g, "x", {2}), {.compute = DataType::f16}); },
     "neg 'neg1': fp16 is not a compute type; choose fp32, fp64, int32 or int64"},
    {"RealModeInIntegers", [](G& g) { g.exp(bytes(g, "x", {2}), {.compute = DataType::i32}); },
     "exp 'exp1': is defined for real numbers, not for compute type int32; choose fp32 or fp64"},
    {"IndexInReals", [](G& g) { g.gen_index(half(g, "x", {2}), 0, {.compute = DataType::f32}); },
     "gen_index 'gen_index1': gives integers, not compute type fp32; choose int32 or int64"},
    {"IndexAxisOutOfRange",
     [](G& g) {
       g.gen_index(half(g, "x", {2, 3}), 2);
     },
     "gen_index 'gen_index1': axis 2 is out of range for 'x' [2, 3]"},
    {"ClipsCross", [](G& g) { g.relu(half(g, "x", {2}), {.lower_clip = 6, .upper_clip = 1}); },
     "relu 'relu1': lower_clip 6 is above upper_clip 1"},
    {"ClipIsNoNumber", [](G& g) { g.relu_bwd(half(g, "dy", {2}), half(g, "x", {2}), {.lower_clip = kNaN}); },
     "relu_bwd 'relu_bwd1': lower_clip is NaN"},
    {"ParameterIsNoNumber", [](G& g) { g.elu(half(g, "x", {2}), {.elu_alpha = kNaN}); },
     "elu 'elu1': elu_alpha is NaN"},
    {"ParameterOfAnotherMode", [](G& g) { g.gelu(half(g, "x", {2}), {.lower_clip_slope = 0.1}); },
     "gelu 'gelu1': has no attribute 'lower_clip_slope'"},
    {"SoftplusOfNothing", [](G& g) { g.softplus(half(g, "x", {2}), {.softplus_beta = 0}); },
     "softplus 'softplus1': softplus_beta is 0"},
    {"ResultIsTooBig",
     [](G& g) {
       g.add(half(g, "x", {int64_t{1} << 40, 1}), half(g, "b", {int64_t{1} << 40}));
     },
     "add 'add1': a result of dims [1099511627776, 1099511627776] takes more than 2^48 bytes at 8 bytes an "
     "element"},
};
INSTANTIATE_TEST_SUITE_P(Pointwise, OpErrors, testing::ValuesIn(kPointwise), name_of<G>);

const Mistake<G> kReduction[] = {
    {"ExtentDoesNotDivide",
     [](G& g) {
       g.reduce_to(half(g, "x", {2, 12}), ReductionMode::add, {2, 5});
     },
     "add reduction 'add1': axis 1: the result's extent 5 does not divide 12 of 'x'"},
    {"ExtentOfZero",
     [](G& g) {
       g.reduce_to(half(g, "x", {2, 12}), ReductionMode::max, {0, 1});
     },
     "max reduction 'max1': axis 0: the result's extent 0 does not divide 2 of 'x'"},
    {"RanksDiffer",
     [](G& g) {
       g.reduce_to(half(g, "x", {2, 12}), ReductionMode::add, {2});
     },
     "add reduction 'add1': result dims [2] and 'x' [2, 12] have different ranks"},
    {"AxisOutOfRange",
     [](G& g) {
       g.reduce(half(g, "x", {2, 12}), ReductionMode::add, {-3}, {.name = "sum"});
     },
     "add reduction 'sum': axis -3 is out of range for 'x' [2, 12]"},
    {"AverageInIntegers",
     [](G& g) { g.reduce(bytes(g, "x", {2}), ReductionMode::avg, {}, {.compute = DataType::i32}); },
     "avg reduction 'avg1': is defined for real numbers, not for compute type int32; choose fp32 or fp64"},
    {"Norm2InIntegers",
     [](G& g) { g.reduce(bytes(g, "x", {2}), ReductionMode::norm2, {}, {.compute = DataType::i64}); },
     "norm2 reduction 'norm21': is defined for real numbers, not for compute type int64; choose fp32 or "
     "fp64"},
    {"ComputeTypeIsAStorageType",
     [](G& g) { g.reduce(half(g, "x", {2}), ReductionMode::add, {}, {.compute = DataType::bf16}); },
     "add reduction 'add1': bf16 is not a compute type; choose fp32, fp64, int32 or int64"},
    {"OfAScalar", [](G& g) { g.reduce(g.scalar("alpha", DataType::f32), ReductionMode::add); },
     "add reduction 'add1': 'alpha' is a by-value scalar; only pointwise ops take those"},
};
const Mistake<G> kGather[] = {
    {"AxisOutOfRange",
     [](G& g) {
       g.gather(half(g, "x", {2, 3}), g.input("i", {2, 3}, DataType::i32), {.axis = 2});
     },
     "gather 'gather1': axis 2 is out of range for 'x' [2, 3]"},
    {"IndexIsReal",
     [](G& g) {
       g.gather(half(g, "x", {2, 3}), half(g, "i", {2, 3}));
     },
     "gather 'gather1': the index 'i' is fp16; it must be int32 or int64"},
    {"IndexOfAnotherRank",
     [](G& g) {
       g.gather(half(g, "x", {2, 3}), g.input("i", {2}, DataType::i32));
     },
     "gather 'gather1': the index 'i' [2] and 'x' [2, 3] have different ranks"},
    {"IndexDoesNotBroadcast",
     [](G& g) {
       g.gather(half(g, "x", {2, 3}), g.input("i", {5, 2}, DataType::i32));
     },
     "gather 'gather1': the index 'i' [5, 2] and 'x' [2, 3] do not broadcast in the axes other than 0"},
    {"OfAScalar", [](G& g) { g.gather(g.scalar("alpha", DataType::f32), g.input("i", {1}, DataType::i32)); },
     "gather 'gather1': 'alpha' is a by-value scalar; only pointwise ops take those"},
};

const Mistake<G> kScatter[] = {
    {"IndexDoesNotBroadcastToTheOperand",
     [](G& g) {
       g.scatter(half(g, "x", {1, 3}), g.input("i", {5, 3}, DataType::i32), {5, 3}, {.axis = 1});
     },
     "scatter 'scatter1': the index 'i' [5, 3] does not broadcast to 'x' [1, 3]"},
    {"ManyElementsInOnePlace",
     [](G& g) { g.scatter(half(g, "x", {3}), g.input("i", {1}, DataType::i32), {4}); },
     "scatter 'scatter1': the index 'i' [1] gives many elements of 'x' [3] one place: it must vary along "
     "axis 0"},
    {"ResultHasOtherExtents",
     [](G& g) {
       g.scatter(half(g, "x", {2, 3}), g.input("i", {2, 1}, DataType::i32), {7, 4});
     },
     "scatter 'scatter1': the result [7, 4] has neither the extents of 'x' [2, 3] nor 1 in the axes other "
     "than 0"},
    {"ResultLacksTheAxis",
     [](G& g) {
       g.scatter(half(g, "x", {2, 3}), g.input("i", {2, 1}, DataType::i32), {3});
     },
     "scatter 'scatter1': the result [3] has neither the extents of 'x' [2, 3] nor 1 in the axes other than "
     "0"},
    {"ResultIsReadAgain",
     [](G& g) {
       const Tensor x = half(g, "x", {2, 3});
       g.output(g.relu(g.scatter(x, g.input("i", {2, 1}, DataType::i32), {7, 3})));
       g.finish();
     },
     "scatter 'scatter1': writes some elements of 'scatter1:y' only, which must be an output that no op "
     "reads"},
    {"RaggedRowsAreReadAgain",
     [](G& g) {
       const Tensor x = half(g, "x", {2, 3});
       const Tensor y =
           g.output(g.ragged_store(x, g.input("o", {3}, DataType::i32), 9, {1}, {}, true), {.name = "y"});
       g.output(g.relu(y));
       g.finish();
     },
     "ragged_store 'ragged_store1': writes some elements of 'y' only, which must be an output that no op "
     "reads"},
};

Tensor ints(G& g, const char* name, const Dims& dims) { return g.input(name, dims, DataType::i32); }

const Mistake<G> kRandom[] = {
    {"SeedIsReal", [](G& g) { g.rng({4}, half(g, "seed", {1}), ints(g, "offset", {1})); },
     "rng_uniform 'rng_uniform1': seed 'seed' is fp16 [1]; it must be one integer"},
    {"ProbabilityAboveOne",
     [](G& g) {
       g.rng({4}, ints(g, "seed", {1}), ints(g, "offset", {1}),
             {.distribution = Distribution::bernoulli, .probability = 1.5});
     },
     "rng_bernoulli 'rng_bernoulli1': probability 1.5 is outside 0 to 1"},
    {"RangeEndsBeforeItBegins",
     [](G& g) { g.rng({4}, ints(g, "seed", {1}), ints(g, "offset", {1}), {.low = 2, .high = 1}); },
     "rng_uniform 'rng_uniform1': low 2 and high 1 are no range"},
    {"DropsEverything",
     [](G& g) { g.dropout(half(g, "x", {4}), ints(g, "seed", {1}), ints(g, "offset", {1}), 1); },
     "dropout 'dropout1': probability 1 is not in 0 to below 1"},
    {"WordsInReals",
     [](G& g) {
       const Tensor x = ints(g, "x", {1});
       g.philox(x, x, x, {.compute = DataType::f32});
     },
     "philox 'philox1': gives words of 32 bits; its compute type is int64, not fp32"},
};
INSTANTIATE_TEST_SUITE_P(Random, OpErrors, testing::ValuesIn(kRandom), name_of<G>);

const Mistake<G> kRows[] = {
    {"TableOfReals",
     [](G& g) {
       g.paged_cache_load(half(g, "c", {4, 2, 8, 8}), half(g, "t", {1, 1, 2, 1}));
     },
     "paged_cache_load 'paged_cache_load1': 't' is fp16; it must be int32 or int64"},
    {"MoreRowsThanPages",
     [](G& g) {
       g.paged_cache_load(half(g, "c", {4, 2, 8, 8}), ints(g, "t", {1, 1, 2, 1}), {.max_seq_len = 17});
     },
     "paged_cache_load 'paged_cache_load1': max_seq_len 17 is not within the 16 rows of the page table 't'"},
    {"OffsetsOfAnotherBatch",
     [](G& g) {
       g.ragged_load(half(g, "x", {64}), ints(g, "o", {2}), {2, 4}, {1});
     },
     "ragged_load 'ragged_load1': 'o' [2] has 2 offsets; 2 batch entries need 3"},
    {"StridesDoNotNest",
     [](G& g) {
       g.ragged_store(half(g, "x", {2, 4, 4}), ints(g, "o", {3}), 64, {2, 1});
     },
     "ragged_store 'ragged_store1': strides [2, 1] of dims [2, 4, 4] do not nest, so that elements would "
     "share a "
     "place"},
    {"IndexWithoutAMode",
     [](G& g) {
       g.moe_grouped_matmul(half(g, "x", {4, 8}), half(g, "w", {2, 8, 8}), ints(g, "f", {2, 1, 1}),
                            {.token_index = ints(g, "i", {4})});
     },
     "moe_grouped_matmul 'moe_grouped_matmul1': mode none does not take the operand token_index"},
    {"WeightsOfAnotherDepth",
     [](G& g) {
       g.moe_grouped_matmul(half(g, "x", {4, 8}), half(g, "w", {2, 9, 8}), ints(g, "f", {2, 1, 1}));
     },
     "moe_grouped_matmul 'moe_grouped_matmul1': weights [2, 9, 8] are not [experts, 8, n]"},
    {"BlocksOfNothing", [](G& g) { g.block_scale_quantize(half(g, "x", {4}), {.block_size = 0}); },
     "block_scale_quantize 'block_scale_quantize1': block_size 0 is below 1"},
    {"ScalesOfOtherBlocks", [](G& g) { g.block_scale_dequantize(half(g, "x", {64}), half(g, "s", {3})); },
     "block_scale_dequantize 'block_scale_dequantize1': scale is [3]; it must be [2]"},
};
INSTANTIATE_TEST_SUITE_P(Rows, OpErrors, testing::ValuesIn(kRows), name_of<G>);

void attend(G& g, const Dims& k, const SdpaOptions& options = {}) {
  g.sdpa_fwd(half(g, "q", {2, 4, 8, 16}), half(g, "k", k), half(g, "v", {2, 2, 8, 16}), options);
}

const Mistake<G> kSdpa[] = {
    {"DepthsDiffer",
     [](G& g) {
       attend(g, {2, 2, 8, 8});
     },
     "sdpa_fwd 'sdpa_fwd1': q [2, 4, 8, 16], k [2, 2, 8, 8] and v [2, 2, 8, 16] do not fit: one batch, one "
     "depth of "
     "q and k, one length of k and v"},
    {"HeadsDoNotDivide",
     [](G& g) {
       attend(g, {2, 3, 8, 16});
     },
     "sdpa_fwd 'sdpa_fwd1': the 3 heads of k or v do not divide the 4 of q"},
    {"NoAxisOfHeads",
     [](G& g) {
       attend(g, {2, 8, 16});
     },
     "sdpa_fwd 'sdpa_fwd1': k 'k' [2, 8, 16] needs 4 axes: batch, heads, sequence, depth"},
    {"EmptyWindow",
     [](G& g) {
       attend(g, {2, 2, 8, 16}, {.attributes = {.left_bound = 0}});
     },
     "sdpa_fwd 'sdpa_fwd1': left_bound 0 is neither 1 or more keys nor -1 (none)"},
    {"PaddingWithoutLengths",
     [](G& g) {
       attend(g, {2, 2, 8, 16}, {.attributes = {.padding_mask = true}});
     },
     "sdpa_fwd 'sdpa_fwd1': padding_mask needs the operands seq_len_q and seq_len_kv"},
    {"LengthsWithoutPadding",
     [](G& g) {
       attend(g, {2, 2, 8, 16}, {.seq_len_kv = g.input("lengths", {2, 1, 1, 1}, DataType::i32)});
     },
     "sdpa_fwd 'sdpa_fwd1': seq_len_kv is given, but padding_mask, which makes use of it, is false"},
    {"CountOfPagedKeysWithoutPages",
     [](G& g) {
       attend(g, {2, 2, 8, 16}, {.attributes = {.max_seq_len_kv = 8}});
     },
     "sdpa_fwd 'sdpa_fwd1': max_seq_len_kv 8 counts the keys of page tables, and none is given"},
    {"DropoutWithoutSeed",
     [](G& g) {
       attend(g, {2, 2, 8, 16}, {.attributes = {.dropout_probability = 0.5}});
     },
     "sdpa_fwd 'sdpa_fwd1': dropout needs the operands seed and offset"},
};
INSTANTIATE_TEST_SUITE_P(Sdpa, OpErrors, testing::ValuesIn(kSdpa), name_of<G>);

INSTANTIATE_TEST_SUITE_P(Scatter, OpErrors, testing::ValuesIn(kScatter), name_of<G>);
INSTANTIATE_TEST_SUITE_P(Gather, OpErrors, testing::ValuesIn(kGather), name_of<G>);
INSTANTIATE_TEST_SUITE_P(Reduction, OpErrors, testing::ValuesIn(kReduction), name_of<G>);

const Mistake<G> kMatmul[] = {
    {"InnerExtentsDiffer",
     [](G& g) {
       g.matmul(half(g, "x", {4, 3}), half(g, "w", {5, 6}), {.name = "fc1"});
     },
     "matmul 'fc1': a [4, 3] has k=3, b [5, 6] has k=5"},
    {"VectorOnTheLeft",
     [](G& g) {
       g.matmul(half(g, "x", {5}), half(g, "w", {5, 6}));
     },
     "matmul 'matmul1': a [5] is a vector; reshape it to [1, 5]"},
    {"VectorOnTheRight",
     [](G& g) {
       g.matmul(half(g, "x", {4, 5}), half(g, "w", {5}));
     },
     "matmul 'matmul1': b [5] is a vector; reshape it to [5, 1]"},
    {"BatchesDoNotBroadcast",
     [](G& g) {
       g.matmul(half(g, "x", {2, 4, 5}), half(g, "w", {3, 5, 6}));
     },
     "matmul 'matmul1': batch dims [2] of a and [3] of b do not broadcast"},
    {"ComputeTypeIsAStorageType",
     [](G& g) {
       g.matmul(half(g, "x", {4, 5}), half(g, "w", {5, 6}), {.compute = DataType::f16});
     },
     "matmul 'matmul1': fp16 is not a compute type; choose fp32, fp64, int32 or int64"},
    {"OfAScalar",
     [](G& g) {
       g.matmul(half(g, "x", {4, 5}), g.constant(2));
     },
     "matmul 'matmul1': 'const1' is a by-value scalar; only pointwise ops take those"},
};
INSTANTIATE_TEST_SUITE_P(Matmul, OpErrors, testing::ValuesIn(kMatmul), name_of<G>);

// x [2, 64, 8, 8] and w of the given dims.
void convolve(G& g, const Dims& w, ConvOptions options = {}) {
  options.name = "c1";
  g.conv_fprop(half(g, "x", {2, 64, 8, 8}), half(g, "w", w), options);
}

const Mistake<G> kConv[] = {
    {"ChannelsDiffer",
     [](G& g) {
       convolve(g, {32, 48, 3, 3});
     },
     "conv_fprop 'c1': x has C=64, w expects C=48 or a multiple of it"},
    {"FiltersDoNotDivideIntoGroups",
     [](G& g) {
       convolve(g, {30, 16, 3, 3});
     },
     "conv_fprop 'c1': K=30 of w is not divisible by the 4 groups (C=64 of x / C=16 of w)"},
    {"GroupsContradictTheChannels",
     [](G& g) {
       g.conv_fprop(half(g, "x", {1, 64, 8, 8}), half(g, "w", {32, 16, 3, 3}), {.groups = 2, .name = "c1"});
     },
     "conv_fprop 'c1': groups is 2, but C=64 of x and C=16 of w make 4"},
    {"WindowIsTooBig",
     [](G& g) {
       convolve(g, {32, 64, 3, 5}, {.pre_padding = {0, 1}, .dilation = {1, 3}});
     },
     "conv_fprop 'c1': spatial dim 1: a window of 5 with dilation 3 does not fit the padded extent 9"},
    {"RankTooSmall",
     [](G& g) {
       g.conv_fprop(half(g, "x", {2, 64}), half(g, "w", {32, 64}));
     },
     "conv_fprop 'conv_fprop1': x [2, 64] has rank 2; a convolution takes N, C and 1 to 3 spatial dims"},
    {"RankTooBig",
     [](G& g) {
       g.conv_fprop(half(g, "x", {2, 64, 1, 1, 1, 1}), half(g, "w", {32, 64, 1, 1, 1, 1}));
     },
     "conv_fprop 'conv_fprop1': x [2, 64, 1, 1, 1, 1] has rank 6; a convolution takes N, C and 1 to 3 "
     "spatial dims"},
    {"RanksDiffer",
     [](G& g) {
       convolve(g, {32, 64, 3});
     },
     "conv_fprop 'c1': x [2, 64, 8, 8] and w [32, 64, 3] have different ranks"},
    {"TooFewStrides",
     [](G& g) {
       convolve(g, {32, 64, 3, 3}, {.stride = {1}});
     },
     "conv_fprop 'c1': stride [1] has 1 entries; it needs one for each of the 2 spatial dims"},
    {"TooManyPaddings",
     [](G& g) {
       convolve(g, {32, 64, 3, 3}, {.padding = {1, 1, 1}});
     },
     "conv_fprop 'c1': pre_padding [1, 1, 1] has 3 entries; it needs one for each of the 2 spatial dims"},
    {"NegativePadding",
     [](G& g) {
       convolve(g, {32, 64, 3, 3}, {.post_padding = {0, -1}});
     },
     "conv_fprop 'c1': post_padding [0, -1] has an entry outside 0 to 2147483647"},
    {"StrideOfZero",
     [](G& g) {
       convolve(g, {32, 64, 3, 3}, {.stride = {0, 1}});
     },
     "conv_fprop 'c1': stride [0, 1] has an entry outside 1 to 2147483647"},
    {"DilationOfZero",
     [](G& g) {
       convolve(g, {32, 64, 3, 3}, {.dilation = {1, 0}});
     },
     "conv_fprop 'c1': dilation [1, 0] has an entry outside 1 to 2147483647"},
    {"PaddingGivenTwice",
     [](G& g) {
       convolve(g, {32, 64, 3, 3}, {.padding = {1, 1}, .pre_padding = {1, 1}});
     },
     "conv_fprop 'c1': give padding, or pre_padding and post_padding, not both"},
    {"ComputeTypeIsAStorageType",
     [](G& g) {
       convolve(g, {32, 64, 3, 3}, {.compute = DataType::f16});
     },
     "conv_fprop 'c1': fp16 is not a compute type; choose fp32, fp64, int32 or int64"},
    {"DgradDimsDoNotGiveDy",
     [](G& g) {
       g.conv_dgrad(half(g, "dy", {2, 8, 4, 4}), half(g, "w", {8, 4, 3, 3}), {2, 4, 8, 8},
                    {.stride = {2, 2}});
     },
     "conv_dgrad 'conv_dgrad1': dx [2, 4, 8, 8] and w [8, 4, 3, 3] give y [2, 8, 3, 3] in the forward "
     "direction, "
     "dy is [2, 8, 4, 4]"},
    {"WgradDimsDoNotGiveDy",
     [](G& g) {
       g.conv_wgrad(half(g, "dy", {2, 8, 4, 4}), half(g, "x", {2, 4, 8, 8}), {8, 4, 3, 3});
     },
     "conv_wgrad 'conv_wgrad1': x [2, 4, 8, 8] and dw [8, 4, 3, 3] give y [2, 8, 6, 6] in the forward "
     "direction, "
     "dy is [2, 8, 4, 4]"},
    {"DgradDimsMissing",
     [](G& g) {
       g.conv_dgrad(half(g, "dy", {2, 8, 4, 4}), half(g, "w", {8, 4, 3, 3}), {});
     },
     "conv_dgrad 'conv_dgrad1': dx [] has rank 0; a convolution takes N, C and 1 to 3 spatial dims"},
    {"WgradDimsOfZero",
     [](G& g) {
       g.conv_wgrad(half(g, "dy", {2, 8, 4, 4}), half(g, "x", {2, 4, 8, 8}), {8, 0, 5, 5});
     },
     "conv_wgrad 'conv_wgrad1': dw [8, 0, 5, 5] has an extent below 1"},
};
INSTANTIATE_TEST_SUITE_P(Conv, OpErrors, testing::ValuesIn(kConv), name_of<G>);

const Mistake<G> kMoves[] = {
    {"ReshapeChangesTheCount",
     [](G& g) {
       g.reshape(half(g, "x", {2, 6}), {5, 2});
     },
     "reshape 'reshape1': 'x' [2, 6] has 12 elements, dims [5, 2] have 10"},
    {"ReshapeToNothing",
     [](G& g) {
       g.reshape(half(g, "x", {2, 6}), {});
     },
     "reshape 'reshape1': the dims of the result are missing"},
    {"ReshapeToNegativeExtents",
     [](G& g) {
       g.reshape(half(g, "x", {2, 6}), {-3, -4});
     },
     "reshape 'reshape1': dims [-3, -4] has an extent below 1"},
    {"TransposeRepeatsAnAxis",
     [](G& g) {
       g.transpose(half(g, "x", {2, 3, 4}), {0, 0, 1});
     },
     "transpose 'transpose1': [0, 0, 1] is not a permutation of the 3 axes of 'x'"},
    {"TransposeLeavesAnAxisOut",
     [](G& g) {
       g.transpose(half(g, "x", {2, 3, 4}), {1, 0});
     },
     "transpose 'transpose1': [1, 0] is not a permutation of the 3 axes of 'x'"},
    {"SlicePastTheEnd",
     [](G& g) {
       g.slice(half(g, "x", {4, 6}), {0, 2}, {4, 7});
     },
     "slice 'slice1': axis 1: start 2 and limit 7 do not keep 0 <= start < limit <= 6"},
    {"SliceOfNothing",
     [](G& g) {
       g.slice(half(g, "x", {4, 6}), {3, 0}, {3, 6});
     },
     "slice 'slice1': axis 0: start 3 and limit 3 do not keep 0 <= start < limit <= 4"},
    {"SliceFromBeforeTheStart",
     [](G& g) {
       g.slice(half(g, "x", {4, 6}), {-1, 0}, {3, 6});
     },
     "slice 'slice1': axis 0: start -1 and limit 3 do not keep 0 <= start < limit <= 4"},
    {"SliceStepOfZero",
     [](G& g) {
       g.slice(half(g, "x", {4, 6}), {0, 0}, {4, 6}, {1, 0});
     },
     "slice 'slice1': axis 1: step 0 is less than 1"},
    {"SliceLeavesAnAxisOut",
     [](G& g) {
       g.slice(half(g, "x", {4, 6}), {0}, {4, 6});
     },
     "slice 'slice1': start [0] has 1 entries; it needs one for each of the 2 axes"},
    {"ConcatenateNothing", [](G& g) { g.concatenate(std::vector<Tensor>{}, 0); },
     "concatenate 'concatenate1': takes 1 operand or more, got 0"},
    {"ConcatenateOtherDims",
     [](G& g) {
       g.concatenate({half(g, "a", {2, 3}), half(g, "b", {4, 5})}, 1);
     },
     "concatenate 'concatenate1': 'a' [2, 3] and 'b' [4, 5] may differ in axis 1 alone"},
    {"ConcatenateOtherRanks",
     [](G& g) {
       g.concatenate({half(g, "a", {2, 3}), half(g, "b", {2})}, 1);
     },
     "concatenate 'concatenate1': 'a' [2, 3] and 'b' [2] may differ in axis 1 alone"},
    {"ConcatenateOtherTypes",
     [](G& g) {
       g.concatenate({half(g, "a", {2, 3}), bytes(g, "b", {2, 3})}, 0);
     },
     "concatenate 'concatenate1': 'a' is fp16, 'b' is int8; the types must be equal"},
    {"ConcatenateAxisOutOfRange",
     [](G& g) {
       g.concatenate({half(g, "a", {2, 3})}, -3);
     },
     "concatenate 'concatenate1': axis -3 is out of range for 'a' [2, 3]"},
    {"ViewOfAScalar",
     [](G& g) {
       g.reshape(g.scalar("alpha", DataType::f32), {1, 1});
     },
     "reshape 'reshape1': 'alpha' is a by-value scalar; only pointwise ops take those"},
    {"ViewInAnotherType",
     [](G& g) {
       g.reshape(half(g, "x", {4}), {2, 2}, {.type = DataType::f32});
     },
     "reshape 'reshape1': moves elements of type fp16; convert with identity to get fp32"},
    {"ViewWithAComputeType",
     [](G& g) {
       g.transpose(half(g, "x", {2, 2}), {1, 0}, {.compute = DataType::f32});
     },
     "transpose 'transpose1': only moves elements; it has no compute type"},
};
INSTANTIATE_TEST_SUITE_P(Moves, OpErrors, testing::ValuesIn(kMoves), name_of<G>);

}  // namespace
}  // namespace fusor
