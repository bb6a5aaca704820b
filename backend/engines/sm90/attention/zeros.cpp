// Owns the reading of what makes a score zero.
#include "backend/engines/sm90/attention/zeros.h"

#include <limits>
#include <set>
#include <utility>

namespace fusor::attention {

namespace {

enum class Vanishes : uint8_t { zero, infinite };  // values that are 0, or -inf

class Zeros {
 public:
  Zeros(const Fusion& fusion, Expr& expr, Bounds& bounds) : fusion_(fusion), expr_(expr), bounds_(bounds) {}

  void take(int at, Vanishes as) {
    at = behind_identity(expr_, at);
    if (at < 0 || !met_.insert({at, as}).second) return;
    const Node node = expr_.node(at);
    if (node.kind != Node::Kind::pointwise) return;
    if (node.pointwise.mode == PointwiseMode::binary_select) return take_select(at, as);
    if (as == Vanishes::zero)
      take_zero(node);
    else
      take_infinite(node);
  }

 private:
  void take_zero(const Node& node) {
    switch (node.pointwise.mode) {
      case PointwiseMode::identity:
        // A condition as a number, or a value in another type.
        if (is_real(expr_.node(node.args[0]).type))
          take(node.args[0], Vanishes::zero);
        else
          add(node.args[0], true);
        return;
      case PointwiseMode::exp:
        return take(node.args[0], Vanishes::infinite);
      case PointwiseMode::neg:
      case PointwiseMode::abs:
      case PointwiseMode::sqrt:
      case PointwiseMode::swish:
      case PointwiseMode::gelu:
        return take(node.args[0], Vanishes::zero);
      case PointwiseMode::relu:
        if (node.pointwise.lower_clip == 0) take(node.args[0], Vanishes::zero);
        return;
      case PointwiseMode::div:
        if (constant(fusion_, expr_, node.args[1]).value_or(0) != 0) take(node.args[0], Vanishes::zero);
        return;
      case PointwiseMode::mul:
        if (fusion_.precision == Precision::strict) return;
        for (const int factor : {node.args[0], node.args[1]}) take(factor, Vanishes::zero);
        return;
      default:
        return;
    }
  }

  void take_infinite(const Node& node) {
    if (node.pointwise.mode == PointwiseMode::identity) return take(node.args[0], Vanishes::infinite);
    if (node.pointwise.mode == PointwiseMode::sub) return take(node.args[0], Vanishes::infinite);
    if (node.pointwise.mode != PointwiseMode::add) return;
    for (const int term : {node.args[0], node.args[1]}) take(term, Vanishes::infinite);
  }

  void take_select(int at, Vanishes as) {
    const Node node = expr_.node(at);
    const double vanished = as == Vanishes::zero ? 0.0 : -std::numeric_limits<double>::infinity();
    for (const bool truth : {true, false}) {
      if (constant(fusion_, expr_, argument(expr_, at, truth ? 1 : 0)) != vanished) continue;
      if (add(node.args[2], truth) && readers_of(expr_, at) <= 1) {
        Node& select = expr_.node(at);
        select.pointwise.mode = PointwiseMode::identity;
        select.args = {node.args[truth ? 0 : 1], -1, -1};
      }
      take(node.args[truth ? 0 : 1], as);
    }
  }

  // Adds the bounds that "node `at` is `truth`" is, or that it implies; whether it is nothing else.
  bool add(int at, bool truth) {
    Bounds found = bounds_;
    const bool is_whole = add_condition(fusion_, expr_, at, truth, found);
    if (!is_whole) add_bounds_of(fusion_, expr_, at, truth, found = bounds_);
    if (!fit(found)) return false;
    bounds_ = std::move(found);
    return is_whole;
  }

  const Fusion& fusion_;
  Expr& expr_;
  Bounds& bounds_;
  std::set<std::pair<int, Vanishes>> met_;
};

}  // namespace

void take_zeros(const Fusion& fusion, Expr& expr, int at, Bounds& bounds) {
  Zeros(fusion, expr, bounds).take(at, Vanishes::zero);
}

}  // namespace fusor::attention
