// Owns the reading of the site between attention's products: softmax, mask and scale.
#include "backend/engines/sm90/attention/scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace fusor::attention {

namespace {

// More bounds of one kind than a mask of the usual kinds has: causal, a window, a length.
constexpr size_t kMostBounds = 4;
// Coordinates and bounds beyond this are left to the general way of masking.
constexpr int64_t kFarthest = 1 << 23;
// Masks below this stand for minus infinity, which people avoid.
constexpr double kVeryLow = -1e30;

bool is_pointwise(const Node& node, PointwiseMode mode) {
  return node.kind == Node::Kind::pointwise && node.pointwise.mode == mode;
}

// Past nodes that hand their argument on as it is.
int behind_identity(const Expr& expr, int at) {
  while (is_pointwise(expr.node(at), PointwiseMode::identity) &&
         expr.node(expr.node(at).args[0]).type == expr.node(at).type)
    at = expr.node(at).args[0];
  return at;
}

int argument(const Expr& expr, int at, size_t i) { return behind_identity(expr, expr.node(at).args[i]); }

bool reduces_keys(const Expr& expr, int at, ReductionMode mode) {
  const Node& node = expr.node(at);
  return node.kind == Node::Kind::reduce && node.reduction.mode == mode &&
         node.over == 1u << (expr.domain.rank() - 1);
}

std::optional<double> constant(const Fusion& fusion, const Expr& expr, int at) {
  const Node& node = expr.node(at);
  if (node.kind != Node::Kind::scalar) return std::nullopt;
  const Operand& operand = fusion.operands[static_cast<size_t>(node.access.operand)];
  if (operand.memory != Memory::constant) return std::nullopt;
  return std::visit([](auto value) { return static_cast<double>(value); }, operand.value);
}

// --- Masks ---

// q * row + k * key + offset
struct Line {
  int64_t row = 0, key = 0, offset = 0;
};

Line combined(const Line& a, const Line& b, int64_t sign) {
  return {a.row + sign * b.row, a.key + sign * b.key, a.offset + sign * b.offset};
}

std::optional<Line> line_of_index(const Expr& expr, const Node& node) {
  const int64_t scale = node.access.strides.rank() > node.axis ? node.access.strides[node.axis] : 1;
  if (node.axis == expr.domain.rank() - 2) return Line{scale, 0, node.access.offset};
  if (node.axis == expr.domain.rank() - 1) return Line{0, scale, node.access.offset};
  return std::nullopt;
}

// The value as a line over rows and keys, exact in the type that it is computed in.
std::optional<Line> line_of(const Fusion& fusion, const Expr& expr, int at) {
  const Node& node = expr.node(at);
  if (node.type != DataType::i32 && node.type != DataType::i64 && node.type != DataType::f32)
    return std::nullopt;
  if (node.kind == Node::Kind::index) return line_of_index(expr, node);
  if (const auto value = constant(fusion, expr, at)) {
    if (*value != std::floor(*value) || std::fabs(*value) > kFarthest) return std::nullopt;
    return Line{0, 0, static_cast<int64_t>(*value)};
  }
  if (node.kind != Node::Kind::pointwise) return std::nullopt;
  const PointwiseMode mode = node.pointwise.mode;
  if (mode == PointwiseMode::identity) return line_of(fusion, expr, node.args[0]);
  if (mode != PointwiseMode::add && mode != PointwiseMode::sub) return std::nullopt;
  const auto a = line_of(fusion, expr, node.args[0]), b = line_of(fusion, expr, node.args[1]);
  if (!a || !b) return std::nullopt;
  return combined(*a, *b, mode == PointwiseMode::add ? 1 : -1);
}

// Adds the bound that `line` >= 0 is; false where it is none.
bool add_bound(const Line& line, Bounds& bounds) {
  if (std::max(std::abs(line.row), std::abs(line.offset)) > kFarthest || std::abs(line.row) > 1) return false;
  if (line.key == 1) bounds.lower.push_back({-line.row, -line.offset});
  if (line.key == -1) bounds.upper.push_back({line.row, line.offset});
  return std::abs(line.key) == 1;
}

// Whether "node `at` is `truth`" is bounds on the keys of a row, which are added.
bool add_condition(const Fusion& fusion, const Expr& expr, int at, bool truth, Bounds& bounds) {
  at = behind_identity(expr, at);
  const Node& node = expr.node(at);
  if (node.kind != Node::Kind::pointwise) return false;
  const PointwiseMode mode = node.pointwise.mode;
  if (mode == PointwiseMode::logical_not) return add_condition(fusion, expr, node.args[0], !truth, bounds);
  if (mode == (truth ? PointwiseMode::logical_and : PointwiseMode::logical_or))
    return add_condition(fusion, expr, node.args[0], truth, bounds) &&
           add_condition(fusion, expr, node.args[1], truth, bounds);
  const bool greater = mode == PointwiseMode::cmp_ge || mode == PointwiseMode::cmp_gt;
  const bool less = mode == PointwiseMode::cmp_le || mode == PointwiseMode::cmp_lt;
  if (!greater && !less) return false;
  const auto a = line_of(fusion, expr, node.args[0]), b = line_of(fusion, expr, node.args[1]);
  if (!a || !b) return false;
  Line line = greater == truth ? combined(*a, *b, -1) : combined(*b, *a, -1);
  const bool or_equal = mode == PointwiseMode::cmp_ge || mode == PointwiseMode::cmp_le;
  if (or_equal != truth) --line.offset;
  return add_bound(line, bounds);
}

bool is_read_once(const Expr& expr, int at) {
  int readers = 0;
  for (const Node& node : expr.nodes) readers += static_cast<int>(std::ranges::count(node.args, at));
  return readers == 1;
}

// Takes what is bounds out of a conjunction that nothing else reads; whether nothing remains of it.
bool take_bounds(const Fusion& fusion, Expr& expr, int at, Bounds& bounds) {
  Bounds found = bounds;
  if (add_condition(fusion, expr, at, true, found)) {
    bounds = std::move(found);
    return true;
  }
  if (!is_pointwise(expr.node(at), PointwiseMode::logical_and) || !is_read_once(expr, at)) return false;
  const std::array<int, 3> args = expr.node(at).args;
  const bool first = take_bounds(fusion, expr, args[0], bounds);
  const bool second = take_bounds(fusion, expr, args[1], bounds);
  if (first || second) {
    expr.node(at).pointwise.mode = PointwiseMode::identity;
    expr.node(at).args = {first ? args[1] : args[0], -1, -1};
  }
  return false;
}

// Every row sees a key. The number of keys that row q sees is concave in q, so the ends decide.
bool all_rows_see(const Bounds& bounds, int64_t rows, int64_t keys) {
  for (const int64_t row : {int64_t{0}, rows - 1}) {
    int64_t first = 0, last = keys - 1;
    for (const KeyBound& bound : bounds.lower) first = std::max(first, bound.slope * row + bound.offset);
    for (const KeyBound& bound : bounds.upper) last = std::min(last, bound.slope * row + bound.offset);
    if (first > last) return false;
  }
  return true;
}

bool hides(const Fusion& fusion, const Expr& expr, int at, const Bounds& bounds) {
  const auto value = constant(fusion, expr, at);
  if (!value) return false;
  const int rank = expr.domain.rank();
  return std::isinf(*value)
             ? *value < 0
             : *value <= kVeryLow && all_rows_see(bounds, expr.domain[rank - 2], expr.domain[rank - 1]);
}

bool fit(const Bounds& bounds) { return std::max(bounds.lower.size(), bounds.upper.size()) <= kMostBounds; }

// The select's other value where its condition is bounds and it hides keys that they leave out. Of a
// condition that is more than bounds, these are taken out.
std::optional<int> behind_select(const Fusion& fusion, Expr& expr, int at, Bounds& bounds) {
  if (!is_pointwise(expr.node(at), PointwiseMode::binary_select)) return std::nullopt;
  const int condition = expr.node(at).args[2];
  for (const bool truth : {true, false}) {
    Bounds found = bounds;
    if (!add_condition(fusion, expr, condition, truth, found) || !fit(found)) continue;
    if (!hides(fusion, expr, argument(expr, at, truth ? 1 : 0), found)) continue;
    bounds = std::move(found);
    return argument(expr, at, truth ? 0 : 1);
  }
  const auto hidden = constant(fusion, expr, argument(expr, at, 1));
  if (hidden != -std::numeric_limits<double>::infinity() || !is_read_once(expr, condition))
    return std::nullopt;
  Expr taken = expr;
  Bounds found = bounds;
  take_bounds(fusion, taken, condition, found);
  if (fit(found)) {
    expr = std::move(taken);
    bounds = std::move(found);
  }
  return std::nullopt;
}

// The score without masks that are bounds: selects, or added zeros and infinities.
int behind_masks(const Fusion& fusion, Expr& expr, int at, Bounds& bounds) {
  for (at = behind_identity(expr, at);;) {
    std::optional<int> inner = behind_select(fusion, expr, at, bounds);
    for (const size_t mask : {size_t{0}, size_t{1}}) {
      if (inner || !is_pointwise(expr.node(at), PointwiseMode::add)) continue;
      const auto value = behind_select(fusion, expr, argument(expr, at, mask), bounds);
      if (value && constant(fusion, expr, *value) == 0.0) inner = argument(expr, at, 1 - mask);
    }
    if (!inner) return at;
    at = *inner;
  }
}

// --- Scale ---

bool is_whole_product(const Node& node) {
  return node.kind == Node::Kind::input && node.input == 0 && node.type == DataType::f32;
}

std::optional<double> scale_of(const Fusion& fusion, const Expr& expr, int score) {
  const Node& node = expr.node(score);
  if (is_whole_product(node)) return 1.0;
  if (node.kind != Node::Kind::pointwise || node.type != DataType::f32) return std::nullopt;
  const bool divides = node.pointwise.mode == PointwiseMode::div;
  if (!divides && node.pointwise.mode != PointwiseMode::mul) return std::nullopt;
  for (const size_t i : {size_t{0}, size_t{1}}) {
    if (divides && i == 1) continue;
    const auto factor = constant(fusion, expr, argument(expr, score, 1 - i));
    if (!factor || !is_whole_product(expr.node(argument(expr, score, i)))) continue;
    const double scale = divides ? 1 / *factor : *factor;
    if (scale > 0 && std::isfinite(scale)) return scale;
  }
  return std::nullopt;
}

// --- The parts ---

Node input_node(int input, const Node& like) {
  Node node;
  node.kind = Node::Kind::input;
  node.type = like.type;
  node.input = input;
  node.op = like.op;
  return node;
}

// The nodes that node `at` needs, which is yielded.
Expr part_of(const Expr& site, int at) {
  Expr part = site;
  part.stores.clear();
  part.yields = {at};
  return without_dead_nodes(part);
}

// Beside the inputs, which are one value a row.
bool varies_over_keys(const Expr& rows) {
  const int keys = rows.domain.rank() - 1;
  return std::ranges::any_of(rows.nodes, [&](const Node& node) {
    return (node.kind == Node::Kind::load && node.access.strides[keys] != 0) ||
           (node.kind == Node::Kind::index && node.axis == keys);
  });
}

Expr row_part(const Expr& site, const Softmax& softmax) {
  Expr part = site;
  part.yields.clear();
  part.node(softmax.largest) = input_node(0, site.node(softmax.largest));
  part.node(softmax.sum) = input_node(1, site.node(softmax.sum));
  part = without_dead_nodes(part);
  if (!varies_over_keys(part)) part.domain[part.domain.rank() - 1] = 1;
  // Both are handed over, whether or not they are read.
  for (const int input : {0, 1})
    if (std::ranges::none_of(part.nodes, [&](const Node& node) {
          return node.kind == Node::Kind::input && node.input == input;
        }))
      part.nodes.push_back(input_node(input, site.node(softmax.sum)));
  return part;
}

Refusal refuse(const Fusion& fusion, const char* rule, int op, const char* expected, std::string actual,
               const char* remedy = "") {
  return {
      rule, op < 0 ? "" : fusion.op_name(op), "", expected, std::move(actual), remedy, fusion.anchors[1].op};
}

std::optional<Refusal> refuse_types(const Fusion& fusion, const Expr& site, const Softmax& softmax) {
  for (const int at : {softmax.score, softmax.largest, softmax.sum})
    if (site.node(at).type != DataType::f32)
      return refuse(fusion, "fp32-scores", site.node(at).op, "scores, maxima and sums in fp32",
                    std::string(to_string(site.node(at).type)));
  return std::nullopt;
}

std::optional<Refusal> refuse_stores(const Fusion& fusion, const Expr& site, const Expr& rows) {
  const std::vector<uint32_t> varying = varying_axes(rows);
  for (const Store& store : rows.stores)
    if (varying[static_cast<size_t>(store.node)] >> (site.domain.rank() - 1) & 1)
      return refuse(fusion, "scores-stay", store.op, "results that are the same for all keys of a row",
                    "a result of rows and keys", "let scores and probabilities be virtual");
  for (const Node& node : rows.nodes)
    if (node.kind == Node::Kind::reduce)
      return refuse(fusion, "one-softmax", node.op, "one softmax", "a reduction beside it");
  return std::nullopt;
}

}  // namespace

