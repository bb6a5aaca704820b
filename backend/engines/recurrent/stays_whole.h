// Owns which recurrences the engine of that name carries out, so that layers are written in them.
#pragma once

#include "backend/planning.h"
#include "core/device_info.h"
#include "core/ops/expansion.h"
#include "core/ops/recurrence.h"

namespace fusor {

/// How a recurrence is spread over a device: a block has 16 units of the hidden state and 16 * tiles rows of
/// the batch, and all blocks are resident. No tiles: it does not fit.
struct RecurrentGrid {
  static constexpr int64_t kWarps = 8;  ///< of a block
  RecurrentGrid(const Recurrence& op, int64_t batch, const DeviceInfo& device);
  int64_t tiles = 0;      ///< of 16 rows
  int64_t slices = 0;     ///< blocks along the hidden state
  int64_t groups = 0;     ///< blocks along the batch
  int64_t producers = 0;  ///< blocks that make a warp's share of k
  int64_t shared_bytes = 0;
  int64_t given() const { return given_; }  ///< numbers of a row that a block hands over

 private:
  int64_t given_ = 0;
};

/// The composite ops that an expansion for the device leaves whole, where the options allow the engine.
StaysWhole recurrences_of(const DeviceInfo& device, const PlannerOptions& options);

}  // namespace fusor
