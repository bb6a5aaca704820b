// Owns the search for results that see the digits of a special function.
#include "backend/engines/short_forms.h"

#include <algorithm>
#include <vector>

namespace fusor {

namespace {

bool is_short(DataType type) { return is_real(type) && info(type).bits <= 16; }

// By node: whether its digits are those of a special function, or of what was made of one.
std::vector<bool> nodes_of_functions(const Expr& expr, const std::function<bool(int)>& counts) {
  std::vector<bool> found(expr.nodes.size(), false);
  for (size_t i = 0; i < expr.nodes.size(); ++i) {
    const Node& node = expr.nodes[i];
    const bool is_function = node.kind == Node::Kind::pointwise && info(node.pointwise.mode).sfu > 0 &&
                             (!counts || counts(static_cast<int>(i)));
    const bool is_made_of_one =
        std::ranges::any_of(node.args, [&](int arg) { return arg >= 0 && found[static_cast<size_t>(arg)]; });
    found[i] = (is_function || is_made_of_one) && !is_short(node.type);
  }
  return found;
}

}  // namespace

bool fits_short_forms(const Expr& expr, const std::function<bool(int)>& counts) {
  const std::vector<bool> found = nodes_of_functions(expr, counts);
  const auto is_seen = [&](int node, DataType type) {
    return found[static_cast<size_t>(node)] && !is_short(type);
  };
  return std::ranges::none_of(expr.stores,
                              [&](const Store& store) { return is_seen(store.node, store.type); }) &&
         std::ranges::none_of(expr.yields, [&](int node) { return is_seen(node, expr.node(node).type); });
}

}  // namespace fusor
