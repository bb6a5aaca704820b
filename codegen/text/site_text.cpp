// Owns what the text of a site says of its nodes: names, comments, addresses and values.
#include "codegen/text/site_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "codegen/text/device_types.h"
#include "codegen/text/formula_text.h"
#include "codegen/text/rounding_facts.h"
#include "codegen/text/word_facts.h"

namespace fusor {

SiteText::SiteText(const KernelSite& site, const SourceNames* names)
    : site_(site), expr_(site.expr), names_(names) {
  for (int node = 0, next = 0; node < std::ssize(expr_.nodes); ++node) {
    numbers_.push_back(next);
    if (expr_.node(node).kind != Node::Kind::reduce) ++next;
  }
  find_rounded_uses();
}

void SiteText::find_rounded_uses() {
  used_rounded_.assign(expr_.nodes.size(), false);
  for (const Node& node : expr_.nodes)
    for (const int arg : node.args)
      if (arg >= 0) used_rounded_[static_cast<size_t>(arg)] = true;
  for (const Store& store : expr_.stores) {
    if (store.type != expr_.node(store.node).type) used_rounded_[static_cast<size_t>(store.node)] = true;
    if (store.index >= 0) used_rounded_[static_cast<size_t>(store.index)] = true;
  }
  for (const int yielded : expr_.yields)
    if (site_.rounds_value) used_rounded_[static_cast<size_t>(yielded)] = true;
}

std::string SiteText::operand_comment(const SiteField& field) const {
  if (names_ == nullptr || field.kind == SiteField::Kind::stride || field.kind == SiteField::Kind::first ||
      field.kind == SiteField::Kind::index_stride || field.kind == SiteField::Kind::index_extent ||
      field.kind == SiteField::Kind::parameter)
    return {};
  const size_t at = static_cast<size_t>(field.at);
  const int operand = field.of_store ? expr_.stores[at].access.operand : expr_.nodes[at].access.operand;
  return operand < 0 ? std::string() : fmt::format("  // {}", names_->operand(operand));
}

std::string SiteText::op_comment(int op) const {
  return names_ == nullptr || op < 0 ? std::string() : fmt::format("  // {}", names_->op(op));
}

int SiteText::anchor_count() const {
  int count = 0;
  for (const Node& node : expr_.nodes)
    if (node.kind == Node::Kind::input) count = std::max(count, node.input + 1);
  return count;
}

unsigned SiteText::walked_axes() const {
  unsigned axes = 0;
  const auto add = [&](const Access& access) {
    for (int axis = 0; axis < expr_.domain.rank(); ++axis)
      if (access.strides[axis] != 0) axes |= 1u << axis;
  };
  for (const Node& node : expr_.nodes) {
    if (node.kind == Node::Kind::load) add(node.access);
    if (node.kind == Node::Kind::index) axes |= 1u << node.axis;
  }
  for (const Store& result : expr_.stores) add(result.access);
  return axes;
}

bool SiteText::is_shared_load(const Node& node) const {
  return node.kind == Node::Kind::load && !node.access.is_indexed() &&
         lane_step(site_, node.access) == LaneStep::broadcast;
}

bool SiteText::is_per_lane_load(const Node& node) const {
  return node.kind == Node::Kind::load &&
         (has_lanes_own_index(node) || lane_step(site_, node.access) != LaneStep::broadcast);
}

bool SiteText::has_lanes_own_index(const Node& node) const {
  if (node.kind != Node::Kind::load) return false;
  return std::ranges::any_of(node.args, [&](int arg) {
    return arg >= 0 && expr_.node(arg).kind != Node::Kind::scalar && !is_shared_load(expr_.node(arg));
  });
}

bool SiteText::has_lanes_own_index(const Store& store) const {
  return store.index >= 0 && expr_.node(store.index).kind != Node::Kind::scalar &&
         !is_shared_load(expr_.node(store.index));
}

SiteText::Indices SiteText::indices_of(int at) const {
  const Node& node = expr_.node(at);
  const std::string name = load_name(expr_, at);
  Indices indices;
  for (size_t k = 0; k < node.args.size() && node.args[k] >= 0; ++k) {
    const int v = number(node.args[k]);
    indices.steps += fmt::format(" + Index(v{}) * args.{}_index{}_stride", v, name, k);
    indices.inside +=
        fmt::format("{}v{} >= 0 && v{} < args.{}_index{}_extent", k > 0 ? " && " : "", v, v, name, k);
  }
  return indices;
}

SiteText::Indices SiteText::lane_indices(int at) const {
  const Node& node = expr_.node(at);
  const std::string name = load_name(expr_, at);
  Indices indices;
  for (size_t k = 0; k < node.args.size() && node.args[k] >= 0; ++k) {
    const std::string index = lane(node.args[k]);
    indices.steps += fmt::format(" + Index({}) * args.{}_index{}_stride", index, name, k);
    indices.inside +=
        fmt::format("{0}{1} >= 0 && {1} < args.{2}_index{3}_extent", k > 0 ? " && " : "", index, name, k);
  }
  return indices;
}

std::string SiteText::address(const std::string& name, const Node& load) const {
  return address(name, load.access, pointer_text(name, load.type));
}

std::string SiteText::address(const std::string& name, const Access& access) const {
  return address(name, access, "args." + name);
}

std::string SiteText::address(const std::string& name, const Store& store) const {
  if (!is_packed(store.type)) return address(name, store.access);
  return address(name, store.access,
                 fmt::format("{0}<{1}>{{args.{2}, args.{2}_first}}",
                             store.access.whole_vectors ? "PackedPlace" : "ScatteredPlace",
                             device_type(store.type), name));
}

std::string SiteText::address(const std::string& name, const Access& access,
                              const std::string& pointer) const {
  std::string terms;
  int walked = 0;
  for (int axis = 0; axis < expr_.domain.rank(); ++axis) {
    if (access.strides[axis] == 0) continue;
    if (walked++ > 0) terms += " + ";
    terms += fmt::format("at[{}]", axis);
    if (has_stride_field(site_, access, axis)) terms += fmt::format(" * args.{}_stride{}", name, axis);
  }
  if (walked == 0) return pointer;
  if (walked > 1) terms = fmt::format("({})", terms);
  return fmt::format("{} + {}", pointer, terms);
}

std::string SiteText::lane_offset(const std::string& name, const Access& access) const {
  switch (lane_step(site_, access)) {
    case LaneStep::broadcast:
      break;
    case LaneStep::strided:
      return fmt::format(" + i * args.{}_stride{}", name, site_.vector_axis);
    case LaneStep::adjacent:
      return " + i";
  }
  return {};
}

std::string SiteText::place_of(const std::string& offset, const std::string& steps) {
  return (offset + steps).substr(3);
}

std::string SiteText::shared_load(int at) const {
  return fmt::format("widen(load_broadcast({}, count))", address(load_name(expr_, at), expr_.node(at)));
}

std::string SiteText::lane(int at) const {
  return is_per_lane_load(expr_.node(at)) ? fmt::format("v{}[i]", number(at))
                                          : fmt::format("v{}", number(at));
}

std::string SiteText::rounded(const Node& node, const std::string& value) {
  if (is_compute_type(node.type)) return value;
  return fmt::format("round_to<{}>({})", device_type(node.type), value);
}

std::string SiteText::result_of(int at, const std::string& value, bool in_carrier) const {
  const Node& node = expr_.node(at);
  const bool is_yielded = std::ranges::find(expr_.yields, at) != expr_.yields.end();
  const bool left_to_kernel = is_yielded && !used_rounded_[static_cast<size_t>(at)];
  if (left_to_kernel && !in_carrier) return fmt::format("narrow<{}>({})", carrier_type(node.type), value);
  if (is_compute_type(node.type))
    return in_carrier ? value : fmt::format("narrow<{}>({})", device_type(node.type), value);
  if (in_carrier && !used_rounded_[static_cast<size_t>(at)]) return value;
  return fmt::format("round_to<{}>({})", device_type(node.type), value);
}

std::string SiteText::computed(int at, bool in_order) const {
  const Node& node = expr_.node(at);
  const Pointwise& pointwise = node.pointwise;
  if (compares_word(expr_, node))
    return fmt::format("is_word_below({}, {})", lane(node.args[0]), lane(node.args[1]));
  const bool shares_words = in_order && word_steps(site_, node).step > 0;
  const bool chooses = chooses_elements(expr_, node);
  std::vector<std::string> operands;
  for (int i = 0; i < info(pointwise.mode).inputs; ++i) {
    const int arg = node.args[static_cast<size_t>(i)];
    if (i == kPhiloxIndex && counts_up(expr_, node))
      operands.push_back(fmt::format("i64(u32({}))", lane(arg)));
    else if (chooses && is_chosen_scalar(expr_, node, i))
      operands.push_back(rounded(node, lane(arg)));
    else
      operands.push_back(carrier(expr_.node(arg).type) == pointwise.compute
                             ? lane(arg)
                             : fmt::format("narrow<{}>({})", device_type(pointwise.compute), lane(arg)));
  }
  std::string value =
      shares_words ? fmt::format("words{}.at(i, {})", number(at), fmt::join(operands, ", "))
                   : formula_text(pointwise, "Fn", operands,
                                  has_default_parameters(pointwise) ? "" : fmt::format("p{}", number(at)));
  if (yields_truth(pointwise.mode) || chooses) return value;
  return result_of(at, value, carrier(node.type) == pointwise.compute);
}

void SiteText::need(int at, std::vector<bool>& needed) const {
  if (at < 0 || needed[static_cast<size_t>(at)]) return;
  const Node& node = expr_.node(at);
  if (node.kind == Node::Kind::load) return;
  needed[static_cast<size_t>(at)] = true;
  for (const int arg : node.args) need(arg, needed);
}

}  // namespace fusor
