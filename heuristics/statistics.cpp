// Owns the ranks at which measured times are read.
#include "heuristics/statistics.h"

#include <algorithm>
#include <cmath>

namespace fusor {

Summary summarise(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  const auto count = static_cast<double>(seconds.size());
  const auto at = [&](double rank) { return seconds[static_cast<size_t>(std::clamp(rank, 0.0, count - 1))]; };
  Summary summary;
  summary.runs = static_cast<int>(seconds.size());
  summary.median = (at(std::floor((count - 1) / 2)) + at(std::floor(count / 2))) / 2;
  // The number of measurements below the true median is binomial: n / 2 on average, sqrt(n) / 2 its
  // deviation.
  const double spread = 1.96 * std::sqrt(count) / 2;
  summary.low = at(std::floor(count / 2 - spread));
  summary.high = at(std::ceil(count / 2 + spread));
  summary.least = seconds.front();
  summary.p10 = at(std::floor(0.1 * (count - 1) + 0.5));
  summary.p90 = at(std::floor(0.9 * (count - 1) + 0.5));
  return summary;
}

}  // namespace fusor
