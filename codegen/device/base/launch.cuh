// Owns what a kernel says to the launches before and after it: sm_90's programmatic launches.
#pragma once

#include "codegen/device/base/types.cuh"

/// A programmatic launch begins while the one in front of it still runs: before this, nothing may be read
/// that the latter writes, and nothing written at all. Any other launch goes on at once.
FUSOR_DEVICE void wait_for_launch_before() {
  if constexpr (Config::arch >= 900) asm volatile("griddepcontrol.wait;" ::: "memory");
}

/// Once all blocks have said so, a programmatic launch behind this one may begin where there is room.
FUSOR_DEVICE void let_next_launch_begin() {
  if constexpr (Config::arch >= 900) asm volatile("griddepcontrol.launch_dependents;");
}
