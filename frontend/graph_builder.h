// Owns GraphBuilder: the C++ front-end, one method per op, shapes and types inferred as the graph grows.
#pragma once

#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/api.h"
#include "core/graph.h"
#include "frontend/composite_options.h"

namespace fusor {

/// How an input lies in memory. `strides` wins over `layout`; a uid that is not given is the next free one,
/// from 1.
struct TensorOptions {
  Layout layout = Layout::row_major;
  std::optional<Strides> strides = std::nullopt;
  int64_t alignment = 16;  ///< bytes that bound pointers are promised to be a multiple of
  std::optional<int64_t> uid = std::nullopt;
};

/// Common to all ops: the op's name (default: kind and position, "relu3"; its result is called "relu3:y", of
/// matmul ":c", of conv_dgrad ":dx", of conv_wgrad ":dw"), the type of the virtual result (default: left
/// open, which finish() settles), the compute type (default: core/infer.h). Ops that only move elements keep
/// the operand's type and compute nothing. A parameter that the op does not have is refused.
struct PointwiseOptions {
  double lower_clip = 0;
  double upper_clip = std::numeric_limits<double>::infinity();
  double lower_clip_slope = 0;
  double elu_alpha = 1;
  double softplus_beta = 1;
  double swish_beta = 1;
  std::string name = {};
  std::optional<DataType> type = std::nullopt;
  std::optional<DataType> compute = std::nullopt;
};

struct ScatterOptions {
  int64_t axis = 0;  ///< negative ones count from the back
  std::string name = {};
  std::optional<DataType> type = std::nullopt;
};

struct GatherOptions {
  int64_t axis = 0;  ///< negative ones count from the back
  std::string name = {};
  std::optional<DataType> type = std::nullopt;
};

/// One entry per spatial dim; an empty list stands for padding 0, stride 1, dilation 1. `padding` is both
/// paddings.
struct ConvOptions {
  Dims padding = {};
  Dims pre_padding = {};
  Dims post_padding = {};
  Dims stride = {};
  Dims dilation = {};
  ConvMode mode = ConvMode::cross_correlation;
  int64_t groups = 0;  ///< 0: what the channels of x and w say; else they are checked against it
  std::string name = {};
  std::optional<DataType> type = std::nullopt;
  std::optional<DataType> compute = std::nullopt;
};

/// An output's name and uid (default: the result's), its type, its place in memory (`strides` wins over
/// `layout`; default: packed in the memory order that was inferred). The default type is the one asked for
/// where the op was appended, else the promoted type of what the op reads, followed back through tensors
/// whose type is open: the stored type of core/open_types.h (by-value scalars count only where all operands
/// are). Where that would lose the result's kind, it is the compute type: integer contractions and sums, real
/// results of integers, integers from reals, numbers from bool8. Comparisons give bool8.
struct OutputOptions {
  std::string name = {};
  std::optional<DataType> type = std::nullopt;
  std::optional<Layout> layout = std::nullopt;
  std::optional<Strides> strides = std::nullopt;
  int64_t alignment = 16;
  std::optional<int64_t> uid = std::nullopt;
};

/// Builds a Graph. Tensors that methods return are copies of what the graph holds; they are known by uid and
/// name, and stay valid where output() gives the graph's tensor others. Another builder refuses them; copies
/// of a builder count as one. The type of a virtual tensor that nobody said is open until finish(), which
/// settles it by the rule of core/open_types.h: operands of a contraction take the 16- or 8-bit type beside
/// them, the rest stays in its compute type. Every mistake throws Error{bad_input} that names the op and the
/// numbers; the builder stays as it was before the call.
class FUSOR_API GraphBuilder {
 public:
  explicit GraphBuilder(std::string name = "graph", Precision precision = Precision::exact);

  Tensor input(const std::string& name, const Dims& dims, DataType type, Layout layout = Layout::row_major);
  Tensor input(const std::string& name, const Dims& dims, DataType type, const TensorOptions& options);
  /// A by-value scalar of one element, read from host memory during each run.
  Tensor scalar(const std::string& name, DataType type);
  /// A scalar whose value is part of the graph; a whole number where the type is an integer.
  Tensor constant(double value, DataType type = DataType::f32);

