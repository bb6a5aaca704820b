// Owns the rules and expansions of pooling and interpolation: windows are gathered, never scattered.
#include "core/ops/resample.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/ops/expansion.h"
#include "core/ops/rules.h"

namespace fusor {

namespace {

Dims spatial_of(const Dims& x) { return Dims({x.begin() + 2, static_cast<size_t>(x.rank() - 2)}); }

void expect_list(const Call& call, std::string_view name, const Dims& list, int spatial, int64_t least) {
  expect_entries(call, name, list, spatial, "spatial dims");
  for (const int64_t value : list)
    if (value < least || value > std::numeric_limits<int32_t>::max())
      fail("{}: {} {} has an entry outside {} to 2147483647", call.label, name, to_string(list), least);
}

void refuse_list(const Call& call, std::string_view name, const Dims& list, ResampleMode mode) {
  if (!list.empty()) fail("{}: {} has no {}; got {}", call.label, to_string(mode), name, to_string(list));
}

// Dims of y.
Dims pooled(const Call& call, const ResampleAttributes& op, const Dims& x) {
  const int spatial = x.rank() - 2;
  expect_list(call, "window", op.window, spatial, 1);
  expect_list(call, "stride", op.stride, spatial, 1);
  expect_list(call, "pre_padding", op.pre_padding, spatial, 0);
  expect_list(call, "post_padding", op.post_padding, spatial, 0);
  for (const auto& [name, list] : {std::pair<std::string_view, const Dims&>{"output_size", op.output_size},
                                   std::pair<std::string_view, const Dims&>{"step", op.step},
                                   std::pair<std::string_view, const Dims&>{"shift", op.shift},
                                   std::pair<std::string_view, const Dims&>{"denominator", op.denominator}})
    refuse_list(call, name, list, op.mode);
  if (op.align_corners) fail("{}: {} has no align_corners", call.label, to_string(op.mode));
  Dims y{x[0], x[1]};
  for (int i = 0; i < spatial; ++i) {
    const int64_t padded = x[i + 2] + op.pre_padding[i] + op.post_padding[i];
    if (padded < op.window[i])
      fail("{}: spatial dim {}: a window of {} does not fit the padded extent {}", call.label, i,
           op.window[i], padded);
    y.push_back((padded - op.window[i]) / op.stride[i] + 1);
    const int64_t last = (y.back() - 1) * op.stride[i] - op.pre_padding[i];
    // Its maximum is the least number and its total is 0, but it has no elements to divide by.
    const bool is_empty = op.pre_padding[i] >= op.window[i] || last >= x[i + 2];
    if (is_empty && op.mode == ResampleMode::avgpool_exclude_padding)
      fail("{}: spatial dim {}: a window of {} lies in the padding alone (x has {}, padding {} and {})",
           call.label, i, op.window[i], x[i + 2], op.pre_padding[i], op.post_padding[i]);
  }
  return y;
}

Dims interpolated(const Call& call, const ResampleAttributes& op, const Dims& x) {
  const int spatial = x.rank() - 2;
  expect_list(call, "output_size", op.output_size, spatial, 1);
  if (op.says_coordinates()) {
    if (op.align_corners)
      fail("{}: says its coordinates twice: align_corners, and step, shift and denominator", call.label);
    expect_list(call, "step", op.step, spatial, 0);
    expect_list(call, "denominator", op.denominator, spatial, 1);
    expect_list(call, "shift", op.shift, spatial, std::numeric_limits<int32_t>::min());
  }
  for (const auto& [name, list] : {std::pair<std::string_view, const Dims&>{"window", op.window},
                                   std::pair<std::string_view, const Dims&>{"stride", op.stride},
                                   std::pair<std::string_view, const Dims&>{"pre_padding", op.pre_padding},
                                   std::pair<std::string_view, const Dims&>{"post_padding", op.post_padding}})
    refuse_list(call, name, list, op.mode);
  Dims y{x[0], x[1]};
  for (const int64_t extent : op.output_size) y.push_back(extent);
  return y;
}

Dims forward_dims(const Call& call, const ResampleAttributes& op, const Dims& x) {
  if (x.rank() < 3 || x.rank() > 5)
    fail("{}: x {} has rank {}; it takes N, C and 1 to 3 spatial dims", call.label, to_string(x), x.rank());
  expect_extents(call, {"x", x});
  return op.pools() ? pooled(call, op, x) : interpolated(call, op, x);
}

// --- windows -----------------------------------------------------------------------------------------------

// Windows over the spatial dims, in tensors [N, C, positions, places, positions, places ...]: a pair of axes
// for each spatial dim. What lies along one pair is a tensor of that pair alone.
class Windows {
 public:
  // A tensor of so many positions along each dim, and places at each.
  Windows(Expansion& e, const Dims& positions, const Dims& places)
      : e_(e), positions_(positions), places_(places) {}

