// Owns the tests of FastDivisor: the device's arithmetic, done here, gives the quotient.
#include "core/fast_divisor.h"

#include <gtest/gtest.h>

namespace fusor {
namespace {

// What FastDivisor::divide of codegen/device/base/indexing.cuh computes.
int64_t divide(const FastDivisor& divisor, int64_t n, int bits) {
  if (divisor.divisor == 1) return n;
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(static_cast<uint64_t>(n)) * divisor.multiplier;
  return static_cast<int64_t>(static_cast<uint64_t>(product >> bits) >> divisor.shift);
}

class FastDivisorBits : public testing::TestWithParam<int> {};

TEST_P(FastDivisorBits, QuotientIsExactAtEveryEdge) {
  const int bits = GetParam();
  const int64_t largest = static_cast<int64_t>((uint64_t{1} << (bits - 1)) - 1);
  for (const int64_t d : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{5}, int64_t{7}, int64_t{8}, int64_t{49},
                          int64_t{641}, int64_t{3136}, int64_t{65535}, int64_t{65536}, int64_t{65537},
                          int64_t{1000003}, largest / 2, largest / 2 + 1, largest - 1, largest}) {
    const FastDivisor divisor = FastDivisor::of(d, bits);
    for (const int64_t multiple :
         {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{12345}, largest / d / 2, largest / d})
      for (const int64_t shift : {-1, 0, 1}) {
        if (multiple > largest / d) continue;
        const int64_t base = multiple * d;
        if ((shift < 0 && base == 0) || (shift > 0 && base == largest)) continue;
        const int64_t n = base + shift;
        EXPECT_EQ(divide(divisor, n, bits), n / d) << n << " / " << d;
      }
    EXPECT_EQ(divide(divisor, largest, bits), largest / d) << largest << " / " << d;
  }
}

TEST(FastDivisor, MultiplierFitsA32BitWord) {
  for (int64_t d = 2; d < 100000; ++d) ASSERT_LT(FastDivisor::of(d, 32).multiplier, uint64_t{1} << 32) << d;
}

INSTANTIATE_TEST_SUITE_P(Widths, FastDivisorBits, testing::Values(32, 64));

TEST(FastDivisor, TakesThreeFields) {
  ArgumentBlock block;
  FastDivisor::of(7, 32).put(block);
  EXPECT_EQ(block.bytes().size(), 24u);
}

}  // namespace
}  // namespace fusor
