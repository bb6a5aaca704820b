// Owns the check of the grouped engine's places in shared memory, run on the host: no two chunks share one,
// and no two lanes of a matrix share a bank.
#include <gtest/gtest.h>

#include <set>

#define __device__  // NOLINT(bugprone-reserved-identifier): CUDA's word
namespace device {
#include "codegen/device/grouped/layout.cuh"
}
#undef __device__

namespace fusor {
namespace {

constexpr int kBanks = 8;  // of 16 bytes

/// Every filter chunk has a place of its own, inside of what is set aside.
template <class Layout>
void check_filters(int groups, int taps, int inner, int outer, int inner_step, int outer_step) {
  std::set<int> taken;
  for (int group = 0; group < groups; ++group)
    for (int tap = 0; tap < taps; ++tap)
      for (int i = 0; i < inner; i += inner_step)
        for (int o = 0; o < outer; o += outer_step) {
          const int place = Layout::filter(group, tap, i, o);
          EXPECT_TRUE(taken.insert(place).second);
          EXPECT_LE(place + 16, groups * Layout::kFilterBytes);
        }
}

/// The eight lanes of each matrix of filters name eight banks.
template <class Layout>
void check_banks_of_filters() {
  for (int matrix = 0; matrix < 4; ++matrix) {
    std::set<int> banks;
    for (int lane = 0; lane < 8; ++lane)
      banks.insert(Layout::filter_of_lane(matrix * 8 + lane) / 16 % kBanks);
    EXPECT_EQ(banks.size(), 8u);
  }
}

/// So do those of eight neighbouring results of a row, whatever they meet.
template <class Layout>
void check_banks_of_pixels(int chunks, int phase) {
  for (int chunk = 0; chunk < chunks; ++chunk) {
    std::set<int> banks;
    for (int pixel = 0; pixel < 8; ++pixel)
      banks.insert((pixel * Layout::kPixelBytes + Layout::met(chunk, phase)) / 16 % kBanks);
    EXPECT_EQ(banks.size(), 8u);
  }
}

TEST(GroupedLayout, FiltersLieApart) {
  check_filters<device::GroupedLayout<3, 2, 3, 3, 1, 1, 2, false>>(2, 9, 24, 16, 8, 1);
  check_filters<device::GroupedLayout<3, 2, 3, 3, 1, 1, 2, true>>(2, 9, 24, 16, 1, 8);
}

TEST(GroupedLayout, LanesOfAMatrixMeetInNoBank) {
  check_banks_of_filters<device::GroupedLayout<3, 3, 3, 3, 1, 1, 2, false>>();
  check_banks_of_filters<device::GroupedLayout<4, 4, 3, 3, 1, 1, 2, false>>();
  check_banks_of_filters<device::GroupedLayout<3, 3, 3, 3, 1, 1, 2, true>>();
  check_banks_of_filters<device::GroupedLayout<4, 4, 3, 3, 1, 1, 2, true>>();
  check_banks_of_pixels<device::GroupedLayout<3, 3, 3, 3, 1, 1, 2, false>>(9, 0);
  check_banks_of_pixels<device::GroupedLayout<4, 4, 3, 3, 1, 1, 2, false>>(12, 0);
  check_banks_of_pixels<device::GroupedLayout<3, 3, 3, 3, 2, 1, 2, false>>(9, 15 * 7 * 16);
}

TEST(GroupedLayout, AStepMeetsTheColumnsOfItsTaps) {
  using Layout = device::GroupedLayout<3, 3, 3, 3, 2, 1, 1, false>;
  constexpr int kPhase = 1000;
  // Result r meets column 2 r + tap: columns 0, 2, 4, ... of phase 0 lie side by side.
  for (int tap = 0; tap < 3; ++tap)
    for (int result = 0; result < 5; ++result)
      EXPECT_EQ(Layout::column(2 * result + tap, kPhase),
                result * Layout::kPixelBytes + Layout::met(tap * 3, kPhase));
  // Step 1 is chunk 2 of tap 0, and chunk 0 of tap 1.
  EXPECT_EQ(Layout::met_by_lane(1, 3, kPhase), 32);
  EXPECT_EQ(Layout::met_by_lane(1, 20, kPhase), kPhase);
  // The last one is half a step.
  EXPECT_TRUE(Layout::kHasHalfStep);
  EXPECT_EQ(Layout::met_by_lane(4, 20, kPhase), Layout::met_by_lane(4, 3, kPhase));
}

}  // namespace
}  // namespace fusor
