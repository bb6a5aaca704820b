// Owns Expansion: how a composite op is written in simpler ops, and the pass that does so.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/api.h"
#include "core/graph.h"

namespace fusor {

/// Whether a row of op.def has a kind of that name.
bool is_kind_name(std::string_view name);

/// Tells whether a composite op stays as it is because an engine carries it out whole.
using StaysWhole = std::function<bool(const Graph&, const Op&)>;

/// A graph whose composite ops are being replaced: which tensors are new and of open type, and which names
/// and uids are taken.
struct ExpandedGraph {
  Graph graph;
  std::vector<bool> open;
  std::unordered_set<std::string> op_names, tensor_names;
  std::unordered_set<int64_t> uids;
  std::vector<Op> asked = {};   ///< the ops as they were given
  StaysWhole stays_whole = {};  ///< empty: none does
};

/// One composite op on its way into simpler ones: what expand() of its family writes with. Values are indices
/// of tensors. Those made here have no said type, so that the rule of core/open_types.h holds of them.
class FUSOR_API Expansion {
 public:
  Expansion(ExpandedGraph& into, const Op& op, std::vector<Op>& written)
      : into_(into), op_(op), written_(written), roles_(fusor::roles(op.attributes)) {}

  /// The op's operand of that role; -1 where it was left out.
  int input(size_t role) const { return role < op_.inputs.size() ? op_.inputs[role] : -1; }
  bool has(size_t role) const { return input(role) >= 0; }
  bool wants(size_t result) const { return result < op_.outputs.size() && op_.outputs[result] >= 0; }
  /// The same by the role's name. The last role may repeat: input_count() says how many operands there are.
  int input(std::string_view role) const { return input(place_of(roles_.inputs, role)); }
  bool has(std::string_view role) const { return input(role) >= 0; }
  bool wants(std::string_view result) const { return wants(place_of(roles_.outputs, result)); }
  /// The op's result of that role, which it wants.
  int output(std::string_view role) const { return op_.outputs[place_of(roles_.outputs, role)]; }
  size_t input_count() const { return op_.inputs.size(); }
  /// By value: a later call here may move the graph's tensors.
  Dims dims(int value) const { return into_.graph.tensors[static_cast<size_t>(value)].dims; }
  Strides strides(int value) const { return into_.graph.tensors[static_cast<size_t>(value)].strides; }
  DataType type(int value) const { return into_.graph.tensors[static_cast<size_t>(value)].type; }
  /// The ops, as they were given, that read the result.
  std::vector<const Op*> readers(int value) const;
  /// The op, as it was given, whose result the value is; null where there is none.
  const Op* asked_writer(int value) const;
  /// The simple op in front of this one that writes the value; null where there is none.
  const Op* writer(int value) const;
  /// The dims of the op's result of that role, which it wants.
  Dims result_dims(std::string_view role) const { return dims(op_.outputs[place_of(roles_.outputs, role)]); }

  DataType result_type(std::string_view role) const {
    return type(op_.outputs[place_of(roles_.outputs, role)]);
  }

  /// fp64 where an operand of the op is, else fp32: the type of constants.
  DataType compute() const;
  int constant(double value);
  int integer(int64_t value);
  /// Appends an op, whose compute type is the default one of its operands; the dims of its result are needed
  /// where the op does not imply them (reductions, reshapes).
  int op(Attributes attributes, std::span<const int> inputs, const Dims& given = {});
  int op(Attributes attributes, std::initializer_list<int> inputs, const Dims& given = {}) {
    return op(std::move(attributes), std::span<const int>(inputs.begin(), inputs.size()), given);
  }
  int pointwise(PointwiseMode mode, std::initializer_list<int> inputs) {
    return op(Pointwise{.mode = mode}, inputs);
  }

