// Owns what the backward engine knows of a fusion, its knobs, and what a setting of them settles.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "backend/engines/sm90/attention/gradient.h"
#include "backend/engines/sm90/attention/rows.h"
#include "core/ceil_div.h"
#include "core/device_info.h"
#include "core/fusion.h"
#include "core/lowered.h"
#include "core/support.h"
#include "core/work.h"

namespace fusor::attention::backward {

/// Facts of a fusion: dq = dS k, dk = dS^T q, dv = P^T dy, of which dk and dv come together.
struct Problem {
  const Fusion& fusion;
  const DeviceInfo& device;
  Gradient gradient = {};
  GradientRoles roles = {};
  Rows q = {}, k = {}, v = {}, dy = {};
  std::optional<Expr> dq = {}, dk = {}, dv = {};  // what becomes of the results, as far as they are asked for
  // Results whose entries begin where the device alone knows.
  std::optional<RaggedResult> placed_dq = {}, placed_dk = {}, placed_dv = {};
  Dims batch = {};                   // of the scores
  std::vector<int64_t> shares = {};  // entries of the scores that share one of keys and values, by axis
  Dims members = {};                 // of these entries, those whose dk and dv are one sum; by axis
  int64_t queries = 0, keys = 0, head = 0, value = 0;
  int64_t index_bits = 32;
  DataType type = DataType::bf16;

  int64_t entries() const { return element_count(batch); }
  int64_t heads() const { return element_count(members); }  // that one sum of dk is made of
  int64_t padded_head() const { return round_up(head, 16); }
  int64_t padded_value() const { return round_up(value, 16); }
  bool is_plain() const { return gradient.scale.has_value(); }
  /// The mask that the kernels compare numbers for, if any.
  const ValueMask* mask() const { return compared_by_kernel(gradient.values); }
};

/// The fusion as the engine sees it, or why it does not.
std::variant<Problem, Refusal> problem_of(const Fusion& fusion, const DeviceInfo& device);

struct Knobs {
  int64_t consumers = 2;   ///< warpgroups of 64 keys (of queries, for dq)
  int64_t step_q = 64;     ///< queries of a block, for dk and dv
  int64_t step_k = 96;     ///< keys of a block, for dq
  int64_t split = 0;       ///< dk and dv in a launch each
  int64_t persistent = 1;  ///< a block for each SM takes tiles until there are none
  int64_t spill = 0;    ///< chunks of heads whose gradients of scores go to the workspace; 0: computed twice
  int64_t buffers = 3;  ///< of these chunks that the workspace holds at once

  static void visit(auto& self, auto&& knob) {
    knob("consumers", self.consumers);
    knob("step_q", self.step_q);
    knob("step_k", self.step_k);
    knob("split", self.split);
    knob("persistent", self.persistent);
    knob("spill", self.spill);
    knob("buffers", self.buffers);
  }
};

/// One launch: what it gives, and how.
struct Part {
  /// product: dq of gradients in the workspace.
  enum class Gives : uint8_t { queries, keys, values, both, product };
  Gives gives = Gives::queries;
  int64_t consumers = 0;
  int64_t tile = 0, step = 0;  // rows that stay, and rows of a block that passes
  int64_t stages = 0;          // 0: shared memory holds less than two
  int64_t shared_bytes = 0;
  int64_t registers = 0;  // of a consumer's thread that hold products and sums

  bool stays_with_queries() const { return gives == Gives::queries || gives == Gives::product; }
  bool gives_keys() const { return gives == Gives::keys || gives == Gives::both; }
  bool gives_values() const { return gives == Gives::values || gives == Gives::both; }
};

/// Facts of a setting.
struct Schedule {
  const Problem& problem;
  Knobs knobs;
  std::vector<Part> parts;

  Schedule(const Problem& problem_, const Knobs& knobs_);
  bool fits() const;
  /// Entries of keys whose gradients of scores are in the workspace at once, and blocks of these of an entry.
  int64_t chunks() const { return std::max<int64_t>(1, knobs.spill); }
  int64_t chunk_entries(int64_t chunk) const;
  int64_t spilled_keys() const;
  int64_t spilled_queries() const;
  /// Blocks of keys that stay with a tile, where queries begin beside them; 0: with the first query.
  int64_t spilled_beside() const;
  int64_t spilled_blocks() const;  // of an entry
  /// The workspace: counters of the launches, and buffers that chunks take in turn.
  bool is_chained() const { return chunks() > 1; }
  int64_t buffers() const { return is_chained() ? std::clamp<int64_t>(knobs.buffers, 2, chunks()) : 1; }
  int64_t counter_bytes() const;
  int64_t buffer_bytes() const;
  int64_t spilled_bytes() const;
  /// Tiles of a part, and pairs of tiles and blocks that see each other.
  int64_t tiles(const Part& part) const;
  int64_t entries(const Part& part) const;
  int64_t live_blocks(const Part& part) const;
  int64_t section(const Part& part) const;
  /// The ragged operands of part number `at`; their entries lie behind those of the parts before.
  RaggedOperands ragged(size_t at) const;
  /// The order in which blocks take a part's tiles, where lengths decide which have anything to do.
  std::optional<TileOrder> order(const Part& part) const;
  bool has_ragged() const { return !ragged(0).empty(); }
  /// The numbers by which part number `at` passes over blocks, if any; they lie behind those of the parts
  /// before. words: of a bit for each block.
  std::optional<ValueRanges> ranges(size_t at) const;
  int64_t words(size_t at) const;
};

Work cost(const Schedule& schedule);
Lowered lower(const Schedule& schedule);

}  // namespace fusor::attention::backward
