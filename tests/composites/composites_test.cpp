// Tests composites against plain loops, and every gradient against differences of the forward pass.
#include <algorithm>
#include <numeric>
#include <ostream>

#include "backend/build.h"
#include "tests/composites/oracle.h"

namespace fusor {
namespace {

using Tensors = std::vector<Tensor>;
using G = GraphBuilder;

TEST(Softmax, AnswersForLargeLogitsAndTakesASink) {
  const std::vector<Operand64> operands{{"x", {1, 3}, {1000, 1001, 999}}, {"sink", {1, 1}, {1002}}};
  const auto results = evaluated(operands, [](G& g, const Tensors& t) {
    const SoftmaxResults all = g.softmax(t[0], {.sink = t[1]});
    return Tensors{all.y, all.max, all.sum_exp, all.logsumexp, g.softmax(t[0], {.log = true}).y};
  });
  const double sum = std::exp(-2) + std::exp(-1) + std::exp(-3) + 1;
  expect_near(results[0], {std::exp(-2) / sum, std::exp(-1) / sum, std::exp(-3) / sum});
  expect_near(results[1], {1002});
  expect_near(results[2], {sum});
  expect_near(results[3], {1002 + std::log(sum)});
  const double log_sum = std::log(std::exp(-1) + 1 + std::exp(-2));
  expect_near(results[4], {-1 - log_sum, -log_sum, -2 - log_sum});
}

TEST(Softmax, HasTheGradientOfItsForwardPass) {
  const Dims dims{2, 4, 3};
  const auto dy = numbers(dims, 5);
  for (const bool log : {false, true}) {
    const auto forward = [log](G& g, const Tensors& t) {
      return Tensors{g.softmax(t[0], {.axis = 1, .log = log, .sink = t[1]}).y};
    };
    const auto backward = [log](G& g, const Tensors& t) {
      const SoftmaxResults all = g.softmax(t[0], {.axis = 1, .log = log, .sink = t[1]});
      const SoftmaxGradients back =
          g.softmax_bwd(t[2], all.y, {.axis = 1, .log = log, .sink = t[1], .logsumexp = all.logsumexp});
      return Tensors{back.dx, back.dsink};
    };
    expect_gradients({random_operand("x", dims, 1, 2), random_operand("sink", {1, 3}, 2)}, {0, 1}, {dy},
                     forward, {{"dy", dims, dy}}, backward);
  }
}

TEST(CrossEntropy, IsZeroWhereTheLabelIsIgnored) {
  const std::vector<Operand64> operands{{"x", {3, 2}, {1, 2, 3, 4, 5, 7}},
                                        {"labels", {3, 1}, {1, -100, 0}, DataType::i32}};
  const auto results =
      evaluated(operands, [](G& g, const Tensors& t) { return Tensors{g.cross_entropy(t[0], t[1]).loss}; });
  expect_near(results[0], {std::log(1 + std::exp(-1)), 0, 2 + std::log(1 + std::exp(-2))});
}

TEST(CrossEntropy, HasNoGradientWhereTheLabelIsIgnoredWhateverTheLogits) {
  const double none = -std::numeric_limits<double>::infinity();
  const std::vector<Operand64> operands{{"x", {2, 2}, {none, none, 1, 1}},
                                        {"labels", {2, 1}, {-100, 0}, DataType::i32},
                                        {"dloss", {2, 1}, {1, 1}}};
  const auto results = evaluated(
      operands, [](G& g, const Tensors& t) { return Tensors{g.cross_entropy_bwd(t[0], t[1], t[2])}; });
  expect_near(results[0], {0, 0, -0.5, 0.5});
}

TEST(CrossEntropy, HasTheGradientOfItsForwardPass) {
  const Dims dims{4, 5};
  const auto dloss = numbers({4, 1}, 3);
  for (const bool saved : {false, true}) {
    const auto forward = [](G& g, const Tensors& t) {
      return Tensors{g.cross_entropy(t[0], t[1], {.label_smoothing = 0.1}).loss};
    };
    const auto backward = [saved](G& g, const Tensors& t) {
      CrossEntropyBackwardOptions options{.label_smoothing = 0.1};
      if (saved) options.logsumexp = g.cross_entropy(t[0], t[1]).logsumexp;
      return Tensors{g.cross_entropy_bwd(t[0], t[1], t[2], options)};
    };
    expect_gradients({random_operand("x", dims, 1, 3), {"labels", {4, 1}, {0, 4, -100, 2}, DataType::i64}},
                     {0}, {dloss}, forward, {{"dloss", {4, 1}, dloss}}, backward);
  }
}

// ---- norms ----

struct NormCase {
  NormMode norm;
  Dims axes, scale;
  int64_t groups = 1;

