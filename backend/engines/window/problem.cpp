// Owns the reading of an Expr as windows, and what a tile of them reads.
#include "backend/engines/window/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "backend/engines/elementwise/vectors.h"
#include "backend/engines/reach.h"
#include "backend/engines/rows/problem.h"
#include "backend/engines/window/bounds.h"
#include "backend/engines/window/counting.h"
#include "backend/engines/window/meetings.h"
#include "backend/engines/window/tidy.h"

namespace fusor {

using namespace elementwise;

namespace {

constexpr int64_t kMostPlaces = 64;
constexpr int kMostPlaceAxes = 3;
// Coordinates up to here: their products with strides of windows stay within 32 bits.
constexpr int64_t kMostExtent = int64_t{1} << 23;

bool is_total(const Node& node) { return node.kind == Node::Kind::reduce; }

Refusal refuse(const Fusion& fusion, const Node* node, const char* rule, const char* expected,
               std::string actual) {
  const int op = node == nullptr ? -1 : node->op;
  return {rule,
          op < 0 ? "" : fusion.op_name(op),
          "",
          expected,
          std::move(actual),
          "carry it out in a fusion of its own",
          op};
}

std::optional<Refusal> refuse_shape(const Fusion& fusion, const Expr& expr, uint32_t& over) {
  for (const Node& node : expr.nodes) {
    if (!is_total(node)) continue;
    if (over != 0 && node.over != over)
      return refuse(fusion, &node, "one-window", "totals over the places of one window",
                    "totals over others");
    over = node.over;
  }
  const std::vector<uint32_t> varies = varying_axes(expr);
  const auto is_of_place = [&](const Node& node) {
    return node.access.is_indexed() && (varies[static_cast<size_t>(&node - expr.nodes.data())] & over) != 0;
  };
  if (over == 0 || std::ranges::none_of(expr.nodes, is_of_place))
    return refuse(fusion, nullptr, "windows", "totals of elements taken through an index", "none");
  int64_t places = 1;
  int axes = 0;
  for (int axis = 0; axis < expr.domain.rank(); ++axis) {
    if (expr.domain[axis] > kMostExtent)
      return refuse(fusion, nullptr, "narrow-windows", "extents up to 8388608",
                    fmt::format("one of {}", expr.domain[axis]));
    if ((over >> axis & 1) == 0) continue;
    places *= expr.domain[axis];
    ++axes;
  }
  if (places > kMostPlaces || axes > kMostPlaceAxes)
    return refuse(fusion, nullptr, "small-window", "windows of up to 64 places along up to 3 axes",
                  fmt::format("{} places along {} axes", places, axes));
  const auto walks_places = [&](const Access& access) {
    for (int axis = 0; axis < expr.domain.rank(); ++axis)
      if ((over >> axis & 1) != 0 && access.strides[axis] != 0) return true;
    return false;
  };
  for (const Store& store : expr.stores)
    if (store.access.is_indexed())
      return refuse(fusion, &expr.node(store.node), "stores-in-place", "results that are stored in order",
                    "elements stored through an index");
  for (const Store& store : expr.stores)
    if ((varies[static_cast<size_t>(store.node)] & over) != 0 || walks_places(store.access))
      return refuse(fusion, &expr.node(store.node), "totals-of-windows", "one result a window",
                    "one of every place");
  if (const Node* const node = uncounted_index(fusion, expr))
    return refuse(fusion, node, "counted-places", "places made of coordinates and whole constants",
                  "places that are read or computed otherwise");
  if (const Node* const node = wide_number(fusion, expr))
    return refuse(fusion, node, "narrow-places", "places of 30 bits", "numbers that may be larger");
  if (const Node* const node = choice_beyond(fusion, expr))
    return refuse(fusion, node, "places-inside", "chosen places that lie inside", "some that may not");
  return std::nullopt;
}

// Windows in the memory's order of the first result, the vector axis last, then places in their own.
Dims order_of(const Expr& expr, uint32_t over, int vector_axis) {
  const Access& result = expr.stores.front().access;
  Dims order;
  std::vector<int> kept;
  for (int axis = 0; axis < expr.domain.rank(); ++axis)
    if ((over >> axis & 1) == 0 && axis != vector_axis) kept.push_back(axis);
  std::ranges::stable_sort(kept, [&](int a, int b) { return result.strides[a] > result.strides[b]; });
  for (const int axis : kept) order.push_back(axis);
  order.push_back(vector_axis);
  for (int axis = 0; axis < expr.domain.rank(); ++axis)
    if (over >> axis & 1) order.push_back(axis);
  return order;
}

// The kept axis along which most bytes are adjacent: results are stored along it.
int vector_axis_of(const Expr& expr, uint32_t over) {
  int best = -1;
  int64_t most = -1;
  for (int axis = 0; axis < expr.domain.rank(); ++axis) {
    if (over >> axis & 1) continue;
    int64_t bytes = 0;
    for_each_access(expr, [&](const Access& access, DataType type) {
      if (access.strides[axis] == 1) bytes += byte_size(type);
    });
    if (bytes > most || (bytes == most && expr.domain[axis] > expr.domain[best])) {
      most = bytes;
      best = axis;
    }
  }
  return best;
}

// Whether neighbours along the vector axis are neighbouring windows.
bool walks_windows(const WindowProblem& problem) {
  const Expr& expr = problem.site.expr;
  const std::vector<uint32_t> varies = varying_axes(expr);
  for (const Node& node : expr.nodes)
    for (const int arg : node.args)
      if (node.access.is_indexed() && arg >= 0 &&
          (varies[static_cast<size_t>(arg)] >> problem.site.vector_axis & 1) != 0)
        return true;
  return false;
}

int axis_of_images(const WindowProblem& problem) {
  const Expr& expr = problem.site.expr;
  const std::vector<uint32_t> varies = varying_axes(expr);
  const std::vector<bool> decided = decided_by_coordinates(expr);
  uint32_t placed = 0;
  bool weighs = false;
  for (size_t i = 0; i < expr.nodes.size(); ++i) {
    if (!decided[i]) continue;
    placed |= varies[i];
    weighs = weighs || (varies[i] != 0 && is_real(expr.nodes[i].type));
  }
  for (int axis = problem.site.kept - 1; weighs && axis >= 0; --axis)
    if ((placed >> axis & 1) == 0 && axis != problem.site.vector_axis && axis != problem.rows.axis &&
        axis != problem.columns.axis)
      return axis;
  return -1;
}

// Where lanes differ in the place that they take from, each is a vector of its own.
int64_t widest_vector(const WindowProblem& problem) {
  const Expr& expr = problem.site.expr;
  const int axis = problem.site.vector_axis;
  if (problem.walks) return 1;
  int64_t narrowest = 8;
  for (const Node& node : expr.nodes)
    if (node.kind == Node::Kind::load && node.access.strides[axis] == 1)
      narrowest = std::min(narrowest, std::max<int64_t>(2, byte_size(node.type)));
  int64_t vector = choose_vector(problem.fusion, expr, axis, kMaxAccessBytes / narrowest);
  while (vector > 1 && expr.domain[axis] % vector != 0) vector /= 2;
  return vector;
}

}  // namespace

std::vector<bool> decided_by_coordinates(const Expr& expr) {
  std::vector<bool> decided;
  for (const Node& node : expr.nodes)
    decided.push_back(node.kind == Node::Kind::index || node.kind == Node::Kind::scalar ||
                      (node.kind == Node::Kind::pointwise && std::ranges::all_of(node.args, [&](int arg) {
                         return arg < 0 || decided[static_cast<size_t>(arg)];
                       })));
  return decided;
}

int64_t WindowProblem::places() const {
  int64_t count = 1;
  for (int axis = site.kept; axis < domain().rank(); ++axis) count *= domain()[axis];
  return count;
}
int64_t WindowProblem::windows() const { return element_count(domain()) / places(); }

int64_t WindowProblem::run(int64_t tile_columns) const {
  if (!walks || tile_columns < 2 || columns.axis != site.vector_axis || columns.places < 0) return 1;
  const WindowMeeting& meeting = columns.meeting[static_cast<size_t>(tile_columns)];
  if (meeting.live == 0 || tile_columns * meeting.step % meeting.divisor != 0) return 1;
  const Expr& expr = site.expr;
  const std::vector<uint32_t> varies = varying_axes(expr);
  int64_t run = meeting.run;
  for (const Node& node : expr.nodes) {
    if (node.kind != Node::Kind::load) continue;
    if (!node.access.is_indexed()) {
      const bool is_of_places =
          std::ranges::any_of(node.access.strides, [](int64_t stride) { return stride != 0; });
      if (is_of_places && (varies[static_cast<size_t>(&node - expr.nodes.data())] >> site.kept) != 0)
        return 1;
      continue;
    }
    const int64_t size = byte_size(node.type);
    run = std::gcd(run, fusion.operands[static_cast<size_t>(node.access.operand)].alignment / size);
    run = std::gcd(run, node.access.offset);
    for (const int64_t stride : node.access.strides) run = std::gcd(run, stride);
    for (size_t k = 0; k < node.access.indexed.size() && node.args[k] >= 0; ++k) {
      const IndexedAxis& indexed = node.access.indexed[k];
      const bool is_along = (varies[static_cast<size_t>(node.args[k])] >> columns.axis & 1) != 0;
      if (is_along && indexed.stride != 1) return 1;
      run = std::gcd(run, is_along ? indexed.extent : indexed.stride);
    }
    run = std::min(run, kMaxAccessBytes / size);
  }
  return run;
}

WindowReach reach_of(const WindowProblem& problem, int64_t tile_rows, int64_t tile_columns) {
  const Expr& expr = problem.site.expr;
  const std::vector<uint32_t> varies = varying_axes(expr);
  const int64_t run = problem.run(tile_columns);
  WindowCounting counting(problem.fusion, expr);
  std::set<std::tuple<size_t, int64_t, int64_t, int64_t>> taken, requested;
  WindowReach reach;
  Dims at = Dims::filled(expr.domain.rank(), 0);
  const auto middle = [&](int axis, int64_t tile) { return expr.domain[axis] / tile / 2 * tile; };
  for (int64_t window = 0; window < tile_rows * tile_columns; ++window) {
    at[problem.rows.axis] = middle(problem.rows.axis, tile_rows);
    at[problem.columns.axis] = middle(problem.columns.axis, tile_columns);
    at[problem.rows.axis] += window / tile_columns;
    at[problem.columns.axis] += window % tile_columns;
    for (int64_t place = 0; place < problem.places(); ++place) {
      int64_t rest = place;
      for (int axis = expr.domain.rank() - 1; axis >= problem.site.kept; --axis) {
        at[axis] = rest % expr.domain[axis];
        rest /= expr.domain[axis];
      }
      counting.count(at);
      bool is_element = false;
      for (size_t i = 0; i < expr.nodes.size(); ++i) {
        const Node& node = expr.nodes[i];
        if (node.kind != Node::Kind::load || !node.access.is_indexed()) continue;
        std::array<int64_t, 3> where{-1, -1, -1};
        std::array<int64_t, 3> runs = where;
        bool inside = true;
        for (size_t k = 0; k < 3 && node.args[k] >= 0; ++k) {
          where[k] = counting.at(node.args[k]);
          const bool is_along = (varies[static_cast<size_t>(node.args[k])] >> problem.columns.axis & 1) != 0;
          runs[k] = is_along ? where[k] / run : where[k];
          inside = inside && where[k] >= 0 && where[k] < node.access.indexed[k].extent;
        }
        if (!inside) continue;
        is_element = true;
        taken.insert({i, where[0], where[1], where[2]});
        requested.insert({i, runs[0], runs[1], runs[2]});
      }
      reach.places += is_element ? 1 : 0;
    }
  }
  reach.loads = std::ssize(taken);
  reach.requests = std::ssize(requested);
  return reach;
}

std::variant<Refusal, WindowProblem> window_problem(const Fusion& fusion, const DeviceInfo& device) {
  Expr expr = fusion.sites.front().expr;
  for (Node& node : expr.nodes) node.over = reduced_axes(expr, node);
  for (const Node& node : expr.nodes)
    if (is_total(node) && node.over == 0)
      return refuse(fusion, &node, "small-window", "windows of more than one place", "one place");
  expr = tidied(fusion, expr);
  uint32_t over = 0;
  if (auto refusal = refuse_shape(fusion, expr, over)) return std::move(*refusal);
  const int vector_axis = vector_axis_of(expr, over);
  if (vector_axis < 0) return refuse(fusion, nullptr, "windows", "more than one window", "one");

  WindowProblem problem{.fusion = fusion, .device = device};
  const Dims order = order_of(expr, over, vector_axis);
  problem.site.name = "Y";
  problem.site.expr = select_axes(expr, order);
  problem.site.kept = static_cast<int>(std::ranges::find(order, vector_axis) - order.begin()) + 1;
  problem.site.vector_axis = problem.site.kept - 1;
  problem.walks = walks_windows(problem);
  const int last = problem.site.kept - (problem.walks ? 1 : 2);
  problem.columns = line_along(problem, std::max(0, last));
  problem.rows = line_along(problem, std::max(0, last - 1));
  if (problem.rows.places == problem.columns.places) problem.rows = {.axis = problem.rows.axis};
  problem.images = axis_of_images(problem);
  problem.site.short_forms = elements_fit_short_forms(problem.site);
  problem.index_bits = index_bits(problem.site.expr);
  problem.widest = widest_vector(problem);
  return problem;
}

}  // namespace fusor
