// Owns the schedule of the kernel of small planes: those of neighbouring channels are one run of memory.
#pragma once

#include "backend/engines/elementwise/schedule.h"

namespace fusor::elementwise {

/// Schedules small planes where they are asked for, or promise more than tiles do. The last two axes are f
/// and v, as for tiles.
bool schedule_planes(ElementwiseSchedule& s, const Fusion& fusion, const ElementwiseKnobs& knobs,
                     const DeviceInfo& device);

}  // namespace fusor::elementwise
