// Owns the rules of the attention engine, and what a setting of its knobs settles.
#include "backend/engines/sm90/attention/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "backend/engines/rules.h"

namespace fusor::attention {

namespace {

constexpr int64_t kMostHead = 256;
constexpr int64_t kBarrierBytes = 256;
// Beside scores, probabilities and sums: rows, bounds, addresses; and what computed scores need.
constexpr int64_t kOtherRegisters = 40, kScoreRegisters = 64;

// Two matmuls: of loads, and of what a site makes of the first and a load.
std::optional<Refusal> refuse_form(const Fusion& fusion) {
  const auto other = [&](std::string actual) {
    return Refusal{"two-products",
                   fusion.op_names.empty() ? "" : fusion.op_names.front(),
                   "",
                   "two matmuls, the second of what becomes of the first",
                   std::move(actual),
                   "",
                   -1};
  };
  if (form_of(fusion) != Form::chain) return other(std::string(to_string(form_of(fusion))));
  if (fusion.anchors.size() != 2) return other(fmt::format("{} contractions", fusion.anchors.size()));
  for (const Anchor& anchor : fusion.anchors) {
    if (!std::holds_alternative<Matmul>(anchor.attributes)) return other("a convolution");
    if (std::get<Matmul>(anchor.attributes).compute != DataType::f32)
      return refuse(fusion, "fp32-sums", "", "compute type fp32",
                    std::string(to_string(std::get<Matmul>(anchor.attributes).compute)));
    for (const Port& port : anchor.operands)
      if (!port.axes.empty() || port.yield != 0) return other("operands whose axes change places");
  }
  if (fusion.sites.size() != 5) return other(fmt::format("{} sites", fusion.sites.size()));
  const Site& between = fusion.sites[static_cast<size_t>(fusion.anchors[1].operands[0].site)];
  const Site& result = fusion.sites.back();
  const auto takes = [](const Site& site, int anchor) {
    return site.inputs.size() == 1 && site.inputs[0].from == Input::From::anchor &&
           site.inputs[0].at == anchor && site.inputs[0].whole.empty();
  };
  if (!takes(between, 0) || !takes(result, 1)) return other("other connections");
  return std::nullopt;
}

std::optional<Refusal> refuse_result(const Fusion& fusion) {
  const Expr& y = result_site(fusion);
  if (y.has_reduction())
    return refuse(fusion, "elementwise-result", "", "results without reductions", "a reduction");
  const Expr& scores = fusion.sites[static_cast<size_t>(fusion.anchors[1].operands[0].site)].expr;
  const int rank = y.domain.rank();
  if (rank != scores.domain.rank())
    return refuse(fusion, "result-domain", "", "a result of the products' own rank", fmt::format("{}", rank));
  return std::nullopt;
}

std::optional<Refusal> refuse_sizes(const Problem& problem) {
  const Fusion& fusion = problem.fusion;
  if (problem.head > kMostHead || problem.value > kMostHead)
    return refuse(fusion, "head-elements", "", "at most 256 elements a head",
                  fmt::format("{} and {}", problem.head, problem.value));
  const int64_t reached = std::max({problem.queries, problem.keys, problem.entries() * problem.queries});
  return refuse_wide_coordinates(fusion, "queries of all heads", reached);
}

}  // namespace

std::variant<Problem, Refusal> problem_of(const Fusion& fusion, const DeviceInfo& device) {
  if (auto refusal = refuse_form(fusion)) return std::move(*refusal);
  if (auto refusal = refuse_result(fusion)) return std::move(*refusal);
  if (fusion.precision == Precision::strict)
    return refuse(fusion, "late-division", "", "a graph that lets a softmax be divided behind its product",
                  "precision 'strict'", "precision 'exact'");
  const Expr& between = operand_site(fusion, 1, 0);
  const int rank = between.domain.rank();
  if (rank - 2 > kMostBatch)
    return refuse(fusion, "batch-axes", "", fmt::format("at most {} axes before the matrices", kMostBatch),
                  fmt::format("{}", rank - 2));
  auto scores = take_apart(fusion, between);
  if (auto* refusal = std::get_if<Refusal>(&scores)) return std::move(*refusal);
  Problem problem{.fusion = fusion, .device = device, .scores = std::move(std::get<Scores>(scores))};
  const Expr &q = operand_site(fusion, 0, 0), &k = operand_site(fusion, 0, 1),
             &v = operand_site(fusion, 1, 1);
  if (q.domain.rank() != rank || k.domain.rank() != rank || v.domain.rank() != rank)
    return refuse(fusion, "equal-ranks", "", "operands of one rank", "broadcast ones");
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
    return refuse(fusion, "one-type", "", "q, k, v and probabilities of one type", "several");
  for (int axis = 0; axis + 2 < rank; ++axis) problem.batch.push_back(between.domain[axis]);
  problem.queries = between.domain[rank - 2];
  problem.keys = between.domain[rank - 1];
  problem.head = q.domain[rank - 1];
  problem.value = v.domain[rank - 1];
  auto shares = shares_of(problem.batch, problem.q, problem.k, problem.v);
  if (!shares)
    return refuse(fusion, "shared-heads", "", "keys and values that the same heads share", "other sharing");
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
  const int64_t others = kOtherRegisters + (problem.scores.scale ? 0 : kScoreRegisters);
  return stages >= 2 && registers() + others <= available;
}

int64_t Schedule::live_blocks() const {
  int64_t blocks = 0;
  for (int64_t row = 0; row < problem.queries; row += tile_q()) {
    const int64_t last = std::min(row + tile_q(), problem.queries) - 1;
    int64_t first = 0, end = problem.keys;
    for (const KeyBound& bound : problem.scores.bounds.lower)
      first = std::max(first, std::min(bound.slope * row, bound.slope * last) + bound.offset);
    for (const KeyBound& bound : problem.scores.bounds.upper)
      end = std::min(end, std::max(bound.slope * row, bound.slope * last) + bound.offset + 1);
    if (end > first) blocks += ceil_div(end, knobs.tile_k) - first / knobs.tile_k;
  }
  return blocks;
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
