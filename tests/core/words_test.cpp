// Tests the words of quantities.
#include "core/words.h"

#include <gtest/gtest.h>

namespace fusor {
namespace {

TEST(Words, TimesHaveTheUnitThatKeepsThemShort) {
  EXPECT_EQ(words::duration(12.3e-6), "12.30 us");
  EXPECT_EQ(words::duration(4.56e-3), "4.560 ms");
  EXPECT_EQ(words::duration(1.2), "1.200 s");
}

TEST(Words, BytesAreBytesBelowOneKiB) {
  EXPECT_EQ(words::bytes(int64_t{0}), "0 bytes");
  EXPECT_EQ(words::bytes(int64_t{1023}), "1023 bytes");
  EXPECT_EQ(words::bytes(int64_t{1} << 10), "1.0 KiB");
  EXPECT_EQ(words::bytes(25.125 * (1 << 20)), "25.1 MiB");
  EXPECT_EQ(words::bytes(int64_t{3} << 50), "3072.0 TiB");
}

TEST(Words, OneOfAThingIsSingular) {
  EXPECT_EQ(words::count(1, "fusion"), "1 fusion");
  EXPECT_EQ(words::count(0, "fusion"), "0 fusions");
  EXPECT_EQ(words::flops(3.3e9), "3.3 GFLOP");
  EXPECT_EQ(words::flops(3.3e6), "3.3 MFLOP");
}

}  // namespace
}  // namespace fusor
