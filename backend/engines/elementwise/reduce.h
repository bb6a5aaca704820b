// Owns the schedules of the two kernels that reduce: along the vector axis (rows), or across it (columns);
// threads and vectors of each, and into how many parts a reduction is split.
#pragma once

#include <cstdint>

#include "backend/engines/elementwise/schedule.h"

namespace fusor::elementwise {

/// Both: the kept axes of s.y lie before the reduced ones, and s.kept and s.vector are set.
void schedule_rows(ElementwiseSchedule& s, const ElementwiseKnobs& knobs, const DeviceInfo& device);
void schedule_columns(ElementwiseSchedule& s, const ElementwiseKnobs& knobs, const DeviceInfo& device);

/// Vectors for columns: accumulators must fit registers, and no column may be left over.
int64_t column_vector(const KernelSite& site, int axis, int64_t vector);

}  // namespace fusor::elementwise
