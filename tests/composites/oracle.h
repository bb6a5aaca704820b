// Owns what the tests of composites share: graphs in fp64 by the oracle, and gradients by differences.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "backend/reference/reference.h"
#include "core/convert.h"
#include "frontend/graph_builder.h"

namespace fusor {

struct Operand64 {
  std::string name;
  Dims dims;
  std::vector<double> values;
  DataType type = DataType::f64;
};

/// Numbers that no sum cancels by chance.
inline std::vector<double> numbers(const Dims& dims, double seed, double scale = 1) {
  std::vector<double> values;
  for (int64_t i = 0; i < element_count(dims); ++i)
    values.push_back(scale * std::sin(12.9898 * static_cast<double>(i + 1) + 78.233 * seed));
  return values;
}
inline Operand64 random_operand(const std::string& name, const Dims& dims, double seed, double scale = 1) {
  return {name, dims, numbers(dims, seed, scale)};
}

using Write = std::function<std::vector<Tensor>(GraphBuilder&, const std::vector<Tensor>&)>;

/// The results of a graph in fp64, row-major.
inline std::vector<std::vector<double>> evaluated(const std::vector<Operand64>& operands,
                                                  const Write& write) {
  GraphBuilder g;
  std::vector<Tensor> inputs;
  inputs.reserve(operands.size());
  for (const Operand64& each : operands) inputs.push_back(g.input(each.name, each.dims, each.type));
  std::vector<std::string> names;
  for (const Tensor& result : write(g, inputs)) {
    names.push_back("result" + std::to_string(names.size()));
    OutputOptions options{.name = names.back()};
    if (is_real(result.type)) options.type = DataType::f64;
    options.layout = Layout::row_major;
    g.output(result, options);
  }
  const Graph graph = g.finish();
  std::vector<std::vector<std::byte>> bytes;
  std::vector<void*> pointers;
  for (const Tensor& tensor : graph.tensors) {
    bytes.emplace_back(static_cast<size_t>(tensor.bytes()), std::byte{0xcd});
    for (const Operand64& each : operands)
      if (each.name == tensor.name)
        for (size_t i = 0; i < each.values.size(); ++i)
          store_real(tensor.type, bytes.back().data(), static_cast<int64_t>(i), each.values[i]);
  }
  pointers.reserve(bytes.size());
  for (auto& each : bytes) pointers.push_back(each.data());
  evaluate_graph(graph, pointers);
  std::vector<std::vector<double>> results;
  for (const std::string& name : names) {
    const auto at = static_cast<size_t>(graph.find(name));
    results.emplace_back();
    for (int64_t i = 0; i < element_count(graph.tensors[at].dims); ++i)
      results.back().push_back(load_real(graph.tensors[at].type, pointers[at], i));
  }
  return results;
}

/// The gradients that `backward` gives of the operands named in `of`, against differences of `forward`'s
/// results weighed by `weights`: one list for each result of forward.
inline void expect_gradients(std::vector<Operand64> operands, const std::vector<size_t>& of,
                             const std::vector<std::vector<double>>& weights, const Write& forward,
                             const std::vector<Operand64>& more, const Write& backward) {
  constexpr double kStep = 1e-6;
  const auto loss = [&] {
    double total = 0;
    const auto results = evaluated(operands, forward);
    for (size_t r = 0; r < weights.size(); ++r)
      for (size_t i = 0; i < weights[r].size(); ++i) total += weights[r][i] * results[r][i];
    return total;
  };
  std::vector<Operand64> all = operands;
  all.insert(all.end(), more.begin(), more.end());
  const auto gradients = evaluated(all, backward);
  for (size_t k = 0; k < of.size(); ++k) {
    std::vector<double>& values = operands[of[k]].values;
    ASSERT_EQ(gradients[k].size(), values.size());
    // In long operands some elements stand for all.
    const size_t step = values.size() / 16 + 1;
    for (size_t i = 0; i < values.size(); i += step) {
      const double before = values[i];
      values[i] = before + kStep;
      const double above = loss();
      values[i] = before - kStep;
      const double slope = (above - loss()) / (2 * kStep);
      values[i] = before;
      EXPECT_NEAR(gradients[k][i], slope, 1e-6 * std::max(1.0, std::abs(slope)))
          << operands[of[k]].name << " [" << i << "]";
    }
  }
}

inline void expect_near(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i]) continue;  // infinities have no distance
    EXPECT_NEAR(got[i], want[i], 1e-12) << i;
  }
}

}  // namespace fusor
