// Owns how operands of a matmul look to threads that load them where TMA cannot: which they can
// load, and how they walk them (codegen/device/sm90/load/threads.cuh).
#pragma once

#include <cstdint>
#include <optional>

#include "backend/engines/contraction/product.h"
#include "core/fusion.h"
#include "core/lowered.h"
#include "core/support.h"

namespace fusor {

class Parameters;

/// An operand that threads load, in lines along k or across it. Distances in bytes.
struct ThreadLoad {
  int operand = -1;
  int64_t byte_offset = 0;
  int64_t line = 0, entry = 0;  ///< from line to line; from entry to entry of the batch, 0 where it has one
  int64_t line_bytes = 0, lines = 0;  ///< of an entry
  int64_t bytes = 0;                  ///< from the first to behind the last one
  /// A power of two up to 8, of which the start and all distances are multiples; pointers must be, too.
  int64_t grain = 1;

  /// The members of a ThreadOperand.
  void append_to(Parameters& p) const;
};

/// The first operand of a matmul, or the second one (of a sibling); nothing where threads cannot load it: an
/// axis is adjacent, and across k only elements of 16 bits are.
std::optional<ThreadLoad> thread_load(const Fusion& fusion, const Contraction& view, bool second,
                                      int64_t sibling = 0);

/// Which operands of the product threads load.
struct LoadedByThreads {
  bool first = false, second = false;
  bool any() const { return first || second; }
};
/// Operands that TMA refuses and threads load; the others are refused, or copied.
LoadedByThreads needs_threads(const Fusion& fusion, const Contraction& view);
/// Whether threads can load an operand (of every sibling); neither, where one comes from registers.
bool threads_take(const Fusion& fusion, const Contraction& view, bool second);
/// Whether they can load both, so that pointers to any whole elements will do.
bool threads_take_both(const Fusion& fusion, const Contraction& view);
/// Why neither TMA nor threads bring an operand (of a sibling), and nothing passes it through its
/// ops, in TMA's words; or nothing. Threads that would bring it do not where they pass the other
/// one through its ops: those are named.
std::optional<Refusal> refuse_loads(const Fusion& fusion, const Contraction& view, bool second,
                                    int64_t sibling = 0);

}  // namespace fusor
