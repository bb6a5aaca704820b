// Owns the constants of what a setting of the rows engine costs, as fitted to measured settings.
#pragma once

namespace fusor {

/// By least squares of the logarithm over 940 settings of 13 cases of bench/cases/rows.json, on an NVIDIA
/// H200 (132 SMs, driver 580.159.04), 2026-11-23. Of 1500 settings of all 17 cases, the one chosen takes 1.05
/// times as long as the best in the mean, 1.46 at most (softmax over a middle axis). joined_lane is counted
/// in machine code.
struct RowsFit {
  double sharpness = 2.5;            ///< of the norm by which the limits below meet
  double warp_phase_s = 0.55e-6;     ///< a phase's totals, among lanes of a warp
  double block_phase_s = 0.03e-6;    ///< of a block of 128, with the root of its threads
  double cluster_phase_s = 0.55e-6;  ///< of a cluster
  double cluster_start_s = 0.19e-6;  ///< of an SM, for each block of a cluster
  double latency_s = 0.58e-6;        ///< between the loads of a row that is not held in registers
  double instruction_s = 1.15e-9;    ///< of a block of up to 256 threads that has an SM for itself
  double issue_rate = 29.6e12;       ///< instructions of threads a second, of all 132 SMs
  double step = 0.22;                ///< instructions a counted step of the expression
  double combine = 7;                ///< of a thread, for each word of totals and step of their combination
  double vector = 9.4;               ///< of a thread, for each vector and pass
  double joined_lane = 6;            ///< of a thread, for each element where lanes are rows
  double shared_word = 5.8;          ///< of a thread, for each word of a vector that shared memory holds
};

}  // namespace fusor
