// Owns how groups of ops merge, and the answers to what is asked of them.
#include "backend/planner/partition/groups.h"

namespace fusor {

int pointwise_cost(const Op& op) {
  // A special-function result costs about this many fp32 instructions (128 against 16 a clock and SM).
  constexpr int kSpecialCost = 8;
  const PointwiseInfo& row = info(std::get<Pointwise>(op.attributes).mode);
  return row.alu + kSpecialCost * row.sfu;
}

Groups::Groups(const Graph& graph, const FoldedGraph& folded)
    : graph_(graph),
      folded_(folded),
      order_(folded),
      facts_(graph.ops.size()),
      before_anchor_(graph.ops.size(), false),
      met_in_(graph.ops.size(), 0) {
  for (int i = 0; i < op_count(); ++i)
    if (!folded.folded[i]) facts_[i] = facts_of(i);
}

GroupFacts Groups::facts_of(int op) const {
  const Op& described = graph_.ops[op];
  GroupFacts facts;
  facts.widest = op;
  facts.has_view = is_view(described.attributes);
  facts.has_gather = is_gather(described);
  facts.has_scatter = is_scatter(described);
  if (is_contraction(described.attributes) || std::holds_alternative<MoeGroupedMatmul>(described.attributes))
    facts.anchors = {op};
  // A recurrence is a fusion of its own.
  facts.is_closed = std::holds_alternative<Recurrence>(described.attributes);
  if (is_gen_index(op)) facts.indices = {op};
  if (!is_reduction(described)) return facts;
  facts.reductions = {op};
  facts.has_grouped = is_grouped(op);
  return facts;
}

bool Groups::is_gen_index(int op) const {
  const auto* pointwise = std::get_if<Pointwise>(&graph_.ops[op].attributes);
  return pointwise != nullptr && pointwise->mode == PointwiseMode::gen_index;
}

const Dims& Groups::work_dims(int op) const {
  return works_over_operand(graph_.ops[op]) ? graph_.tensors[graph_.ops[op].inputs[0]].dims : result_dims(op);
}

int64_t Groups::row_elements(int reduction) const {
  return element_count(work_dims(reduction)) / std::max<int64_t>(1, element_count(result_dims(reduction)));
}

int Groups::direct_producer(int tensor) const {
  const int producer = folded_.index.producer(tensor);
  return producer < 0 || folded_.folded[producer] ? -1 : producer;
}

bool Groups::is_view_of_input(int tensor) const {
  const int producer = folded_.index.producer(tensor);
  return producer < 0 || (folded_.folded[producer] && is_view_of_input(graph_.ops[producer].inputs[0]));
}

bool Groups::is_unpacking(int op) const {
  const auto* const pointwise = std::get_if<Pointwise>(&graph_.ops[op].attributes);
  if (pointwise == nullptr || pointwise->mode != PointwiseMode::identity || folded_.folded[op]) return false;
  const int x = graph_.ops[op].inputs[0];
  return is_packed(graph_.tensors[x].type) && is_virtual_result(op) &&
         graph_.tensors[graph_.ops[op].outputs[0]].type == unpacked(graph_.tensors[x].type) &&
         is_view_of_input(x);
}

void Groups::close_unpacking_for(std::span<const int> ops) {
  for (const int op : ops)
    for (const int input : graph_.ops[op].inputs)
      if (const int producer = direct_producer(input); producer >= 0 && is_unpacking(producer))
        close(group_of(producer));
}

Dims Groups::domain_of(int group) const {
  const GroupFacts& facts = facts_[group];
  if (!facts.anchors.empty()) return result_dims(facts.anchors.back());
  return facts.has_view ? Dims{} : work_dims(facts.widest);
}

bool Groups::fits_one_fusion(int a, int b) const {
  return !facts_[a].is_closed && !facts_[b].is_closed && size_of(a) + size_of(b) <= kMaxFusionOps;
}

bool Groups::reads_through_a_view(int op, int group) const {
  return reads_through_a_view(graph_.ops[op].inputs, group);
}

bool Groups::reads_through_a_view(std::span<const int> inputs_read, int group) const {
  std::vector<int> waiting;
  const auto look_behind = [&](int tensor) {
    const int producer = folded_.index.producer(tensor);
    if (producer < 0 || !folded_.folded[producer]) return;
    const std::vector<int>& inputs = graph_.ops[producer].inputs;
    waiting.insert(waiting.end(), inputs.begin(), inputs.end());
  };
  for (const int input : inputs_read) look_behind(input);
  while (!waiting.empty()) {
    const int tensor = waiting.back();
    waiting.pop_back();
    if (const int producer = direct_producer(tensor); producer >= 0 && group_of(producer) == group)
      return true;
    look_behind(tensor);
  }
  return false;
}

bool Groups::takes_from(int gather, int group) const {
  const int x = graph_.ops[gather].inputs[0];
  const int producer = direct_producer(x);
  return (producer >= 0 && group_of(producer) == group) || reads_through_a_view({&x, 1}, group);
}

void Groups::merge(int from, int into) {
  order_.merge(from, into);
  GroupFacts& facts = facts_[into];
  GroupFacts& others = facts_[from];
  const auto join = [](std::vector<int>& ops, const std::vector<int>& more) {
    const auto middle = static_cast<std::ptrdiff_t>(ops.size());
    ops.insert(ops.end(), more.begin(), more.end());
    std::inplace_merge(ops.begin(), ops.begin() + middle, ops.end());
  };
  join(facts.anchors, others.anchors);
  join(facts.reductions, others.reductions);
  join(facts.indices, others.indices);
  facts.has_view = facts.has_view || others.has_view;
  facts.has_grouped = facts.has_grouped || others.has_grouped;
  facts.has_gather = facts.has_gather || others.has_gather;
  facts.has_scatter = facts.has_scatter || others.has_scatter;
  facts.is_chain = facts.is_chain || others.is_chain;
  facts.is_closed = facts.is_closed || others.is_closed;
  const auto width = [this](int op) { return std::pair(element_count(work_dims(op)), -op); };
  if (width(others.widest) > width(facts.widest)) facts.widest = others.widest;
  others = {};
  count_fed_back(into);
  mark_before_anchors(into);
}

void Groups::count_fed_back(int group) {
  GroupFacts& facts = facts_[group];
  facts.fed_back = 0;
  for (const int reduction : facts.reductions) {
    if (!is_read_within(reduction, group)) continue;
    ++facts.fed_back;
    facts.row_dims = result_dims(reduction);
  }
}

bool Groups::is_read_within(int op, int group) const {
  return std::ranges::any_of(order_.dependents(op), [&](int reader) { return group_of(reader) == group; });
}

// Only what lies before anchors is walked.
void Groups::mark_before_anchors(int group) {
  any_before(anchors_of(group), {group, group}, [this](int op) {
    before_anchor_[op] = true;
    return false;
  });
}

}  // namespace fusor
