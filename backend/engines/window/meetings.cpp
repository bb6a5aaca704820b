// Owns how places of neighbouring windows meet along an axis: found by counting them all.
#include "backend/engines/window/meetings.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "backend/engines/elementwise/vectors.h"
#include "backend/engines/window/counting.h"

namespace fusor {

namespace {

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
    WindowCounting counting(problem.fusion, expr);
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

}  // namespace

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

}  // namespace fusor
