// Owns an operand of attention as TMA reads it, and the sharing of keys among heads.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "backend/engines/sm90/attention/ragged.h"
#include "core/fusion.h"
#include "core/support.h"
#include "core/tensor_map.h"

namespace fusor::attention {

/// The kernel's batch axes, as many as a map has room for beside rows and elements.
inline constexpr int kMostBatch = 3;
inline constexpr int64_t kLine = 64;  // elements of a swizzled line, of 16 bits

/// An operand as TMA reads it: rows of adjacent elements, and an entry for each place in the batch.
struct Rows {
  int operand = -1;
  int64_t byte_offset = 0;
  TensorMap map;    // without its box
  Dims batch = {};  // entries that it has of its own, by axis
  // Where entries along the first axis begin at places that the device knows, `map` is of one of them.
  std::optional<Ragged> ragged = std::nullopt;
  int64_t entries = 0;               // along the first axis
  int64_t row_stride = 0, span = 0;  // elements from row to row, and from a row's first to behind its last

  bool is_ragged() const { return ragged.has_value(); }
};

/// The site's rows, or why they are none: `row_axis` walks rows, `element_axis` what is adjacent. `or_bytes`:
/// elements may be fp8, too, if they are not ragged.
std::variant<Rows, Refusal> rows_of(const Fusion& fusion, const Expr& site, int row_axis, int element_axis,
                                    bool or_bytes = false);

/// Entries of the batch that share an entry of the operand, by axis; nothing where they do not divide evenly.
std::optional<std::vector<int64_t>> shares_of(const Dims& batch, const Rows& rows);
/// Entries of the batch that share keys and values, by axis; nothing where the two differ.
std::optional<std::vector<int64_t>> shares_of(const Dims& batch, const Rows& q, const Rows& k, const Rows& v);

}  // namespace fusor::attention
