// Owns the search for batch axes that are rows of a matmul.
#include "backend/planner/fusion/merged_rows.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace fusor {

namespace {

bool is_plain_matmul(const Fusion& fusion, const Anchor& anchor) {
  return std::holds_alternative<Matmul>(anchor.attributes) &&
         anchor.operands[0].site == fusion.anchors[0].operands[0].site &&
         std::ranges::all_of(anchor.operands, [](const Port& port) { return port.axes.empty(); }) &&
         anchor.operands[0].whole.empty();
}

bool may_merge(const Fusion& fusion) {
  if (fusion.anchors.empty() || form_of(fusion) == Form::chain) return false;
  const auto is_whole = [](const Input& input) { return input.whole.empty(); };
  return std::ranges::all_of(fusion.anchors,
                             [&](const Anchor& anchor) { return is_plain_matmul(fusion, anchor); }) &&
         std::ranges::all_of(fusion.sites.back().inputs, is_whole);
}

// The batch axes of the result, from the first on, for which every second operand has one matrix, and the
// first operand one each.
std::vector<int> shared_axes(const Fusion& fusion) {
  const Dims &a = operand_site(fusion, 0, 0).domain, &c = result_site(fusion).domain;
  std::vector<int> shared;
  for (int axis = std::max(0, c.rank() - a.rank()); axis + 2 < c.rank(); ++axis) {
    const int from_last = c.rank() - axis;
    bool is_shared = a[a.rank() - from_last] == c[axis];
    for (size_t i = 0; i < fusion.anchors.size(); ++i) {
      const Dims b = operand_dims(fusion, fusion.anchors[i].operands[1]);
      is_shared = is_shared && (b.rank() < from_last || b[b.rank() - from_last] == 1);
    }
    if (is_shared) shared.push_back(axis);
  }
  return shared;
}

// The site with axes of the result, of rank `rank`, walked with the rows.
std::optional<Expr> merged(const Expr& site, int rank, std::span<const int> axes) {
  const int missing = rank - site.domain.rank();
  std::vector<Dims> groups;
  Dims rows;
  for (int axis = 0; axis + 2 < site.domain.rank(); ++axis)
    if (std::ranges::find(axes, axis + missing) == axes.end())
      groups.push_back({axis});
    else
      rows.push_back(axis);
  rows.push_back(site.domain.rank() - 2);
  groups.push_back(rows);
  groups.push_back({site.domain.rank() - 1});
  return group_axes(site, groups);
}

std::optional<Fusion> merged(const Fusion& fusion, std::span<const int> axes) {
  Fusion found = fusion;
  const int rank = result_site(fusion).domain.rank();
  auto first = merged(operand_site(fusion, 0, 0), rank, axes),
       result = merged(result_site(fusion), rank, axes);
  if (!first || !result) return std::nullopt;
  for (size_t i = 0; i < fusion.anchors.size(); ++i) {
    const Dims& blocks_of = fusion.anchors[i].operands[1].whole;
    if (blocks_of.rank() == 2) continue;  // one matrix, in blocks along k
    auto second = blocks_of.empty() ? merged(operand_site(fusion, i, 1), rank, axes) : std::nullopt;
    if (!second) return std::nullopt;
    operand_site(found, i, 1) = std::move(*second);
  }
  operand_site(found, 0, 0) = std::move(*first);
  result_site(found) = std::move(*result);
  return found;
}

}  // namespace

Fusion with_merged_rows(Fusion fusion) {
  if (!may_merge(fusion)) return fusion;
  const std::vector<int> shared = shared_axes(fusion);
  for (std::span<const int> axes = shared; !axes.empty(); axes = axes.subspan(1))
    if (auto found = merged(fusion, axes)) return *std::move(found);
  return fusion;
}

}  // namespace fusor
