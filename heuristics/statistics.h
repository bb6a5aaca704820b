// Owns the statistics of measured times: the median and how far it can be trusted.
#pragma once

#include <vector>

namespace fusor {

/// What repeated measurements of one thing say.
struct Summary {
  int runs = 0;
  double median = 0;
  double low = 0, high = 0;  ///< the true median lies between them with 95 % confidence
  double least = 0;
  double p10 = 0, p90 = 0;
};

/// The summary of one measurement or more. The bounds are order statistics, so they need no assumption about
/// the times' distribution; below six measurements they are the extremes.
Summary summarise(std::vector<double> seconds);

}  // namespace fusor
