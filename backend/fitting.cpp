// Owns the search for options whose workspace fits.
#include "backend/fitting.h"

#include <algorithm>

namespace fusor {

namespace {

// Per position: bytes of the intermediates that are alive there.
std::vector<int64_t> bytes_alive(const Graph& graph, const std::vector<Choice>& fusions) {
  std::vector<int> first(graph.tensors.size(), -1), last(graph.tensors.size(), -1);
  for (size_t i = 0; i < fusions.size(); ++i)
    for (const Operand& operand : fusions[i].fusion().operands) {
      if (operand.memory != Memory::workspace) continue;
      if (first[operand.tensor] < 0) first[operand.tensor] = static_cast<int>(i);
      last[operand.tensor] = static_cast<int>(i);
    }
  std::vector<int64_t> change(fusions.size() + 1, 0);
  for (size_t tensor = 0; tensor < first.size(); ++tensor) {
    if (first[tensor] < 0) continue;
    const int64_t bytes = aligned_workspace(graph.tensors[tensor].bytes());
    change[first[tensor]] += bytes;
    change[last[tensor] + 1] -= bytes;
  }
  for (size_t i = 1; i < change.size(); ++i) change[i] += change[i - 1];
  return change;
}

}  // namespace

Fitting::Fitting(const Choices& choices) : choices_(choices) {
  for (const Choice& choice : choices.fusions) lowered_.emplace_back(choice.options.size());
}

const Lowered& Fitting::lowered(size_t fusion, size_t option) {
  std::optional<Lowered>& known = lowered_[fusion][option];
  if (!known) {
    const Choice& choice = choices_.fusions[fusion];
    const EngineOption& chosen = choice.options[option];
    known = choice.by(chosen).lower(chosen.config);
  }
  return *known;
}

int64_t Fitting::scratch(size_t fusion, size_t option) {
  int64_t bytes = 0;
  for (const int64_t block : lowered(fusion, option).scratch) bytes += aligned_workspace(block);
  return bytes;
}

int64_t Fitting::workspace_bytes(const Selection& selection) {
  std::vector<WorkspaceUse> uses;
  for (size_t i = 0; i < selection.size(); ++i)
    uses.push_back({&choices_.fusions[i].fusion(), lowered(i, selection[i]).scratch});
  return lay_out_workspace(choices_.graph, uses, choices_.overlap).bytes;
}

Schedule Fitting::schedule(const Selection& selection) {
  std::vector<ScheduledFusion> fusions;
  for (size_t i = 0; i < selection.size(); ++i)
    fusions.push_back({choices_.fusions[i].fusion(), lowered(i, selection[i]), {}});
  return make_schedule(choices_.graph, std::move(fusions), choices_.overlap);
}

size_t Fitting::cheapest_within(size_t fusion, int64_t bytes) {
  const size_t count = choices_.fusions[fusion].options.size();
  size_t least = 0;
  for (size_t option = 0; option < count; ++option) {
    // Options stand in the order of their price.
    if (scratch(fusion, option) <= bytes) return option;
    if (scratch(fusion, option) < scratch(fusion, least)) least = option;
  }
  return least;
}

std::optional<Selection> Fitting::within(int64_t limit, int64_t& least) {
  Selection selection(choices_.fusions.size(), 0);
  least = workspace_bytes(selection);
  if (least <= limit) return selection;
  const std::vector<int64_t> alive = bytes_alive(choices_.graph, choices_.fusions);
  for (size_t i = 0; i < selection.size(); ++i) selection[i] = cheapest_within(i, limit - alive[i]);
  // Gaps between blocks may still take too much: the fusion with the most scratch makes do with less.
  for (;;) {
    const int64_t bytes = workspace_bytes(selection);
    least = std::min(least, bytes);
    if (bytes <= limit) return selection;
    std::vector<size_t> by_scratch(selection.size());
    for (size_t i = 0; i < by_scratch.size(); ++i) by_scratch[i] = i;
    const auto needs = [&](size_t i) { return alive[i] + scratch(i, selection[i]); };
    std::ranges::stable_sort(by_scratch, std::greater{}, needs);
    const auto makes_do = [&](size_t i) {
      const int64_t had = scratch(i, selection[i]);
      const size_t less = had == 0 ? selection[i] : cheapest_within(i, had - 1);
      const bool changed = scratch(i, less) < had;
      if (changed) selection[i] = less;
      return changed;
    };
    if (std::ranges::none_of(by_scratch, makes_do)) return std::nullopt;
  }
}

}  // namespace fusor
