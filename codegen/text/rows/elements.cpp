// Owns which values of elements a loop over lanes needs, and how they are computed there.
#include "codegen/text/rows/elements.h"

#include "codegen/text/device_types.h"

namespace fusor {

std::vector<std::string> RowElements::element_arguments() const {
  return {"const Args& args",    at_parameter(),          "int count",
          "const Held<N>& held", "const Fixed<N>& fixed", "const Row<W>& row"};
}

// The values of elements that these nodes need, themselves included, in order.
std::vector<int> RowElements::elements_behind(const std::vector<int>& targets) const {
  std::vector<bool> needed(expr_.nodes.size(), false);
  for (const int target : targets) needed[static_cast<size_t>(target)] = true;
  for (int i = node_count() - 1; i >= 0; --i) {
    if (!needed[static_cast<size_t>(i)] || place(i) != RowPlace::element || numbers_.is_counted(i) ||
        nodes_.load_of(i) >= 0)
      continue;
    for (const int arg : expr_.node(i).args)
      if (arg >= 0) needed[static_cast<size_t>(arg)] = true;
  }
  std::vector<int> order;
  for (int i = 0; i < node_count(); ++i)
    if (needed[static_cast<size_t>(i)]) order.push_back(i);
  return order;
}

void RowElements::write_elements(const std::vector<int>& targets) {
  const std::vector<int> needed = elements_behind(targets);
  for (const int at : needed)
    if (const int load = nodes_.load_of(at); load >= 0 && place(at) == RowPlace::element)
      line(2, "const auto {} = widen({}.{});", name(at),
           nodes_.facts().is_fixed(expr_, load) ? "fixed" : "held", load_name(expr_, load));
  std::vector<int> readers = needed;
  std::erase_if(readers, [&](int at) { return place(at) == RowPlace::row || nodes_.load_of(at) >= 0; });
  std::vector<int> counting = needed;
  std::erase_if(counting, [&](int at) { return nodes_.load_of(at) >= 0; });
  numbers_.write_counted(counting);
  formulas_.write_scalars(readers);
  formulas_.write_divisors(needed);
  formulas_.write_words(needed);
  line(0, "#pragma unroll");
  line(2, "for (int i = 0; i < N; ++i) {{");
  for (const int at : needed) {
    const Node& node = expr_.node(at);
    if (place(at) != RowPlace::element || nodes_.load_of(at) >= 0 || numbers_.is_counted(at)) continue;
    if (node.kind == Node::Kind::pointwise) formulas_.write_parameters(at);
    const std::string value = node.kind == Node::Kind::index
                                  ? RowFormulas::rounded(node, formulas_.coordinate(at), false)
                                  : formulas_.computed(at, "Fn", false);
    line(3, "const {} {} = {};{}", carrier_type(node.type), name(at), value, nodes_.comment_of(node.op));
  }
}

}  // namespace fusor
