// Owns the rules by which a reduction is the largest probability of a softmax.
#include "backend/planner/partition/softmax_maximum.h"

#include <algorithm>
#include <variant>

namespace fusor {

namespace {

class Finder {
 public:
  Finder(const Graph& graph, const GraphIndex& index) : graph_(graph), index_(index) {}

  std::optional<SoftmaxMaximum> find(const Op& op) const {
    const auto* maximum = std::get_if<Reduction>(&op.attributes);
    if (maximum == nullptr || (maximum->mode != ReductionMode::max && maximum->mode != ReductionMode::amax))
      return std::nullopt;
    const int division = pointwise(op.inputs[0], PointwiseMode::div);
    const int exponential = division < 0 ? -1 : pointwise(argument(division, 0), PointwiseMode::exp);
    const int difference = exponential < 0 ? -1 : pointwise(argument(exponential, 0), PointwiseMode::sub);
    if (difference < 0) return std::nullopt;
    const int score = argument(difference, 0), base = argument(difference, 1);
    const int largest = largest_of(score, base);
    if (largest < 0 || type(base) != type(largest) || !is_whole(score, largest) ||
        !covers(score, largest, op.outputs[0]) || dims(base) != dims(largest) ||
        dims(argument(division, 1)) != dims(largest) ||
        !holds_sum(argument(division, 1), argument(division, 0), base))
      return std::nullopt;
    return SoftmaxMaximum{{difference, exponential, division}, largest};
  }

 private:
  const Dims& dims(int tensor) const { return graph_.tensors[static_cast<size_t>(tensor)].dims; }
  DataType type(int tensor) const { return graph_.tensors[static_cast<size_t>(tensor)].type; }
  const Op& op(int at) const { return graph_.ops[static_cast<size_t>(at)]; }
  int argument(int at, size_t which) const { return op(at).inputs[which]; }

  // The op of that mode that makes the tensor, or -1.
  int pointwise(int tensor, PointwiseMode mode) const {
    const int producer = index_.producer(tensor);
    if (producer < 0) return -1;
    const auto* attributes = std::get_if<Pointwise>(&op(producer).attributes);
    return attributes != nullptr && attributes->mode == mode ? producer : -1;
  }

  bool reduces(int tensor, ReductionMode mode, int from) const {
    const int producer = index_.producer(tensor);
    if (producer < 0) return false;
    const auto* attributes = std::get_if<Reduction>(&op(producer).attributes);
    return attributes != nullptr && attributes->mode == mode &&
           behind_identity(argument(producer, 0)) == from;
  }

  // The tensor that this one is a copy of, without a rounding.
  int behind_identity(int tensor) const {
    for (int producer = pointwise(tensor, PointwiseMode::identity);
         producer >= 0 && type(argument(producer, 0)) == type(tensor);
         producer = pointwise(tensor, PointwiseMode::identity))
      tensor = argument(producer, 0);
    return tensor;
  }

  // The tensor of largest scores that `base` is, or is no less than. Rounded to another type, it would be the
  // score of no element.
  int largest_of(int score, int base) const {
    const auto is_largest = [&](int tensor) {
      return reduces(tensor, ReductionMode::max, score) && type(tensor) == type(score);
    };
    if (is_largest(base)) return base;
    // At least the sink, and at least some constant.
    for (int larger = pointwise(base, PointwiseMode::max), depth = 0; larger >= 0 && depth < 2; ++depth) {
      for (const int input : op(larger).inputs)
        if (is_largest(input)) return input;
      larger = pointwise(argument(larger, 0), PointwiseMode::max);
    }
    return -1;
  }

  // Whether axes are reduced whole or not at all.
  bool is_whole(int score, int largest) const {
    for (int axis = 0; axis < dims(score).rank(); ++axis)
      if (dims(largest)[axis] != 1 && dims(largest)[axis] != dims(score)[axis]) return false;
    return true;
  }

  // Whether the axes that `largest` lacks are missing in `result`, too.
  bool covers(int score, int largest, int result) const {
    for (int axis = 0; axis < dims(score).rank(); ++axis)
      if (dims(largest)[axis] != dims(score)[axis] && dims(result)[axis] != 1) return false;
    return true;
  }

  // Whether `sum` is that of `exponentials`, with a sink's, or a positive number where it is 0: then it is
  // not negative, and 0 only where all exponentials are.
  bool holds_sum(int sum, int exponentials, int base) const {
    if (const int select = pointwise(sum, PointwiseMode::binary_select); select >= 0) {
      const Tensor& otherwise = graph_.tensors[static_cast<size_t>(argument(select, 1))];
      const int differs = pointwise(argument(select, 2), PointwiseMode::cmp_neq);
      if (differs < 0 || argument(differs, 0) != argument(select, 0) || !is_positive(otherwise)) return false;
      sum = argument(select, 0);
    }
    if (const int added = pointwise(sum, PointwiseMode::add); added >= 0) {
      const int sink = pointwise(argument(added, 1), PointwiseMode::exp);
      if (sink < 0) return false;
      const int below = pointwise(argument(sink, 0), PointwiseMode::sub);
      if (below < 0 || argument(below, 1) != base) return false;
      sum = argument(added, 0);
    }
    return reduces(sum, ReductionMode::add, exponentials);
  }

  static bool is_positive(const Tensor& tensor) {
    return tensor.memory == Memory::constant &&
           std::visit([](auto value) { return static_cast<double>(value); }, tensor.value) > 0;
  }

  const Graph& graph_;
  const GraphIndex& index_;
};

}  // namespace

std::optional<SoftmaxMaximum> softmax_maximum(const Graph& graph, const GraphIndex& index, const Op& op) {
  return Finder(graph, index).find(op);
}

}  // namespace fusor
