// Owns the constants of what a setting of the rows engine costs, as fitted to measured settings.
#pragma once

namespace fusor {

/// By least squares of the logarithm over 940 settings of 13 cases of bench/cases/rows.json, on an NVIDIA
/// H200 (132 SMs, driver 580.159.04), 2026-11-23. Of 1500 settings of all 17 cases, the one chosen takes 1.05
/// times as long as the best in the mean, 1.46 at most (softmax over a middle axis). joined_lane is counted
/// in machine code. What is said of split rows: over 500 settings of batch norm, its gradient and group norm,
/// of the same day, channels last; parts to part_s: to jobs of that day, by hand. joined_element, and
/// warp_phase_s once more: by hand, to 24 settings each of softmax and of QK-norm, 2026-11-26. shared_lanes,
/// lanes_cluster and load_of_vector: by hand, to up to 24 settings each of 33 group and instance norms and
/// their gradients, 2026-11-28. lone_sector: by hand, to two group norms from channels last to channels first
/// (147 and 50 us, whose estimates are 125 and 64 so), 2026-12-01. What blocks that turn rows write was not
/// measured: their pieces cost what those of held rows do.
struct RowsFit {
  double sharpness = 2.5;            ///< of the norm by which the limits below meet
  double warp_phase_s = 0.6e-6;      ///< a phase's totals, among lanes of a warp
  double block_phase_s = 0.03e-6;    ///< of a block of 128, with the root of its threads
  double cluster_phase_s = 0.55e-6;  ///< of a cluster
  double cluster_start_s = 0.19e-6;  ///< of an SM, for each block of a cluster
  double parts = 4;                  ///< times that memory moves the totals that blocks leave each other
  double turn_s = 0.25e-6;           ///< of blocks that stay, between rows that registers hold
  double ring_turn_s = 0.45e-6;      ///< between rows that are copied ahead (LN backward of 768, 24 settings)
  double ring_turn_bytes = 12e3;  ///< of such a turn, above which its bytes take longer (RMS-4096 backward)
  double cluster_end_s = 1e-6;    ///< of clusters that stay, with the logarithm of their blocks
  double piece_bytes = 128, piece_power = 2;  ///< of pieces of rows in memory, of this many bytes
  double piece = 0.035, held_piece = 0.005;   ///< what they cost more; where rows are held
  double lanes_piece = 0.0085;                ///< where the lanes of a row ask for less (QK-128, 24 settings)
  double lanes_cluster = 0.13;  ///< of clusters whose lanes are rows, with the logarithm of their blocks
  double lone_sector = 75;      ///< bytes that L2 could have moved while it moves a sector for one element
  double shared_lanes = 1.4;    ///< of rows in shared memory, where lanes are rows
  double shared_turn = 0.45;    ///< of rows in shared memory, where an SM has room for one block
  double copied = 0.9, copied_turn = 0.4;  ///< the same of neighbouring rows that are copied ahead
  double copied_row = 1.25;                ///< and of rows of adjacent elements (GN-nchw)
  double meeting_s = 5.5e-6;  ///< of all blocks of a grid, for the totals of a phase, and what it leaves idle
  double part_s = 0.17e-6;    ///< of it, for each part of a result that a thread adds up
  double split_phase_s = 9e-6;     ///< of a split row: two launches, and what they leave idle
  double split_block_s = 1e-6;     ///< of it, with the logarithm of a block's threads
  double split_batch_s = 0.49e-6;  ///< of it, of a thread's loads that are in flight together
  double split_load_s = 0.05e-6;   ///< and of each 16 bytes of them
  double split_sharpness = 3.9;    ///< of its limits
  double latency_s = 0.58e-6;      ///< between the loads of a row that is not held in registers
  double instruction_s = 1.15e-9;  ///< of a block of up to 256 threads that has an SM for itself
  double issue_rate = 29.6e12;     ///< instructions of threads a second, of all 132 SMs
  double step = 0.22;              ///< instructions a counted step of the expression
  double combine = 7;              ///< of a thread, for each word of totals and step of their combination
  double vector = 9.4;             ///< of a thread, for each vector and pass
  double load_of_vector = 30;      ///< of a thread, for an element that a vector shares, and no other
  double joined_lane = 6;          ///< of a thread, for each element where lanes are rows
  double joined_element = 1.5;     ///< and where they are not (softmax of 4096 elements, 24 settings)
  double shared_word = 5.8;        ///< of a thread, for each word of a vector that shared memory holds
};

}  // namespace fusor
