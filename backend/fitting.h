// Owns the choice of one option for each fusion so that the whole keeps within a limit of workspace.
#pragma once

#include <optional>
#include <vector>

#include "backend/choose.h"
#include "backend/schedule.h"

namespace fusor {

/// One option of every fusion, by its index in Choice::options; in run order.
using Selection = std::vector<size_t>;

/// Lowers the options of a graph's fusions, each at most once.
class Fitting {
 public:
  explicit Fitting(const Choices& choices);

  /// What the selected options need, exactly.
  int64_t workspace_bytes(const Selection& selection);
  /// The steps and the layout of the workspace.
  Schedule schedule(const Selection& selection);

  /// The cheapest selection that is found within `limit` bytes. Scratch lives for one fusion only, so a
  /// fusion has what the tensors alive beside it leave. Nothing where even the least scratch everywhere is
  /// too much; `least` says how much that is.
  std::optional<Selection> within(int64_t limit, int64_t& least);

 private:
  const Lowered& lowered(size_t fusion, size_t option);
  int64_t scratch(size_t fusion, size_t option);
  /// The cheapest option of at most `bytes` of scratch, or else the one of the least.
  size_t cheapest_within(size_t fusion, int64_t bytes);

  const Choices& choices_;
  std::vector<std::vector<std::optional<Lowered>>> lowered_;  // per fusion and option
};

}  // namespace fusor
