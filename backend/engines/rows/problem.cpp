// Owns the reading of an Expr as rows: over which axes its totals are needed again, and the rules it must
// keep.
#include "backend/engines/rows/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "backend/engines/counts.h"
#include "backend/engines/elementwise/vectors.h"
#include "backend/engines/picks.h"
#include "backend/engines/reach.h"
#include "backend/engines/short_forms.h"
#include "codegen/text/expr_emitter.h"
#include "codegen/text/rows/facts.h"
#include "codegen/text/rows/sizes.h"

namespace fusor {

using namespace elementwise;

namespace {

// Totals of a vector of rows that a thread has at most.
constexpr int64_t kMostSpreadBytes = 128;

bool is_total(const Node& node) { return node.kind == Node::Kind::reduce; }

// A total over no axis is the value itself, or its size; of one mode it is neither.
bool drop_empty_totals(Expr& expr) {
  for (Node& node : expr.nodes) {
    if (!is_total(node)) continue;
    node.over = reduced_axes(expr, node);
    if (node.over != 0) continue;
    const ReductionMode mode = node.reduction.mode;
    if (mode == ReductionMode::mul_no_zeros) return false;
    const bool is_size =
        mode == ReductionMode::norm1 || mode == ReductionMode::norm2 || mode == ReductionMode::amax;
    node.kind = Node::Kind::pointwise;
    node.pointwise.mode = is_size ? PointwiseMode::abs : PointwiseMode::identity;
    node.pointwise.compute = node.reduction.compute;
  }
  return true;
}

Expr merged(const Expr& expr) { return merge_axes(without_dead_nodes(expr)); }

std::vector<bool> fed_back(const Expr& expr) {
  std::vector<bool> fed(expr.nodes.size(), false);
  for (const Node& node : expr.nodes)
    for (const int arg : node.args)
      if (arg >= 0 && is_total(expr.node(arg))) fed[static_cast<size_t>(arg)] = true;
  return fed;
}

Refusal refuse(const Fusion& fusion, const Node& node, const char* rule, const char* expected,
               const char* actual) {
  return {rule,   node.op < 0 ? "" : fusion.op_name(node.op), "",     expected,
          actual, "carry it out in a fusion of its own",      node.op};
}

uint32_t real_axes(const Expr& expr) {
  uint32_t axes = 0;
  for (int axis = 0; axis < expr.domain.rank(); ++axis)
    if (expr.domain[axis] != 1) axes |= 1u << axis;
  return axes;
}

// The axes of a row: what totals that are needed again run over; without such, what totals along the vector
// axis do.
std::variant<Refusal, uint32_t> row_axes(const Fusion& fusion, const Expr& expr, int vector_axis) {
  const std::vector<bool> fed = fed_back(expr);
  uint32_t shared = 0;
  for (size_t i = 0; i < expr.nodes.size(); ++i) {
    if (!fed[i]) continue;
    const uint32_t over = expr.nodes[i].over;
    if (shared != 0 && over != shared)
      return refuse(fusion, expr.nodes[i], "one-row", "totals that are needed again, over the same axes",
                    "a total over others");
    shared = over;
  }
  if (shared != 0) return shared;
  for (const Node& node : expr.nodes)
    if (is_total(node) && (shared == 0 || (node.over >> vector_axis & 1) != 0)) shared = node.over;
  return shared;
}

std::optional<Refusal> refuse_totals(const Fusion& fusion, const Expr& expr, uint32_t row, bool spread) {
  const uint32_t others = real_axes(expr) & ~row;
  const std::vector<bool> fed = fed_back(expr);
  for (size_t i = 0; i < expr.nodes.size(); ++i) {
    const Node& node = expr.nodes[i];
    if (!is_total(node) || node.over == row) continue;
    if (fed[i] || node.over != others || others == 0)
      return refuse(fusion, node, "row-or-column", "totals over the axes of a row, or over all others",
                    "a total over some of either");
    if (spread)
      return refuse(fusion, node, "columns-of-adjacent-rows",
                    "totals of columns beside rows of adjacent elements", "rows whose elements lie apart");
  }
  return std::nullopt;
}

Dims order_of(const Expr& expr, uint32_t row, int vector_axis) {
  Dims order;
  const auto add = [&](bool wanted) {
    for (int axis = 0; axis < expr.domain.rank(); ++axis)
      if (axis != vector_axis && ((row >> axis & 1) != 0) == wanted) order.push_back(axis);
    if (((row >> vector_axis & 1) != 0) == wanted) order.push_back(vector_axis);
  };
  add(false);
  add(true);
  return order;
}

int64_t widest_vector(const RowsProblem& problem) {
  const Expr& expr = problem.site.expr;
  const int axis = problem.site.vector_axis;
  // 16 bytes of the narrowest load: results may be narrower.
  int64_t narrowest = 8;
  for (const Node& node : expr.nodes)
    if (node.kind == Node::Kind::load && node.access.strides[axis] == 1)
      narrowest = std::min(narrowest, byte_size(node.type));
  int64_t vector = choose_vector(problem.fusion, expr, axis, kMaxAccessBytes / narrowest);
  if (problem.spread)
    while (vector > 1 &&
           (expr.domain[axis] % vector != 0 || vector * totals_bytes(problem.site) > kMostSpreadBytes))
      vector /= 2;
  return vector;
}

}  // namespace

int64_t RowsProblem::rows() const {
  int64_t count = 1;
  for (int axis = 0; axis < site.kept; ++axis) count *= domain()[axis];
  return count;
}

int64_t RowsProblem::row_elements() const { return element_count(domain()) / rows(); }

bool elements_fit_short_forms(const KernelSite& site) {
  const RowFacts facts(site);
  return fits_short_forms(
      site.expr, [&](int node) { return facts.places[static_cast<size_t>(node)] == RowPlace::element; });
}

// Vectors of packed results are whole bytes, which no other thread has elements of.
const Store* first_split_byte(const RowsProblem& problem) {
  const RowFacts facts(problem.site);
  const Expr& expr = problem.site.expr;
  for (const Store& store : expr.stores)
    if (is_packed(store.type) &&
        (problem.widest % elements_per_byte(store.type) != 0 || !facts.is_element_store(expr, store) ||
         !is_whole(problem.fusion, expr, problem.site.vector_axis, store.access, store.type, problem.widest)))
      return &store;
  return nullptr;
}

namespace {

// Turns totals that pick one element into loads, along axes that other totals run over, too. Along any other
// axis the load would reach into rows that another block may have overwritten already, where the result takes
// the place of the operand.
std::optional<Refusal> take_picks(const Fusion& fusion, Expr& expr) {
  Expr picked = expr;
  const uint32_t axes = take_picked_elements(fusion, picked);
  if (axes == 0) return std::nullopt;
  if (!picked.has_reduction())
    return Refusal{"rows-form", "", "", "totals along rows", "one element of each row", "", -1};
  uint32_t walked = 0;
  for (const Node& node : picked.nodes)
    if (is_total(node)) walked |= node.over;
  if ((axes & ~walked) == 0) expr = std::move(picked);
  return std::nullopt;
}

}  // namespace

std::variant<Refusal, RowsProblem> rows_problem(const Fusion& fusion, const DeviceInfo& device) {
  Expr expr = fusion.sites.front().expr;
  if (!drop_empty_totals(expr) || !expr.has_reduction())
    return Refusal{"rows-form", "", "", "totals along rows", "none of more than one element", "", -1};
  for (const Node& node : expr.nodes)
    if (node.access.is_indexed())
      return refuse(fusion, node, "loads-in-place", "operands that are read where they lie",
                    "elements taken through an index");
  for (const Store& store : expr.stores)
    if (store.access.is_indexed())
      return Refusal{"stores-in-place",
                     fusion.op_name(store.op),
                     fusion.name_of(store.access.operand),
                     "results that are stored in order",
                     "elements stored through an index",
                     "carry out the scatter in a fusion of its own",
                     store.op};
  if (auto refusal = take_picks(fusion, expr)) return std::move(*refusal);
  expr = simplified_counts(expr, fusion, merged);
  const int vector_axis = choose_vector_axis(expr);
  const auto answer = row_axes(fusion, expr, vector_axis);
  if (const auto* refusal = std::get_if<Refusal>(&answer)) return *refusal;
  const uint32_t row = std::get<uint32_t>(answer);
  const bool spread = (row >> vector_axis & 1) == 0;
  if (auto refusal = refuse_totals(fusion, expr, row, spread)) return std::move(*refusal);

  RowsProblem problem{.fusion = fusion, .device = device};
  problem.spread = spread;
  problem.site.name = "Y";
  problem.site.aligned = true;
  problem.site.expr = select_axes(expr, order_of(expr, row, vector_axis));
  const int rank = expr.domain.rank();
  int in_row = 0;
  for (int axis = 0; axis < rank; ++axis) in_row += static_cast<int>(row >> axis & 1);
  problem.site.kept = rank - in_row;
  problem.site.vector_axis = spread ? problem.site.kept - 1 : rank - 1;
  problem.has_columns = column_bytes(problem.site) > 0;
  problem.joins = fusion.precision != Precision::strict && has_joins(problem.site);
  problem.index_bits = index_bits(problem.site.expr);
  problem.site.short_forms = elements_fit_short_forms(problem.site);
  problem.widest = widest_vector(problem);
  if (const Store* const store = first_split_byte(problem))
    return Refusal{"whole-byte-stores",
                   fusion.op_name(store->op),
                   fusion.name_of(store->access.operand),
                   "packed results of which a thread's vectors are whole bytes",
                   fmt::format("vectors of {} elements, {} a byte, in another place", problem.widest,
                               elements_per_byte(store->type)),
                   "store them by a fusion of their own",
                   store->op};
  return problem;
}

namespace {

// Takes the strides along `axis` from what is loaded or stored once a row, and gives them, a number an
// access.
std::vector<int64_t> take_steps_of_rows(KernelSite& site, int axis) {
  const RowFacts facts(site);
  std::vector<int64_t> steps;
  const auto take = [&](Access& access, bool is_of_row) {
    steps.push_back(is_of_row ? std::exchange(access.strides[axis], 0) : 0);
  };
  for (size_t i = 0; i < site.expr.nodes.size(); ++i)
    if (site.expr.nodes[i].kind == Node::Kind::load)
      take(site.expr.nodes[i].access, facts.places[i] == RowPlace::row);
  for (Store& store : site.expr.stores) take(store.access, !facts.is_element_store(site.expr, store));
  return steps;
}

// An axis in front of axis `at`, which no access walks.
void insert_axis(Expr& expr, int at, int64_t extent) {
  const uint32_t before = (1u << at) - 1;
  expr.domain.insert(at, extent);
  for_each_access(expr, [&](Access& access, DataType) { access.strides.insert(at, 0); });
  for (Node& node : expr.nodes)
    if (node.kind == Node::Kind::reduce) node.over = (node.over & before) | (node.over & ~before) << 1;
}

// The expression with `outer` and the last axis walked as one, behind all other axes of rows; an axis that no
// access walks stands in the row for what was the last.
std::optional<Expr> folded_expr(Expr expr, int outer, int kept) {
  const int inner = expr.domain.rank() - 1;
  const int64_t fold = expr.domain[inner];
  const uint32_t before = (1u << kept) - 1, row = ((1u << (inner + 1)) - 1) & ~before;
  for (Node& node : expr.nodes) {
    if (node.kind == Node::Kind::index) return std::nullopt;
    if (node.kind != Node::Kind::reduce) continue;
    if ((node.over & row) != (real_axes(expr) & row)) return std::nullopt;
    node.over &= ~(1u << inner);
  }
  std::vector<Dims> groups;
  for (int axis = 0; axis < kept; ++axis)
    if (axis != outer) groups.push_back({axis});
  groups.push_back({outer, inner});
  for (int axis = kept; axis < inner; ++axis) groups.push_back({axis});
  std::optional<Expr> grouped = group_axes(expr, groups);
  if (!grouped) return std::nullopt;
  insert_axis(*grouped, kept, fold);
  for (Node& node : grouped->nodes)
    if (node.kind == Node::Kind::reduce) node.over |= 1u << kept;
  return grouped;
}

// Gives the accesses of a folded site their steps between shared places, along an axis in front of all
// others. False where it cannot have that axis, or results that each of the neighbours has for itself beside
// them.
bool share_places(KernelSite& site, const std::vector<int64_t>& steps) {
  const RowFacts facts(site);
  if (site.expr.domain.rank() == kMaxRank) return false;
  for (const Store& store : site.expr.stores)
    if (!facts.is_element_store(site.expr, store) && store.access.strides[site.vector_axis] != 0)
      return false;
  size_t at = 0;
  insert_axis(site.expr, 0, 1);
  for_each_access(site.expr, [&](Access& access, DataType) { access.strides[0] = steps[at++]; });
  ++site.kept;
  ++site.vector_axis;
  site.has_shared_places = true;
  return true;
}

// The site with rows along `outer` folded. `shares`: it has an axis of shared places, whether or not there
// are any.
std::optional<KernelSite> folded_site(const RowsProblem& problem, int outer, bool shares = false) {
  KernelSite site = problem.site;
  const std::vector<int64_t> steps = take_steps_of_rows(site, outer);
  std::optional<Expr> expr = folded_expr(std::move(site.expr), outer, site.kept);
  if (!expr) return std::nullopt;
  site.expr = std::move(*expr);
  site.vector_axis = site.kept - 1;
  shares = shares || std::ranges::any_of(steps, [](int64_t step) { return step != 0; });
  if (shares && !share_places(site, steps)) return std::nullopt;
  return site;
}

}  // namespace

std::optional<RowsProblem> folded(const RowsProblem& problem) {
  const int inner = problem.domain().rank() - 1, kept = problem.site.kept;
  if (problem.spread || problem.has_columns || inner == kept) return std::nullopt;
  for (int outer = kept - 1; outer >= 0; --outer) {
    if (problem.domain()[outer] == 1) continue;
    std::optional<KernelSite> site = folded_site(problem, outer);
    if (!site) continue;
    RowsProblem wide = problem;
    wide.fold = problem.domain()[inner];
    wide.spread = true;
    wide.site = std::move(*site);
    wide.widest = widest_vector(wide);
    if (wide.widest > problem.widest && first_split_byte(wide) == nullptr) return wide;
  }
  return std::nullopt;
}

namespace {

// Whether neighbours in memory of some operand lie along `axis`, and those of its results along the last.
bool lies_across(const Expr& expr, int axis) {
  const int last = expr.domain.rank() - 1;
  return std::ranges::any_of(expr.nodes, [&](const Node& node) {
    return node.kind == Node::Kind::load && node.access.strides[axis] == 1 && node.access.strides[last] != 0;
  });
}

// The problem with `axis` of a row as its last, along which vectors go.
RowsProblem walked_along(const RowsProblem& problem, int axis) {
  Dims order;
  for (int i = 0; i < problem.domain().rank(); ++i)
    if (i != axis) order.push_back(i);
  order.push_back(axis);
  RowsProblem along = problem;
  along.site.expr = select_axes(problem.site.expr, order);
  return along;
}

// Whether blocks can turn what they keep: one operand, a piece of 16 bytes of it a thread, and whole vectors
// of all results along the only axis that is walked.
bool can_turn(const RowsProblem& wide) {
  const KernelSite& across = *wide.across;
  const RowFacts facts(across);
  const auto is_whole_store = [&](const Store& store) {
    return !facts.is_element_store(across.expr, store) || store.access.whole_vectors;
  };
  KernelSite near = wide.site;
  mark_whole(wide.fusion, near, wide.widest);
  return wide.widest > 1 && copied_bytes(near, wide.widest) == kMaxAccessBytes &&
         held_bytes(near, wide.widest) == kMaxAccessBytes && fixed_bytes(near, wide.widest) == 0 &&
         across.vector_axis == wide.first_of_row() && wide.domain()[across.vector_axis] % wide.widest == 0 &&
         std::ranges::all_of(across.expr.stores, is_whole_store);
}

// The problem with rows along `outer` folded, and turned.
std::optional<RowsProblem> turned_along(const RowsProblem& along, int outer) {
  std::optional<KernelSite> site = folded_site(along, outer, true);
  if (!site) return std::nullopt;
  RowsProblem wide = along;
  wide.fold = along.domain()[along.domain().rank() - 1];
  wide.spread = true;
  wide.site = std::move(*site);
  wide.widest = widest_vector(wide);
  wide.across = wide.site;
  wide.across->name = "Z";
  wide.across->tails = false;
  wide.across->vector_axis = wide.domain().rank() - 1;
  mark_whole(wide.fusion, *wide.across, wide.widest);
  if (!can_turn(wide) || first_split_byte(wide) != nullptr) return std::nullopt;
  return wide;
}

}  // namespace

std::optional<RowsProblem> turned(const RowsProblem& problem) {
  const int kept = problem.site.kept;
  if (problem.spread || problem.has_columns) return std::nullopt;
  for (int axis = kept; axis + 1 < problem.domain().rank(); ++axis) {
    if (!lies_across(problem.site.expr, axis)) continue;
    const RowsProblem along = walked_along(problem, axis);
    for (int outer = kept - 1; outer >= 0; --outer)
      if (along.domain()[outer] != 1)
        if (std::optional<RowsProblem> wide = turned_along(along, outer)) return wide;
  }
  return std::nullopt;
}

}  // namespace fusor