  Tensor pointwise(PointwiseMode mode, std::span<const Tensor> operands,
                   const PointwiseOptions& options = {});
  Tensor pointwise(PointwiseMode mode, std::initializer_list<Tensor> operands,
                   const PointwiseOptions& options = {}) {
    return pointwise(mode, std::span<const Tensor>(operands.begin(), operands.size()), options);
  }
  /// The coordinate of each element of `x` along `axis` (negative ones count from the back), as an integer.
  Tensor gen_index(const Tensor& x, int64_t axis, const PointwiseOptions& options = {});

  // g.relu(x), g.add(a, b), g.relu_bwd(dy, x), g.binary_select(a, b, t) ...: one method per row of
  // core/pointwise.def.
#define FUSOR_OPERANDS_1 const Tensor& a
#define FUSOR_OPERANDS_2 const Tensor &a, const Tensor &b
#define FUSOR_OPERANDS_3 const Tensor &a, const Tensor &b, const Tensor &c
#define FUSOR_LIST_1 \
  { a }
#define FUSOR_LIST_2 \
  { a, b }
#define FUSOR_LIST_3 \
  { a, b, c }
#define FUSOR_METHOD_real(mode, inputs)                                        \
  Tensor mode(FUSOR_OPERANDS_##inputs, const PointwiseOptions& options = {}) { \
    return pointwise(PointwiseMode::mode, FUSOR_LIST_##inputs, options);       \
  }
#define FUSOR_METHOD_any(mode, inputs) FUSOR_METHOD_real(mode, inputs)
#define FUSOR_METHOD_compare(mode, inputs) FUSOR_METHOD_real(mode, inputs)
#define FUSOR_METHOD_logical(mode, inputs) FUSOR_METHOD_real(mode, inputs)
#define FUSOR_METHOD_index(mode, inputs)
#define FUSOR_POINTWISE(mode, inputs, domain, alu, sfu, formula) FUSOR_METHOD_##domain(mode, inputs)
#include "core/pointwise.def"
#undef FUSOR_POINTWISE
#undef FUSOR_METHOD_real
#undef FUSOR_METHOD_any
#undef FUSOR_METHOD_compare
#undef FUSOR_METHOD_logical
#undef FUSOR_METHOD_index
#undef FUSOR_LIST_1
#undef FUSOR_LIST_2
#undef FUSOR_LIST_3
#undef FUSOR_OPERANDS_1
#undef FUSOR_OPERANDS_2
#undef FUSOR_OPERANDS_3

  /// Reduces `axes` (negative ones count from the back; all where empty) to extent 1.
  Tensor reduce(const Tensor& x, ReductionMode mode, const Dims& axes = {}, const OpOptions& options = {});
  /// Reduces to `dims`: an extent that divides x's is reduced in groups of neighbours.
  Tensor reduce_to(const Tensor& x, ReductionMode mode, const Dims& dims, const OpOptions& options = {});
  Tensor matmul(const Tensor& a, const Tensor& b, const OpOptions& options = {});
  /// x taken at an index (int32 or int64, of x's rank) along options.axis; the other axes broadcast. An index
  /// outside of x's extent reads 0.
  Tensor gather(const Tensor& x, const Tensor& index, const GatherOptions& options = {});
  /// The way back: x's elements at an index along options.axis of a result of `dims`, which has x's other
  /// extents or 1. What no index names is not written: the result is an output that no op reads.
  Tensor scatter(const Tensor& x, const Tensor& index, const Dims& dims, const ScatterOptions& options = {});
  Tensor conv_fprop(const Tensor& x, const Tensor& w, const ConvOptions& options = {});
  Tensor conv_dgrad(const Tensor& dy, const Tensor& w, const Dims& dx_dims, const ConvOptions& options = {});
  Tensor conv_wgrad(const Tensor& dy, const Tensor& x, const Dims& dw_dims, const ConvOptions& options = {});
  Tensor reshape(const Tensor& x, const Dims& dims, const OpOptions& options = {});
  Tensor transpose(const Tensor& x, const Dims& permutation, const OpOptions& options = {});
  /// An empty `step` is 1 everywhere; limits past the end are errors.
  Tensor slice(const Tensor& x, const Dims& start, const Dims& limit, const Dims& step = {},
               const OpOptions& options = {});
  /// A negative axis counts from the back.
  Tensor concatenate(std::span<const Tensor> xs, int64_t axis, const OpOptions& options = {});
  Tensor concatenate(std::initializer_list<Tensor> xs, int64_t axis, const OpOptions& options = {}) {
    return concatenate(std::span<const Tensor>(xs.begin(), xs.size()), axis, options);
  }

  // Composites: core/ops/ says what each computes.
  SoftmaxResults softmax(const Tensor& x, const SoftmaxOptions& options = {});
  SoftmaxGradients softmax_bwd(const Tensor& dy, const Tensor& y, const SoftmaxBackwardOptions& options = {});
  /// `labels`: integers, x's dims with 1 along the axis.
  CrossEntropyResults cross_entropy(const Tensor& x, const Tensor& labels,
                                    const CrossEntropyOptions& options = {});
  Tensor cross_entropy_bwd(const Tensor& x, const Tensor& labels, const Tensor& dloss,
                           const CrossEntropyBackwardOptions& options = {});
  NormResults norm_fwd(const Tensor& x, const NormOptions& options = {});
  NormGradients norm_bwd(const Tensor& dy, const Tensor& x, const NormBackwardOptions& options = {});
  GenStatsResults gen_stats(const Tensor& x, const OpOptions& options = {});
  BnFinalizeResults bn_finalize(const Tensor& sum, const Tensor& sq_sum, const Tensor& scale,
                                const Tensor& bias, const BnFinalizeOptions& options);
  BnBackwardWeightsResults bn_bwd_weights(const Tensor& dy, const Tensor& x, const Tensor& mean,
                                          const Tensor& inv_std, const Tensor& scale,
                                          const OpOptions& options = {});
  ResampleResults resample_fwd(const Tensor& x, const ResampleOptions& options);
  /// `x_dims`: of what the forward pass read. maxpool takes that or its index.
  Tensor resample_bwd(const Tensor& dy, const Dims& x_dims, const ResampleOptions& options,
                      const Tensor& x = {}, const Tensor& index = {});
  RnnResults rnn_fwd(const Tensor& x, std::span<const Tensor> weights, const RnnOptions& options);
  RnnGradients rnn_bwd(const Tensor& dy, const Tensor& x, std::span<const Tensor> weights,
                       const RnnOptions& options);
  Tensor lrn(const Tensor& x, const LrnOptions& options = {});
  Tensor lrn_bwd(const Tensor& dy, const Tensor& x, const LrnOptions& options = {});
  Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleOptions& options = {});
  GridSampleGradients grid_sample_bwd(const Tensor& dy, const Tensor& x, const Tensor& grid,
                                      const GridSampleOptions& options = {});
  CtcLossResults ctc_loss(const Tensor& x, const Tensor& labels, const CtcLossOptions& options = {});
  CausalConv1dResults causal_conv1d(const Tensor& x, const Tensor& weight,
                                    const CausalConv1dOptions& options = {});
  CausalConv1dGradients causal_conv1d_bwd(const Tensor& dy, const Tensor& x, const Tensor& weight,
                                          const CausalConv1dOptions& options = {});

