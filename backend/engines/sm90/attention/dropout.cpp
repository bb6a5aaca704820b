// Owns the reading of dropout in the sites between attention's products.
#include "backend/engines/sm90/attention/dropout.h"

#include <algorithm>
#include <array>

#include "backend/engines/counts.h"
#include "backend/engines/sm90/attention/scores.h"
#include "codegen/text/word_facts.h"

namespace fusor::attention {

namespace {

int past_identities(const Expr& expr, int at) {
  while (is_pointwise(expr.node(at), PointwiseMode::identity)) at = expr.node(at).args[0];
  return at;
}

bool is_one_element(const Node& node) {
  return node.kind == Node::Kind::load && node.type != DataType::b8 && !node.access.is_indexed() &&
         std::ranges::all_of(node.access.strides, [](int64_t stride) { return stride == 0; });
}

// A scalar, the larger of two, or one element in memory.
bool is_number(const Expr& expr, int at) {
  const auto is_scalar = [&](int node) { return expr.node(node).kind == Node::Kind::scalar; };
  const Node& node = expr.node(at);
  return is_scalar(at) || is_one_element(node) ||
         (is_pointwise(node, PointwiseMode::max) && is_scalar(past_identities(expr, node.args[0])) &&
          is_scalar(past_identities(expr, node.args[1])));
}

}  // namespace

Dropped behind_dropout(const Expr& expr, int at) {
  Dropped found;
  for (at = past_identities(expr, at);;) {
    const Node& node = expr.node(at);
    int inner = -1;
    if (is_pointwise(node, PointwiseMode::binary_select) && found.keep < 0) {
      found.keep = past_identities(expr, node.args[2]);
      found.otherwise = past_identities(expr, node.args[1]);
      inner = node.args[0];
    }
    for (const size_t i : {size_t{1}, size_t{0}}) {
      if (inner >= 0 || !is_pointwise(node, PointwiseMode::mul)) continue;
      const int other = past_identities(expr, node.args[i]);
      const bool is_scalar = is_number(expr, other);
      const bool is_truth = expr.node(other).type == DataType::b8 && found.keep < 0;
      if (!is_scalar && !is_truth) continue;
      inner = node.args[1 - i];
      if (is_scalar)
        found.weights.push_back(other);
      else
        found.keep = other;
    }
    if (inner < 0) break;
    at = past_identities(expr, inner);
  }
  found.value = at;
  return found;
}

std::optional<Expr> kept_part(const Fusion& fusion, const Expr& expr, int keep) {
  Expr part = expr;
  part.stores.clear();
  part.yields = {keep};
  part = simplified_counts(part, fusion, without_dead_nodes);
  const int rank = part.domain.rank();
  const bool is_apart = std::ranges::all_of(part.nodes, [&](const Node& node) {
    if (node.kind == Node::Kind::input || node.kind == Node::Kind::reduce) return false;
    return node.kind != Node::Kind::load ||
           (!node.access.is_indexed() && node.access.strides[rank - 1] == 0 &&
            node.access.strides[rank - 2] == 0);
  });
  if (!is_apart) return std::nullopt;
  part.nodes.push_back(input_node(0, {}));
  return part;
}

namespace {

KernelSite kept_along(const Expr& keep, int axis) {
  return {.name = "M", .expr = keep, .vector_axis = axis, .aligned = true};
}

}  // namespace

bool shares_words(const Expr& keep) {
  const KernelSite site = kept_along(keep, keep.domain.rank() - 1);
  return std::ranges::any_of(keep.nodes, [&](const Node& node) {
    const auto [step, first] = word_steps(site, node);
    return step == 1 && first == 0;
  });
}

KernelSite kept_site(const Expr& keep, bool columns_are_keys) {
  const int keys = keep.domain.rank() - 1;
  return kept_along(keep, columns_are_keys || shares_words(keep) ? keys : keys - 1);
}

}  // namespace fusor::attention
