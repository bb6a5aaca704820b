// Owns the constants of what a setting of the window engine costs.
#pragma once

namespace fusor {

/// Instructions are of threads. Fitted to the times of 43 settings of max pools, forward and backward, on an
/// H200, 2026-11-23: within 7 % on average, 20 % at most.
struct WindowFit {
  double sharpness = 5;         ///< of the norm by which memory and instructions meet
  double issue_rate = 29.0e12;  ///< instructions of threads a second, of all 132 SMs
  double tile = 36;             ///< of every tile
  double request = 17.7;        ///< of a vector or run that is loaded
  double word = 2.0;            ///< of 4 bytes of it
  double element = 2.0;         ///< of an element that is widened
  double step = 0.75;           ///< of a counted step of a place and a lane
  double stored = 0.6;          ///< of a result, or a counted step of a window
};

}  // namespace fusor
