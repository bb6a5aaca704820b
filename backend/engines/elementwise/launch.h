// Owns the way from a schedule to launches: kernel source, grid, argument bytes, scratch and guards.
#pragma once

#include "backend/engines/elementwise/schedule.h"
#include "core/lowered.h"

namespace fusor {

/// Bytes of partial results that a split reduction keeps between its two launches; 0 otherwise.
int64_t scratch_bytes(const ElementwiseSchedule& schedule);

/// Appends the launches of one schedule, their scratch and their guards.
void append_launches(Lowered& lowered, const ElementwiseProblem& problem,
                     const ElementwiseSchedule& schedule);

}  // namespace fusor