namespace {

// The largest score of a row: the reduction itself, at least some constant (for rows without a score), or at
// least the sink.
bool match_largest(const Expr& expr, int at, Softmax& found) {
  if (reduces_keys(expr, at, ReductionMode::max)) {
    found.largest = at;
    return argument(expr, at, 0) == found.score;
  }
  if (!is_pointwise(expr.node(at), PointwiseMode::max)) return false;
  const int reduced = argument(expr, at, 0), other = argument(expr, at, 1);
  if (!reduces_keys(expr, reduced, ReductionMode::max) || argument(expr, reduced, 0) != found.score)
    return false;
  const bool is_constant = expr.node(other).kind == Node::Kind::scalar;
  found.largest = is_constant ? reduced : at;
  found.sink = is_constant ? -1 : other;
  return true;
}

bool is_exponential_of_difference(const Expr& expr, int at, int from, int less) {
  if (!is_pointwise(expr.node(at), PointwiseMode::exp)) return false;
  const int difference = argument(expr, at, 0);
  return is_pointwise(expr.node(difference), PointwiseMode::sub) && argument(expr, difference, 0) == from &&
         argument(expr, difference, 1) == less;
}

// The sum of a row's exponentials: the reduction itself, with the sink's exponential, or another value where
// it is zero.
bool match_sum(const Expr& expr, int at, int exponential, int largest, Softmax& found) {
  if (is_pointwise(expr.node(at), PointwiseMode::binary_select)) {
    const Node& condition = expr.node(argument(expr, at, 2));
    const int sum = argument(expr, at, 0);
    if (!is_pointwise(condition, PointwiseMode::cmp_neq) || behind_identity(expr, condition.args[0]) != sum)
      return false;
    found.guarded = true;
    at = sum;
  }
  found.sum = at;
  if (found.sink >= 0) {
    if (!is_pointwise(expr.node(at), PointwiseMode::add) ||
        !is_exponential_of_difference(expr, argument(expr, at, 1), found.sink, largest))
      return false;
    at = argument(expr, at, 0);
  }
  return reduces_keys(expr, at, ReductionMode::add) && argument(expr, at, 0) == exponential;
}

}  // namespace

