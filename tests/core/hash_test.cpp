// Tests of the hash behind keys and checksums.
#include "core/hash.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace fusor {
namespace {

TEST(Hasher, IsThirtyTwoHexDigitsOfWhatWasAdded) {
  const std::string text = Hasher().add("x").add(3).hex();
  EXPECT_EQ(text.size(), 32U);
  EXPECT_EQ(text.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(text, Hasher().add("x").add(3).hex());
}

TEST(Hasher, TellsOrderLengthAndBoundariesApart) {
  std::set<std::string> seen;
  seen.insert(Hasher().hex());
  seen.insert(Hasher().add(0).hex());
  seen.insert(Hasher().add(0).add(0).hex());
  seen.insert(Hasher().add(1).add(2).hex());
  seen.insert(Hasher().add(2).add(1).hex());
  seen.insert(Hasher().add("x").hex());
  seen.insert(Hasher().add("ab").add("c").hex());
  seen.insert(Hasher().add("a").add("bc").hex());
  seen.insert(Hasher().add("abc").hex());
  seen.insert(Hasher().add(std::string_view("abc\0", 4)).hex());
  seen.insert(Hasher().add(1.0).hex());
  seen.insert(Hasher().add(-1.0).hex());
  EXPECT_EQ(seen.size(), 12U);
}

TEST(Hasher, EveryBitOfALongTextCounts) {
  std::string text(100, 'x');
  std::set<std::string> seen = {Hasher().add(text).hex()};
  for (char& letter : text)
    for (int bit = 0; bit < 8; ++bit) {
      letter = static_cast<char>(letter ^ (1 << bit));
      seen.insert(Hasher().add(text).hex());
      letter = static_cast<char>(letter ^ (1 << bit));
    }
  EXPECT_EQ(seen.size(), 801U);
}

TEST(Hasher, SmallNumbersDoNotCollide) {
  std::set<std::string> halves[2];
  for (int a = 0; a < 100; ++a)
    for (int b = 0; b < 100; ++b) {
      const std::string text = Hasher().add(a).add(b).hex();
      halves[0].insert(text.substr(0, 16));
      halves[1].insert(text.substr(16));
    }
  EXPECT_EQ(halves[0].size(), 10000U);
  EXPECT_EQ(halves[1].size(), 10000U);
}

}  // namespace
}  // namespace fusor