  friend void PrintTo(const NormCase& each, std::ostream* out) { *out << to_string(each.norm); }
};

class Norms : public testing::TestWithParam<NormCase> {};

TEST_P(Norms, HaveTheGradientOfTheirForwardPass) {
  const NormCase& each = GetParam();
  const Dims dims{3, 4, 2, 3};
  const auto dy = numbers(dims, 5);
  for (const bool saved : {false, true}) {
    const auto options = [&](const Tensors& t) {
      return NormOptions{.norm = each.norm,
                         .epsilon = 1e-3,
                         .axes = each.axes,
                         .groups = each.groups,
                         .scale = t[1],
                         .bias = t[2]};
    };
    const auto forward = [&](G& g, const Tensors& t) { return Tensors{g.norm_fwd(t[0], options(t)).y}; };
    const auto backward = [&](G& g, const Tensors& t) {
      NormBackwardOptions back{.norm = each.norm, .epsilon = 1e-3, .axes = each.axes, .groups = each.groups};
      back.scale = t[1];
      if (saved) {
        const NormResults all = g.norm_fwd(t[0], options(t));
        if (each.norm != NormMode::rms_norm) back.mean = all.mean;
        back.inv_std = all.inv_std;
      }
      const NormGradients gradients = g.norm_bwd(t[3], t[0], back);
      return Tensors{gradients.dx, gradients.dscale, gradients.dbias};
    };
    expect_gradients({random_operand("x", dims, 1), random_operand("scale", each.scale, 2),
                      random_operand("bias", each.scale, 3)},
                     {0, 1, 2}, {dy}, forward, {{"dy", dims, dy}}, backward);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Norms,
                         testing::Values(NormCase{NormMode::layer_norm, {2, 3}, {2, 3}},
                                         NormCase{NormMode::layer_norm, {1}, {4, 1, 1}},
                                         NormCase{NormMode::rms_norm, {1, 3}, {1, 4, 1, 3}},
                                         NormCase{NormMode::batch_norm, {}, {1, 4, 1, 1}},
                                         NormCase{NormMode::instance_norm, {}, {4, 1, 1}},
                                         NormCase{NormMode::group_norm, {}, {1, 4, 1, 1}, 2},
                                         NormCase{NormMode::group_norm, {}, {1, 1, 1, 3}, 4},
                                         NormCase{NormMode::adaptive_layer_norm, {1, 2, 3}, {3, 4, 1, 1}}));

TEST(NormForward, GroupsOfChannelsHaveTheirOwnStatistics) {
  const std::vector<Operand64> operands{{"x", {1, 4, 2}, {1, 3, 5, 7, 10, 10, 20, 20}}};
  const auto results = evaluated(operands, [](G& g, const Tensors& t) {
    const NormResults all = g.norm_fwd(t[0], {.norm = NormMode::group_norm, .epsilon = 0, .groups = 2});
    return Tensors{all.y, all.mean, all.inv_std};
  });
  expect_near(results[1], {4, 15});
  expect_near(results[2], {1 / std::sqrt(5), 0.2});
  expect_near(results[0],
              {-3 / std::sqrt(5), -1 / std::sqrt(5), 1 / std::sqrt(5), 3 / std::sqrt(5), -1, -1, 1, 1});
}

TEST(NormForward, InfersWithRunningStatistics) {
  const std::vector<Operand64> operands{
      {"x", {2, 2, 1}, {1, 2, 3, 4}}, {"mean", {1, 2, 1}, {1, 2}}, {"var", {1, 2, 1}, {4, 0.25}}};
  const auto results = evaluated(operands, [](G& g, const Tensors& t) {
    return Tensors{g.norm_fwd(t[0], {.norm = NormMode::batch_norm,
                                     .phase = NormPhase::inference,
                                     .epsilon = 0,
                                     .prev_running_mean = t[1],
                                     .prev_running_var = t[2]})
                       .y};
  });
  expect_near(results[0], {0, 0, 1, 4});
}

TEST(NormForward, TakesEpsilonAndMomentumFromScalars) {
  const std::vector<Operand64> operands{{"x", {2, 1}, {1, 3}}, {"mean", {1, 1}, {10}}, {"var", {1, 1}, {20}}};
  const auto results = evaluated(operands, [](G& g, const Tensors& t) {
    const NormResults all = g.norm_fwd(t[0], {.norm = NormMode::batch_norm,
                                              .prev_running_mean = t[1],
                                              .prev_running_var = t[2],
                                              .epsilon_scalar = g.constant(3, DataType::f64),
                                              .momentum_scalar = g.constant(0.5, DataType::f64)});
    return Tensors{all.y, all.next_running_mean, all.next_running_var};
  });
  expect_near(results[0], {-0.5, 0.5});
  expect_near(results[1], {6});
  expect_near(results[2], {11});  // the unbiased variance is 2
}

TEST(BatchNormInPieces, IsBatchNorm) {
  const Dims dims{3, 2, 4}, channels{1, 2, 1};
  const std::vector<Operand64> operands{
      random_operand("x", dims, 1),        random_operand("scale", channels, 2),
      random_operand("bias", channels, 3), random_operand("mean", channels, 4),
      random_operand("var", channels, 5),  random_operand("dy", dims, 6)};
  const auto whole = evaluated(operands, [](G& g, const Tensors& t) {
    const NormResults y = g.norm_fwd(t[0], {.norm = NormMode::batch_norm,
                                            .scale = t[1],
                                            .bias = t[2],
                                            .prev_running_mean = t[3],
                                            .prev_running_var = t[4]});
    const NormGradients back = g.norm_bwd(t[5], t[0], {.norm = NormMode::batch_norm, .scale = t[1]});
    return Tensors{y.y,     y.mean,      y.inv_std, y.next_running_mean, y.next_running_var,
                   back.dx, back.dscale, back.dbias};
  });
  const auto pieces = evaluated(operands, [](G& g, const Tensors& t) {
    const GenStatsResults stats = g.gen_stats(t[0]);
    const BnFinalizeResults f =
        g.bn_finalize(stats.sum, stats.sq_sum, t[1], t[2],
                      {.accumulation_count = 12, .prev_running_mean = t[3], .prev_running_var = t[4]});
    const BnBackwardWeightsResults b = g.bn_bwd_weights(t[5], t[0], f.mean, f.inv_std, t[1]);
    return Tensors{g.add(g.mul(t[0], f.eq_scale), f.eq_bias),
                   f.mean,
                   f.inv_std,
                   f.next_running_mean,
                   f.next_running_var,
                   g.add(g.add(g.mul(t[5], b.eq_dy_scale), g.mul(t[0], b.eq_x_scale)), b.eq_bias),
                   b.dscale,
                   b.dbias};
  });
  for (size_t i = 0; i < whole.size(); ++i) expect_near(pieces[i], whole[i]);
}

// ---- windows ----

TEST(MaxPool, GivesTheFirstMaximumOfEachWindow) {
  const std::vector<Operand64> operands{{"x", {1, 1, 2, 4}, {1, 5, 5, -1, 5, 2, 5, -2}}};
  const auto results = evaluated(operands, [](G& g, const Tensors& t) {
    const ResampleResults all = g.resample_fwd(
        t[0], {.window = {2, 2}, .stride = {2, 1}, .pre_padding = {0, 1}, .post_padding = {0, 1}});
    return Tensors{all.y, all.index};
  });
  expect_near(results[0], {5, 5, 5, 5, -1});
  expect_near(results[1], {3, 1, 0, 0, 0});
}

TEST(Pooling, HasTheGradientOfItsForwardPass) {
  const Dims dims{2, 2, 5, 4};
  for (const ResampleMode mode :
       {ResampleMode::maxpool, ResampleMode::avgpool_include_padding, ResampleMode::avgpool_exclude_padding})
    for (const bool by_index : {false, true}) {
      if (by_index && mode != ResampleMode::maxpool) continue;
      const ResampleOptions options{
          .mode = mode, .window = {3, 2}, .stride = {2, 1}, .pre_padding = {1, 0}, .post_padding = {2, 1}};
      const Dims out{2, 2, 3, 4};
      const auto dy = numbers(out, 5);
      const auto forward = [&](G& g, const Tensors& t) { return Tensors{g.resample_fwd(t[0], options).y}; };
      const auto backward = [&](G& g, const Tensors& t) {
        if (!by_index) return Tensors{g.resample_bwd(t[1], dims, options, t[0])};
        const Tensor index = g.resample_fwd(t[0], options).index;
        return Tensors{g.resample_bwd(t[1], dims, options, {}, index)};
      };
      expect_gradients({random_operand("x", dims, 1)}, {0}, {dy}, forward, {{"dy", out, dy}}, backward);
    }
}

TEST(Interpolation, IsPyTorchs) {
  const std::vector<Operand64> operands{{"x", {1, 1, 3}, {0, 10, 40}}};
  const auto results = evaluated(operands, [](G& g, const Tensors& t) {
    ResampleOptions linear{.mode = ResampleMode::bilinear, .output_size = {6}};
    ResampleOptions corners{.mode = ResampleMode::bilinear, .output_size = {5}, .align_corners = true};
    ResampleOptions nearest{.mode = ResampleMode::nearest, .output_size = {4}};
    return Tensors{g.resample_fwd(t[0], linear).y, g.resample_fwd(t[0], corners).y,
                   g.resample_fwd(t[0], nearest).y};
  });
  expect_near(results[0], {0, 2.5, 7.5, 17.5, 32.5, 40});
  expect_near(results[1], {0, 5, 10, 25, 40});
  expect_near(results[2], {0, 0, 10, 40});
}

TEST(Interpolation, HasTheGradientOfItsForwardPass) {
  const Dims dims{1, 2, 3, 4}, out{1, 2, 5, 3};
  const auto dy = numbers(out, 5);
  for (const ResampleMode mode : {ResampleMode::bilinear, ResampleMode::nearest}) {
    const ResampleOptions options{.mode = mode, .output_size = {5, 3}};
    const auto forward = [&](G& g, const Tensors& t) { return Tensors{g.resample_fwd(t[0], options).y}; };
    const auto backward = [&](G& g, const Tensors& t) {
      return Tensors{g.resample_bwd(t[1], dims, options)};
    };
    expect_gradients({random_operand("x", dims, 1)}, {0}, {dy}, forward, {{"dy", out, dy}}, backward);
  }
}

TEST(Lrn, IsTheFormulaAndHasItsGradient) {
  const Dims dims{2, 5, 3};
  for (const int64_t window : {1, 4, 5}) {
    const LrnOptions options{.window = window, .alpha = 0.7, .beta = 0.6, .k = 1.5};
    const Operand64 x = random_operand("x", dims, 1);
    const auto forward = [&](G& g, const Tensors& t) { return Tensors{g.lrn(t[0], options)}; };
    std::vector<double> want;
    for (int64_t n = 0; n < 2; ++n)
      for (int64_t c = 0; c < 5; ++c)
        for (int64_t i = 0; i < 3; ++i) {
          double sum = 0;
          const auto at = [&](int64_t channel) {
            return x.values[static_cast<size_t>((n * 5 + channel) * 3 + i)];
          };
          for (int64_t other = c - window / 2; other < c - window / 2 + window; ++other)
            if (other >= 0 && other < 5) sum += at(other) * at(other);
          want.push_back(at(c) * std::pow(1.5 + 0.7 / static_cast<double>(window) * sum, -0.6));
        }
    expect_near(evaluated({x}, forward)[0], want);
    const auto dy = numbers(dims, 5);
    expect_gradients({x}, {0}, {dy}, forward, {{"dy", dims, dy}},
                     [&](G& g, const Tensors& t) { return Tensors{g.lrn_bwd(t[1], t[0], options)}; });
  }
}

// A mask of the least numbers there are hides nothing where every key has it.
TEST(Sdpa, ScoresOfTheLeastNumberAreScores) {
  const double least = std::numeric_limits<float>::lowest();
  const std::vector<Operand64> operands{{"q", {1, 1, 1, 2}, {0, 0}, DataType::f32},
                                        {"k", {1, 1, 2, 2}, {1, 2, 3, 4}, DataType::f32},
                                        {"v", {1, 1, 2, 1}, {2, 4}, DataType::f32},
                                        {"bias", {1, 1, 1, 2}, {least, least}, DataType::f32}};
  const auto results = evaluated(operands, [](G& g, const Tensors& t) {
    return Tensors{g.sdpa_fwd(t[0], t[1], t[2], {.attributes = {.right_bound = 2}, .bias = t[3]}).o};
  });
  expect_near(results[0], {3});
}

// -inf is the sink of a head that has none: query 0 sees no key, query 1 one, query 2 two.
TEST(Sdpa, ASinkOfMinusInfinityIsNone) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<Operand64> operands{{"q", {1, 2, 3, 1}, {0, 0, 0, 0, 0, 0}},
                                        {"k", {1, 2, 2, 1}, {1, 1, 1, 1}},
                                        {"v", {1, 2, 2, 1}, {2, 4, 2, 4}},
                                        {"sink", {1, 2, 1, 1}, {-infinity, 0}}};
  const SdpaAttributes causal{.diagonal_alignment = DiagonalAlignment::bottom_right, .right_bound = 0};
  const auto results = evaluated(operands, [&](G& g, const Tensors& t) {
    const SdpaResults r = g.sdpa_fwd(t[0], t[1], t[2], {.attributes = causal, .sink = t[3]});
    return Tensors{r.o, r.stats, r.max, r.sum_exp};
  });
  expect_near(results[0], {0, 2, 3, 0, 1, 2});
  expect_near(results[1], {-infinity, 0, std::log(2), 0, std::log(2), std::log(3)});
  expect_near(results[2], {-infinity, 0, 0, 0, 0, 0});
  expect_near(results[3], {0, 1, 2, 1, 2, 3});
}

TEST(SdpaBackward, ASinkOfMinusInfinityHasNoGradient) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<Operand64> operands{
      {"x", {1, 1, 3, 1}, {1, 2, 3}}, {"k", {1, 1, 2, 1}, {1, 2}}, {"sink", {1, 1, 1, 1}, {-infinity}}};
  const SdpaOptions causal{
      .attributes = {.diagonal_alignment = DiagonalAlignment::bottom_right, .right_bound = 0}};
  const auto gradients = [&](bool has_sink) {
    return evaluated(operands, [&](G& g, const Tensors& t) {
      SdpaOptions options = causal;
      if (has_sink) options.sink = t[2];
      const SdpaResults forward = g.sdpa_fwd(t[0], t[1], t[1], options);
      const SdpaGradients r = g.sdpa_bwd(t[0], t[1], t[1], forward.o, t[0], forward.stats, options);
      Tensors all{r.dq, r.dk, r.dv};
      all.push_back(has_sink ? r.dsink : g.neg(t[2]));
      return all;
    });
  };
  const auto with = gradients(true), without = gradients(false);
  for (size_t i = 0; i < 3; ++i) expect_near(with[i], without[i]);
  expect_near(with[3], {0});
}

// "No bound" is often said by the largest number.
TEST(Sdpa, BoundsBeyondAllKeysBoundNothing) {
  const std::vector<Operand64> operands{{"q", {1, 1, 3, 1}, {0, 0, 0}, DataType::f32},
                                        {"k", {1, 1, 5, 1}, {1, 2, 3, 4, 5}, DataType::f32},
                                        {"v", {1, 1, 5, 1}, {1, 2, 3, 4, 5}, DataType::f32},
                                        {"queries", {1, 1, 1, 1}, {3}, DataType::i32},
                                        {"keys", {1, 1, 1, 1}, {5}, DataType::i32}};
  for (const int64_t bound : {int64_t{std::numeric_limits<int32_t>::max()}, int64_t{INT64_MAX}})
    for (const bool padding : {false, true}) {
      const auto results = evaluated(operands, [&](G& g, const Tensors& t) {
        SdpaOptions options{.attributes = {.diagonal_alignment = DiagonalAlignment::bottom_right,
                                           .left_bound = bound,
                                           .right_bound = bound,
                                           .padding_mask = padding}};
        if (padding) options.seq_len_q = t[3], options.seq_len_kv = t[4];
        return Tensors{g.sdpa_fwd(t[0], t[1], t[2], options).o};
      });
      expect_near(results[0], {3, 3, 3});
    }
}

// Rows behind a length hold anything: also statistics that make their share of a sink infinite.
TEST(SdpaBackward, SinksHaveNoGradientOfRowsBehindALength) {
  const std::vector<Operand64> operands{{"x", {1, 1, 2, 1}, {1, 2}},
                                        {"stats", {1, 1, 2, 1}, {2, -200}},
                                        {"length", {1, 1, 1, 1}, {1}, DataType::i32},
                                        {"sink", {1, 1, 1, 1}, {0.5}}};
  const auto results = evaluated(operands, [](G& g, const Tensors& t) {
    const SdpaOptions options{
        .attributes = {.padding_mask = true}, .seq_len_q = t[2], .seq_len_kv = t[2], .sink = t[3]};
    return Tensors{g.sdpa_bwd(t[0], t[0], t[0], t[0], t[0], t[1], options).dsink};
  });
  expect_near(results[0], {-std::exp(-1.5)});
}

TEST(MoeGroupedMatmul, NegativeIndicesReadNoToken) {
  const std::vector<Operand64> operands{{"tokens", {2, 1}, {3, 5}, DataType::f32},
                                        {"weights", {1, 1, 1}, {2}, DataType::f32},
                                        {"first", {1, 1, 1}, {0}, DataType::i32},
                                        {"index", {4, 1}, {-1, 0, 3, -2}, DataType::i32}};
  const auto results = evaluated(operands, [](G& g, const Tensors& t) {
    return Tensors{
        g.moe_grouped_matmul(t[0], t[1], t[2], {.mode = TokenMode::gather, .token_index = t[3], .top_k = 2})};
  });
  expect_near(results[0], {0, 6, 10, 0});
}

// Infinite coordinates lie beside an image; of one pixel whose centre is both -1 and 1 there is nothing
// beside.
TEST(GridSample, InfiniteCoordinatesOfOnePixel) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<Operand64> operands{
      {"x", {1, 1, 1, 1}, {5}},
      {"grid", {1, 1, 4, 2}, {infinity, 0, -infinity, 0, 0, infinity, infinity, -infinity}},
      {"dy", {1, 1, 1, 4}, {1, 1, 1, 1}}};
  for (const GridMode mode : {GridMode::bilinear, GridMode::nearest})
    for (const GridPadding padding : {GridPadding::zeros, GridPadding::border})
      for (const bool align : {false, true}) {
        const auto results = evaluated(operands, [&](G& g, const Tensors& t) {
          const GridSampleOptions options{.mode = mode, .padding = padding, .align_corners = align};
          const GridSampleGradients r = g.grid_sample_bwd(t[2], t[0], t[1], options);
          return Tensors{g.grid_sample(t[0], t[1], options), r.dx, r.dgrid};
        });
        const bool reads = align || padding == GridPadding::border;
        expect_near(results[0], std::vector<double>(4, reads ? 5 : 0));
        expect_near(results[1], {reads ? 4.0 : 0.0});
        expect_near(results[2], std::vector<double>(8, 0));
      }
}

