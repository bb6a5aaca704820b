// Owns the search for reductions over merged axes, and their rewriting.
#include "backend/planner/rewrites/reductions/unmerged_axes.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/planner/kinds.h"
#include "backend/planner/rewrites/views/seen_in_memory.h"
#include "backend/planner/rewrites/views/unread_views.h"
#include "core/dims.h"
#include "core/graph_index.h"

namespace fusor {

namespace {

// Elements that lie behind the start of each axis longer than one, in descending order: where axes begin in
// row-major order.
std::set<int64_t> beginnings(const Dims& dims) {
  std::set<int64_t> found;
  int64_t behind = element_count(dims);
  for (const int64_t extent : dims) {
    if (extent != 1) found.insert(behind);
    behind /= std::max<int64_t>(extent, 1);
  }
  return found;
}

// The axes of `merged`, each as those that begin inside it in `other` too; nothing where they do not nest.
std::optional<std::vector<Dims>> refined(const Dims& merged, const Dims& other) {
  const std::set<int64_t> others = beginnings(other);
  std::vector<Dims> found;
  int64_t from = element_count(merged);
  for (const int64_t extent : merged) {
    const int64_t to = from / extent;
    Dims parts;
    int64_t last = from;
    for (auto at = others.rbegin(); at != others.rend(); ++at) {
      if (*at >= from || *at <= to) continue;
      if (last % *at != 0 || parts.rank() == kMaxRank) return std::nullopt;
      parts.push_back(last / *at);
      last = *at;
    }
    if (last % to != 0 || parts.rank() == kMaxRank) return std::nullopt;
    parts.push_back(last / to);
    found.push_back(parts);
    from = to;
  }
  return found;
}

class UnmergedAxes {
 public:
  UnmergedAxes(Graph& graph, Additions& additions)
      : graph_(graph), additions_(additions), index_(graph), given_(std::move(graph.ops)) {}

  // Whether any axes came back.
  bool run() {
    for (const Op& op : given_)
      if (is_reshape(op)) find_region(op);
    if (regions_.empty()) {
      graph_.ops = std::move(given_);
      return false;
    }
    for (size_t i = 0; i < given_.size(); ++i) append(given_[i], static_cast<int>(i));
    graph_.ops = std::move(ops_);
    drop_unread_views(graph_);
    return true;
  }

 private:
  // What stands behind one reshape in merged axes.
  struct Region {
    int entry;                // the reshape's result
    Dims merged;              // its dims
    std::vector<Dims> parts;  // by axis of it
    std::set<int> ops;        // pointwise ops and reductions
    std::set<int> values;     // the entry, and their results
  };

  const Tensor& tensor(int at) const { return graph_.tensors[static_cast<size_t>(at)]; }
  const Dims& dims(int at) const { return tensor(at).dims; }
  const Op& op(int at) const { return given_[static_cast<size_t>(at)]; }

  // ---- What was merged ----

  void find_region(const Op& reshape) {
    const Dims& merged = dims(reshape.outputs[0]);
    if (!tensor(reshape.outputs[0]).is_virtual() || is_packed(tensor(reshape.inputs[0]).type) ||
        element_count(merged) == 0)
      return;
    auto parts = refined(merged, dims(reshape.inputs[0]));
    if (!parts) return;
    const int rank = std::accumulate(parts->begin(), parts->end(), 0,
                                     [](int sum, const Dims& part) { return sum + part.rank(); });
    if (rank == merged.rank() || rank > kMaxRank) return;
    Region region{reshape.outputs[0], merged, *std::move(parts), {}, {reshape.outputs[0]}};
    grow(region);
    if (!reduces_merged_axis(region) || !is_parted_again(region)) return;
    const size_t number = regions_.size();
    for (const int at : region.ops) region_of_.emplace(op(at).outputs[0], number);
    region_of_.emplace(region.entry, number);
    regions_.push_back(std::move(region));
  }

  // Takes in the readers of its values, in the order of the graph.
  void grow(Region& region) const {
    std::set<int> open;
    const auto read = [&](int value) {
      for (const int reader : index_.consumers(value)) open.insert(reader);
    };
    for (read(region.entry); !open.empty();) {
      const int next = *open.begin();
      open.erase(open.begin());
      const int result = op(next).outputs[0];
      if (region_of_.contains(result) || !belongs(op(next), region)) continue;
      region.ops.insert(next);
      region.values.insert(result);
      read(result);
    }
  }

  // Whether the op works in the merged axes, on what reads them as a whole or not at all.
  bool belongs(const Op& reader, const Region& region) const {
    const auto* const pointwise = std::get_if<Pointwise>(&reader.attributes);
    if (pointwise == nullptr ? !is_reduction(reader) : pointwise->mode == PointwiseMode::gen_index)
      return false;
    const auto is_inside = [&](int input) { return region.values.contains(input); };
    const auto has_shape = [&](int value) {
      return tensor(value).is_scalar() || (!is_packed(tensor(value).type) && shape_of(dims(value), region) &&
                                           (is_inside(value) || is_read_from_memory(value)));
    };
    return std::ranges::any_of(reader.inputs, is_inside) && std::ranges::all_of(reader.inputs, has_shape) &&
           !is_packed(tensor(reader.outputs[0]).type) &&
           dims(reader.outputs[0]).rank() == region.merged.rank() &&
           shape_of(dims(reader.outputs[0]), region);
  }

