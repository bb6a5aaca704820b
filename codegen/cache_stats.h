// Owns CacheStats: where this process's kernels came from.
#pragma once

#include <cstdint>
#include <string>

#include "core/api.h"

namespace fusor {

struct CacheStats {
  int64_t memory_hits = 0, disk_hits = 0, compilations = 0, damaged_entries = 0;
};

FUSOR_API CacheStats cache_stats();
/// Why kernels cannot be kept on disk, in words; empty where they can, or where no folder is wanted. Tries to
/// write in the folder. (Kernels that cannot be kept are compiled again by the next process: no error.)
FUSOR_API std::string cache_problem();

}  // namespace fusor
