// Owns the rules and expansions of pooling and interpolation: windows are gathered, never scattered.
#include "core/ops/resample.h"

#include <array>
#include <limits>

#include "core/ops/expansion.h"
#include "core/ops/rules.h"

namespace fusor {

namespace {

Dims spatial_of(const Dims& x) { return Dims({x.begin() + 2, static_cast<size_t>(x.rank() - 2)}); }

Dims or_filled(const Dims& list, int count, int64_t value) {
  return list.empty() ? Dims::filled(count, value) : list;
}

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
  Dims y{x[0], x[1]};
  for (int i = 0; i < spatial; ++i) {
    const int64_t padded = x[i + 2] + op.pre_padding[i] + op.post_padding[i];
    if (padded < op.window[i])
      fail("{}: spatial dim {}: a window of {} does not fit the padded extent {}", call.label, i,
           op.window[i], padded);
    y.push_back((padded - op.window[i]) / op.stride[i] + 1);
    const int64_t last = (y.back() - 1) * op.stride[i] - op.pre_padding[i];
    if (op.pre_padding[i] >= op.window[i] || last >= x[i + 2])
      fail("{}: spatial dim {}: a window of {} lies in the padding alone (x has {}, padding {} and {})",
           call.label, i, op.window[i], x[i + 2], op.pre_padding[i], op.post_padding[i]);
  }
  return y;
}

Dims interpolated(const Call& call, const ResampleAttributes& op, const Dims& x) {
  const int spatial = x.rank() - 2;
  expect_list(call, "output_size", op.output_size, spatial, 1);
  expect_list(call, "step", op.step, spatial, 0);
  expect_list(call, "denominator", op.denominator, spatial, 1);
  expect_list(call, "shift", op.shift, spatial, std::numeric_limits<int32_t>::min());
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

// Positions and places in windows as coordinates: tensors [1, 1, positions, places], of integers.
class Windows {
 public:
  Windows(Expansion& e, const Dims& positions, const Dims& places)
      : e_(e), positions_(positions), places_(places) {
    position_ = e.index({1, 1, element_count(positions), 1}, 2);
    place_ = e.index({1, 1, 1, element_count(places)}, 3);
  }

  int position(int axis) { return coordinate(position_, positions_, axis); }
  int place(int axis) { return coordinate(place_, places_, axis); }
  int place() const { return place_; }
  int64_t positions() const { return element_count(positions_); }
  int64_t places() const { return element_count(places_); }

  // Whether lower <= value < upper.
  int within(int value, int64_t lower, int64_t upper) {
    return e_.logical_and(e_.cmp_ge(value, e_.integer(lower)), e_.cmp_lt(value, e_.integer(upper)));
  }

 private:
  // One coordinate of a row-major number.
  int coordinate(int number, const Dims& dims, int axis) {
    int64_t inner = 1;
    for (int i = axis + 1; i < dims.rank(); ++i) inner *= dims[i];
    const int outer = inner == 1 ? number : e_.div(number, e_.integer(inner));
    return axis == 0 ? outer : e_.mod(outer, e_.integer(dims[axis]));
  }

  Expansion& e_;
  Dims positions_, places_;
  int position_ = -1, place_ = -1;
};

// The spatial dims as one, and an axis beside it: [N, C, positions, 1].
int flattened(Expansion& e, int x) {
  const Dims dims = e.dims(x);
  return e.reshape(x, {dims[0], dims[1], element_count(spatial_of(dims)), 1});
}

// A row-major number where `inside` holds, else -1, which gather reads as 0.
int row_major(Expansion& e, const std::vector<int>& at, const Dims& dims, int inside) {
  int number = at[0];
  for (int i = 1; i < dims.rank(); ++i)
    number = e.add(e.mul(number, e.integer(dims[i])), at[static_cast<size_t>(i)]);
  return e.binary_select(number, e.integer(-1), inside);
}

// The elements of x that its windows read.
struct Taps {
  int values;  // [N, C, positions, places], 0 in the padding
  int inside;  // [1, 1, positions, places]
  int place;   // [1, 1, 1, places]
};

Taps taps_of(Expansion& e, const ResampleAttributes& op, int x, const Dims& y) {
  const Dims from = spatial_of(e.dims(x));
  Windows windows(e, spatial_of(y), op.window);
  std::vector<int> at;
  int inside = -1;
  for (int i = 0; i < from.rank(); ++i) {
    const int start =
        e.sub(e.mul(windows.position(i), e.integer(op.stride[i])), e.integer(op.pre_padding[i]));
    at.push_back(e.add(start, windows.place(i)));
    const int fits = windows.within(at.back(), 0, from[i]);
    inside = inside < 0 ? fits : e.logical_and(inside, fits);
  }
  return {e.gather(flattened(e, x), row_major(e, at, from, inside), 2), inside, windows.place()};
}

// Below every number of the type.
int lowest(Expansion& e, DataType type) {
  if (is_real(type)) return e.constant(-std::numeric_limits<double>::infinity());
  return e.integer(type == DataType::i64 ? std::numeric_limits<int64_t>::min()
                                         : std::numeric_limits<int32_t>::min());
}

int largest_tap(Expansion& e, const Taps& taps) {
  return e.binary_select(taps.values, lowest(e, e.type(taps.values)), taps.inside);
}

// The first place of the maximum: [N, C, positions, 1].
int place_of_maximum(Expansion& e, const Taps& taps, int values, int maximum) {
  const int64_t places = e.dims(taps.place)[3];
  const int is_maximum = e.logical_and(e.cmp_eq(values, maximum), taps.inside);
  return e.reduce(ReductionMode::min, e.binary_select(taps.place, e.integer(places), is_maximum), 3);
}

// --- interpolation -----------------------------------------------------------------------------------------

// Where results along one spatial dim come from: integers and a share, along the axis of `dims`.
struct Coordinates {
  int below, above, share;  // share of `above`, exact but for one division
};

Coordinates coordinates_of(Expansion& e, const ResampleAttributes& op, int axis, int64_t extent,
                           const Dims& dims, int along) {
  const int64_t denominator = op.denominator[axis];
  const int last = e.integer(extent - 1);
  int number = e.add(e.mul(e.index(dims, along), e.integer(op.step[axis])), e.integer(op.shift[axis]));
  number = e.min(e.max(number, e.integer(0)), e.integer((extent - 1) * denominator));
  const int below = e.div(number, e.integer(denominator));
  const int rest = e.mod(number, e.integer(denominator));
  return {below, e.min(e.add(below, e.integer(1)), last),
          e.div(e.real(rest), e.constant(static_cast<double>(denominator)))};
}

// x interpolated along one spatial dim.
int along_dim(Expansion& e, const ResampleAttributes& op, int x, int i) {
  const int axis = i + 2;
  Dims dims = Dims::filled(e.dims(x).rank(), 1);
  dims[axis] = op.output_size[i];
  const Coordinates at = coordinates_of(e, op, i, e.dims(x)[axis], dims, axis);
  const int below = e.gather(x, at.below, axis);
  if (op.mode == ResampleMode::nearest) return below;
  return e.add(below, e.mul(e.sub(e.gather(x, at.above, axis), below), at.share));
}

// The gradient along one spatial dim: every result's shares of the elements, as a matrix.
int back_along_dim(Expansion& e, const ResampleAttributes& op, int dy, int i, int64_t extent) {
  const int axis = i + 2;
  const Dims dims = e.dims(dy);
  const int64_t results = op.output_size[i];
  const Coordinates at = coordinates_of(e, op, i, extent, {1, 1, results}, 2);
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
    for (int i = 0; i < output_size.rank(); ++i) x = along_dim(e, *this, x, i);
    e.result("y", x);
    return;
  }
  const Taps taps = taps_of(e, *this, x, y);
  if (mode == ResampleMode::maxpool) {
    const int values = largest_tap(e, taps);
    const int maximum = e.reduce(ReductionMode::max, values, 3);
    if (e.wants("y")) e.result("y", e.reshape(maximum, y));
    if (e.wants("index")) e.result("index", e.reshape(place_of_maximum(e, taps, values, maximum), y));
    return;
  }
  const int sum = e.reduce(ReductionMode::add, e.real(taps.values), 3);
  const int count = mode == ResampleMode::avgpool_include_padding
                        ? e.constant(static_cast<double>(element_count(window)))
                        : e.reduce(ReductionMode::add, e.cast(taps.inside, e.compute()), 3);
  e.result("y", e.reshape(e.div(sum, count), y));
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
    for (int i = output_size.rank(); i-- > 0;) dx = back_along_dim(e, *this, dx, i, spatial[i]);
    e.result("dx", dx);
    return;
  }
  // An element lies in so many windows along each dim: the last that begins at or before it, and those
  // before.
  Dims reach = window;
  for (int i = 0; i < reach.rank(); ++i) reach[i] = (window[i] - 1) / stride[i] + 1;
  Windows windows(e, spatial, reach);
  std::vector<int> at;
  int inside = -1, place = -1, count = -1;
  for (int i = 0; i < spatial.rank(); ++i) {
    const int padded = e.add(windows.position(i), e.integer(pre_padding[i]));
    at.push_back(e.sub(e.div(padded, e.integer(stride[i])), windows.place(i)));
    const int begin = e.mul(at.back(), e.integer(stride[i]));
    const int tap = e.sub(padded, begin);
    const int fits =
        e.logical_and(windows.within(at.back(), 0, results[i]), windows.within(tap, 0, window[i]));
    inside = inside < 0 ? fits : e.logical_and(inside, fits);
    place = place < 0 ? tap : e.add(e.mul(place, e.integer(window[i])), tap);
    const int end = e.min(e.add(begin, e.integer(window[i])), e.integer(spatial[i] + pre_padding[i]));
    const int taps = e.max(e.sub(end, e.max(begin, e.integer(pre_padding[i]))), e.integer(1));
    count = count < 0 ? taps : e.mul(count, taps);
  }
  const int from = row_major(e, at, results, inside);
  int share = e.gather(flattened(e, e.input("dy")), from, 2);
  if (mode == ResampleMode::maxpool) {
    int index = e.input("index");
    if (index < 0) {
      const Taps taps = taps_of(e, *this, e.input("x"), y);
      const int values = largest_tap(e, taps);
      index = place_of_maximum(e, taps, values, e.reduce(ReductionMode::max, values, 3));
    } else {
      index = flattened(e, index);
    }
    const int is_maximum = e.logical_and(inside, e.cmp_eq(e.gather(index, from, 2), place));
    share = e.binary_select(e.real(share), e.constant(0), is_maximum);
  } else if (mode == ResampleMode::avgpool_exclude_padding) {
    share = e.div(e.real(share), e.real(count));
  }
  int dx = e.reduce(ReductionMode::add, e.real(share), 3);
  if (mode == ResampleMode::avgpool_include_padding)
    dx = e.div(dx, e.constant(static_cast<double>(element_count(window))));
  e.result("dx", e.reshape(dx, x));
}

}  // namespace fusor
