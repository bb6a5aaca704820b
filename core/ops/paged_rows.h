// Owns the question how a cache in pages is loaded, by whole pages or row by row, and the latter.
#pragma once

#include "core/ops/expansion.h"

namespace fusor {

/// The rows that paged_load() gives, each through an index of its own, so that they may be read in place; -1
/// where the container's rows do not lie one behind the other. Whole pages are faster to copy.
int paged_rows(Expansion& e, int container, int table, int64_t max_seq_len);
/// Whether so few queries meet each entry of keys that these are better read in place.
bool are_few_rows(int64_t queries, DataType type);

}  // namespace fusor
