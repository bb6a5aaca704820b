// Owns the options and results of the builder's methods for composites. An operand that is left out is
// Tensor{}; a result that nobody uses is not in the finished graph. `type` is that of the results that have
// the operand's kind (y, dx); statistics and totals are fp32, or fp64 where an operand is.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/graph.h"

namespace fusor {

struct OpOptions {
  std::string name = {};
  std::optional<DataType> type = std::nullopt;
  std::optional<DataType> compute = std::nullopt;
};

/// Negative axes count from the back.
struct SoftmaxOptions {
  int64_t axis = -1;
  bool log = false;
  Tensor sink = {};  ///< one more logit of each row
  std::string name = {};
  std::optional<DataType> type = std::nullopt;
};

struct SoftmaxResults {
  Tensor y, max, sum_exp, logsumexp;
};

struct SoftmaxBackwardOptions {
  int64_t axis = -1;
  bool log = false;
  Tensor sink = {};
  Tensor logsumexp = {};  ///< of the forward pass; the gradient of the sink needs it
  std::string name = {};
  std::optional<DataType> type = std::nullopt;
};

struct SoftmaxGradients {
  Tensor dx, dsink;
};

struct CrossEntropyOptions {
  int64_t axis = -1;
  double label_smoothing = 0;
  int64_t ignore_index = -100;
  std::string name = {};
  std::optional<DataType> type = std::nullopt;
};

struct CrossEntropyResults {
  Tensor loss, logsumexp;
};

struct CrossEntropyBackwardOptions {
  int64_t axis = -1;
  double label_smoothing = 0;
  int64_t ignore_index = -100;
  Tensor logsumexp = {};
  std::string name = {};
  std::optional<DataType> type = std::nullopt;
};

/// Layer, adaptive layer and rms norms normalize over `axes`: the last one where it is empty.
struct NormOptions {
  NormMode norm = NormMode::layer_norm;
  NormPhase phase = NormPhase::training;
  double epsilon = 1e-5;
  double momentum = 0.1;
  Dims axes = {};
  int64_t groups = 1;
  Tensor scale = {};
  Tensor bias = {};
  Tensor mean = {};  ///< of inference, as inv_std
  Tensor inv_std = {};
  Tensor prev_running_mean = {};
  Tensor prev_running_var = {};
  Tensor epsilon_scalar = {};  ///< by-value scalars in the place of the numbers
  Tensor momentum_scalar = {};
  std::string name = {};
  std::optional<DataType> type = std::nullopt;
};

/// rms_norm has neither mean nor running statistics.
struct NormResults {
  Tensor y, mean, inv_std, next_running_mean, next_running_var;
};

struct NormBackwardOptions {
  NormMode norm = NormMode::layer_norm;
  NormPhase phase = NormPhase::training;
  double epsilon = 1e-5;
  Dims axes = {};
  int64_t groups = 1;
  Tensor scale = {};
  Tensor mean = {};  ///< of the forward pass; computed again where it is left out
  Tensor inv_std = {};
  Tensor epsilon_scalar = {};
  std::string name = {};
  std::optional<DataType> type = std::nullopt;
};

struct NormGradients {
  Tensor dx, dscale, dbias;
};

struct GenStatsResults {
  Tensor sum, sq_sum;
};

struct BnFinalizeOptions {
  int64_t accumulation_count = 0;  ///< elements a channel that were summed
  double epsilon = 1e-5;
  double momentum = 0.1;
  Tensor prev_running_mean = {};
  Tensor prev_running_var = {};
  Tensor epsilon_scalar = {};
  Tensor momentum_scalar = {};
  std::string name = {};
};

struct BnFinalizeResults {
  Tensor eq_scale, eq_bias, mean, inv_std, next_running_mean, next_running_var;
};

struct BnBackwardWeightsResults {
  Tensor dscale, dbias, eq_dy_scale, eq_x_scale, eq_bias;
};

/// Pooling: an empty stride is the window; `padding` is both paddings. Interpolation: results of output_size,
/// by centres as PyTorch without align_corners; step, shift and denominator, where they are said, are the
/// coordinates (step * i + shift) / denominator instead.
struct ResampleOptions {
  ResampleMode mode = ResampleMode::maxpool;
  Dims window = {};
  Dims stride = {};
  Dims padding = {};
  Dims pre_padding = {};
  Dims post_padding = {};
  Dims output_size = {};
  bool align_corners = false;
  Dims step = {};
  Dims shift = {};
  Dims denominator = {};
  std::string name = {};
  std::optional<DataType> type = std::nullopt;
};

struct ResampleResults {
  Tensor y, index;  ///< index: of maxpool
};

/// The gates' order and the weights are PyTorch's (core/ops/rnn.h). A hidden_size of 0 is what the weights
/// say.
struct RnnOptions {
  RnnCell cell = RnnCell::lstm;
  int64_t hidden_size = 0;
  int64_t layers = 1;
  int64_t projection_size = 0;
  bool bidirectional = false;
  bool bias = true;
  Tensor h0 = {};
  Tensor c0 = {};
  Tensor lengths = {};  ///< [batch], integers: steps of each sequence
  Tensor dhn = {};      ///< of the backward pass
  Tensor dcn = {};
  std::string name = {};
  std::optional<DataType> type = std::nullopt;
};

struct RnnResults {
  Tensor y, hn, cn;
};

struct RnnGradients {
  Tensor dx, dh0, dc0;
  std::vector<Tensor> dweights;  ///< in the order of the weights
};

struct LrnOptions {
  int64_t window = 5;
  double alpha = 1e-4;
  double beta = 0.75;
  double k = 1;
  std::string name = {};
  std::optional<DataType> type = std::nullopt;
};

struct GridSampleOptions {
  GridMode mode = GridMode::bilinear;
  GridPadding padding = GridPadding::zeros;
  bool align_corners = false;
  std::string name = {};
  std::optional<DataType> type = std::nullopt;
};

struct GridSampleGradients {
  Tensor dx, dgrid;
};

/// Lengths that are left out are those of the tensors.
struct CtcLossOptions {
  int64_t blank = 0;
  bool zero_infinity = false;
  Tensor input_lengths = {};
  Tensor label_lengths = {};
  std::string name = {};
  std::optional<DataType> type = std::nullopt;
};

struct CtcLossResults {
  Tensor loss, dx;
};

struct CausalConv1dOptions {
  CausalActivation activation = CausalActivation::none;
  Tensor bias = {};
  Tensor initial_states = {};
  std::string name = {};
  std::optional<DataType> type = std::nullopt;
};

struct CausalConv1dResults {
  Tensor y, final_states;
};

struct CausalConv1dGradients {
  Tensor dx, dweight, dbias, dinitial_states;
};

/// `seed` and `offset` of random numbers are integers of one element, by value or in memory.
struct RngOptions {
  Distribution distribution = Distribution::uniform;
  double probability = 0.5;
  double low = 0, high = 1;
  double mean = 0, deviation = 1;
  std::string name = {};
  std::optional<DataType> type = std::nullopt;
};

struct DropoutResults {
  Tensor y, mask;
};

/// A negative axis counts from the back.
struct BlockScaleOptions {
  int64_t block_size = 32;
  int64_t axis = -1;
  DataType y_type = DataType::f8_e4m3;
  DataType scale_type = DataType::f8_e8m0;
  std::string name = {};
};

struct BlockScaleResults {
  Tensor y, scale;
};

struct PagedCacheOptions {
  int64_t max_seq_len = 0;  ///< 0: all rows that the table has pages for
  Tensor lengths = {};
  std::string name = {};
};

struct MatmulLengthsOptions {
  Tensor m_override = {};
  Tensor n_override = {};
  Tensor k_override = {};
  double padding = 0;
  std::string name = {};
  std::optional<DataType> type = std::nullopt;
};

struct MoeOptions {
  TokenMode mode = TokenMode::none;
  Tensor token_index = {};
  int64_t top_k = 1;
  std::string name = {};
  std::optional<DataType> type = std::nullopt;
};

/// Attributes and optional operands of attention of s queries and t keys, by h heads of b batch entries.
struct SdpaOptions {
  SdpaAttributes attributes = {};
  Tensor bias = {};          ///< added to scores; broadcasts to [b, h, s, t]
  Tensor seq_len_q = {};     ///< integers [b, 1, 1, 1], needed by padding_mask
  Tensor seq_len_kv = {};    ///< as seq_len_q
  Tensor seed = {};          ///< an integer, needed by dropout
  Tensor offset = {};        ///< as seed
  Tensor sink = {};          ///< a score without a value for each head: [1, h, 1, 1]
  Tensor block_mask = {};    ///< 0 hides 128 queries from 128 keys; [b, h, ceil(s / 128), ceil(t / 128)]
  Tensor page_table_k = {};  ///< forward only: integers [b, 1, pages, 1] or [b, 1, pages]
  Tensor page_table_v = {};  ///< as page_table_k
  Tensor scale = {};         ///< forward only: one number that multiplies scores beside attn_scale
  std::string name = {};
  std::optional<DataType> type = std::nullopt;
};

struct SdpaResults {
  Tensor o, stats, max, sum_exp, rng_dump;
};

struct SdpaGradients {
  Tensor dq, dk, dv, dbias, dsink;
};

}  // namespace fusor
