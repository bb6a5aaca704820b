// Owns what the attention engine knows of a fusion, its knobs, and what a setting of them settles.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "backend/engines/sm90/attention/rows.h"
#include "backend/engines/sm90/attention/scores.h"
#include "core/ceil_div.h"
#include "core/device_info.h"
#include "core/fusion.h"
#include "core/lowered.h"
#include "core/support.h"
#include "core/work.h"

namespace fusor::attention {

/// The one operand of scores that has an element for each of them, such as a bias, where TMA can read it.
struct ScoreMatrix {
  Rows rows;
  Expr score;  ///< Scores::score, to which an element is input 1
};

/// Facts of a fusion.
struct Problem {
  const Fusion& fusion;
  const DeviceInfo& device;
  Scores scores;
  Rows q = {}, k = {}, v = {};
  Dims batch = {};                                    // of the scores
  std::vector<int64_t> shares = {};                   // entries of the scores that share one of keys, by axis
  std::vector<int64_t> shares_q = {}, shares_v = {};  // the same of queries and of values
  int64_t queries = 0, keys = 0, head = 0, value = 0;
  int64_t index_bits = 32;
  DataType type = DataType::bf16;
  std::optional<ScoreMatrix> matrix = std::nullopt;
  Expr y = {};                                             // what becomes of the result
  std::optional<RaggedResult> placed = std::nullopt;       // where entries of it begin where the device knows
  std::optional<RaggedResult> placed_rows = std::nullopt;  // the same of what is stored of a row

  int64_t entries() const { return element_count(batch); }
  /// Elements of 8 bits: a head is one line, sums are short.
  bool of_bytes() const { return byte_size(type) == 1; }
  bool is_ragged() const { return q.is_ragged() || k.is_ragged() || v.is_ragged(); }
  int64_t lines(int64_t elements) const { return of_bytes() ? 1 : ceil_div(elements, kLine); }
  /// All queries see all keys.
  bool has_even_tiles() const {
    return scores.bounds.lower.empty() && scores.bounds.upper.empty() && !scores.lengths && !scores.values;
  }
  int64_t padded_head() const { return round_up(head, of_bytes() ? 32 : 16); }
  int64_t padded_value() const { return round_up(value, of_bytes() ? 32 : 16); }
};

/// The fusion as attention sees it, or why it does not.
std::variant<Problem, Refusal> problem_of(const Fusion& fusion, const DeviceInfo& device);

struct Knobs {
  int64_t consumers = 2;   ///< warpgroups of 64 queries
  int64_t tile_k = 128;    ///< keys of a block
  int64_t ping_pong = 1;   ///< consumers issue their products in turn
  int64_t persistent = 1;  ///< a block for each SM takes tiles until there are none

  static void visit(auto& self, auto&& knob) {
    knob("consumers", self.consumers);
    knob("tile_k", self.tile_k);
    knob("ping_pong", self.ping_pong);
    knob("persistent", self.persistent);
  }
};

/// Facts of a setting.
struct Schedule {
  const Problem& problem;
  Knobs knobs;
  int64_t stages = 0;        // 0: shared memory holds less than two
  int64_t query_stages = 1;  // two: the next tile's queries arrive while this one's are read

  Schedule(const Problem& problem_, const Knobs& knobs_);

  int64_t tile_q() const { return 64 * knobs.consumers; }
  int64_t tiles() const { return ceil_div(problem.queries, tile_q()); }  // of an entry
  int64_t shared_bytes() const;
  /// Tiles are so short that the wait for the next one's queries counts.
  bool wants_next_queries() const;
  /// Registers of a consumer's thread that hold scores, probabilities and sums.
  int64_t registers() const;
  bool fits() const;
  /// Whether the matrix of scores comes through shared memory, in whole lines; else threads load elements.
  bool stages_matrix() const;
  const Expr& score() const { return stages_matrix() ? problem.matrix->score : problem.scores.score; }
  /// Tiles that follow each other are of entries that differ along the first axis: they share the matrix.
  bool takes_first_axis_first() const;
  /// Blocks of keys that the tiles of an entry see, in all.
  int64_t live_blocks() const;
  /// Entries whose tiles blocks take in turn: those that share keys, where all tiles have the same to do or
  /// sections take turns, so that neighbours read the same keys; else those whose keys and values fit half of
  /// L2 together, in even sections.
  int64_t section() const;
  /// Sections begin with another tile each: a block comes by few tiles of an entry, of which some are longer.
  bool takes_turns() const;
  RaggedOperands ragged() const {
    return RaggedOperands({{&problem.q, tile_q()}, {&problem.k, knobs.tile_k}, {&problem.v, knobs.tile_k}})
        .ordered(order());
  }
  /// The numbers by which tiles pass over blocks of keys, if any; words: of a bit for each block.
  std::optional<ValueRanges> ranges() const;
  int64_t words() const;
  /// The mask that the kernel compares numbers for, if any.
  const ValueMask* mask() const { return compared_by_kernel(problem.scores.values); }
  /// The order in which blocks take tiles, where lengths decide which have anything to do.
  std::optional<TileOrder> order() const;
};

Work cost(const Schedule& schedule);
Lowered lower(const Schedule& schedule);

}  // namespace fusor::attention