TEST(GridSample, ReadsPixelsAtTheirCentres) {
  // Columns -1 and 1 are the edges of the image, or the centres of its outermost pixels.
  const std::vector<Operand64> operands{{"x", {1, 1, 1, 4}, {1, 2, 4, 8}},
                                        {"grid", {1, 1, 4, 2}, {-0.75, 0, 0, 0, 1, 0, 3, 0}}};
  const auto results = evaluated(operands, [](G& g, const Tensors& t) {
    return Tensors{g.grid_sample(t[0], t[1]), g.grid_sample(t[0], t[1], {.padding = GridPadding::border}),
                   g.grid_sample(t[0], t[1], {.align_corners = true}),
                   g.grid_sample(t[0], t[1], {.mode = GridMode::nearest})};
  });
  expect_near(results[0], {1, 3, 4, 0});
  expect_near(results[1], {1, 3, 8, 8});
  expect_near(results[2], {1.375, 3, 8, 0});
  expect_near(results[3], {1, 4, 0, 0});  // between two pixels the even one: 1.5 is 2, 3.5 is 4
}

// NaN counts as -1, the edge of the first pixel, or its centre.
TEST(GridSample, ACoordinateThatIsNoNumberIsTheFirstEdge) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Operand64> operands{{"x", {1, 1, 1, 4}, {1, 2, 4, 8}}, {"grid", {1, 1, 1, 2}, {nan, 0}}};
  const auto results = evaluated(operands, [](G& g, const Tensors& t) {
    return Tensors{g.grid_sample(t[0], t[1]), g.grid_sample(t[0], t[1], {.padding = GridPadding::border}),
                   g.grid_sample(t[0], t[1], {.align_corners = true}),
                   g.grid_sample(t[0], t[1], {.mode = GridMode::nearest})};
  });
  expect_near(results[0], {0.5});
  expect_near(results[1], {1});
  expect_near(results[2], {1});
  expect_near(results[3], {1});
}

