// Owns the constants of what a recurrence costs.
#pragma once

namespace fusor {

/// To be fitted: NVIDIA H200, 2026-11-23.
struct RecurrentFit {
  double start_s = 8e-6;           ///< the weights on their way to registers, and the launch
  double forward_step_s = 2.2e-6;  ///< a step of 16 rows a block
  double backward_step_s = 3.0e-6;
  double tile_s = 0.6e-6;  ///< each 16 rows more
};

}  // namespace fusor
