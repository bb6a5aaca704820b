// Owns the count of heap allocations, by which run() is shown to make none.
#pragma once

#include <cstdint>

namespace fusor::test {

/// Calls of operator new so far, by the whole process.
int64_t allocations();

}  // namespace fusor::test
