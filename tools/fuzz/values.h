// Owns what is known of a tensor's values before a graph runs, and which ops may read them: graphs are kept
// where every right run agrees with the oracle within verify's tolerance, so that a difference is a bug.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph.h"

namespace fusor::fuzz {

/// How an input is filled. It is the ending of the input's name ("x2.grid"), so that a graph's file says it.
enum class Filling : uint8_t {
  unit,      ///< reals in [-1, 1], integers from -4 to 4
  grid,      ///< multiples of 1/4 in [-2, 2]: zeros and ties
  positive,  ///< reals in [1, 2], integers from 1 to 5
  sparse,    ///< half zeros, some of them negative, else 1, -1 or 1/2
  distinct,  ///< int32 and int64: 0, 1, 2 ... in random order (others: as unit); for what asks for it alone
};
inline constexpr int kFillings = 4;  ///< to choose from

std::string_view to_string(Filling filling);
/// What the name asks for; unit where it asks for nothing.
Filling filling_of(std::string_view tensor_name);
/// Whether it is filled with 0, 1, 2 ... in random order.
bool is_distinct(const Tensor& tensor);
/// Fills the buffer of an input or by-value scalar with seeded random values.
void fill(const Tensor& tensor, void* buffer, uint64_t seed);

/// The range of a tensor's values, and whether every right run has the very same ones.
struct Values {
  double least = 0, most = 0;
  bool exact = true;
  double largest() const;
};

/// The values of a graph input or scalar.
Values values_of(const Tensor& tensor);
/// The values of the op's results, each in the type of its tensor; nothing where a right run may differ from
/// the oracle by more than verify's tolerance: steps read inexact values, ranges overflow or leave a
/// function's domain.
std::optional<std::vector<Values>> values_after(const Graph& graph, const Op& op,
                                                std::span<const Values> inputs);
/// Whether values_after() has an answer for every op.
bool is_well_conditioned(const Graph& graph);

}  // namespace fusor::fuzz
