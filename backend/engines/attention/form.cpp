// Owns the rules of attention's form, and what all its kernels are told of masks and batches.
#include "backend/engines/attention/form.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "core/ceil_div.h"

namespace fusor::attention {

namespace {

Refusal refuse_products(const Fusion& fusion, std::string actual) {
  return {"two-products",
          fusion.op_names.empty() ? "" : fusion.op_names.front(),
          "",
          "two matmuls, of which the second takes what becomes of the first",
          std::move(actual),
          "",
          -1};
}

std::optional<Refusal> refuse_anchors(const Fusion& fusion) {
  for (const Anchor& anchor : fusion.anchors) {
    if (!std::holds_alternative<Matmul>(anchor.attributes)) return refuse_products(fusion, "a convolution");
    const DataType compute = std::get<Matmul>(anchor.attributes).compute;
    if (compute != DataType::f32)
      return refuse_attention(fusion, "fp32-sums", "", "compute type fp32", std::string(to_string(compute)));
    for (const Port& port : anchor.operands)
      if (!port.axes.empty() || port.yield != 0)
        return refuse_products(fusion, "operands whose axes change places");
  }
  return std::nullopt;
}

std::optional<Refusal> refuse_sites(const Fusion& fusion) {
  if (fusion.sites.size() != 5) return refuse_products(fusion, fmt::format("{} sites", fusion.sites.size()));
  const Site& between = fusion.sites[static_cast<size_t>(fusion.anchors[1].operands[0].site)];
  const Site& result = fusion.sites.back();
  const auto takes = [](const Site& site, int anchor) {
    return site.inputs.size() == 1 && site.inputs[0].from == Input::From::anchor &&
           site.inputs[0].at == anchor && site.inputs[0].whole.empty();
  };
  if (!takes(between, 0) || !takes(result, 1)) return refuse_products(fusion, "other connections");
  const Expr& y = result_site(fusion);
  for (const Node& node : y.nodes) {
    if (node.kind != Node::Kind::reduce) continue;
    Refusal refusal = refuse_attention(fusion, "elementwise-result", "", "results without reductions",
                                       fmt::format("a reduction, '{}'", fusion.op_name(node.op)));
    refusal.op = node.op;
    return refusal;
  }
  if (y.domain.rank() != between.expr.domain.rank())
    return refuse_attention(fusion, "result-domain", "", "a result of the products' own rank",
                            fmt::format("{}", y.domain.rank()));
  return std::nullopt;
}

// One at least: an array has a size.
void append_bounds(Parameters& p, const char* name, std::vector<KeyBound> bounds) {
  if (bounds.empty()) bounds.emplace_back();
  p.array(name, "KeyBound", static_cast<int>(bounds.size()), [&](int i) {
    p.wide("slope", bounds[static_cast<size_t>(i)].slope);
    p.wide("offset", bounds[static_cast<size_t>(i)].offset);
  });
}

}  // namespace

Refusal refuse_attention(const Fusion& fusion, const char* rule, std::string tensor, std::string expected,
                         std::string actual, const char* remedy) {
  return {rule,
          fusion.op_name(fusion.anchors[0].op),
          std::move(tensor),
          std::move(expected),
          std::move(actual),
          remedy,
          fusion.anchors[1].op};
}

std::optional<Refusal> refuse_computed_places(const Fusion& fusion, const Expr& y) {
  for (const Store& store : y.stores) {
    if (store.index < 0) continue;
    Refusal refusal = refuse_attention(fusion, "ragged-result", fusion.name_of(store.access.operand),
                                       "one result, of whole rows", "elements at other places");
    refusal.op = store.op;
    return refusal;
  }
  return std::nullopt;
}

std::optional<Refusal> refuse_attention_form(const Fusion& fusion) {
  if (form_of(fusion) != Form::chain) return refuse_products(fusion, std::string(to_string(form_of(fusion))));
  if (fusion.anchors.size() != 2)
    return refuse_products(fusion, fmt::format("{} contractions", fusion.anchors.size()));
  if (auto refusal = refuse_anchors(fusion)) return refusal;
  if (auto refusal = refuse_sites(fusion)) return refusal;
  if (fusion.precision == Precision::strict && operand_site(fusion, 1, 0).has_reduction())
    return refuse_attention(fusion, "late-division", "",
                            "a graph that lets a softmax be divided behind its product", "precision 'strict'",
                            "precision 'exact'");
  return std::nullopt;
}

int64_t live_blocks(const Bounds& bounds, int64_t queries, int64_t keys, int64_t tile_q, int64_t tile_k) {
  int64_t blocks = 0;
  for (int64_t row = 0; row < queries; row += tile_q) {
    const int64_t last = std::min(row + tile_q, queries) - 1;
    int64_t first = 0, end = keys;
    for (const KeyBound& bound : bounds.lower)
      first = std::max(first, std::min(bound.slope * row, bound.slope * last) + bound.offset);
    for (const KeyBound& bound : bounds.upper)
      end = std::min(end, std::max(bound.slope * row, bound.slope * last) + bound.offset + 1);
    if (end > first) blocks += ceil_div(end, tile_k) - first / tile_k;
  }
  return blocks;
}

namespace {

// Bounds outside of which the site's select at `at` leaves -inf, or zeros in place of an exponential.
void add_hidden(const Fusion& fusion, const Expr& expr, int at, Bounds& bounds) {
  if (!is_pointwise(expr.node(at), PointwiseMode::binary_select)) return;
  for (const bool truth : {true, false}) {
    const auto otherwise = constant(fusion, expr, argument(expr, at, truth ? 1 : 0));
    const Node& kept = expr.node(argument(expr, at, truth ? 0 : 1));
    const bool hides = otherwise == -std::numeric_limits<double>::infinity() ||
                       (otherwise == 0.0 && is_pointwise(kept, PointwiseMode::exp));
    if (hides) add_bounds_of(fusion, expr, argument(expr, at, 2), truth, bounds);
  }
}

}  // namespace

double seen_share(const Fusion& fusion) {
  if (form_of(fusion) != Form::chain) return 1;
  double share = 1;
  for (const Site& site : fusion.sites) {
    const Expr& expr = site.expr;
    const int rank = expr.domain.rank();
    if (rank < 2) continue;
    Bounds bounds;
    for (int at = 0; at < std::ssize(expr.nodes); ++at) add_hidden(fusion, expr, at, bounds);
    if (bounds.lower.empty() && bounds.upper.empty()) continue;
    const int64_t queries = expr.domain[rank - 2], keys = expr.domain[rank - 1];
    share = std::min(share, static_cast<double>(live_blocks(bounds, queries, keys, 1, 1)) /
                                (static_cast<double>(queries) * static_cast<double>(keys)));
  }
  return share;
}

Expr multiplied(const Expr& y, const Expr& weights) {
  Expr product = y;
  product.nodes = weights.nodes;
  std::vector<int> moved;  // where the nodes of y are
  const auto at = [&](int node) { return node < 0 ? node : moved[static_cast<size_t>(node)]; };
  for (Node node : y.nodes) {
    std::ranges::transform(node.args, node.args.begin(), at);
    product.nodes.push_back(node);
    if (node.kind == Node::Kind::input)
      for (const int weight : weights.yields) {
        Node times;
        times.kind = Node::Kind::pointwise;
        times.pointwise = {.mode = PointwiseMode::mul, .compute = DataType::f32};
        times.args = {static_cast<int>(std::ssize(product.nodes)) - 1, weight, -1};
        times.op = product.node(weight).op;
        product.nodes.push_back(times);
      }
    moved.push_back(static_cast<int>(std::ssize(product.nodes)) - 1);
  }
  for (Store& store : product.stores) {
    store.node = at(store.node);
    store.index = at(store.index);
  }
  std::ranges::transform(product.yields, product.yields.begin(), at);
  return product;
}

Expr without_last_rounding(Expr y) {
  for (int i = 0; i < std::ssize(y.nodes); ++i) {
    const Node& node = y.node(i);
    if (node.kind != Node::Kind::pointwise || node.pointwise.mode != PointwiseMode::identity) continue;
    const int from = node.args[0];
    int readers = 0;
    for (const Node& reader : y.nodes) readers += static_cast<int>(std::ranges::count(reader.args, from));
    for (const Store& store : y.stores) readers += store.node == from ? 1 : 0;
    const Node& rounded = y.node(from);
    const bool is_fp32 = rounded.type == DataType::f32 &&
                         (rounded.kind == Node::Kind::input || (rounded.kind == Node::Kind::pointwise &&
                                                                rounded.pointwise.compute == DataType::f32));
    if (!is_fp32 || readers != 1) continue;
    y.node(from).type = node.type;
    for (Node& reader : y.nodes) std::ranges::replace(reader.args, i, from);
    for (Store& store : y.stores)
      if (store.node == i) store.node = from;
  }
  return without_dead_nodes(y);
}

void append_visible(Parameters& p, const Bounds& bounds) {
  p.group("visible", "Visible<Config::lower, Config::upper>", [&] {
    append_bounds(p, "lower", bounds.lower);
    append_bounds(p, "upper", bounds.upper);
  });
}

void append_divisors(Parameters& p, const char* name, std::vector<int64_t> divisors) {
  divisors.push_back(1);
  p.divisors(name, divisors);
}

}  // namespace fusor::attention
