// Owns Proposer, which each family specialises, and dims that several of them choose.
#pragma once

#include <optional>

#include "tools/fuzz/draft.h"

namespace fusor::fuzz {

template <class Family>
struct Proposer;  // a new family specialises it in one of the files beside this one

/// Dims that broadcast against `dims`, some axes of one element, some leading axes left out.
inline Dims broadcast_of(Random& random, const Dims& dims) {
  Dims some = dims;
  if (random.once_in(2)) return some;
  for (int64_t& extent : some)
    if (random.once_in(2)) extent = 1;
  while (some.rank() > 1 && random.once_in(3)) some.erase(0);
  return some;
}

}  // namespace fusor::fuzz
