// Owns the rules and the deal of depthwise convolutions on tensor cores.
#include "backend/engines/depthwise/octets.h"

#include <algorithm>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/reach.h"

namespace fusor::depthwise {

namespace {

// Fewer taps are bound by memory anyway.
constexpr int64_t kFewestTaps = 9;

bool is_without_steps(const SlidingAxis& axis) {
  return axis.stride == 1 && axis.dilation == 1 && axis.window <= kMaxSlidingTaps;
}

bool is_one_pixel(const SlidingAxis& axis) {
  return axis.window == 1 && axis.positions == 1 && axis.results == 1 && axis.start == 0;
}

bool is_group_load(const Problem& problem, const Expr& site) {
  return is_plain(problem.fusion, in_groups(problem.fusion, site), kGroupChannels) &&
         !yielded_node(site).access.is_indexed();
}

// Filters are loaded one by one, in any order.
bool is_load(const Problem& problem, const Expr& site) {
  return is_plain(problem.fusion, site, 1) && !yielded_node(site).access.is_indexed();
}

// Groups of a block: neighbours share the sectors that are read, and few of them do not exist.
int64_t best_width(int64_t groups) {
  constexpr double kTwo = 0.9, kOne = 0.7;
  const auto usefulness = [&](int64_t width) {
    const double share = static_cast<double>(groups) / static_cast<double>(ceil_div(groups, width) * width);
    return share * (width == 4 ? 1 : width == 2 ? kTwo : kOne);
  };
  return std::max({int64_t{4}, int64_t{2}, int64_t{1}},
                  [&](int64_t a, int64_t b) { return usefulness(a) < usefulness(b); });
}

}  // namespace

bool can_multiply(const Problem& problem) {
  if (problem.in_planes() || problem.widest_vector != kGroupChannels) return false;
  if (problem.device.compute_capability < 80 || !is_one_pixel(problem.axes[0])) return false;
  const SlidingAxis &vertical = problem.axes[1], &last = problem.last();
  if (!is_without_steps(vertical) || !is_without_steps(last)) return false;
  if (vertical.window * last.window < kFewestTaps) return false;
  if (!is_group_load(problem, problem.a)) return false;
  if (problem.is_wgrad() ? !is_group_load(problem, problem.b) : !is_load(problem, problem.b)) return false;
  if (yielded_node(problem.a).type != yielded_node(problem.b).type) return false;
  // Rows around the image are numbered, too; blocks may count a few octets more than there are.
  constexpr int64_t kMost = kMaxIndex32 / 16;
  const int64_t rows = std::max(vertical.positions, vertical.results);
  const int64_t pixels = problem.images() * (rows + kOctet) * (last.results + kOctet);
  return std::max({reach(problem.a), reach(problem.b), reach(problem.y)}) <= kMaxIndex32 && pixels <= kMost &&
         vertical.window * last.window * problem.view.entries <= kMost;
}

Expr in_groups(const Fusion& fusion, Expr site) {
  mark_whole_vectors(fusion, site, 1, kGroupChannels);
  return site;
}

KernelSite addressed_site(const char* name, const Expr& expr, int vector_axis) {
  KernelSite site{name, expr, vector_axis, fits_short_forms(expr)};
  site.addressed = true;
  return site;
}

OctetDeal::OctetDeal(const Problem& problem)
    : groups(problem.view.entries / kGroupChannels),
      width(best_width(groups)),
      lanes(kWarps / width),
      octets_of_row(ceil_div(problem.last().results, kOctet)),
      columns(problem.images() * octets_of_row) {}

double share_of_mma(const DeviceInfo& device) {
  constexpr double kShareOfHalved = 0.5, kShare = 0.8;
  const int generation = device.compute_capability / 10;
  return generation == 9 || generation == 10 ? kShareOfHalved : kShare;
}

}  // namespace fusor::depthwise