  // e.relu(x), e.add(a, b), e.binary_select(a, b, t) ...: one method per row of core/pointwise.def.
#define FUSOR_OPERANDS_1 int a
#define FUSOR_OPERANDS_2 int a, int b
#define FUSOR_OPERANDS_3 int a, int b, int c
#define FUSOR_LIST_1 \
  { a }
#define FUSOR_LIST_2 \
  { a, b }
#define FUSOR_LIST_3 \
  { a, b, c }
#define FUSOR_METHOD_real(mode, inputs) \
  int mode(FUSOR_OPERANDS_##inputs) { return pointwise(PointwiseMode::mode, FUSOR_LIST_##inputs); }
#define FUSOR_METHOD_any(mode, inputs) FUSOR_METHOD_real(mode, inputs)
#define FUSOR_METHOD_compare(mode, inputs) FUSOR_METHOD_real(mode, inputs)
#define FUSOR_METHOD_logical(mode, inputs) FUSOR_METHOD_real(mode, inputs)
#define FUSOR_METHOD_index(mode, inputs)
#define FUSOR_POINTWISE(mode, inputs, domain, alu, sfu, formula) FUSOR_METHOD_##domain(mode, inputs)
#include "core/pointwise.def"
#undef FUSOR_POINTWISE
#undef FUSOR_METHOD_real
#undef FUSOR_METHOD_any
#undef FUSOR_METHOD_compare
#undef FUSOR_METHOD_logical
#undef FUSOR_METHOD_index
#undef FUSOR_LIST_1
#undef FUSOR_LIST_2
#undef FUSOR_LIST_3
#undef FUSOR_OPERANDS_1
#undef FUSOR_OPERANDS_2
#undef FUSOR_OPERANDS_3

  /// Integers as numbers of the compute type.
  int real(int value) { return is_real(type(value)) ? value : cast(value, compute()); }
  /// Whether such an op would stay as it is.
  bool stays_whole(const Attributes& attributes, const std::vector<int>& inputs) const {
    return into_.stays_whole && into_.stays_whole(into_.graph, Op{"", attributes, inputs, {}});
  }
  /// Says that the value has the type with which it was made: no rule will give it another.
  int said(int value) {
    into_.open[static_cast<size_t>(value)] = false;
    return value;
  }
  /// Rounded to that type.
  int cast(int value, DataType type);
  /// The result of a reduction that nobody has read yet, rounded to that type where it is made.
  int rounded_total(int value, DataType type);
  /// The coordinate along an axis of a tensor of these dims, as int32 or int64.
  int index(const Dims& dims, int64_t axis);
  /// Reduced to extent 1 along one axis, or to these dims.
  int reduce(ReductionMode mode, int x, int64_t axis);
  int reduce_to(ReductionMode mode, int x, const Dims& dims) {
    return op(Reduction{.mode = mode}, {x}, dims);
  }
  int gather(int x, int index, int64_t axis) { return op(Gather{axis}, {x, index}); }
  int matmul(int a, int b) { return op(Matmul{}, {a, b}); }
  int reshape(int x, const Dims& to) { return to == dims(x) ? x : op(Reshape{}, {x}, to); }
  /// x with an axis of extent 1 behind each from `first` on, in the order in which x lies in memory.
  int paired(int x, int first);
  int transpose(int x, const Dims& permutation) { return op(Transpose{permutation}, {x}); }
  /// x from `start` up to `limit` along one axis.
  int slice(int x, int64_t axis, int64_t start, int64_t limit);
  int concatenate(const std::vector<int>& xs, int64_t axis);

  /// Says that `value` is the op's result of that role: once for each that wants() names.
  void result(size_t role, int value);
  /// Says that an op without a compute type gives the op's result of that role, in its place.
  void result_of(std::string_view role, Attributes attributes, std::initializer_list<int> inputs);
  /// The same by name; nothing where nobody wants it. reshaped_result: in other dims, which is a view.
  void reshaped_result(std::string_view role, int value);
  /// x reduced over what the op's result of that role repeats along; the reduction itself writes it.
  void reduced_result(std::string_view role, ReductionMode mode, int x);
  void result(std::string_view role, int value) {
    if (wants(role)) result(place_of(roles_.outputs, role), value);
  }

 private:
  static size_t place_of(const std::vector<Role>& roles, std::string_view name);
  int scalar(DataType type, Scalar value);
  /// Appends an op whose compute type is said.
  int write(Attributes attributes, std::span<const int> inputs, const Dims& given);
  int add_tensor(Tensor tensor);
  std::string fresh_name();

  ExpandedGraph& into_;
  const Op& op_;
  std::vector<Op>& written_;
  Roles roles_;
  std::map<std::pair<DataType, Scalar>, int> scalars_;
};

/// The graph without composite ops: each is replaced by what its family writes, until none is left. Tensors
/// keep their indices; new ones stand behind them. `stays_whole`: those that it says so of stay.
Graph expand_composites(const Graph& graph, const StaysWhole& stays_whole = {});

/// Makes a tensor that nothing reads or writes any more a constant of one element, so that the other tensors
/// keep their indices.
void leave_empty(Tensor& tensor);

}  // namespace fusor
