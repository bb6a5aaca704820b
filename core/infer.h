// Owns shape, stride and type inference and the rules that every op must keep: the builder infers with it,
// validate() checks graphs from files with it, so both give the same message.
#pragma once

#include <span>
#include <string>

#include "core/graph.h"

namespace fusor {

/// What an op gives, were it appended, for each result: dims, packed strides, and the type of a virtual
/// result (the compute type; bool8 for comparisons and logic; int32 or int64 for gen_index; the operand's
/// type for ops that only move elements and for gather). The strides follow the memory order of the first
/// operand (pointwise: the first one that has the result's dims). They are row-major where no operand fits,
/// and for matmul, reshape and transpose, whose axes are not those of an operand. `given` holds the dims of
/// the results for ops that do not imply them (reshape, reduction, conv_dgrad, conv_wgrad); for the others it
/// may be empty, or is checked; a pointwise op's may be wider than what its operands broadcast to. An operand
/// that is left out is null. The inputs have passed validate(). Throws Error{bad_input} naming op, tensor and
/// numbers where a rule is broken.
std::vector<Inferred> infer_all(const std::string& op_name, const Attributes& attributes,
                                std::span<const Tensor* const> inputs, std::span<const Dims> given = {});
/// The same for an op of one result.
Inferred infer(const std::string& op_name, const Attributes& attributes,
               std::span<const Tensor* const> inputs, const Dims& given = {});

/// The compute type that an op gets when none is asked for: fp64 if any operand is, else fp32 if any operand
/// is real or the mode is defined for reals only (avg and norm2 among the reductions), else int64 if any
/// operand is, else int32. gen_index: int32, or int64 where the axis is longer than int32 counts;
/// philox: int64.
DataType default_compute(const Attributes& attributes, std::span<const Tensor* const> inputs);

/// Gives the op that compute type; whether ops of its kind have one.
bool set_compute(Attributes& attributes, DataType compute);

/// "conv_fprop 'c1'", "avg reduction 'mean'": how messages name an op.
std::string op_label(const std::string& op_name, const Attributes& attributes);
/// Whether the op only moves elements (views and concatenate): its result has the operand's type.
bool keeps_type(const Attributes& attributes);

/// Checks one tensor on its own: a name, 1 to 8 dims of 1 or more, a stride of 0 or more per dim, a span of
/// at most kMaxTensorBytes, alignment a power of two and at least one element's size, scalars of one element.
void validate(const Tensor& tensor);
/// The same for a tensor that an op writes: device or virtual, and its axes nest, so that no two elements
/// share a place.
void validate_written(const Tensor& tensor);
/// Checks a whole graph, trusting nothing: indices, names and uids unique, order topological, each tensor
/// written at most once, virtual tensors written and read, at least one output, dims and types as infer()
/// gives. An output or virtual tensor may have any type (its rounding), except the results of ops that only
/// move elements.
void validate(const Graph& graph);

}  // namespace fusor
