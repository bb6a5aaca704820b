// Owns what the attention_mma engine knows of a fusion, its knobs, and what a setting of them settles.
#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "backend/engines/attention/form.h"
#include "core/ceil_div.h"
#include "core/device_info.h"
#include "core/fusion.h"
#include "core/lowered.h"
#include "core/support.h"
#include "core/work.h"

namespace fusor::tiled_attention {

/// How threads load an operand: vectors of `width` elements along the head, or along its rows.
struct OperandLoad {
  Expr expr;
  int vector_axis = 0;
  bool along_head = true;
  bool plain = false;  ///< one load of the elements as they are
  int64_t width = 1;
  std::vector<int64_t> sharing = {};  ///< entries of the scores that share one entry of it, by batch axis
};

/// Slots of an SM's schedulers that one element of an operand takes on its way through a prologue and
/// registers, where so many warps share the SM; `slots` are those that it takes without waiting. Measured on
/// an H200 with keys and values of 8 bits (2026-11).
inline double slots_of_prologue(double slots, int64_t warps) {
  constexpr double kWarpsForHalf = 12;
  return slots * (1 + kWarpsForHalf / static_cast<double>(warps));
}

/// Facts of a fusion.
struct Problem {
  const Fusion& fusion;
  const DeviceInfo& device;
  attention::Scores scores;
  OperandLoad q, k, v;
  Dims batch = {};  // of the scores
  int64_t queries = 0, keys = 0, head = 0, value = 0;
  int64_t index_bits = 32;
  DataType type = DataType::bf16;

  int64_t entries() const { return element_count(batch); }
  int64_t padded_head() const { return round_up(head, 16); }
  int64_t padded_value() const { return round_up(value, 16); }
};

inline constexpr int64_t kMostHead = 256;  // elements, of which registers hold the sums

/// The fusion as attention sees it, or why it does not.
std::variant<Problem, Refusal> problem_of(const Fusion& fusion, const DeviceInfo& device,
                                          int64_t most_head = kMostHead);

struct Knobs {
  int64_t warps = 4;       ///< of a block
  int64_t row_blocks = 2;  ///< blocks of 16 queries of a warp
  int64_t tile_k = 64;     ///< keys of a block

  static void visit(auto& self, auto&& knob) {
    knob("warps", self.warps);
    knob("row_blocks", self.row_blocks);
    knob("tile_k", self.tile_k);
  }
};

/// Facts of a setting.
struct Schedule {
  const Problem& problem;
  Knobs knobs;

  int64_t tile_q() const { return 16 * knobs.row_blocks * knobs.warps; }
  int64_t threads() const { return 32 * knobs.warps; }
  int64_t tiles() const { return ceil_div(problem.queries, tile_q()); }  // of an entry
  int64_t shared_bytes() const;                                          // sizeof(Shared) in the kernel
  int64_t registers() const;                                             // of a thread, as ptxas assigns them
  int64_t blocks_per_sm() const;
  bool fits() const;
};

Work cost(const Schedule& schedule);
Lowered lower(const Schedule& schedule);

/// The operand as threads load it: rows are queries or keys, `head_axis` has the elements of a head.
std::variant<OperandLoad, Refusal> load_of(const Fusion& fusion, const Expr& site, int row_axis,
                                           int head_axis);
/// Bytes of a tile of `rows` rows of an operand of `elements` elements each, in shared memory.
int64_t tile_bytes(int64_t rows, int64_t elements);
/// Widest vectors of the result that all rows allow.
int64_t result_vector(const Problem& problem);
/// The sites, config values and extents of all kernels of this form.
std::vector<KernelSite> sites_of(const Problem& problem);
std::vector<ConfigValue> config_of(const Problem& problem);
void append_extents(Parameters& p, const Problem& problem);
void append_sites(Parameters& p, const Problem& problem, std::span<const KernelSite> sites);
std::vector<Guard> guards_of_operands(const Problem& problem);

}  // namespace fusor::tiled_attention
