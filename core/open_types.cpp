// Owns the settling of types that were left open.
#include "core/open_types.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "core/infer.h"

namespace fusor {

namespace {

int bits(DataType type) { return info(type).bits; }
bool is_boolean(DataType type) { return info(type).kind == NumberKind::boolean; }

// Comparisons and logic are 0 or 1 whatever they read.
bool gives_truth(const Pointwise& op) {
  const PointwiseDomain domain = info(op.mode).domain;
  return domain == PointwiseDomain::compare || domain == PointwiseDomain::logical;
}

// Operands whose values reach the result: binary_select's condition only picks.
size_t value_operands(const Pointwise& op, size_t operands) {
  return op.mode == PointwiseMode::binary_select ? std::min<size_t>(operands, 2) : operands;
}

DataType promoted(std::span<const OperandType> operands) {
  const bool all_scalars = std::ranges::all_of(operands, &OperandType::scalar);
  std::optional<DataType> type;
  for (const OperandType& operand : operands)
    if (!operand.scalar || all_scalars) type = type ? promoted(*type, operand.type) : operand.type;
  return type.value_or(DataType::f32);
}

// The type that the open operand `own` takes beside `other`; nothing where it keeps its own.
std::optional<DataType> taken_beside(const OperandType& own, const OperandType& other) {
  if (other.open) {
    if (is_narrow_real(own.type)) return own.type;
    return is_narrow_real(other.type) ? std::optional(other.type) : std::nullopt;
  }
  if (!is_narrow_real(other.type)) return std::nullopt;
  return bits(other.type) == 8 && bits(own.type) == 16 && is_real(own.type) ? own.type : other.type;
}

// Numbers whose kind the stored type cannot hold, or that have grown out of it, stay in the compute type; so
// do those made of packed ones, which have four bits or one because somebody said so.
DataType kept_kind(DataType stored, DataType compute, bool accumulates) {
  if (is_packed(stored)) return compute;
  const bool changes_kind = is_real(stored) != is_real(compute) || is_boolean(stored);
  return changes_kind || (accumulates && !is_real(compute)) ? compute : stored;
}

DataType stored_contraction(DataType compute, std::span<const OperandType> operands) {
  if (compute != DataType::f32 || operands.size() != 2) return kept_kind(promoted(operands), compute, true);
  std::vector<OperandType> read(operands.begin(), operands.end());
  for (size_t i = 0; i < 2; ++i)
    if (operands[i].open) read[i].type = taken_beside(operands[i], operands[1 - i]).value_or(read[i].type);
  return kept_kind(promoted(read), compute, true);
}

// Tensors that views and concatenations tie together.
class Ties {
 public:
  explicit Ties(const Graph& graph) : parents_(graph.tensors.size()) {
    std::iota(parents_.begin(), parents_.end(), 0);
    for (const Op& op : graph.ops)
      if (keeps_type(op.attributes) && !op.outputs.empty())
        for (const int x : op.inputs) tie(x, op.outputs.front());
  }
  int root(int tensor) {
    while (parents_[static_cast<size_t>(tensor)] != tensor) {
      int& parent = parents_[static_cast<size_t>(tensor)];
      parent = parents_[static_cast<size_t>(parent)];
      tensor = parent;
    }
    return tensor;
  }

 private:
  void tie(int x, int y) {
    if (x >= 0 && y >= 0) parents_[static_cast<size_t>(root(x))] = root(y);
  }
  std::vector<int> parents_;
};

class Settlement {
 public:
  Settlement(Graph& graph, const std::vector<bool>& open)
      : graph_(graph), open_(open), ties_(graph), groups_(graph.tensors.size()) {}

  void run() {
    follow_stored_types();
    for (int i = 0; i < static_cast<int>(graph_.tensors.size()); ++i) note_what_is_known(i);
    for (const Op& op : graph_.ops)
      for (const auto& [first, second] : products_of(op))
        if (std::max(first, second) < op.inputs.size()) ask(op.inputs[first], op.inputs[second]);
    for (int i = 0; i < static_cast<int>(graph_.tensors.size()); ++i) settle(i);
  }

 private:
  // What is known of a group of tied tensors, and the types that contractions ask of it.
  struct Group {
    std::optional<DataType> said, of_outputs, asked;
  };
  Group& group(int tensor) { return groups_[static_cast<size_t>(ties_.root(tensor))]; }
  Tensor& tensor(int index) { return graph_.tensors[static_cast<size_t>(index)]; }
  bool is_open(int index) const { return open_[static_cast<size_t>(index)]; }

  static void promote(std::optional<DataType>& type, DataType other) {
    type = type ? promoted(*type, other) : other;
  }

  void follow_stored_types() {
    for (const Tensor& each : graph_.tensors) stored_.push_back(each.type);
    for (const Op& op : graph_.ops) {
      std::vector<OperandType> operands;
      for (const int x : op.inputs)
        if (x >= 0) operands.push_back({stored_[static_cast<size_t>(x)], is_open(x), tensor(x).is_scalar()});
      for (const int y : op.outputs)
        if (y >= 0 && is_open(y))
          stored_[static_cast<size_t>(y)] = stored_type(op.attributes, tensor(y).type, operands);
    }
  }

