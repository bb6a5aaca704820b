// Owns the reading of masks whose bounds only the device knows: lengths of sequences, of queries and of keys.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "backend/engines/tiled/attention/decode.h"

namespace fusor::tiled_attention {

namespace {

using attention::argument;
using attention::constant;
using attention::is_pointwise;
using attention::Line;

Expr part_of(const Expr& site, int at) {
  Expr part = site;
  part.stores.clear();
  part.yields = {at};
  return without_dead_nodes(part);
}

// Whether the node is an integer that is the same for all rows of a tile and all keys.
bool is_of_tile(const DecodeProblem& decode, const Expr& expr, int at) {
  const Node& node = expr.node(at);
  if (node.type != DataType::i32 && node.type != DataType::i64) return false;
  uint32_t rows = 3u << (expr.domain.rank() - 2);
  for (size_t axis = 0; axis < decode.shares.size(); ++axis)
    if (decode.shares[axis] > 1) rows |= 1u << axis;
  const Expr part = part_of(expr, at);
  const bool reads_input =
      std::ranges::any_of(part.nodes, [](const Node& each) { return each.kind == Node::Kind::input; });
  return !reads_input && !part.has_reduction() &&
         (varying_axes(part)[static_cast<size_t>(part.yields[0])] & rows) == 0;
}

// `line` + `sign` * number >= 0 as a limit; its bound goes to `bounds`. Of one query alone, the coordinate is
// 0 and may be missing.
std::optional<Limit> limit_of(const Line& line, int sign, Expr number, bool one_query,
                              attention::Bounds& bounds) {
  Limit limit{.number = std::move(number)};
  if (std::abs(line.row) > 1) return std::nullopt;
  if (line.key == -1 && sign > 0) {
    limit.of = Limit::Of::upper;
    limit.place = std::ssize(bounds.upper);
    bounds.upper.push_back({line.row, line.offset});
  } else if (line.key == 1 && sign < 0) {
    limit.of = Limit::Of::lower;
    limit.place = std::ssize(bounds.lower);
    bounds.lower.push_back({-line.row, -line.offset});
  } else if (line.key == 0 && (line.row == -1 || (line.row == 0 && one_query)) && sign > 0 &&
             line.offset >= -1) {
    limit.of = Limit::Of::queries;
    limit.place = line.offset + 1;
  } else {
    return std::nullopt;
  }
  return limit;
}

class Conditions {
 public:
  explicit Conditions(const DecodeProblem& decode)
      : decode_(decode), limits(decode.limits), bounds(decode.problem.scores.bounds) {}

  // Whether "node `at` holds" is limits and nothing else, which are added.
  bool add(const Expr& expr, int at) {
    at = attention::behind_identity(expr, at);
    const Node& node = expr.node(at);
    if (is_pointwise(node, PointwiseMode::logical_and))
      return add(expr, node.args[0]) && add(expr, node.args[1]);
    if (node.kind != Node::Kind::pointwise) return false;
    const PointwiseMode mode = node.pointwise.mode;
    const bool greater = mode == PointwiseMode::cmp_ge || mode == PointwiseMode::cmp_gt;
    const bool less = mode == PointwiseMode::cmp_le || mode == PointwiseMode::cmp_lt;
    if (!greater && !less) return false;
    const bool or_equal = mode == PointwiseMode::cmp_ge || mode == PointwiseMode::cmp_le;
    for (const bool swapped : {false, true}) {
      const int of_line = argument(expr, at, swapped ? 1 : 0), number = argument(expr, at, swapped ? 0 : 1);
      const auto line = attention::line_of(decode_.problem.fusion, expr, of_line);
      if (!line || !is_of_tile(decode_, expr, number)) continue;
      const int64_t sign = greater != swapped ? 1 : -1;
      const Line moved{sign * line->row, sign * line->key, sign * line->offset - (or_equal ? 0 : 1)};
      auto limit = limit_of(moved, static_cast<int>(-sign), part_of(expr, number),
                            decode_.problem.queries == 1, bounds);
      if (!limit || limits.size() == kMostLimits) return false;
      limits.push_back(std::move(*limit));
      return attention::fit(bounds);
    }
    return false;
  }

 private:
  const DecodeProblem& decode_;

