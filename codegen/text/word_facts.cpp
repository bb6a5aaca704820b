// Owns how the facts of random words are found.
#include "codegen/text/word_facts.h"

#include <cstdint>
#include <limits>

#include "core/ops/pointwise.h"

namespace fusor {

namespace {

bool is_mode(const Node& node, PointwiseMode mode) {
  return node.kind == Node::Kind::pointwise && node.pointwise.mode == mode;
}

// Adds the steps and the offset of a sum of coordinates; false: something else.
bool add_coordinates(const Expr& expr, int at, Strides& steps, int64_t& offset) {
  const Node& node = expr.node(at);
  if (node.kind == Node::Kind::index) {
    const bool overflows =
        __builtin_add_overflow(steps[node.axis], node.access.strides[node.axis], &steps[node.axis]) ||
        __builtin_add_overflow(offset, node.access.offset, &offset);
    return !overflows && !is_real(node.type);
  }
  return is_mode(node, PointwiseMode::add) && !is_real(node.pointwise.compute) &&
         add_coordinates(expr, node.args[0], steps, offset) &&
         add_coordinates(expr, node.args[1], steps, offset);
}

// The largest value of a sum of coordinates, or -1: something else, or negative somewhere.
int64_t largest_count(const Expr& expr, int at) {
  const Node& node = expr.node(at);
  if (node.type != DataType::i32) return -1;
  if (node.kind == Node::Kind::index) {
    const int64_t scale = node.access.strides[node.axis], extent = expr.domain[node.axis];
    if (node.access.offset < 0 || scale < 0) return -1;
    int64_t most = 0;
    const bool overflows = __builtin_mul_overflow(scale, extent - 1, &most) ||
                           __builtin_add_overflow(most, node.access.offset, &most);
    return overflows ? -1 : most;
  }
  if (!is_mode(node, PointwiseMode::add) || node.pointwise.compute != DataType::i32) return -1;
  const int64_t a = largest_count(expr, node.args[0]), b = a < 0 ? -1 : largest_count(expr, node.args[1]);
  int64_t sum = 0;
  return b < 0 || __builtin_add_overflow(a, b, &sum) ? -1 : sum;
}

}  // namespace

bool counts_up(const Expr& expr, const Node& node) {
  if (node.kind != Node::Kind::pointwise || !gives_words(node.pointwise.mode)) return false;
  const int64_t largest = largest_count(expr, node.args[kPhiloxIndex]);
  return largest >= 0 && largest <= std::numeric_limits<int32_t>::max();
}

WordSteps word_steps(const KernelSite& site, const Node& node) {
  const Expr& expr = site.expr;
  if (!site.aligned || node.kind != Node::Kind::pointwise || !gives_words(node.pointwise.mode)) return {};
  Strides steps = Strides::filled(expr.domain.rank(), 0);
  int64_t offset = 0;
  if (!add_coordinates(expr, node.args[kPhiloxIndex], steps, offset)) return {};
  for (int axis = 0; axis < expr.domain.rank(); ++axis)
    if (axis != site.vector_axis && expr.domain[axis] != 1 && steps[axis] % 4 != 0) return {};
  const int64_t step = steps[site.vector_axis];
  if (step != 1 && step != 2) return {};
  return {.step = static_cast<int>(step), .first = static_cast<int>((offset % 4 + 4) % 4)};
}

bool compares_word(const Expr& expr, const Node& node) {
  if (!is_mode(node, PointwiseMode::cmp_lt) || node.pointwise.compute != DataType::i64) return false;
  const Node& word = expr.node(node.args[0]);
  const Node& limit = expr.node(node.args[1]);
  return word.kind == Node::Kind::pointwise && gives_words(word.pointwise.mode) &&
         word.type == DataType::i64 && limit.kind == Node::Kind::scalar && limit.type == DataType::i64;
}

}  // namespace fusor
