// Owns the rows of the table of descriptors.
#include "compat/cudnn/src/attribute_table.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <limits>

namespace fusor::cudnn {

namespace {

constexpr int64_t kAny = std::numeric_limits<int32_t>::max();
constexpr int64_t kRank = CUDNN_DIM_MAX;
constexpr Need kRequired = Need::required, kOptional = Need::optional, kAnswer = Need::answer;

#define FUSOR_ATTRIBUTE(name) CUDNN_ATTR_##name, #name
#define ONE(name, type, need) \
  { FUSOR_ATTRIBUTE(name), CUDNN_TYPE_##type, 1, 1, need }
#define LIST(name, type, least, most, need) \
  { FUSOR_ATTRIBUTE(name), CUDNN_TYPE_##type, least, most, need }
#define FLAG(name, need) ONE(name, BOOLEAN, need)
#define READS(name, need) \
  { FUSOR_ATTRIBUTE(name), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, need, Flow::reads }
#define READS_ALL(name, need) \
  { FUSOR_ATTRIBUTE(name), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, kAny, need, Flow::reads }
#define WRITES(name, need) \
  { FUSOR_ATTRIBUTE(name), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, need, Flow::writes }
#define CHILD(name, kind, need)                                                   \
  {                                                                               \
    FUSOR_ATTRIBUTE(name), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, need, Flow::none, \
        CUDNN_BACKEND_##kind##_DESCRIPTOR                                         \
  }
#define CHILDREN(name, kind, most, need)                                             \
  {                                                                                  \
    FUSOR_ATTRIBUTE(name), CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, most, need, Flow::none, \
        CUDNN_BACKEND_##kind##_DESCRIPTOR                                            \
  }
// The value is itself the address of a container of the client's.
#define ADDRESS(name)                                                        \
  {                                                                          \
    FUSOR_ATTRIBUTE(name), CUDNN_TYPE_VOID_PTR, 1, 1, kOptional, Flow::none, \
        CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_TYPE_HANDLE, true             \
  }
// A factor: single or double precision, as the client likes.
#define FACTOR(name, need)                                                                            \
  {                                                                                                   \
    FUSOR_ATTRIBUTE(name), CUDNN_TYPE_FLOAT, 1, 1, need, Flow::none, CUDNN_BACKEND_TENSOR_DESCRIPTOR, \
        CUDNN_TYPE_DOUBLE                                                                             \
  }

// --- infrastructure
// ------------------------------------------------------------------------------------------

constexpr AttributeRow kTensor[] = {
    ONE(TENSOR_DATA_TYPE, DATA_TYPE, kRequired),
    LIST(TENSOR_DIMENSIONS, INT64, 1, kRank, kRequired),
    LIST(TENSOR_STRIDES, INT64, 1, kRank, kRequired),
    ONE(TENSOR_UNIQUE_ID, INT64, kRequired),
    ONE(TENSOR_BYTE_ALIGNMENT, INT64, kOptional),
    FLAG(TENSOR_IS_VIRTUAL, kOptional),
    FLAG(TENSOR_IS_BY_VALUE, kOptional),
    ONE(TENSOR_VECTOR_COUNT, INT64, kOptional),
    ONE(TENSOR_VECTORIZED_DIMENSION, INT64, kOptional),
    CHILD(TENSOR_RAGGED_OFFSET_DESC, TENSOR, kOptional),
    ONE(TENSOR_REORDERING_MODE, TENSOR_REORDERING_MODE, kOptional),
};
constexpr AttributeRow kOperationGraph[] = {
    // The children are ops of any kind, which finalize checks.
    {FUSOR_ATTRIBUTE(OPERATIONGRAPH_OPS), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, kAny, kRequired, Flow::none,
     CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR},
    ONE(OPERATIONGRAPH_HANDLE, HANDLE, kOptional),
    FLAG(OPERATIONGRAPH_IS_DYNAMIC_SHAPE_ENABLED, kOptional),
    ONE(OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, INT64, kAnswer),
};
constexpr AttributeRow kEngineHeur[] = {
    CHILD(ENGINEHEUR_OPERATION_GRAPH, OPERATIONGRAPH, kRequired),
    ONE(ENGINEHEUR_MODE, HEUR_MODE, kRequired),
    CHILD(ENGINEHEUR_DEVICEPROP, DEVICEPROP, kOptional),
    ONE(ENGINEHEUR_SM_COUNT_TARGET, INT32, kOptional),
    CHILDREN(ENGINEHEUR_RESULTS, ENGINECFG, kAny, kAnswer),
};
constexpr AttributeRow kEngine[] = {
    CHILD(ENGINE_OPERATION_GRAPH, OPERATIONGRAPH, kRequired),
    ONE(ENGINE_GLOBAL_INDEX, INT64, kRequired),
    CHILD(ENGINE_DEVICEPROP, DEVICEPROP, kOptional),
    ONE(ENGINE_SM_COUNT_TARGET, INT32, kOptional),
    FLAG(ENGINE_DISABLE_CLUSTER_COOPERATIVE, kOptional),
    CHILDREN(ENGINE_KNOB_INFO, KNOB_INFO, kAny, kAnswer),
    LIST(ENGINE_NUMERICAL_NOTE, NUMERICAL_NOTE, 0, kAny, kAnswer),
    LIST(ENGINE_BEHAVIOR_NOTE, BEHAVIOR_NOTE, 0, kAny, kAnswer),
};
constexpr AttributeRow kKnobInfo[] = {
    ONE(KNOB_INFO_TYPE, KNOB_TYPE, kAnswer),
    ONE(KNOB_INFO_MINIMUM_VALUE, INT64, kAnswer),
    ONE(KNOB_INFO_MAXIMUM_VALUE, INT64, kAnswer),
    ONE(KNOB_INFO_STRIDE, INT64, kAnswer),
};
constexpr AttributeRow kKnobChoice[] = {
    ONE(KNOB_CHOICE_KNOB_TYPE, KNOB_TYPE, kRequired),
    ONE(KNOB_CHOICE_KNOB_VALUE, INT64, kRequired),
};
constexpr AttributeRow kEngineConfig[] = {
    CHILD(ENGINECFG_ENGINE, ENGINE, kRequired),
    CHILDREN(ENGINECFG_KNOB_CHOICES, KNOB_CHOICE, kAny, kOptional),
    ONE(ENGINECFG_WORKSPACE_SIZE, INT64, kAnswer),
    ONE(ENGINECFG_SHARED_MEMORY_USED, INT32, kAnswer),
};
// A plan is made of a configuration, or of a text that an earlier one gave: finalize asks for one of them.
constexpr AttributeRow kExecutionPlan[] = {
    CHILD(EXECUTION_PLAN_ENGINE_CONFIG, ENGINECFG, kOptional),
    ONE(EXECUTION_PLAN_HANDLE, HANDLE, kOptional),
    CHILD(EXECUTION_PLAN_KERNEL_CACHE, KERNEL_CACHE, kOptional),
    CHILD(EXECUTION_PLAN_DEVICEPROP, DEVICEPROP, kOptional),
    LIST(EXECUTION_PLAN_JSON_REPRESENTATION, CHAR, 1, kAny, kOptional),
    ONE(EXECUTION_PLAN_WORKSPACE_SIZE, INT64, kAnswer),
};
constexpr AttributeRow kVariantPack[] = {
    LIST(VARIANT_PACK_UNIQUE_IDS, INT64, 0, kAny, kRequired),
    LIST(VARIANT_PACK_DATA_POINTERS, VOID_PTR, 0, kAny, kRequired),
    ONE(VARIANT_PACK_WORKSPACE, VOID_PTR, kOptional),
    LIST(VARIANT_PACK_OVERRIDE_UNIQUE_IDS, INT64, 0, kAny, kOptional),
    ADDRESS(VARIANT_PACK_OVERRIDE_SHAPES),
    ADDRESS(VARIANT_PACK_OVERRIDE_STRIDES),
};
constexpr AttributeRow kKernelCache[] = {
    CHILD(KERNEL_CACHE_OPERATION_GRAPH, OPERATIONGRAPH, kOptional),
    FLAG(KERNEL_CACHE_IS_ENGINECFG_KERNEL_CACHED, kAnswer),
    LIST(KERNEL_CACHE_JSON_REPRESENTATION, CHAR, 1, kAny, kOptional),
};
constexpr AttributeRow kDeviceProperties[] = {
    ONE(DEVICEPROP_DEVICE_ID, INT32, kOptional),
    ONE(DEVICEPROP_HANDLE, HANDLE, kOptional),
    LIST(DEVICEPROP_JSON_REPRESENTATION, CHAR, 1, kAny, kOptional),
};

// --- what ops are made of
// ------------------------------------------------------------------------------------

constexpr AttributeRow kPointwise[] = {
    ONE(POINTWISE_MODE, POINTWISE_MODE, kRequired),
    ONE(POINTWISE_MATH_PREC, DATA_TYPE, kOptional),
    ONE(POINTWISE_NAN_PROPAGATION, NAN_PROPOGATION, kOptional),
    ONE(POINTWISE_RELU_LOWER_CLIP, DOUBLE, kOptional),
    ONE(POINTWISE_RELU_UPPER_CLIP, DOUBLE, kOptional),
    ONE(POINTWISE_RELU_LOWER_CLIP_SLOPE, DOUBLE, kOptional),
    ONE(POINTWISE_ELU_ALPHA, DOUBLE, kOptional),
    ONE(POINTWISE_SOFTPLUS_BETA, DOUBLE, kOptional),
    ONE(POINTWISE_SWISH_BETA, DOUBLE, kOptional),
    ONE(POINTWISE_AXIS, INT64, kOptional),
};
constexpr AttributeRow kConvolution[] = {
    ONE(CONVOLUTION_COMP_TYPE, DATA_TYPE, kRequired),
    ONE(CONVOLUTION_CONV_MODE, CONVOLUTION_MODE, kRequired),
    ONE(CONVOLUTION_SPATIAL_DIMS, INT64, kRequired),
    LIST(CONVOLUTION_PRE_PADDINGS, INT64, 1, kRank, kRequired),
    LIST(CONVOLUTION_POST_PADDINGS, INT64, 1, kRank, kRequired),
    LIST(CONVOLUTION_DILATIONS, INT64, 1, kRank, kRequired),
    LIST(CONVOLUTION_FILTER_STRIDES, INT64, 1, kRank, kRequired),
};
constexpr AttributeRow kMatmul[] = {
    ONE(MATMUL_COMP_TYPE, DATA_TYPE, kRequired),
    ONE(MATMUL_PADDING_VALUE, DOUBLE, kOptional),
};
constexpr AttributeRow kReduction[] = {
    ONE(REDUCTION_COMP_TYPE, DATA_TYPE, kRequired),
    ONE(REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, kRequired),
    FLAG(REDUCTION_IS_DETERMINISTIC, kOptional),
};
constexpr AttributeRow kResample[] = {
    ONE(RESAMPLE_MODE, RESAMPLE_MODE, kRequired),
    ONE(RESAMPLE_COMP_TYPE, DATA_TYPE, kRequired),
    ONE(RESAMPLE_NAN_PROPAGATION, NAN_PROPOGATION, kOptional),
    ONE(RESAMPLE_PADDING_MODE, PADDING_MODE, kOptional),
    ONE(RESAMPLE_SPATIAL_DIMS, INT64, kRequired),
    LIST(RESAMPLE_WINDOW_DIMS, FRACTION, 1, kRank, kRequired),
    LIST(RESAMPLE_PRE_PADDINGS, FRACTION, 1, kRank, kRequired),
    LIST(RESAMPLE_POST_PADDINGS, FRACTION, 1, kRank, kRequired),
    LIST(RESAMPLE_STRIDES, FRACTION, 1, kRank, kRequired),
};
constexpr AttributeRow kRng[] = {
    ONE(RNG_DISTRIBUTION, RNG_DISTRIBUTION, kRequired),
    ONE(RNG_NORMAL_DIST_MEAN, DOUBLE, kOptional),
    ONE(RNG_NORMAL_DIST_STANDARD_DEVIATION, DOUBLE, kOptional),
    ONE(RNG_UNIFORM_DIST_MAXIMUM, DOUBLE, kOptional),
    ONE(RNG_UNIFORM_DIST_MINIMUM, DOUBLE, kOptional),
    ONE(RNG_BERNOULLI_DIST_PROBABILITY, DOUBLE, kOptional),
};

// --- ops
// -----------------------------------------------------------------------------------------------------

// Forward modes read X and write Y; backward modes read DY and X and write DX: finalize asks for what the
// mode needs.
constexpr AttributeRow kOpPointwise[] = {
    CHILD(OPERATION_POINTWISE_PW_DESCRIPTOR, POINTWISE, kRequired),
    READS(OPERATION_POINTWISE_XDESC, kOptional),
    READS(OPERATION_POINTWISE_BDESC, kOptional),
    READS(OPERATION_POINTWISE_TDESC, kOptional),
    READS(OPERATION_POINTWISE_DYDESC, kOptional),
    WRITES(OPERATION_POINTWISE_YDESC, kOptional),
    WRITES(OPERATION_POINTWISE_DXDESC, kOptional),
    FACTOR(OPERATION_POINTWISE_ALPHA1, kOptional),
    FACTOR(OPERATION_POINTWISE_ALPHA2, kOptional),
};
constexpr AttributeRow kOpConvForward[] = {
    READS(OPERATION_CONVOLUTION_FORWARD_X, kRequired),
    READS(OPERATION_CONVOLUTION_FORWARD_W, kRequired),
    WRITES(OPERATION_CONVOLUTION_FORWARD_Y, kRequired),
    CHILD(OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CONVOLUTION, kRequired),
    FACTOR(OPERATION_CONVOLUTION_FORWARD_ALPHA, kOptional),
    FACTOR(OPERATION_CONVOLUTION_FORWARD_BETA, kOptional),
};
constexpr AttributeRow kOpConvBackwardData[] = {
    READS(OPERATION_CONVOLUTION_BWD_DATA_DY, kRequired),
    READS(OPERATION_CONVOLUTION_BWD_DATA_W, kRequired),
    WRITES(OPERATION_CONVOLUTION_BWD_DATA_DX, kRequired),
    CHILD(OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CONVOLUTION, kRequired),
    FACTOR(OPERATION_CONVOLUTION_BWD_DATA_ALPHA, kOptional),
    FACTOR(OPERATION_CONVOLUTION_BWD_DATA_BETA, kOptional),
};
constexpr AttributeRow kOpConvBackwardFilter[] = {
    READS(OPERATION_CONVOLUTION_BWD_FILTER_X, kRequired),
    READS(OPERATION_CONVOLUTION_BWD_FILTER_DY, kRequired),
    WRITES(OPERATION_CONVOLUTION_BWD_FILTER_DW, kRequired),
    CHILD(OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CONVOLUTION, kRequired),
    FACTOR(OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, kOptional),
    FACTOR(OPERATION_CONVOLUTION_BWD_FILTER_BETA, kOptional),
};
constexpr AttributeRow kOpMatmul[] = {
    READS(OPERATION_MATMUL_ADESC, kRequired),
    READS(OPERATION_MATMUL_BDESC, kRequired),
    WRITES(OPERATION_MATMUL_CDESC, kRequired),
    CHILD(OPERATION_MATMUL_DESC, MATMUL, kRequired),
    ONE(OPERATION_MATMUL_IRREGULARLY_STRIDED_BATCH_COUNT, INT64, kOptional),
    READS(OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, kOptional),
    READS(OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, kOptional),
    READS(OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, kOptional),
};
constexpr AttributeRow kOpReduction[] = {
    READS(OPERATION_REDUCTION_XDESC, kRequired),
    WRITES(OPERATION_REDUCTION_YDESC, kRequired),
    CHILD(OPERATION_REDUCTION_DESC, REDUCTION, kRequired),
};
constexpr AttributeRow kOpRng[] = {
    WRITES(OPERATION_RNG_YDESC, kRequired),
    CHILD(OPERATION_RNG_DESC, RNG, kRequired),
    {FUSOR_ATTRIBUTE(OPERATION_RNG_SEED), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, kRequired, Flow::reads,
     CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_TYPE_INT64},
    READS(OPERATION_RNG_OFFSET_DESC, kOptional),
};
constexpr AttributeRow kOpResampleForward[] = {
    READS(OPERATION_RESAMPLE_FWD_XDESC, kRequired),
    WRITES(OPERATION_RESAMPLE_FWD_YDESC, kRequired),
    WRITES(OPERATION_RESAMPLE_FWD_IDXDESC, kOptional),
    CHILD(OPERATION_RESAMPLE_FWD_DESC, RESAMPLE, kRequired),
    FACTOR(OPERATION_RESAMPLE_FWD_ALPHA, kOptional),
    FACTOR(OPERATION_RESAMPLE_FWD_BETA, kOptional),
};
constexpr AttributeRow kOpResampleBackward[] = {
    WRITES(OPERATION_RESAMPLE_BWD_DXDESC, kRequired), READS(OPERATION_RESAMPLE_BWD_DYDESC, kRequired),
    READS(OPERATION_RESAMPLE_BWD_IDXDESC, kOptional), READS(OPERATION_RESAMPLE_BWD_XDESC, kOptional),
    READS(OPERATION_RESAMPLE_BWD_YDESC, kOptional),   CHILD(OPERATION_RESAMPLE_BWD_DESC, RESAMPLE, kRequired),
    FACTOR(OPERATION_RESAMPLE_BWD_ALPHA, kOptional),  FACTOR(OPERATION_RESAMPLE_BWD_BETA, kOptional),
};
constexpr AttributeRow kOpGenStats[] = {
    ONE(OPERATION_GENSTATS_MODE, GENSTATS_MODE, kRequired),
    ONE(OPERATION_GENSTATS_MATH_PREC, DATA_TYPE, kRequired),
    READS(OPERATION_GENSTATS_XDESC, kRequired),
    WRITES(OPERATION_GENSTATS_SUMDESC, kRequired),
    WRITES(OPERATION_GENSTATS_SQSUMDESC, kRequired),
};
constexpr AttributeRow kOpBnFinalize[] = {
    ONE(OPERATION_BN_FINALIZE_STATS_MODE, BN_FINALIZE_STATS_MODE, kRequired),
    ONE(OPERATION_BN_FINALIZE_MATH_PREC, DATA_TYPE, kRequired),
    READS(OPERATION_BN_FINALIZE_Y_SUM_DESC, kOptional),
    READS(OPERATION_BN_FINALIZE_Y_SQ_SUM_DESC, kOptional),
    READS(OPERATION_BN_FINALIZE_SCALE_DESC, kRequired),
    READS(OPERATION_BN_FINALIZE_BIAS_DESC, kRequired),
    READS(OPERATION_BN_FINALIZE_PREV_RUNNING_MEAN_DESC, kOptional),
    READS(OPERATION_BN_FINALIZE_PREV_RUNNING_VAR_DESC, kOptional),
    WRITES(OPERATION_BN_FINALIZE_UPDATED_RUNNING_MEAN_DESC, kOptional),
    WRITES(OPERATION_BN_FINALIZE_UPDATED_RUNNING_VAR_DESC, kOptional),
    WRITES(OPERATION_BN_FINALIZE_SAVED_MEAN_DESC, kOptional),
    WRITES(OPERATION_BN_FINALIZE_SAVED_INV_STD_DESC, kOptional),
    WRITES(OPERATION_BN_FINALIZE_EQ_SCALE_DESC, kRequired),
    WRITES(OPERATION_BN_FINALIZE_EQ_BIAS_DESC, kRequired),
    READS(OPERATION_BN_FINALIZE_ACCUM_COUNT_DESC, kOptional),
    READS(OPERATION_BN_FINALIZE_EPSILON_DESC, kRequired),
    READS(OPERATION_BN_FINALIZE_EXP_AVERATE_FACTOR_DESC, kOptional),
};
constexpr AttributeRow kOpBnBackwardWeights[] = {
    ONE(OPERATION_BN_BWD_WEIGHTS_MATH_PREC, DATA_TYPE, kRequired),
    READS(OPERATION_BN_BWD_WEIGHTS_MEAN_DESC, kRequired),
    READS(OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC, kRequired),
    READS(OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC, kRequired),
    READS(OPERATION_BN_BWD_WEIGHTS_X_DESC, kRequired),
    READS(OPERATION_BN_BWD_WEIGHTS_DY_DESC, kRequired),
    WRITES(OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, kRequired),
    WRITES(OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC, kRequired),
    WRITES(OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC, kRequired),
    WRITES(OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC, kRequired),
    WRITES(OPERATION_BN_BWD_WEIGHTS_EQ_BIAS, kRequired),
};
// Statistics are results in training, operands of a batch norm's inference: translation knows.
constexpr AttributeRow kOpNormForward[] = {
    ONE(OPERATION_NORM_FWD_MODE, NORM_MODE, kRequired),
    ONE(OPERATION_NORM_FWD_PHASE, NORM_FWD_PHASE, kRequired),
    READS(OPERATION_NORM_FWD_XDESC, kRequired),
    WRITES(OPERATION_NORM_FWD_MEAN_DESC, kOptional),
    WRITES(OPERATION_NORM_FWD_INV_VARIANCE_DESC, kOptional),
    READS(OPERATION_NORM_FWD_SCALE_DESC, kRequired),
    READS(OPERATION_NORM_FWD_BIAS_DESC, kOptional),
    READS(OPERATION_NORM_FWD_EPSILON_DESC, kOptional),
    READS(OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC, kOptional),
    READS(OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC, kOptional),
    READS(OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC, kOptional),
    WRITES(OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC, kOptional),
    WRITES(OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC, kOptional),
    WRITES(OPERATION_NORM_FWD_YDESC, kRequired),
    CHILDREN(OPERATION_NORM_FWD_PEER_STAT_DESCS, TENSOR, kAny, kOptional),
};
constexpr AttributeRow kOpNormBackward[] = {
    ONE(OPERATION_NORM_BWD_MODE, NORM_MODE, kRequired),
    READS(OPERATION_NORM_BWD_XDESC, kRequired),
    READS(OPERATION_NORM_BWD_MEAN_DESC, kOptional),
    READS(OPERATION_NORM_BWD_INV_VARIANCE_DESC, kOptional),
    READS(OPERATION_NORM_BWD_DYDESC, kRequired),
    READS(OPERATION_NORM_BWD_SCALE_DESC, kRequired),
    READS(OPERATION_NORM_BWD_EPSILON_DESC, kOptional),
    WRITES(OPERATION_NORM_BWD_DSCALE_DESC, kOptional),
    WRITES(OPERATION_NORM_BWD_DBIAS_DESC, kOptional),
    WRITES(OPERATION_NORM_BWD_DXDESC, kRequired),
    CHILDREN(OPERATION_NORM_BWD_PEER_STAT_DESCS, TENSOR, kAny, kOptional),
};
constexpr AttributeRow kOpReshape[] = {
    READS(OPERATION_RESHAPE_XDESC, kRequired),
    WRITES(OPERATION_RESHAPE_YDESC, kRequired),
};
constexpr AttributeRow kOpConcat[] = {
    READS_ALL(OPERATION_CONCAT_INPUT_DESCS, kRequired),
    WRITES(OPERATION_CONCAT_OUTPUT_DESC, kRequired),
    ONE(OPERATION_CONCAT_AXIS, INT64, kRequired),
    ONE(OPERATION_CONCAT_INPLACE_INDEX, INT64, kOptional),
};
constexpr AttributeRow kOpPagedCacheLoad[] = {
    READS(OPERATION_PAGED_CACHE_LOAD_CONTAINER_DESC, kRequired),
    READS(OPERATION_PAGED_CACHE_LOAD_PAGE_TABLE_DESC, kRequired),
    READS(OPERATION_PAGED_CACHE_LOAD_SEQUENCE_DESC, kOptional),
    WRITES(OPERATION_PAGED_CACHE_LOAD_YDESC, kRequired),
};
constexpr AttributeRow kOpBlockScaleQuantize[] = {
    READS(OPERATION_BLOCK_SCALE_QUANTIZE_XDESC, kRequired),
    WRITES(OPERATION_BLOCK_SCALE_QUANTIZE_YDESC, kRequired),
    WRITES(OPERATION_BLOCK_SCALE_QUANTIZE_SCALE_DESC, kRequired),
    ONE(OPERATION_BLOCK_SCALE_QUANTIZE_MATH_PREC, DATA_TYPE, kRequired),
    LIST(OPERATION_BLOCK_SCALE_QUANTIZE_BLOCK_SIZE, INT32, 1, kRank, kRequired),
};
constexpr AttributeRow kOpBlockScaleDequantize[] = {
    READS(OPERATION_BLOCK_SCALE_DEQUANTIZE_XDESC, kRequired),
    READS(OPERATION_BLOCK_SCALE_DEQUANTIZE_SCALE_DESC, kRequired),
    WRITES(OPERATION_BLOCK_SCALE_DEQUANTIZE_YDESC, kRequired),
    ONE(OPERATION_BLOCK_SCALE_DEQUANTIZE_MATH_PREC, DATA_TYPE, kRequired),
    LIST(OPERATION_BLOCK_SCALE_DEQUANTIZE_BLOCK_SIZE, INT32, 1, kRank, kRequired),
    FLAG(OPERATION_BLOCK_SCALE_DEQUANTIZE_NEG_SCALE, kOptional),
};
constexpr AttributeRow kOpMoe[] = {
    ONE(OPERATION_MOE_GROUPED_MATMUL_MODE, MOE_GROUPED_MATMUL_MODE, kRequired),
    ONE(OPERATION_MOE_GROUPED_MATMUL_MATH_PREC, DATA_TYPE, kRequired),
    READS(OPERATION_MOE_GROUPED_MATMUL_TOKEN_DESC, kRequired),
    READS(OPERATION_MOE_GROUPED_MATMUL_WEIGHT_DESC, kRequired),
    READS(OPERATION_MOE_GROUPED_MATMUL_FIRST_TOKEN_OFFSET_DESC, kRequired),
    WRITES(OPERATION_MOE_GROUPED_MATMUL_OUTPUT_DESC, kRequired),
    READS(OPERATION_MOE_GROUPED_MATMUL_TOKEN_INDEX_DESC, kOptional),
    READS(OPERATION_MOE_GROUPED_MATMUL_TOKEN_KS_DESC, kOptional),
    ONE(OPERATION_MOE_GROUPED_MATMUL_TOP_K, INT32, kOptional),
};
constexpr AttributeRow kOpSdpaForward[] = {
    READS(OPERATION_SDPA_FWD_QDESC, kRequired),
    READS(OPERATION_SDPA_FWD_KDESC, kRequired),
    READS(OPERATION_SDPA_FWD_VDESC, kRequired),
    WRITES(OPERATION_SDPA_FWD_ODESC, kRequired),
    WRITES(OPERATION_SDPA_FWD_STATSDESC, kOptional),
    READS(OPERATION_SDPA_FWD_SCALEDESC, kOptional),
    READS(OPERATION_SDPA_FWD_BLOCK_MASK_DESC, kOptional),
    READS(OPERATION_SDPA_FWD_PAGE_TABLE_KDESC, kOptional),
    READS(OPERATION_SDPA_FWD_PAGE_TABLE_VDESC, kOptional),
    READS(OPERATION_SDPA_FWD_SEQ_LEN_QDESC, kOptional),
    READS(OPERATION_SDPA_FWD_SEQ_LEN_KVDESC, kOptional),
};

#define ROW(kind, attributes) \
  { CUDNN_BACKEND_##kind##_DESCRIPTOR, #kind, attributes }
constexpr DescriptorRow kRows[] = {
    ROW(TENSOR, kTensor),
    ROW(OPERATIONGRAPH, kOperationGraph),
    ROW(ENGINEHEUR, kEngineHeur),
    ROW(ENGINE, kEngine),
    ROW(KNOB_INFO, kKnobInfo),
    ROW(KNOB_CHOICE, kKnobChoice),
    ROW(ENGINECFG, kEngineConfig),
    ROW(EXECUTION_PLAN, kExecutionPlan),
    ROW(VARIANT_PACK, kVariantPack),
    ROW(KERNEL_CACHE, kKernelCache),
    ROW(DEVICEPROP, kDeviceProperties),
    ROW(POINTWISE, kPointwise),
    ROW(CONVOLUTION, kConvolution),
    ROW(MATMUL, kMatmul),
    ROW(REDUCTION, kReduction),
    ROW(RESAMPLE, kResample),
    ROW(RNG, kRng),
    ROW(OPERATION_POINTWISE, kOpPointwise),
    ROW(OPERATION_CONVOLUTION_FORWARD, kOpConvForward),
    ROW(OPERATION_CONVOLUTION_BACKWARD_DATA, kOpConvBackwardData),
    ROW(OPERATION_CONVOLUTION_BACKWARD_FILTER, kOpConvBackwardFilter),
    ROW(OPERATION_MATMUL, kOpMatmul),
    ROW(OPERATION_REDUCTION, kOpReduction),
    ROW(OPERATION_RNG, kOpRng),
    ROW(OPERATION_RESAMPLE_FWD, kOpResampleForward),
    ROW(OPERATION_RESAMPLE_BWD, kOpResampleBackward),
    ROW(OPERATION_GEN_STATS, kOpGenStats),
    ROW(OPERATION_BN_FINALIZE_STATISTICS, kOpBnFinalize),
    ROW(OPERATION_BN_BWD_WEIGHTS, kOpBnBackwardWeights),
    ROW(OPERATION_NORM_FORWARD, kOpNormForward),
    ROW(OPERATION_NORM_BACKWARD, kOpNormBackward),
    ROW(OPERATION_RESHAPE, kOpReshape),
    ROW(OPERATION_CONCAT, kOpConcat),
    ROW(OPERATION_PAGED_CACHE_LOAD, kOpPagedCacheLoad),
    ROW(OPERATION_BLOCK_SCALE_QUANTIZE, kOpBlockScaleQuantize),
    ROW(OPERATION_BLOCK_SCALE_DEQUANTIZE, kOpBlockScaleDequantize),
    ROW(OPERATION_MOE_GROUPED_MATMUL, kOpMoe),
    ROW(OPERATION_SDPA_FWD, kOpSdpaForward),
};

struct TypeRow {
  std::string_view name;
  size_t bytes;
  cudnnBackendAttributeType_t type;
  int values = 0;  ///< of an enumeration: numbers from 0 up; 0: none, or not in one row
};

// The modes of pointwise ops have gaps, so they are listed in has_value.
constexpr TypeRow kTypes[] = {
    {"HANDLE", sizeof(void*), CUDNN_TYPE_HANDLE},
    {"DATA_TYPE", sizeof(int), CUDNN_TYPE_DATA_TYPE, 22},
    {"BOOLEAN", sizeof(bool), CUDNN_TYPE_BOOLEAN},
    {"INT64", sizeof(int64_t), CUDNN_TYPE_INT64},
    {"FLOAT", sizeof(float), CUDNN_TYPE_FLOAT},
    {"DOUBLE", sizeof(double), CUDNN_TYPE_DOUBLE},
    {"VOID_PTR", sizeof(void*), CUDNN_TYPE_VOID_PTR},
    {"CONVOLUTION_MODE", sizeof(int), CUDNN_TYPE_CONVOLUTION_MODE, 2},
    {"HEUR_MODE", sizeof(int), CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODES_COUNT},
    {"KNOB_TYPE", sizeof(int), CUDNN_TYPE_KNOB_TYPE, CUDNN_KNOB_TYPE_COUNTS},
    {"NAN_PROPOGATION", sizeof(int), CUDNN_TYPE_NAN_PROPOGATION, 2},
    {"NUMERICAL_NOTE", sizeof(int), CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT},
    {"LAYOUT_TYPE", sizeof(int), CUDNN_TYPE_LAYOUT_TYPE, CUDNN_LAYOUT_TYPE_COUNT},
    {"ATTRIB_NAME", sizeof(int), CUDNN_TYPE_ATTRIB_NAME},
    {"POINTWISE_MODE", sizeof(int), CUDNN_TYPE_POINTWISE_MODE},
    {"BACKEND_DESCRIPTOR", sizeof(void*), CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {"GENSTATS_MODE", sizeof(int), CUDNN_TYPE_GENSTATS_MODE, 1},
    {"BN_FINALIZE_STATS_MODE", sizeof(int), CUDNN_TYPE_BN_FINALIZE_STATS_MODE, 2},
    {"REDUCTION_OPERATOR_TYPE", sizeof(int), CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 9},
    {"BEHAVIOR_NOTE", sizeof(int), CUDNN_TYPE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT},
    {"TENSOR_REORDERING_MODE", sizeof(int), CUDNN_TYPE_TENSOR_REORDERING_MODE, 4},
    {"RESAMPLE_MODE", sizeof(int), CUDNN_TYPE_RESAMPLE_MODE, 5},
    {"PADDING_MODE", sizeof(int), CUDNN_TYPE_PADDING_MODE, 3},
    {"INT32", sizeof(int32_t), CUDNN_TYPE_INT32},
    {"CHAR", sizeof(char), CUDNN_TYPE_CHAR},
    {"SIGNAL_MODE", sizeof(int), CUDNN_TYPE_SIGNAL_MODE, 2},
    {"FRACTION", sizeof(cudnnFraction_t), CUDNN_TYPE_FRACTION},
    {"NORM_MODE", sizeof(int), CUDNN_TYPE_NORM_MODE, 6},
    {"NORM_FWD_PHASE", sizeof(int), CUDNN_TYPE_NORM_FWD_PHASE, 2},
    {"RNG_DISTRIBUTION", sizeof(int), CUDNN_TYPE_RNG_DISTRIBUTION, 3},
    {"MOE_GROUPED_MATMUL_MODE", sizeof(int), CUDNN_TYPE_MOE_GROUPED_MATMUL_MODE, 3},
};

const TypeRow* type_row(cudnnBackendAttributeType_t type) {
  const auto found = std::ranges::find(kTypes, type, &TypeRow::type);
  return found == std::end(kTypes) ? nullptr : found;
}

bool is_between(int value, int first, int last) { return value >= first && value <= last; }

bool is_pointwise_mode(int mode) {
  return is_between(mode, CUDNN_POINTWISE_ADD, CUDNN_POINTWISE_ATAN2) ||
         is_between(mode, CUDNN_POINTWISE_RELU_FWD, CUDNN_POINTWISE_GELU_APPROX_TANH_FWD) ||
         is_between(mode, CUDNN_POINTWISE_RELU_BWD, CUDNN_POINTWISE_GELU_APPROX_TANH_BWD) ||
         is_between(mode, CUDNN_POINTWISE_CMP_EQ, CUDNN_POINTWISE_CMP_LE) ||
         is_between(mode, CUDNN_POINTWISE_LOGICAL_AND, CUDNN_POINTWISE_LOGICAL_NOT) ||
         mode == CUDNN_POINTWISE_GEN_INDEX || mode == CUDNN_POINTWISE_BINARY_SELECT;
}

}  // namespace

const AttributeRow* DescriptorRow::find(cudnnBackendAttributeName_t attribute) const {
  const auto found = std::ranges::find(attributes, attribute, &AttributeRow::name);
  return found == attributes.end() ? nullptr : &*found;
}

bool DescriptorRow::is_operation() const {
  return std::ranges::any_of(attributes, [](const AttributeRow& row) { return row.flow == Flow::writes; });
}

const DescriptorRow* row_of(cudnnBackendDescriptorType_t type) {
  const auto found = std::ranges::find(kRows, type, &DescriptorRow::type);
  return found == std::end(kRows) ? nullptr : found;
}

std::span<const DescriptorRow> descriptor_rows() { return kRows; }

size_t bytes_of(cudnnBackendAttributeType_t type) {
  const TypeRow* row = type_row(type);
  return row == nullptr ? 0 : row->bytes;
}

std::string_view name_of(cudnnBackendAttributeType_t type) {
  const TypeRow* row = type_row(type);
  return row == nullptr ? "unknown type" : row->name;
}

bool is_enumeration(cudnnBackendAttributeType_t type) {
  const TypeRow* row = type_row(type);
  return type == CUDNN_TYPE_POINTWISE_MODE || (row != nullptr && row->values > 0);
}

bool has_value(cudnnBackendAttributeType_t type, int value) {
  if (type == CUDNN_TYPE_POINTWISE_MODE) return is_pointwise_mode(value);
  return is_between(value, 0, type_row(type)->values - 1);
}

}  // namespace fusor::cudnn
