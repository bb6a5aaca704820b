// Owns Expansion: how a composite op is written in simpler ops, and the pass that does so.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "core/api.h"
#include "core/graph.h"

namespace fusor {

/// Whether a row of op.def has a kind of that name.
bool is_kind_name(std::string_view name);

/// A graph whose composite ops are being replaced: which tensors are new and of open type, and which names
/// and uids are taken.
struct ExpandedGraph {
  Graph graph;
  std::vector<bool> open;
  std::unordered_set<std::string> op_names, tensor_names;
  std::unordered_set<int64_t> uids;
};

/// One composite op on its way into simpler ones: what expand() of its family writes with. Values are indices
/// of tensors. Those made here have no said type, so that the rule of core/open_types.h holds of them.
class FUSOR_API Expansion {
 public:
  Expansion(ExpandedGraph& into, const Op& op, std::vector<Op>& written)
      : into_(into), op_(op), written_(written) {}

  /// The op's operand of that role; -1 where it was left out.
  int input(size_t role) const { return role < op_.inputs.size() ? op_.inputs[role] : -1; }
  bool has(size_t role) const { return input(role) >= 0; }
  bool wants(size_t result) const { return result < op_.outputs.size() && op_.outputs[result] >= 0; }
  /// By value: a later call here may move the graph's tensors.
  Dims dims(int value) const { return into_.graph.tensors[static_cast<size_t>(value)].dims; }

  int constant(double value);
  /// Appends an op, whose compute type is the default one of its operands; the dims of its result are needed
  /// where the op does not imply them (reductions, reshapes).
  int op(Attributes attributes, std::initializer_list<int> inputs, const Dims& given = {});
  int pointwise(PointwiseMode mode, std::initializer_list<int> inputs) {
    return op(Pointwise{.mode = mode}, inputs);
  }
  /// Reduced to extent 1 along one axis.
  int reduce(ReductionMode mode, int x, int64_t axis);
  /// Says that `value` is the op's result of that role: once for each that wants() names.
  void result(size_t role, int value);

 private:
  int add_tensor(Tensor tensor);
  std::string fresh_name();

  ExpandedGraph& into_;
  const Op& op_;
  std::vector<Op>& written_;
};

/// The graph without composite ops: each is replaced by what its family writes, until none is left. Tensors
/// keep their indices; new ones stand behind them.
Graph expand_composites(const Graph& graph);

}  // namespace fusor
