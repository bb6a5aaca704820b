// Owns parallel_for: independent pieces of host work on all cores.
#pragma once

#include <cstdint>
#include <functional>

namespace fusor {

/// Calls body(i) for every i in [0, count) from at most `threads` threads (the caller's among them), in no
/// order. The first exception that a body throws is thrown again here, after all threads have stopped.
void parallel_for(int64_t count, int threads, const std::function<void(int64_t)>& body);

}  // namespace fusor
