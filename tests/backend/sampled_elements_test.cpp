// Owns the tests of the elements that verify samples.
#include "backend/sampled_elements.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace fusor {
namespace {

TEST(SampledElements, AreLinesAlongAnAxis) {
  const std::vector<int64_t> elements = sampled_elements({500, 4000}, 1, 1024, 3);
  ASSERT_EQ(elements.size(), 1024U);
  std::set<int64_t> rows, columns;
  for (const int64_t element : elements) {
    rows.insert(element / 4000);
    columns.insert(element % 4000 / 1000);
  }
  EXPECT_LE(rows.size(), 4U);
  EXPECT_EQ(columns.size(), 4U);  // from all quarters of a row
}

TEST(SampledElements, OfChannelsLieAStepApart) {
  const std::vector<int64_t> elements = sampled_elements({8, 300, 50}, 1, 256, 3);
  for (const int64_t element : elements) EXPECT_EQ(element % 50, elements.front() % 50);
}

// Ragged results have one axis: elements strewn over all of it were each of another row of attention, and the
// oracle took minutes.
TEST(SampledElements, OfAFlatResultAreNeighbours) {
  const std::vector<int64_t> elements = sampled_elements({10'000'100}, 0, 4096, 5);
  ASSERT_EQ(elements.size(), 4096U);
  for (size_t line = 0; line < elements.size(); line += 256) {
    const auto [first, last] = std::minmax_element(elements.begin() + static_cast<int64_t>(line),
                                                   elements.begin() + static_cast<int64_t>(line) + 256);
    EXPECT_LT(*last - *first, 512);
    EXPECT_GE(*first, 0);
    EXPECT_LT(*last, 10'000'100);
  }
}

TEST(SampledElements, AreNoMoreThanThereAre) {
  EXPECT_EQ(sampled_elements({30}, 0, 4096, 1).size(), 30U);
  for (const int64_t element : sampled_elements({3, 7}, 1, 4096, 1)) EXPECT_LT(element, 21);
}

}  // namespace
}  // namespace fusor
