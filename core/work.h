// Owns Work: what a candidate costs, known before compilation; heuristics/time_model.h turns it into seconds.
#pragma once

#include <cstdint>

namespace fusor {

/// Totals over all tiles unless said otherwise.
struct Work {
  double tensor_flops = 0;  ///< on tensor cores
  double fp32_flops = 0;    ///< fused multiply-adds count two; integer arithmetic is counted here too
  double fp64_flops = 0;
  double special = 0;       ///< ex2, rcp, rsqrt ... results
  double dram_bytes = 0;    ///< read + written, each operand once per pass over it
  double l2_bytes = 0;      ///< traffic between L2 and the SMs
  double shared_bytes = 0;  ///< written to and read from shared memory, where that can be the limit
  int64_t tiles = 1;
  int tiles_per_sm = 1;  ///< in flight at once
  int64_t k_steps = 1;   ///< main-loop steps a tile
  int stages = 1;
  double finish_cycles = 0;      ///< of one tile's epilogue, beside nothing else
  bool finish_overlaps = false;  ///< the epilogue of a tile runs beside the next tile's main loop
  double serial_dram_bytes = 0;  ///< of passes before or after the main kernel
  double start_s = 0;            ///< what passes before the main loop runs at its pace
  int split = 1;                 ///< parts that a tile's reduction is split into
  int launches = 1;
  int fills = 0;
  int64_t scratch_bytes = 0;
  double efficiency = 1;  ///< of the inner loop, as measured for this engine
};

}  // namespace fusor
