// Owns the lines in which expressions and fusions are written.
#include "core/print.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "core/attributes.h"

namespace fusor {

namespace {

// Writes Exprs; with a fusion, operands and ops have names.
class Printer {
 public:
  explicit Printer(const Fusion* fusion) : fusion_(fusion) {}

  void write(const Expr& expr, const char* indent) {
    for (size_t i = 0; i < expr.nodes.size(); ++i)
      text_ += fmt::format("{}v{}: {} = {}{}\n", indent, i, to_string(expr.nodes[i].type),
                           value(expr.nodes[i]), op_comment(expr.nodes[i].op));
    for (const Store& store : expr.stores)
      text_ += fmt::format("{}store {} v{} -> {}{}\n", indent, to_string(store.type), store.node,
                           place(store.access), index_of(store));
    if (!expr.yields.empty())
      text_ += fmt::format("{}yield {}\n", indent, fmt::join(names(expr.yields), ", "));
  }

  void write(const Anchor& anchor, size_t at) {
    std::vector<std::string> operands;
    for (const Port& port : anchor.operands) operands.push_back(source(port));
    text_ += fmt::format("anchor {} = {} {}{}\n", at, kind_name(anchor.attributes), fmt::join(operands, " "),
                         op_comment(anchor.op));
  }

  void write(const Site& site, size_t at) {
    std::vector<std::string> inputs;
    for (const Input& input : site.inputs)
      inputs.push_back(input.from == Input::From::anchor ? fmt::format("anchor {}", input.at)
                                                         : fmt::format("site {}.{}", input.at, input.yield));
    text_ += fmt::format("site {} over {}{}{}\n", at, to_string(site.expr.domain),
                         inputs.empty() ? "" : " from ", fmt::join(inputs, ", "));
    write(site.expr, "  ");
  }

  std::string take() { return std::move(text_); }

 private:
  static std::vector<std::string> names(const std::vector<int>& nodes) {
    std::vector<std::string> all;
    for (const int node : nodes) all.push_back(fmt::format("v{}", node));
    return all;
  }

  static std::string axes_in(uint32_t mask) {
    std::vector<int> axes;
    for (; mask != 0; mask &= mask - 1) axes.push_back(std::countr_zero(mask));
    return axes.empty() ? "none" : fmt::format("{}", fmt::join(axes, ", "));
  }

  static std::string source(const Port& port) {
    const std::string axes = port.axes.empty() ? "" : fmt::format(" by {}", to_string(port.axes));
    return fmt::format("(site {}.{}{})", port.site, port.yield, axes);
  }

  std::string operand(int at) const {
    const bool has_name = fusion_ != nullptr && std::cmp_less(at, fusion_->operand_names.size()) && at >= 0;
    return has_name ? fmt::format("o{} '{}'", at, fusion_->name_of(at)) : fmt::format("o{}", at);
  }

  std::string place(const Access& access) const {
    const std::string offset = access.offset == 0 ? "" : fmt::format(" + {}", access.offset);
    return fmt::format("{}{} {}", operand(access.operand), offset, to_string(access.strides));
  }

  static std::string indices(const Node& node) {
    std::string text;
    for (size_t k = 0; k < node.args.size(); ++k)
      if (node.args[k] >= 0)
        text += fmt::format(" + {} * v{} below {}", node.access.indexed[k].stride, node.args[k],
                            node.access.indexed[k].extent);
    return text;
  }

  static std::string index_of(const Store& store) {
    const IndexedAxis& axis = store.access.indexed[0];
    return store.index < 0 ? "" : fmt::format(" + {} * v{} below {}", axis.stride, store.index, axis.extent);
  }

  std::string op_comment(int op) const {
    const std::string name = fusion_ == nullptr || op < 0 ? "" : fusion_->op_name(op);
    return name.empty() ? "" : fmt::format("  // {}", name);
  }

  std::string value(const Node& node) const {
    std::string args;
    for (const int arg : node.args)
      if (arg >= 0) args += fmt::format(" v{}", arg);
    switch (node.kind) {
      case Node::Kind::input:
        return fmt::format("input {}", node.input);
      case Node::Kind::load:
        return fmt::format("load {}{}", place(node.access), indices(node));
      case Node::Kind::scalar:
        return fmt::format("scalar {}", operand(node.access.operand));
      case Node::Kind::index:
        return fmt::format("index along {}", node.axis);
      case Node::Kind::pointwise:
        return fmt::format("{}{}", to_string(node.pointwise.mode), args);
      case Node::Kind::reduce:
        return fmt::format("reduce {}{} over {}", to_string(node.reduction.mode), args, axes_in(node.over));
    }
    return {};
  }

  const Fusion* fusion_;
  std::string text_;
};

// An anchor follows the last site that it reads.
int last_site_of(const Anchor& anchor) {
  int last = -1;
  for (const Port& port : anchor.operands) last = std::max(last, port.site);
  return last;
}

}  // namespace

std::string print(const Expr& expr) {
  Printer printer(nullptr);
  printer.write(expr, "");
  return printer.take();
}

std::string print(const Fusion& fusion) {
  Printer printer(&fusion);
  for (size_t site = 0; site < fusion.sites.size(); ++site) {
    printer.write(fusion.sites[site], site);
    for (size_t anchor = 0; anchor < fusion.anchors.size(); ++anchor)
      if (std::cmp_equal(last_site_of(fusion.anchors[anchor]), site))
        printer.write(fusion.anchors[anchor], anchor);
  }
  return fmt::format("{} of {}\n{}", to_string(form_of(fusion)), fmt::join(fusion.op_names, ", "),
                     printer.take());
}

}  // namespace fusor
