// Owns the question whether places that lanes compute are those of neighbours.
#include "codegen/text/places.h"

#include <cstdint>
#include <vector>

namespace fusor {

namespace {

class Counting {
 public:
  Counting(const Expr& expr, int axis) : expr_(expr), axis_(axis), varying_(varying_axes(expr)) {}

  bool is_bounded(int at) const {
    const Node& node = expr_.node(at);
    if (!is_pointwise(node, PointwiseMode::binary_select)) return is_count(at);
    return is_integer(node) && is_count(node.args[0]) && !varies(node.args[1]) && is_bound(node.args[2]);
  }

  std::optional<CountedPlace> parts(int at) const {
    if (!is_bounded(at)) return std::nullopt;
    const Node& node = expr_.node(at);
    if (!is_pointwise(node, PointwiseMode::binary_select)) return CountedPlace{.count = at};
    const Node& comparison = expr_.node(node.args[2]);
    const auto is_whole = [&](int part) { return is_integer(expr_.node(part)); };
    if (!is_whole(node.args[1]) || !is_whole(comparison.args[1]) || is_real(comparison.pointwise.compute))
      return std::nullopt;
    return CountedPlace{node.args[0], node.args[1], comparison.args[0], comparison.args[1],
                        comparison.pointwise.mode == PointwiseMode::cmp_le};
  }

 private:
  static bool is_pointwise(const Node& node, PointwiseMode mode) {
    return node.kind == Node::Kind::pointwise && node.pointwise.mode == mode;
  }
  static bool is_integer(const Node& node) {
    return node.type == DataType::i32 || node.type == DataType::i64;
  }
  bool varies(int at) const { return (varying_[static_cast<size_t>(at)] >> axis_ & 1) != 0; }

  bool is_count(int at) const {
    const Node& node = expr_.node(at);
    if (!is_integer(node)) return false;
    if (node.kind == Node::Kind::index)
      return node.axis == axis_ && (node.access.strides.rank() <= axis_ || node.access.strides[axis_] == 1);
    if (is_pointwise(node, PointwiseMode::identity)) return is_count(node.args[0]);
    return is_pointwise(node, PointwiseMode::add) && ((is_count(node.args[0]) && !varies(node.args[1])) ||
                                                      (is_count(node.args[1]) && !varies(node.args[0])));
  }
  // Holds for the first ones along the axis.
  bool is_bound(int at) const {
    const Node& node = expr_.node(at);
    return (is_pointwise(node, PointwiseMode::cmp_lt) || is_pointwise(node, PointwiseMode::cmp_le)) &&
           is_count(node.args[0]) && !varies(node.args[1]);
  }

  const Expr& expr_;
  int axis_;
  std::vector<uint32_t> varying_;
};

}  // namespace

bool counts_along(const Expr& expr, int at, int axis) { return Counting(expr, axis).is_bounded(at); }

std::optional<CountedPlace> counted_place(const Expr& expr, int at, int axis) {
  return Counting(expr, axis).parts(at);
}

}  // namespace fusor
