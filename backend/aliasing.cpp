// Owns the finding of pairs of tensors that may share memory, and the check of a run's pointers.
#include "backend/aliasing.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "core/ceil_div.h"
#include "core/fail.h"

namespace fusor {

namespace {

// Up to so many pairs are looked at one by one; beyond, tensors are sorted by address.
constexpr size_t kMostPairs = 4096;

struct Range {
  uintptr_t begin = 0, end = 0;
  bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
};

Range range_of(const BoundTensor& tensor, std::span<void* const> by_slot) {
  const auto begin = reinterpret_cast<uintptr_t>(by_slot[static_cast<size_t>(tensor.slot)]);
  return {begin, begin + static_cast<uintptr_t>(tensor.bytes)};
}

// ---- strided elements ----

// Whether every row along an axis of stride 1 begins a byte.
bool has_rows_of_bytes(const Tensor& tensor, int row) {
  for (int axis = 0; axis < tensor.dims.rank(); ++axis)
    if (axis != row && tensor.dims[axis] > 1 && tensor.strides[axis] % elements_per_byte(tensor.type) != 0)
      return false;
  return tensor.strides[row] == 1;
}

// The bits of a tensor as steps of a walk, the widest last. Packed elements are touched by whole bytes: where
// rows begin with a byte each, those are the elements; elsewhere each element takes as many bits as reach the
// end of its byte from any place in it.
struct Walk {
  int rank = 0;
  std::array<int64_t, kMaxRank> extent{}, stride{};  // bits
  int64_t element = 0;

