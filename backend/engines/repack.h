// Owns repacking: a fusion around a contraction as copies into scratch, the contraction on scratch, and
// copies of its results to their places; for engines that want memory in lines of their own.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "backend/engines/contraction.h"
#include "core/fusion.h"
#include "core/lowered.h"

namespace fusor {

/// How results leave whose channels (of a matmul: neither rows nor columns) do not lie side by side.
enum class WayOut : uint8_t {
  direct = 0,    ///< the contraction stores them where they belong
  copied = 1,    ///< through scratch in their own type
  finished = 2,  ///< the bare product goes to scratch, and the copy carries the epilogue out
};

/// What of a fusion is packed.
struct Packing {
  std::array<bool, 2> sites{};  ///< which of fusion.before
  /// Convolution: neighbouring groups that are carried out as one, whose filter is zero off the diagonal of
  /// blocks. An infinity or NaN of one of them then reaches the results of all.
  int64_t joined = 1;
  /// Convolution: blocks of pixels that are carried out as one (joined_pixels.h); 0: none are. The
  /// filter has zeros, then, so that an infinity or NaN reaches all pixels whose joined window holds it.
  int64_t pixels = 0;
  /// Convolution: whether the columns of a window are channels (unrolled_columns.h), alone of all these.
  /// Under dilation the filter has zeros, then, so that an infinity or NaN reaches windows that skip it.
  bool columns = false;
  /// wgrad: whether the input's phases are channels (stride_phases.h), planes all of them.
  bool phases = false;

  bool is_empty() const {
    return !sites[0] && !sites[1] && joined == 1 && pixels == 0 && !columns && !phases;
  }
};

/// The operands of all three are those of the fusion, and behind them one for each scratch.
struct Repacked {
  Fusion loads;   ///< no anchor: one copy per Expr, in this order; carries out the ops before packed operands
  Fusion core;    ///< the contraction
  Fusion stores;  ///< no anchor: one copy per Expr
  std::vector<int64_t> scratch;  ///< bytes
  std::vector<int> zeroed;       ///< scratches that must be zero before the loads
};

/// Packed operands of a convolution are channels-last, those of a matmul keep the direction that is closer
/// together, but elements of other than 16 bits lie along k; bytes that are summed in fp32 become fp16 or
/// bf16, which hold their numbers; lines begin on multiples of 16 bytes. Those of a wgrad that lie along k
/// are planes in zeros, as flat_rows() says. Joined groups pack the filter, and wgrad finishes later; joined
/// pixels pack the filter, and never leave directly; unrolled columns pack both;
/// stride phases pack the input, and finish later.
Repacked repack(const Fusion& fusion, const Contraction& view, const Packing& packing, WayOut way);
/// The ways out that differ for this fusion, so packed; the first is direct, but for a wgrad of joined
/// groups.
std::vector<WayOut> ways_out(const Fusion& fusion, const Contraction& view, int64_t joined);
/// How joined pixels leave: what follows the product knows nothing of pixels, or can be finished later;
/// nothing where they cannot be joined so.
std::optional<WayOut> way_out_of_pixels(const Fusion& fusion, const Contraction& view, int64_t pixels);
/// Whether a window's columns can be channels, and fewer steps of k come of it.
bool unrolls_columns(const Fusion& fusion, const Contraction& view);
/// Whether the phases of a wgrad's input can be channels, and its result can be finished tap by tap.
bool splits_phases(const Fusion& fusion, const Contraction& view);
/// How many neighbouring groups make one whose channels come in whole blocks, or all of them; 1 where groups
/// are such blocks already, are depthwise or cannot be joined.
int64_t joined_groups(const Fusion& fusion, const Contraction& view, int64_t block);
/// Whether neighbours across the lines that packed operands have lie side by side.
bool is_apart(const Contraction& view, const Dims& domain, const Access& access);

/// Appends the lowering of a part of `repacked` to that of the whole, whose first scratches are
/// repacked.scratch.
void append_part(Lowered& whole, const Repacked& repacked, Lowered part);

}  // namespace fusor