  Tensor rng(const Dims& dims, const Tensor& seed, const Tensor& offset, const RngOptions& options = {});
  DropoutResults dropout(const Tensor& x, const Tensor& seed, const Tensor& offset, double probability,
                         const OpOptions& options = {});
  BlockScaleResults block_scale_quantize(const Tensor& x, const BlockScaleOptions& options = {});
  Tensor block_scale_dequantize(const Tensor& x, const Tensor& scale, const BlockScaleOptions& options = {});
  Tensor paged_cache_load(const Tensor& container, const Tensor& page_table,
                          const PagedCacheOptions& options = {});
  /// `strides`: one for each axis of `dims` behind the batch.
  Tensor ragged_load(const Tensor& x, const Tensor& offset, const Dims& dims, const Dims& strides,
                     const OpOptions& options = {});
  /// keeps_rest: elements that belong to no coordinate of x are not written, and the memory may end where
  /// the last offset says, short of `elements`.
  Tensor ragged_store(const Tensor& x, const Tensor& offset, int64_t elements, const Dims& strides,
                      const OpOptions& options = {}, bool keeps_rest = false);
  Tensor matmul_lengths(const Tensor& a, const Tensor& b, const MatmulLengthsOptions& options);
  Tensor moe_grouped_matmul(const Tensor& tokens, const Tensor& weights, const Tensor& first_token_offset,
                            const MoeOptions& options = {});
  SdpaResults sdpa_fwd(const Tensor& q, const Tensor& k, const Tensor& v, const SdpaOptions& options = {});
  SdpaGradients sdpa_bwd(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o,
                         const Tensor& d_o, const Tensor& stats, const SdpaOptions& options = {});