TEST(GridSample, HasTheGradientOfItsForwardPass) {
  const Dims x{2, 3, 4, 3}, grid{2, 2, 5, 2}, out{2, 3, 2, 5};
  const auto dy = numbers(out, 5);
  for (const GridPadding padding : {GridPadding::zeros, GridPadding::border})
    for (const bool corners : {false, true}) {
      const GridSampleOptions options{.padding = padding, .align_corners = corners};
      const auto forward = [&](G& g, const Tensors& t) {
        return Tensors{g.grid_sample(t[0], t[1], options)};
      };
      const auto backward = [&](G& g, const Tensors& t) {
        const GridSampleGradients all = g.grid_sample_bwd(t[2], t[0], t[1], options);
        return Tensors{all.dx, all.dgrid};
      };
      expect_gradients({random_operand("x", x, 1), random_operand("grid", grid, 2, 1.2)}, {0, 1}, {dy},
                       forward, {{"dy", out, dy}}, backward);
    }
}

// ---- sequences ----

TEST(CausalConv1d, ReadsThePresentAndThePast) {
  const std::vector<Operand64> operands{{"x", {1, 2, 3}, {1, 2, 3, 4, 5, 6}},
                                        {"w", {2, 2}, {10, 1, 100, 1}},
                                        {"bias", {2}, {0, 1000}},
                                        {"states", {1, 2, 1}, {7, 8}}};
  const auto results = evaluated(operands, [](G& g, const Tensors& t) {
    const CausalConv1dResults all = g.causal_conv1d(t[0], t[1], {.bias = t[2], .initial_states = t[3]});
    return Tensors{g.causal_conv1d(t[0], t[1]).y, all.y, all.final_states};
  });
  expect_near(results[0], {1, 12, 23, 4, 405, 506});
  expect_near(results[1], {71, 12, 23, 1804, 1405, 1506});
  expect_near(results[2], {3, 6});
}

