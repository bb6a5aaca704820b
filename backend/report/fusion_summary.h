// Owns the short form of an explanation: for each fusion that runs, who carries it out, what bounds it, who
// came next, and why it is not one with what it reads from.
#pragma once

#include <vector>

#include "backend/choose.h"
#include "backend/report/explain.h"

namespace fusor {

/// In run order. `decisions` are those that led to the choice.
std::vector<FusionSummary> fusion_summaries(const Candidate& choice, const std::vector<Decision>& decisions,
                                            const DeviceInfo& device);
/// The part of a summary that needs no decisions: ops, config, bytes, FLOPs, bound and limit of a fusion of
/// `graph`.
FusionSummary fusion_work(const Graph& graph, const PlannedFusion& fusion, const Notes& notes,
                          const DeviceInfo& device);

/// "a + b", and "a + b + ... + z (12 ops)" where all names do not fit.
std::string short_names(const std::vector<std::string>& ops);

/// At most three lines of less than 120 characters for each.
std::string to_string(const std::vector<FusionSummary>& fusions);

}  // namespace fusor