  /// An op of any family: its results in the order of its roles. Operands that are left out are Tensor{};
  /// optional results that nobody uses are not there in the finished graph.
  /// `given` holds the dims of results that the op does not imply.
  std::vector<Tensor> op(const Attributes& attributes, std::span<const Tensor> operands,
                         const OpOptions& options = {}, std::span<const Dims> given = {});
  template <OpFamily Family>
  requires(Family::nature == Nature::composite) std::vector<Tensor> op(const Family& family,
                                                                       std::initializer_list<Tensor> operands,
                                                                       const OpOptions& options = {}) {
    return op(Attributes(Composite(family)), std::span<const Tensor>(operands.begin(), operands.size()),
              options);
  }

  /// Makes a result an output that the user binds; the returned tensor has its final type, strides and name.
  /// A graph input, and a result whose type must stay because elements are only moved to or from it, is
  /// converted into the output by an identity op. Once per tensor.
  Tensor output(const Tensor& result, const OutputOptions& options = {});
  /// Makes the given results outputs (where output() has not yet), validates and returns the graph.
  Graph finish(std::initializer_list<Tensor> outputs = {}) {
    return finish(std::span<const Tensor>(outputs.begin(), outputs.size()));
  }
  Graph finish(std::span<const Tensor> outputs);

 private:
  /// What the builder knows of a tensor beside the graph's own words.
  struct Record {
    int64_t first_uid;  ///< uid and name under which copies were handed out before output() changed them
    std::string first_name;
    DataType stored_type;     ///< the type of an output made of it, unless another is asked for
    bool is_open = false;     ///< nobody said its type
    bool is_output = false;   ///< output() was called with it
    bool is_written = false;  ///< an op makes it
    bool is_moved = false;    ///< an op that only moves elements makes it or reads it
  };

  /// Which tensor has a name or uid, or had it before output() changed it; the names of ops.
  struct Taken {
    std::unordered_map<std::string, int> names;
    std::unordered_map<int64_t, int> uids;
    std::unordered_set<std::string> ops;
    int constants = 0;  ///< the number of the last one that was named
  };

  int index_of(const std::string& asker, const Tensor& tensor) const;
  int64_t next_uid() const;
  void expect_free_name(const std::string& asker, const std::string& name) const;
  void expect_free_uid(const std::string& asker, int64_t uid) const;
  std::string fresh_op_name(const std::string& asked, const Attributes& attributes) const;
  Tensor append(const std::string& name, Attributes attributes, std::span<const Tensor> operands,
                std::optional<DataType> type, std::optional<DataType> compute, const Dims& given = {});
  Tensor append(const std::string& name, Attributes attributes, std::initializer_list<Tensor> operands,
                std::optional<DataType> type, std::optional<DataType> compute, const Dims& given = {}) {
    return append(name, std::move(attributes), std::span<const Tensor>(operands.begin(), operands.size()),
                  type, compute, given);
  }
  Tensor append_conv(ConvPass pass, std::initializer_list<Tensor> operands, const ConvOptions& options,
                     const Dims& given = {});
  std::vector<Tensor> append_all(const std::string& name, Attributes attributes,
                                 std::span<const Tensor> operands, std::optional<DataType> type,
                                 std::optional<DataType> compute, std::span<const Dims> given);
  Tensor add_tensor(Tensor tensor, DataType stored_type, bool is_open = false);
  void forget_last_op();
  Tensor returned(Tensor tensor) const;
  DataType stored_type(const Attributes& attributes, DataType result, std::span<const int> inputs) const;
  /// Whether nobody said the tensor's type, so that finish() settles it.
  bool is_open(size_t tensor) const {
    return records_[tensor].is_open && graph_.tensors[tensor].is_virtual();
  }
  Graph settled() const;
  bool needs_conversion(size_t tensor, DataType type) const;
  Tensor as_output(Tensor tensor, DataType type, const OutputOptions& options) const;

  Graph graph_;
  Origin origin_;
  std::vector<Record> records_;  ///< parallel to graph_.tensors
  Taken taken_;
};

}  // namespace fusor
