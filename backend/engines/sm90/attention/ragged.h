// Owns how attention reads an operand whose entries begin where only the device knows: the places of its
// elements, taken apart, and the launch that makes a map for each entry.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "codegen/parameters.h"
#include "core/fusion.h"
#include "core/lowered.h"

namespace fusor::attention {

/// Element (b, ...) of such an operand lies at start[b] + the sum of coordinate * stride, where that is less
/// than end[b] and the row less than length[b]; it is zero elsewhere. b counts along the first axis.
struct Ragged {
  Expr bounds;                  ///< over the first axis: yields start and end, in elements
  std::optional<Expr> lengths;  ///< over the first axis: yields the rows that exist
  int load = -1;                ///< the node that loads an element
  Strides strides;              ///< of the site's axes; the first one's is 0
  int64_t extent = 0;           ///< elements that may be read; zero lies behind them
};

/// The operand that the site yields, taken apart; nothing where it is something else.
std::optional<Ragged> ragged_of(const Fusion& fusion, const Expr& site, int row_axis);

/// The one result of a site, stored where `bounds` and `strides` say, as those of Ragged.
struct RaggedResult {
  Expr value;   ///< yields what is stored
  Expr bounds;  ///< over the first axis: yields start and end, in elements
  Strides strides;
  Access access;  ///< of the store
  DataType type = DataType::f32;
};

/// The site's result taken apart; nothing where it is stored elsewhere.
std::optional<RaggedResult> ragged_result_of(const Fusion& fusion, const Expr& site);

struct Rows;

/// Bytes of what the device knows of an entry (codegen/device/sm90/attention/ragged.cuh).
inline constexpr int64_t kRaggedEntryBytes = 256;

/// A ragged operand of a launch, and the rows that a copy takes.
struct RaggedOperand {
  const Rows* rows;
  int64_t box;
};

/// The ragged operands of a launch, and where in scratch 0 their entries lie.
class RaggedOperands {
 public:
  explicit RaggedOperands(std::initializer_list<RaggedOperand> all, int64_t first_byte = 0);

  bool empty() const { return operands_.empty(); }
  int64_t end_byte() const;
  /// Where the entries of an operand begin.
  int64_t byte_of(const Rows& rows) const;
  /// The launch that makes their maps; its sites go to `sites`.
  Launch maps(const Fusion& fusion, const std::string& target, int64_t index_bits,
              std::vector<KernelSite>& sites) const;
  /// A field that the kernel reads rows by: a map, or where the maps of entries are.
  void append(Parameters& p, const char* name, const Rows& rows, int64_t box) const;

 private:
  std::vector<RaggedOperand> operands_;
  int64_t first_byte_;
};

}  // namespace fusor::attention