TEST(CausalConv1d, KeepsStatesThatAreLongerThanThePiece) {
  const std::vector<Operand64> operands{
      {"x", {1, 1, 1}, {5}}, {"w", {1, 4}, {1, 1, 1, 1}}, {"s", {1, 1, 3}, {1, 2, 3}}};
  const auto results = evaluated(operands, [](G& g, const Tensors& t) {
    return Tensors{g.causal_conv1d(t[0], t[1]).final_states,
                   g.causal_conv1d(t[0], t[1], {.initial_states = t[2]}).final_states};
  });
  expect_near(results[0], {0, 0, 5});
  expect_near(results[1], {2, 3, 5});
}

TEST(CausalConv1d, HasTheGradientOfItsForwardPass) {
  const Dims dims{2, 3, 5};
  const auto dy = numbers(dims, 5);
  for (const bool states : {false, true}) {
    const auto options = [states](const Tensors& t) {
      CausalConv1dOptions all{.activation = CausalActivation::silu, .bias = t[2]};
      if (states) all.initial_states = t[3];
      return all;
    };
    const auto forward = [&](G& g, const Tensors& t) {
      return Tensors{g.causal_conv1d(t[0], t[1], options(t)).y};
    };
    const auto backward = [&](G& g, const Tensors& t) {
      const CausalConv1dGradients all = g.causal_conv1d_bwd(t.back(), t[0], t[1], options(t));
      Tensors gradients{all.dx, all.dweight, all.dbias};
      if (states) gradients.push_back(all.dinitial_states);
      return gradients;
    };
    std::vector<Operand64> operands{random_operand("x", dims, 1), random_operand("w", {3, 4}, 2),
                                    random_operand("bias", {3}, 3)};
    if (states) operands.push_back(random_operand("states", {2, 3, 3}, 4));
    std::vector<size_t> of(operands.size());
    std::iota(of.begin(), of.end(), 0);
    expect_gradients(operands, of, {dy}, forward, {{"dy", dims, dy}}, backward);
  }
}

