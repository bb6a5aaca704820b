// Owns how a rows site loads the elements of its rows, directly and through indices.
#include "codegen/text/rows/loads.h"

#include <vector>

#include "codegen/text/device_types.h"

namespace fusor {

// Whether the numbers through which a load takes its elements name any.
std::string RowLoads::is_inside(int at) const {
  const Node& node = expr_.node(at);
  std::string inside;
  for (size_t k = 0; k < node.args.size() && node.args[k] >= 0; ++k) {
    const std::string one =
        fmt::format("is_within({}, args.{}_index{}_extent)", name(node.args[k]), load_name(expr_, at), k);
    inside = k == 0 ? one : fmt::format("count_logical_and({}, {})", inside, one);
  }
  return inside;
}

std::string RowLoads::indexed_offset(int at) const {
  const Node& node = expr_.node(at);
  std::string offset;
  for (size_t k = 0; k < node.args.size() && node.args[k] >= 0; ++k)
    offset += fmt::format("{}Index({}) * args.{}_index{}_stride", k > 0 ? " + " : "", name(node.args[k]),
                          load_name(expr_, at), k);
  return offset;
}

// The text of a load of elements that all lanes take through the same indices.
std::string RowLoads::indexed_load(int at, std::string_view lanes) const {
  const Node& node = expr_.node(at);
  const std::string base = load_name(expr_, at), inside = is_inside(at), offset = indexed_offset(at);
  const std::string from = address(base, node), other = outside(at);
  if (step(node.access) == LaneStep::adjacent && node.access.whole_vectors)
    return fmt::format("load_counted<{}>({} + ({}), {}, {})", lanes, from, offset, inside, other);
  const bool one = step(node.access) == LaneStep::broadcast;
  const std::string apart = step(node.access) == LaneStep::strided
                                ? fmt::format("args.{}_stride{}", base, site_.vector_axis)
                                : std::string(one ? "0" : "1");
  return fmt::format("load_counted_strided<{}>({} + ({}), {}, {}, {})", one ? "1" : lanes, from, offset,
                     apart, inside, other);
}

std::string RowLoads::raw_load(int at, std::string_view lanes, std::string_view count) const {
  const Access& access = expr_.node(at).access;
  const std::string base = load_name(expr_, at), from = address(base, expr_.node(at));
  switch (step(access)) {
    case LaneStep::broadcast:
      return fmt::format("load_strided<1>({}, 0{})", from, up_to(count));
    case LaneStep::strided:
      return fmt::format("load_strided<{}>({}, args.{}_stride{}{})", lanes, from, base, site_.vector_axis,
                         up_to(count));
    case LaneStep::adjacent:
      break;
  }
  if (access.whole_vectors) return fmt::format("load_whole<{}>({}{})", lanes, from, up_to(count));
  return fmt::format("load_strided<{}>({}, 1{})", lanes, from, up_to(count));
}

void RowLoads::write_loads(std::string_view type, std::string_view function, bool fixed) {
  line(1, "template <int N>");
  line(1, "struct {} {{", type);
  for (int i = 0; i < node_count(); ++i)
    if (nodes_.is_element_load(i, fixed))
      line(2, "Vec<{}, {}> {};", device_type(expr_.node(i).type), is_shared_lane(i) ? "1" : "N",
           load_name(expr_, i));
  line(1, "}};");
  begin_function("int N", fmt::format("{}<N>", type), function,
                 {"const Args& args", at_parameter(), "int count"});
  line(2, "{}<N> loaded;", type);
  if (!fixed) numbers_.write_counted(nodes_.indexed_loads());
  for (int i = 0; i < node_count(); ++i)
    if (nodes_.is_element_load(i, fixed))
      line(2, "loaded.{} = {};", load_name(expr_, i),
           expr_.node(i).access.is_indexed() ? indexed_load(i, "N") : raw_load(i, "N", "count"));
  line(2, "return loaded;");
  line(1, "}}");
}

std::string RowLoads::outside(int load) const {
  const std::string type = device_type(expr_.node(load).type);
  const int choice = nodes_.filler(load);
  if (choice < 0) return type + "{}";
  const Node& other = expr_.node(expr_.node(choice).args[1]);
  return fmt::format("narrow<{}>({}(args.{}_value))", type, carrier_type(other.type),
                     name(expr_.node(choice).args[1]));
}

// Whether places outside leave every total as it is: sums of elements that are +0 there, or of choices
// between such an element and zero.
bool RowLoads::sums_ignore_outside() const {
  for (int i = 0; i < node_count(); ++i) {
    const Node& node = expr_.node(i);
    if (node.kind != Node::Kind::reduce) continue;
    const Node* const select = nodes_.selects_or_adds_nothing(i);
    const int value = select != nullptr ? select->args[0] : nodes_.summed(i);
    if (node.reduction.mode != ReductionMode::add || node.reduction.compute != DataType::f32 ||
        !nodes_.is_taken(value) || nodes_.filler(value) >= 0)
      return false;
  }
  return true;
}

void RowLoads::write_outside() {
  line(1, "enum : bool {{ kSumsIgnoreOutside = {} }};", sums_ignore_outside());
  line(1, "template <int N>");
  begin_function("", "void", "outside", {"const Args& args", "Held<N>& held"});
  for (const int at : nodes_.indexed_loads())
    line(2, "held.{} = splat<{}>({});", load_name(expr_, at), is_shared_lane(at) ? "1" : "N", outside(at));
  line(1, "}}");
}

void RowLoads::write_run() {
  const std::vector<int> loads = nodes_.indexed_loads();
  line(1, "template <int N>");
  line(1, "struct Run {{");
  for (const int at : loads)
    line(2, "Vec<{}, N> {};", device_type(expr_.node(at).type), load_name(expr_, at));
  line(1, "}};");
  line(1,
       "// N neighbours, the first of them kBack in front of the one at a place, all inside or all "
       "outside.");
  begin_function("int N, int kBack", "Run<N>", "load_run", {"const Args& args", at_parameter()});
  line(2, "Run<N> run;");
  numbers_.write_counted(loads);
  for (const int at : loads)
    line(2, "run.{} = load_counted<N>({} + ({} - kBack), {}, {});", load_name(expr_, at),
         address(load_name(expr_, at), expr_.node(at).access), indexed_offset(at), is_inside(at),
         outside(at));
  line(2, "return run;");
  line(1, "}}");
  line(1, "template <int N, int W>");
  line(1, "static __device__ __forceinline__ void take(const Run<N>& run, int i, Held<W>& held) {{");
  for (const int at : loads) line(2, "held.{0}.lane[0] = run.{0}.lane[i];", load_name(expr_, at));
  line(1, "}}");
}

}  // namespace fusor
