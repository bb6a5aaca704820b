// Owns the walk through reshapes and transposes.
#include "backend/planner/rewrites/views/axis_factors.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "backend/planner/kinds.h"
#include "core/attributes.h"

namespace fusor {

AxisFactors::AxisFactors(const Dims& root, bool is_packed) : is_packed_(is_packed) {
  for (const int64_t extent : root) {
    root_.emplace_back();
    if (extent == 1) continue;
    root_.back().push_back(static_cast<int>(extents_.size()));
    extents_.push_back(extent);
  }
  axes_ = root_;
}

void AxisFactors::transpose(const Dims& permutation) {
  std::vector<std::vector<int>> moved;
  moved.reserve(axes_.size());
  for (const int64_t axis : permutation) moved.push_back(axes_[static_cast<size_t>(axis)]);
  axes_ = std::move(moved);
}

bool AxisFactors::reshape(const Dims& shape) {
  size_t taken = 0;
  const auto in_order = [&] {
    std::vector<int> all;
    for (const std::vector<int>& axis : axes_) all.insert(all.end(), axis.begin(), axis.end());
    return all;
  };
  std::vector<int> order = in_order();
  std::vector<std::vector<int>> found;
  for (const int64_t extent : shape) {
    found.emplace_back();
    for (int64_t rest = extent; rest != 1; ++taken) {
      if (taken == order.size()) return false;
      if (const int64_t whole = this->extent(order[taken]); rest % whole != 0) {
        if (whole % rest != 0) return false;
        split(order[taken], rest);
        order = in_order();
      }
      found.back().push_back(order[taken]);
      rest /= this->extent(order[taken]);
    }
  }
  axes_ = std::move(found);
  return taken == order.size();
}

// Its inner part becomes a new factor behind it.
void AxisFactors::split(int factor, int64_t outer) {
  const int inner = static_cast<int>(extents_.size());
  extents_.push_back(extent(factor) / outer);
  extents_[static_cast<size_t>(factor)] = outer;
  for (std::vector<std::vector<int>>* const all : {&root_, &axes_})
    for (std::vector<int>& axis : *all)
      if (const auto at = std::ranges::find(axis, factor); at != axis.end()) axis.insert(at + 1, inner);
}

int64_t AxisFactors::extent(const std::vector<int>& run) const {
  int64_t extent = 1;
  for (const int factor : run) extent *= this->extent(factor);
  return extent;
}

int AxisFactors::place(int factor) const {
  int place = 0;
  for (const std::vector<int>& axis : root_)
    for (const int each : axis) {
      if (each == factor) return place;
      ++place;
    }
  return -1;
}

std::vector<std::pair<int, int>> AxisFactors::strange_pairs() const {
  if (!is_packed_) return joined_pairs();
  std::vector<std::pair<int, int>> pairs;
  for (const std::vector<int>& axis : axes_)
    for (size_t i = 1; i < axis.size(); ++i)
      if (place(axis[i]) != place(axis[i - 1]) + 1) pairs.emplace_back(axis[i - 1], axis[i]);
  return pairs;
}

std::vector<std::pair<int, int>> AxisFactors::joined_pairs() const {
  std::vector<std::pair<int, int>> pairs;
  for (const std::vector<int>& axis : axes_)
    for (size_t i = 1; i < axis.size(); ++i)
      if (!are_neighbours(axis[i - 1], axis[i])) pairs.emplace_back(axis[i - 1], axis[i]);
  return pairs;
}

bool AxisFactors::are_neighbours(int factor, int next) const {
  return std::ranges::any_of(root_, [&](const std::vector<int>& axis) {
    const auto at = std::ranges::find(axis, factor);
    return at != axis.end() && at + 1 != axis.end() && *(at + 1) == next;
  });
}

namespace {

const Op* view_of(const Graph& graph, const GraphIndex& index, int value) {
  const int producer = index.producer(value);
  if (producer < 0 || !graph.tensors[static_cast<size_t>(value)].is_virtual()) return nullptr;
  const Op& op = graph.ops[static_cast<size_t>(producer)];
  return (is_reshape(op) || is_transpose(op)) && !graph.tensors[static_cast<size_t>(op.inputs[0])].is_scalar()
             ? &op
             : nullptr;
}

// Parts of a tensor have gaps.
bool is_packed_root(const Graph& graph, const GraphIndex& index, int root) {
  const Tensor& tensor = graph.tensors[static_cast<size_t>(root)];
  const int producer = index.producer(root);
  const bool is_part = producer >= 0 && is_view(graph.ops[static_cast<size_t>(producer)].attributes);
  return !is_part && (tensor.is_virtual() || tensor.strides == packed_strides(tensor.dims));
}

}  // namespace

std::optional<SeenAxes> seen_axes(const Graph& graph, const GraphIndex& index, int value) {
  std::vector<const Op*> views;
  int root = value;
  while (const Op* const view = view_of(graph, index, root)) {
    views.push_back(view);
    root = view->inputs[0];
  }
  if (views.empty()) return std::nullopt;
  AxisFactors axes(graph.tensors[static_cast<size_t>(root)].dims, is_packed_root(graph, index, root));
  std::vector<std::pair<int, int>> strange, joined;
  for (auto view = views.rbegin(); view != views.rend(); ++view) {
    std::ranges::copy(axes.strange_pairs(), std::back_inserter(strange));
    std::ranges::copy(axes.joined_pairs(), std::back_inserter(joined));
    const Op& op = **view;
    if (is_transpose(op))
      axes.transpose(std::get<Transpose>(op.attributes).permutation);
    else if (!axes.reshape(graph.tensors[static_cast<size_t>(op.outputs[0])].dims))
      return std::nullopt;
  }
  const auto passes = [](const auto& passed, const auto& last) {
    return std::ranges::any_of(passed,
                               [&](const auto& pair) { return std::ranges::find(last, pair) == last.end(); });
  };
  const bool passes_strange = passes(strange, axes.strange_pairs()),
             passes_joined = passes(joined, axes.joined_pairs());
  return SeenAxes{root, std::move(axes), passes_strange, passes_joined};
}

int append_views(std::vector<Op>& ops, Additions& additions, const Graph& graph, int root,
                 const AxisFactors& factors, const std::vector<std::vector<int>>& axes, const Dims& shape,
                 const std::string& name, int result) {
  // Runs of factors that stay together.
  std::vector<std::vector<int>> runs;
  for (const std::vector<int>& axis : axes)
    for (size_t i = 0; i < axis.size(); ++i) {
      if (i == 0 || !factors.are_neighbours(axis[i - 1], axis[i])) runs.emplace_back();
      runs.back().push_back(axis[i]);
    }
  // In the order of the root.
  std::vector<size_t> order(runs.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, {}, [&](size_t run) { return factors.place(runs[run][0]); });
  Dims apart, moved, permutation = Dims::filled(static_cast<int>(runs.size()), 0);
  for (size_t i = 0; i < order.size(); ++i) {
    apart.push_back(factors.extent(runs[order[i]]));
    permutation[static_cast<int>(order[i])] = static_cast<int64_t>(i);
  }
  for (const std::vector<int>& run : runs) moved.push_back(factors.extent(run));
  std::vector<std::pair<Attributes, Dims>> views;
  int at = root;
  Dims now = graph.tensors[static_cast<size_t>(root)].dims;
  const auto add = [&](Attributes attributes, const Dims& to) {
    views.emplace_back(std::move(attributes), to);
    now = to;
  };
  if (std::ranges::is_sorted(order)) {
    if (now != shape) add(Reshape{}, shape);
  } else {
    if (now != apart) add(Reshape{}, apart);
    add(Transpose{permutation}, moved);
    if (now != shape) add(Reshape{}, shape);
  }
  if (views.empty() && result >= 0) add(Reshape{}, shape);
  for (size_t i = 0; i < views.size(); ++i) {
    const bool is_last = i + 1 == views.size() && result >= 0;
    if (is_last) {
      ops.push_back({additions.op_name(name), views[i].first, {at}, {result}});
    } else {
      ops.push_back(additions.view(views[i].first, at, views[i].second, name));
    }
    at = ops.back().outputs[0];
  }
  return at;
}

}  // namespace fusor