struct RnnCase {
  RnnCell cell;
  int64_t projection;
  bool bidirectional, lengths, bias;

  friend void PrintTo(const RnnCase& each, std::ostream* out) { *out << to_string(each.cell); }
};

class Rnns : public testing::TestWithParam<RnnCase> {};

TEST_P(Rnns, HaveTheGradientOfTheirForwardPass) {
  const RnnCase& each = GetParam();
  RnnOptions options{.cell = each.cell,
                     .hidden_size = 3,
                     .layers = 2,
                     .projection_size = each.projection,
                     .bidirectional = each.bidirectional,
                     .bias = each.bias};
  RnnAttributes attributes;
  attributes.cell = each.cell;
  attributes.hidden_size = 3;
  attributes.layers = 2;
  attributes.projection_size = each.projection;
  attributes.bidirectional = each.bidirectional;
  attributes.bias = each.bias;
  const int64_t outputs = attributes.output_size(), stacks = 2 * attributes.directions();
  const bool has_c = each.cell == RnnCell::lstm;
  std::vector<Operand64> operands{random_operand("x", {3, 2, 2}, 1),
                                  random_operand("h0", {stacks, 2, outputs}, 2)};
  if (has_c) operands.push_back(random_operand("c0", {stacks, 2, 3}, 3));
  const size_t first_weight = operands.size();
  double seed = 10;
  for (int64_t stack = 0; stack < stacks; ++stack) {
    const int64_t rows = attributes.gates() * 3,
                  inputs = stack < attributes.directions() ? 2 : attributes.directions() * outputs;
    std::vector<Dims> dims{{rows, inputs}, {rows, outputs}};
    if (each.bias) dims.insert(dims.end(), {Dims{rows}, Dims{rows}});
    if (each.projection > 0) dims.push_back({each.projection, 3});
    for (const Dims& weight : dims)
      operands.push_back(random_operand("w" + std::to_string(seed), weight, seed, 0.7)), ++seed;
  }
  const size_t weights_end = operands.size();
  std::vector<size_t> of(operands.size());
  std::iota(of.begin(), of.end(), 0);
  if (each.lengths) operands.push_back({"lengths", {2}, {2, 3}, DataType::i32});
  const auto filled = [&](const Tensors& t) {
    RnnOptions all = options;
    all.h0 = t[1];
    if (has_c) all.c0 = t[2];
    if (each.lengths) all.lengths = t[weights_end];
    return all;
  };
  const auto weights = [&](const Tensors& t) {
    return Tensors(t.begin() + static_cast<int64_t>(first_weight),
                   t.begin() + static_cast<int64_t>(weights_end));
  };
  const Dims y{3, 2, attributes.directions() * outputs}, h{stacks, 2, outputs}, c{stacks, 2, 3};
  std::vector<std::vector<double>> slopes{numbers(y, 5), numbers(h, 6)};
  std::vector<Operand64> more{{"dy", y, slopes[0]}, {"dhn", h, slopes[1]}};
  if (has_c) {
    slopes.push_back(numbers(c, 7));
    more.push_back({"dcn", c, slopes[2]});
  }
  const auto forward = [&](G& g, const Tensors& t) {
    const RnnResults all = g.rnn_fwd(t[0], weights(t), filled(t));
    Tensors results{all.y, all.hn};
    if (has_c) results.push_back(all.cn);
    return results;
  };
  const auto backward = [&](G& g, const Tensors& t) {
    RnnOptions all = filled(t);
    const size_t dy = operands.size();
    all.dhn = t[dy + 1];
    if (has_c) all.dcn = t[dy + 2];
    const RnnGradients found = g.rnn_bwd(t[dy], t[0], weights(t), all);
    Tensors gradients{found.dx, found.dh0};
    if (has_c) gradients.push_back(found.dc0);
    gradients.insert(gradients.end(), found.dweights.begin(), found.dweights.end());
    return gradients;
  };
  expect_gradients(operands, of, slopes, forward, more, backward);
}