  int spatial() const { return positions_.rank(); }
  static int axis(int i) { return 2 + 2 * i; }
  int position(int i) { return e_.index(pair(i), axis(i)); }
  int place(int i) { return e_.index(pair(i), axis(i) + 1); }
  // Whether lower <= value < upper.
  int within(int value, int64_t lower, int64_t upper) {
    return e_.logical_and(e_.cmp_ge(value, e_.integer(lower)), e_.cmp_lt(value, e_.integer(upper)));
  }
  // An index where it holds, else one that a gather reads 0 at.
  int where(int holds, int index) { return e_.binary_select(index, e_.integer(-1), holds); }

  // Elements of [N, C, spatial ...] at an index along each dim.
  int taken(int x, const std::vector<int>& at) {
    int taken = e_.paired(x, 2);
    for (int i = 0; i < spatial(); ++i) taken = e_.gather(taken, at[static_cast<size_t>(i)], axis(i));
    return taken;
  }
  // Over the places of each position.
  int reduced(ReductionMode mode, int x) {
    Dims dims = e_.dims(x);
    for (int i = 0; i < spatial(); ++i) dims[axis(i) + 1] = 1;
    return e_.reduce_to(mode, x, dims);
  }

 private:
  Dims pair(int i) const {
    Dims dims = Dims::filled(2 + 2 * spatial(), 1);
    dims[axis(i)] = positions_[i];
    dims[axis(i) + 1] = places_[i];
    return dims;
  }

  Expansion& e_;
  Dims positions_, places_;
};

// One number of coordinates, row-major.
int row_major(Expansion& e, const std::vector<int>& at, const Dims& dims) {
  int number = at[0];
  for (int i = 1; i < dims.rank(); ++i)
    number = e.add(e.mul(number, e.integer(dims[i])), at[static_cast<size_t>(i)]);
  return number;
}

// Where windows read x.
struct Taps {
  Windows windows;
  std::vector<int> at = {};  // along each dim; -1 in the padding
  int inside = -1;           // which of them are elements; -1: all
  int place = -1;            // of each in its window, row-major

