// Owns the rules of the attention engine, and what a setting of its knobs settles.
#include "backend/engines/sm90/attention/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "backend/engines/attention/form.h"
#include "backend/engines/rules.h"

namespace fusor::attention {

namespace {

constexpr int64_t kMostHead = 256;
constexpr int64_t kBarrierBytes = 256;
constexpr int64_t kShortTile = 16;  // blocks of keys
constexpr int64_t kFewTiles = 8;
// codegen/device/sm90/attention/order.cuh
constexpr int64_t kTileSlots = 4;
// Beside scores, probabilities and sums: rows, bounds, addresses; and what computed scores need, at most one
// for each key of a block. A mask that is compared takes a register for each kKeysOfMask keys.
constexpr int64_t kOtherRegisters = 40, kScoreRegisters = 64, kMatrixRegisters = 24, kDropoutRegisters = 24;
constexpr int64_t kKeysOfMask = 4;
// codegen/device/sm90/attention/score_matrix.cuh: its barriers take the room to the next multiple of 1024.
constexpr int64_t kMatrixStages = 2, kMatrixBarrierBytes = 1024;
// codegen/device/sm90/attention/bytes.cuh
constexpr int64_t kRawStages = 2, kMostOfBytes = 128;
// Registers beside the sums for operands of 8 bits, as compiled: two sets of sums leave few. Computed scores
// take half a register for each key of a block.
constexpr int64_t kOtherRegistersOfBytes = 24, kBoundRegistersOfBytes = 8, kFactorRegistersOfBytes = 8;

// Scores that are products times numbers of a row, such as the factors that fp8 comes with.
bool scales_only(const Problem& problem) {
  const Expr& score = problem.scores.score;
  const int keys = score.domain.rank() - 1;
  return std::ranges::all_of(score.nodes, [&](const Node& node) {
    if (node.kind == Node::Kind::load) return node.access.strides[keys] == 0;
    return node.kind == Node::Kind::input || node.kind == Node::Kind::scalar ||
           is_pointwise(node, PointwiseMode::mul) || is_pointwise(node, PointwiseMode::identity);
  });
}

// Scores that add a matrix to products, or multiply them by one, beside what is plain.
bool has_few_steps(const Expr& score) {
  return std::ranges::none_of(score.nodes, [](const Node& node) { return node.kind == Node::Kind::load; }) &&
         std::ssize(score.nodes) <= 6;
}

int64_t other_registers(const Schedule& schedule) {
  const Problem& problem = schedule.problem;
  const int64_t tile_k = schedule.knobs.tile_k;
  const bool is_plain = problem.scores.is_plain();
  const int64_t scores = schedule.stages_matrix() && has_few_steps(schedule.score())
                             ? kMatrixRegisters
                             : std::min(kScoreRegisters, tile_k);
  if (!problem.of_bytes())
    return kOtherRegisters + (is_plain ? 0 : scores) + (problem.scores.keep ? kDropoutRegisters : 0) +
           (schedule.mask() != nullptr ? tile_k / kKeysOfMask : 0);
  const int64_t computed = scales_only(problem) ? kFactorRegistersOfBytes : tile_k / 2;
  const Bounds& bounds = problem.scores.bounds;
  const bool is_bounded = !bounds.lower.empty() || !bounds.upper.empty();
  return kOtherRegistersOfBytes + (is_plain ? 0 : computed) + (is_bounded ? kBoundRegistersOfBytes : 0);
}

std::optional<ScoreMatrix> matrix_of(const Fusion& fusion, const Expr& score) {
  const int keys = score.domain.rank() - 1;
  for (size_t at = 0; at < score.nodes.size(); ++at) {
    const Node& node = score.nodes[at];
    if (node.kind != Node::Kind::load || node.access.is_indexed() || node.access.strides[keys] != 1 ||
        node.access.strides[keys - 1] == 0)
      continue;
    Expr alone = score;
    alone.yields = {static_cast<int>(at)};
    const auto rows = rows_of(fusion, without_dead_nodes(alone), keys - 1, keys);
    if (const Rows* found = std::get_if<Rows>(&rows)) {
      ScoreMatrix matrix{*found, score};
      Node& element = matrix.score.nodes[at];
      element = input_node(1, element);
      element.type = DataType::f32;
      return matrix;
    }
  }
  return std::nullopt;
}

std::optional<Refusal> refuse_sizes(const Problem& problem) {
  const Fusion& fusion = problem.fusion;
  const int64_t most = problem.of_bytes() ? kMostOfBytes : kMostHead;
  if (problem.head > most || problem.value > most)
    return refuse_attention(fusion, "head-elements", "", fmt::format("at most {} elements a head", most),
                            fmt::format("{} and {}", problem.head, problem.value));
  const int64_t reached = std::max({problem.queries, problem.keys, problem.entries() * problem.queries});
  return refuse_wide_coordinates(fusion, "queries of all heads", reached);
}

// Results at places that are computed, unless these are those of ragged rows.
std::optional<Refusal> refuse_placed(const Problem& problem) {
  if (problem.placed && !problem.of_bytes()) return std::nullopt;
  return refuse_computed_places(problem.fusion, problem.y);
}

}  // namespace

std::variant<Problem, Refusal> problem_of(const Fusion& fusion, const DeviceInfo& device) {
  if (auto refusal = refuse_attention_form(fusion)) return std::move(*refusal);
  const Expr& between = operand_site(fusion, 1, 0);
  const int rank = between.domain.rank();
  if (rank - 2 > kMostBatch)
    return refuse_attention(fusion, "batch-axes", "",
                            fmt::format("at most {} axes before the matrices", kMostBatch),
                            fmt::format("{}", rank - 2));
  auto scores = take_apart(fusion, between,
                           {.weights = is_fp8(yielded_node(between).type),
                            .lengths = true,
                            .dropout = !is_fp8(yielded_node(between).type),
                            .values = true,
                            .plain_chains = !is_fp8(yielded_node(between).type)});
  if (auto* refusal = std::get_if<Refusal>(&scores)) return std::move(*refusal);
  Problem problem{.fusion = fusion, .device = device, .scores = std::move(std::get<Scores>(scores))};
  const Expr &q = operand_site(fusion, 0, 0), &k = operand_site(fusion, 0, 1),
             &v = operand_site(fusion, 1, 1);
  if (q.domain.rank() != rank || k.domain.rank() != rank || v.domain.rank() != rank)
    return refuse_attention(fusion, "equal-ranks", "", "operands of one rank", "broadcast ones");
  struct Operand {
    Rows& rows;
    const Expr& site;
    int row_axis, element_axis;
  };
  for (const Operand& operand : {Operand{problem.q, q, rank - 2, rank - 1},
                                 {problem.k, k, rank - 1, rank - 2},
                                 {problem.v, v, rank - 2, rank - 1}}) {
    auto rows = rows_of(fusion, operand.site, operand.row_axis, operand.element_axis, true);
    if (auto* refusal = std::get_if<Refusal>(&rows)) return std::move(*refusal);
    operand.rows = std::get<Rows>(rows);
  }
  problem.type = problem.q.map.type;
  if (problem.k.map.type != problem.type || problem.v.map.type != problem.type ||
      yielded_node(between).type != problem.type)
    return refuse_attention(fusion, "one-type", "", "q, k, v and probabilities of one type", "several");
  if (problem.of_bytes() && fusion.precision < Precision::allow_short_sums)
    return refuse_attention(fusion, "short-sums", "", "a graph that lets products of fp8 be summed in pieces",
                            fmt::format("precision '{}'", to_string(fusion.precision)),
                            "precision 'allow_short_sums'");
  for (int axis = 0; axis + 2 < rank; ++axis) problem.batch.push_back(between.domain[axis]);
  problem.queries = between.domain[rank - 2];
  problem.keys = between.domain[rank - 1];
  problem.head = q.domain[rank - 1];
  problem.value = v.domain[rank - 1];
  for (const auto& [rows, shares] : {std::pair{&problem.q, &problem.shares_q},
                                     {&problem.k, &problem.shares},
                                     {&problem.v, &problem.shares_v}}) {
    auto found = shares_of(problem.batch, *rows);
    if (!found)
      return refuse_attention(fusion, "shared-heads", "", "operands that whole groups of heads share",
                              "other sharing");
    *shares = std::move(*found);
  }
  // Ragged rows are copied by a whole warp, boxes of a matrix by one thread.
  if (!problem.of_bytes() && !problem.is_ragged()) problem.matrix = matrix_of(fusion, problem.scores.score);
  problem.y = result_site(fusion);
  if (const auto& weights = problem.scores.run_weights) problem.y = multiplied(problem.y, *weights);
  problem.y = without_last_rounding(std::move(problem.y));
  problem.placed = ragged_result_of(fusion, problem.y);
  if (auto refusal = refuse_placed(problem)) return std::move(*refusal);
  problem.placed_rows = ragged_result_of(fusion, problem.scores.rows);
  for (const fusor::Operand& operand : fusion.operands)
    if (operand.elements > std::numeric_limits<int32_t>::max()) problem.index_bits = 64;
  if (auto refusal = refuse_sizes(problem)) return std::move(*refusal);
  return problem;
}

Schedule::Schedule(const Problem& problem_, const Knobs& knobs_) : problem(problem_), knobs(knobs_) {
  for (stages = 4; stages >= 2 && shared_bytes() > problem.device.shared_per_block; --stages) {
  }
  if (stages < 2) stages = 0;
  if (stages > 0 && wants_next_queries()) {
    query_stages = 2;
    while (stages > 2 && shared_bytes() > problem.device.shared_per_block) --stages;
    if (shared_bytes() > problem.device.shared_per_block) query_stages = 1;
  }
}

bool Schedule::wants_next_queries() const {
  return knobs.persistent != 0 && live_blocks() <= kShortTile * tiles();
}

int64_t Schedule::shared_bytes() const {
  const int64_t head_lines = problem.lines(problem.head), value_lines = problem.lines(problem.value);
  const int64_t keys = knobs.tile_k * head_lines,
                values = problem.of_bytes() ? problem.padded_value() : knobs.tile_k * value_lines;
  const int64_t raw = problem.of_bytes() ? kRawStages * knobs.tile_k * 2 * kLine + 1024 : 0;
  const int64_t matrix =
      stages_matrix() ? kMatrixStages * tile_q() * knobs.tile_k * 2 + kMatrixBarrierBytes : 0;
  const int64_t operands = (query_stages * tile_q() * head_lines + stages * (keys + values)) * 2 * kLine;
  // Two words of 4 bytes for each 32 blocks.
  const int64_t slots = kTileSlots * 2 * 4 * words();
  return round_up(raw + matrix + operands + kBarrierBytes + slots, 1024);
}

int64_t Schedule::registers() const {
  const int64_t sums = problem.padded_value() / 2;
  if (problem.of_bytes()) return knobs.tile_k / 2 + knobs.tile_k / 8 + 2 * sums;
  return knobs.tile_k / 2 + knobs.tile_k / 4 + sums;
}

bool Schedule::fits() const {
  if (problem.of_bytes() && (knobs.tile_k % 32 != 0 || knobs.tile_k > kMostOfBytes)) return false;
  const bool has_busy_producers = problem.of_bytes() || !ragged().empty() || words() > 0;
  const int64_t available = knobs.consumers == 2 ? has_busy_producers ? 232 : 240 : 160;
  return stages >= 2 && registers() + other_registers(*this) <= available;
}

int64_t Schedule::live_blocks() const {
  return attention::live_blocks(problem.scores.bounds, problem.queries, problem.keys, tile_q(), knobs.tile_k);
}

bool Schedule::stages_matrix() const { return problem.matrix && knobs.tile_k % kLine == 0; }

bool Schedule::takes_first_axis_first() const {
  const Dims& batch = problem.batch;
  const bool shares = std::ranges::any_of(problem.shares, [](int64_t share) { return share != 1; });
  return stages_matrix() && !shares && batch.rank() > 1 && batch[0] > 1 &&
         problem.matrix->rows.batch[0] == 1 && !order();
}

std::optional<ValueRanges> Schedule::ranges() const {
  if (!problem.scores.values || problem.of_bytes() || problem.keys <= kFewBlocks * knobs.tile_k)
    return std::nullopt;
  const RaggedOperands before = ragged();
  return ValueRanges(*problem.scores.values, problem.batch, tile_q(), knobs.tile_k,
                     before.empty() ? 0 : before.end_byte());
}

int64_t Schedule::words() const {
  return ranges() ? words_of_blocks(ceil_div(problem.keys, knobs.tile_k)) : 0;
}

std::optional<TileOrder> Schedule::order() const {
  const std::optional<Expr>& lengths = problem.scores.lengths;
  if (knobs.persistent == 0 || problem.of_bytes() || !lengths || !are_of_entries(*lengths))
    return std::nullopt;
  TileOrder order{.lengths = &*lengths,
                  .sequences = problem.batch[0],
                  .heads = problem.entries() / problem.batch[0],
                  .section = section(),
                  .queries = problem.queries,
                  .keys = problem.keys,
                  .tile = tile_q()};
  order.add(problem.placed ? &*problem.placed : nullptr);
  if (!problem.scores.rows.stores.empty()) order.add(problem.placed_rows ? &*problem.placed_rows : nullptr);
  return order;
}

bool Schedule::takes_turns() const {
  return knobs.persistent != 0 && !problem.has_even_tiles() && !problem.scores.lengths &&
         tiles() <= kFewTiles;
}

int64_t Schedule::section() const {
  const int64_t bytes = problem.keys * (problem.head + problem.value) * 2;
  int64_t shared = 1;
  for (const int64_t share : problem.shares) shared *= share;
  if (problem.has_even_tiles() || takes_turns()) return std::min(shared, problem.entries());
  const int64_t entries =
      std::max<int64_t>(1, problem.device.l2_bytes / 2 / std::max<int64_t>(bytes, 1)) * shared;
  const int64_t even = ceil_div(problem.entries(), ceil_div(problem.entries(), entries));
  return std::min(round_up(even, shared), problem.entries());
}

}  // namespace fusor::attention
