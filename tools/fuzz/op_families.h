// Owns the table of op families: how each proposes an op over a draft's tensors.
#pragma once

#include <span>

#include "tools/fuzz/draft.h"

namespace fusor::fuzz {

struct OpFamily {
  int share;  ///< of the ops that are proposed, beside the other families' shares
  std::optional<Proposal> (*propose)(Draft& draft);
};

/// One row for each alternative of Attributes, in its order.
std::span<const OpFamily> op_families();

}  // namespace fusor::fuzz
