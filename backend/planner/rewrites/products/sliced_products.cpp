// Owns the search for products whose parts meet again.
#include "backend/planner/rewrites/products/sliced_products.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "backend/planner/kinds.h"
#include "backend/planner/rewrites/views/seen_in_memory.h"
#include "backend/planner/rewrites/views/unread_views.h"
#include "core/attributes.h"
#include "core/graph_index.h"

namespace fusor {

namespace {

// Rows of a product for which it is worth not storing it: few rows are soon stored, and one product of all
// columns parts the sum between more blocks.
constexpr int64_t kFewestRows = 64;
// Values that are followed from a part to where the parts meet, at most.
constexpr size_t kMostFollowed = 32;

// The operand that holds a product's parts, and the axes along which they lie.
struct PartedOperand {
  int operand, axis, result_axis;
};

class SlicedProducts {
 public:
  SlicedProducts(Graph& graph, Additions& additions)
      : graph_(graph), additions_(additions), index_(graph), given_(std::move(graph.ops)) {}

  // Whether anything was parted.
  bool run() {
    for (size_t i = 0; i < given_.size(); ++i) find_parts(static_cast<int>(i));
    for (const Op& op : given_) {
      const auto parted = parted_.find(op.outputs[0]);
      if (parted != parted_.end())
        append_product_of_part(parted->second, op);
      else
        ops_.push_back(op);
    }
    graph_.ops = std::move(ops_);
    if (parted_.empty()) return false;
    drop_unread_views(graph_, passed_);
    return true;
  }

 private:
  // A product, and the pointwise ops behind it up to the slices.
  struct Steps {
    std::vector<int> ops;
    PartedOperand by;
  };

  const Tensor& tensor(int at) const { return graph_.tensors[static_cast<size_t>(at)]; }
  const Dims& dims(int at) const { return tensor(at).dims; }
  const Op& op(int at) const { return given_[static_cast<size_t>(at)]; }
  bool is_in_memory(int value) const { return is_seen_in_memory(graph_, given_, index_, value); }

  // ---- What may be parted ----

  void find_parts(int product) {
    if (!is_product(op(product))) return;
    Steps steps{steps_behind(product), {}};
    const auto readers = index_.consumers(op(steps.ops.back()).outputs[0]);
    if (readers.size() != 2 || !std::ranges::all_of(readers, [&](int reader) { return is_part(op(reader)); }))
      return;
    const Op &first = op(readers[0]), &second = op(readers[1]);
    const auto by = parted_operand(op(product), first);
    if (!by || rows_of(op(product), *by) < kFewestRows) return;
    if (dims(first.outputs[0]) != dims(second.outputs[0]) || taken(first) == taken(second)) return;
    if (parted_operand(op(product), second)->operand != by->operand) return;
    if (!is_aligned(op(product), *by, first) || !is_aligned(op(product), *by, second)) return;
    if (!meet(first.outputs[0], second.outputs[0])) return;
    steps.by = *by;
    for (const int step : steps.ops) passed_.insert(op(step).outputs[0]);
    for (const int reader : readers) parted_.emplace(op(reader).outputs[0], steps);
  }

  bool is_product(const Op& product) const {
    if (product.inputs.size() != 2 || !tensor(product.outputs[0]).is_virtual()) return false;
    if (is_matmul(product)) return true;
    const auto* const conv = std::get_if<Conv>(&product.attributes);
    if (conv == nullptr || conv->pass != ConvPass::fprop) return false;
    const Dims &x = dims(product.inputs[0]), &w = dims(product.inputs[1]);
    return w[1] == x[1] && std::all_of(w.begin() + 2, w.end(), [](int64_t extent) { return extent == 1; });
  }

  // The product and the ops behind it, one after another, whose other operands can be parted as well.
  std::vector<int> steps_behind(int product) const {
    std::vector<int> steps = {product};
    const Dims& whole = dims(op(product).outputs[0]);
    while (true) {
      const auto readers = index_.consumers(op(steps.back()).outputs[0]);
      if (readers.size() != 1 || !is_step(op(readers[0]), op(steps.back()).outputs[0], whole)) return steps;
      steps.push_back(readers[0]);
    }
  }

  bool is_step(const Op& next, int value, const Dims& whole) const {
    const auto* const pointwise = std::get_if<Pointwise>(&next.attributes);
    if (pointwise == nullptr || pointwise->mode == PointwiseMode::gen_index ||
        pointwise->mode == PointwiseMode::philox)
      return false;
    return tensor(next.outputs[0]).is_virtual() && dims(next.outputs[0]) == whole &&
           std::ranges::all_of(next.inputs, [&](int input) {
             return input == value || tensor(input).is_scalar() ||
                    (!is_packed(tensor(input).type) && is_in_memory(input));
           });
  }

  bool is_part(const Op& reader) const {
    return std::holds_alternative<Slice>(reader.attributes) && tensor(reader.outputs[0]).is_virtual();
  }
  static const Slice& taken(const Op& part) { return std::get<Slice>(part.attributes); }

