// Owns the tests of what is said of measured times.
#include "heuristics/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace fusor {
namespace {

TEST(Statistics, OneMeasurementSaysWhatItCan) {
  const Summary summary = summarise({3.0});
  EXPECT_EQ(summary.runs, 1);
  for (const double value : {summary.median, summary.low, summary.high, summary.least, summary.p90})
    EXPECT_EQ(value, 3.0);
}

TEST(Statistics, TheMedianOfAnEvenNumberLiesBetween) { EXPECT_EQ(summarise({4, 1, 3, 2}).median, 2.5); }

TEST(Statistics, AnOutlierMovesNothingButTheExtremes) {
  std::vector<double> seconds(51);
  std::iota(seconds.begin(), seconds.end(), 1.0);
  const Summary without = summarise(seconds);
  seconds.back() = 1e9;
  const Summary with = summarise(seconds);
  EXPECT_EQ(with.median, without.median);
  EXPECT_EQ(with.low, without.low);
  EXPECT_EQ(with.high, without.high);
  EXPECT_EQ(with.p90, without.p90);
  EXPECT_EQ(without.median, 26);
  EXPECT_EQ(without.p10, 6);
  EXPECT_EQ(without.p90, 46);
}

TEST(Statistics, TheBoundsHoldTheTrueMedianNineteenTimesOfTwenty) {
  std::mt19937 random(7);
  std::exponential_distribution<double> skewed(1.0);
  const double true_median = std::log(2.0);
  int held = 0;
  constexpr int kTrials = 2000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> seconds(30);
    std::ranges::generate(seconds, [&] { return skewed(random); });
    const Summary summary = summarise(seconds);
    held += summary.low <= true_median && true_median <= summary.high ? 1 : 0;
  }
  EXPECT_GE(held, kTrials * 94 / 100);
}

}  // namespace
}  // namespace fusor
