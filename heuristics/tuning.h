// Owns the tuning database's key, and the order in which measured configurations are preferred.
#pragma once

#include <string>
#include <vector>

#include "core/fusion.h"
#include "core/tuning_table.h"

namespace fusor {

/// Everything of a fusion that its speed may depend on: ops, types, extents, strides, alignments; not names,
/// uids, or whether a tensor is the user's or an intermediate. 32 hex digits.
std::string fusion_key(const Fusion& fusion);

/// `measured` is in the time model's order. Fastest first; where the bounds of several overlap the fastest's,
/// measurement cannot tell them apart and the model's order decides.
std::vector<MeasuredConfig> ranked(std::vector<MeasuredConfig> measured);

}  // namespace fusor
