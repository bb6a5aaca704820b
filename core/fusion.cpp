// Owns what follows from a fusion's sites and anchors.
#include "core/fusion.h"

#include <algorithm>
#include <utility>

#include "core/fail.h"

namespace fusor {

namespace {

bool has_reduction(const Site& site) { return site.expr.has_reduction(); }

/// The site that holds the values of a port.
Site& site_of(Fusion& fusion, size_t anchor, size_t i) {
  return fusion.sites[static_cast<size_t>(fusion.anchors[anchor].operands[i].site)];
}

bool same_port(const Port& a, const Port& b) {
  return a.site == b.site && a.yield == b.yield && a.axes == b.axes && a.whole == b.whole;
}

/// Whether a site waits for an anchor, directly or through others.
bool waits_for_anchor(const Fusion& fusion, size_t site) {
  return std::ranges::any_of(fusion.sites[site].inputs, [&](const Input& input) {
    return input.from == Input::From::anchor || waits_for_anchor(fusion, static_cast<size_t>(input.at));
  });
}

bool has_waiting_operand(const Fusion& fusion) {
  for (const Anchor& anchor : fusion.anchors)
    for (const Port& port : anchor.operands)
      if (waits_for_anchor(fusion, static_cast<size_t>(port.site))) return true;
  return false;
}

bool are_siblings(const Anchor& first, const Anchor& second) {
  return first.attributes == second.attributes && !first.operands.empty() && !second.operands.empty() &&
         same_port(first.operands[0], second.operands[0]);
}

void require(bool holds, std::string_view what, size_t at) {
  if (!holds) fail(ErrorKind::internal, "a fusion is broken: {} ({})", what, at);
}

/// The last site that an anchor waits for.
int last_operand(const Anchor& anchor) {
  int last = -1;
  for (const Port& port : anchor.operands) last = std::max(last, port.site);
  return last;
}

void require_port(const Fusion& fusion, const Port& port, size_t anchor) {
  require(port.site >= 0 && std::cmp_less(port.site, fusion.sites.size()), "a port names no site", anchor);
  const Expr& expr = fusion.sites[static_cast<size_t>(port.site)].expr;
  require(yielded(expr, static_cast<size_t>(port.yield)) >= 0, "a port names no yield", anchor);
  require(port.axes.empty() || port.axes.rank() == expr.domain.rank(), "a port permutes other axes", anchor);
}

void require_input(const Fusion& fusion, const Input& input, size_t site) {
  if (input.from == Input::From::anchor) {
    require(input.at >= 0 && std::cmp_less(input.at, fusion.anchors.size()), "an input names no anchor",
            site);
    require(std::cmp_less(last_operand(fusion.anchors[static_cast<size_t>(input.at)]), site),
            "an input comes from a later place", site);
    return;
  }
  require(input.at >= 0 && std::cmp_less(input.at, site), "an input comes from a later place", site);
  const Expr& from = fusion.sites[static_cast<size_t>(input.at)].expr;
  require(yielded(from, static_cast<size_t>(input.yield)) >= 0, "an input names no yield", site);
  require(from.domain == fusion.sites[site].expr.domain, "an input has another domain", site);
}

void require_site(const Fusion& fusion, size_t at) {
  const Site& site = fusion.sites[at];
  validate(site.expr);
  for (const Input& input : site.inputs) require_input(fusion, input, at);
  const auto is_operand = [&](const Access& access) {
    return access.operand >= 0 && std::cmp_less(access.operand, fusion.operands.size());
  };
  for (const Node& node : site.expr.nodes) {
    if (node.kind == Node::Kind::load || node.kind == Node::Kind::scalar)
      require(is_operand(node.access), "a load names no operand", at);
    if (node.kind == Node::Kind::input)
      require(node.input >= 0 && std::cmp_less(node.input, site.inputs.size()), "a node names no input", at);
  }
  for (const Store& store : site.expr.stores)
    require(is_operand(store.access), "a store names no operand", at);
}

}  // namespace

Form form_of(const Fusion& fusion) {
  switch (fusion.anchors.size()) {
    case 0:
      return std::ranges::any_of(fusion.sites, has_reduction) ? Form::rows : Form::pointwise;
    case 1:
      return has_waiting_operand(fusion) ? Form::chain : Form::contraction;
    case 2:
      return are_siblings(fusion.anchors[0], fusion.anchors[1]) && !has_waiting_operand(fusion)
                 ? Form::siblings
                 : Form::chain;
    default:
      return Form::chain;
  }
}

std::string_view to_string(Form form) {
  switch (form) {
    case Form::pointwise:
      return "pointwise";
    case Form::rows:
      return "rows";
    case Form::contraction:
      return "contraction";
    case Form::siblings:
      return "siblings";
    case Form::chain:
      break;
  }
  return "chain";
}

Dims operand_dims(const Fusion& fusion, const Port& port) {
  const Dims& domain = fusion.sites[static_cast<size_t>(port.site)].expr.domain;
  if (!port.whole.empty()) return port.whole;
  if (port.axes.empty()) return domain;
  Dims dims;
  for (const int64_t axis : port.axes) dims.push_back(domain[static_cast<int>(axis)]);
  return dims;
}

// That of the site that takes it.
Dims anchor_dims(const Fusion& fusion, size_t at) {
  for (const Site& site : fusion.sites)
    for (const Input& input : site.inputs)
      if (input.from == Input::From::anchor && std::cmp_equal(input.at, at))
        return input.whole.empty() ? site.expr.domain : input.whole;
  return {};
}

Expr& operand_site(Fusion& fusion, size_t anchor, size_t i) { return site_of(fusion, anchor, i).expr; }
const Expr& operand_site(const Fusion& fusion, size_t anchor, size_t i) {
  return fusion.sites[static_cast<size_t>(fusion.anchors[anchor].operands[i].site)].expr;
}

std::span<const Site> operand_sites(const Fusion& fusion) {
  return std::span(fusion.sites).first(fusion.anchors.empty() ? 0 : fusion.sites.size() - 1);
}

void add_site(Fusion& fusion, Expr expr) { fusion.sites.push_back({.expr = std::move(expr)}); }

void validate(const Fusion& fusion) {
  for (size_t i = 0; i < fusion.anchors.size(); ++i)
    for (const Port& port : fusion.anchors[i].operands) require_port(fusion, port, i);
  for (size_t i = 0; i < fusion.sites.size(); ++i) require_site(fusion, i);
  require(!fusion.sites.empty(), "it has no site", 0);
}

}  // namespace fusor
