// Owns Translator: the graph that grows while ops are translated one after another, and what every rule asks
// of it.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compat/cudnn/src/descriptor.h"
#include "compat/cudnn/src/translate/attention_pattern.h"
#include "compat/cudnn/src/translate/row_lengths.h"
#include "compat/cudnn/src/translate/translation.h"
#include "frontend/graph_builder.h"

namespace fusor::cudnn {

/// A tensor descriptor, read once.
struct TensorFacts {
  int64_t uid = 0;
  DataType type = DataType::f32;
  Dims dims;
  Strides strides;
  int64_t alignment = 16;
  bool is_virtual = false;
  bool is_by_value = false;
  bool is_complex = false;          ///< the last axis is that of the parts of a number
  bool is_packed = false;           ///< two unsigned integers of 4 bits in a byte; `type` is what they become
  DescriptorPointer ragged_offset;  ///< batch entries begin at these elements; null: it is not ragged
  int vector_axis = 0;  ///< along which so many neighbours lie side by side; the strides count such vectors
  int64_t vector_count = 1;

  /// The tensor in memory: vectors are an axis of their own, behind the one that they divide.
  Dims memory_dims() const;
  Strides memory_strides() const;
};
TensorFacts facts_of(const Descriptor& tensor);

/// Throws for types that fusor does not have.
DataType data_type_of(cudnnDataType_t type);
/// The same, and of complex numbers the type of their parts.
DataType part_type_of(cudnnDataType_t type);
/// The type in which a matmul or a convolution sums. Integers are summed in 32 bits or more: sums in fewer
/// are refused, as clients expect that look for what a convolution of integers supports.
DataType sum_type_of(cudnnDataType_t type);

class Translator {
 public:
  /// The graph's tensor for an operand of an op: made by an earlier op, or an input. Tensor{} where the
  /// attribute is not set.
  Tensor in(const Descriptor& op, cudnnBackendAttributeName_t attribute);
  Tensor in(const Descriptor& tensor);
  /// The facts of a tensor that the op names; throws where it names none.
  static TensorFacts facts(const Descriptor& op, cudnnBackendAttributeName_t attribute);
  static bool has(const Descriptor& op, cudnnBackendAttributeName_t attribute) {
    return op.child(attribute) != nullptr;
  }
  /// Gives the result the place of the tensor that the op names: its dims, type and memory. Nothing where it
  /// names none.
  void out(const Descriptor& op, cudnnBackendAttributeName_t attribute, const Tensor& result);
  void out(const TensorFacts& facts, const Tensor& result);
  /// The type to ask for: what the tensor declares; open for a virtual tensor of fp32, which is the
  /// intermediate type that clients declare without a wish.
  static std::optional<DataType> asked_type(const TensorFacts& facts);
  /// Options of an op that makes that tensor and computes in the type that `precision` holds.
  static OpOptions options(const TensorFacts& made, std::optional<DataType> compute = std::nullopt);

  /// One result of an op of any family, with the dims of the tensor that it becomes.
  Tensor op(const Attributes& attributes, std::initializer_list<Tensor> operands, const TensorFacts& made);

  Tensor reshaped(const Tensor& x, const Dims& dims);
  Tensor transposed(const Tensor& x, const Dims& permutation);
  Tensor scaled(const Tensor& x, double factor);
  /// The same tensor with one axis, as by-value scalars have it.
  Tensor as_scalar(const Tensor& x);

  /// The numbers 0, 1, ... along one axis of a tensor of that rank.
  Tensor numbers_along(int axis, int rank, int64_t extent);
  /// Options of an op on int32.
  static PointwiseOptions whole() { return {.type = DataType::i32, .compute = DataType::i32}; }
  Tensor number(int64_t value) { return builder_.constant(static_cast<double>(value), DataType::i32); }