  void note_what_is_known(int index) {
    if (!is_open(index))
      group(index).said = tensor(index).type;
    else if (!tensor(index).is_virtual())
      promote(group(index).of_outputs, stored_[static_cast<size_t>(index)]);
  }

  OperandType seen(int index) {
    const Group& tied = group(index);
    if (const auto known = tied.said ? tied.said : tied.of_outputs) return {*known, false};
    return {stored_[static_cast<size_t>(index)], true};
  }

  // Operands that are multiplied with each other, and summed in fp32.
  std::vector<Product> products_of(const Op& op) {
    if (is_contraction(op.attributes)) {
      const bool in_fp32 = *compute_type(op.attributes) == DataType::f32 && op.inputs.size() == 2;
      return in_fp32 ? std::vector<Product>{{0, 1}} : std::vector<Product>{};
    }
    const auto is_double = [&](int x) { return x >= 0 && tensor(x).type == DataType::f64; };
    if (std::ranges::any_of(op.inputs, is_double)) return {};
    return std::visit(
        []<class Family>(const Family&) {
          if constexpr (requires { Family::products; })
            return std::vector<Product>(Family::products.begin(), Family::products.end());
          else
            return std::vector<Product>();
        },
        op.attributes);
  }

  void ask(int first, int second) {
    if (std::min(first, second) < 0) return;
    for (const auto& [x, beside] : {std::pair(first, second), std::pair(second, first)}) {
      const OperandType own = seen(x);
      if (!own.open || !is_real(tensor(x).type)) continue;
      if (const auto type = taken_beside(own, seen(beside))) promote(group(x).asked, *type);
    }
  }

  void settle(int index) {
    if (!is_open(index)) return;
    const Group& tied = group(index);
    if (tied.said)
      tensor(index).type = *tied.said;
    else if (tied.of_outputs)
      tensor(index).type = *tied.of_outputs;
    else if (tied.asked && is_narrow_real(*tied.asked))
      tensor(index).type = *tied.asked;
  }

  Graph& graph_;
  const std::vector<bool>& open_;
  Ties ties_;
  std::vector<Group> groups_;
  std::vector<DataType> stored_;
};

}  // namespace

bool is_narrow_real(DataType type) {
  return is_real(type) && bits(type) <= 16 && bits(type) >= 8 && type != DataType::f8_e8m0;
}

DataType promoted(DataType a, DataType b) {
  if (is_boolean(a) && is_boolean(b)) return a == b ? a : DataType::b8;
  if (a == b || is_boolean(b)) return a;
  if (is_boolean(a)) return b;
  if (is_packed(a) && b == DataType::f8_e8m0) return DataType::f16;
  if (is_packed(b) && a == DataType::f8_e8m0) return DataType::f16;
  if (is_real(a) != is_real(b)) return is_real(a) ? a : b;
  if (bits(a) != bits(b)) return bits(a) > bits(b) ? a : b;
  if (!is_real(a)) return DataType::i32;  // int8 and uint8
  return bits(a) == 8 ? DataType::f16 : DataType::f32;
}

DataType stored_type(const Attributes& attributes, DataType result, std::span<const OperandType> operands) {
  return std::visit(
      Overloaded{
          [&](const Pointwise& op) {
            if (gives_truth(op)) return DataType::b8;
            if (op.mode == PointwiseMode::gen_index) return op.compute;
            const DataType read = promoted(operands.first(value_operands(op, operands.size())));
            const bool picks = op.mode == PointwiseMode::identity || op.mode == PointwiseMode::binary_select;
            return picks && is_boolean(read) ? read : kept_kind(read, op.compute, false);
          },
          [&](const Reduction& op) {
            const bool picks = op.mode == ReductionMode::min || op.mode == ReductionMode::max;
            return kept_kind(promoted(operands), op.compute, !picks);
          },
          [&](const Matmul& op) { return stored_contraction(op.compute, operands); },
          [&](const Conv& op) { return stored_contraction(op.compute, operands); },
          [&](const Reshape&) { return promoted(operands); },
          [&](const Transpose&) { return promoted(operands); },
          [&](const Slice&) { return promoted(operands); },
          [&](const Concatenate&) { return promoted(operands); },
          [&](const Gather&) { return promoted(operands.first(1)); },
          [&](const Scatter&) { return promoted(operands.first(1)); },
          [&]<CompositeFamily Family>(const Family&) {
            if constexpr (requires { Family::typed_by; })
              return kept_kind(promoted(operands.first(std::min(Family::typed_by, operands.size()))), result,
                               false);
            else
              return kept_kind(promoted(operands), result, false);
          },
      },
      attributes);
}

void settle_types(Graph& graph, const std::vector<bool>& open) { Settlement(graph, open).run(); }

}  // namespace fusor
