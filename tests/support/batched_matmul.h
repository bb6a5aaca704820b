// Owns graphs of matmuls over several batch axes, whose tensors share some of these, or lie along them in
// orders of their own.
#pragma once

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <vector>

#include "frontend/graph_builder.h"

namespace fusor::test {

/// How a tensor lies: which batch axes its matrices do not vary along, and its axes from the slowest to the
/// fastest (none: as they are numbered). Lines begin on multiples of `unit` bytes.
struct Lie {
  std::vector<int> shared = {};
  std::vector<int> order = {};
  int64_t unit = 16;
};

struct BatchedMatmul {
  std::string name;
  Dims batch;
  Lie a = {}, b = {}, y = {};
};

inline Dims over(const Dims& batch, int64_t rows, int64_t columns, const Lie& lie) {
  Dims dims = batch;
  for (const int axis : lie.shared) dims[axis] = 1;
  dims.push_back(rows);
  dims.push_back(columns);
  return dims;
}

inline Strides strides_of(const Dims& dims, DataType type, const Lie& lie) {
  std::vector<int> order = lie.order;
  if (order.empty()) {
    order.resize(static_cast<size_t>(dims.rank()));
    std::iota(order.begin(), order.end(), 0);
  }
  const int64_t unit = std::max<int64_t>(lie.unit / byte_size(type), 1);
  Strides strides = Dims::filled(dims.rank(), 1);
  int64_t next = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = next;
    next *= dims[order[i]];
    if (i + 1 == order.size()) next = (next + unit - 1) / unit * unit;
  }
  return strides;
}

inline Tensor laid_out(GraphBuilder& g, const std::string& name, const Dims& dims, DataType type,
                       const Lie& lie) {
  return g.input(name, dims, type, TensorOptions{.strides = strides_of(dims, type, lie)});
}

inline Tensor product(GraphBuilder& g, const BatchedMatmul& c, const Dims& mnk, DataType type) {
  const Tensor a = laid_out(g, "a", over(c.batch, mnk[0], mnk[2], c.a), type, c.a);
  const Tensor b = laid_out(g, "b", over(c.batch, mnk[2], mnk[1], c.b), type, c.b);
  return g.matmul(a, b, {.name = "mm"});
}

inline void store(GraphBuilder& g, const Tensor& y, const BatchedMatmul& c, const Dims& mnk, DataType type) {
  const Dims dims = over(c.batch, mnk[0], mnk[1], {});
  g.output(y, {.name = "y", .type = type, .strides = strides_of(dims, type, c.y)});
}

inline Graph batched_matmul(const BatchedMatmul& c, const Dims& mnk, DataType type, DataType result,
                            Precision precision = Precision::exact) {
  GraphBuilder g("batched", precision);
  store(g, product(g, c, mnk, type), c, mnk, result);
  return g.finish();
}

/// Two batch axes and three, shared by either operand, in other orders of either operand and of the result,
/// with lines along k and across it.
inline const std::array<BatchedMatmul, 10>& batched_matmuls() {
  static const std::array<BatchedMatmul, 10> kAll{{
      {"weights of heads", {3, 5}, {}, {.shared = {0}}},
      {"weights of heads along k", {3, 5}, {}, {.shared = {0}, .order = {0, 1, 3, 2}}},
      {"rows before heads", {3, 5}, {.order = {0, 2, 1, 3}}, {.shared = {0}}, {.order = {0, 2, 1, 3}}},
      {"a of one axis, b of the other", {3, 5}, {.shared = {1}}, {.shared = {0}}},
      {"heads in groups", {2, 3, 4}, {}, {.shared = {2}, .order = {0, 1, 2, 4, 3}}},
      {"the middle is shared", {2, 3, 4}, {}, {.shared = {1}}},
      {"the outer ones are shared", {2, 3, 4}, {.shared = {0, 2}}, {.order = {2, 0, 3, 1, 4}}},
      {"three orders",
       {2, 3, 4},
       {.order = {2, 3, 0, 1, 4}},
       {.order = {1, 0, 4, 2, 3}},
       {.order = {0, 3, 2, 1, 4}}},
      {"a result along its rows", {2, 3}, {.order = {1, 0, 3, 2}}, {}, {.order = {1, 3, 0, 2}}},
      {"four axes, two of which are one", {2, 3, 2, 2}, {.shared = {1}}, {.order = {1, 4, 0, 2, 3, 5}}},
  }};
  return kAll;
}

}  // namespace fusor::test