  GraphBuilder& builder() { return builder_; }
  /// Places a result inside of a tensor of the client, so many bytes behind its start.
  void place(const Tensor& result, const TensorFacts& whole, int64_t byte_offset);
  /// Whether another op reads that tensor.
  bool is_read(int64_t uid) const;
  void note_reader(int64_t uid) { ++readers_[uid]; }
  /// Whether the graph multiplies matrices: the rows of scores in front of one may be masked whole.
  bool has_matmul = false;
  /// Whether rows of some matmul have lengths: what lies behind them may be anything.
  bool has_lengths = false;
  /// The attention among the ops, and whether numbers that each run gives are presumed to be what clients
  /// give.
  AttentionPattern pattern;
  bool presumes = false;
  /// Operands of matmuls whose other rows are made 0 when they are loaded, so that these matmuls need no
  /// lengths.
  std::map<int64_t, ExistingRows> existing_rows;
  bool hides_missing_rows = false;
  /// The scalar (of fp32), presumed to be positive where anything is.
  Tensor presumed_positive(const TensorFacts& scalar);
  /// How many rows the first matmul that says so has in each entry of a batch.
  Tensor row_lengths;
  /// Results of reductions, by which attention is recognised.
  bool is_row_maximum(const Tensor& x) const;
  bool is_row_sum(const Tensor& x) const;
  void note_reduction(const Tensor& y, ReductionMode mode);
  /// How far x is in the chain of ops by which clients write the gradient of an attention's sink: 0 is not
  /// in it, 1 sink - stats, 2 its exponential, 3 that times the rows' sums.
  int sink_step(const Tensor& x) const;
  void note_sink_step(const Tensor& x, int step) { sink_steps_[x.uid] = step; }
  /// Whether x is a logarithm: of the sums of rows, where attention makes its statistics.
  bool is_logarithm(const Tensor& x) const { return logarithms_.contains(x.uid); }
  void note_logarithm(const Tensor& x) { logarithms_.insert(x.uid); }
  /// The mode of the reduction that made x, or nothing.
  std::optional<ReductionMode> reduction_of(const Tensor& x) const;

  Translation finish();

 private:
  Tensor make_input(const TensorFacts& facts);
  Tensor loaded(const TensorFacts& facts);
  Tensor with_existing_rows(const TensorFacts& facts, const Tensor& x, bool swapped);
  Tensor make_ragged_input(const std::string& name, const TensorFacts& facts);
  void out_ragged(const TensorFacts& facts, const Tensor& result);
  void out_packed(const TensorFacts& facts, const Tensor& result);
  Tensor make_packed_input(const std::string& name, const TensorFacts& facts);

  GraphBuilder builder_{"operation graph"};
  std::map<int64_t, Tensor> known_;            // by the client's uid
  std::map<int64_t, Tensor> ragged_;           // ragged inputs, as they lie
  std::map<int64_t, Tensor> of_elements_;      // loads of these for ops on elements
  std::map<std::string, PlacedTensor> bound_;  // by the graph's names
  std::map<int64_t, int> readers_;
  std::vector<Tensor> outputs_;
  std::map<int64_t, Tensor> positive_;           // by the client's uid
  std::map<int64_t, ReductionMode> reductions_;  // by the graph's uid
  std::map<int64_t, int> sink_steps_;            // the same
  std::set<int64_t> logarithms_;                 // the same
};

// The families' rules, in files of their own.
using Rule = void (*)(Translator& t, const Descriptor& op);
void translate_pointwise(Translator& t, const Descriptor& op);
void translate_reduction(Translator& t, const Descriptor& op);
void translate_matmul(Translator& t, const Descriptor& op);
void translate_conv_forward(Translator& t, const Descriptor& op);
void translate_conv_backward_data(Translator& t, const Descriptor& op);
void translate_conv_backward_filter(Translator& t, const Descriptor& op);
void translate_norm_forward(Translator& t, const Descriptor& op);
void translate_norm_backward(Translator& t, const Descriptor& op);
void translate_gen_stats(Translator& t, const Descriptor& op);
void translate_bn_finalize(Translator& t, const Descriptor& op);
void translate_bn_backward_weights(Translator& t, const Descriptor& op);
void translate_reshape(Translator& t, const Descriptor& op);
void translate_concat(Translator& t, const Descriptor& op);
void translate_paged_cache_load(Translator& t, const Descriptor& op);
void translate_resample_forward(Translator& t, const Descriptor& op);
void translate_resample_backward(Translator& t, const Descriptor& op);
void translate_rng(Translator& t, const Descriptor& op);
void translate_block_scale_quantize(Translator& t, const Descriptor& op);
void translate_block_scale_dequantize(Translator& t, const Descriptor& op);
void translate_moe(Translator& t, const Descriptor& op);
void translate_sdpa_forward(Translator& t, const Descriptor& op);
/// Ops of complex numbers, of any family. Throws where some tensors hold complex numbers and some do not.
bool has_complex_numbers(const Descriptor& op);
void translate_complex(Translator& t, const Descriptor& op);

}  // namespace fusor::cudnn
