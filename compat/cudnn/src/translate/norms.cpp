// Owns the translation of norms and of the pieces of batch norm.
#include <algorithm>

#include "compat/cudnn/src/log.h"
#include "compat/cudnn/src/translate/translator.h"

namespace fusor::cudnn {

namespace {

NormMode mode_of(cudnnBackendNormMode_t mode) {
  switch (mode) {
    case CUDNN_LAYER_NORM:
      return NormMode::layer_norm;
    case CUDNN_INSTANCE_NORM:
      return NormMode::instance_norm;
    case CUDNN_BATCH_NORM:
      return NormMode::batch_norm;
    case CUDNN_RMS_NORM:
      return NormMode::rms_norm;
    case CUDNN_ADA_LAYER_NORM:
      return NormMode::adaptive_layer_norm;
    default:
      refuse(CUDNN_STATUS_NOT_SUPPORTED, "norm mode {} is not supported", static_cast<int>(mode));
  }
}

bool has_axes(NormMode mode) {
  return mode == NormMode::layer_norm || mode == NormMode::rms_norm || mode == NormMode::adaptive_layer_norm;
}

// The axes that a norm runs over: those that its statistics do not have, or, without statistics, those that
// its scale has. An adaptive norm's scale has a row for each batch entry.
Dims axes_of(NormMode mode, const Dims& x, const Dims* statistics, const Dims& scale) {
  Dims axes;
  if (!has_axes(mode)) return axes;
  const int from_end = x.rank() - scale.rank();
  for (int i = 0; i < x.rank(); ++i) {
    if (x[i] == 1) continue;
    const bool is_of_scale = i >= from_end && scale[i - from_end] != 1;
    const bool is_batch = mode == NormMode::adaptive_layer_norm && i == 0;
    if (statistics != nullptr ? (*statistics)[i] == 1 : is_of_scale && !is_batch) axes.push_back(i);
  }
  if (axes.empty()) axes.push_back(x.rank() - 1);
  return axes;
}

// Clients of one device name two peers; more are several devices, whose statistics are not joined here.
void refuse_peers(const Descriptor& op, cudnnBackendAttributeName_t attribute) {
  constexpr int64_t kOfOneDevice = 2;
  const Value* peers = op.find(attribute);
  if (peers == nullptr || peers->count == 0) return;
  if (peers->count > kOfOneDevice)
    refuse(CUDNN_STATUS_NOT_SUPPORTED, "statistics of {} devices are not joined; a batch norm runs on one",
           peers->count);
  write_log(CUDNN_SEV_WARNING, CUDNN_STATUS_SUCCESS,
            "statistics of peers are not read: a batch norm runs on one device");
}

// The dims of the statistics that an op names, whichever of them there are.
std::optional<Dims> statistics_of(const Descriptor& op, cudnnBackendAttributeName_t inverse) {
  if (!Translator::has(op, inverse)) return std::nullopt;
  return Translator::facts(op, inverse).dims;
}

Tensor scalar_in(Translator& t, const Descriptor& op, cudnnBackendAttributeName_t attribute) {
  return Translator::has(op, attribute) ? t.as_scalar(t.in(op, attribute)) : Tensor{};
}

}  // namespace

void translate_norm_forward(Translator& t, const Descriptor& op) {
  refuse_peers(op, CUDNN_ATTR_OPERATION_NORM_FWD_PEER_STAT_DESCS);
  NormOptions norm;
  norm.norm = mode_of(op.get<cudnnBackendNormMode_t>(CUDNN_ATTR_OPERATION_NORM_FWD_MODE));
  const bool infers =
      op.get<cudnnBackendNormFwdPhase_t>(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE) == CUDNN_NORM_FWD_INFERENCE;
  norm.phase = infers ? NormPhase::inference : NormPhase::training;
  const Tensor x = t.in(op, CUDNN_ATTR_OPERATION_NORM_FWD_XDESC);
  norm.scale = t.in(op, CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC);
  norm.bias = t.in(op, CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC);
  norm.epsilon_scalar = scalar_in(t, op, CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC);
  norm.momentum_scalar = scalar_in(t, op, CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC);
  if (infers) {
    norm.mean = t.in(op, CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC);
    norm.inv_std = t.in(op, CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC);
  } else if (norm.norm != NormMode::rms_norm) {
    norm.prev_running_mean = t.in(op, CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC);
    norm.prev_running_var = t.in(op, CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC);
  }
  const std::optional<Dims> statistics = statistics_of(op, CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC);
  norm.axes = axes_of(norm.norm, x.dims, statistics ? &*statistics : nullptr, norm.scale.dims);
  norm.type = Translator::asked_type(Translator::facts(op, CUDNN_ATTR_OPERATION_NORM_FWD_YDESC));
  const NormResults made = t.builder().norm_fwd(x, norm);
  t.out(op, CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, made.y);
  if (infers) return;
  t.out(op, CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, made.inv_std);
  if (norm.norm == NormMode::rms_norm) return;
  t.out(op, CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, made.mean);
  t.out(op, CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC, made.next_running_mean);
  t.out(op, CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC, made.next_running_var);
}

void translate_norm_backward(Translator& t, const Descriptor& op) {
  refuse_peers(op, CUDNN_ATTR_OPERATION_NORM_BWD_PEER_STAT_DESCS);
  NormBackwardOptions norm;
  norm.norm = mode_of(op.get<cudnnBackendNormMode_t>(CUDNN_ATTR_OPERATION_NORM_BWD_MODE));
  const Tensor x = t.in(op, CUDNN_ATTR_OPERATION_NORM_BWD_XDESC),
               dy = t.in(op, CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC);
  norm.scale = t.in(op, CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC);
  if (norm.norm != NormMode::rms_norm) norm.mean = t.in(op, CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC);
  norm.inv_std = t.in(op, CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC);
  norm.epsilon_scalar = scalar_in(t, op, CUDNN_ATTR_OPERATION_NORM_BWD_EPSILON_DESC);
  const std::optional<Dims> statistics = statistics_of(op, CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC);
  norm.axes = axes_of(norm.norm, x.dims, statistics ? &*statistics : nullptr, norm.scale.dims);
  norm.type = Translator::asked_type(Translator::facts(op, CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC));
  const NormGradients made = t.builder().norm_bwd(dy, x, norm);
  t.out(op, CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, made.dx);
  t.out(op, CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, made.dscale);
  t.out(op, CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, made.dbias);
}

void translate_gen_stats(Translator& t, const Descriptor& op) {
  const GenStatsResults made = t.builder().gen_stats(t.in(op, CUDNN_ATTR_OPERATION_GENSTATS_XDESC));
  // Clients declare the totals by the input's channels, and give room for the result's.
  const auto as_made = [&](cudnnBackendAttributeName_t name, const Tensor& total) {
    TensorFacts facts = Translator::facts(op, name);
    if (facts.dims != total.dims) {
      facts.dims = total.dims;
      facts.strides = packed_strides(total.dims);
    }
    t.out(facts, total);
  };
  as_made(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, made.sum);
  as_made(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, made.sq_sum);
}

// Written in pointwise ops, because the number of elements is known in each run only.
void translate_bn_finalize(Translator& t, const Descriptor& op) {
  if (op.get<cudnnBnFinalizeStatsMode_t>(CUDNN_ATTR_OPERATION_BN_FINALIZE_STATS_MODE) !=
      CUDNN_BN_FINALIZE_STATISTICS_TRAINING)
    refuse(CUDNN_STATUS_NOT_SUPPORTED, "BN_FINALIZE of statistics for inference is not supported");
  for (const auto name :
       {CUDNN_ATTR_OPERATION_BN_FINALIZE_Y_SUM_DESC, CUDNN_ATTR_OPERATION_BN_FINALIZE_Y_SQ_SUM_DESC,
        CUDNN_ATTR_OPERATION_BN_FINALIZE_ACCUM_COUNT_DESC})
    Translator::facts(op, name);
  GraphBuilder& g = t.builder();
  const Tensor count = g.identity(t.as_scalar(t.in(op, CUDNN_ATTR_OPERATION_BN_FINALIZE_ACCUM_COUNT_DESC)),
                                  {.compute = DataType::f32});
  const Tensor epsilon = scalar_in(t, op, CUDNN_ATTR_OPERATION_BN_FINALIZE_EPSILON_DESC);
  const Tensor scale = t.in(op, CUDNN_ATTR_OPERATION_BN_FINALIZE_SCALE_DESC),
               bias = t.in(op, CUDNN_ATTR_OPERATION_BN_FINALIZE_BIAS_DESC);
  const Tensor mean = g.div(t.in(op, CUDNN_ATTR_OPERATION_BN_FINALIZE_Y_SUM_DESC), count);
  const Tensor square = g.div(t.in(op, CUDNN_ATTR_OPERATION_BN_FINALIZE_Y_SQ_SUM_DESC), count);
  const Tensor variance = g.max(g.sub(square, g.mul(mean, mean)), g.constant(0));
  const Tensor inv_std = g.rsqrt(g.add(variance, epsilon));
  const Tensor eq_scale = g.mul(scale, inv_std);
  t.out(op, CUDNN_ATTR_OPERATION_BN_FINALIZE_EQ_SCALE_DESC, eq_scale);
  t.out(op, CUDNN_ATTR_OPERATION_BN_FINALIZE_EQ_BIAS_DESC, g.sub(bias, g.mul(mean, eq_scale)));
  const auto next = [&](cudnnBackendAttributeName_t to, cudnnBackendAttributeName_t from,
                        const Tensor& statistic) {
    if (!Translator::has(op, to)) return;
    const Tensor factor = scalar_in(t, op, CUDNN_ATTR_OPERATION_BN_FINALIZE_EXP_AVERATE_FACTOR_DESC);
    const Tensor before = t.in(op, from);
    t.out(op, to, g.add(before, g.mul(g.sub(statistic, before), factor)));
  };
  const Tensor others = g.max(g.sub(count, g.constant(1)), g.constant(1));
  next(CUDNN_ATTR_OPERATION_BN_FINALIZE_UPDATED_RUNNING_MEAN_DESC,
       CUDNN_ATTR_OPERATION_BN_FINALIZE_PREV_RUNNING_MEAN_DESC, mean);
  if (Translator::has(op, CUDNN_ATTR_OPERATION_BN_FINALIZE_UPDATED_RUNNING_VAR_DESC))
    next(CUDNN_ATTR_OPERATION_BN_FINALIZE_UPDATED_RUNNING_VAR_DESC,
         CUDNN_ATTR_OPERATION_BN_FINALIZE_PREV_RUNNING_VAR_DESC, g.mul(variance, g.div(count, others)));
  t.out(op, CUDNN_ATTR_OPERATION_BN_FINALIZE_SAVED_MEAN_DESC, mean);
  t.out(op, CUDNN_ATTR_OPERATION_BN_FINALIZE_SAVED_INV_STD_DESC, inv_std);
}

void translate_bn_backward_weights(Translator& t, const Descriptor& op) {
  const BnBackwardWeightsResults made =
      t.builder().bn_bwd_weights(t.in(op, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC),
                                 t.in(op, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC),
                                 t.in(op, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC),
                                 t.in(op, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC),
                                 t.in(op, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC));
  t.out(op, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, made.dscale);
  t.out(op, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC, made.dbias);
  t.out(op, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC, made.eq_dy_scale);
  t.out(op, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC, made.eq_x_scale);
  t.out(op, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS, made.eq_bias);
}

}  // namespace fusor::cudnn
