// Owns how the facts of random words are found.
#include "codegen/word_facts.h"

#include <cstdint>
#include <limits>

#include "core/ops/pointwise.h"

namespace fusor {

namespace {

bool is_mode(const Node& node, PointwiseMode mode) {
  return node.kind == Node::Kind::pointwise && node.pointwise.mode == mode;
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

bool compares_word(const Expr& expr, const Node& node) {
  if (!is_mode(node, PointwiseMode::cmp_lt) || node.pointwise.compute != DataType::i64) return false;
  const Node& word = expr.node(node.args[0]);
  const Node& limit = expr.node(node.args[1]);
  return word.kind == Node::Kind::pointwise && gives_words(word.pointwise.mode) &&
         word.type == DataType::i64 && limit.kind == Node::Kind::scalar && limit.type == DataType::i64;
}

}  // namespace fusor
