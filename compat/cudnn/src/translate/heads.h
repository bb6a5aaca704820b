// Owns the splitting of heads in groups: attention whose heads share keys as a graph with an axis more.
#pragma once

#include <vector>

#include "compat/cudnn/src/descriptor.h"

namespace fusor::cudnn {

/// Whether the op is pointwise, of that mode.
bool is_pointwise_op(const Descriptor& op, cudnnPointwiseMode_t mode);

/// The ops of an attention with tensors [b, h, ...] as [b, h_k, h / h_k, ...], where matmuls of them have
/// operands of h and of h_k heads; these are [b, h_k, 1, ...]. All other ops as they are.
std::vector<DescriptorPointer> with_split_heads(const std::vector<DescriptorPointer>& ops);

}  // namespace fusor::cudnn
