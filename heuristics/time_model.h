// Owns the time model: what a candidate's Work costs on a device.
#pragma once

#include <cstddef>

#include "core/device_info.h"
#include "core/work.h"

namespace fusor {

/// Estimated seconds on the device: the dearest of the throughput limits (tensor cores, fp32, special
/// functions, L2, DRAM), stretched by wave quantisation, plus pipeline fill, passes before and after,
/// launches and fills.
double estimate_seconds(const Work& work, const DeviceInfo& device);

/// Whether a launch may begin while the one in front of it runs.
bool launches_overlap(const DeviceInfo& device);

/// Seconds of fusions behind each other, of which each alone would take its share of `sum`: where launches
/// overlap, most of what a launch costs is over when the one in front has ended.
double seconds_in_turn(double sum, size_t fusions, const DeviceInfo& device);

/// The part of the memory's rate that so many blocks of a GPU can ask for, from 0 to 1: half as many blocks
/// as there are SMs ask for all of it.
double dram_share(double blocks, const DeviceInfo& device);

}  // namespace fusor
