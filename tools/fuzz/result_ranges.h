// Owns the ranges of what ops compute: bounds of each result, made of those of the operands.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "core/graph.h"
#include "tools/fuzz/values.h"

namespace fusor::fuzz {

/// Beyond it, sums and products of later ops would leave the narrow types' ranges.
inline constexpr double kLargestReal = 1e4;

/// A result in the compute type. `rounds`: by one correct rounding; otherwise it is a number that was read,
/// or whole.
struct Computed {
  Values values;
  bool rounds = true;
};

/// What the rules of one op look at: its operands as the compute type holds them.
struct Site {
  const Graph& graph;
  const Op& op;
  std::span<const Values> in;
  bool integer = false;  ///< the compute type is

  const Dims& dims(int tensor) const { return graph.tensors[static_cast<size_t>(tensor)].dims; }
  const Values& operator[](size_t i) const { return in[i]; }
  bool exact() const {
    return std::ranges::all_of(in, [](const Values& each) { return each.exact; });
  }
};

/// Every result of the op in the order of its roles; nothing where its values are not known well enough.
std::optional<std::vector<Computed>> computed_results(const Site& site);

}  // namespace fusor::fuzz
