// Owns the aliasing rule of a run: which tensors may lie in the same memory, decided from the plan when it is
// loaded, and its check on every run.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/schedule.h"
#include "core/graph.h"
#include "core/graph_index.h"

namespace fusor {

/// A tensor of device memory that a run is given.
struct BoundTensor {
  int slot = 0;
  int tensor = 0;     ///< index into Graph::tensors
  int64_t bytes = 0;  ///< one element's where only the device knows how far it reaches
  bool is_output = false;
  int first_step = 0, last_step = -1;  ///< the steps that touch it, counted over the whole plan
  std::vector<int> in_place = {};      ///< output: tensors that it may replace at exactly their address
};

/// Inputs may share memory with inputs. An output may share it with an input only at exactly one address:
/// where the last step that reads the input comes before the first that writes the output, or where both are
/// one step that reads each element at the very place where it then writes, and has no reduction or is a
/// kernel of rows, whose threads keep to their elements. Nothing overlaps the workspace.
class AliasRules {
 public:
  /// `slot_of`: per tensor of the graph, -1 where it is not bound.
  AliasRules(const Graph& graph, const Schedule& schedule, std::span<const int> slot_of);

  /// Whether an output takes the place of an input. Throws Error{bad_input} that names both tensors where it
  /// may not. `order` has room for all slots; allocates nothing. The graph is that of the constructor.
  bool check(const Graph& graph, std::span<void* const> by_slot, const void* workspace,
             int64_t workspace_bytes, int* order) const;
  /// Whether output may take the place of input, both at one address: indices into Graph::tensors.
  bool may_replace(int output, int input) const;

 private:
  bool check_pairs(const Graph& graph, std::span<void* const> by_slot) const;
  bool check_sorted(const Graph& graph, std::span<void* const> by_slot, int* order) const;
  static bool may_replace(const BoundTensor& output, const BoundTensor& other);
  bool check_pair(const Graph& graph, std::span<void* const> by_slot, const BoundTensor& output,
                  const BoundTensor& other) const;

  std::vector<BoundTensor> tensors_;  ///< outputs first
  size_t outputs_ = 0;
};

/// Whether how far a tensor reaches is known on the device only, so that its memory may end before its extent
/// does: a result whose elements go where indices say, or an operand of one axis whose elements are taken
/// from where they say.
bool is_reached_by_index(const Graph& graph, const GraphIndex& index, int tensor);

/// Whether two tensors share an element's byte; `distance`: bytes from a's first element to b's. Says yes
/// where it cannot tell: strides that interleave in a way that no common stride explains.
bool may_overlap(const Tensor& a, const Tensor& b, int64_t distance);

}  // namespace fusor