INSTANTIATE_TEST_SUITE_P(All, Rnns,
                         testing::Values(RnnCase{RnnCell::lstm, 0, false, false, true},
                                         RnnCase{RnnCell::lstm, 2, true, true, true},
                                         RnnCase{RnnCell::gru, 0, true, true, true},
                                         RnnCase{RnnCell::gru, 0, false, false, false},
                                         RnnCase{RnnCell::rnn_tanh, 0, false, true, true}));

// Other states and gradients are computed, the first state and the last gradients are given.
TEST(RnnBackward, ReadsStatesAndGradientsOfIntegers) {
  GraphBuilder g("states");
  const auto input = [&](const char* name, const Dims& dims) { return g.input(name, dims, DataType::f32); };
  const Tensor h0 = g.input("h0", {1, 2, 3}, DataType::i32), dy = g.input("dy", {2, 2, 3}, DataType::i32);
  const Tensors weights{input("w_ih", {3, 4}), input("w_hh", {3, 3})};
  const RnnGradients all = g.rnn_bwd(dy, input("x", {2, 2, 4}), weights,
                                     {.cell = RnnCell::rnn_tanh, .hidden_size = 3, .bias = false, .h0 = h0});
  g.output(all.dweights[1]);
  EXPECT_NO_THROW(build(g.finish(), DeviceInfo::cpu(), {.compile = false}));
}

// What lies behind a sequence is no part of it, whatever it is.
TEST(RnnBackward, ReadsNothingBehindASequence) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const RnnCell cell : {RnnCell::lstm, RnnCell::gru, RnnCell::rnn_tanh}) {
    const int64_t gates = cell == RnnCell::lstm ? 4 : cell == RnnCell::gru ? 3 : 1;
    std::vector<std::vector<std::vector<double>>> found;
    for (const double behind : {0.0, nan}) {
      const std::vector<Operand64> operands{{"dy", {2, 1, 2}, {1, 2, 3, 4}},
                                            {"x", {2, 1, 1}, {0.5, behind}},
                                            random_operand("w", {gates * 2, 1}, 1),
                                            random_operand("u", {gates * 2, 2}, 2),
                                            {"lengths", {1}, {1}, DataType::i32}};
      found.push_back(evaluated(operands, [&](G& g, const Tensors& t) {
        const RnnOptions options{.cell = cell, .hidden_size = 2, .bias = false, .lengths = t[4]};
        const RnnGradients all = g.rnn_bwd(t[0], t[1], Tensors{t[2], t[3]}, options);
        return Tensors{all.dx, all.dweights[0], all.dweights[1]};
      }));
    }
    for (size_t i = 0; i < found[0].size(); ++i) expect_near(found[1][i], found[0][i]);
  }
}

