// Owns the reading of an Expr whose value is one of two loads.
#pragma once

#include <optional>

#include "core/expr.h"

namespace fusor {

/// Two loads of which a condition chooses one, as an Expr's only value: a row that is newer than its table,
/// say. Elements have addresses then, like those of one load.
struct ChosenLoad {
  int condition = -1, first = -1, second = -1;  ///< nodes; the first where the condition holds
};

inline std::optional<ChosenLoad> chosen_load(const Expr& expr) {
  if (expr.yields.size() != 1 || !expr.stores.empty()) return std::nullopt;
  const Node& chosen = yielded_node(expr);
  if (chosen.kind != Node::Kind::pointwise || chosen.pointwise.mode != PointwiseMode::binary_select)
    return std::nullopt;
  for (const int at : {chosen.args[0], chosen.args[1]}) {
    const Node& load = expr.node(at);
    if (load.kind != Node::Kind::load || load.type != chosen.type) return std::nullopt;
  }
  return ChosenLoad{chosen.args[2], chosen.args[0], chosen.args[1]};
}

}  // namespace fusor
