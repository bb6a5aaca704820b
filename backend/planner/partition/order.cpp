// Owns the order in which groups of ops run.
#include <algorithm>
#include <numeric>

#include "backend/planner/planner.h"
#include "core/fail.h"

namespace fusor {

namespace {

// The groups that wait for each group, and how many it waits for itself; each pair counted once.
struct GroupLinks {
  std::vector<std::vector<int>> readers;
  std::vector<int> waits;
};

[[noreturn]] void refuse_circle() { fail("the fusions of the plan wait for each other in a circle"); }

GroupLinks links_of(const FoldedGraph& folded, const std::vector<std::vector<int>>& groups) {
  std::vector<int> group_of(folded.folded.size(), -1);
  for (size_t g = 0; g < groups.size(); ++g)
    for (const int op : groups[g]) group_of[op] = static_cast<int>(g);
  GroupLinks links{std::vector<std::vector<int>>(groups.size()), std::vector<int>(groups.size(), 0)};
  std::vector<int> noted_by(groups.size(), -1);
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const int op : groups[g]) {
      for (const int wait : folded.dependencies[op]) {
        const int other = group_of[wait];
        if (other < 0) refuse_circle();
        if (other == static_cast<int>(g) || noted_by[other] == static_cast<int>(g)) continue;
        noted_by[other] = static_cast<int>(g);
        links.readers[other].push_back(static_cast<int>(g));
        ++links.waits[g];
      }
    }
  }
  return links;
}

}  // namespace

// As sweeps over the groups would take them, each sweep all that are ready when it comes to them: a group
// that waits for a later one in the list runs in a later sweep.
std::vector<std::vector<int>> in_run_order(const FoldedGraph& folded, std::vector<std::vector<int>> groups) {
  GroupLinks links = links_of(folded, groups);
  std::vector<int> sweep(groups.size(), 0);
  std::vector<int> ready;
  for (size_t g = 0; g < groups.size(); ++g)
    if (links.waits[g] == 0) ready.push_back(static_cast<int>(g));
  for (size_t next = 0; next < ready.size(); ++next) {
    const int g = ready[next];
    for (const int reader : links.readers[g]) {
      sweep[reader] = std::max(sweep[reader], sweep[g] + (g > reader ? 1 : 0));
      if (--links.waits[reader] == 0) ready.push_back(reader);
    }
  }
  if (ready.size() < groups.size()) refuse_circle();
  std::ranges::sort(ready, {}, [&](int g) { return std::pair(sweep[g], g); });
  std::vector<std::vector<int>> ordered;
  ordered.reserve(groups.size());
  for (const int g : ready) ordered.push_back(std::move(groups[g]));
  return ordered;
}

std::vector<std::vector<int>> side_by_side(const FoldedGraph& folded, std::vector<std::vector<int>> groups,
                                           const std::function<bool(const std::vector<int>&)>& may_move) {
  constexpr size_t kMostBeside = 8, kFarthest = 32;  // groups
  GroupLinks links = links_of(folded, groups);
  std::vector<bool> has_place(groups.size(), false);
  std::vector<std::vector<int>> ordered;
  ordered.reserve(groups.size());
  for (size_t first = 0; first < groups.size(); ++first) {
    if (has_place[first]) continue;
    std::vector<size_t> stage = {first};
    for (size_t g = first + 1; g < groups.size() && g < first + kFarthest && stage.size() < kMostBeside; ++g)
      if (!has_place[g] && links.waits[g] == 0 && may_move(groups[g])) stage.push_back(g);
    for (const size_t g : stage) {
      has_place[g] = true;
      for (const int reader : links.readers[g]) --links.waits[static_cast<size_t>(reader)];
    }
    for (const size_t g : stage) ordered.push_back(std::move(groups[g]));
  }
  return ordered;
}

}  // namespace fusor
