// Owns the search for matmuls whose batches were merged, and their rewriting.
#include "backend/planner/rewrites/products/split_batches.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/planner/kinds.h"
#include "backend/planner/rewrites/views/reshaped.h"
#include "backend/planner/rewrites/views/unread_views.h"
#include "core/attributes.h"
#include "core/graph_index.h"
#include "core/ops/expansion.h"

namespace fusor {

namespace {

// Ops between a matmul and a reshape of its batches, at most.
constexpr int kLongestWay = 32;

// The axes in front of the matrices.
Dims batch_of(const Dims& dims) {
  Dims batch;
  for (int axis = 0; axis + 2 < dims.rank(); ++axis) batch.push_back(dims[axis]);
  return batch;
}

Dims with_batch(const Dims& batch, const Dims& matrices) {
  Dims dims = batch;
  for (int axis = std::max(0, matrices.rank() - 2); axis < matrices.rank(); ++axis)
    dims.push_back(matrices[axis]);
  return dims;
}

bool have_equal_matrices(const Dims& a, const Dims& b) {
  return a.rank() >= 2 && b.rank() >= 2 && a[a.rank() - 1] == b[b.rank() - 1] &&
         a[a.rank() - 2] == b[b.rank() - 2];
}

// Whether each axis of `whole` is the product of neighbours in `split`, which are more.
bool splits(const Dims& whole, const Dims& split) {
  int at = 0;
  for (const int64_t extent : whole) {
    int64_t count = 1;
    do {
      if (at == split.rank()) return false;
      count *= split[at++];
    } while (count < extent);
    if (count != extent) return false;
  }
  for (; at < split.rank(); ++at)
    if (split[at] != 1) return false;
  return split.rank() > whole.rank();
}

std::ptrdiff_t longer_axes(const Dims& dims) {
  return std::ranges::count_if(dims, [](int64_t extent) { return extent != 1; });
}

class SplitBatches {
 public:
  SplitBatches(Graph& graph, Additions& additions)
      : graph_(graph), additions_(additions), index_(graph), known_(graph.tensors.size()) {}

  // Whether any matmul was split.
  bool run() {
    for (int at = 0; at < std::ssize(graph_.ops); ++at)
      if (const auto batch = is_matmul(op_of(at)) ? batch_around(op_of(at)) : std::nullopt)
        batches_.emplace(at, *batch);
    if (batches_.empty()) return false;
    std::vector<Op> given = graph_.ops;
    for (size_t at = 0; at < given.size(); ++at) {
      Op& op = given[at];
      std::ranges::move(before_[static_cast<int>(at)], std::back_inserter(ops_));
      if (const auto batch = batches_.find(static_cast<int>(at)); batch != batches_.end())
        split(op, batch->second, given);
      else if (!dropped_.contains(static_cast<int>(at)))
        ops_.push_back(op);
    }
    graph_.ops = std::move(ops_);
    drop_unread_views(graph_, replaced_);
    return true;
  }

 private:
  const Tensor& tensor(int at) const { return graph_.tensors[static_cast<size_t>(at)]; }
  const Dims& dims(int at) const { return tensor(at).dims; }
  const Op& op_of(int at) const { return graph_.ops[static_cast<size_t>(at)]; }

  // ---- What was merged ----

  // The batch axes around the matmul, if they are finer than its own. Those in front of it are known.
  std::optional<Dims> batch_around(const Op& matmul) const {
    const int a = matmul.inputs[0], b = matmul.inputs[1];
    const Dims own = batch_of(dims(matmul.outputs[0]));
    const bool is_plain = std::ranges::all_of(matmul.inputs, [&](int input) {
      return std::cmp_less(input, known_) && !tensor(input).is_scalar() && !is_packed(tensor(input).type);
    });
    if (!is_plain || own.empty() || batch_of(dims(a)) != own || batch_of(dims(b)) != own) return std::nullopt;
    const auto is_finer = [&](const Dims& batch) {
      return splits(own, batch) && batch.rank() + 2 <= kMaxRank;
    };
    if (const int reshape = reshape_behind(matmul.outputs[0]); reshape >= 0)
      if (const Dims batch = batch_of(dims(op_of(reshape).outputs[0]));
          is_finer(batch) && !is_led_whole(a, batch) && !is_led_whole(b, batch))
        return batch;
    // A leading axis of one element, as a slice leaves it, is not merged: nothing is gained by keeping it.
    for (const int operand : {a, b})
      if (const auto batch = merged_batch(operand);
          batch && is_finer(*batch) && longer_axes(*batch) > longer_axes(own))
        return batch;
    return std::nullopt;
  }

