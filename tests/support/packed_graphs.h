// Owns graphs that copy elements to packed types at every odd alignment, and their exact check: what tests of
// both devices run.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>

#include "core/convert.h"
#include "core/print.h"
#include "frontend/graph_builder.h"

namespace fusor::test {

inline constexpr DataType kPackedTypes[] = {DataType::f4_e2m1, DataType::i4, DataType::b1};

/// Every packed type, rows of 1 to 19 elements in every place: dense, with gaps of one or three elements
/// between rows, the axes the other way round, elements two apart; of three axes, too; and far apart, so that
/// rows or single elements are runs of their own, some of which meet in a byte.
inline void for_each_alignment(const std::function<void(DataType, const Dims&, const Strides&)>& visit) {
  for (const DataType type : kPackedTypes)
    for (int64_t n = 1; n <= 19; n += n < 10 ? 1 : 3) {
      visit(type, {n}, {1});
      for (const int64_t gap : {0, 1, 3}) visit(type, {3, n}, {n + gap, 1});
      visit(type, {3, n}, {1, 3});
      visit(type, {3, n}, {2 * n + 1, 2});
      visit(type, {2, 3, n}, {3 * n + 1, n, 1});
      visit(type, {2, 3, n}, {n, 2 * n + 1, 1});
      visit(type, {3, n}, {2 * n + 199, 1});
      visit(type, {3, n}, {66 * (n - 1) + 1, 66});
    }
}

/// y = x + x, in another place, from fp16.
inline Graph doubled(DataType type, const Dims& dims, const Strides& strides) {
  GraphBuilder g("doubled");
  const Tensor x = g.input("x", dims, DataType::f16);
  g.output(g.add(x, x), {.name = "y", .type = type, .strides = strides});
  return g.finish();
}

/// y = x, both packed, each in a place of its own.
inline Graph moved(DataType type, const Dims& dims, const Strides& from, const Strides& to) {
  GraphBuilder g("moved");
  const Tensor x = g.input("x", dims, type, {.strides = from});
  g.output(g.identity(x), {.name = "y", .type = type, .strides = to});
  return g.finish();
}

/// Rows by their largest magnitude, and that: what quantisation is.
inline Graph quantised(DataType type, const Dims& dims) {
  GraphBuilder g("quantised");
  const Tensor x = g.input("x", dims, DataType::bf16);
  const Tensor largest = g.reduce(x, ReductionMode::amax, {dims.rank() - 1});
  g.output(g.div(g.mul(x, g.constant(6.0)), g.max(largest, g.constant(0.125))), {.name = "y", .type = type});
  g.output(largest, {.name = "largest", .type = DataType::f32});
  return g.finish();
}

/// Calls visit(place in a, place in b) for every element.
inline void for_each_pair(const Tensor& a, const Tensor& b,
                          const std::function<void(int64_t, int64_t)>& visit) {
  for (int64_t element = 0; element < element_count(a.dims); ++element) {
    int64_t rest = element, in_a = 0, in_b = 0;
    for (int axis = a.dims.rank() - 1; axis >= 0; --axis) {
      in_a += rest % a.dims[axis] * a.strides[axis];
      in_b += rest % a.dims[axis] * b.strides[axis];
      rest /= a.dims[axis];
    }
    visit(in_a, in_b);
  }
}

/// Holds every y against `scale` times its x, rounded.
inline void expect_scaled(const Tensor& x, const void* xs, const Tensor& y, const void* ys, double scale) {
  for_each_pair(x, y, [&](int64_t from, int64_t to) {
    ASSERT_EQ(load_real(y.type, ys, to), round_to(y.type, scale * load_real(x.type, xs, from)))
        << to_string(y.type) << " " << to_string(y.dims) << " strides " << to_string(y.strides) << " at "
        << to;
  });
}

}  // namespace fusor::test
