// Owns how the questions about the nodes of a rows site are answered.
#include "codegen/text/rows/nodes.h"

#include <fmt/format.h>

#include <algorithm>

namespace fusor {

RowNodes::RowNodes(const KernelSite& site, const SourceNames* names)
    : site_(site), expr_(site.expr), names_(names), facts_(site) {
  int next_value = 0, next_total = 0;
  for (const Node& node : expr_.nodes)
    names_of_.push_back(is_reduce(node) ? fmt::format("t{}", next_total++)
                                        : fmt::format("v{}", next_value++));
}

std::string RowNodes::comment_of(int op) const {
  return names_ == nullptr || op < 0 ? std::string() : fmt::format("  // {}", names_->op(op));
}

std::string RowNodes::operand_comment(const Access& access) const {
  return names_ == nullptr || access.operand < 0 ? std::string()
                                                 : fmt::format("  // {}", names_->operand(access.operand));
}

bool RowNodes::is_element_load(int at, bool fixed) const {
  return expr_.node(at).kind == Node::Kind::load && place(at) == RowPlace::element &&
         facts_.is_fixed(expr_, at) == fixed;
}

std::vector<int> RowNodes::indexed_loads() const {
  std::vector<int> loads;
  for (int i = 0; i < count(); ++i)
    if (is_element_load(i, false) && expr_.node(i).access.is_indexed()) loads.push_back(i);
  return loads;
}

bool RowNodes::takes_runs() const {
  const std::vector<int> loads = indexed_loads();
  return !loads.empty() && std::ranges::all_of(loads, [&](int at) { return is_shared_lane(at); });
}

int RowNodes::filler(int load) const {
  int found = -1;
  for (int i = 0; i < count(); ++i) {
    const Node& node = expr_.node(i);
    if (std::ranges::find(node.args, load) == node.args.end()) continue;
    if (found >= 0 || !is_choice_of_places(expr_, i) || node.args[0] != load) return -1;
    found = i;
  }
  for (const Store& store : expr_.stores)
    if (store.node == load) return -1;
  return found;
}

bool RowNodes::is_filled(int at) const {
  const Node& node = expr_.node(at);
  return node.kind == Node::Kind::pointwise && takes_through_indices() && node.args[0] >= 0 &&
         is_taken(node.args[0]) && filler(node.args[0]) == at;
}

int RowNodes::load_of(int at) const {
  if (is_filled(at)) return expr_.node(at).args[0];
  return expr_.node(at).kind == Node::Kind::load ? at : -1;
}

bool RowNodes::is_of_pairs(int total) const {
  const Node& node = expr_.node(total);
  const int load = load_of(summed(total));
  if (load < 0 || !is_taken(load) || is_shared_lane(load)) return false;
  const DataType type = expr_.node(load).type;
  const bool is_extreme =
      node.reduction.mode == ReductionMode::max || node.reduction.mode == ReductionMode::min;
  const bool is_exact = node.type == DataType::f32 || node.type == type;
  return is_extreme && is_exact && node.reduction.compute == DataType::f32 && takes_through_indices() &&
         facts_.spread && join(total) == RowJoin::none && (type == DataType::f16 || type == DataType::bf16);
}

const Node* RowNodes::selects_or_adds_nothing(int total) const {
  const auto is_plain = [](const Node& node) {
    return node.kind == Node::Kind::pointwise && node.pointwise.mode == PointwiseMode::binary_select &&
           node.type == DataType::f32 && node.pointwise.compute == DataType::f32;
  };
  const Reduction& reduction = expr_.node(total).reduction;
  const Node& value = expr_.node(summed(total));
  if (reduction.mode != ReductionMode::add || reduction.compute != DataType::f32 || !is_plain(value))
    return nullptr;
  const Node& other = expr_.node(value.args[1]);
  const bool is_zero = other.kind == Node::Kind::index && is_number(other) && other.access.offset == 0;
  return is_zero && carrier(expr_.node(value.args[0]).type) == DataType::f32 ? &value : nullptr;
}

bool RowNodes::is_rounded_by_stores(int at) const {
  const auto reads = [&](const Node& node) { return std::ranges::find(node.args, at) != node.args.end(); };
  const auto widens = [&](const Store& store) {
    return store.node == at && store.type != expr_.node(at).type;
  };
  return std::ranges::none_of(expr_.nodes, reads) && std::ranges::none_of(expr_.stores, widens);
}

}  // namespace fusor