  // Nothing where the part is none along an axis that one operand alone has.
  std::optional<PartedOperand> parted_operand(const Op& product, const Op& part) const {
    const Dims& whole = dims(product.outputs[0]);
    int axis = -1;
    for (int i = 0; i < whole.rank(); ++i) {
      if (dims(part.outputs[0])[i] == whole[i]) continue;
      if (axis >= 0) return std::nullopt;
      axis = i;
    }
    if (!is_matmul(product)) return axis == 1 ? std::optional(PartedOperand{1, 0, 1}) : std::nullopt;
    const int from_last = whole.rank() - axis;
    if (axis < 0 || from_last > 2) return std::nullopt;
    const int operand = from_last == 1 ? 1 : 0;
    return PartedOperand{operand, dims(product.inputs[operand]).rank() - from_last, axis};
  }

  int64_t rows_of(const Op& product, const PartedOperand& by) const {
    const Dims& whole = dims(product.outputs[0]);
    return element_count(whole) / std::max<int64_t>(whole[by.result_axis], 1);
  }

  // Whether TMA may begin where the part begins.
  bool is_aligned(const Op& product, const PartedOperand& by, const Op& part) const {
    constexpr int64_t kBits = 128;
    const int weights = product.inputs[by.operand];
    const auto seen = seen_in_memory(graph_, given_, index_, weights);
    if (!seen) return false;
    const int64_t stride = seen->strides[by.axis], bits = info(tensor(weights).type).bits;
    if (stride == 1 && taken(part).step[by.result_axis] != 1) return false;
    return taken(part).start[by.result_axis] * stride * bits % kBits == 0;
  }

  // Whether pointwise ops lead from either value to one op.
  bool meet(int first, int second) const {
    const std::set<int> of_first = made_of(first), of_second = made_of(second);
    return std::ranges::any_of(of_first, [&](int value) { return of_second.contains(value); });
  }

  std::set<int> made_of(int value) const {
    std::set<int> found;
    std::vector<int> open = {value};
    while (!open.empty() && found.size() < kMostFollowed) {
      const int next = open.back();
      open.pop_back();
      for (const int reader : index_.consumers(next))
        if (is_pointwise(op(reader)) && found.insert(op(reader).outputs[0]).second)
          open.push_back(op(reader).outputs[0]);
    }
    return found;
  }

  // ---- Making the parts ----

  void append_product_of_part(const Steps& steps, const Op& part) {
    int value = -1;
    for (const int step : steps.ops) {
      Op made = op(step);
      const bool is_last = step == steps.ops.back();
      if (value < 0) {
        int& weights = made.inputs[steps.by.operand];
        weights = part_of(weights, steps.by.axis, steps.by.result_axis, part);
      } else {
        const int whole = op(*std::prev(std::ranges::find(steps.ops, step))).outputs[0];
        for (int& input : made.inputs) input = input == whole ? value : part_of_operand(input, steps, part);
      }
      made.name = additions_.op_name(made.name);
      value = is_last ? part.outputs[0]
                      : additions_.tensor(Tensor(tensor(made.outputs[0])), dims(part.outputs[0]), made.name);
      made.outputs = {value};
      ops_.push_back(std::move(made));
    }
  }

  // An operand that is the same all along the axis is read as it is.
  int part_of_operand(int input, const Steps& steps, const Op& part) {
    const int axis = steps.by.result_axis - dims(part.outputs[0]).rank() + dims(input).rank();
    if (tensor(input).is_scalar() || axis < 0 || dims(input)[axis] == 1) return input;
    return part_of(input, axis, steps.by.result_axis, part);
  }

  int part_of(int input, int axis, int result_axis, const Op& part) {
    Dims shape = dims(input);
    Slice slice{Dims::filled(shape.rank(), 0), shape, Dims::filled(shape.rank(), 1)};
    slice.start[axis] = taken(part).start[result_axis];
    slice.limit[axis] = taken(part).limit[result_axis];
    slice.step[axis] = taken(part).step[result_axis];
    shape[axis] = dims(part.outputs[0])[result_axis];
    ops_.push_back(additions_.view(slice, input, shape, part.name + ".in"));
    return ops_.back().outputs[0];
  }

  Graph& graph_;
  Additions& additions_;
  GraphIndex index_;  // of the ops as they were given
  std::vector<Op> given_, ops_;
  std::map<int, Steps> parted_;  // by the part's tensor
  std::set<int> passed_;         // values that are not made any more
};

}  // namespace

bool slice_products(Graph& graph, Additions& additions) {
  const auto takes_parts = [](const Op& op) { return std::holds_alternative<Slice>(op.attributes); };
  const auto multiplies = [](const Op& op) { return is_contraction(op.attributes); };
  return std::ranges::any_of(graph.ops, takes_parts) && std::ranges::any_of(graph.ops, multiplies) &&
         SlicedProducts(graph, additions).run();
}

}  // namespace fusor