  // [N, C, positions, places ...], 0 in the padding. Who needs them twice reads x twice: elements of all
  // windows are more than anyone would keep.
  int values(int x) { return windows.taken(x, at); }
};

Taps taps_of(Expansion& e, const ResampleAttributes& op, int x, const Dims& y) {
  const Dims from = spatial_of(e.dims(x));
  Taps taps{Windows(e, spatial_of(y), op.window)};
  Windows& windows = taps.windows;
  std::vector<int> places, &at = taps.at;
  const auto join = [&](int& all, int one) { all = all < 0 ? one : e.logical_and(all, one); };
  for (int i = 0; i < from.rank(); ++i) {
    const int start =
        e.sub(e.mul(windows.position(i), e.integer(op.stride[i])), e.integer(op.pre_padding[i]));
    places.push_back(windows.place(i));
    at.push_back(e.add(start, places.back()));
    const int64_t last = (y[i + 2] - 1) * op.stride[i] - op.pre_padding[i] + op.window[i];
    if (op.pre_padding[i] == 0 && last <= from[i]) continue;
    const int fits = windows.within(at.back(), 0, from[i]);
    at.back() = windows.where(fits, at.back());
    join(taps.inside, fits);
  }
  taps.place = row_major(e, places, op.window);
  return taps;
}

// Below every number of the type.
int lowest(Expansion& e, DataType type) {
  if (is_real(type)) return e.constant(-std::numeric_limits<double>::infinity());
  return e.integer(type == DataType::i64 ? std::numeric_limits<int64_t>::min()
                                         : std::numeric_limits<int32_t>::min());
}

int largest_tap(Expansion& e, Taps& taps, int x) {
  const int values = taps.values(x);
  if (taps.inside < 0) return values;
  return e.binary_select(values, lowest(e, e.type(values)), taps.inside);
}

// The first place of the maximum: [N, C, positions, 1 ...]. Nothing is less than NaN: where that is the
// maximum, it is the first element of the window.
int place_of_maximum(Expansion& e, Taps& taps, const ResampleAttributes& op, int x, int maximum) {
  const int none = e.integer(element_count(op.window));
  const int is_less = e.cmp_lt(largest_tap(e, taps, x), maximum);
  int place = e.binary_select(none, taps.place, is_less);
  if (taps.inside >= 0) place = e.binary_select(place, none, taps.inside);
  return taps.windows.reduced(ReductionMode::min, place);
}

// How many elements lie in each window: [1, 1, positions, 1 ...].
int elements_in_windows(Expansion& e, const ResampleAttributes& op, const Dims& x, const Dims& y) {
  int count = -1;
  for (int i = 0; i < op.window.rank(); ++i) {
    Dims dims = Dims::filled(2 + 2 * op.window.rank(), 1);
    dims[Windows::axis(i)] = y[i + 2];
    const int start =
        e.sub(e.mul(e.index(dims, Windows::axis(i)), e.integer(op.stride[i])), e.integer(op.pre_padding[i]));
    const int end = e.min(e.add(start, e.integer(op.window[i])), e.integer(x[i + 2]));
    const int taps = e.sub(end, e.max(start, e.integer(0)));
    count = count < 0 ? taps : e.mul(count, taps);
  }
  return count;
}

// One window is all of x.
bool is_of_all(const ResampleAttributes& op, const Dims& x) {
  const Dims none = Dims::filled(op.window.rank(), 0);
  return op.window == spatial_of(x) && op.pre_padding == none && op.post_padding == none;
}

// Windows share no element, and leave none over.
bool stand_side_by_side(const ResampleAttributes& op, const Dims& x, const Dims& y) {
  const Dims none = Dims::filled(op.window.rank(), 0), all = spatial_of(x), results = spatial_of(y);
  if (op.window != op.stride || op.pre_padding != none || op.post_padding != none) return false;
  for (int i = 0; i < all.rank(); ++i)
    if (all[i] != results[i] * op.window[i]) return false;
  return true;
}

// --- interpolation -----------------------------------------------------------------------------------------

// Where results along one spatial dim come from: integers and a share, of the index's dims.
struct Coordinates {
  int below, above, share;  // share of `above`, exact but for one division
};

//   number = index * step + shift, over the denominator; the three are divided by what they share
struct Line {
  int64_t step, shift, denominator;
  int64_t extent, results;