  bool is_read_from_memory(int value) const {
    const int producer = index_.producer(value);
    return is_seen_in_memory(graph_, given_, index_, value) || (producer >= 0 && is_reshape(op(producer)));
  }

  // Dims that broadcast to the merged ones, in parted axes; nothing where a merged axis is there in part.
  static std::optional<Dims> shape_of(Dims given, const Region& region) {
    if (given.rank() > region.merged.rank()) return std::nullopt;
    while (given.rank() < region.merged.rank()) given.insert(0, 1);
    Dims found;
    for (int axis = 0; axis < given.rank(); ++axis) {
      const Dims& parts = region.parts[static_cast<size_t>(axis)];
      const bool is_whole = given[axis] == region.merged[axis];
      if (parts.rank() > 1 && !is_whole && given[axis] != 1) return std::nullopt;
      for (int i = 0; i < parts.rank(); ++i)
        found.push_back(is_whole ? parts[i] : parts.rank() == 1 ? given[axis] : 1);
    }
    return found;
  }

  bool reduces_merged_axis(const Region& region) const {
    return std::ranges::any_of(region.ops, [&](int at) {
      if (!is_reduction(op(at))) return false;
      const Dims &from = dims(op(at).inputs[0]), &to = dims(op(at).outputs[0]);
      for (int axis = 0; axis < to.rank(); ++axis)
        if (region.parts[static_cast<size_t>(axis)].rank() > 1 && from[axis] != to[axis]) return true;
      return false;
    });
  }

  // Whether a reshape behind the region gives axes that begin where parts do.
  bool is_parted_again(const Region& region) const {
    const std::set<int64_t> parts = beginnings(*shape_of(region.merged, region));
    return std::ranges::any_of(region.ops, [&](int at) {
      const int value = op(at).outputs[0];
      return std::ranges::any_of(index_.consumers(value), [&](int reader) {
        return is_reshape(op(reader)) && dims(op(reader).outputs[0]) != dims(value) &&
               dims(value) == region.merged &&
               std::ranges::includes(parts, beginnings(dims(op(reader).outputs[0])));
      });
    });
  }

  // ---- Rewriting ----

  void append(const Op& given, int at) {
    const auto found = region_of_.find(given.outputs[0]);
    const Region* const region = found == region_of_.end() ? nullptr : &regions_[found->second];
    if (region != nullptr && region->ops.contains(at)) return append_parted(given, at, *region);
    Op next = given;
    if (is_reshape(next))
      if (const auto parted = parted_.find(next.inputs[0]); parted != parted_.end())
        next.inputs[0] = parted->second;
    ops_.push_back(next);
    if (region != nullptr)
      parted_.emplace(region->entry, seen_as(next.inputs[0], *shape_of(region->merged, *region), given.name));
  }

  void append_parted(const Op& given, int at, const Region& region) {
    Op made = given;
    for (int& input : made.inputs) input = operand(input, given, region);
    const int value = given.outputs[0];
    const int parted = additions_.tensor(Tensor(tensor(value)), *shape_of(dims(value), region), made.name);
    made.outputs = {parted};
    parted_.emplace(value, parted);
    ops_.push_back(std::move(made));
    if (is_read_merged(at, region))
      ops_.push_back({additions_.op_name(given.name + ".out"), Reshape{}, {parted}, {value}});
    else
      leave_empty(graph_.tensors[static_cast<size_t>(value)]);
  }

  // Whether the result leaves, or ops outside read it that are no reshapes.
  bool is_read_merged(int at, const Region& region) const {
    const int value = op(at).outputs[0];
    return !tensor(value).is_virtual() || std::ranges::any_of(index_.consumers(value), [&](int reader) {
      return !region.ops.contains(reader) && !is_reshape(op(reader));
    });
  }

  int operand(int input, const Op& reader, const Region& region) {
    if (region.values.contains(input)) return parted_.at(input);
    if (tensor(input).is_scalar()) return input;
    return seen_as(input, *shape_of(dims(input), region), reader.name);
  }

  int seen_as(int value, const Dims& shape, const std::string& reader) {
    if (dims(value) == shape) return value;
    ops_.push_back(additions_.view(Reshape{}, value, shape, reader + ".in"));
    return ops_.back().outputs[0];
  }

  Graph& graph_;
  Additions& additions_;
  GraphIndex index_;  // of the ops as they were given
  std::vector<Op> given_, ops_;
  std::vector<Region> regions_;
  std::map<int, size_t> region_of_;  // by entry and result: its place among the regions
  std::map<int, int> parted_;        // by value of a region: the tensor in parted axes
};

}  // namespace

bool unmerge_axes(Graph& graph, Additions& additions) {
  return std::ranges::any_of(graph.ops, is_reduction) && std::ranges::any_of(graph.ops, is_reshape) &&
         UnmergedAxes(graph, additions).run();
}

}  // namespace fusor
