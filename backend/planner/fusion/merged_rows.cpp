// Owns the search for batch axes that are rows of a matmul.
#include "backend/planner/fusion/merged_rows.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace fusor {

namespace {

bool is_plain_matmul(const Fusion& fusion, const Anchor& anchor) {
  return std::holds_alternative<Matmul>(anchor.attributes) &&
         anchor.operands[0].site == fusion.anchors[0].operands[0].site &&
         std::ranges::all_of(anchor.operands, [](const Port& port) { return port.axes.empty(); });
}

bool may_merge(const Fusion& fusion) {
  if (fusion.anchors.empty() || form_of(fusion) == Form::chain) return false;
  const auto is_whole = [](const Input& input) { return input.whole.empty(); };
  return std::ranges::all_of(fusion.anchors,
                             [&](const Anchor& anchor) { return is_plain_matmul(fusion, anchor); }) &&
         std::ranges::all_of(fusion.sites.back().inputs, is_whole);
}

// The last batch axes of the result for which every second operand has one matrix, and the first operand
// one each.
int shared_axes(const Fusion& fusion) {
  const Dims &a = operand_site(fusion, 0, 0).domain, &c = result_site(fusion).domain;
  int shared = 0;
  for (; shared + 2 < std::min(a.rank(), c.rank()); ++shared) {
    const int from_last = shared + 3;
    if (a[a.rank() - from_last] != c[c.rank() - from_last]) return shared;
    for (size_t i = 0; i < fusion.anchors.size(); ++i) {
      const Dims& b = operand_site(fusion, i, 1).domain;
      if (b.rank() >= from_last && b[b.rank() - from_last] != 1) return shared;
    }
  }
  return shared;
}

// The axes of a site, `count` of them in front of the last two walked with the axis behind them.
std::optional<Expr> merged(const Expr& site, int count) {
  const int rank = site.domain.rank(), kept = std::max(rank - 2 - count, 0);
  std::vector<Dims> groups;
  for (int axis = 0; axis < kept; ++axis) groups.push_back({axis});
  Dims rows;
  for (int axis = kept; axis + 1 < rank; ++axis) rows.push_back(axis);
  groups.push_back(rows);
  groups.push_back({rank - 1});
  return group_axes(site, groups);
}

std::optional<Fusion> merged(const Fusion& fusion, int count) {
  Fusion found = fusion;
  auto first = merged(operand_site(fusion, 0, 0), count), result = merged(result_site(fusion), count);
  if (!first || !result) return std::nullopt;
  for (size_t i = 0; i < fusion.anchors.size(); ++i) {
    auto second = merged(operand_site(fusion, i, 1), count);
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
  for (int count = shared_axes(fusion); count > 0; --count)
    if (auto found = merged(fusion, count)) return *std::move(found);
  return fusion;
}

}  // namespace fusor
