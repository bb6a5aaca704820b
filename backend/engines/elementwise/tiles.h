// Owns the schedule of the transposing kernel: loads that are adjacent along another axis than the stores go
// through tiles in shared memory, of 8 x 8 vectors.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/engines/elementwise/schedule.h"

namespace fusor::elementwise {

/// Loads that are adjacent along axis `f` and far apart along `v`, on which the stores are adjacent.
std::vector<int> foreign_loads(const Expr& expr, int f, int v);
/// The axis f that a transposing kernel would stage along, or -1.
int staging_axis(const Expr& expr, int v);
/// Moves the foreign loads out of y into sites of their own, which y sees as anchor values.
void stage_loads(ElementwiseSchedule& s, const Fusion& fusion, int unused = -1);
/// Whether all that a transposing kernel loads along f, or stores along v, moves in whole vectors.
bool moves_whole(const ElementwiseSchedule& s, const Fusion& fusion, int64_t vector);

/// The last two axes are f and v.
void schedule_transpose(ElementwiseSchedule& s, const Fusion& fusion, const ElementwiseKnobs& knobs);

}  // namespace fusor::elementwise
