// Owns matmuls whose rows belong to experts, for tests: the graph, and where the rows of each expert begin.
#pragma once

#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "frontend/graph_builder.h"

namespace fusor::test {

struct ExpertCase {
  int64_t rows = 300, k = 64, n = 96;
  std::vector<int32_t> first_rows = {0, 100, 200};  ///< of each expert
  DataType type = DataType::bf16;
  bool lies_across = false;  ///< weights in memory as [experts, n, k]
  bool has_matrix = false;   ///< tokens and results without the axis of one
  bool has_epilogue = false;
  bool leaves_product = false;  ///< what the epilogue is given is a result, too
  bool result_across = false;   ///< the result's rows are adjacent in memory

  int64_t experts() const { return static_cast<int64_t>(first_rows.size()); }
};

/// Inputs are x, w and first; with an epilogue, y is relu(x w + bias) times one number a row.
inline Graph expert_matmul(const ExpertCase& c) {
  GraphBuilder g("experts");
  const auto dims = [&](int64_t rows, int64_t columns) {
    return c.has_matrix ? Dims{rows, columns} : Dims{1, rows, columns};
  };
  const Tensor x = g.input("x", dims(c.rows, c.k), c.type);
  const Tensor w = c.lies_across ? g.transpose(g.input("w", {c.experts(), c.n, c.k}, c.type), {0, 2, 1})
                                 : g.input("w", {c.experts(), c.k, c.n}, c.type);
  Tensor y = g.moe_grouped_matmul(x, w, g.input("first", {c.experts(), 1, 1}, DataType::i32));
  if (c.leaves_product) g.output(y, {.name = "product", .type = c.type});
  if (c.has_epilogue) {
    y = g.relu(g.add(y, g.input("bias", dims(1, c.n), c.type)));
    y = g.mul(y, g.input("weight", dims(c.rows, 1), DataType::f32));
  }
  Strides across = packed_strides(dims(c.rows, c.n));
  across[across.rank() - 2] = 1;
  across[across.rank() - 1] = c.rows;
  g.output(y,
           {.name = "y", .type = c.type, .strides = c.result_across ? std::optional(across) : std::nullopt});
  return g.finish();
}

/// Gives `edit` the first rows.
inline void fill_experts(
    const ExpertCase& c,
    const std::function<void(const std::string&, const std::function<void(std::byte*)>&)>& edit) {
  edit("first", [&](std::byte* bytes) {
    std::memcpy(bytes, c.first_rows.data(), c.first_rows.size() * sizeof(int32_t));
  });
}

}  // namespace fusor::test
