// Owns the arrangement of sites and anchors: in front of anchors, between them, and behind them.
#include "backend/planner/fusion/fusion_builder.h"

#include <algorithm>

#include "core/fail.h"

namespace fusor {

namespace {

// The numbers of groups into which reductions split each axis of `dims`.
std::vector<std::vector<int64_t>> groups_of(const FusedOps& fused, const Dims& dims) {
  const Graph& graph = fused.graph();
  std::vector<std::vector<int64_t>> groups(static_cast<size_t>(dims.rank()));
  for (const int op : fused.ops()) {
    if (fused.is_upstream(op) || !std::holds_alternative<Reduction>(graph.ops[op].attributes)) continue;
    const Dims& from = graph.tensors[graph.ops[op].inputs[0]].dims;
    const Dims& to = graph.tensors[graph.ops[op].outputs[0]].dims;
    const int shift = dims.rank() - to.rank();
    for (int i = 0; i < to.rank() && shift >= 0; ++i)
      if (to[i] != 1 && to[i] != from[i])
        groups[static_cast<size_t>(i) + static_cast<size_t>(shift)].push_back(to[i]);
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    std::ranges::sort(groups[i]);
    groups[i].erase(std::unique(groups[i].begin(), groups[i].end()), groups[i].end());
    int64_t outer = 1;
    for (const int64_t count : groups[i]) {
      if (count % outer != 0 || dims[static_cast<int>(i)] % count != 0)
        fused.refuse("reduce groups that do not lie within each other");
      outer = count;
    }
  }
  return groups;
}

// The largest shape that the ops after the anchor (all, without one) speak of; grouped reductions split its
// axes.
Domain after_domain(const FusedOps& fused) {
  const Graph& graph = fused.graph();
  Dims dims;
  const auto widen = [&](int tensor) {
    const Dims& other = graph.tensors[tensor].dims;
    if (dims.empty() || element_count(other) > element_count(dims)) dims = other;
  };
  for (const int op : fused.ops()) {
    if (fused.is_upstream(op) || is_passed_through(graph, fused.folded().index, fused.ops(), op)) continue;
    widen(works_over_operand(graph.ops[op]) ? graph.ops[op].inputs[0] : graph.ops[op].outputs[0]);
  }
  return split_domain(dims, groups_of(fused, dims));
}

// The axis of `tensor` that reshapes behind ops of the fusion join of blocks, and their number; 0: none.
struct Blocks {
  int axis = 0;
  int64_t count = 0;
};
Blocks blocks_of(const FusedOps& fused, int tensor) {
  const Graph& graph = fused.graph();
  const Dims& dims = graph.tensors[tensor].dims;
  std::vector<int> waiting{tensor};
  while (!waiting.empty()) {
    const int producer = fused.folded().index.producer(waiting.back());
    waiting.pop_back();
    Blocks blocks;
    if (producer < 0) continue;
    const Op& op = graph.ops[producer];
    if (fused.is_of_blocks(producer) && graph.tensors[op.outputs[0]].dims == dims &&
        joins_blocks(graph, op, blocks.axis)) {
      blocks.count = graph.tensors[op.inputs[0]].dims[blocks.axis];
      return blocks;
    }
    if (fused.contains(producer) && !fused.is_anchor(producer))
      waiting.insert(waiting.end(), op.inputs.begin(), op.inputs.end());
  }
  return {};
}

// Values in front of a contraction are computed for each use, and stored by none.
void refuse_if_left(const FusedOps& fused, int op) {
  const Graph& graph = fused.graph();
  const Tensor& y = graph.tensors[graph.ops[op].outputs[0]];
  if (fused.leaves(graph.ops[op].outputs[0]))
    fused.refuse(fmt::format("compute '{}' in front of a contraction, which others read", y.name));
}

}  // namespace

FusionBuilder::FusionBuilder(const Graph& graph, const FoldedGraph& folded, std::span<const int> ops)
    : fused_(graph, folded, ops), graph_(graph), operands_(graph, folded, fusion_) {
  fusion_.ops.assign(ops.begin(), ops.end());
  fusion_.precision = graph.precision;
  for (const int op : ops) fusion_.op_names.push_back(graph.ops[op].name);
}

Fusion FusionBuilder::build() { return fused_.is_chain() ? build_chain() : build_around_anchors(); }

Fusion FusionBuilder::build_around_anchors() {
  std::vector<Input> results;
  for (const int anchor : fused_.anchors()) {
    const Op& op = graph_.ops[anchor];
    // Siblings share the first operand.
    const Port first = fusion_.anchors.empty() ? port_of(op.inputs[0]) : fusion_.anchors[0].operands[0];
    std::vector<Port> ports{first};
    for (size_t i = 1; i < op.inputs.size(); ++i) ports.push_back(port_of(op.inputs[i]));
    results.push_back(add_anchor(anchor, std::move(ports)));
  }
  fusion_.sites.push_back(site_after(std::move(results)));
  return std::move(fusion_);
}

Site FusionBuilder::site_after(std::vector<Input> results) {
  SiteBuilder site = open(after_domain(fused_));
  // Engines hand over the sums of all siblings, first, whoever uses them.
  if (fused_.anchors().size() > 1)
    for (const int anchor : fused_.anchors()) site.value(graph_.ops[anchor].outputs[0]);
  for (const int op : fused_.ops())
    if (fused_.is_upstream(op))
      refuse_if_left(fused_, op);
    else
      site.store_if_left(op);
  if (!site.has_stores()) fused_.refuse("leave nothing behind");
  // The one anchor's sums, too, where only its coordinates are asked for.
  for (const int anchor : fused_.anchors()) site.value(graph_.ops[anchor].outputs[0]);
  Site after{.expr = site.take(), .inputs = std::move(results)};
  if (after.expr.domain != site.domain().logical)
    for (Input& input : after.inputs) input.whole = site.domain().logical;
  return after;
}

// The operands of the anchors in front, what becomes of their results, and for each anchor behind that its
// other operand and what becomes of its own result.
Fusion FusionBuilder::build_chain() {
  std::vector<Input> results;
  for (const int anchor : fused_.fronts()) {
    const Op& op = graph_.ops[anchor];
    const Port a = port_of(op.inputs[0], repeats_of(anchor)), b = port_of(op.inputs[1], repeats_of(anchor));
    results.push_back(add_anchor(anchor, {a, b}));
  }
  const std::vector<int>& backs = fused_.backs();
  std::vector<std::vector<bool>> behind;
  behind.reserve(backs.size());
  for (const int anchor : backs) behind.push_back(downstream_of(fused_.folded(), fused_.ops(), anchor));
  const std::vector<int> yielded = add_between(std::move(results), behind);
  const int between = static_cast<int>(fusion_.sites.size()) - 1;
  for (size_t i = 0; i < backs.size(); ++i) {
    const FusedOps::Seen first = fused_.seen_through_transposes(graph_.ops[backs[i]].inputs[0]);
    const auto yield = std::ranges::find(yielded, fused_.unconverted(first.tensor)) - yielded.begin();
    add_behind(backs[i], {between, static_cast<int>(yield), first.axes}, behind[i]);
  }
  return std::move(fusion_);
}

const Dims& FusionBuilder::dims_between() const {
  const Op& back = graph_.ops[fused_.backs()[0]];
  return graph_.tensors[fused_.seen_through_transposes(back.inputs[0]).tensor].dims;
}

// Entries of the batch for each of which the site between computes the product of an anchor anew, by axis.
Dims FusionBuilder::repeats_of(int anchor) const {
  const Dims &product = graph_.tensors[graph_.ops[anchor].outputs[0]].dims, &whole = dims_between();
  Dims repeats = Dims::filled(product.rank(), 1);
  if (product.rank() != whole.rank()) return repeats;
  for (int axis = 0; axis + 2 < product.rank(); ++axis)
    if (product[axis] == 1) repeats[axis] = whole[axis];
  return repeats;
}

std::vector<int> FusionBuilder::add_between(std::vector<Input> results,
                                            const std::vector<std::vector<bool>>& behind) {
  visible_ = fused_.fronts();
  SiteBuilder site = open(plain_domain(dims_between()));
  std::vector<int> yielded;
  for (const int anchor : fused_.backs()) {
    const int tensor =
        fused_.unconverted(fused_.seen_through_transposes(graph_.ops[anchor].inputs[0]).tensor);
    if (std::ranges::find(yielded, tensor) != yielded.end()) continue;
    yielded.push_back(tensor);
    site.yield(tensor);
  }
  for (const int op : fused_.ops())
    if (!fused_.is_anchor(op) &&
        std::ranges::none_of(behind, [&](const auto& ops) -> bool { return ops[fused_.position(op)]; }))
      site.store_if_left(op);
  fusion_.sites.push_back({.expr = site.take(), .inputs = std::move(results)});
  return yielded;
}

void FusionBuilder::add_behind(int anchor, const Port& first, const std::vector<bool>& behind) {
  const Op& op = graph_.ops[anchor];
  const Port second = port_of(op.inputs[1]);
  const Input result = add_anchor(anchor, {first, second});
  visible_ = {anchor};
  SiteBuilder site = open(plain_domain(graph_.tensors[op.outputs[0]].dims));
  for (const int each : fused_.ops())
    if (behind[fused_.position(each)]) site.store_if_left(each);
  if (!site.has_stores()) fused_.refuse("leave nothing behind");
  site.value(op.outputs[0]);
  fusion_.sites.push_back({.expr = site.take(), .inputs = {result}});
}

Input FusionBuilder::add_anchor(int anchor, std::vector<Port> operands) {
  fusion_.anchors.push_back({anchor, graph_.ops[anchor].attributes, std::move(operands)});
  return {.from = Input::From::anchor, .at = static_cast<int>(fusion_.anchors.size()) - 1};
}

Port FusionBuilder::port_of(int tensor, const Dims& repeats) {
  Dims dims = graph_.tensors[tensor].dims;
  for (int axis = 0; axis < repeats.rank() && dims.rank() == repeats.rank(); ++axis)
    dims[axis] *= repeats[axis];
  const Blocks blocks = blocks_of(fused_, tensor);
  std::vector<std::vector<int64_t>> groups(static_cast<size_t>(dims.rank()));
  if (blocks.count > 0) groups[static_cast<size_t>(blocks.axis)] = {blocks.count};
  SiteBuilder site = open(split_domain(dims, groups));
  site.yield(tensor);
  add_site(fusion_, site.take());
  return {.site = static_cast<int>(fusion_.sites.size()) - 1, .whole = blocks.count > 0 ? dims : Dims{}};
}

}  // namespace fusor
