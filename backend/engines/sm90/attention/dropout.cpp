// Owns the reading of dropout in the sites between attention's products.
#include "backend/engines/sm90/attention/dropout.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "backend/engines/sm90/attention/scores.h"

namespace fusor::attention {

namespace {

int past_identities(const Expr& expr, int at) {
  while (is_pointwise(expr.node(at), PointwiseMode::identity)) at = expr.node(at).args[0];
  return at;
}

// The steps of each axis in node `at`, a sum of int32 coordinates times constants; nothing where it is
// another value, or is more than int32 holds.
bool add_steps(const Fusion& fusion, const Expr& expr, int at, int64_t times, Strides& steps) {
  const Node& node = expr.node(at);
  if (node.type != DataType::i32) return false;
  if (node.kind == Node::Kind::index) {
    const bool counts = node.access.offset == 0 && node.access.strides[node.axis] == 1;
    if (counts) steps[node.axis] += times;
    return counts;
  }
  if (is_pointwise(node, PointwiseMode::add))
    return add_steps(fusion, expr, node.args[0], times, steps) &&
           add_steps(fusion, expr, node.args[1], times, steps);
  if (!is_pointwise(node, PointwiseMode::mul) || times != 1) return false;
  const auto step = constant(fusion, expr, node.args[1]);
  return step && *step >= 1 && *step <= INT32_MAX &&
         add_steps(fusion, expr, node.args[0], static_cast<int64_t>(*step), steps);
}

// The Expr with such a sum as the index of the random word at `at`, where there is one.
Expr with_steps(const Fusion& fusion, const Expr& expr, int at) {
  Strides steps = Strides::filled(expr.domain.rank(), 0);
  const int index = expr.node(at).args[2];
  if (!add_steps(fusion, expr, index, 1, steps)) return expr;
  int64_t largest = 0;
  for (int axis = 0; axis < expr.domain.rank(); ++axis) largest += (expr.domain[axis] - 1) * steps[axis];
  if (largest > INT32_MAX) return expr;
  Expr stepped = expr;
  stepped.nodes.resize(static_cast<size_t>(at));
  int sum = -1;
  for (int axis = 0; axis < expr.domain.rank(); ++axis) {
    if (steps[axis] == 0) continue;
    Node coordinate = expr.node(index);
    coordinate = {.kind = Node::Kind::index, .type = DataType::i32, .axis = axis, .op = expr.node(index).op};
    coordinate.access.strides = Strides::filled(expr.domain.rank(), 0);
    coordinate.access.strides[axis] = steps[axis];
    stepped.nodes.push_back(coordinate);
    const int term = static_cast<int>(stepped.nodes.size()) - 1;
    if (sum >= 0) {
      Node add{.kind = Node::Kind::pointwise, .type = DataType::i32, .op = expr.node(index).op};
      add.pointwise = {.mode = PointwiseMode::add, .compute = DataType::i32};
      add.args = {sum, term, -1};
      stepped.nodes.push_back(add);
    }
    sum = static_cast<int>(stepped.nodes.size()) - 1;
  }
  if (sum < 0) return expr;
  // Nodes behind it move behind the sum.
  const int moved = static_cast<int>(stepped.nodes.size()) - at;
  for (int i = at; i < static_cast<int>(expr.nodes.size()); ++i) {
    Node node = expr.node(i);
    for (int& arg : node.args)
      if (arg >= at) arg += moved;
    if (i == at) node.args[2] = sum;
    stepped.nodes.push_back(node);
  }
  for (int& yield : stepped.yields)
    if (yield >= at) yield += moved;
  return without_dead_nodes(stepped);
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
      const bool is_scalar = expr.node(other).kind == Node::Kind::scalar;
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
  part = without_dead_nodes(part);
  const int rank = part.domain.rank();
  const bool is_apart = std::ranges::all_of(part.nodes, [&](const Node& node) {
    if (node.kind == Node::Kind::input || node.kind == Node::Kind::reduce) return false;
    return node.kind != Node::Kind::load ||
           (!node.access.is_indexed() && node.access.strides[rank - 1] == 0 &&
            node.access.strides[rank - 2] == 0);
  });
  if (!is_apart) return std::nullopt;
  const auto word = std::ranges::find_if(
      part.nodes, [](const Node& node) { return is_pointwise(node, PointwiseMode::philox); });
  if (word != part.nodes.end()) part = with_steps(fusion, part, static_cast<int>(word - part.nodes.begin()));
  part.nodes.push_back(input_node(0, {}));
  return part;
}

}  // namespace fusor::attention
