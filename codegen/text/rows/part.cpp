// Owns the heads of functions, and the addresses, that all parts of a rows site's text have in common.
#include "codegen/text/rows/part.h"

#include <algorithm>

namespace fusor {

void RowPart::begin_function(std::string_view types, std::string_view result, std::string_view name,
                             const std::vector<std::string>& arguments) {
  const bool is_placed =
      nodes_.takes_through_indices() && std::ranges::find(arguments, at_parameter()) != arguments.end();
  if (is_placed)
    line(1, "template <{}class At>", types.empty() ? "" : fmt::format("{}, ", types));
  else if (!types.empty())
    line(1, "template <{}>", types);
  const std::string head = fmt::format("static __device__ __forceinline__ {} {}(", result, name);
  const std::string further = fmt::format(",\n{:{}}", "", head.size() + 2);
  line(1, "{}{}) {{", head, fmt::join(arguments, further));
}

std::string RowPart::at_parameter() const {
  return nodes_.takes_through_indices() ? "const At& at" : "const Index (&at)[kRank]";
}

std::string RowPart::at(int axis) const {
  return nodes_.takes_through_indices() ? fmt::format("at.template axis<{}>()", axis)
                                        : fmt::format("at[{}]", axis);
}

std::string RowPart::address(const std::string& base, const Node& load) const {
  return address(base, load.access, pointer_text(base, load.type));
}

std::string RowPart::address(const std::string& base, const Access& access) const {
  return address(base, access, "args." + base);
}

std::string RowPart::address(const std::string& base, const Access& access,
                             const std::string& pointer) const {
  std::string terms;
  int walked = 0;
  for (int axis = 0; axis < expr_.domain.rank(); ++axis) {
    if (access.strides[axis] == 0) continue;
    if (walked++ > 0) terms += " + ";
    terms += nodes_.takes_through_indices() ? at(axis) + ".value()" : at(axis);
    if (has_stride_field(site_, access, axis)) terms += fmt::format(" * args.{}_stride{}", base, axis);
  }
  if (walked == 0) return pointer;
  if (walked > 1) terms = fmt::format("({})", terms);
  return fmt::format("{} + {}", pointer, terms);
}

}  // namespace fusor
