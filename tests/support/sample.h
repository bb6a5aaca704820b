// Owns the sample of long lists of tests: always the same share, or all of it with FUSOR_TEST_ALL=1.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/hash.h"

namespace fusor::test {

inline constexpr int64_t kSampleSeed = 20261122;

/// One text in `share` is in the sample, drawn by what it says and a fixed seed (tools/test.sh --all: every
/// one).
inline bool is_sampled(std::string_view text, uint64_t share) {
  if (std::getenv("FUSOR_TEST_ALL") != nullptr) return true;
  const std::string hash = Hasher().add(kSampleSeed).add(text).hex();
  return std::stoull(hash.substr(0, 8), nullptr, 16) % share == 0;
}

}  // namespace fusor::test
