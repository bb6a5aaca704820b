// Owns facts of random words: what kernels need not compute of their counters and comparisons.
#pragma once

#include "core/lowered.h"

namespace fusor {

/// The argument of philox that is the index.
inline constexpr int kPhiloxIndex = 2;

/// Whether an index node passes the coordinate as it is.
inline bool is_plain_coordinate(const Node& node) {
  return node.access.strides[node.axis] == 1 && node.access.offset == 0;
}

/// Whether a node makes words from an index that is int32 and never negative, because it is a sum of
/// coordinates: the upper half of its counter is 0.
bool counts_up(const Expr& expr, const Node& node);

/// How the lanes of a vector step through the stream of words: lane i reads word `first` + i * `step` behind
/// a multiple of four, `step` is 1 or 2; 0: lanes may read any words.
struct WordSteps {
  int step = 0, first = 0;
};
WordSteps word_steps(const KernelSite& site, const Node& node);

/// Whether a node asks if a random word is less than a number that is the same everywhere.
bool compares_word(const Expr& expr, const Node& node);

}  // namespace fusor
