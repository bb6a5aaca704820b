// Owns the lengths of attention's rows: which rows of which operand of a matmul exist.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "compat/cudnn/src/descriptor.h"
#include "compat/cudnn/src/translate/attention_pattern.h"

namespace fusor::cudnn {

/// Rows of an operand along an axis that exist: as many as an element of `lengths` says.
struct ExistingRows {
  int axis = 0;
  DescriptorPointer lengths;
};

/// For attention in which a mask hides all scores of queries and keys that do not exist, behind matmuls that
/// are told the same lengths: the operands of matmuls, by uid, whose other rows must be 0 so that these
/// matmuls need no lengths. Those of the scores themselves need not, but for a backward pass, which
/// multiplies by their gradients. Nothing for other graphs.
std::optional<std::map<int64_t, ExistingRows>> existing_rows(const std::vector<DescriptorPointer>& ops,
                                                             const AttentionPattern& pattern);

}  // namespace fusor::cudnn
