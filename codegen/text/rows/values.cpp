// Owns how the values of a row are begun, picked, computed and settled from totals.
#include "codegen/text/rows/values.h"

#include <algorithm>
#include <vector>

#include "codegen/text/device_types.h"

namespace fusor {

bool RowValues::is_row_value(int at) const {
  return place(at) == RowPlace::row && !numbers_.is_counted(at) &&
         !(is_reduce(expr_.node(at)) && nodes_.is_column(at));
}

// A function that moves the values of one row, each by such a line.
void RowValues::write_lane(std::string_view function, std::string_view arguments, std::string_view format) {
  line(1, "template <int W>");
  line(1, "static __device__ __forceinline__ void {}({}) {{", function, arguments);
  for (int i = 0; i < node_count(); ++i)
    if (is_row_value(i)) line(2, "{}", fmt::format(fmt::runtime(format), name(i)));
  line(1, "}}");
}

void RowValues::write_row() {
  line(1, "template <int W>");
  line(1, "struct Row {{");
  for (int i = 0; i < node_count(); ++i)
    if (is_row_value(i)) line(2, "Vec<{}, W> {};", carrier_type(expr_.node(i).type), name(i));
  line(1, "}};");
  if (nodes_.takes_runs() || site_.has_shared_places)
    write_lane("put", "const Row<1>& one, int lane, Row<W>& row", "row.{0}[lane] = one.{0}[0];");
  if (site_.has_shared_places) {
    const bool loads = std::ranges::any_of(expr_.nodes, [](const Node& node) {
      return node.kind == Node::Kind::load && node.access.strides[0] != 0;
    });
    line(1, "enum : bool {{ kLoadsSharedPlaces = {} }};", loads);
    write_lane("take", "const Row<W>& row, int lane, Row<1>& one", "one.{0}[0] = row.{0}[lane];");
  }
  begin_function("int W", "void", "begin", {"const Args& args", at_parameter(), "Row<W>& row"});
  for (int i = 0; i < node_count(); ++i)
    if (is_row_value(i) && expr_.node(i).kind == Node::Kind::load && !expr_.node(i).access.is_indexed())
      line(2, "const auto loaded_{} = widen({});", name(i), loads_.raw_load(i, "W", "W"));
  write_row_values(0);
  line(1, "}}");
}

void RowValues::write_row_values(int wanted) {
  std::vector<int> values;
  for (int i = 0; i < node_count(); ++i)
    if (is_row_value(i) && nodes_.level(i) == wanted) values.push_back(i);
  if (values.empty()) return;
  numbers_.write_counted(values);
  formulas_.write_scalars(values);
  line(0, "#pragma unroll");
  line(2, "for (int i = 0; i < W; ++i) {{");
  for (const int at : values) write_row_value(at);
  line(2, "}}");
}

void RowValues::write_row_value(int at) {
  const Node& node = expr_.node(at);
  if (node.kind == Node::Kind::pointwise) formulas_.write_parameters(at);
  line(3, "row.{}[i] = {};{}", name(at), row_value(at), nodes_.comment_of(node.op));
}

std::string RowValues::row_value(int at) const {
  const Node& node = expr_.node(at);
  switch (node.kind) {
    case Node::Kind::load:
      if (node.access.is_indexed()) return picked(at);
      return fmt::format("loaded_{}[{}]", name(at), is_shared_lane(at) ? "0" : "i");
    case Node::Kind::index:
      return RowFormulas::rounded(node, formulas_.coordinate(at), false);
    case Node::Kind::reduce:
      return settled(at);
    default:
      return formulas_.computed(at, "Exact", true);
  }
}

// The result of a total, which another total may have made.
std::string RowValues::settled(int at) const {
  const Node& node = expr_.node(at);
  const std::string& giver = name(nodes_.giver(at));
  if (nodes_.giver(at) != at && node.reduction.mode == ReductionMode::max)
    return fmt::format("totals[i].{}.maximum()", giver);
  if (nodes_.is_of_pairs(at)) return fmt::format("totals[i & ~1].{}.result(i & 1)", name(at));
  const bool counts = node.reduction.mode == ReductionMode::avg;
  const std::string total = fmt::format("totals[i].{}.result({})", giver,
                                        counts ? fmt::format("args.{}_count", name(at)) : std::string());
  const bool in_carrier = carrier(node.type) == node.reduction.compute;
  return in_carrier && nodes_.is_rounded_by_stores(at) ? total
                                                       : RowFormulas::rounded(node, total, in_carrier);
}

// An element taken through an index, of the row in lane i.
std::string RowValues::picked(int at) const {
  const Node& node = expr_.node(at);
  const std::string base = load_name(expr_, at);
  std::string from = address(base, node), inside = "true";
  if (step(node.access) == LaneStep::adjacent) from += " + i";
  if (step(node.access) == LaneStep::strided)
    from += fmt::format(" + i * args.{}_stride{}", base, site_.vector_axis);
  for (size_t k = 0; k < node.args.size() && node.args[k] >= 0; ++k) {
    const std::string index = formulas_.read(node.args[k], true);
    from += fmt::format(" + Index({}) * args.{}_index{}_stride", index, base, k);
    inside += fmt::format(" && {0} >= 0 && {0} < args.{1}_index{2}_extent", index, base, k);
  }
  return fmt::format("widen(Vec<{}, 1>{{load_where({}, {})}})[0]", device_type(node.type), from, inside);
}

}  // namespace fusor
