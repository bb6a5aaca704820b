// Owns how the facts of a rows site are found.
#include "codegen/text/rows/facts.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "codegen/text/site_fields.h"

namespace fusor {

namespace {

struct Joined {
  RowJoin join;
  int argument;
};

bool is_plain(const Node& node) {
  return node.type == DataType::f32 &&
         !(node.kind == Node::Kind::pointwise && node.pointwise.compute != node.type) &&
         !(is_reduce(node) && node.reduction.compute != node.type);
}

// Whether node `at` is x less the total of x in this mode over the same axes: x, or -1.
int distance_of(const Expr& expr, int at, ReductionMode mode, uint32_t over) {
  const Node& sub = expr.node(at);
  if (sub.kind != Node::Kind::pointwise || sub.pointwise.mode != PointwiseMode::sub || !is_plain(sub))
    return -1;
  const Node& total = expr.node(sub.args[1]);
  const bool fits = is_reduce(total) && is_plain(total) && total.over == over &&
                    total.reduction.mode == mode && total.args[0] == sub.args[0];
  return fits && carrier(expr.node(sub.args[0]).type) == DataType::f32 ? sub.args[0] : -1;
}

// The parts of a total that needs another one of the same elements.
Joined join_of(const Expr& expr, const Node& node) {
  const Joined none{RowJoin::none, node.args[0]};
  if (!is_reduce(node) || !is_plain(node)) return none;
  const Node& value = expr.node(node.args[0]);
  const ReductionMode mode = node.reduction.mode;
  const bool adds = mode == ReductionMode::add || mode == ReductionMode::avg;
  if (!adds || value.kind != Node::Kind::pointwise || !is_plain(value)) return none;
  if (value.pointwise.mode == PointwiseMode::exp && mode == ReductionMode::add) {
    const int x = distance_of(expr, value.args[0], ReductionMode::max, node.over);
    if (x >= 0) return {RowJoin::exp_sum, x};
  }
  if (value.pointwise.mode == PointwiseMode::mul && value.args[0] == value.args[1]) {
    const int x = distance_of(expr, value.args[0], ReductionMode::avg, node.over);
    if (x >= 0) return {RowJoin::deviation, x};
  }
  return none;
}

CountedKind counted_kind(const Node& node, const std::vector<CountedKind>& kinds) {
  const auto are = [&](size_t count, CountedKind wanted) {
    return std::ranges::all_of(std::span(node.args).first(count),
                               [&](int arg) { return kinds[static_cast<size_t>(arg)] == wanted; });
  };
  const bool is_whole = node.type == DataType::i32 || node.type == DataType::i64;
  if (node.kind == Node::Kind::index || node.kind == Node::Kind::scalar)
    return is_whole ? CountedKind::number : CountedKind::none;
  if (node.kind != Node::Kind::pointwise || is_real(node.pointwise.compute)) return CountedKind::none;
  switch (node.pointwise.mode) {
    case PointwiseMode::identity:
      return is_whole && are(1, CountedKind::number) ? CountedKind::number : CountedKind::none;
    case PointwiseMode::add:
    case PointwiseMode::sub:
    case PointwiseMode::mul:
    case PointwiseMode::div:
    case PointwiseMode::min:
    case PointwiseMode::max:
      return is_whole && are(2, CountedKind::number) ? CountedKind::number : CountedKind::none;
    case PointwiseMode::cmp_ge:
    case PointwiseMode::cmp_lt:
      return are(2, CountedKind::number) ? CountedKind::truth : CountedKind::none;
    case PointwiseMode::logical_and:
      return are(2, CountedKind::truth) ? CountedKind::truth : CountedKind::none;
    case PointwiseMode::binary_select:
      return is_whole && are(2, CountedKind::number) &&
                     kinds[static_cast<size_t>(node.args[2])] == CountedKind::truth
                 ? CountedKind::number
                 : CountedKind::none;
    default:
      return CountedKind::none;
  }
}

// The comparisons that a truth is the conjunction of.
void add_comparisons(const Expr& expr, int truth, std::vector<int>& to) {
  const Node& node = expr.node(truth);
  if (node.kind == Node::Kind::pointwise && node.pointwise.mode == PointwiseMode::logical_and) {
    add_comparisons(expr, node.args[0], to);
    add_comparisons(expr, node.args[1], to);
  } else if (std::ranges::find(to, truth) == to.end()) {
    to.push_back(truth);
  }
}

bool is_select(const Node& node) {
  return node.kind == Node::Kind::pointwise && node.pointwise.mode == PointwiseMode::binary_select;
}

}  // namespace

std::vector<int> comparisons_of(const Expr& expr, int truth) {
  std::vector<int> all;
  add_comparisons(expr, truth, all);
  std::ranges::sort(all);
  return all;
}

int place_of_choice(const Expr& expr, int index) {
  const Node& node = expr.node(index);
  if (!is_select(node)) return -1;
  const Node& none = expr.node(node.args[1]);
  return none.kind == Node::Kind::index && is_number(none) && none.access.offset < 0 ? node.args[0] : -1;
}

bool is_choice_of_places(const Expr& expr, int at) {
  const Node& node = expr.node(at);
  if (!is_select(node) || !is_real(node.type) || node.pointwise.compute != carrier(node.type)) return false;
  const Node& load = expr.node(node.args[0]);
  if (load.kind != Node::Kind::load || !load.access.is_indexed() || load.type != node.type ||
      expr.node(node.args[1]).kind != Node::Kind::scalar)
    return false;
  std::vector<int> wanted;
  for (const int index : load.args)
    if (index >= 0 && place_of_choice(expr, index) >= 0)
      add_comparisons(expr, expr.node(index).args[2], wanted);
  std::ranges::sort(wanted);
  return !wanted.empty() && wanted == comparisons_of(expr, node.args[2]);
}

std::vector<CountedKind> counted_kinds(const Expr& expr) {
  std::vector<CountedKind> kinds;
  for (const Node& node : expr.nodes) kinds.push_back(counted_kind(node, kinds));
  return kinds;
}

// The sum and the average of the same values are one total: the average's.
void RowFacts::share_sum(const Expr& expr, int at) {
  const Node& own = expr.node(at);
  for (int i = 0; i < at; ++i) {
    const Node& other = expr.node(i);
    if (!is_reduce(other) || other.args[0] != own.args[0] || other.over != own.over ||
        other.reduction.compute != own.reduction.compute || joins[static_cast<size_t>(i)] != RowJoin::none)
      continue;
    const ReductionMode before = other.reduction.mode, now = own.reduction.mode;
    if (before == ReductionMode::avg && now == ReductionMode::add) giver[static_cast<size_t>(at)] = i;
    if (before == ReductionMode::add && now == ReductionMode::avg) giver[static_cast<size_t>(i)] = at;
  }
}

int RowFacts::level_of(const Node& node, int argument) const {
  if (is_reduce(node)) return levels[static_cast<size_t>(argument)] + 1;
  int level = 0;
  for (const int arg : node.args)
    if (arg >= 0) level = std::max(level, levels[static_cast<size_t>(arg)]);
  return level;
}

RowFacts::RowFacts(const KernelSite& site) : kept_(site.kept) {
  const Expr& expr = site.expr;
  const std::vector<uint32_t> varies = varying_axes(expr);
  for (int axis = site.kept; axis < expr.domain.rank(); ++axis)
    if (expr.domain[axis] != 1) row_axes |= 1u << axis;
  spread = site.vector_axis < site.kept;
  for (size_t i = 0; i < expr.nodes.size(); ++i) {
    const Node& node = expr.nodes[i];
    const auto [join, argument] = site.joins ? join_of(expr, node) : Joined{RowJoin::none, node.args[0]};
    joins.push_back(join);
    summed.push_back(argument);
    giver.push_back(static_cast<int>(i));
    // The argument of the exponential, the second operand of the difference there: the maximum.
    if (join == RowJoin::exp_sum) {
      const Node& distance = expr.node(expr.node(node.args[0]).args[0]);
      giver[static_cast<size_t>(distance.args[1])] = static_cast<int>(i);
    }
    levels.push_back(level_of(node, argument));
    is_column.push_back(is_reduce(node) && (reduced_axes(expr, node) & row_axes) == 0);
    if (join == RowJoin::none && is_reduce(node) && !is_column.back()) share_sum(expr, static_cast<int>(i));
    const bool is_element = is_column.back() || (varies[i] & row_axes) != 0;
    places.push_back(node.kind == Node::Kind::scalar ? RowPlace::uniform
                     : is_element                    ? RowPlace::element
                                                     : RowPlace::row);
    if (is_reduce(node) && !is_column.back()) phase_count = std::max(phase_count, levels[i]);
  }
}

bool RowFacts::is_fixed(const Expr& expr, int node) const {
  const Access& access = expr.node(node).access;
  if (access.is_indexed()) return false;
  for (int axis = 0; axis < kept_; ++axis)
    if (access.strides[axis] != 0) return false;
  return true;
}

bool RowFacts::is_element_store(const Expr& expr, const Store& store) const {
  const size_t node = static_cast<size_t>(store.node);
  if (is_reduce(expr.nodes[node]) && is_column[node]) return false;
  bool walks_row = places[node] == RowPlace::element;
  for (int axis = kept_; axis < expr.domain.rank(); ++axis)
    walks_row = walks_row || store.access.strides[axis] != 0;
  return walks_row;
}

}  // namespace fusor
