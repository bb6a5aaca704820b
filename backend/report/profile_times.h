// Owns the step from times that were taken to a Profile: sums, medians, estimates and limits.
#pragma once

#include <span>
#include <vector>

#include "backend/report/profile.h"

namespace fusor {

/// The name of a step of an executable, and the fusion (by position in the plan) that it belongs to.
struct StepLabel {
  int fusion = 0;
  std::string name;
};

/// Seconds of each step of each run, and of whole runs.
struct ProfileTimes {
  std::vector<std::vector<double>> steps;  ///< by run, then by step
  std::vector<double> runs;
};

Profile profile_of(const Plan& plan, std::span<const StepLabel> labels, const ProfileTimes& times);

}  // namespace fusor
