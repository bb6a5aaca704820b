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
// Beside scores, probabilities and sums: rows, bounds, addresses; and what computed scores need.
constexpr int64_t kOtherRegisters = 40, kScoreRegisters = 64;

std::optional<Refusal> refuse_sizes(const Problem& problem) {
  const Fusion& fusion = problem.fusion;
  if (problem.head > kMostHead || problem.value > kMostHead)
    return refuse_attention(fusion, "head-elements", "", "at most 256 elements a head",
                            fmt::format("{} and {}", problem.head, problem.value));
  const int64_t reached = std::max({problem.queries, problem.keys, problem.entries() * problem.queries});
  return refuse_wide_coordinates(fusion, "queries of all heads", reached);
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
  auto scores = take_apart(fusion, between);
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
    auto rows = rows_of(fusion, operand.site, operand.row_axis, operand.element_axis);
    if (auto* refusal = std::get_if<Refusal>(&rows)) return std::move(*refusal);
    operand.rows = std::get<Rows>(rows);
  }
  problem.type = problem.q.map.type;
  if (problem.k.map.type != problem.type || problem.v.map.type != problem.type ||
      yielded_node(between).type != problem.type)
    return refuse_attention(fusion, "one-type", "", "q, k, v and probabilities of one type", "several");
  for (int axis = 0; axis + 2 < rank; ++axis) problem.batch.push_back(between.domain[axis]);
  problem.queries = between.domain[rank - 2];
  problem.keys = between.domain[rank - 1];
  problem.head = q.domain[rank - 1];
  problem.value = v.domain[rank - 1];
  auto shares = shares_of(problem.batch, problem.q, problem.k, problem.v);
  if (!shares)
    return refuse_attention(fusion, "shared-heads", "", "keys and values that the same heads share",
                            "other sharing");
  problem.shares = std::move(*shares);
  for (const fusor::Operand& operand : fusion.operands)
    if (operand.elements > std::numeric_limits<int32_t>::max()) problem.index_bits = 64;
  if (auto refusal = refuse_sizes(problem)) return std::move(*refusal);
  return problem;
}

Schedule::Schedule(const Problem& problem_, const Knobs& knobs_) : problem(problem_), knobs(knobs_) {
  for (stages = 4; stages >= 2 && shared_bytes() > problem.device.shared_per_block; --stages) {
  }
  if (stages < 2) stages = 0;
}

int64_t Schedule::shared_bytes() const {
  const int64_t head_lines = ceil_div(problem.head, kLine), value_lines = ceil_div(problem.value, kLine);
  const int64_t rows = tile_q() * head_lines + stages * knobs.tile_k * (head_lines + value_lines);
  return round_up(rows * 2 * kLine + kBarrierBytes, 1024);
}

bool Schedule::fits() const {
  const int64_t available = knobs.consumers == 2 ? 240 : 160;
  const int64_t others = kOtherRegisters + (problem.scores.is_plain() ? 0 : kScoreRegisters);
  return stages >= 2 && registers() + others <= available;
}

int64_t Schedule::live_blocks() const {
  return attention::live_blocks(problem.scores.bounds, problem.queries, problem.keys, tile_q(), knobs.tile_k);
}

int64_t Schedule::section() const {
  const int64_t bytes = problem.keys * (problem.head + problem.value) * 2;
  int64_t shared = 1;
  for (const int64_t share : problem.shares) shared *= share;
  const int64_t entries =
      std::max<int64_t>(1, problem.device.l2_bytes / 2 / std::max<int64_t>(bytes, 1)) * shared;
  return std::min(entries, problem.entries());
}

}  // namespace fusor::attention
