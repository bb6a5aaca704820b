// The mistakes that composites answer (core/ops), made through the front-end.
#include <gtest/gtest.h>

#include <vector>

#include "frontend/graph_builder.h"
#include "tests/errors/mistake.h"

namespace fusor::composite_errors_test {
namespace {

using G = GraphBuilder;

class CompositeErrors : public testing::TestWithParam<Mistake<G>> {};

TEST_P(CompositeErrors, SayWhatIsWrong) {
  G g;
  expect_message(GetParam().message, [&] { GetParam().make(g); });
}

Tensor half(G& g, const char* name, const Dims& dims) { return g.input(name, dims, DataType::f16); }
Tensor ints(G& g, const char* name, const Dims& dims) { return g.input(name, dims, DataType::i32); }

const Mistake<G> kSoftmax[] = {
    {"AxisOutOfRange",
     [](G& g) {
       g.softmax(half(g, "x", {2, 3}), {.axis = 2, .name = "s"});
     },
     "softmax 's': axis 2 is out of range for 'x' [2, 3]"},
    {"AxisOutOfRangeFromTheBack",
     [](G& g) {
       g.softmax(half(g, "x", {2, 3}), {.axis = -9, .name = "s"});
     },
     "softmax 's': axis -9 is out of range for 'x' [2, 3]"},
    {"SinkHasColumns",
     [](G& g) {
       g.softmax(half(g, "x", {2, 3}), {.sink = half(g, "k", {3}), .name = "s"});
     },
     "softmax 's': sink [3] does not broadcast to [2, 1]"},
    {"SinkWithoutItsLogarithm",
     [](G& g) {
       g.softmax_bwd(half(g, "dy", {2, 3}), half(g, "y", {2, 3}), {.sink = half(g, "k", {1}), .name = "s"});
     },
     "softmax_bwd 's': the gradient of the sink takes both sink and logsumexp; only sink is there"},
    {"GradientOfNoSink",
     [](G& g) {
       const SoftmaxGradients all = g.softmax_bwd(half(g, "dy", {2, 3}), half(g, "y", {2, 3}), {.name = "s"});
       g.finish({all.dx, all.dsink});
     },
     "softmax_bwd 's': dsink is asked for, but the operands sink and logsumexp are left out"},
    {"LabelsAreReal",
     [](G& g) {
       g.cross_entropy(half(g, "x", {2, 3}), half(g, "l", {2, 1}), {.name = "c"});
     },
     "cross_entropy 'c': labels is fp16; it must be an integer type"},
    {"LabelsAreAVector",
     [](G& g) {
       g.cross_entropy(half(g, "x", {2, 3}), ints(g, "l", {2}), {.name = "c"});
     },
     "cross_entropy 'c': labels is [2]; it must be [2, 1]"},
    {"TooSmooth",
     [](G& g) {
       g.cross_entropy(half(g, "x", {2, 3}), ints(g, "l", {2, 1}), {.label_smoothing = 2, .name = "c"});
     },
     "cross_entropy 'c': label_smoothing 2 is outside 0 to 1"},
};
INSTANTIATE_TEST_SUITE_P(Softmax, CompositeErrors, testing::ValuesIn(kSoftmax), name_of<G>);

const Mistake<G> kNorm[] = {
    {"XIsAScalar", [](G& g) { g.norm_fwd(g.scalar("x", DataType::f32), {.name = "n"}); },
     "norm_fwd 'n': the operand x, 'x', is a by-value scalar; it must be a tensor"},
    {"AxisTwice",
     [](G& g) {
       g.norm_fwd(half(g, "x", {2, 3}), {.axes = {1, -1}, .name = "n"});
     },
     "norm_fwd 'n': axes [1, 1] name one twice"},
    {"AxesOfBatchNorm",
     [](G& g) {
       g.norm_fwd(half(g, "x", {2, 3}), {.norm = NormMode::batch_norm, .axes = {1}, .name = "n"});
     },
     "norm_fwd 'n': batch_norm has no axes of its own; got [1]"},
    {"InstancesWithoutSpace",
     [](G& g) {
       g.norm_fwd(half(g, "x", {2, 3}), {.norm = NormMode::instance_norm, .name = "n"});
     },
     "norm_fwd 'n': x [2, 3] has rank 2; instance_norm takes N, C and spatial dims"},
    {"GroupsDoNotDivide",
     [](G& g) {
       g.norm_fwd(half(g, "x", {2, 6, 4}), {.norm = NormMode::group_norm, .groups = 4, .name = "n"});
     },
     "norm_fwd 'n': groups 4 do not divide the C=6 of x [2, 6, 4]"},
    {"GroupsOfLayerNorm",
     [](G& g) {
       g.norm_fwd(half(g, "x", {2, 6}), {.groups = 2, .name = "n"});
     },
     "norm_fwd 'n': layer_norm has no groups; got 2"},
    {"EpsilonBelowZero",
     [](G& g) {
       g.norm_fwd(half(g, "x", {2, 6}), {.epsilon = -1, .name = "n"});
     },
     "norm_fwd 'n': epsilon -1 is not 0 or more"},
    {"ScaleOfOtherColumns",
     [](G& g) {
       g.norm_fwd(half(g, "x", {2, 6}), {.scale = half(g, "s", {2}), .name = "n"});
     },
     "norm_fwd 'n': scale [2] does not broadcast to [2, 6]"},
    {"StatisticsInTraining",
     [](G& g) {
       g.norm_fwd(half(g, "x", {2, 6}),
                  {.mean = half(g, "m", {2, 1}), .inv_std = half(g, "i", {2, 1}), .name = "n"});
     },
     "norm_fwd 'n': computes mean and inv_std in training; they are operands in inference only"},
    {"MeanOfRmsNorm",
     [](G& g) {
       g.norm_fwd(half(g, "x", {2, 6}), {.norm = NormMode::rms_norm, .mean = half(g, "m", {2, 1})});
     },
     "rms_norm has neither a mean nor running statistics; got 'm'"},
    {"RunningStatisticsOfLayerNorm",
     [](G& g) {
       g.norm_fwd(half(g, "x", {2, 6}), {.prev_running_mean = half(g, "m", {2, 1}),
                                         .prev_running_var = half(g, "v", {2, 1}),
                                         .name = "n"});
     },
     "norm_fwd 'n': layer_norm has no running statistics"},
    {"NextStatisticsOfNone",
     [](G& g) {
       const NormResults all = g.norm_fwd(half(g, "x", {2, 6}), {.norm = NormMode::batch_norm, .name = "n"});
       g.finish({all.y, all.next_running_mean});
     },
     "norm_fwd 'n': next_running_mean is asked for, but the running statistics are left out"},
    {"BiasGradientWithoutScale",
     [](G& g) {
       const NormGradients all = g.norm_bwd(half(g, "dy", {2, 6}), half(g, "x", {2, 6}), {.name = "n"});
       g.finish({all.dx, all.dbias});
     },
     "norm_bwd 'n': dbias is asked for, but the operand scale is left out"},
    {"CountOfNothing",
     [](G& g) {
       const Tensor s = half(g, "s", {1, 4});
       g.bn_finalize(s, s, s, s, {.name = "n"});
     },
     "bn_finalize 'n': accumulation_count 0 is not the number of elements that were summed"},
};
INSTANTIATE_TEST_SUITE_P(Norm, CompositeErrors, testing::ValuesIn(kNorm), name_of<G>);

const Mistake<G> kWindows[] = {
    {"WindowOfOneDim",
     [](G& g) {
       g.resample_fwd(half(g, "x", {1, 2, 8, 8}), {.window = {2}, .name = "p"});
     },
     "resample_fwd 'p': window [2] has 1 entries; it needs one for each of the 2 spatial dims"},
    {"WindowIsTooWide",
     [](G& g) {
       g.resample_fwd(half(g, "x", {1, 2, 3}), {.window = {4}, .name = "p"});
     },
     "resample_fwd 'p': spatial dim 0: a window of 4 does not fit the padded extent 3"},
    {"WindowOfPaddingAlone",
     [](G& g) {
       g.resample_fwd(half(g, "x", {1, 2, 3}), {.mode = ResampleMode::avgpool_exclude_padding,
                                                .window = {2},
                                                .stride = {2},
                                                .pre_padding = {2},
                                                .name = "p"});
     },
     "resample_fwd 'p': spatial dim 0: a window of 2 lies in the padding alone (x has 3, padding 2 and 0)"},
    {"WindowOfInterpolation",
     [](G& g) {
       g.resample_fwd(half(g, "x", {1, 2, 3}),
                      {.mode = ResampleMode::bilinear, .window = {2}, .output_size = {6}, .name = "p"});
     },
     "resample_fwd 'p': bilinear has no window; got [2]"},
    {"CornersOfPooling",
     [](G& g) {
       g.resample_fwd(half(g, "x", {1, 2, 3}), {.window = {2}, .align_corners = true, .name = "p"});
     },
     "resample_fwd 'p': maxpool has no align_corners"},
    {"CoordinatesAreSaidTwice",
     [](G& g) {
       g.resample_fwd(half(g, "x", {1, 2, 3}), {.mode = ResampleMode::bilinear,
                                                .output_size = {6},
                                                .align_corners = true,
                                                .step = {1},
                                                .shift = {0},
                                                .denominator = {2},
                                                .name = "p"});
     },
     "resample_fwd 'p': says its coordinates twice: align_corners, and step, shift and denominator"},
    {"PaddingIsSaidTwice",
     [](G& g) {
       g.resample_fwd(half(g, "x", {1, 2, 3}),
                      {.window = {2}, .padding = {1}, .pre_padding = {1}, .name = "p"});
     },
     "resample_fwd 'p': give padding, or pre_padding and post_padding, not both"},
    {"MaximaOfNothing",
     [](G& g) {
       g.resample_bwd(half(g, "dy", {1, 2, 2}), {1, 2, 4}, {.window = {2}, .name = "p"});
     },
     "resample_bwd 'p': takes x or index, to know the maxima by"},
    {"DyOfOtherDims",
     [](G& g) {
       const Tensor x = half(g, "x", {1, 2, 4});
       g.resample_bwd(half(g, "dy", {1, 2, 3}), x.dims, {.window = {2}, .name = "p"}, x);
     },
     "resample_bwd 'p': dy is [1, 2, 3]; it must be [1, 2, 2]"},
    {"LrnOfNoChannels", [](G& g) { g.lrn(half(g, "x", {4}), {.name = "l"}); },
     "lrn 'l': x [4] has rank 1; it takes N, C and any spatial dims"},
    {"LrnOfNoWindow",
     [](G& g) {
       g.lrn(half(g, "x", {4, 4}), {.window = 0, .name = "l"});
     },
     "lrn 'l': window 0 is outside 1 to 1048576"},
    {"GridOfOtherImages",
     [](G& g) {
       g.grid_sample(half(g, "x", {2, 3, 4, 4}), half(g, "g", {1, 5, 5, 2}), {.name = "s"});
     },
     "grid_sample 's': grid [1, 5, 5, 2] is not [2, rows, columns, 2]"},
};
INSTANTIATE_TEST_SUITE_P(Windows, CompositeErrors, testing::ValuesIn(kWindows), name_of<G>);

const Mistake<G> kSequences[] = {
    {"UniformRangeIsBeyondFp32",
     [](G& g) {
       g.rng({4}, ints(g, "s", {1}), ints(g, "o", {1}), {.low = -2e38, .high = 2e38, .name = "u"});
     },
     "rng_uniform 'u': low -2e+38 and high 2e+38 are further apart than the largest number of fp32"},
    {"CausalWeightOfOtherChannels",
     [](G& g) {
       g.causal_conv1d(half(g, "x", {1, 4, 9}), half(g, "w", {3, 2}), {.name = "c"});
     },
     "causal_conv1d 'c': weight [3, 2] is not C=4 of x by the width"},
    {"CausalStatesOfOtherWidth",
     [](G& g) {
       g.causal_conv1d(half(g, "x", {1, 4, 9}), half(g, "w", {4, 3}),
                       {.initial_states = half(g, "s", {1, 4, 3}), .name = "c"});
     },
     "causal_conv1d 'c': initial_states is [1, 4, 3]; it must be [1, 4, 2]"},
    {"RnnOfNoSize",
     [](G& g) {
       g.rnn_fwd(half(g, "x", {3, 2, 4}), std::vector<Tensor>{}, {.name = "r"});
     },
     "rnn_fwd 'r': takes 8 operands, got 4"},
    {"RnnWeightOfOtherInputs",
     [](G& g) {
       const std::vector<Tensor> weights{half(g, "w", {5, 3}), half(g, "u", {5, 5})};
       g.rnn_fwd(half(g, "x", {3, 2, 4}), weights, {.cell = RnnCell::rnn_tanh, .bias = false, .name = "r"});
     },
     "rnn_fwd 'r': weight_ih_l0 is [5, 3]; it must be [5, 4]"},
    {"RnnProjectionOfGru",
     [](G& g) {
       const std::vector<Tensor> weights{half(g, "w", {6, 4}), half(g, "u", {6, 1}), half(g, "p", {1, 2})};
       g.rnn_fwd(half(g, "x", {3, 2, 4}), weights,
                 {.cell = RnnCell::gru, .projection_size = 1, .bias = false, .name = "r"});
     },
     "rnn_fwd 'r': projection_size is 1; only lstm has a projection"},
    {"BlankIsNoClass",
     [](G& g) {
       g.ctc_loss(half(g, "x", {3, 2, 4}), ints(g, "l", {2, 1}), {.blank = 4, .name = "c"});
     },
     "ctc_loss 'c': blank 4 is none of the 4 classes"},
    {"CtcLabelsOfOtherBatch",
     [](G& g) {
       g.ctc_loss(half(g, "x", {3, 2, 4}), ints(g, "l", {3, 1}), {.name = "c"});
     },
     "ctc_loss 'c': labels [3, 1] are not [2, most labels]"},
};
INSTANTIATE_TEST_SUITE_P(Sequences, CompositeErrors, testing::ValuesIn(kSequences), name_of<G>);

}  // namespace
}  // namespace fusor::composite_errors_test