TEST(RnnForward, StopsAtTheLengthOfEachSequence) {
  const std::vector<Operand64> operands{{"x", {3, 2, 1}, {1, 1, 2, 2, 4, 4}},
                                        {"w", {1, 1}, {1}},
                                        {"u", {1, 1}, {1}},
                                        {"lengths", {2}, {3, 1}, DataType::i32}};
  const auto results = evaluated(operands, [](G& g, const Tensors& t) {
    RnnOptions options{.cell = RnnCell::rnn_relu, .bidirectional = false, .bias = false, .lengths = t[3]};
    const RnnResults forward = g.rnn_fwd(t[0], Tensors{t[1], t[2]}, options);
    options.bidirectional = true;
    const RnnResults both = g.rnn_fwd(t[0], Tensors{t[1], t[2], t[1], t[2]}, options);
    return Tensors{forward.y, forward.hn, both.y, both.hn};
  });
  expect_near(results[0], {1, 1, 3, 0, 7, 0});
  expect_near(results[1], {7, 1});
  expect_near(results[2], {1, 7, 1, 1, 3, 6, 0, 0, 7, 4, 0, 0});
  expect_near(results[3], {7, 1, 7, 1});
}

// Sums the probabilities of all paths of one sequence.
double ctc_by_paths(const std::vector<double>& x, int64_t time, int64_t batch, int64_t classes, int64_t n,
                    const std::vector<int64_t>& labels) {
  double total = 0;
  std::vector<int64_t> path(static_cast<size_t>(time), 0);
  for (;;) {
    std::vector<int64_t> spelled;
    double log = 0;
    for (int64_t t = 0; t < time; ++t) {
      const int64_t at = path[static_cast<size_t>(t)];
      log += x[static_cast<size_t>((t * batch + n) * classes + at)];
      if (at != 0 && (t == 0 || at != path[static_cast<size_t>(t - 1)])) spelled.push_back(at);
    }
    if (spelled == labels) total += std::exp(log);
    int64_t t = 0;
    while (t < time && ++path[static_cast<size_t>(t)] == classes) path[static_cast<size_t>(t++)] = 0;
    if (t == time) return -std::log(total);
  }
}

TEST(CtcLoss, SumsAllPathsThatSpellTheLabels) {
  const Operand64 x = random_operand("x", {5, 3, 3}, 1);
  const std::vector<Operand64> operands{x,
                                        {"labels", {3, 2}, {1, 1, 2, 1, 2, 0}, DataType::i32},
                                        {"steps", {3}, {5, 4, 3}, DataType::i32},
                                        {"counts", {3}, {2, 2, 1}, DataType::i32}};
  const auto loss = [](G& g, const Tensors& t) {
    return Tensors{g.ctc_loss(t[0], t[1], {.input_lengths = t[2], .label_lengths = t[3]}).loss};
  };
  expect_near(evaluated(operands, loss)[0],
              {ctc_by_paths(x.values, 5, 3, 3, 0, {1, 1}), ctc_by_paths(x.values, 4, 3, 3, 1, {2, 1}),
               ctc_by_paths(x.values, 3, 3, 3, 2, {2})});
  expect_gradients(operands, {0}, {{1, 1, 1}}, loss, {}, [](G& g, const Tensors& t) {
    return Tensors{g.ctc_loss(t[0], t[1], {.input_lengths = t[2], .label_lengths = t[3]}).dx};
  });
}

// Where there is no time, nothing but nothing is spelled.
TEST(CtcLoss, WithoutTimeOnlyAnEmptyLabelHasAPath) {
  const std::vector<Operand64> operands{random_operand("x", {2, 3, 2}, 1),
                                        {"labels", {3, 1}, {1, 1, 1}, DataType::i32},
                                        {"steps", {3}, {0, 0, -3}, DataType::i32},
                                        {"counts", {3}, {0, 1, 0}, DataType::i32}};
  const auto results = evaluated(operands, [](G& g, const Tensors& t) {
    const CtcLossResults all = g.ctc_loss(t[0], t[1], {.input_lengths = t[2], .label_lengths = t[3]});
    return Tensors{all.loss, all.dx};
  });
  EXPECT_EQ(results[0], (std::vector<double>{0, std::numeric_limits<double>::infinity(), 0}));
  EXPECT_EQ(results[1], std::vector<double>(12, 0));
}

TEST(CtcLoss, IsInfiniteOrZeroWherePathsAreTooShort) {
  const std::vector<Operand64> operands{random_operand("x", {2, 1, 3}, 1),
                                        {"labels", {1, 2}, {1, 1}, DataType::i64}};
  const auto results = evaluated(operands, [](G& g, const Tensors& t) {
    const CtcLossResults zero = g.ctc_loss(t[0], t[1], {.zero_infinity = true});
    return Tensors{g.ctc_loss(t[0], t[1]).loss, zero.loss, zero.dx};
  });
  EXPECT_EQ(results[0][0], std::numeric_limits<double>::infinity());
  expect_near(results[1], {0});
  expect_near(results[2], {0, 0, 0, 0, 0, 0});
}

}  // namespace
}  // namespace fusor
