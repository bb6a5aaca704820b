// Owns the values of an Expr's nodes for one block: neighbours along one axis of the domain.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "backend/reference/expression.h"
#include "backend/reference/values.h"

namespace fusor::reference {

/// Evaluates all nodes of an Expr for blocks along `axis`, one after the other. One per thread.
class BlockEvaluator {
 public:
  BlockEvaluator(const Expr& expr, std::span<const Buffer> buffers, Reading reading, int axis);

  /// Computes every node at the `count` <= kBlock coordinates from `at` on.
  void evaluate(const Dims& at, int64_t count);
  /// Stores what is not reduced.
  void store_elementwise(const Dims& at, int64_t count);
  /// A node's values converted to `held`; valid until the next call.
  const void* value_as(int node, DataType held, int64_t count);

 private:
  void* value(int node) { return values_.data() + static_cast<size_t>(node) * kPlace; }
  const void* value(int node) const { return values_.data() + static_cast<size_t>(node) * kPlace; }
  void* temporary(size_t i) { return temporaries_.data() + i * kPlace; }
  const Node& described(int node) const { return expr_.nodes[static_cast<size_t>(node)]; }
  DataType held(int node) const { return held_type(described(node).type, reading_); }
  void load(int node, int64_t first, int64_t stride, int64_t count);
  void gather(int node, const Dims& at, int64_t count);
  void scatter(const Store& store, const Dims& at, int64_t count);
  void begin_elements(const Access& access, const Dims& at, int64_t count);
  void step_by_index(const IndexedAxis& axis, int index, int64_t count);
  void index(int node, const Dims& at, int64_t count);
  void pointwise(int node, int64_t count);
  void settle(int node, DataType from, const void* values, int64_t count);

  const Expr& expr_;
  std::span<const Buffer> buffers_;
  Reading reading_;
  int axis_;
  static constexpr size_t kPlace = kBlock * 8;  // bytes
  std::vector<std::byte> values_;               // one place a node
  std::vector<std::byte> temporaries_;          // three operands in the compute type, then a result
  std::array<int64_t, kBlock> elements_;        // of an access through indices
  std::array<bool, kBlock> inside_;             // and whether these are within their extents
};

/// The element that `access` reaches at `at`, and its step along `axis`.
int64_t element_at(const Access& access, const Dims& at);
inline int64_t step_along(const Access& access, int axis) {
  return access.strides.empty() ? 0 : access.strides[axis];
}

}  // namespace fusor::reference
