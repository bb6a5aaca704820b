// Owns repacking: a fusion around a contraction as copies into scratch, another contraction on scratch, and
// copies of its results to their places. What every rewrite is, and THE list of them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "backend/engines/contraction/product.h"
#include "core/fusion.h"
#include "core/lowered.h"

namespace fusor {

/// How results leave whose channels (of a matmul: neither rows nor columns) do not lie side by side.
enum class ResultPath : uint8_t {
  direct = 0,    ///< the contraction stores them where they belong
  copied = 1,    ///< through scratch in their own type
  finished = 2,  ///< the bare product goes to scratch, and the copy carries the epilogue out
};

/// The operands of all three are those of the fusion, and behind them one for each scratch.
struct Repacked {
  Fusion loads;   ///< no anchor: one copy per Expr, in this order; carries out the ops before packed operands
  Fusion core;    ///< the contraction
  Fusion stores;  ///< no anchor: one copy per Expr
  std::vector<int64_t> scratch;  ///< bytes
  std::vector<int> zeroed;       ///< scratches that must be zero before the loads
};

/// One way to rewrite fusions. Stateless, and every function is pure; what the copies and the contraction
/// cost is known from what it makes.
class Rewrite {
 public:
  Rewrite() = default;
  Rewrite(const Rewrite&) = delete;
  Rewrite& operator=(const Rewrite&) = delete;
  virtual ~Rewrite() = default;

  /// The knob that asks for it, 0 where nobody does; empty: it is what is done where no other is asked for.
  virtual std::string_view knob() const = 0;
  /// The knob's values that are worth trying.
  virtual std::vector<int64_t> values() const = 0;
  /// How results can leave; none where the fusion cannot be rewritten so, or nothing would come of it.
  virtual std::vector<ResultPath> result_paths(const Fusion& fusion, const Contraction& view,
                                               int64_t value) const = 0;
  virtual Repacked rewritten(const Fusion& fusion, const Contraction& view, int64_t value,
                             ResultPath out) const = 0;
};

/// The one without a knob first; where a config asks for several, the first of those that can be.
std::span<const Rewrite* const> rewrites();

// One function per file in backend/engines/repack/rewrites/.
const Rewrite& packed_layouts_rewrite();
const Rewrite& joined_pixels_rewrite();
const Rewrite& unrolled_columns_rewrite();
const Rewrite& stride_phases_rewrite();

/// Whether neighbours across the lines that packed operands have lie side by side.
bool is_apart(const Contraction& view, const Dims& domain, const Access& access);

/// Appends the lowering of a part of `repacked` to that of the whole, whose first scratches are
/// repacked.scratch.
void append_part(Lowered& whole, const Repacked& repacked, Lowered part);

}  // namespace fusor