  Line(const ResampleAttributes& op, int i, int64_t extent_) : extent(extent_), results(op.output_size[i]) {
    const int64_t shared = std::gcd(std::gcd(op.step[i], op.shift[i]), op.denominator[i]);
    step = op.step[i] / shared;
    shift = op.shift[i] / shared;
    denominator = op.denominator[i] / shared;
  }
  // Whether int32 is too narrow for the largest number, of an index below so many.
  bool is_wide(int64_t indices) const {
    const auto magnitude = [](int64_t value) { return std::abs(static_cast<double>(value)); };
    const double largest = std::max(magnitude(step) * magnitude(indices) + magnitude(shift),
                                    (magnitude(extent) + 1) * magnitude(denominator) + magnitude(shift));
    return largest > std::numeric_limits<int32_t>::max();
  }
  // The number of a result; the index is int64 where is_wide().
  int number(Expansion& e, int index) const {
    const int given = e.add(e.mul(index, e.integer(step)), e.integer(shift));
    return e.min(e.max(given, e.integer(0)), e.integer((extent - 1) * denominator));
  }
  Coordinates at(Expansion& e, int index) const {
    const int number = this->number(e, index);
    const int below = e.div(number, e.integer(denominator));
    const int rest = e.mod(number, e.integer(denominator));
    return {below, e.min(e.add(below, e.integer(1)), e.integer(extent - 1)),
            e.div(e.real(rest), e.constant(static_cast<double>(denominator)))};
  }
};

int as_wide(Expansion& e, int index, bool is_wide) { return is_wide ? e.cast(index, DataType::i64) : index; }

Coordinates coordinates_of(Expansion& e, const Line& line, const Dims& dims, int along) {
  return line.at(e, as_wide(e, e.index(dims, along), line.is_wide(line.results)));
}

// The neighbours that each result lies between, weighted by their shares.
int mixed(Expansion& e, const ResampleAttributes& op, int x, const Dims& spatial) {
  Windows windows(e, op.output_size, Dims::filled(spatial.rank(), 2));
  std::vector<int> at, shares;
  for (int i = 0; i < spatial.rank(); ++i) {
    const Line line(op, i, spatial[i]);
    const int denominator = e.integer(line.denominator), place = windows.place(i);
    const int number = line.number(e, as_wide(e, windows.position(i), line.is_wide(line.results)));
    const int below = e.div(number, denominator), index = e.add(below, place);
    at.push_back(e.binary_select(index, e.integer(-1), e.cmp_lt(index, e.integer(line.extent))));
    const int rest = e.sub(number, e.mul(below, denominator));
    const int near = e.binary_select(e.sub(denominator, rest), rest, e.cmp_lt(place, e.integer(1)));
    shares.push_back(e.div(e.real(near), e.constant(static_cast<double>(line.denominator))));
  }
  int taken = e.real(windows.taken(x, at));
  for (const int share : shares) taken = e.mul(taken, share);
  return windows.reduced(ReductionMode::add, taken);
}

// The results that read each element along one dim: those whose number is from the denominators of the
// element before on, of nearest ones from those of its own, up to those of the next.
class Readers {
 public:
  Readers(const ResampleAttributes& op, int i, int64_t extent)
      : line_(op, i, extent), is_nearest_(op.mode == ResampleMode::nearest) {
    constexpr int64_t kLongest = int64_t{1} << 22;  // that is counted here
    if (line_.step == 0 || extent > kLongest || line_.results > kLongest) return;
    std::vector<int64_t> last(static_cast<size_t>(extent), -1);
    for (int64_t result = 0; result < line_.results; ++result) {
      const int64_t number =
          std::clamp<int64_t>(result * line_.step + line_.shift, 0, (extent - 1) * line_.denominator);
      const auto below = static_cast<size_t>(number / line_.denominator);
      last[below] = result;
      if (!is_nearest_ && number % line_.denominator != 0) last[below + 1] = result;
    }
    for (int64_t element = 0; element < extent; ++element)
      most_ = std::max(most_, last[static_cast<size_t>(element)] - first(element) + 1);
  }
  // The most readers that one element has; 0 where they are not counted.
  int64_t most() const { return most_; }

  // The index of reader number `place` of the element at `position`, -1 where it is none; and its share,
  // where it has one (else -1: all of it). A share falls with the distance from the element.
  std::pair<int, int> at(Expansion& e, int position, int place) const {
    const int denominator = e.integer(line_.denominator), zero = e.integer(0);
    position = as_wide(e, position, line_.is_wide(line_.results + most_));
    const int own = e.mul(position, denominator);
    const int begin = e.div(e.add(own, e.integer(offset())), e.integer(line_.step));
    int first = e.max(begin, zero);
    if (begins_clamped()) first = e.binary_select(zero, first, e.cmp_lt(position, e.integer(1)));
    const int index = e.add(first, place);
    const int distance = e.sub(line_.number(e, index), own);
    const int64_t least = is_nearest_ ? 0 : 1 - line_.denominator;
    const int reads = e.logical_and(e.cmp_ge(distance, e.integer(least)), e.cmp_lt(distance, denominator));
    const int exists = e.cmp_lt(index, e.integer(line_.results));
    const int read = e.binary_select(index, e.integer(-1), e.logical_and(exists, reads));
    if (is_nearest_) return {read, -1};
    const int near = e.sub(denominator, e.max(distance, e.sub(zero, distance)));
    return {read, e.div(e.real(near), e.constant(static_cast<double>(line_.denominator)))};
  }

