// Owns which launches of a plan may run beside those in front of them (codegen/device/base/launch.cuh).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/schedule.h"
#include "core/device_info.h"
#include "core/fusion.h"
#include "core/graph.h"

namespace fusor {

/// Values up to so many bytes make room for fusions beside each other: they are written early, and keep their
/// places for a stage. Launches that move more fill the device, and gain little from running beside others.
inline constexpr int64_t kMostBytesBeside = int64_t{4} << 20;

/// Per fusion, in the order in which they run: the first one of its stage. The fusions of a stage follow each
/// other, and none reads or writes what another one of the stage writes.
std::vector<int> stages_of(std::span<const Fusion* const> fusions);

/// Whether the launch may begin before the one in front of it has ended, and the one behind it before it has.
/// Not where it has many blocks, each of which would have to say so.
bool overlaps_others(const Launch& launch, const DeviceInfo& device);

/// Per fusion of the schedule: whether its first launch neither writes what a launch in front of it, which
/// may still run, reads or writes, nor reads what that writes. Places in the workspace count, and so do the
/// user's tensors, of which no two are taken to share memory.
std::vector<bool> fusions_beside(const Graph& graph, const Schedule& schedule, const DeviceInfo& device);
/// Per step of the schedule: whether it is the first launch of such a fusion.
std::vector<bool> steps_beside(const Graph& graph, const Schedule& schedule, const DeviceInfo& device);

}  // namespace fusor
