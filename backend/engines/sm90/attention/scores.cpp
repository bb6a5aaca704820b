// Owns the reading of the site between attention's products: softmax, mask and scale.
#include "backend/engines/sm90/attention/scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace fusor::attention {

namespace {

// More bounds of one kind than a mask of the usual kinds has: causal, a window, a length.
constexpr size_t kMostBounds = 4;
// Coordinates and bounds beyond this are left to the general way of masking.
constexpr int64_t kFarthest = 1 << 23;
// What people write for minus infinity where they fear it.
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

// The select's other value where its condition is bounds and it hides keys that they leave out.
std::optional<int> behind_select(const Fusion& fusion, const Expr& expr, int at, Bounds& bounds) {
  if (!is_pointwise(expr.node(at), PointwiseMode::binary_select)) return std::nullopt;
  for (const bool truth : {true, false}) {
    Bounds found = bounds;
    if (!add_condition(fusion, expr, expr.node(at).args[2], truth, found)) continue;
    if (!hides(fusion, expr, argument(expr, at, truth ? 1 : 0), found)) continue;
    if (std::max(found.lower.size(), found.upper.size()) > kMostBounds) continue;
    bounds = std::move(found);
    return argument(expr, at, truth ? 0 : 1);
  }
  return std::nullopt;
}

// The score without masks that are bounds: selects, or added zeros and infinities.
int behind_masks(const Fusion& fusion, const Expr& expr, int at, Bounds& bounds) {
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

Expr score_part(const Expr& site, int score) {
  Expr part = site;
  part.stores.clear();
  part.yields = {score};
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

std::optional<Softmax> match_softmax(const Expr& expr) {
  if (expr.yields.size() != 1 || expr.domain.rank() < 2) return std::nullopt;
  int probability = expr.yields[0];
  while (is_pointwise(expr.node(probability), PointwiseMode::identity))
    probability = expr.node(probability).args[0];
  if (!is_pointwise(expr.node(probability), PointwiseMode::div)) return std::nullopt;
  Softmax found;
  const int exponential = argument(expr, probability, 0);
  found.sum = argument(expr, probability, 1);
  if (!reduces_keys(expr, found.sum, ReductionMode::add)) return std::nullopt;
  if (argument(expr, found.sum, 0) != exponential ||
      !is_pointwise(expr.node(exponential), PointwiseMode::exp))
    return std::nullopt;
  const int difference = argument(expr, exponential, 0);
  if (!is_pointwise(expr.node(difference), PointwiseMode::sub)) return std::nullopt;
  found.score = argument(expr, difference, 0);
  found.largest = argument(expr, difference, 1);
  if (!reduces_keys(expr, found.largest, ReductionMode::max) ||
      argument(expr, found.largest, 0) != found.score)
    return std::nullopt;
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
  const int score = behind_masks(fusion, site, softmax->score, scores.bounds);
  if (site.node(score).type != DataType::f32)
    return refuse(fusion, "fp32-scores", site.node(score).op, "scores in fp32",
                  std::string(to_string(site.node(score).type)));
  scores.scale = scale_of(fusion, site, score);
  scores.score = score_part(site, score);
  scores.rows = row_part(site, *softmax);
  if (scores.score.has_reduction())
    return refuse(fusion, "one-softmax", -1, "scores without reductions",
                  "a reduction in front of the softmax");
  if (auto refusal = refuse_stores(fusion, site, scores.rows)) return std::move(*refusal);
  return scores;
}

}  // namespace fusor::attention
