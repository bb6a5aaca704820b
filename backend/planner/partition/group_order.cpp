// Owns the bounded searches, and the mending of the order after a merge.
#include "backend/planner/partition/group_order.h"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace fusor {

GroupOrder::GroupOrder(const FoldedGraph& folded)
    : folded_(folded),
      group_(folded.folded.size()),
      members_(folded.folded.size()),
      dependents_(folded.folded.size()),
      place_(folded.folded.size()),
      seen_(folded.folded.size(), 0) {
  std::iota(group_.begin(), group_.end(), 0);
  std::iota(place_.begin(), place_.end(), 0);
  for (size_t op = 0; op < members_.size(); ++op) {
    if (folded.folded[op]) continue;
    members_[op] = {static_cast<int>(op)};
    for (const int wait : folded.dependencies[op])
      dependents_[static_cast<size_t>(wait)].push_back(static_cast<int>(op));
  }
}

std::vector<int> GroupOrder::between(int from, int to, Way way, bool& returns) {
  const auto [low, high] = std::minmax(place_[from], place_[to]);
  std::vector<int> found;
  std::vector<int> waiting = {from};
  seen_[from] = ++search_;
  while (!waiting.empty()) {
    const int group = waiting.back();
    waiting.pop_back();
    for (const int op : members_[group]) {
      for (const int next : way == Way::forward ? dependents_[op] : folded_.dependencies[op]) {
        const int other = group_[next];
        if (other == to && group != from) returns = true;
        if (seen_[other] == search_ || place_[other] <= low || place_[other] >= high) continue;
        seen_[other] = search_;
        found.push_back(other);
        waiting.push_back(other);
      }
    }
  }
  return found;
}

bool GroupOrder::would_wait_for_itself(int a, int b) {
  if (place_[a] > place_[b]) std::swap(a, b);
  bool returns = false;
  between(a, b, Way::forward, returns);
  return returns;
}

// Groups between the two move before both where the later one waits for them, and behind both where they
// wait for the earlier one; they share the places that all of them had.
void GroupOrder::merge(int from, int into) {
  const auto [first, last] = place_[from] < place_[into] ? std::pair(from, into) : std::pair(into, from);
  bool ignored = false;
  std::vector<int> behind = between(first, last, Way::forward, ignored);
  std::vector<int> before = between(last, first, Way::backward, ignored);
  const auto by_place = [&](int group) { return place_[group]; };
  std::ranges::sort(before, {}, by_place);
  std::ranges::sort(behind, {}, by_place);
  std::vector<int> order = before;
  order.push_back(first);
  order.push_back(last);
  order.insert(order.end(), behind.begin(), behind.end());
  std::vector<int> places;
  places.reserve(order.size());
  for (const int group : order) places.push_back(place_[group]);
  std::ranges::sort(places);
  for (size_t i = 0; i < order.size(); ++i) place_[order[i]] = places[i];

  std::vector<int> all;
  all.reserve(members_[from].size() + members_[into].size());
  std::ranges::merge(members_[from], members_[into], std::back_inserter(all));
  for (const int op : members_[from]) group_[op] = into;
  members_[into] = std::move(all);
  members_[from].clear();
}

}  // namespace fusor
