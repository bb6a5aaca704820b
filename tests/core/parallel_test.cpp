// Tests of core/parallel: every piece once, errors handed on.
#include "core/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

namespace fusor {
namespace {

TEST(ParallelFor, CallsEveryIndexOnce) {
  for (const int threads : {1, 3, 64}) {
    std::vector<std::atomic<int>> calls(1000);
    parallel_for(1000, threads, [&](int64_t i) { ++calls[static_cast<size_t>(i)]; });
    for (const auto& count : calls) ASSERT_EQ(count, 1);
  }
}

TEST(ParallelFor, DoesNothingForNothing) {
  parallel_for(0, 4, [](int64_t) { FAIL(); });
}

TEST(ParallelFor, OneThreadIsTheCallers) {
  const auto caller = std::this_thread::get_id();
  parallel_for(8, 1, [&](int64_t) { EXPECT_EQ(std::this_thread::get_id(), caller); });
}

TEST(ParallelFor, UsesSeveralThreads) {
  // Each of the two pieces waits for the other: one thread alone would never end, so it gives up after a
  // while.
  std::atomic<int> arrived{0};
  std::atomic<bool> met{false};
  parallel_for(2, 2, [&](int64_t) {
    ++arrived;
    for (int i = 0; i < 2000 && arrived < 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (arrived == 2) met = true;
  });
  EXPECT_TRUE(met);
}

TEST(ParallelFor, HandsOnTheFirstErrorAndStops) {
  std::atomic<int> calls{0};
  const auto body = [&](int64_t i) {
    ++calls;
    if (i == 3) throw std::runtime_error("piece 3");
    // All pieces would take seconds, so that the thread of the error may well wait for a core.
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  };
  EXPECT_THROW(parallel_for(1000000, 4, body), std::runtime_error);
  EXPECT_LT(calls, 1000000);
}

}  // namespace
}  // namespace fusor
