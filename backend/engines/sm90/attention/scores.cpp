// Owns the reading of the site between attention's products: the softmax and what it is made of.
#include "backend/engines/sm90/attention/scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "backend/engines/sm90/attention/dropout.h"
#include "backend/engines/sm90/attention/zeros.h"
#include "core/convert.h"

namespace fusor::attention {

namespace {

bool reduces_keys(const Expr& expr, int at, ReductionMode mode) {
  const Node& node = expr.node(at);
  return node.kind == Node::Kind::reduce && node.reduction.mode == mode &&
         node.over == 1u << (expr.domain.rank() - 1);
}

// --- The parts ---

// The nodes that `yields` need, which are yielded.
Expr part_of(const Expr& site, std::vector<int> yields) {
  Expr part = site;
  part.stores.clear();
  part.yields = std::move(yields);
  return without_dead_nodes(part);
}
Expr part_of(const Expr& site, int at) { return part_of(site, std::vector<int>{at}); }

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

// Scores may be rounded to fewer bits than the fp32 that they are computed in: their maximum then is one of
// them, and is rounded no further.
std::optional<Refusal> refuse_types(const Fusion& fusion, const Expr& site, const Softmax& softmax) {
  const DataType score = site.node(softmax.score).type, largest = site.node(softmax.largest).type;
  const auto refuse_type = [&](int at, const char* expected) {
    return refuse(fusion, "fp32-softmax", site.node(at).op, expected,
                  std::string(to_string(site.node(at).type)));
  };
  if (!is_in_float(score)) return refuse_type(softmax.score, "scores in fp32 or 16 bits");
  if (largest != DataType::f32 && (largest != score || softmax.sink >= 0))
    return refuse_type(softmax.largest, "maxima in fp32, or in the type of the scores");
  if (site.node(softmax.sum).type != DataType::f32) return refuse_type(softmax.sum, "sums in fp32");
  for (const int step : softmax.steps)
    if (site.node(step).type != DataType::f32) return refuse_type(step, "a softmax of its scores in fp32");
  return std::nullopt;
}

// Rows whose scores are all below such a number would have other sums, and all exponentials be 0: kernels
// know the largest score alone.
std::optional<Refusal> refuse_least(const Fusion& fusion, const Expr& site, const Softmax& softmax) {
  if (softmax.least < 0) return std::nullopt;
  const auto number = constant(fusion, site, softmax.least);
  constexpr double kBelowScores = -1e38;
  if (number && *number <= std::max(kBelowScores, -largest_number(site.node(softmax.score).type)))
    return std::nullopt;
  return refuse(fusion, "scores-above-least", site.node(softmax.least).op,
                "a largest score that is at least a constant which no score is below",
                number ? fmt::format("{}", *number) : "a number of each run",
                "leave it out, or take the least number");
}

// Kernels make a row without a sum zeros, as a division by any number does.
std::optional<Refusal> refuse_guard(const Fusion& fusion, const Expr& site, const Softmax& softmax) {
  if (!softmax.guarded) return std::nullopt;
  const auto [divisor, without] = softmax.guard;
  const auto number = constant(fusion, site, divisor), none = constant(fusion, site, without);
  if (number && none && (*number < 0 || *number > 0) && *none == 0) return std::nullopt;
  return refuse(fusion, "sums-that-are-zero", site.node(softmax.sum).op,
                "a sum that a constant replaces where it is 0", "another guard");
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

Node input_node(int input, const Node& like) {
  Node node;
  node.kind = Node::Kind::input;
  node.type = like.type;
  node.input = input;
  node.op = like.op;
  return node;
}

namespace {

// The largest score of a row: the reduction itself, or the larger one of it and the sink; perhaps at least
// some constant (for rows without a score).
bool match_largest(const Expr& expr, int at, Softmax& found) {
  const auto other_of = [&](int larger) { return argument(expr, larger, 1); };
  const auto is_larger = [&](int node) { return is_pointwise(expr.node(node), PointwiseMode::max); };
  if (is_larger(at) && expr.node(other_of(at)).kind == Node::Kind::scalar) {
    found.least = other_of(at);
    at = argument(expr, at, 0);
  }
  found.largest = at;
  if (is_larger(at)) {
    found.sink = other_of(at);
    at = argument(expr, at, 0);
  }
  return reduces_keys(expr, at, ReductionMode::max) && argument(expr, at, 0) == found.score;
}

// The node whose NaN a select replaces. A row with a NaN among its scores has NaN in its sum of exponentials,
// too.
int behind_nan_guard(const Expr& expr, int at) {
  if (!is_pointwise(expr.node(at), PointwiseMode::binary_select)) return at;
  const int guarded = argument(expr, at, 0);
  const Node& equal = expr.node(argument(expr, at, 2));
  const bool asks = is_pointwise(equal, PointwiseMode::cmp_eq) &&
                    behind_identity(expr, equal.args[0]) == guarded &&
                    behind_identity(expr, equal.args[1]) == guarded;
  return asks ? guarded : at;
}

bool is_exponential_of_difference(const Expr& expr, int at, int from, int less) {
  if (!is_pointwise(expr.node(at), PointwiseMode::exp)) return false;
  const int difference = argument(expr, at, 0);
  return is_pointwise(expr.node(difference), PointwiseMode::sub) && argument(expr, difference, 0) == from &&
         argument(expr, difference, 1) == less;
}

// An exponential, the sum that it is divided by, and nodes by whose means.
struct Quotient {
  int exponential = -1, sum = -1;
  std::vector<int> steps = {};
};

bool is_exponential(const Expr& expr, int at) { return is_pointwise(expr.node(at), PointwiseMode::exp); }

// exp(score - (largest + log(sum))), the sum that of exp(score - largest).
std::optional<Quotient> match_logarithm(const Expr& expr, int probability) {
  const int difference = argument(expr, probability, 0);
  if (!is_pointwise(expr.node(difference), PointwiseMode::sub)) return std::nullopt;
  const int score = argument(expr, difference, 0), total = argument(expr, difference, 1);
  if (!is_pointwise(expr.node(total), PointwiseMode::add)) return std::nullopt;
  for (const size_t i : {size_t{0}, size_t{1}}) {
    const int logarithm = argument(expr, total, i), largest = argument(expr, total, 1 - i);
    if (!is_pointwise(expr.node(logarithm), PointwiseMode::log)) continue;
    const int sum = argument(expr, logarithm, 0);
    if (!reduces_keys(expr, sum, ReductionMode::add)) continue;
    const int exponential = argument(expr, sum, 0);
    if (is_exponential_of_difference(expr, exponential, score, largest))
      return Quotient{exponential, sum, {logarithm, total, difference}};
  }
  return std::nullopt;
}

// A quotient, a product with a reciprocal, or the exponential of a logarithm less that of the sum.
std::optional<Quotient> match_quotient(const Expr& expr, int at) {
  const Node& node = expr.node(at);
  if (is_pointwise(node, PointwiseMode::exp)) return match_logarithm(expr, at);
  if (is_pointwise(node, PointwiseMode::div) && is_exponential(expr, argument(expr, at, 0)))
    return Quotient{argument(expr, at, 0), argument(expr, at, 1)};
  if (!is_pointwise(node, PointwiseMode::mul)) return std::nullopt;
  for (const size_t i : {size_t{0}, size_t{1}}) {
    const int exponential = argument(expr, at, i), inverse = argument(expr, at, 1 - i);
    if (is_exponential(expr, exponential) && is_pointwise(expr.node(inverse), PointwiseMode::reciprocal))
      return Quotient{exponential, argument(expr, inverse, 0), {inverse}};
  }
  return std::nullopt;
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
    found.guard = {argument(expr, at, 1), behind_identity(expr, condition.args[1])};
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
  Softmax found;
  const Dropped dropped = behind_dropout(expr, expr.yields[0]);
  found.weights = dropped.weights;
  found.keep = dropped.keep;
  found.otherwise = dropped.otherwise;
  const auto quotient = match_quotient(expr, dropped.value);
  if (!quotient) return std::nullopt;
  const int exponential = quotient->exponential;
  const int difference = argument(expr, exponential, 0);
  if (!is_pointwise(expr.node(difference), PointwiseMode::sub)) return std::nullopt;
  found.score = argument(expr, difference, 0);
  found.steps = quotient->steps;
  found.steps.insert(found.steps.end(), {difference, exponential});
  const int largest = behind_nan_guard(expr, argument(expr, difference, 1));
  if (!match_largest(expr, largest, found)) return std::nullopt;
  if (!match_sum(expr, quotient->sum, exponential, largest, found)) return std::nullopt;
  return found;
}

std::optional<int> length_along(const Expr& expr, int at, int axis) {
  const Node& less = expr.node(at);
  if (!is_pointwise(less, PointwiseMode::cmp_lt)) return std::nullopt;
  const Node& index = expr.node(behind_identity(expr, less.args[0]));
  const int number = behind_identity(expr, less.args[1]);
  const bool counts = index.kind == Node::Kind::index && index.axis == axis && index.access.offset == 0 &&
                      (index.access.strides.rank() <= axis || index.access.strides[axis] == 1);
  const DataType type = expr.node(number).type;
  if (!counts || (type != DataType::i32 && type != DataType::i64)) return std::nullopt;
  const Expr part = part_of(expr, number);
  const bool is_input =
      std::ranges::any_of(part.nodes, [](const Node& node) { return node.kind == Node::Kind::input; });
  const uint32_t matrix = 3u << (expr.domain.rank() - 2);
  if (is_input || part.has_reduction() ||
      (varying_axes(part)[static_cast<size_t>(part.yields[0])] & matrix) != 0)
    return std::nullopt;
  return number;
}

Expr lengths_at(const Expr& expr, int keys, int queries) {
  const int rank = expr.domain.rank();
  Expr lengths = expr;
  lengths.stores.clear();
  lengths.yields = {keys, queries};
  lengths.domain[rank - 1] = lengths.domain[rank - 2] = 1;
  return without_dead_nodes(lengths);
}

namespace {

// Takes lengths of keys and of queries out of the conditions without which node `at`, a select, leaves -inf:
// they are yielded in that order.
std::optional<Expr> take_lengths(const Fusion& fusion, Expr& expr, int at) {
  if (!is_pointwise(expr.node(at), PointwiseMode::binary_select) ||
      constant(fusion, expr, argument(expr, at, 1)) != -std::numeric_limits<double>::infinity())
    return std::nullopt;
  const int condition = expr.node(at).args[2], rank = expr.domain.rank();
  // The condition that bounds an axis, and its length.
  const auto bound_along = [&](int axis) -> std::optional<std::pair<int, int>> {
    for (int each = 0; each < std::ssize(expr.nodes); ++each)
      if (const auto length = length_along(expr, each, axis); length && asks(expr, condition, each))
        return std::pair{each, *length};
    return std::nullopt;
  };
  const auto keys = bound_along(rank - 1), queries = bound_along(rank - 2);
  if (!keys || !queries) return std::nullopt;
  Expr lengths = lengths_at(expr, keys->second, queries->second);
  assume(expr, keys->first);
  assume(expr, queries->first);
  return lengths;
}

Refusal refuse_weight(const Fusion& fusion, int op) {
  return refuse(fusion, "softmax-between", op, "a softmax over the keys between the products",
                "one that is multiplied");
}

Refusal refuse_dropout(const Fusion& fusion, int op, const char* expected, std::string actual) {
  return refuse(fusion, "dropout", op, expected, std::move(actual));
}

// Reads how probabilities are weighed and dropped behind the division.
std::optional<Refusal> take_dropout(const Fusion& fusion, const Expr& site, const Softmax& softmax,
                                    const Takes& takes, Scores& scores) {
  const bool is_dropped = softmax.keep >= 0;
  if (is_dropped) {
    const int op = site.node(softmax.keep).op;
    if (!takes.dropout)
      return refuse_dropout(fusion, op, "probabilities that are multiplied as they are", "dropout");
    scores.keep = kept_part(fusion, site, softmax.keep);
    const bool leaves_zeros = softmax.otherwise < 0 || constant(fusion, site, softmax.otherwise) == 0.0;
    if (!leaves_zeros || !scores.keep)
      return refuse_dropout(fusion, op, "probabilities that are 0 where numbers of coordinates say so",
                            leaves_zeros ? "elements from memory" : "other values");
  }
  std::vector<int> of_runs;
  for (const int at : softmax.weights) {
    const auto given = factor_at(fusion, site, at);
    if (is_dropped && given && !given->is_known() && given->is_positive() && !scores.given_weight) {
      scores.given_weight = given;
      continue;
    }
    const auto weight = constant(fusion, site, at);
    if (takes.weights && !weight) {
      of_runs.push_back(at);
      continue;
    }
    if ((!takes.weights && !is_dropped) || !weight || !(*weight > 0) || !std::isfinite(*weight))
      return refuse_weight(fusion, site.node(at).op);
    scores.weight *= *weight;
  }
  if (!of_runs.empty()) scores.run_weights = part_of(site, std::move(of_runs));
  return std::nullopt;
}

// The score without lengths, or without a comparison of numbers, that mask it; nothing where neither does.
std::optional<int> behind_numbers(const Fusion& fusion, Expr& masked, int score, const Softmax& softmax,
                                  const Takes& takes, Scores& scores) {
  // A row that sees no key has no sum but the sink's, or is guarded.
  if (takes.lengths && !scores.lengths && (softmax.guarded || softmax.sink >= 0)) {
    scores.lengths = take_lengths(fusion, masked, score);
    if (scores.lengths) return behind_identity(masked, score);
  }
  if (!takes.values || scores.values) return std::nullopt;
  return take_value_mask(fusion, masked, score, scores.values);
}

// The scores of a site without a softmax, which are what it yields. The kernel rounds them as it packs them.
std::variant<Scores, Refusal> take_plain(const Fusion& fusion, const Expr& site) {
  Scores scores;
  scores.softens = false;
  Expr masked = site;
  const int last = masked.yields[0];
  take_zeros(fusion, masked, last, scores.bounds);
  Node& node = masked.node(last);
  const bool rounds_once = node.kind == Node::Kind::pointwise ? node.pointwise.compute == DataType::f32
                                                              : node.type == DataType::f32;
  if (!is_in_float(node.type) || (node.type != DataType::f32 && !rounds_once))
    return refuse(fusion, "fp32-scores", node.op, "scores in fp32", std::string(to_string(node.type)));
  node.type = DataType::f32;
  scores.score = part_of(masked, last);
  scores.rows.domain = site.domain;
  scores.rows.domain[site.domain.rank() - 1] = 1;
  Node value;
  value.op = node.op;
  scores.rows.nodes = {input_node(0, value), input_node(1, value)};
  if (!site.stores.empty())
    return refuse(fusion, "scores-stay", site.stores[0].op, "scores that only the second product reads",
                  "a result of rows and keys", "let scores be virtual");
  return scores;
}

}  // namespace

std::variant<Scores, Refusal> take_apart(const Fusion& fusion, const Expr& site, const Takes& takes) {
  const auto softmax = match_softmax(site);
  if (!softmax && takes.plain_chains && !site.has_reduction() && site.yields.size() == 1)
    return take_plain(fusion, site);
  if (!softmax)
    return refuse(fusion, "softmax-between", -1, "a softmax over the keys between the products",
                  "another expression");
  if (auto refusal = refuse_types(fusion, site, *softmax)) return std::move(*refusal);
  if (auto refusal = refuse_least(fusion, site, *softmax)) return std::move(*refusal);
  if (auto refusal = refuse_guard(fusion, site, *softmax)) return std::move(*refusal);
  Scores scores;
  scores.guarded = softmax->guarded;
  if (auto refusal = take_dropout(fusion, site, *softmax, takes, scores)) return std::move(*refusal);
  Expr masked = site;
  int score = softmax->score;
  for (std::optional<int> behind = score; behind;) {
    score = behind_masks(fusion, masked, *behind, scores.bounds);
    behind = behind_numbers(fusion, masked, score, *softmax, takes, scores);
  }
  if (!is_in_float(masked.node(score).type))
    return refuse(fusion, "fp32-softmax", masked.node(score).op, "scores in fp32 or 16 bits",
                  std::string(to_string(masked.node(score).type)));
  scores.scale = scale_of(fusion, masked, score, 0);
  if (const auto factor = factor_of(fusion, masked, score, 0);
      factor && !factor->is_known() && factor->is_positive()) {
    scores.given_scale = factor;
    // As a known scale is written.
    for (int& argument : masked.node(score).args)
      if (argument >= 0 && is_pointwise(masked.node(argument), PointwiseMode::max)) argument = factor->node;
  }
  scores.score = part_of(masked, score);
  if (!scores.values) scores.values = value_mask_of(fusion, masked, score);
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
