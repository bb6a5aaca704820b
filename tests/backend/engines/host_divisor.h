// Owns the divisor with which tests run device code on the host.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

namespace fusor::test {

// The fields of codegen/device/base/indexing.cuh's divisor, with the processor's own division.
struct HostDivisor {
  int64_t divisor, multiplier, shift;
  int64_t divide(int64_t n) const {
    if (n < 0) ADD_FAILURE() << "the device's divisor takes no negative numbers, as " << n;
    return n / divisor;
  }
  int64_t split(int64_t& n) const {
    const int64_t quotient = divide(n), remainder = n - quotient * divisor;
    n = quotient;
    return remainder;
  }
};

}  // namespace fusor::test