 private:
  // Added to an element's denominators, so that the quotient by the step, which is cut off, is the first
  // result at or beyond them (nearest) or beyond those of the element before.
  int64_t offset() const { return line_.step - line_.shift - (is_nearest_ ? 1 : line_.denominator); }
  // Whether results in front of the first element are taken for ones at it.
  bool begins_clamped() const { return is_nearest_ ? line_.shift < 0 : line_.shift <= -line_.denominator; }
  int64_t first(int64_t element) const {
    if (element == 0) return 0;
    return std::max<int64_t>((element * line_.denominator + offset()) / line_.step, 0);
  }

  Line line_;
  bool is_nearest_;
  int64_t most_ = 0;
};

// The gradient of all dims at once, by the results that read each element; -1 where they are too many.
int total_of_readers(Expansion& e, const ResampleAttributes& op, const Dims& spatial) {
  constexpr int64_t kMost = 256;
  std::vector<Readers> all;
  Dims places;
  int64_t taps = 1;
  for (int i = 0; i < spatial.rank(); ++i) {
    all.emplace_back(op, i, spatial[i]);
    places.push_back(all.back().most());
    taps *= std::min(all.back().most(), kMost + 1);
  }
  if (taps == 0 || taps > kMost) return -1;
  Windows windows(e, spatial, places);
  std::vector<int> at, shares;
  for (int i = 0; i < spatial.rank(); ++i) {
    const auto [index, share] = all[static_cast<size_t>(i)].at(e, windows.position(i), windows.place(i));
    at.push_back(index);
    if (share >= 0) shares.push_back(share);
  }
  int taken = e.real(windows.taken(e.input("dy"), at));
  for (const int share : shares) taken = e.mul(taken, share);
  return windows.reduced(ReductionMode::add, taken);
}

// The gradient along one spatial dim: every result's shares of the elements, as a matrix.
int back_along_dim(Expansion& e, const ResampleAttributes& op, int dy, int i, int64_t extent) {
  const int axis = i + 2;
  const Dims dims = e.dims(dy);
  const int64_t results = op.output_size[i];
  const Coordinates at = coordinates_of(e, Line(op, i, extent), {1, 1, results}, 2);
  const int element = e.index({1, extent, 1}, 1);
  const int zero = e.constant(0);
  int shares = -1;  // [1, elements, results]
  if (op.mode == ResampleMode::nearest) {
    shares = e.binary_select(e.constant(1), zero, e.cmp_eq(element, at.below));
  } else {
    const int low = e.binary_select(e.sub(e.constant(1), at.share), zero, e.cmp_eq(element, at.below));
    shares = e.add(low, e.binary_select(at.share, zero, e.cmp_eq(element, at.above)));
  }
  int64_t outer = 1, inner = 1;
  for (int j = 0; j < axis; ++j) outer *= dims[j];
  for (int j = axis + 1; j < dims.rank(); ++j) inner *= dims[j];
  Dims back = dims;
  back[axis] = extent;
  return e.reshape(e.matmul(shares, e.reshape(dy, {outer, results, inner})), back);
}

}  // namespace

std::string_view to_string(ResampleMode mode) {
  constexpr std::array<std::string_view, 5> kNames = {"maxpool", "avgpool_include_padding",
                                                      "avgpool_exclude_padding", "bilinear", "nearest"};
  return kNames[static_cast<size_t>(mode)];
}

void ResampleAttributes::fill_omitted(int rank) {
  const int spatial = rank > 2 ? rank - 2 : 0;
  if (!pools()) return;
  if (stride.empty()) stride = window;
  pre_padding = or_filled(pre_padding, spatial, 0);
  post_padding = or_filled(post_padding, spatial, 0);
}

ResampleAttributes ResampleAttributes::with_coordinates(const Dims& x) const {
  ResampleAttributes op = *this;
  if (pools() || says_coordinates()) return op;
  for (int i = 0; i < output_size.rank(); ++i) {
    const int64_t from = x[i + 2], to = output_size[i];
    // Centres: (i + 1/2) * from / to, less 1/2 where it is a coordinate and not an element.
    op.step.push_back(align_corners ? from - 1 : 2 * from);
    op.shift.push_back(align_corners || mode == ResampleMode::nearest ? 0 : from - to);
    op.denominator.push_back(align_corners ? std::max<int64_t>(to - 1, 1) : 2 * to);
  }
  return op;
}

// --- forward -----------------------------------------------------------------------------------------------

Roles ResampleForward::roles() const {
  if (mode != ResampleMode::maxpool) return {{{"x"}}, {{"y"}}};
  return {{{"x"}}, {{.name = "y", .optional = true}, {.name = "index", .optional = true, .own_type = true}}};
}

std::vector<Inferred> ResampleForward::infer(const Call& call) const {
  refuse_scalars(call);
  const Tensor& x = call.input(0);
  const Dims y = forward_dims(call, *this, x.dims);
  const DataType type =
      mode == ResampleMode::maxpool || mode == ResampleMode::nearest ? x.type : real_type(call);
  std::vector<Inferred> results{in_order_of(call, y, type, x)};
  if (mode == ResampleMode::maxpool) results.push_back(in_order_of(call, y, DataType::i32, x));
  return results;
}

void ResampleForward::expand(Expansion& e) const {
  int x = e.input("x");
  const Dims y = e.result_dims(e.wants("y") ? "y" : "index");
  if (!pools()) {
    const Dims from = e.dims(x);
    const ResampleAttributes op = with_coordinates(from);
    if (mode == ResampleMode::bilinear) {
      e.reshaped_result("y", e.rounded_total(mixed(e, op, x, spatial_of(from)), e.result_type("y")));
      return;
    }
    for (int i = output_size.rank(); i-- > 0;) {
      Dims dims = Dims::filled(from.rank(), 1);
      dims[i + 2] = output_size[i];
      x = e.gather(x, coordinates_of(e, Line(op, i, from[i + 2]), dims, i + 2).below, i + 2);
    }
    e.result("y", x);
    return;
  }
  if (is_of_all(*this, e.dims(x)) && !e.wants("index")) {
    const bool is_maximum = mode == ResampleMode::maxpool;
    e.reduced_result("y", is_maximum ? ReductionMode::max : ReductionMode::avg, is_maximum ? x : e.real(x));
    return;
  }
  Taps taps = taps_of(e, *this, x, y);
  if (mode == ResampleMode::maxpool) {
    // One of x's elements, which its type holds.
    const int maximum =
        e.rounded_total(taps.windows.reduced(ReductionMode::max, largest_tap(e, taps, x)), e.type(x));
    if (e.wants("y")) e.reshaped_result("y", maximum);
    if (e.wants("index")) {
      // Where windows lie is computed again, too: what both used would have to be stored.
      Taps again = taps_of(e, *this, x, y);
      e.reshaped_result(
          "index", e.rounded_total(place_of_maximum(e, again, *this, x, maximum), e.result_type("index")));
    }
    return;
  }
  // The mean of all places, or of elements alone.
  const int values = e.real(taps.values(x));
  const bool all = mode == ResampleMode::avgpool_include_padding || taps.inside < 0;
  const int mean = all ? taps.windows.reduced(ReductionMode::avg, values)
                       : e.div(taps.windows.reduced(ReductionMode::add, values),
                               e.cast(elements_in_windows(e, *this, e.dims(x), y), e.compute()));
  e.reshaped_result("y", e.rounded_total(mean, e.result_type("y")));
}

// --- backward ----------------------------------------------------------------------------------------------

Roles ResampleBackward::roles() const {
  Roles roles{{{"dy"}, {.name = "x", .optional = true}}, {{"dx"}}};
  if (mode == ResampleMode::maxpool) roles.inputs.push_back({.name = "index", .optional = true});
  return roles;
}

std::vector<Inferred> ResampleBackward::infer(const Call& call) const {
  refuse_scalars(call);
  const Tensor& dy = call.input(0);
  const Tensor *x = call.operand("x"), *index = call.operand("index");
  const Dims& dims = x != nullptr ? x->dims : call.given();
  if (dims.empty()) fail("{}: takes x, or the dims of dx", call.label);
  const Dims y = forward_dims(call, *this, dims);
  expect_dims(call, "dy", y);
  expect_dims(call, "index", y);
  expect_integers(call, "index");
  if (mode == ResampleMode::maxpool && x == nullptr && index == nullptr)
    fail("{}: takes x or index, to know the maxima by", call.label);
  return {in_order_of(call, dims, real_type(call), x != nullptr ? *x : dy)};
}

void ResampleBackward::expand(Expansion& e) const {
  const int dy = e.real(e.input("dy"));
  const Dims x = e.result_dims("dx"), y = e.dims(dy), spatial = spatial_of(x), results = spatial_of(y);
  if (!pools()) {
    int dx = dy;
    const ResampleAttributes op = with_coordinates(x);
    if (const int total = total_of_readers(e, op, spatial); total >= 0) {
      e.reshaped_result("dx", e.rounded_total(total, e.result_type("dx")));
      return;
    }
    for (int i = output_size.rank(); i-- > 0;) dx = back_along_dim(e, op, dx, i, spatial[i]);
    e.result("dx", dx);
    return;
  }
  if (mode != ResampleMode::maxpool && is_of_all(*this, x)) {
    e.result("dx", e.div(dy, e.constant(static_cast<double>(element_count(window)))));
    return;
  }
  if (mode != ResampleMode::maxpool && stand_side_by_side(*this, x, y)) {
    const int apart = e.paired(dy, 2);
    Dims repeated = e.dims(apart);
    for (int i = 0; i < window.rank(); ++i) repeated[2 * i + 3] = window[i];
    const int count = e.constant(static_cast<double>(element_count(window)));
    e.reshaped_result("dx", e.op(Pointwise{.mode = PointwiseMode::div}, {apart, count}, repeated));
    return;
  }
  // An element lies in so many windows along each dim: the last that begins at or before it, and those
  // before.
  Dims reach = window;
  for (int i = 0; i < reach.rank(); ++i) reach[i] = std::min((window[i] - 1) / stride[i] + 1, results[i]);
  Windows windows(e, spatial, reach);
  std::vector<int> at, places;
  int count = -1;
  for (int i = 0; i < spatial.rank(); ++i) {
    const int padded = e.add(windows.position(i), e.integer(pre_padding[i]));
    int last = e.div(padded, e.integer(stride[i]));
    if (reach[i] == results[i]) last = e.min(last, e.integer(results[i] - 1));
    const int window_at = e.sub(last, windows.place(i));
    const int begin = e.mul(window_at, e.integer(stride[i]));
    const int tap = e.sub(padded, begin);
    const int fits =
        e.logical_and(windows.within(window_at, 0, results[i]), windows.within(tap, 0, window[i]));
    at.push_back(windows.where(fits, window_at));
    // Where there is no window, or the element is none of its taps, the share is 0 whatever place this is.
    places.push_back(tap);
    const int end = e.min(e.add(begin, e.integer(window[i])), e.integer(spatial[i] + pre_padding[i]));
    const int taps = e.max(e.sub(end, e.max(begin, e.integer(pre_padding[i]))), e.integer(1));
    count = count < 0 ? taps : e.mul(count, taps);
  }
  int share = e.real(windows.taken(e.input("dy"), at));
  if (mode == ResampleMode::maxpool) {
    int index = e.input("index");
    if (index < 0) {
      const int x_in = e.input("x");
      Taps taps = taps_of(e, *this, x_in, y);
      const int maximum = taps.windows.reduced(ReductionMode::max, largest_tap(e, taps, x_in));
      Taps again = taps_of(e, *this, x_in, y);
      index = e.reshape(place_of_maximum(e, again, *this, x_in, maximum), y);
    }
    const int is_maximum = e.cmp_eq(windows.taken(index, at), row_major(e, places, window));
    share = e.binary_select(share, e.constant(0), is_maximum);
  } else if (mode == ResampleMode::avgpool_exclude_padding) {
    share = e.div(share, e.real(count));
  }
  int total = windows.reduced(ReductionMode::add, share);
  if (mode == ResampleMode::avgpool_include_padding)
    total = e.div(total, e.constant(static_cast<double>(element_count(window))));
  e.reshaped_result("dx", e.rounded_total(total, e.result_type("dx")));
}

}  // namespace fusor
