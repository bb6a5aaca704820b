// Owns what the reference's tests share: host buffers for a graph, and runs of all its ops in one reading.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "backend/planner/planner.h"
#include "backend/reference/reference.h"
#include "backend/verify.h"
#include "core/convert.h"
#include "frontend/graph_builder.h"

namespace fusor {

/// A buffer for every tensor of a graph; inputs random, the rest poisoned.
class HostTensors {
 public:
  explicit HostTensors(const Graph& graph, uint64_t seed = 7) : graph_(graph) {
    for (const Tensor& tensor : graph.tensors) {
      bytes_.emplace_back(static_cast<size_t>(tensor.bytes()), std::byte{0xcd});
      if (!tensor.is_virtual() && graph.producer(static_cast<int>(bytes_.size()) - 1) < 0)
        fill_random(tensor, bytes_.back().data(), seed + bytes_.size());
    }
    for (auto& bytes : bytes_) pointers_.push_back(bytes.data());
  }

  std::span<void* const> pointers() const { return pointers_; }
  const std::vector<std::byte>& bytes(int tensor) const { return bytes_[static_cast<size_t>(tensor)]; }

  void set(const Tensor& tensor, const std::vector<double>& values) {
    for (size_t i = 0; i < values.size(); ++i)
      store_real(tensor.type, pointers_[static_cast<size_t>(index(tensor))], static_cast<int64_t>(i),
                 values[i]);
  }
  /// Elements in memory order (row-major for packed tensors).
  std::vector<double> get(const Tensor& tensor) const {
    std::vector<double> values;
    for (int64_t i = 0; i < span_elements(tensor.dims, tensor.strides); ++i)
      values.push_back(load_real(tensor.type, pointers_[static_cast<size_t>(index(tensor))], i));
    return values;
  }

  /// Carries out every op on its own in the given reading.
  void run(Reading reading) const {
    for (size_t op = 0; op < graph_.ops.size(); ++op) {
      const Fusion fusion = make_single(graph_, static_cast<int>(op));
      run(fusion, reading);
    }
  }
  void run(const Fusion& fusion, Reading reading) const {
    validate(fusion);
    std::vector<void*> operands;
    for (const Operand& operand : fusion.operands)
      operands.push_back(pointers_[static_cast<size_t>(operand.tensor)]);
    evaluate(fusion, operands, reading);
  }

 private:
  int index(const Tensor& tensor) const { return graph_.find_uid(tensor.uid); }
  const Graph& graph_;
  std::vector<std::vector<std::byte>> bytes_;
  std::vector<void*> pointers_;
};

}  // namespace fusor
