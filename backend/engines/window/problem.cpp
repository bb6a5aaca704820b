// Owns the reading of an Expr as windows, and what a tile of them reads.
#include "backend/engines/window/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "backend/engines/elementwise/simplify.h"
#include "backend/engines/elementwise/vectors.h"
#include "backend/engines/rows/problem.h"
#include "codegen/expr_emitter.h"
#include "codegen/row_facts.h"

namespace fusor {

using namespace elementwise;

namespace {

constexpr int64_t kMostPlaces = 64;
constexpr int64_t kMostNamed = 16;
constexpr int kMostPlaceAxes = 3;
// Coordinates up to here: their products with strides of windows stay within 32 bits.
constexpr int64_t kMostExtent = int64_t{1} << 23;
constexpr int64_t kMaxIndex32 = (int64_t{1} << 31) - (int64_t{1} << 24);

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

// The same node twice is one.
Expr without_twins(const Expr& expr) {
  Expr unique{.domain = expr.domain, .nodes = {}, .stores = expr.stores, .yields = expr.yields};
  std::vector<int> place(expr.nodes.size());
  for (size_t i = 0; i < expr.nodes.size(); ++i) {
    Node node = expr.nodes[i];
    for (int& arg : node.args)
      if (arg >= 0) arg = place[static_cast<size_t>(arg)];
    const auto is_twin = [&](const Node& other) {
      return other.kind == node.kind && other.type == node.type && other.input == node.input &&
             other.access == node.access && other.axis == node.axis && other.pointwise == node.pointwise &&
             other.reduction == node.reduction && other.over == node.over && other.args == node.args;
    };
    const auto twin = std::ranges::find_if(unique.nodes, is_twin);
    place[i] = static_cast<int>(twin - unique.nodes.begin());
    if (twin == unique.nodes.end()) unique.nodes.push_back(node);
  }
  for (Store& store : unique.stores) store.node = place[static_cast<size_t>(store.node)];
  for (int& node : unique.yields) node = place[static_cast<size_t>(node)];
  return unique;
}

// The number that a node is, where it is a whole constant.
std::optional<int64_t> whole_constant(const Fusion& fusion, const Node& node) {
  if (node.kind != Node::Kind::scalar) return std::nullopt;
  const Operand& operand = fusion.operands[static_cast<size_t>(node.access.operand)];
  if (operand.memory != Memory::constant) return std::nullopt;
  if (const auto* const whole = std::get_if<int64_t>(&operand.value)) return *whole;
  const double value = std::get<double>(operand.value);
  const bool is_whole = std::abs(value) < 1e6 && value == std::trunc(value) && !std::signbit(value);
  return is_whole ? std::optional(static_cast<int64_t>(value)) : std::nullopt;
}

// Whole constants as small as windows, strides and paddings are become numbers of the text: indices along no
// axis. Extents stay arguments.
void name_numbers(const Fusion& fusion, Expr& expr) {
  for (Node& node : expr.nodes) {
    const std::optional<int64_t> whole = whole_constant(fusion, node);
    if (!whole || *whole > kMostNamed || *whole < -kMostNamed) continue;
    node.kind = Node::Kind::index;
    node.axis = 0;
    node.access = {.operand = -1, .offset = *whole, .strides = Dims::filled(expr.domain.rank(), 0)};
  }
}

// An element of 16 bits or an infinity is one of 16 bits: it is compared as it is stored.
void keep_short(const Fusion& fusion, Expr& expr) {
  const auto is_infinite = [&](const Node& node) {
    if (node.kind != Node::Kind::scalar) return false;
    const Operand& operand = fusion.operands[static_cast<size_t>(node.access.operand)];
    const auto* const value = std::get_if<double>(&operand.value);
    return operand.memory == Memory::constant && value != nullptr && std::isinf(*value);
  };
  for (Node& node : expr.nodes) {
    if (node.kind != Node::Kind::pointwise || node.pointwise.mode != PointwiseMode::binary_select ||
        node.type != DataType::f32 || node.pointwise.compute != DataType::f32)
      continue;
    const Node& element = expr.node(node.args[0]);
    const bool is_short = element.type == DataType::f16 || element.type == DataType::bf16;
    if (element.kind == Node::Kind::load && is_short && is_infinite(expr.node(node.args[1])))
      node.type = element.type;
  }
}

// Whether lower <= place < upper is among the comparisons, with bounds that are those of elements or
// narrower.
bool is_held_inside(const Fusion& fusion, const Expr& expr, const std::vector<int>& comparisons, int place,
                    int64_t extent) {
  bool from_first = false, to_last = false;
  for (const int at : comparisons) {
    const Node& node = expr.node(at);
    if (node.kind != Node::Kind::pointwise || node.args[0] != place) continue;
    const Node& bound = expr.node(node.args[1]);
    const bool is_named = bound.kind == Node::Kind::index && bound.access.strides[bound.axis] == 0;
    const std::optional<int64_t> value =
        is_named ? std::optional(bound.access.offset) : whole_constant(fusion, bound);
    if (!value) continue;
    from_first = from_first || (node.pointwise.mode == PointwiseMode::cmp_ge && *value >= 0);
    to_last = to_last || (node.pointwise.mode == PointwiseMode::cmp_lt && *value <= extent);
  }
  return from_first && to_last;
}

struct Bounds {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
};

Bounds bounds_of_product(const Bounds& a, const Bounds& b) {
  const double products[] = {a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high};
  if (std::ranges::any_of(products, [](double product) { return std::isnan(product); })) return {};
  return {std::ranges::min(products), std::ranges::max(products)};
}

Bounds bounds_of_pointwise(const Node& node, const std::vector<Bounds>& all) {
  const auto arg = [&](size_t i) { return all[static_cast<size_t>(node.args[i])]; };
  switch (node.pointwise.mode) {
    case PointwiseMode::identity:
      return arg(0);
    case PointwiseMode::add:
      return {arg(0).low + arg(1).low, arg(0).high + arg(1).high};
    case PointwiseMode::sub:
      return {arg(0).low - arg(1).high, arg(0).high - arg(1).low};
    case PointwiseMode::mul:
      return bounds_of_product(arg(0), arg(1));
    case PointwiseMode::div: {
      const double most = std::max(std::abs(arg(0).low), std::abs(arg(0).high));
      return {arg(0).low >= 0 && arg(1).low >= 0 ? 0 : -most, most};
    }
    case PointwiseMode::min:
      return {std::min(arg(0).low, arg(1).low), std::min(arg(0).high, arg(1).high)};
    case PointwiseMode::max:
      return {std::max(arg(0).low, arg(1).low), std::max(arg(0).high, arg(1).high)};
    case PointwiseMode::binary_select:
      return {std::min(arg(0).low, arg(1).low), std::max(arg(0).high, arg(1).high)};
    default:
      return {0, 1};  // a truth
  }
}

// Bounds of the numbers that a text counts, by their formulas.
std::vector<Bounds> bounds_of(const Fusion& fusion, const Expr& expr) {
  const std::vector<CountedKind> kinds = counted_kinds(expr);
  std::vector<Bounds> all;
  for (size_t i = 0; i < expr.nodes.size(); ++i) {
    const Node& node = expr.nodes[i];
    Bounds own;
    if (node.kind == Node::Kind::index) {
      const double first = static_cast<double>(node.access.offset);
      const double last =
          first + static_cast<double>(node.access.strides[node.axis] * (expr.domain[node.axis] - 1));
      own = {std::min(first, last), std::max(first, last)};
    } else if (const std::optional<int64_t> value = whole_constant(fusion, node)) {
      own = {static_cast<double>(*value), static_cast<double>(*value)};
    } else if (node.kind == Node::Kind::pointwise && kinds[i] != CountedKind::none) {
      own = bounds_of_pointwise(node, all);
    }
    all.push_back(own);
  }
  return all;
}

// A number that 32 bits may not hold, or null: a text counts with so many. Sums of two stay within them, too.
const Node* wide_number(const Fusion& fusion, const Expr& expr) {
  constexpr double kMost = 1 << 30;
  const std::vector<Bounds> bounds = bounds_of(fusion, expr);
  const std::vector<CountedKind> kinds = counted_kinds(expr);
  for (size_t i = 0; i < expr.nodes.size(); ++i) {
    const Node& node = expr.nodes[i];
    if (kinds[i] != CountedKind::number) continue;
    const bool is_given = node.kind == Node::Kind::scalar && node.type == DataType::i32;
    if (!is_given && !(bounds[i].low >= -kMost && bounds[i].high <= kMost)) return &node;
  }
  return nullptr;
}

// Elements that are chosen where a place is one, at which there are none all the same: or null.
const Node* choice_beyond(const Fusion& fusion, const Expr& expr) {
  const std::vector<Bounds> bounds = bounds_of(fusion, expr);
  for (size_t i = 0; i < expr.nodes.size(); ++i) {
    const Node& node = expr.nodes[i];
    if (!is_choice_of_places(expr, static_cast<int>(i))) continue;
    const Node& load = expr.node(node.args[0]);
    const std::vector<int> comparisons = comparisons_of(expr, node.args[2]);
    for (size_t k = 0; k < load.args.size() && load.args[k] >= 0; ++k) {
      const int place = place_of_choice(expr, load.args[k]);
      const Bounds& own = bounds[static_cast<size_t>(load.args[k])];
      const int64_t extent = load.access.indexed[k].extent;
      const bool is_inside = place < 0 ? own.low >= 0 && own.high < static_cast<double>(extent)
                                       : is_held_inside(fusion, expr, comparisons, place, extent);
      if (!is_inside) return &node;
    }
  }
  return nullptr;
}

// The node that a load takes elements through and that no text counts, or null.
const Node* uncounted_index(const Fusion& fusion, const Expr& expr) {
  const std::vector<CountedKind> kinds = counted_kinds(expr);
  std::vector<bool> needed(expr.nodes.size(), false);
  for (size_t i = expr.nodes.size(); i-- > 0;) {
    const Node& node = expr.nodes[i];
    if (needed[i] &&
        (kinds[i] == CountedKind::none || (node.kind == Node::Kind::scalar && !whole_constant(fusion, node))))
      return &node;
    for (const int arg : node.args) {
      if (arg < 0) continue;
      if (node.access.is_indexed() && kinds[static_cast<size_t>(arg)] != CountedKind::number)
        return &expr.node(arg);
      if (needed[i] || node.access.is_indexed()) needed[static_cast<size_t>(arg)] = true;
    }
  }
  return nullptr;
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

int64_t furthest(const Expr& expr, const Access& access) {
  int64_t reach = 0;
  for (int axis = 0; axis < expr.domain.rank(); ++axis)
    reach += (expr.domain[axis] - 1) * access.strides[axis];
  for (const IndexedAxis& indexed : access.indexed) reach += indexed.extent * indexed.stride;
  return reach;
}

int index_bits(const Expr& expr) {
  int64_t most = element_count(expr.domain);
  for_each_access(expr,
                  [&](const Access& access, DataType) { most = std::max(most, furthest(expr, access)); });
  return most > kMaxIndex32 ? 64 : 32;
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

// --- reach ---

// Numbers of the nodes that loads take elements through, at a coordinate.
class Counting {
 public:
  Counting(const Fusion& fusion, const Expr& expr) : expr_(expr), numbers_(expr.nodes.size(), 0) {
    for (size_t i = 0; i < expr.nodes.size(); ++i)
      numbers_[i] = whole_constant(fusion, expr.nodes[i]).value_or(0);
  }

  int64_t at(int node) const { return numbers_[static_cast<size_t>(node)]; }
  void count(const Dims& at) {
    for (size_t i = 0; i < expr_.nodes.size(); ++i) {
      const Node& node = expr_.nodes[i];
      if (node.kind == Node::Kind::index)
        numbers_[i] = at[node.axis] * node.access.strides[node.axis] + node.access.offset;
      else if (node.kind == Node::Kind::pointwise && !is_real(node.type))
        numbers_[i] = computed(node);
    }
  }

 private:
  int64_t computed(const Node& node) const {
    const auto arg = [&](size_t i) { return node.args[i] < 0 ? 0 : at(node.args[i]); };
    const int64_t a = arg(0), b = arg(1), c = arg(2);
    switch (node.pointwise.mode) {
      case PointwiseMode::add:
        return a + b;
      case PointwiseMode::sub:
        return a - b;
      case PointwiseMode::mul:
        return a * b;
      case PointwiseMode::div:
        return b == 0 ? 0 : a / b;
      case PointwiseMode::min:
        return std::min(a, b);
      case PointwiseMode::max:
        return std::max(a, b);
      case PointwiseMode::cmp_ge:
        return a >= b ? 1 : 0;
      case PointwiseMode::cmp_lt:
        return a < b ? 1 : 0;
      case PointwiseMode::logical_and:
        return a != 0 && b != 0 ? 1 : 0;
      case PointwiseMode::binary_select:
        return c != 0 ? a : b;
      default:
        return a;
    }
  }

  const Expr& expr_;
  std::vector<int64_t> numbers_;
};

// The axis of places that the numbers which vary along an axis of windows vary along, too. -1: there is none,
// or they vary along others as well.
int places_with(const WindowProblem& problem, int axis) {
  const Expr& expr = problem.site.expr;
  const std::vector<uint32_t> varies = varying_axes(expr);
  const uint32_t windows = (1u << problem.site.kept) - 1;
  uint32_t with = 0;
  for (const Node& node : expr.nodes)
    for (const int arg : node.args) {
      if (!node.access.is_indexed() || arg < 0) continue;
      const uint32_t own = varies[static_cast<size_t>(arg)];
      if ((own >> axis & 1) == 0) continue;
      if ((own & windows) != 1u << axis) return -1;
      with |= own >> problem.site.kept;
    }
  return std::popcount(with) == 1 ? std::countr_zero(with) : -1;
}

// The numbers that vary along an axis of windows: [window][place], one table for each.
class Tables {
 public:
  Tables(const WindowProblem& problem, const WindowLine& line)
      : windows_(problem.domain()[line.axis]), places_(problem.domain()[problem.site.kept + line.places]) {
    const Expr& expr = problem.site.expr;
    const std::vector<uint32_t> varies = varying_axes(expr);
    if (windows_ * places_ > kMostEntries) return;
    std::vector<int> numbers;
    for (const Node& node : expr.nodes)
      for (const int arg : node.args)
        if (node.access.is_indexed() && arg >= 0 && (varies[static_cast<size_t>(arg)] >> line.axis & 1) != 0)
          numbers.push_back(arg);
    tables_.resize(numbers.size());
    Counting counting(problem.fusion, expr);
    Dims at = Dims::filled(expr.domain.rank(), 0);
    for (int64_t window = 0; window < windows_; ++window)
      for (int64_t place = 0; place < places_; ++place) {
        at[line.axis] = window;
        at[problem.site.kept + line.places] = place;
        counting.count(at);
        for (size_t i = 0; i < numbers.size(); ++i) tables_[i].push_back(counting.at(numbers[i]));
      }
  }

  WindowMeeting meeting(int64_t tile) const {
    WindowMeeting found = order(tile);
    if (found.divisor == 0) return found;
    if (const std::optional<int64_t> from = base(found, tile)) {
      found.base = *from;
      found.live = live(found, tile);
      found.run = widest_run(found, tile);
    }
    return found;
  }

 private:
  static constexpr int64_t kMostStep = 8, kMostEntries = 1 << 15;

  WindowMeeting order(int64_t tile) const {
    if (tables_.empty() || tile > windows_ || (tile > 1 && tile * places_ > 32)) return {};
    for (int64_t step = 1; step <= kMostStep; ++step)
      if (WindowMeeting one{step, 1, 0, 1}; holds(one, tile)) return one;
    for (int64_t divisor = 1; divisor <= kMostStep; ++divisor)
      for (int64_t shift = 0; shift < divisor; ++shift)
        if (WindowMeeting one{1, -divisor, shift + (places_ - 1) * divisor, divisor}; holds(one, tile))
          return one;
    return {};
  }

  // All loads meet in the same way, and have the same places that are never elements.
  bool holds(WindowMeeting& meeting, int64_t tile) const {
    std::optional<uint32_t> never;
    for (const std::vector<int64_t>& table : tables_) {
      if (!are_elements(meeting, tile, table) || !are_alike(meeting, tile, table)) return false;
      if (never.value_or(meeting.never) != meeting.never) return false;
      never = meeting.never;
    }
    return true;
  }
  static int64_t number(const WindowMeeting& m, int64_t u, int64_t q) {
    return (m.step * u + m.turn * q + m.shift) / m.divisor;
  }

  // Places that are elements are those which the meeting says, counted from the same one in all tiles.
  bool are_elements(const WindowMeeting& m, int64_t tile, const std::vector<int64_t>& table) const {
    std::optional<int64_t> base;
    for (size_t i = 0; i < table.size(); ++i) {
      if (table[i] < 0) continue;
      const int64_t window = static_cast<int64_t>(i) / places_, place = static_cast<int64_t>(i) % places_;
      if (window / tile * tile * m.step % m.divisor != 0) return false;
      const int64_t own =
          table[i] - window / tile * tile * m.step / m.divisor - number(m, window % tile, place);
      if (base.value_or(own) != own) return false;
      base = own;
    }
    return true;
  }

  // The element that all tables count from in the first tile, where it is one.
  std::optional<int64_t> base(const WindowMeeting& m, int64_t tile) const {
    std::set<int64_t> bases;
    for (const std::vector<int64_t>& table : tables_)
      for (size_t i = 0; i < table.size(); ++i) {
        if (table[i] < 0) continue;
        const int64_t window = static_cast<int64_t>(i) / places_, place = static_cast<int64_t>(i) % places_;
        bases.insert(table[i] - window / tile * tile * m.step / m.divisor - number(m, window % tile, place));
        break;
      }
    return bases.size() == 1 ? std::optional(*bases.begin()) : std::nullopt;
  }

  // The widest run whose places are all elements or none is, beside those that never are.
  int64_t widest_run(const WindowMeeting& m, int64_t tile) const {
    for (int64_t run = kMaxAccessBytes; run > 1; run /= 2)
      if (tile * m.step % (m.divisor * run) == 0 && are_whole(m, tile, run)) return run;
    return 1;
  }
  bool are_whole(const WindowMeeting& m, int64_t tile, int64_t run) const {
    const int64_t period = tile * m.step / m.divisor;
    for (const std::vector<int64_t>& table : tables_)
      for (int64_t first = 0; first < windows_; first += tile) {
        std::map<int64_t, bool> met;
        for (int64_t u = 0; u < tile && first + u < windows_; ++u)
          for (int64_t q = 0; q < places_; ++q) {
            if ((m.never >> (u * places_ + q) & 1) != 0) continue;
            const int64_t element = first / tile * period + number(m, u, q) + m.base;
            const int64_t place = element >= 0 ? element / run : (element + 1) / run - 1;
            const bool is_element = table[static_cast<size_t>((first + u) * places_ + q)] >= 0;
            if (met.try_emplace(place, is_element).first->second != is_element) return false;
          }
      }
    return true;
  }

  // One bit an element, in the order in which the places of a tile meet them. 0: there are too many.
  uint32_t live(const WindowMeeting& m, int64_t tile) const {
    std::vector<int64_t> order;
    uint32_t bits = 0;
    for (int64_t u = 0; u < tile; ++u)
      for (int64_t q = 0; q < places_; ++q) {
        const auto known = std::ranges::find(order, number(m, u, q));
        const auto place = static_cast<size_t>(known - order.begin());
        if (known == order.end()) order.push_back(number(m, u, q));
        if (place >= 32) return 0;
        for (const std::vector<int64_t>& table : tables_)
          for (int64_t window = u; window < windows_; window += tile)
            if (table[static_cast<size_t>(window * places_ + q)] >= 0) bits |= 1u << place;
      }
    return bits;
  }

  // Places of a tile that meet are all elements or none is, but for those that are none in any tile.
  bool are_alike(WindowMeeting& m, int64_t tile, const std::vector<int64_t>& table) const {
    const auto is_element = [&](int64_t window, int64_t place) {
      return table[static_cast<size_t>(window * places_ + place)] >= 0;
    };
    std::vector<bool> is_ever(static_cast<size_t>(tile * places_), false);
    for (int64_t window = 0; window < windows_; ++window)
      for (int64_t q = 0; q < places_; ++q)
        if (is_element(window, q)) is_ever[static_cast<size_t>(window % tile * places_ + q)] = true;
    m.never = 0;
    for (size_t i = 0; i < is_ever.size() && tile > 1; ++i)
      if (!is_ever[i]) m.never |= 1u << i;
    for (int64_t first = 0; first < windows_; first += tile) {
      struct Met {
        bool is_ever, is_element;
      };
      std::map<int64_t, Met> met;  // of the first place there, whose elements are taken
      for (int64_t u = 0; u < tile && first + u < windows_; ++u)
        for (int64_t q = 0; q < places_; ++q) {
          const Met own{is_ever[static_cast<size_t>(u * places_ + q)], is_element(first + u, q)};
          const Met& other = met.try_emplace(number(m, u, q), own).first->second;
          if (own.is_ever && (!other.is_ever || own.is_element != other.is_element)) return false;
        }
    }
    return true;
  }

  int64_t windows_, places_;
  std::vector<std::vector<int64_t>> tables_;
};

// Whether what a load takes at places that meet is the same. It is not, where a load walks the windows or
// their places by strides of its own, or by a number that is not of both.
bool may_share(const WindowProblem& problem, const WindowLine& line) {
  const Expr& expr = problem.site.expr;
  const std::vector<uint32_t> varies = varying_axes(expr);
  const uint32_t windows = 1u << line.axis, places = 1u << (problem.site.kept + line.places);
  const uint32_t kept = (1u << problem.site.kept) - 1;
  return std::ranges::all_of(expr.nodes, [&](const Node& node) {
    if (node.kind != Node::Kind::load) return true;
    uint32_t walked = 0;
    for (int axis = 0; axis < expr.domain.rank(); ++axis)
      if (node.access.strides[axis] != 0) walked |= 1u << axis;
    const bool is_held = node.access.is_indexed() || ((walked & kept) != 0 && (walked & ~kept) != 0);
    if (is_held && (walked & (windows | places)) != 0) return false;
    return std::ranges::all_of(node.args, [&](int arg) {
      const uint32_t own = arg < 0 ? 0 : varies[static_cast<size_t>(arg)];
      return (own & places) == 0 || (own & windows) != 0;
    });
  });
}

WindowLine line_along(const WindowProblem& problem, int axis) {
  WindowLine line{.axis = axis, .places = places_with(problem, axis)};
  if (line.places < 0 || !may_share(problem, line)) return line;
  const Tables tables(problem, line);
  for (int64_t tile = 1; tile <= kMostLongTile; ++tile)
    line.meeting[static_cast<size_t>(tile)] = tables.meeting(tile);
  for (line.period = 1; line.period < 2 * kMostTile; ++line.period)
    if (tables.meeting(2 * line.period).divisor == line.period) break;
  return line;
}

}  // namespace

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
  Counting counting(problem.fusion, expr);
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
  expr = merge_axes(without_dead_nodes(expr));
  name_numbers(fusion, expr);
  expr = without_twins(expr);
  keep_short(fusion, expr);
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
  problem.site.short_forms = fits_short_forms(problem.site);
  problem.index_bits = index_bits(problem.site.expr);
  problem.widest = widest_vector(problem);
  return problem;
}

}  // namespace fusor
