// Owns how attention reads an operand whose entries begin where only the device knows: the places of its
// elements, taken apart, and the launch that makes a map for each entry.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/text/parameters.h"
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
  bool is_dense = false;        ///< entries begin at multiples of a stride, and lengths alone end them
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

/// The field `name` that a kernel stores such a result by, RaggedResult of codegen/device/sm90/attention.
void append_result(Parameters& p, std::string_view name, const RaggedResult& result);

/// A ragged operand of a launch, and the rows that a copy takes.
struct RaggedOperand {
  const Rows* rows;
  int64_t box;
};

/// Whether lengths are those of whole entries along the first axis.
bool are_of_entries(const Expr& lengths);

/// The order of a launch's tiles, where lengths decide on the device which of them have anything to do
/// (codegen/device/sm90/attention/order.cuh): the sequences with most to do first.
struct TileOrder {
  const Expr* lengths = nullptr;  ///< of keys and of queries, as sites yield them
  bool by_keys = false;           ///< tiles are rows of keys
  /// Heads of a sequence, of which each of `chunks` launches has the same number; section: those taken in
  /// turn.
  int64_t sequences = 0, heads = 0, chunks = 1, section = 0;
  int64_t queries = 0, keys = 0, tile = 0;  ///< most rows of a sequence, and rows of a tile
  /// Results that are written as far as entries reach; and whether others are written in all rows.
  std::vector<const RaggedResult*> results = {};
  bool has_all_rows = false;

  int64_t heads_of_chunk() const { return heads / chunks; }
  int64_t rows() const { return by_keys ? keys : queries; }
  int64_t bytes() const;
  /// Takes a result into account; `placed` is null where it is no ragged one.
  void add(const RaggedResult* placed);
};

/// The ragged operands of a launch, and where in a scratch their entries lie; behind them the order of tiles.
class RaggedOperands {
 public:
  explicit RaggedOperands(std::initializer_list<RaggedOperand> all, int scratch = 0, int64_t first_byte = 0);
  RaggedOperands ordered(std::optional<TileOrder> order) &&;

  bool empty() const { return operands_.empty(); }
  bool is_ordered() const { return order_.has_value(); }
  int64_t end_byte() const;
  /// Where the entries of an operand begin.
  int64_t byte_of(const Rows& rows) const;
  /// The launch that makes their maps; its sites go to `sites`.
  Launch maps(const Fusion& fusion, const std::string& target, int64_t index_bits,
              std::vector<KernelSite>& sites) const;
  /// A field that the kernel reads rows by: a map, or where the maps of entries are.
  void append(Parameters& p, const char* name, const Rows& rows, int64_t box) const;
  /// The field by which launch number `chunk` finds its tiles in their order, if they have one.
  void append_order(Parameters& p, int64_t chunk = 0) const;

 private:
  int64_t order_byte() const;
  void append_facts_of_order(Parameters& p, const Fusion& fusion, std::vector<KernelSite>& sites) const;

  std::vector<RaggedOperand> operands_;
  int scratch_;
  int64_t first_byte_;
  std::optional<TileOrder> order_;
};

}  // namespace fusor::attention
