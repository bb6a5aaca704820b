// Owns the accesses of fusions, and the search for those that meet.
#include "backend/side_by_side.h"

#include <algorithm>
#include <utility>

#include "backend/aliasing.h"
#include "heuristics/time_model.h"

namespace fusor {

namespace {

// So many fusions at most run beside each other: beyond, comparing them costs more than waiting.
constexpr int kMostBeside = 16;

// One read or write of a fusion: of a tensor, or of its own scratch.
struct Use {
  int tensor = -1;  // -1: scratch
  bool writes = false;
  /// The elements, as a tensor whose first element is `offset` elements behind the operand's; no dims: all.
  Tensor elements;
  int64_t offset = 0;
};

bool has_known_elements(const Access& access, DataType type) {
  return !access.is_indexed() && !is_packed(type) &&
         std::ranges::none_of(access.strides, [](int64_t stride) { return stride < 0; });
}

Use use_of(const Fusion& fusion, const Dims& domain, const Access& access, bool writes) {
  const Operand& operand = fusion.operands[static_cast<size_t>(access.operand)];
  Use use{operand.tensor, writes, {}, access.offset};
  use.elements.type = operand.type;
  if (!has_known_elements(access, operand.type)) return use;
  use.elements.dims = domain;
  use.elements.strides = access.strides;
  return use;
}

// An operand that no site names is read and written by its engine as it likes.
std::vector<Use> uses_of(const Fusion& fusion) {
  std::vector<Use> uses;
  std::vector<bool> named(fusion.operands.size(), false);
  const auto note = [&](const Expr& expr, const Access& access, bool writes) {
    named[static_cast<size_t>(access.operand)] = true;
    uses.push_back(use_of(fusion, expr.domain, access, writes));
  };
  for (const Site& site : fusion.sites) {
    for (const Node& node : site.expr.nodes)
      if (node.kind == Node::Kind::load || node.kind == Node::Kind::scalar)
        note(site.expr, node.access, false);
    for (const Store& store : site.expr.stores) note(site.expr, store.access, true);
  }
  for (size_t i = 0; i < named.size(); ++i)
    if (!named[i]) uses.push_back({fusion.operands[i].tensor, true, {}, 0});
  std::erase_if(uses, [](const Use& use) { return use.tensor < 0; });
  return uses;
}

bool share_elements(const Use& a, const Use& b) {
  if (a.elements.dims.empty() || b.elements.dims.empty()) return true;
  return may_overlap(a.elements, b.elements, (b.offset - a.offset) * byte_size(a.elements.type));
}

// Where tensors and scratch lie in the workspace, as far as that is known.
class Places {
 public:
  Places() = default;
  Places(const Graph& graph, const Schedule& schedule) : graph_(&graph), schedule_(&schedule) {}

  bool meet(const Use& a, const Use& b) const {
    if (!a.writes && !b.writes) return false;
    if (a.tensor == b.tensor && a.tensor >= 0) return share_elements(a, b);
    if (schedule_ == nullptr) return false;
    const auto [a_begin, a_end] = range_of(a);
    const auto [b_begin, b_end] = range_of(b);
    return a_begin < b_end && b_begin < a_end;
  }

 private:
  // Bytes of the workspace; none of a tensor that lies elsewhere.
  std::pair<int64_t, int64_t> range_of(const Use& use) const {
    if (use.tensor < 0) return {use.offset, use.offset + use.elements.dims[0]};
    const int64_t begin = schedule_->tensor_offsets[static_cast<size_t>(use.tensor)];
    if (begin < 0) return {0, 0};
    return {begin, begin + graph_->tensors[static_cast<size_t>(use.tensor)].bytes()};
  }

  const Graph* graph_ = nullptr;
  const Schedule* schedule_ = nullptr;
};

// The fusions that may run when the next one begins.
class Running {
 public:
  explicit Running(Places places) : places_(places) {}

  /// Whether the next fusion meets none of them.
  bool may_join(const std::vector<Use>& uses) const {
    return !all_.empty() && static_cast<int>(all_.size()) < kMostBeside &&
           std::ranges::none_of(all_, [&](const std::vector<Use>& other) { return meet(uses, other); });
  }
  void wait_for_all() { all_.clear(); }
  void add(std::vector<Use> uses) { all_.push_back(std::move(uses)); }

 private:
  bool meet(const std::vector<Use>& some, const std::vector<Use>& others) const {
    return std::ranges::any_of(some, [&](const Use& one) {
      return std::ranges::any_of(others, [&](const Use& other) { return places_.meet(one, other); });
    });
  }

  Places places_;
  std::vector<std::vector<Use>> all_;
};

std::vector<Use> uses_of(const ScheduledFusion& scheduled) {
  std::vector<Use> uses = uses_of(scheduled.fusion);
  for (size_t i = 0; i < scheduled.scratch_offsets.size(); ++i) {
    Use scratch{-1, true, {}, scheduled.scratch_offsets[i]};
    scratch.elements.dims = {scheduled.lowered.scratch[i]};
    uses.push_back(std::move(scratch));
  }
  return uses;
}

}  // namespace

std::vector<int> stages_of(std::span<const Fusion* const> fusions) {
  std::vector<int> stages;
  Running running{Places()};
  for (size_t i = 0; i < fusions.size(); ++i) {
    std::vector<Use> uses = uses_of(*fusions[i]);
    const bool joins = running.may_join(uses);
    if (!joins) running.wait_for_all();
    stages.push_back(joins ? stages.back() : static_cast<int>(i));
    running.add(std::move(uses));
  }
  return stages;
}

bool overlaps_others(const Launch& launch, const DeviceInfo& device) {
  constexpr int64_t kMostBlocks = 16;  // an SM
  const int64_t blocks = int64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
  return launches_overlap(device) && !launch.cooperative && blocks <= kMostBlocks * device.sm_count;
}

std::vector<bool> fusions_beside(const Graph& graph, const Schedule& schedule, const DeviceInfo& device) {
  std::vector<bool> beside;
  Running running{Places(graph, schedule)};
  for (const ScheduledFusion& scheduled : schedule.fusions) {
    const std::vector<Step>& steps = scheduled.lowered.steps;
    std::vector<Use> uses = uses_of(scheduled);
    const auto* const first = steps.empty() ? nullptr : std::get_if<Launch>(&steps.front());
    beside.push_back(first != nullptr && first->turn_at >= 0 && overlaps_others(*first, device) &&
                     running.may_join(uses));
    // Each further step waits for the one in front of it, and so for all that ran before.
    if (!beside.back() || steps.size() > 1) running.wait_for_all();
    running.add(std::move(uses));
  }
  return beside;
}

std::vector<bool> steps_beside(const Graph& graph, const Schedule& schedule, const DeviceInfo& device) {
  const std::vector<bool> fusions = fusions_beside(graph, schedule, device);
  std::vector<bool> beside;
  for (size_t i = 0; i < fusions.size(); ++i)
    for (size_t step = 0; step < schedule.fusions[i].lowered.steps.size(); ++step)
      beside.push_back(fusions[i] && step == 0);
  return beside;
}

}  // namespace fusor