  // Whether a matmul leads to the operand in whole batches, by ops of elements, in totals or transposed: they
  // are one chain, which a reshape between them would part.
  bool is_led_whole(int operand, const Dims& batch) const {
    std::vector<int> open{operand};
    std::set<int> seen{operand};
    for (int steps = 0; steps < kLongestWay && !open.empty(); ++steps) {
      const int value = open.back();
      open.pop_back();
      const Op* const maker = made_by(value);
      if (maker == nullptr) continue;
      if (is_matmul(*maker)) {
        const auto split = batches_.find(index_.producer(value));
        if (split == batches_.end() || split->second != batch) return true;
      } else if (is_pointwise(*maker) || is_reduction(*maker) || is_transpose(*maker)) {
        for (const int input : maker->inputs)
          if (input >= 0 && seen.insert(input).second) open.push_back(input);
      }
    }
    return false;
  }

  const Op* made_by(int value) const {
    const int producer = std::cmp_less(value, known_) ? index_.producer(value) : -1;
    return producer < 0 ? nullptr : &op_of(producer);
  }

  // The batch axes that an operand had before a reshape merged them: behind that, its matrices may have been
  // transposed, and gone through pointwise ops of them and scalars. Nothing where no reshape did.
  std::optional<Dims> merged_batch(int operand) const {
    for (int steps = 0; steps < kLongestWay; ++steps) {
      const Op* const maker = made_by(operand);
      if (maker == nullptr) return std::nullopt;
      if (merges_batches(*maker)) return batch_of(dims(maker->inputs[0]));
      operand = transposes_matrices(*maker) ? maker->inputs[0] : stepped_from(*maker);
      if (operand < 0) return std::nullopt;
    }
    return std::nullopt;
  }

  bool merges_batches(const Op& op) const {
    return is_reshape(op) && !tensor(op.inputs[0]).is_scalar() &&
           have_equal_matrices(dims(op.inputs[0]), dims(op.outputs[0]));
  }

  // The operand of a step whose result only one op reads; -1 for any other op.
  int stepped_from(const Op& op) const {
    if (!is_pointwise(op) || only_reader(op.outputs[0]) < 0) return -1;
    for (const int input : op.inputs)
      if (!tensor(input).is_scalar() && is_step(op, input)) return input;
    return -1;
  }

  static bool transposes_matrices(const Op& op) {
    const auto* const transpose = std::get_if<Transpose>(&op.attributes);
    return transpose != nullptr && transpose->permutation == swapped_matrices(transpose->permutation.rank());
  }

  // The permutation of so many axes that transposes matrices.
  static Dims swapped_matrices(int rank) {
    Dims permutation;
    for (int axis = 0; axis < rank; ++axis) permutation.push_back(axis);
    if (rank >= 2) std::swap(permutation[rank - 2], permutation[rank - 1]);
    return permutation;
  }

  // The reshape of batches alone that the product comes to, through pointwise ops that nothing else reads,
  // whose other operands have a shape beside what the reshape gives; -1 where there is none.
  int reshape_behind(int product) const {
    int at = product;
    std::vector<int> operands;
    for (int steps = 0; steps < kLongestWay; ++steps) {
      const int reader = only_reader(at);
      if (reader < 0) return -1;
      const Op& op = op_of(reader);
      if (is_reshape(op)) {
        const Dims& split = dims(op.outputs[0]);
        const auto has_shape = [&](int operand) {
          return tensor(operand).is_scalar() || reshaped(dims(operand), dims(at), split).has_value();
        };
        const bool fits = have_equal_matrices(dims(at), split) && std::ranges::all_of(operands, has_shape);
        return fits ? reader : -1;
      }
      if (!keeps_shape(op, at)) return -1;
      std::ranges::copy_if(op.inputs, std::back_inserter(operands), [&](int input) { return input != at; });
      at = op.outputs[0];
    }
    return -1;
  }

  int only_reader(int value) const {
    const auto readers = index_.consumers(value);
    return readers.size() == 1 && tensor(value).is_virtual() && !is_packed(tensor(value).type) ? readers[0]
                                                                                               : -1;
  }

  bool is_step(const Op& op, int value) const {
    return keeps_shape(op, value) && std::ranges::all_of(op.inputs, [&](int input) {
             return input == value || tensor(input).is_scalar();
           });
  }

  // Whether a pointwise op of the value and of others that fit it gives as many elements in its shape.
  bool keeps_shape(const Op& op, int value) const {
    const auto* const pointwise = std::get_if<Pointwise>(&op.attributes);
    return pointwise != nullptr && pointwise->mode != PointwiseMode::gen_index &&
           dims(op.outputs[0]) == dims(value) && std::ranges::none_of(op.inputs, [&](int input) {
             return is_packed(tensor(input).type) || std::cmp_greater_equal(input, known_);
           });
  }

  // ---- Rewriting ----

