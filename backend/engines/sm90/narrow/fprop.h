// Owns fprop on the wgmma_narrow engine: its store path, its launch and its costs; the kernel is
// codegen/device/sm90/narrow/fprop.cuh.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "backend/engines/sm90/copy/copied_result.h"
#include "backend/engines/sm90/narrow/rows.h"

namespace fusor::narrow {

FpropResult result_of_fprop(const Fusion& fusion, const Contraction& view);

struct Fprop : Rows {
  const Expr& y;
  const std::optional<CopiedResult>& copied;
  const int64_t vector;

  Fprop(const Problem& problem_, const Knobs& knobs);

  bool along_columns() const { return !copied || !copied->along_n; }
  bool clamped() const { return copied && y.stores.empty(); }
  // As in wgmma: whether the epilogue's text is written out for every piece of the sums.
  bool is_unrolled() const;

  // --- Shared memory, like struct Shared of the kernel ---

  // Along columns a line swizzles over its length; along rows the largest part of a tile that leaves room for
  // the window.
  int64_t box_columns() const;
  int64_t box_bytes() const { return kBlock * box_columns() * byte_size(copied->type); }
  int64_t shared_bytes(int64_t groups) const;
  int64_t groups() const {
    return Rows::groups([this](int64_t groups) { return shared_bytes(groups); });
  }

  Lowered lowered() const;
  // Tiles are rows of the result; every SM counts as many as the one that has most.
  Work work() const;

 private:
  Launch launch() const;
  std::vector<ConfigValue> config() const;
  Parameters parameters() const;
  std::vector<Guard> guards() const;
  // Cycles that a thread spends on one element of the epilogue: as wgmma's, but for the pairs of pixels that
  // find their places together.
  double finish_cycles_per_element() const;
};

inline Lowered lower(const Fprop& schedule) { return schedule.lowered(); }
inline Work cost(const Fprop& schedule) { return schedule.work(); }

}  // namespace fusor::narrow
