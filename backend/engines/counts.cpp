// Owns how the counters of random words are rewritten: first as a load from nowhere, whose strides let axes
// merge, then as coordinates again.
#include "backend/engines/counts.h"

#include <limits>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "codegen/text/word_facts.h"
#include "core/ops/pointwise.h"

namespace fusor {

namespace {

constexpr int kNowhere = -2;  // the operand of a counter that is written as a load
// Sums and products of such counts do not overflow.
constexpr int64_t kMostLong = int64_t{1} << 61;

// offset + the sum of coordinates times strides, all of them from 0 on and no more than the type holds.
struct Count {
  Strides strides;
  int64_t offset = 0;
  int64_t largest = 0;
};

std::optional<Count> fitting(const Expr& expr, DataType type, Count count) {
  const int64_t most = type == DataType::i32 ? std::numeric_limits<int32_t>::max() : kMostLong;
  const auto fits = [&](int64_t value) { return value >= 0 && value <= most; };
  if (!fits(count.offset)) return std::nullopt;
  count.largest = count.offset;
  for (int axis = 0; axis < expr.domain.rank(); ++axis) {
    int64_t along = 0;
    if (count.strides[axis] < 0 ||
        __builtin_mul_overflow(count.strides[axis], expr.domain[axis] - 1, &along) || !fits(along))
      return std::nullopt;
    count.largest += along;
    if (!fits(count.largest)) return std::nullopt;
  }
  return count;
}

class Counts {
 public:
  Counts(const Expr& expr, const Fusion& fusion) : expr_(expr), fusion_(fusion) {}

  std::optional<Count> of(int at) const {
    const Node& node = expr_.node(at);
    if (node.type != DataType::i32 && node.type != DataType::i64) return std::nullopt;
    switch (node.kind) {
      case Node::Kind::index: {
        Count count{Dims::filled(expr_.domain.rank(), 0), node.access.offset};
        count.strides[node.axis] = node.access.strides[node.axis];
        return fitting(expr_, node.type, count);
      }
      case Node::Kind::scalar:
        return constant(node);
      case Node::Kind::pointwise:
        return computed(node);
      default:
        return std::nullopt;
    }
  }

 private:
  std::optional<Count> constant(const Node& node) const {
    const Operand& operand = fusion_.operands[static_cast<size_t>(node.access.operand)];
    const int64_t* const value = std::get_if<int64_t>(&operand.value);
    if (operand.memory != Memory::constant || value == nullptr) return std::nullopt;
    return fitting(expr_, node.type, {Dims::filled(expr_.domain.rank(), 0), *value});
  }

  std::optional<Count> computed(const Node& node) const {
    const PointwiseMode mode = node.pointwise.mode;
    if (is_real(node.pointwise.compute) || !has_default_parameters(node.pointwise)) return std::nullopt;
    const DataType type = narrower(node.type, node.pointwise.compute);
    if (mode == PointwiseMode::identity) {
      const std::optional<Count> same = of(node.args[0]);
      return same ? fitting(expr_, type, *same) : std::nullopt;
    }
    if (mode != PointwiseMode::add && mode != PointwiseMode::mul) return std::nullopt;
    std::optional<Count> a = of(node.args[0]), b = of(node.args[1]);
    if (!a || !b) return std::nullopt;
    if (mode == PointwiseMode::add) {
      for (int axis = 0; axis < expr_.domain.rank(); ++axis) a->strides[axis] += b->strides[axis];
      a->offset += b->offset;
      return fitting(expr_, type, *a);
    }
    const auto varies = [](const Count& count) { return count.largest != count.offset; };
    if (varies(*a)) std::swap(a, b);
    if (varies(*a)) return std::nullopt;
    bool overflows = __builtin_mul_overflow(b->offset, a->offset, &b->offset);
    for (int64_t& stride : b->strides) overflows |= __builtin_mul_overflow(stride, a->offset, &stride);
    return overflows ? std::nullopt : fitting(expr_, type, *b);
  }

  static DataType narrower(DataType a, DataType b) {
    return a == DataType::i32 || b == DataType::i32 ? DataType::i32 : DataType::i64;
  }

  const Expr& expr_;
  const Fusion& fusion_;
};

bool is_counter(const Node& node) { return node.kind == Node::Kind::load && node.access.operand == kNowhere; }

// Appends the coordinates that make the counter; their sum is the last node.
void append_coordinates(std::vector<Node>& nodes, const Node& counter, int rank) {
  int sum = -1;
  const auto add = [&](Node node) {
    node.type = counter.type;
    node.op = counter.op;
    nodes.push_back(node);
    return static_cast<int>(nodes.size()) - 1;
  };
  int64_t offset = counter.access.offset;
  for (int axis = 0; axis < rank; ++axis) {
    if (counter.access.strides[axis] == 0 && (sum >= 0 || axis + 1 < rank)) continue;
    Node along{.kind = Node::Kind::index, .axis = axis};
    along.access.strides = Dims::filled(rank, 0);
    along.access.strides[axis] = counter.access.strides[axis];
    along.access.offset = std::exchange(offset, 0);
    const int coordinate = add(along);
    if (sum < 0) {
      sum = coordinate;
      continue;
    }
    Node added{.kind = Node::Kind::pointwise, .args = {sum, coordinate, -1}};
    added.pointwise.mode = PointwiseMode::add;
    added.pointwise.compute = counter.type;
    sum = add(added);
  }
}

Expr with_coordinates(const Expr& given) {
  Expr expr = given;
  expr.nodes.clear();
  std::vector<int> places;
  const auto moved = [&](int& node) {
    if (node >= 0) node = places[static_cast<size_t>(node)];
  };
  for (Node node : given.nodes) {
    for (int& arg : node.args) moved(arg);
    if (is_counter(node))
      append_coordinates(expr.nodes, node, given.domain.rank());
    else
      expr.nodes.push_back(node);
    places.push_back(static_cast<int>(expr.nodes.size()) - 1);
  }
  for (Store& store : expr.stores) {
    moved(store.node);
    moved(store.index);
  }
  for (int& node : expr.yields) moved(node);
  return expr;
}

}  // namespace

Expr simplified_counts(const Expr& given, const Fusion& fusion, Expr (&simplify)(const Expr&)) {
  Expr expr = given;
  bool counts = false;
  for (const Node& node : given.nodes) {
    if (node.kind != Node::Kind::pointwise || !gives_words(node.pointwise.mode)) continue;
    const int index = node.args[kPhiloxIndex];
    const std::optional<Count> count = Counts(given, fusion).of(index);
    if (!count) continue;
    Node load{.kind = Node::Kind::load, .type = expr.node(index).type, .op = expr.node(index).op};
    load.access = {kNowhere, count->offset, count->strides};
    expr.node(index) = load;
    counts = true;
  }
  return counts ? with_coordinates(simplify(expr)) : simplify(given);
}

}  // namespace fusor