  void split(Op matmul, const Dims& batch, std::vector<Op>& given) {
    seen_.clear();
    const int product = matmul.outputs[0], reshape = reshape_behind(product);
    for (int& input : matmul.inputs) input = seen_split(input, batch, matmul.name);
    if (reshape >= 0 && dims(op_of(reshape).outputs[0]) == with_batch(batch, dims(product)))
      return split_up_to(reshape, std::move(matmul), batch, given);
    Op merge{additions_.op_name(matmul.name + ".out"), Reshape{}, {}, {product}};
    merge.inputs = matmul.outputs = {split_tensor(product, batch, matmul.name)};
    ops_.push_back(std::move(matmul));
    ops_.push_back(std::move(merge));
  }

  // The matmul and the steps behind it in the shape that the reshape gives, which goes.
  void split_up_to(int reshape, Op matmul, const Dims& batch, std::vector<Op>& given) {
    const int last = op_of(reshape).outputs[0];
    Op* writer = &matmul;
    for (int from = matmul.outputs[0];;) {
      const int reader = only_reader(from);
      const int made = reader == reshape ? last : split_tensor(from, batch, writer->name);
      writer->outputs = {made};
      Op& next = given[static_cast<size_t>(reader)];
      const Dims whole = dims(from);
      leave_empty(graph_.tensors[static_cast<size_t>(from)]);
      if (reader == reshape) break;
      for (int& input : next.inputs) input = input == from ? made : beside(input, whole, dims(made), reader);
      from = next.outputs[0];
      writer = &next;
    }
    dropped_.insert(reshape);
    ops_.push_back(std::move(matmul));
  }

  // Another operand of the op at `reader`, in its shape beside the split value.
  int beside(int operand, const Dims& whole, const Dims& split, int reader) {
    if (tensor(operand).is_scalar()) return operand;
    const Dims shape = *reshaped(dims(operand), whole, split);
    if (shape == dims(operand)) return operand;
    Op view = additions_.view(Reshape{}, operand, shape, op_of(reader).name + ".in");
    const int y = view.outputs[0];
    before_[reader].push_back(std::move(view));
    return y;
  }

  int split_tensor(int whole, const Dims& batch, const std::string& op) {
    return additions_.tensor(Tensor(tensor(whole)), with_batch(batch, dims(whole)), op);
  }

  // The operand with that batch: as it was before it was merged, or a reshape of it.
  int seen_split(int operand, const Dims& batch, const std::string& reader) {
    const auto known = seen_.find(operand);
    if (known != seen_.end()) return known->second;
    const int seen = new_split(operand, batch, reader);
    seen_.emplace(operand, seen);
    return seen;
  }

  int new_split(int operand, const Dims& batch, const std::string& reader) {
    const Dims shape = with_batch(batch, dims(operand));
    const Op* const maker = made_by(operand);
    if (maker == nullptr || merged_batch(operand) != batch)
      return add_view(Reshape{}, operand, shape, reader);
    if (merges_batches(*maker)) return maker->inputs[0];
    if (transposes_matrices(*maker)) {
      const int x = seen_split(maker->inputs[0], batch, reader);
      return add_view(Transpose{swapped_matrices(shape.rank())}, x, shape, reader);
    }
    return split_step(*maker, batch, reader);
  }

  // A step in front of a matmul in the split shape. The step itself goes where nobody else reads it.
  int split_step(const Op& given, const Dims& batch, const std::string& reader) {
    Op step = given;
    const int from = stepped_from(given), y = given.outputs[0];
    std::ranges::replace(step.inputs, from, seen_split(from, batch, reader));
    step.name = additions_.op_name(given.name + ".split");
    step.outputs = {split_tensor(y, batch, step.name)};
    ops_.push_back(step);
    replaced_.insert(y);
    return step.outputs[0];
  }

  int add_view(Attributes attributes, int x, const Dims& shape, const std::string& reader) {
    ops_.push_back(additions_.view(std::move(attributes), x, shape, reader + ".in"));
    return ops_.back().outputs[0];
  }

  Graph& graph_;
  Additions& additions_;
  GraphIndex index_;             // of the ops as they were given
  size_t known_;                 // tensors that it knows
  std::map<int, Dims> batches_;  // by place of a matmul among the ops given: the axes around it
  std::vector<Op> ops_;
  std::map<int, std::vector<Op>> before_;  // by place among the ops given: views in front
  std::set<int> dropped_;                  // reshapes, by place among the ops given
  std::set<int> replaced_;                 // results of steps that others make in the split shape
  std::map<int, int> seen_;  // by operand of the matmul that is being split: the tensor in the split shape
};

}  // namespace

bool split_batches(Graph& graph, Additions& additions) {
  if (std::ranges::none_of(graph.ops, is_matmul) || std::ranges::none_of(graph.ops, is_reshape)) return false;
  return SplitBatches(graph, additions).run();
}

}  // namespace fusor