  explicit Walk(const Tensor& tensor) : element(8 * byte_size(tensor.type)) {
    const int64_t shared = elements_per_byte(tensor.type);
    for (int axis = 0; axis < tensor.dims.rank(); ++axis) {
      if (tensor.dims[axis] == 1 || tensor.strides[axis] == 0) continue;
      const bool by_bytes = shared > 1 && has_rows_of_bytes(tensor, axis);
      const int64_t steps = by_bytes ? ceil_div(tensor.dims[axis], shared) : tensor.dims[axis];
      if (steps == 1) continue;
      int at = rank++;
      const int64_t step = by_bytes ? 8 : tensor.strides[axis] * info(tensor.type).bits;
      for (; at > 0 && stride[static_cast<size_t>(at) - 1] > step; --at) {
        stride[static_cast<size_t>(at)] = stride[static_cast<size_t>(at) - 1];
        extent[static_cast<size_t>(at)] = extent[static_cast<size_t>(at) - 1];
      }
      stride[static_cast<size_t>(at)] = step;
      extent[static_cast<size_t>(at)] = steps;
    }
  }
  int64_t span(int axes) const {
    int64_t bits = element;
    for (int i = 0; i < axes; ++i)
      bits += (extent[static_cast<size_t>(i)] - 1) * stride[static_cast<size_t>(i)];
    return bits;
  }
  int64_t widest(int axes) const { return axes == 0 ? 0 : stride[static_cast<size_t>(axes) - 1]; }
};

// Whether the walks over the inner axes of both may meet. Where both have the same widest step, and none
// leaves it, only neighbours of one step can meet.
bool may_meet(const Walk& a, int a_axes, const Walk& b, int b_axes, int64_t distance) {
  if (distance >= a.span(a_axes) || -distance >= b.span(b_axes)) return false;
  const int64_t step = a.widest(a_axes);
  if (step == 0 || step != b.widest(b_axes)) return true;
  if (a.span(a_axes - 1) > step || b.span(b_axes - 1) > step) return true;
  const int64_t within = (distance % step + step) % step;
  return may_meet(a, a_axes - 1, b, b_axes - 1, within) ||
         may_meet(a, a_axes - 1, b, b_axes - 1, within - step);
}

// ---- in place ----

bool same_walk(const Dims& domain, const Access& load, const Access& store) {
  if (load.offset != store.offset || load.is_indexed() || store.is_indexed()) return false;
  for (int axis = 0; axis < domain.rank(); ++axis)
    if (domain[axis] > 1 && load.strides[axis] != store.strides[axis]) return false;
  return true;
}

bool loads_tensor(const Fusion& fusion, const Expr& site, int tensor) {
  return std::ranges::any_of(site.nodes, [&](const Node& node) {
    return node.kind == Node::Kind::load &&
           fusion.operands[static_cast<size_t>(node.access.operand)].tensor == tensor;
  });
}

// Whether a site reads `input` only where it then stores `output`, element by element.
bool reads_where_it_writes(const Fusion& fusion, const Expr& site, int input, int output) {
  for (const Node& node : site.nodes) {
    if (node.kind != Node::Kind::load) continue;
    if (fusion.operands[static_cast<size_t>(node.access.operand)].tensor != input) continue;
    const bool replaced = std::ranges::any_of(site.stores, [&](const Store& store) {
      return fusion.operands[static_cast<size_t>(store.access.operand)].tensor == output &&
             same_walk(site.domain, node.access, store.access);
    });
    if (!replaced) return false;
  }
  return true;
}

// Whether each element of `input` is read at one place of the domain only.
bool reads_each_once(const Fusion& fusion, const Expr& site, int input) {
  return std::ranges::all_of(site.nodes, [&](const Node& node) {
    if (node.kind != Node::Kind::load) return true;
    if (fusion.operands[static_cast<size_t>(node.access.operand)].tensor != input) return true;
    for (int axis = 0; axis < site.domain.rank(); ++axis)
      if (site.domain[axis] > 1 && node.access.strides[axis] == 0) return false;
    return true;
  });
}

// Whether the kernel is one of rows: a thread that works on an element of a row is the only one that reads
// it, in all phases, and stores it when the row's totals are known (codegen/device/rows/held.cuh).
bool keeps_elements_with_threads(const Step& step) {
  const auto* const launch = std::get_if<Launch>(&step);
  return launch != nullptr && launch->source && launch->source->root.starts_with("rows/");
}

// Whether a fusion's kernels may find `output` in the place of `input`, which `step` reads last and writes
// first: what is read before an anchor is read many times, and reductions may walk their domain more than
// once.
bool works_in_place(const Graph& graph, const Fusion& fusion, const Step& step, int input, int output) {
  const Tensor& from = graph.tensors[static_cast<size_t>(input)];
  const Tensor& to = graph.tensors[static_cast<size_t>(output)];
  if (byte_size(from.type) != byte_size(to.type) || is_packed(from.type) != is_packed(to.type)) return false;
  // A thread reads elements of other threads' bytes.
  if (is_packed(from.type)) return false;
  const auto loads = [&](const Site& site) { return loads_tensor(fusion, site.expr, input); };
  const std::span<const Site> operands = operand_sites(fusion);
  if (std::ranges::any_of(operands, loads)) return false;
  return std::ranges::all_of(std::span(fusion.sites).subspan(operands.size()), [&](const Site& site) {
    if (!loads(site)) return true;
    if (!reads_where_it_writes(fusion, site.expr, input, output)) return false;
    return !site.expr.has_reduction() ||
           (keeps_elements_with_threads(step) && reads_each_once(fusion, site.expr, input));
  });
}

template <class Body>
void for_each_tensor(const Fusion& fusion, const Step& step, Body body) {
  if (std::holds_alternative<Evaluate>(step))
    for (const Operand& operand : fusion.operands)
      if (operand.tensor >= 0) body(operand.tensor);
  const auto* launch = std::get_if<Launch>(&step);
  if (launch == nullptr) return;
  for (const Patch& patch : launch->arguments.patches())
    if (patch.kind == Patch::Kind::operand || patch.kind == Patch::Kind::tensor_map)
      body(fusion.operands[static_cast<size_t>(patch.index)].tensor);
}

}  // namespace

namespace {

// Whether the op is of a written-out ragged_load: a view of the tensor's one axis as the last of several,
// which only gathers along that axis read.
bool is_ragged_load(const Graph& graph, const GraphIndex& index, const Op& op, int tensor) {
  if (op.inputs[0] != tensor || std::ranges::count(op.inputs, tensor) != 1) return false;
  if (std::holds_alternative<RaggedLoad>(op.attributes)) return true;
  if (!std::holds_alternative<Reshape>(op.attributes)) return false;
  const Tensor& row = graph.tensors[static_cast<size_t>(op.outputs[0])];
  const std::span<const int> readers = index.consumers(op.outputs[0]);
  return row.is_virtual() && row.dims.rank() > 1 && row.dims.back() == element_count(row.dims) &&
         !readers.empty() && std::ranges::all_of(readers, [&](int reader) {
           const Op& next = graph.ops[static_cast<size_t>(reader)];
           const auto* const gather = std::get_if<Gather>(&next.attributes);
           return gather != nullptr && gather->axis == row.dims.rank() - 1 &&
                  next.inputs[0] == op.outputs[0] && next.inputs[1] != op.outputs[0];
         });
}

// Whether the op is a ragged_store or what it is written out as: a scatter of several axes' elements, by the
// last, into the one of its result.
bool is_ragged_store(const Graph& graph, const Op& op) {
  if (const auto* const store = std::get_if<RaggedStore>(&op.attributes)) return store->keeps_rest;
  const auto* const scatter = std::get_if<Scatter>(&op.attributes);
  if (scatter == nullptr) return false;
  const int rank = graph.tensors[static_cast<size_t>(op.inputs[0])].dims.rank();
  return rank > 1 && scatter->axis == rank - 1 &&
         graph.tensors[static_cast<size_t>(op.outputs[0])].dims.rank() == 1;
}

}  // namespace

bool is_reached_by_index(const Graph& graph, const GraphIndex& index, int tensor) {
  const int producer = index.producer(tensor);
  if (producer >= 0) return is_ragged_store(graph, graph.ops[static_cast<size_t>(producer)]);
  const std::span<const int> readers = index.consumers(tensor);
  return graph.tensors[static_cast<size_t>(tensor)].dims.rank() == 1 && !readers.empty() &&
         std::ranges::all_of(readers, [&](int reader) {
           return is_ragged_load(graph, index, graph.ops[static_cast<size_t>(reader)], tensor);
         });
}

bool may_overlap(const Tensor& a, const Tensor& b, int64_t distance) {
  const Walk first(a), second(b);
  return may_meet(first, first.rank, second, second.rank, 8 * distance);
}

AliasRules::AliasRules(const Graph& graph, const Schedule& schedule, std::span<const int> slot_of) {
  std::vector<bool> written(graph.tensors.size(), false);
  for (const Op& op : graph.ops)
    for (const int output : op.outputs) written[static_cast<size_t>(output)] = true;
  const GraphIndex index(graph);
  std::vector<int> place(graph.tensors.size(), -1);
  for (const bool outputs : {true, false}) {
    for (size_t i = 0; i < graph.tensors.size(); ++i) {
      const Tensor& tensor = graph.tensors[i];
      if (tensor.memory != Memory::device || written[i] != outputs) continue;
      place[i] = static_cast<int>(tensors_.size());
      tensors_.push_back({.slot = slot_of[i],
                          .tensor = static_cast<int>(i),
                          .bytes = is_reached_by_index(graph, index, static_cast<int>(i))
                                       ? byte_size(tensor.type)
                                       : tensor.bytes(),
                          .is_output = outputs,
                          .first_step = std::numeric_limits<int>::max()});
    }
    if (outputs) outputs_ = tensors_.size();
  }
  std::vector<std::pair<const Fusion*, const Step*>> steps;
  for (const ScheduledFusion& scheduled : schedule.fusions)
    for (const Step& step : scheduled.lowered.steps) {
      const int number = static_cast<int>(steps.size());
      steps.emplace_back(&scheduled.fusion, &step);
      for_each_tensor(scheduled.fusion, step, [&](int tensor) {
        if (tensor < 0 || place[static_cast<size_t>(tensor)] < 0) return;
        BoundTensor& bound = tensors_[static_cast<size_t>(place[static_cast<size_t>(tensor)])];
        bound.first_step = std::min(bound.first_step, number);
        bound.last_step = std::max(bound.last_step, number);
      });
    }
  // An input that is last read where an output is first written is an operand of that step's fusion.
  for (size_t i = 0; i < outputs_; ++i) {
    BoundTensor& output = tensors_[i];
    if (output.last_step < 0) continue;
    const auto [fusion, step] = steps[static_cast<size_t>(output.first_step)];
    for (const Operand& operand : fusion->operands) {
      if (operand.tensor < 0 || place[static_cast<size_t>(operand.tensor)] < 0) continue;
      const BoundTensor& input = tensors_[static_cast<size_t>(place[static_cast<size_t>(operand.tensor)])];
      if (!input.is_output && input.last_step == output.first_step &&
          works_in_place(graph, *fusion, *step, input.tensor, output.tensor))
        output.in_place.push_back(input.tensor);
    }
  }
}

bool AliasRules::check(const Graph& graph, std::span<void* const> by_slot, const void* workspace,
                       int64_t workspace_bytes, int* order) const {
  if (workspace_bytes > 0) {
    const auto begin = reinterpret_cast<uintptr_t>(workspace);
    const Range taken{begin, begin + static_cast<uintptr_t>(workspace_bytes)};
    for (const BoundTensor& tensor : tensors_)
      if (range_of(tensor, by_slot).overlaps(taken)) [[unlikely]]
        fail("run: tensor '{}' ({} bytes at {}) overlaps the workspace ({} bytes at {})",
             graph.tensors[static_cast<size_t>(tensor.tensor)].name, tensor.bytes,
             by_slot[static_cast<size_t>(tensor.slot)], workspace_bytes, workspace);
  }
  return outputs_ * tensors_.size() <= kMostPairs ? check_pairs(graph, by_slot)
                                                  : check_sorted(graph, by_slot, order);
}

bool AliasRules::may_replace(int output, int input) const {
  const auto written = std::ranges::find(tensors_, output, &BoundTensor::tensor);
  const auto read = std::ranges::find(tensors_, input, &BoundTensor::tensor);
  if (written == tensors_.end() || read == tensors_.end() || !written->is_output || read->is_output)
    return false;
  return may_replace(*written, *read);
}

bool AliasRules::may_replace(const BoundTensor& output, const BoundTensor& other) {
  const bool is_dead = !other.is_output && other.last_step < output.first_step;
  return is_dead || std::ranges::find(output.in_place, other.tensor) != output.in_place.end();
}

bool AliasRules::check_pairs(const Graph& graph, std::span<void* const> by_slot) const {
  bool any = false;
  for (size_t i = 0; i < outputs_; ++i) {
    const Range output = range_of(tensors_[i], by_slot);
    for (size_t k = i + 1; k < tensors_.size(); ++k)
      if (range_of(tensors_[k], by_slot).overlaps(output)) [[unlikely]]
        any |= check_pair(graph, by_slot, tensors_[i], tensors_[k]);
  }
  return any;
}

// Walks the tensors by address: one that begins before an earlier one ends is compared with all before it.
bool AliasRules::check_sorted(const Graph& graph, std::span<void* const> by_slot, int* order) const {
  bool any = false;
  const std::span<int> sorted(order, tensors_.size());
  for (size_t i = 0; i < sorted.size(); ++i) sorted[i] = static_cast<int>(i);
  const auto at = [&](int i) -> const BoundTensor& { return tensors_[static_cast<size_t>(i)]; };
  std::ranges::sort(sorted, {}, [&](int i) { return range_of(at(i), by_slot).begin; });
  uintptr_t end = 0, output_end = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const BoundTensor& tensor = at(sorted[i]);
    const Range range = range_of(tensor, by_slot);
    if (range.begin < (tensor.is_output ? end : output_end))
      for (size_t k = 0; k < i; ++k) {
        const BoundTensor& before = at(sorted[k]);
        if (!(tensor.is_output || before.is_output) || !range_of(before, by_slot).overlaps(range)) continue;
        any |= check_pair(graph, by_slot, before.is_output ? before : tensor,
                          before.is_output ? tensor : before);
      }
    end = std::max(end, range.end);
    if (tensor.is_output) output_end = std::max(output_end, range.end);
  }
  return any;
}

// Whether the output takes the other's place.
bool AliasRules::check_pair(const Graph& graph, std::span<void* const> by_slot, const BoundTensor& output,
                            const BoundTensor& other) const {
  const Range to = range_of(output, by_slot), from = range_of(other, by_slot);
  const bool may_begin_alike = may_replace(output, other);
  if (to.begin == from.begin && may_begin_alike) return true;
  const Tensor& written = graph.tensors[static_cast<size_t>(output.tensor)];
  const Tensor& beside = graph.tensors[static_cast<size_t>(other.tensor)];
  if (!may_overlap(written, beside, static_cast<int64_t>(from.begin - to.begin))) return false;
  fail("run: output '{}' ({} bytes at {}) overlaps {} '{}' ({} bytes at {}); {}", written.name, output.bytes,
       by_slot[static_cast<size_t>(output.slot)], other.is_output ? "output" : "input", beside.name,
       other.bytes, by_slot[static_cast<size_t>(other.slot)],
       may_begin_alike ? "this plan allows it only where both begin at one address"
                       : "this plan reads or writes both at the same time");
}

}  // namespace fusor
