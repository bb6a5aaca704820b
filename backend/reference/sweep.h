// Owns the order in which the blocks of a domain are visited.
#pragma once

#include <cstdint>

#include "backend/reference/values.h"
#include "core/ceil_div.h"
#include "core/dims.h"

namespace fusor::reference {

/// Elements that one task of the thread pool works on, about: enough to hide what a task costs.
inline constexpr int64_t kTaskElements = 1 << 15;

/// The axis that blocks run along: the last, which is the fastest in memory, unless it is short.
int block_axis(const Dims& domain);

/// Row-major numbering of the coordinates along a mask of axes, the block axis in steps of kBlock.
class Sweep {
 public:
  Sweep(const Dims& domain, uint32_t axes, int block_axis);
  int64_t count() const { return count_; }
  /// Sets the coordinates of this sweep's axes in `at`.
  void place(int64_t index, Dims& at) const;

 private:
  Dims extents_;  // 1 for axes that are not of this sweep
  uint32_t axes_;
  int block_axis_;
  int64_t count_ = 1;
};

}  // namespace fusor::reference
