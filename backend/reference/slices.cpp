// Owns which coordinates of a chain are free, and what a slice of them is.
#include "backend/reference/slices.h"

#include <numeric>
#include <utility>

#include "core/ceil_div.h"

namespace fusor::reference {

namespace {

// Axes of sites and of anchors' results, joined where they walk the same coordinate.
class JoinedAxes {
 public:
  explicit JoinedAxes(const Fusion& fusion) : fusion_(fusion) {
    for (const Site& site : fusion.sites) add(site.expr.domain);
    for (size_t anchor = 0; anchor < fusion.anchors.size(); ++anchor) add(anchor_dims(fusion, anchor));
    parents_.resize(extents_.size());
    std::iota(parents_.begin(), parents_.end(), 0);
    follows_ = std::ranges::all_of(fusion.anchors, [](const Anchor& anchor) {
      return std::holds_alternative<Matmul>(anchor.attributes);
    });
    if (!follows_) return;
    for (size_t anchor = 0; anchor < fusion.anchors.size(); ++anchor) join_product(anchor);
    for (size_t site = 0; site < fusion.sites.size(); ++site) join_site(site);
  }

  bool follows() const { return follows_; }

  /// The coordinate that a site's axis walks, or nothing where something sums over it or stores beside it.
  FreeAxis coordinate(size_t site, int axis) const {
    const int root = root_of(place(site, axis));
    FreeAxis found = walked(root);
    if (found.axes.empty() || !adders(root).empty()) return {};
    for (size_t other = 0; other < fusion_.sites.size(); ++other)
      if (found.axes[other] < 0 && !fusion_.sites[other].expr.stores.empty()) return {};
    return found;
  }

  /// The same where products sum over it, whose results only sites without it wait for.
  std::optional<SummedAxis> summed(size_t site, int axis) const {
    const int root = root_of(place(site, axis));
    SummedAxis found{walked(root), {}, std::vector<bool>(fusion_.sites.size(), false), 1};
    const std::vector<int> adding = adders(root);
    if (found.axis.axes.empty() || adding.empty()) return std::nullopt;
    for (const int adder : adding)
      if (adder < 0 || std::ranges::count(adding, adder) != 2 || has_axis(static_cast<size_t>(adder), root))
        return std::nullopt;
      else if (std::ranges::find(found.anchors, static_cast<size_t>(adder)) == found.anchors.end())
        found.anchors.push_back(static_cast<size_t>(adder));
    return find_late(found) ? std::optional(std::move(found)) : std::nullopt;
  }

 private:
  // The axis of every site that walks the coordinate, -1 for sites without; no axes at all where a site has
  // two.
  FreeAxis walked(int root) const {
    FreeAxis found{{}, extents_[static_cast<size_t>(root)]};
    for (size_t site = 0; site < fusion_.sites.size(); ++site) {
      int same = -1;
      for (int i = 0; i < fusion_.sites[site].expr.domain.rank(); ++i)
        if (root_of(place(site, i)) == root) {
          if (same >= 0) return {};
          same = i;
        }
      found.axes.push_back(same);
    }
    return found;
  }
  // The anchors that sum over the coordinate, once for each operand that has it; -1 for a reduction.
  std::vector<int> adders(int root) const {
    std::vector<int> found;
    for (const Sum& sum : sums_)
      if (root_of(sum.place) == root) found.push_back(sum.anchor);
    return found;
  }
  bool has_axis(size_t anchor, int root) const {
    const int rank = anchor_dims(fusion_, anchor).rank();
    for (int axis = 0; axis < rank; ++axis)
      if (root_of(place_of_result(anchor, axis)) == root) return true;
    return false;
  }
  // Marks the sites that wait for the sums; whether they wait for nothing else, no product waits for them,
  // and every other site that stores has the coordinate.
  bool find_late(SummedAxis& summed) const {
    for (size_t at = 0; at < fusion_.sites.size(); ++at) {
      const Site& site = fusion_.sites[at];
      const auto is_late = [&](const Input& input) {
        const auto from = static_cast<size_t>(input.at);
        return input.from == Input::From::anchor
                   ? std::ranges::find(summed.anchors, from) != summed.anchors.end()
                   : bool(summed.is_late[from]);
      };
      summed.is_late[at] = std::ranges::any_of(site.inputs, is_late);
      const bool has_coordinate = summed.axis.axes[at] >= 0;
      if (summed.is_late[at] ? has_coordinate || !std::ranges::all_of(site.inputs, is_late)
                             : !has_coordinate && !site.expr.stores.empty())
        return false;
    }
    return std::ranges::none_of(fusion_.anchors, [&](const Anchor& anchor) {
      return std::ranges::any_of(anchor.operands, [&](const Port& port) {
        return bool(summed.is_late[static_cast<size_t>(port.site)]);
      });
    });
  }

  void add(const Dims& dims) {
    firsts_.push_back(static_cast<int>(extents_.size()));
    extents_.insert(extents_.end(), dims.begin(), dims.end());
  }
  int place(size_t site, int axis) const { return firsts_[site] + axis; }
  int place_of_result(size_t anchor, int axis) const { return firsts_[fusion_.sites.size() + anchor] + axis; }
  int root_of(int at) const {
    while (parents_[static_cast<size_t>(at)] != at) at = parents_[static_cast<size_t>(at)];
    return at;
  }
  // An axis of one element is broadcast.
  void join(int a, int b) {
    if (extents_[static_cast<size_t>(a)] == extents_[static_cast<size_t>(b)])
      parents_[static_cast<size_t>(root_of(b))] = root_of(a);
  }

