// Owns the reading of the site behind the products of attention's backward pass.
#include "backend/engines/sm90/attention/gradient.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "backend/engines/attention/form.h"
#include "backend/engines/sm90/attention/dropout.h"
#include "backend/engines/sm90/attention/ragged.h"
#include "backend/engines/sm90/attention/scores.h"

namespace fusor::attention {

namespace {

constexpr size_t kMostRowValues = 4;

// Facts of each node: whether it depends on an input or varies over keys, and whether it is
// made of anything but numbers.
struct Dependence {
  std::vector<bool> on_keys, on_memory;

  explicit Dependence(const Expr& expr) : on_keys(expr.nodes.size()), on_memory(expr.nodes.size()) {
    const int keys = expr.domain.rank() - 1;
    for (size_t i = 0; i < expr.nodes.size(); ++i) {
      const Node& node = expr.nodes[i];
      on_keys[i] = node.kind == Node::Kind::input || (node.kind == Node::Kind::index && node.axis == keys) ||
                   (node.kind == Node::Kind::load && node.access.strides[keys] != 0);
      on_memory[i] = node.kind == Node::Kind::load;
      for (const int arg : node.args) {
        if (arg < 0) continue;
        on_keys[i] = on_keys[i] || on_keys[static_cast<size_t>(arg)];
        on_memory[i] = on_memory[i] || on_memory[static_cast<size_t>(arg)];
      }
    }
  }
};

// The nodes that are one number a row, of which other nodes are made.
std::vector<int> row_nodes(const Expr& expr) {
  const Dependence depends(expr);
  const auto is_row = [&](int at) {
    const auto i = static_cast<size_t>(at);
    return !depends.on_keys[i] && depends.on_memory[i] && is_in_float(expr.node(at).type);
  };
  std::vector<int> found;
  for (size_t i = 0; i < expr.nodes.size(); ++i) {
    if (is_row(static_cast<int>(i)) || !depends.on_keys[i]) continue;
    for (const int arg : expr.nodes[i].args)
      if (arg >= 0 && is_row(arg) && std::ranges::find(found, arg) == found.end()) found.push_back(arg);
  }
  return found;
}

Expr row_part(const Expr& site, int at) {
  Expr part = site;
  part.stores.clear();
  part.yields = {at};
  part.domain[part.domain.rank() - 1] = 1;
  return without_dead_nodes(part);
}

// Products are inputs 0 and 1, values of rows those behind; all of them exist, whether or not they are read.
Expr with_inputs(const Expr& site, const GradientRoles& roles, const std::vector<int>& rows) {
  Expr expr = site;
  for (Node& node : expr.nodes)
    if (node.kind == Node::Kind::input) node.input = node.input == roles.scores ? 0 : 1;
  for (size_t i = 0; i < rows.size(); ++i)
    expr.node(rows[i]) = input_node(static_cast<int>(i) + 2, expr.node(rows[i]));
  return expr;
}

Expr with_all_inputs(Expr expr, size_t inputs) {
  expr = without_dead_nodes(expr);
  for (size_t i = 0; i < inputs; ++i) {
    const auto is_input = [&](const Node& node) {
      return node.kind == Node::Kind::input && std::cmp_equal(node.input, i);
    };
    if (std::ranges::any_of(expr.nodes, is_input)) continue;
    Node node;
    node.kind = Node::Kind::input;
    node.input = static_cast<int>(i);
    expr.nodes.push_back(node);
  }
  return expr;
}

// --- Where both are zero ---

void add_all(const std::vector<KeyBound>& from, std::vector<KeyBound>& to) {
  for (const KeyBound& bound : from)
    if (std::ranges::find(to, bound) == to.end()) to.push_back(bound);
}

// Bounds on keys outside of which the node is zero.
Bounds zero_outside(const Fusion& fusion, const Expr& expr, int at) {
  const Node& node = expr.node(at);
  Bounds bounds;
  if (node.kind != Node::Kind::pointwise) return bounds;
  const auto add = [&](const Bounds& more) {
    add_all(more.lower, bounds.lower);
    add_all(more.upper, bounds.upper);
  };
  switch (node.pointwise.mode) {
    case PointwiseMode::identity:
      return zero_outside(fusion, expr, node.args[0]);
    case PointwiseMode::mul:
      add(zero_outside(fusion, expr, node.args[0]));
      add(zero_outside(fusion, expr, node.args[1]));
      return bounds;
    case PointwiseMode::binary_select:
      for (const bool truth : {true, false}) {
        if (constant(fusion, expr, argument(expr, at, truth ? 1 : 0)) != 0.0) continue;
        Bounds found;
        add_bounds_of(fusion, expr, node.args[2], truth, found);
        add(found);
        add(zero_outside(fusion, expr, node.args[truth ? 0 : 1]));
      }
      return bounds;
    case PointwiseMode::exp: {
      // The exponential of a score that a mask makes -inf.
      Expr masked = expr;
      const int difference = behind_masks(fusion, masked, argument(expr, at, 0), bounds);
      if (!is_pointwise(masked.node(difference), PointwiseMode::sub)) return bounds;
      behind_masks(fusion, masked, argument(masked, difference, 0), bounds);
      return bounds;
    }
    default:
      return bounds;
  }
}

Bounds common(const Bounds& a, const Bounds& b) {
  Bounds both;
  const auto add = [](const auto& some, const auto& others, auto& to) {
    for (const KeyBound& bound : some)
      if (std::ranges::find(others, bound) != others.end()) to.push_back(bound);
  };
  add(a.lower, b.lower, both.lower);
  add(a.upper, b.upper, both.upper);
  return both;
}

// --- Plain scores ---

// Past roundings and selects that hide keys outside of `bounds`; whether a type of 16 bits was met.
int behind_roundings(const Fusion& fusion, const Expr& expr, int at, const Bounds& bounds, bool& rounds) {
  for (;;) {
    const Node& node = expr.node(at);
    if (node.type != DataType::f32) rounds = true;
    if (is_pointwise(node, PointwiseMode::identity)) {
      at = node.args[0];
      continue;
    }
    if (!is_pointwise(node, PointwiseMode::binary_select)) return at;
    bool hides = false;
    for (const bool truth : {true, false}) {
      Bounds found;
      if (constant(fusion, expr, argument(expr, at, truth ? 1 : 0)) != 0.0 ||
          !add_condition(fusion, expr, node.args[2], truth, found))
        continue;
      const Bounds known = common(found, bounds);
      if (known.lower.size() < found.lower.size() || known.upper.size() < found.upper.size()) continue;
      hides = true;
      at = node.args[truth ? 0 : 1];
      break;
    }
    if (!hides) return at;
  }
}

struct Plain {
  Factor scale, slope;
  int first = -1, second = -1;  // inputs that are values of the row
  int keep = -1;                // the condition of dropout, if any
  double weight = 1;            // of products that it keeps
  double kept = 1;              // of probabilities
  double outer = 1;             // of gradients, beside the slope
  bool rounds = false;

