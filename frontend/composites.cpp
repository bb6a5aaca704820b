// Owns the builder's methods for composites.
#include "core/fail.h"
#include "frontend/graph_builder.h"

namespace fusor {

namespace {

/// The options of an op, with the name and type given.
template <class Options>
OpOptions common(const Options& options) {
  OpOptions common{.name = options.name};
  if constexpr (requires { options.type; }) common.type = options.type;
  return common;
}

/// Without trailing operands that are left out.
std::vector<Tensor> trimmed(std::vector<Tensor> operands) {
  while (!operands.empty() && operands.back().name.empty()) operands.pop_back();
  return operands;
}

void refuse_centers(std::initializer_list<Tensor> operands) {
  for (const Tensor& operand : operands)
    if (!operand.name.empty())
      fail("rms_norm has neither a mean nor running statistics; got '{}'", operand.name);
}

}  // namespace

SoftmaxResults GraphBuilder::softmax(const Tensor& x, const SoftmaxOptions& options) {
  const Softmax family{.axis = options.axis, .log = options.log};
  const std::vector<Tensor> all = op(family, trimmed({x, options.sink}), common(options));
  return {all[0], all[1], all[2], all[3]};
}

SoftmaxGradients GraphBuilder::softmax_bwd(const Tensor& dy, const Tensor& y,
                                           const SoftmaxBackwardOptions& options) {
  const SoftmaxBackward family{.axis = options.axis, .log = options.log};
  const std::vector<Tensor> all =
      op(family, trimmed({dy, y, options.sink, options.logsumexp}), common(options));
  return {all[0], all[1]};
}

CrossEntropyResults GraphBuilder::cross_entropy(const Tensor& x, const Tensor& labels,
                                                const CrossEntropyOptions& options) {
  const CrossEntropy family{{.axis = options.axis,
                             .label_smoothing = options.label_smoothing,
                             .ignore_index = options.ignore_index}};
  const std::vector<Tensor> all = op(family, std::vector{x, labels}, common(options));
  return {all[0], all[1]};
}

Tensor GraphBuilder::cross_entropy_bwd(const Tensor& x, const Tensor& labels, const Tensor& dloss,
                                       const CrossEntropyBackwardOptions& options) {
  const CrossEntropyBackward family{{.axis = options.axis,
                                     .label_smoothing = options.label_smoothing,
                                     .ignore_index = options.ignore_index}};
  return op(family, trimmed({x, labels, dloss, options.logsumexp}), common(options)).front();
}

NormResults GraphBuilder::norm_fwd(const Tensor& x, const NormOptions& options) {
  NormForward family{.norm = options.norm,
                     .phase = options.phase,
                     .epsilon = options.epsilon,
                     .momentum = options.momentum,
                     .axes = options.axes,
                     .groups = options.groups};
  const bool is_rms = options.norm == NormMode::rms_norm;
  if (is_rms) refuse_centers({options.mean, options.prev_running_mean, options.prev_running_var});
  const std::vector<Tensor> operands = is_rms ? std::vector{x,
                                                            options.scale,
                                                            options.bias,
                                                            options.inv_std,
                                                            options.epsilon_scalar,
                                                            options.momentum_scalar}
                                              : std::vector{x,
                                                            options.scale,
                                                            options.bias,
                                                            options.mean,
                                                            options.inv_std,
                                                            options.prev_running_mean,
                                                            options.prev_running_var,
                                                            options.epsilon_scalar,
                                                            options.momentum_scalar};
  const std::vector<Tensor> all = op(family, trimmed(operands), common(options));
  if (is_rms)
    return {.y = all[0], .mean = {}, .inv_std = all[1], .next_running_mean = {}, .next_running_var = {}};
  return {all[0], all[1], all[2], all[3], all[4]};
}

NormGradients GraphBuilder::norm_bwd(const Tensor& dy, const Tensor& x, const NormBackwardOptions& options) {
  NormBackward family{.norm = options.norm,
                      .phase = options.phase,
                      .epsilon = options.epsilon,
                      .axes = options.axes,
                      .groups = options.groups};
  std::vector<Tensor> operands{dy, x, options.scale, options.mean, options.inv_std, options.epsilon_scalar};
  const bool is_rms = options.norm == NormMode::rms_norm;
  if (is_rms) refuse_centers({options.mean});
  if (is_rms) operands.erase(operands.begin() + 3);
  const std::vector<Tensor> all = op(family, trimmed(operands), common(options));
  return {all[0], all[1], all[2]};
}

GenStatsResults GraphBuilder::gen_stats(const Tensor& x, const OpOptions& options) {
  const std::vector<Tensor> all = op(GenStats{}, std::vector{x}, options);
  return {all[0], all[1]};
}

BnFinalizeResults GraphBuilder::bn_finalize(const Tensor& sum, const Tensor& sq_sum, const Tensor& scale,
                                            const Tensor& bias, const BnFinalizeOptions& options) {
  const BnFinalize family{options.epsilon, options.momentum, options.accumulation_count};
  const std::vector<Tensor> all =
      op(family,
         trimmed({sum, sq_sum, scale, bias, options.prev_running_mean, options.prev_running_var,
                  options.epsilon_scalar, options.momentum_scalar}),
         common(options));
  return {all[0], all[1], all[2], all[3], all[4], all[5]};
}

BnBackwardWeightsResults GraphBuilder::bn_bwd_weights(const Tensor& dy, const Tensor& x, const Tensor& mean,
                                                      const Tensor& inv_std, const Tensor& scale,
                                                      const OpOptions& options) {
  const std::vector<Tensor> all = op(BnBackwardWeights{}, std::vector{dy, x, mean, inv_std, scale}, options);
  return {all[0], all[1], all[2], all[3], all[4]};
}

namespace {

ResampleAttributes attributes_of(const ResampleOptions& options, const char* method) {
  if (!options.padding.empty() && !(options.pre_padding.empty() && options.post_padding.empty()))
    fail("{}: give padding, or pre_padding and post_padding, not both",
         options.name.empty() ? method : fmt::format("{} '{}'", method, options.name));
  const bool both = !options.padding.empty();
  return {options.mode,
          options.window,
          options.stride,
          both ? options.padding : options.pre_padding,
          both ? options.padding : options.post_padding,
          options.output_size,
          options.align_corners,
          options.step,
          options.shift,
          options.denominator};
}

}  // namespace

ResampleResults GraphBuilder::resample_fwd(const Tensor& x, const ResampleOptions& options) {
  const ResampleForward family{attributes_of(options, "resample_fwd")};
  const std::vector<Tensor> all = op(family, std::vector{x}, common(options));
  return {all[0], all.size() > 1 ? all[1] : Tensor{}};
}

Tensor GraphBuilder::resample_bwd(const Tensor& dy, const Dims& x_dims, const ResampleOptions& options,
                                  const Tensor& x, const Tensor& index) {
  const ResampleBackward family{attributes_of(options, "resample_bwd")};
  std::vector<Tensor> operands{dy, x};
  if (options.mode == ResampleMode::maxpool) operands.push_back(index);
  return op(family, trimmed(operands), common(options), {&x_dims, 1}).front();
}

namespace {

RnnAttributes attributes_of(const RnnOptions& options, std::span<const Tensor> weights) {
  RnnAttributes op{options.cell,          options.hidden_size, options.layers, options.projection_size,
                   options.bidirectional, options.bias};
  if (op.hidden_size == 0 && !weights.empty() && !weights[0].dims.empty())
    op.hidden_size = weights[0].dims[0] / op.gates();
  return op;
}

}  // namespace

RnnResults GraphBuilder::rnn_fwd(const Tensor& x, std::span<const Tensor> weights,
                                 const RnnOptions& options) {
  const RnnForward family{attributes_of(options, weights)};
  std::vector<Tensor> operands{x, options.h0};
  const bool has_c = options.cell == RnnCell::lstm;
  if (has_c) operands.push_back(options.c0);
  operands.push_back(options.lengths);
  operands.insert(operands.end(), weights.begin(), weights.end());
  const std::vector<Tensor> all = op(family, operands, common(options));
  return {all[0], all[1], has_c ? all[2] : Tensor{}};
}

RnnGradients GraphBuilder::rnn_bwd(const Tensor& dy, const Tensor& x, std::span<const Tensor> weights,
                                   const RnnOptions& options) {
  const RnnBackward family{attributes_of(options, weights)};
  const bool has_c = options.cell == RnnCell::lstm;
  std::vector<Tensor> operands{dy, x, options.h0};
  if (has_c) operands.push_back(options.c0);
  operands.insert(operands.end(), {options.lengths, options.dhn});
  if (has_c) operands.push_back(options.dcn);
  operands.insert(operands.end(), weights.begin(), weights.end());
  const std::vector<Tensor> all = op(family, operands, common(options));
  return {all[0], all[1], has_c ? all[2] : Tensor{}, {all.begin() + (has_c ? 3 : 2), all.end()}};
}

namespace {

LrnAttributes attributes_of(const LrnOptions& options) {
  return {options.window, options.alpha, options.beta, options.k};
}

GridSampleAttributes attributes_of(const GridSampleOptions& options) {
  return {options.mode, options.padding, options.align_corners};
}

}  // namespace

Tensor GraphBuilder::lrn(const Tensor& x, const LrnOptions& options) {
  return op(LrnForward{attributes_of(options)}, std::vector{x}, common(options)).front();
}

Tensor GraphBuilder::lrn_bwd(const Tensor& dy, const Tensor& x, const LrnOptions& options) {
  return op(LrnBackward{attributes_of(options)}, std::vector{dy, x}, common(options)).front();
}

Tensor GraphBuilder::grid_sample(const Tensor& x, const Tensor& grid, const GridSampleOptions& options) {
  return op(GridSample{attributes_of(options)}, std::vector{x, grid}, common(options)).front();
}

GridSampleGradients GraphBuilder::grid_sample_bwd(const Tensor& dy, const Tensor& x, const Tensor& grid,
                                                  const GridSampleOptions& options) {
  const std::vector<Tensor> all =
      op(GridSampleBackward{attributes_of(options)}, std::vector{dy, x, grid}, common(options));
  return {all[0], all[1]};
}

CtcLossResults GraphBuilder::ctc_loss(const Tensor& x, const Tensor& labels, const CtcLossOptions& options) {
  const CtcLoss family{options.blank, options.zero_infinity};
  const std::vector<Tensor> all =
      op(family, trimmed({x, labels, options.input_lengths, options.label_lengths}), common(options));
  return {all[0], all[1]};
}

CausalConv1dResults GraphBuilder::causal_conv1d(const Tensor& x, const Tensor& weight,
                                                const CausalConv1dOptions& options) {
  const CausalConv1d family{options.activation};
  const std::vector<Tensor> all =
      op(family, trimmed({x, weight, options.bias, options.initial_states}), common(options));
  return {all[0], all[1]};
}

CausalConv1dGradients GraphBuilder::causal_conv1d_bwd(const Tensor& dy, const Tensor& x, const Tensor& weight,
                                                      const CausalConv1dOptions& options) {
  const CausalConv1dBackward family{options.activation};
  const std::vector<Tensor> all =
      op(family, trimmed({dy, x, weight, options.bias, options.initial_states}), common(options));
  return {all[0], all[1], all[2], all[3]};
}

// --- random numbers ----------------------------------------------------------------------------------------

Tensor GraphBuilder::rng(const Dims& dims, const Tensor& seed, const Tensor& offset,
                         const RngOptions& options) {
  const Rng family{options.distribution, options.probability, options.low,
                   options.high,         options.mean,        options.deviation};
  return op(Attributes(family), std::vector{seed, offset}, common(options), {&dims, 1}).front();
}

DropoutResults GraphBuilder::dropout(const Tensor& x, const Tensor& seed, const Tensor& offset,
                                     double probability, const OpOptions& options) {
  const std::vector<Tensor> all = op(Dropout{probability}, std::vector{x, seed, offset}, options);
  return {all[0], all[1]};
}

// --- blocks, pages and lengths -----------------------------------------------------------------------------

BlockScaleResults GraphBuilder::block_scale_quantize(const Tensor& x, const BlockScaleOptions& options) {
  const BlockScaleQuantize family{{options.block_size, options.axis}, options.y_type, options.scale_type};
  const std::vector<Tensor> all = op(family, std::vector{x}, common(options));
  return {all[0], all[1]};
}

Tensor GraphBuilder::block_scale_dequantize(const Tensor& x, const Tensor& scale,
                                            const BlockScaleOptions& options) {
  const BlockScaleDequantize family{{options.block_size, options.axis}};
  return op(family, std::vector{x, scale}, common(options)).front();
}

Tensor GraphBuilder::paged_cache_load(const Tensor& container, const Tensor& page_table,
                                      const PagedCacheOptions& options) {
  const PagedCacheLoad family{options.max_seq_len};
  return op(family, trimmed({container, page_table, options.lengths}), common(options)).front();
}

Tensor GraphBuilder::ragged_load(const Tensor& x, const Tensor& offset, const Dims& dims, const Dims& strides,
                                 const OpOptions& options) {
  return op(Attributes(RaggedLoad{strides}), std::vector{x, offset}, options, {&dims, 1}).front();
}

Tensor GraphBuilder::ragged_store(const Tensor& x, const Tensor& offset, int64_t elements,
                                  const Dims& strides, const OpOptions& options, bool keeps_rest) {
  const Dims dims{elements};
  return op(Attributes(RaggedStore{strides, keeps_rest}), std::vector{x, offset}, options, {&dims, 1})
      .front();
}

Tensor GraphBuilder::matmul_lengths(const Tensor& a, const Tensor& b, const MatmulLengthsOptions& options) {
  const MatmulLengths family{options.padding};
  const std::vector<Tensor> operands =
      trimmed({a, b, options.m_override, options.n_override, options.k_override});
  return op(family, operands, common(options)).front();
}

Tensor GraphBuilder::moe_grouped_matmul(const Tensor& tokens, const Tensor& weights,
                                        const Tensor& first_token_offset, const MoeOptions& options) {
  const MoeGroupedMatmul family{options.mode, options.top_k};
  const std::vector<Tensor> operands = trimmed({tokens, weights, first_token_offset, options.token_index});
  return op(family, operands, common(options)).front();
}

// --- attention ---------------------------------------------------------------------------------------------

SdpaResults GraphBuilder::sdpa_fwd(const Tensor& q, const Tensor& k, const Tensor& v,
                                   const SdpaOptions& options) {
  const std::vector<Tensor> all = op(
      SdpaForward{options.attributes},
      trimmed({q, k, v, options.bias, options.seq_len_q, options.seq_len_kv, options.seed, options.offset,
               options.sink, options.block_mask, options.page_table_k, options.page_table_v, options.scale}),
      common(options));
  return {all[0], all[1], all[2], all[3], all[4]};
}

SdpaGradients GraphBuilder::sdpa_bwd(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o,
                                     const Tensor& d_o, const Tensor& stats, const SdpaOptions& options) {
  const std::vector<Tensor> all =
      op(SdpaBackward{options.attributes},
         trimmed({q, k, v, o, d_o, stats, options.bias, options.seq_len_q, options.seq_len_kv, options.seed,
                  options.offset, options.sink, options.block_mask}),
         common(options));
  return {all[0], all[1], all[2], all[3], all[4]};
}

}  // namespace fusor
