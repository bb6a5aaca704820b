// Owns the tests of how many parts the steps of a tile are cut into.
#include "backend/engines/tiled/part.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/backend/engines/tiled/cases.h"

namespace fusor {
namespace {

using direct_cases::h200;

// Tiles that fill an SM each.
int64_t even_split(int64_t tiles, int64_t k_steps) {
  Work whole;
  whole.tiles = tiles;
  whole.tiles_per_sm = 1;
  whole.k_steps = k_steps;
  std::vector<int64_t> splits(256);
  std::iota(splits.begin(), splits.end(), 1);
  return even_split_for(whole, splits, 4, h200());
}

TEST(EvenSplit, FewTilesBecomeAsManyPartsAsThereAreSms) {
  EXPECT_EQ(even_split(9, 784), 14);
  EXPECT_EQ(even_split(66, 784), 2);
  EXPECT_EQ(even_split(1, 784), 132);
}

TEST(EvenSplit, PartsHaveStepsEnough) {
  EXPECT_EQ(even_split(9, 20), 5);
  EXPECT_EQ(even_split(9, 3), 1);
}

TEST(EvenSplit, ALastRoundThatIsMostlyEmptyIsEvenedOut) {
  EXPECT_EQ(even_split(196, 36), 2) << "three rounds of halves for two of wholes";
  EXPECT_EQ(even_split(133, 36), 4);
}

TEST(EvenSplit, FullRoundsStayWhole) {
  EXPECT_EQ(even_split(132, 36), 1);
  EXPECT_EQ(even_split(264, 36), 1);
  EXPECT_EQ(even_split(1024, 128), 1);
}

}  // namespace
}  // namespace fusor
