// Owns the recognition of attention among a client's ops, and what may be presumed of it.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "compat/cudnn/src/descriptor.h"

namespace fusor::cudnn {

/// Softmax between two matmuls, or its gradients: exp(scores - statistics) times (product - row sums), and
/// matmuls of that.
struct AttentionPattern {
  bool is_forward = false, is_backward = false;
  /// By-value scalars (fp32): those that masks put in place of scores, and those that multiply scores or
  /// kept probabilities of a forward pass.
  std::vector<int64_t> fills;
  std::set<int64_t> scales;
  /// Gradients that one op of the graph reads, to convert them or to sum them over heads: a client's
  /// workspace.
  std::set<int64_t> between;
  /// First operands of matmuls that are made of the exponentials of scores.
  std::set<int64_t> of_scores;
};

AttentionPattern attention_pattern(const std::vector<DescriptorPointer>& ops);

}  // namespace fusor::cudnn
