// Owns which numbers of a rows site are counted, and how.
#include "codegen/text/rows/numbers.h"

#include <algorithm>

#include "codegen/text/device_types.h"
#include "codegen/text/word_facts.h"

namespace fusor {

RowNumbers::RowNumbers(const RowNodes& nodes, std::string& text) : RowPart(nodes, text) { find_counted(); }

// In sites that take elements through numbers: whole numbers made of coordinates, the same for all lanes.
void RowNumbers::find_counted() {
  counted_.assign(expr_.nodes.size(), false);
  if (!nodes_.takes_through_indices()) return;
  std::vector<bool> is_index(expr_.nodes.size(), false);
  for (int i = node_count() - 1; i >= 0; --i)
    if (is_index[static_cast<size_t>(i)] || expr_.node(i).access.is_indexed())
      for (const int arg : expr_.node(i).args)
        if (arg >= 0) is_index[static_cast<size_t>(arg)] = true;
  const std::vector<uint32_t> varies = varying_axes(expr_);
  const std::vector<CountedKind> kinds = counted_kinds(expr_);
  for (int i = 0; i < node_count(); ++i) {
    const bool differs = (varies[static_cast<size_t>(i)] >> site_.vector_axis & 1) != 0;
    counted_[static_cast<size_t>(i)] =
        (!differs || is_index[static_cast<size_t>(i)]) && kinds[static_cast<size_t>(i)] != CountedKind::none;
  }
}

void RowNumbers::write_counted(const std::vector<int>& readers) {
  std::vector<bool> needed(expr_.nodes.size(), false);
  for (const int reader : readers) needed[static_cast<size_t>(reader)] = true;
  for (int i = node_count() - 1; i >= 0; --i) {
    const bool reads =
        needed[static_cast<size_t>(i)] && (is_counted(i) || expr_.node(i).kind == Node::Kind::load ||
                                           std::ranges::find(readers, i) != readers.end());
    if (!reads) continue;
    for (const int arg : expr_.node(i).args)
      if (arg >= 0 && is_counted(arg)) needed[static_cast<size_t>(arg)] = true;
  }
  for (int at = 0; at < node_count(); ++at)
    if (needed[static_cast<size_t>(at)] && is_counted(at))
      line(2, "const auto {} = {};{}", name(at), counted(at), nodes_.comment_of(expr_.node(at).op));
}

bool RowNumbers::yields_truth_at(int at) const {
  const Node& node = expr_.node(at);
  return node.kind == Node::Kind::pointwise && yields_truth(node.pointwise.mode);
}

std::string RowNumbers::counted(int at) const {
  const Node& node = expr_.node(at);
  if (node.kind == Node::Kind::scalar) return fmt::format("Unknown{{Index(args.{}_value)}}", name(at));
  if (node.kind == Node::Kind::index) {
    if (is_number(node)) return fmt::format("Number<{}>{{0}}", node.access.offset);
    std::string where = this->at(node.axis);
    if (is_plain_coordinate(node)) return where;
    return fmt::format("Unknown{{{0} * args.{1}_scale + args.{1}_offset}}", where, name(at));
  }
  std::string call = fmt::format("count_{}(", to_string(node.pointwise.mode));
  for (int i = 0; i < info(node.pointwise.mode).inputs; ++i)
    call += fmt::format("{}{}", i > 0 ? ", " : "", name(node.args[static_cast<size_t>(i)]));
  return call + ")";
}

std::string RowNumbers::value(int at) const {
  return yields_truth_at(at) ? fmt::format("i32({})", name(at))
                             : fmt::format("{}({}.value())", carrier_type(expr_.node(at).type), name(at));
}

}  // namespace fusor