 public:
  std::vector<Limit> limits;
  attention::Bounds bounds;
};

// Whether both numbers are the same element of one tensor for each entry of the batch.
bool is_same_load(const Expr& a, const Expr& b, int batch) {
  if (a.nodes.size() != 1 || b.nodes.size() != 1) return false;
  const Node &first = a.nodes[0], &second = b.nodes[0];
  if (first.kind != Node::Kind::load || second.kind != Node::Kind::load || first.access.is_indexed() ||
      second.access.is_indexed() || first.access.operand != second.access.operand ||
      first.access.offset != second.access.offset)
    return false;
  for (int axis = 0; axis < batch; ++axis) {
    const bool walked = a.domain[axis] > 1 && b.domain[axis] > 1;
    if (walked ? first.access.strides[axis] != second.access.strides[axis]
               : (a.domain[axis] > 1 && first.access.strides[axis] != 0) ||
                     (b.domain[axis] > 1 && second.access.strides[axis] != 0))
      return false;
  }
  return true;
}

// The operand without the zeros behind a length that no query sees beyond.
std::optional<Expr> without_padding(const DecodeProblem& decode, const Expr& site, int row_axis) {
  int at = attention::behind_identity(site, site.yields[0]);
  if (is_pointwise(site.node(at), PointwiseMode::identity)) at = argument(site, at, 0);
  if (!is_pointwise(site.node(at), PointwiseMode::binary_select)) return std::nullopt;
  const int condition = argument(site, at, 2);
  if (constant(decode.problem.fusion, site, argument(site, at, 1)) != 0.0 ||
      !is_pointwise(site.node(condition), PointwiseMode::cmp_lt))
    return std::nullopt;
  const Node& index = site.node(argument(site, condition, 0));
  const bool counts_rows = index.kind == Node::Kind::index && index.axis == row_axis &&
                           index.access.offset == 0 &&
                           (index.access.strides.rank() <= row_axis || index.access.strides[row_axis] == 1);
  const Expr length = part_of(site, argument(site, condition, 1));
  if (!counts_rows || std::ranges::none_of(decode.limits, [&](const Limit& limit) {
        return limit.of == Limit::Of::upper &&
               decode.problem.scores.bounds.upper[static_cast<size_t>(limit.place)] ==
                   attention::KeyBound{0, -1} &&
               is_same_load(limit.number, length, site.domain.rank() - 2);
      }))
    return std::nullopt;
  // A select in fp32 changes no row that comes back in its own type.
  const Expr rows = part_of(site, argument(site, at, 0));
  const DataType type = yielded_node(rows).type, between = site.node(at).type;
  if (type != yielded_node(site).type || (between != type && between != DataType::f32)) return std::nullopt;
  return rows;
}

}  // namespace

void take_limits(DecodeProblem& decode) {
  Problem& problem = decode.problem;
  attention::Scores& scores = problem.scores;
  for (;;) {
    const int at = attention::behind_identity(scores.score, scores.score.yields[0]);
    if (!is_pointwise(scores.score.node(at), PointwiseMode::binary_select)) break;
    const auto hidden = constant(problem.fusion, scores.score, argument(scores.score, at, 1));
    const int inner = argument(scores.score, at, 0);
    Conditions found(decode);
    if (!hidden || !std::isinf(*hidden) || *hidden > 0 || scores.score.node(inner).type != DataType::f32 ||
        !found.add(scores.score, argument(scores.score, at, 2)))
      break;
    decode.limits = std::move(found.limits);
    scores.bounds = std::move(found.bounds);
    scores.scale = attention::scale_of(problem.fusion, scores.score, inner, 0);
    scores.score = part_of(scores.score, inner);
  }
  const int rank = scores.score.domain.rank();
  for (const auto& [load, row_axis, head_axis] :
       {std::tuple{&problem.k, rank - 1, rank - 2}, {&problem.v, rank - 2, rank - 1}}) {
    Expr rows = load->expr;
    while (auto fewer = without_padding(decode, rows, row_axis)) rows = std::move(*fewer);
    rows = part_of(rows, attention::behind_identity(rows, rows.yields[0]));
    if (rows.nodes.size() == load->expr.nodes.size()) continue;
    auto plain = load_of(problem.fusion, rows, row_axis, head_axis);
    if (std::holds_alternative<Refusal>(plain)) continue;
    auto& bare = std::get<OperandLoad>(plain);
    // A vector along the keys may reach beyond a length: what is no number there must become zero.
    if (load == &problem.v && !bare.along_head && bare.width > 1) continue;
    std::vector<int64_t> sharing = std::move(load->sharing);
    *load = std::move(bare);
    load->sharing = std::move(sharing);
  }
}

}  // namespace fusor::tiled_attention