  // Kernels make gradients of probabilities times their weight: whether these are the graph's, but for the
  // slope.
  bool balances() {
    const auto is_one = [](double x) { return std::fabs(x - 1) < 1e-6; };
    const double rest = outer * weight / kept;
    if (is_one(rest)) return true;
    if (slope.node < 0 || !slope.is_known() || !is_one(rest * slope.constant)) return false;
    slope = {};
    return true;
  }
};

// Past dropout of a value, which must be 0 where it is not kept; nothing where it is multiplied by other
// numbers than positive constants.
std::optional<int> behind_drop(const Fusion& fusion, const Expr& expr, int at, Plain& found) {
  const Dropped dropped = behind_dropout(expr, at);
  if (dropped.keep < 0) return at;
  if (dropped.otherwise >= 0 && constant(fusion, expr, dropped.otherwise) != 0.0) return std::nullopt;
  found.keep = dropped.keep;
  for (const int weight : dropped.weights) {
    const auto value = constant(fusion, expr, weight);
    if (!value || !(*value > 0) || !std::isfinite(*value)) return std::nullopt;
    found.weight *= *value;
  }
  return dropped.value;
}

bool is_row_input(const Node& node) { return node.kind == Node::Kind::input && node.input >= 2; }

// exp(score - row)
bool match_probability(const Fusion& fusion, const Expr& expr, int at, const Bounds& bounds, Plain& found,
                       bool& rounds) {
  at = behind_roundings(fusion, expr, at, bounds, rounds);
  if (!is_pointwise(expr.node(at), PointwiseMode::exp)) return false;
  // Masks lie in front of the difference, or behind it.
  Bounds masks;
  Expr masked = expr;
  const int difference = behind_masks(fusion, masked, argument(expr, at, 0), masks);
  if (!is_pointwise(masked.node(difference), PointwiseMode::sub) ||
      masked.node(difference).type != DataType::f32)
    return false;
  const Node& row = masked.node(argument(masked, difference, 1));
  if (!is_row_input(row)) return false;
  found.first = row.input;
  const int score = behind_masks(fusion, masked, argument(masked, difference, 0), masks);
  const Bounds known = common(masks, bounds);
  if (known.lower.size() < masks.lower.size() || known.upper.size() < masks.upper.size()) return false;
  const auto scale = factor_of(fusion, masked, score, 0);
  if (!scale) return false;
  found.scale = *scale;
  return true;
}

// Whether a number that is rounded and one that was multiplied first are the same but for the factor.
bool keeps_digits(const Factor& factor) {
  int exponent = 0;
  return factor.is_known() && std::frexp(std::fabs(factor.constant), &exponent) == 0.5;
}

// The node without a number that it is multiplied by.
int behind_factor(const Fusion& fusion, const Expr& expr, int at, Factor& factor) {
  if (!is_pointwise(expr.node(at), PointwiseMode::mul)) return at;
  for (const size_t i : {size_t{0}, size_t{1}}) {
    const auto found = factor_at(fusion, expr, argument(expr, at, i));
    const int other = argument(expr, at, 1 - i);
    // The products take a scalar as it is.
    if (!found || std::isfinite(found->least) || expr.node(other).type != DataType::f32) continue;
    if (fusion.precision == Precision::strict && !keeps_digits(*found)) continue;
    factor = *found;
    return other;
  }
  return at;
}

// The node without its slope, and without a constant beside that.
int behind_factors(const Fusion& fusion, const Expr& expr, int at, Plain& found) {
  at = behind_factor(fusion, expr, at, found.slope);
  Factor other;
  const int inner = behind_factor(fusion, expr, at, other);
  if (inner == at || (!other.is_known() && !found.slope.is_known())) return at;
  if (!other.is_known()) std::swap(other, found.slope);
  found.outer = other.constant;
  return inner;
}

// probability * (product - row) * number
bool match_gradient(const Fusion& fusion, const Expr& expr, int at, const Bounds& bounds, Plain& found) {
  bool ignored = false;
  at = behind_factors(fusion, expr, behind_roundings(fusion, expr, at, bounds, ignored), found);
  if (!is_pointwise(expr.node(at), PointwiseMode::mul)) return false;
  for (const size_t i : {size_t{0}, size_t{1}}) {
    const int difference = argument(expr, at, i);
    if (!is_pointwise(expr.node(difference), PointwiseMode::sub) ||
        expr.node(difference).type != DataType::f32)
      continue;
    found.keep = -1;
    found.weight = 1;
    const auto kept = behind_drop(fusion, expr, argument(expr, difference, 0), found);
    if (!kept) continue;
    const Node &product = expr.node(*kept), &row = expr.node(argument(expr, difference, 1));
    if (product.kind != Node::Kind::input || product.input != 1 || product.type != DataType::f32 ||
        !is_row_input(row))
      continue;
    found.second = row.input;
    found.rounds = false;
    if (match_probability(fusion, expr, argument(expr, at, 1 - i), bounds, found, found.rounds)) return true;
  }
  return false;
}

std::optional<Plain> match_plain(const Fusion& fusion, const Expr& expr, const GradientRoles& roles,
                                 const Bounds& bounds) {
  Plain found;
  if (roles.gradients < 0 ||
      !match_gradient(fusion, expr, expr.yields[static_cast<size_t>(roles.gradients)], bounds, found))
    return std::nullopt;
  // Kernels round what they drop, not the probabilities in front of that.
  if (found.keep >= 0 && (found.rounds || !kept_part(fusion, expr, found.keep))) return std::nullopt;
  found.kept = found.outer * found.weight;
  if (found.keep < 0 ? found.outer != 1 : !(found.kept > 0)) return std::nullopt;
  if (roles.probabilities < 0) return found;
  Plain other;
  bool rounds = false;
  const int yield = expr.yields[static_cast<size_t>(roles.probabilities)];
  const auto kept = behind_drop(fusion, expr, behind_roundings(fusion, expr, yield, bounds, rounds), other);
  found.kept = other.weight;
  if (!kept || !match_probability(fusion, expr, *kept, bounds, other, rounds) || other.keep != found.keep ||
      !found.balances() || other.first != found.first || other.scale != found.scale)
    return std::nullopt;
  return found;
}

std::optional<Refusal> refuse_site(const Fusion& fusion, const Site& site) {
  if (site.expr.has_reduction())
    return refuse_attention(fusion, "one-pass", "", "no reduction", "a reduction of scores");
  for (const Node& node : site.expr.nodes) {
    if (node.kind == Node::Kind::input && !is_in_float(node.type))
      return refuse_attention(fusion, "fp32-softmax", "", "products in fp32 or 16 bits",
                              std::string(to_string(node.type)));
    if (node.access.is_indexed())
      return refuse_attention(fusion, "loads-in-place", "", "operands that are read where they lie",
                              "elements taken through an index");
  }
  return std::nullopt;
}

// The site's stores, if all are made of its gradients of scores alone.
std::variant<std::optional<Expr>, Refusal> take_stored(const Fusion& fusion, const Expr& site,
                                                       const GradientRoles& roles) {
  if (site.stores.empty()) return std::nullopt;
  const auto refuse = [&](const char* actual) {
    return refuse_attention(fusion, "scores-stay", fusion.name_of(site.stores.front().access.operand),
                            "results made of gradients of scores alone, of whole bytes", actual);
  };
  if (roles.gradients < 0) return refuse("no gradients of scores");
  Expr stored = site;
  stored.yields.clear();
  Node& gradients = stored.node(site.yields[static_cast<size_t>(roles.gradients)]);
  gradients = input_node(0, gradients);
  stored = without_dead_nodes(stored);
  if (std::ranges::count(stored.nodes, Node::Kind::input, &Node::kind) != 1) return refuse("other scores");
  if (auto refusal = refuse_computed_places(fusion, stored)) return std::move(*refusal);
  if (std::ranges::any_of(stored.stores, [](const Store& store) { return is_packed(store.type); }))
    return refuse("packed elements");
  return stored;
}

// --- What is hidden ---

// Which of a site's values are settled where a mask hides queries or keys: the mask is select `select`, which
// leaves -inf there, or any select that asks `condition`.
struct Hidden {
  const Fusion& fusion;
  const Expr& expr;
  int select = -1, condition = -1;

