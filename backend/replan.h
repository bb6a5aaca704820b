// Owns replan: a plan from another time, machine or hand made fit for this library and this device.
#pragma once

#include <span>
#include <vector>

#include "backend/planning.h"
#include "backend/schedule.h"
#include "core/plan.h"

namespace fusor {

/// A plan that holds, and its fusions as they were lowered for the check.
struct LoweredPlan {
  Plan plan;
  std::vector<ScheduledFusion> fusions;  ///< parallel to the plan's; not laid out yet
};

/// Checks a plan as untrusted input and makes anew what no longer holds: an engine, revision or knob that
/// does not exist (that fusion), a device of another architecture than the one present (all). What was
/// decided is in `remarks`. Throws Error{missing} where the plan is for a GPU and none can be used,
/// Error{bad_input} where it is no plan at all.
LoweredPlan replan(const Plan& plan, std::span<const Engine* const> engine_list);

/// The same without the machine: the plan stays for the device that it was made for. For looking at plans
/// (kernels(), source()).
LoweredPlan lowered_plan(const Plan& plan, std::span<const Engine* const> engine_list = {});
Plan checked_plan(const Plan& plan, std::span<const Engine* const> engine_list = {});

std::vector<PlannedKernel> kernels_of(std::vector<ScheduledFusion> fusions);

}  // namespace fusor