  void join_product(size_t anchor) {
    const int rank = anchor_dims(fusion_, anchor).rank();
    for (size_t i = 0; i < 2; ++i) {
      const Port& port = fusion_.anchors[anchor].operands[i];
      const int own = operand_dims(fusion_, port).rank();
      const auto axis_of = [&](int axis) {
        return place(static_cast<size_t>(port.site),
                     port.axes.empty() ? axis : static_cast<int>(port.axes[axis]));
      };
      for (int axis = 0; axis < own - 2; ++axis)
        join(place_of_result(anchor, axis + rank - own), axis_of(axis));
      const int summed = i == 0 ? own - 1 : own - 2, kept = i == 0 ? own - 2 : own - 1;
      join(place_of_result(anchor, i == 0 ? rank - 2 : rank - 1), axis_of(kept));
      // Both operands are walked along what is summed over at once.
      if (i == 1) join(sums_.back().place, axis_of(summed));
      sums_.push_back({axis_of(summed), static_cast<int>(anchor)});
    }
  }
  void join_site(size_t at) {
    const Site& site = fusion_.sites[at];
    for (const Input& input : site.inputs) {
      const bool of_anchor = input.from == Input::From::anchor;
      follows_ = follows_ && (!of_anchor || input.whole.empty());
      if (!follows_) return;
      for (int axis = 0; axis < site.expr.domain.rank(); ++axis)
        join(place(at, axis), of_anchor ? place_of_result(static_cast<size_t>(input.at), axis)
                                        : place(static_cast<size_t>(input.at), axis));
    }
    for (const Node& node : site.expr.nodes)
      if (node.kind == Node::Kind::reduce)
        for (int axis = 0; axis < site.expr.domain.rank(); ++axis)
          if (node.over >> axis & 1) sums_.push_back({place(at, axis), -1});
  }

  const Fusion& fusion_;
  std::vector<int> firsts_;  // by site, then by anchor
  std::vector<int64_t> extents_;
  std::vector<int> parents_;
  struct Sum {
    int place = 0, anchor = -1;  // -1: a reduction
  };
  std::vector<Sum> sums_;
  bool follows_ = true;
};

// Looks at the sites behind a product alone: operands are in memory in any case.
size_t largest_site(const Fusion& fusion) {
  const auto by_elements = [](const Site& site) {
    return site.inputs.empty() ? 0 : element_count(site.expr.domain);
  };
  return static_cast<size_t>(std::ranges::max_element(fusion.sites, {}, by_elements) - fusion.sites.begin());
}

void move_access(Access& access, int axis, int64_t first) {
  if (!access.strides.empty()) access.offset += first * access.strides[axis];
}

void slice_site(Expr& expr, int axis, int64_t first, int64_t count) {
  expr.domain[axis] = count;
  for (Node& node : expr.nodes) {
    if (node.kind == Node::Kind::load) move_access(node.access, axis, first);
    if (node.kind == Node::Kind::index && node.axis == axis)
      node.access.offset += first * (node.access.strides.empty() ? 1 : node.access.strides[axis]);
  }
  for (Store& store : expr.stores) move_access(store.access, axis, first);
}

}  // namespace

std::vector<FreeAxis> free_axes(const Fusion& fusion) {
  if (form_of(fusion) != Form::chain) return {};
  const JoinedAxes joined(fusion);
  if (!joined.follows()) return {};
  std::vector<FreeAxis> found;
  const size_t largest = largest_site(fusion);
  const Dims& domain = fusion.sites[largest].expr.domain;
  for (int axis = 0; axis < domain.rank(); ++axis) {
    FreeAxis free = joined.coordinate(largest, axis);
    if (!free.axes.empty() && domain[axis] > 1) found.push_back(std::move(free));
  }
  return found;
}

std::optional<SummedAxis> summed_axis(const Fusion& fusion, int64_t most) {
  const size_t largest = largest_site(fusion);
  const Dims& domain = fusion.sites[largest].expr.domain;
  const int64_t elements = element_count(domain);
  if (form_of(fusion) != Form::chain || elements <= most) return std::nullopt;
  const JoinedAxes joined(fusion);
  if (!joined.follows()) return std::nullopt;
  for (int axis = 0; axis < domain.rank(); ++axis) {
    auto found = domain[axis] > 1 ? joined.summed(largest, axis) : std::nullopt;
    if (!found) continue;
    found->count = std::max<int64_t>(1, most / (elements / domain[axis]));
    return found;
  }
  return std::nullopt;
}

std::vector<int64_t> slice_extents(const Fusion& fusion, const std::vector<FreeAxis>& axes, int64_t most) {
  std::vector<int64_t> elements;
  for (const Site& site : fusion.sites) elements.push_back(element_count(site.expr.domain));
  const size_t largest = largest_site(fusion);
  std::vector<int64_t> extents;
  for (const FreeAxis& axis : axes) {
    // Sites that do not have the axis are evaluated for each slice: it is worth as many elements.
    int64_t wanted = most;
    for (size_t site = 0; site < elements.size(); ++site)
      if (axis.axes[site] < 0) wanted = std::max(wanted, elements[site]);
    const int64_t slices = ceil_div(elements[largest], wanted);
    extents.push_back(std::max<int64_t>(1, axis.extent / std::max<int64_t>(1, slices)));
    for (size_t site = 0; site < elements.size(); ++site)
      if (axis.axes[site] >= 0) elements[site] = elements[site] / axis.extent * extents.back();
  }
  return extents;
}

Fusion slice_of(const Fusion& fusion, const FreeAxis& axis, int64_t first, int64_t count) {
  Fusion slice = fusion;
  for (size_t site = 0; site < slice.sites.size(); ++site)
    if (axis.axes[site] >= 0) slice_site(slice.sites[site].expr, axis.axes[site], first, count);
  return slice;
}

}  // namespace fusor::reference
