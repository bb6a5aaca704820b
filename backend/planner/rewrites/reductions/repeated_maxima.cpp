// Owns the search for rows that are shifted by their maximum twice.
#include "backend/planner/rewrites/reductions/repeated_maxima.h"

#include <algorithm>
#include <vector>

#include "backend/planner/kinds.h"
#include "core/graph_index.h"
#include "core/ops/expansion.h"

namespace fusor {

namespace {

class RepeatedMaxima {
 public:
  explicit RepeatedMaxima(Graph& graph) : graph_(graph), index_(graph) {}

  bool run() {
    std::vector<bool> gone(graph_.ops.size(), false);
    for (size_t at = 0; at < graph_.ops.size(); ++at) {
      if (!is_repeated(static_cast<int>(at))) continue;
      gone[at] = true;
      const int maximum = graph_.ops[at].outputs[0];
      for (const int reader : index_.consumers(maximum)) {
        Op& shift = graph_.ops[static_cast<size_t>(reader)];
        shift.attributes = Pointwise{.mode = PointwiseMode::identity,
                                     .compute = std::get<Pointwise>(shift.attributes).compute};
        shift.inputs = {shift.inputs[0]};
      }
      leave_empty(graph_.tensors[static_cast<size_t>(maximum)]);
    }
    if (std::ranges::find(gone, true) == gone.end()) return false;
    size_t at = 0;
    std::erase_if(graph_.ops, [&](const Op&) { return gone[at++]; });
    return true;
  }

 private:
  const Tensor& tensor(int at) const { return graph_.tensors[static_cast<size_t>(at)]; }
  const Op& op_of(int at) const { return graph_.ops[static_cast<size_t>(at)]; }

  bool is_mode(int op, PointwiseMode mode) const {
    const auto* const pointwise = op < 0 ? nullptr : std::get_if<Pointwise>(&op_of(op).attributes);
    return pointwise != nullptr && pointwise->mode == mode && pointwise->compute == DataType::f32;
  }
  bool is_total(int op, ReductionMode mode) const {
    const auto* const reduction = op < 0 ? nullptr : std::get_if<Reduction>(&op_of(op).attributes);
    return reduction != nullptr && reduction->mode == mode && reduction->compute == DataType::f32;
  }
  // The operand of a total over one axis; the axis is that of `like`, which is another.
  bool is_over_axis_of(int op, int like) const {
    return tensor(op_of(op).inputs[0]).dims == tensor(op_of(like).inputs[0]).dims &&
           tensor(op_of(op).outputs[0]).dims == tensor(op_of(like).outputs[0]).dims;
  }

  // Whether the op is the maximum of differences to a row's maximum, and made for a softmax alone.
  bool is_repeated(int op) const {
    if (!is_total(op, ReductionMode::max) || !tensor(op_of(op).outputs[0]).is_virtual()) return false;
    const int shifted = op_of(op).inputs[0], first = index_.producer(shifted);
    if (!is_mode(first, PointwiseMode::sub) || tensor(shifted).type != DataType::f32) return false;
    const int x = op_of(first).inputs[0], largest = op_of(first).inputs[1], total = index_.producer(largest);
    if (!is_total(total, ReductionMode::max) || op_of(total).inputs[0] != x ||
        tensor(x).dims != tensor(shifted).dims || !is_over_axis_of(total, op))
      return false;
    if (tensor(largest).type != DataType::f32 && tensor(largest).type != tensor(x).type) return false;
    const auto readers = index_.consumers(op_of(op).outputs[0]);
    return !readers.empty() &&
           std::ranges::all_of(readers, [&](int reader) { return is_shift_of_softmax(reader, shifted, op); });
  }

  // Whether the op takes the maximum off for exponentials that are divided by their sum.
  bool is_shift_of_softmax(int op, int shifted, int maximum) const {
    const int difference = op_of(op).outputs[0];
    return is_mode(op, PointwiseMode::sub) && op_of(op).inputs[0] == shifted &&
           op_of(op).inputs[1] == op_of(maximum).outputs[0] && is_read(difference) &&
           std::ranges::all_of(index_.consumers(difference), [&](int exponential) {
             return is_mode(exponential, PointwiseMode::exp) &&
                    is_divided_by_sum(op_of(exponential).outputs[0], maximum);
           });
  }
  bool is_read(int at) const { return tensor(at).is_virtual() && !index_.consumers(at).empty(); }

  // Whether all readers of the exponentials are their sum over the axis, and quotients by it.
  bool is_divided_by_sum(int exponentials, int maximum) const {
    const auto readers = index_.consumers(exponentials);
    const auto is_sum = [&](int reader) {
      return is_total(reader, ReductionMode::add) && is_over_axis_of(reader, maximum) &&
             tensor(op_of(reader).outputs[0]).is_virtual();
    };
    const auto sum = std::ranges::find_if(readers, is_sum);
    if (!is_read(exponentials) || sum == readers.end()) return false;
    const int total = op_of(*sum).outputs[0];
    return std::ranges::all_of(readers, [&](int reader) {
      if (reader == *sum) return true;
      if (is_mode(reader, PointwiseMode::div))
        return op_of(reader).inputs[0] == exponentials && op_of(reader).inputs[1] == total;
      return is_mode(reader, PointwiseMode::mul) && std::ranges::any_of(op_of(reader).inputs, [&](int input) {
               const int inverse = index_.producer(input);
               return is_mode(inverse, PointwiseMode::reciprocal) && op_of(inverse).inputs[0] == total;
             });
    });
  }

  Graph& graph_;
  const GraphIndex index_;
};

}  // namespace

bool drop_repeated_maxima(Graph& graph) {
  return std::ranges::any_of(graph.ops, is_reduction) && RepeatedMaxima(graph).run();
}

}  // namespace fusor
