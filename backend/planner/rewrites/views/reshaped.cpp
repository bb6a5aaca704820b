// Owns the walk along the axes of two shapes at once.
#include "backend/planner/rewrites/views/reshaped.h"

#include <cstdint>

namespace fusor {

std::optional<Dims> reshaped(Dims given, const Dims& from, const Dims& to) {
  if (given.rank() > from.rank()) return std::nullopt;
  while (given.rank() < from.rank()) given.insert(0, 1);
  Dims found;
  int axis = 0, taken = 0;
  for (;;) {
    for (; axis < from.rank() && from[axis] == 1; ++axis)
      if (given[axis] != 1) return std::nullopt;
    for (; taken < to.rank() && to[taken] == 1; ++taken) found.push_back(1);
    if (axis == from.rank() || taken == to.rank()) return found;
    // Neighbours of as many elements on either side.
    const int first = axis, first_taken = taken;
    int64_t count = from[axis++], others = to[taken++];
    while (count != others) {
      int64_t& less = count < others ? count : others;
      less *= count < others ? from[axis++] : to[taken++];
    }
    bool is_whole = true, is_one = true;
    for (int i = first; i < axis; ++i) {
      is_whole = is_whole && given[i] == from[i];
      is_one = is_one && given[i] == 1;
    }
    if (!is_whole && !is_one) return std::nullopt;
    for (int i = first_taken; i < taken; ++i) found.push_back(is_whole ? to[i] : 1);
  }
}

}  // namespace fusor