  // Whether `at` is a select that leaves `number`, and hides.
  bool leaves(int at, double number) const {
    return is_pointwise(expr.node(at), PointwiseMode::binary_select) &&
           constant(fusion, expr, argument(expr, at, 1)) == number;
  }
  bool is_asked(int at) const { return condition >= 0 && asks(expr, expr.node(at).args[2], condition); }

  // Whether the score is -inf there: less a value of the row, or masked again.
  bool score(int at) const {
    if (at == select) return true;
    const Node& node = expr.node(at);
    const bool masks = leaves(at, -std::numeric_limits<double>::infinity());
    if (masks && is_asked(at)) return true;
    const bool passes =
        masks || is_pointwise(node, PointwiseMode::identity) || is_pointwise(node, PointwiseMode::sub);
    return passes && node.type == DataType::f32 && score(node.args[0]);
  }
  // Whether the value is 0 there.
  bool value(int at) const {
    const Node& node = expr.node(at);
    if (is_pointwise(node, PointwiseMode::exp)) return score(argument(expr, at, 0));
    if (is_pointwise(node, PointwiseMode::identity)) return value(node.args[0]);
    if (leaves(at, 0)) return is_asked(at) || value(node.args[0]);
    return is_pointwise(node, PointwiseMode::mul) && (value(node.args[0]) || value(node.args[1]));
  }
  // Whether probabilities and gradients are 0 there.
  bool both(const GradientRoles& roles) const {
    return std::ranges::all_of(std::array{roles.probabilities, roles.gradients}, [&](int yield) {
      return yield < 0 || value(expr.yields[static_cast<size_t>(yield)]);
    });
  }
};

void replace_node(Expr& expr, int at, int by) {
  for (Node& node : expr.nodes) std::ranges::replace(node.args, at, by);
}

// --- Lengths ---

// The site without lengths of entries along the first axis, behind which queries and keys are hidden.
std::optional<Expr> without_lengths(const Fusion& fusion, Expr& expr, const GradientRoles& roles) {
  const int rank = expr.domain.rank();
  const auto hides = [&](int at) { return Hidden{fusion, expr, -1, at}.both(roles); };
  for (int of_keys = 0; of_keys < std::ssize(expr.nodes); ++of_keys) {
    const auto keys = length_along(expr, of_keys, rank - 1);
    if (!keys || !hides(of_keys)) continue;
    for (int of_queries = 0; of_queries < std::ssize(expr.nodes); ++of_queries) {
      const auto queries = length_along(expr, of_queries, rank - 2);
      if (!queries || !hides(of_queries)) continue;
      Expr lengths = lengths_at(expr, *keys, *queries);
      if (!are_of_entries(lengths)) continue;
      assume(expr, of_keys);
      assume(expr, of_queries);
      return lengths;
    }
  }
  return std::nullopt;
}

// --- Numbers that are compared ---

// The first comparison of numbers outside of which the site is zero; the site does without it, but where
// nothing else can be left of a condition.
std::optional<ValueMask> without_value_mask(const Fusion& fusion, Expr& expr, const GradientRoles& roles) {
  for (int at = 0; at < std::ssize(expr.nodes); ++at) {
    auto mask = compared_numbers(fusion, expr, at);
    if (!mask || !Hidden{fusion, expr, -1, at}.both(roles)) continue;
    assume(expr, at);
    return mask;
  }
  for (int at = 0; at < std::ssize(expr.nodes); ++at) {
    const bool hides = is_pointwise(expr.node(at), PointwiseMode::binary_select);
    if (!hides || !Hidden{fusion, expr, at}.both(roles)) continue;
    std::optional<ValueMask> mask;
    Expr taken = expr;
    const auto score = take_value_mask(fusion, taken, at, mask);
    if (!score) continue;
    expr = std::move(taken);
    if (*score != at) replace_node(expr, at, *score);
    return mask;
  }
  for (int at = 0; at < std::ssize(expr.nodes); ++at)
    if (auto mask = value_mask_of(fusion, expr, at); mask && Hidden{fusion, expr, at}.both(roles))
      return mask;
  return std::nullopt;
}

}  // namespace

std::variant<Gradient, Refusal> take_apart(const Fusion& fusion, const Site& given,
                                           const GradientRoles& roles, bool takes_lengths) {
  if (auto refusal = refuse_site(fusion, given)) return std::move(*refusal);
  auto stored = take_stored(fusion, given.expr, roles);
  if (auto* refusal = std::get_if<Refusal>(&stored)) return std::move(*refusal);
  Site site = given;
  site.expr.stores.clear();
  auto lengths = takes_lengths ? without_lengths(fusion, site.expr, roles) : std::nullopt;
  auto values = without_value_mask(fusion, site.expr, roles);
  const std::vector<int> rows = row_nodes(site.expr);
  if (rows.size() > kMostRowValues)
    return refuse_attention(fusion, "values-of-rows", "",
                            fmt::format("at most {} values of a row", kMostRowValues),
                            fmt::format("{}", rows.size()));
  Gradient gradient;
  gradient.stored = std::move(std::get<std::optional<Expr>>(stored));
  gradient.lengths = std::move(lengths);
  gradient.values = std::move(values);
  for (const int at : rows) gradient.rows.push_back(row_part(site.expr, at));
  const Expr expr = with_inputs(site.expr, roles, rows);
  std::optional<Bounds> bounds;
  for (const int yield : {roles.probabilities, roles.gradients}) {
    if (yield < 0) continue;
    const Bounds more = zero_outside(fusion, expr, expr.yields[static_cast<size_t>(yield)]);
    bounds = bounds ? common(*bounds, more) : more;
  }
  if (bounds && fit(*bounds)) gradient.bounds = std::move(*bounds);
  const auto plain = match_plain(fusion, expr, roles, gradient.bounds);
  // Gradients that others read have their slope.
  if (plain && !(gradient.stored && plain->slope.node >= 0)) {
    gradient.scale = plain->scale.constant;
    if (!plain->scale.is_known()) gradient.given_scale = plain->scale;
    if (plain->slope.node >= 0) gradient.slope = expr.node(plain->slope.node);
    gradient.slopes_late = plain->slope.node >= 0 && !keeps_digits(plain->slope);
    gradient.rounds = plain->rounds;
    if (plain->keep >= 0) gradient.keep = kept_part(fusion, expr, plain->keep);
    gradient.kept_weight = plain->kept;
    gradient.product_weight = plain->weight;
    gradient.rows = {row_part(site.expr, rows[static_cast<size_t>(plain->first) - 2]),
                     row_part(site.expr, rows[static_cast<size_t>(plain->second) - 2])};
    // The kernels do without the site, but for its shape.
    gradient.site.domain = expr.domain;
    gradient.site.nodes = {input_node(0, {})};
    gradient.site.yields = {0};
    return gradient;
  }
  gradient.site = with_all_inputs(expr, 2 + rows.size());
  return gradient;
}

}  // namespace fusor::attention