std::optional<Softmax> match_softmax(const Expr& expr) {
  if (expr.yields.size() != 1 || expr.domain.rank() < 2) return std::nullopt;
  int probability = expr.yields[0];
  while (is_pointwise(expr.node(probability), PointwiseMode::identity))
    probability = expr.node(probability).args[0];
  if (!is_pointwise(expr.node(probability), PointwiseMode::div)) return std::nullopt;
  const int exponential = argument(expr, probability, 0);
  if (!is_pointwise(expr.node(exponential), PointwiseMode::exp)) return std::nullopt;
  const int difference = argument(expr, exponential, 0);
  if (!is_pointwise(expr.node(difference), PointwiseMode::sub)) return std::nullopt;
  Softmax found;
  found.score = argument(expr, difference, 0);
  const int largest = argument(expr, difference, 1);
  if (!match_largest(expr, largest, found)) return std::nullopt;
  if (!match_sum(expr, argument(expr, probability, 1), exponential, largest, found)) return std::nullopt;
  return found;
}

std::variant<Scores, Refusal> take_apart(const Fusion& fusion, const Expr& site) {
  const auto softmax = match_softmax(site);
  if (!softmax)
    return refuse(fusion, "softmax-between", -1, "a softmax over the keys between the products",
                  "another expression");
  if (auto refusal = refuse_types(fusion, site, *softmax)) return std::move(*refusal);
  Scores scores;
  scores.guarded = softmax->guarded;
  Expr masked = site;
  const int score = behind_masks(fusion, masked, softmax->score, scores.bounds);
  if (masked.node(score).type != DataType::f32)
    return refuse(fusion, "fp32-scores", masked.node(score).op, "scores in fp32",
                  std::string(to_string(masked.node(score).type)));
  scores.scale = scale_of(fusion, masked, score);
  scores.score = part_of(masked, score);
  scores.rows = row_part(site, *softmax);
  if (softmax->sink >= 0) scores.sink = part_of(site, softmax->sink);
  if (scores.score.has_reduction() || (scores.sink && scores.sink->has_reduction()))
    return refuse(fusion, "one-softmax", -1, "scores without reductions",
                  "a reduction in front of the softmax");
  if (scores.sink && varies_over_keys(*scores.sink))
    return refuse(fusion, "sink-of-row", site.node(softmax->sink).op, "a sink that is one value a row",
                  "one a key");
  if (auto refusal = refuse_stores(fusion, site, scores.rows)) return std::move(*refusal);
  return scores;
}

}  // namespace fusor::attention
