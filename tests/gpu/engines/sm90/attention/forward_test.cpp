// Owns the GPU tests of forward attention: every setting against the oracle, on odd lengths, masks, shared
// heads and whatever the scores pass through.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "backend/engines/list.h"
#include "frontend/graph_builder.h"
#include "tests/gpu/engines/every_config.h"

namespace fusor {
namespace {

const std::array<const Engine*, 1> kAttentionOnly{&attention_engine()};

enum class Mask { none, causal, bottom_right, window };

struct AttentionCase {
  int64_t batch, heads, shared_heads, queries, keys, head, value;
  Mask mask = Mask::none;
  DataType type = DataType::bf16;
};

std::string words(const AttentionCase& c) {
  return fmt::format("{} x {}({}) x {} x {}, {} and {}, mask {}", c.batch, c.heads, c.shared_heads, c.queries,
                     c.keys, c.head, c.value, static_cast<int>(c.mask));
}

// Softmax attention, written out as a user would.
struct Attention {
  GraphBuilder g{"attention"};
  AttentionCase c;
  Tensor score;

  explicit Attention(const AttentionCase& case_) : c(case_) {
    const Tensor q = g.input("q", {c.batch, c.heads, c.queries, c.head}, c.type);
    const int64_t plane = c.head * c.keys;
    const Tensor k = g.input("k", {c.batch, c.shared_heads, c.head, c.keys}, c.type,
                             {.strides = Strides{c.shared_heads * plane, plane, 1, c.head}});
    score = g.mul(g.matmul(q, k), g.constant(1 / std::sqrt(static_cast<double>(c.head))));
  }

  Tensor row() { return g.gen_index(score, 2); }
  Tensor key() { return g.gen_index(score, 3); }
  void keep(const Tensor& condition) {
    score = g.binary_select(score, g.constant(-std::numeric_limits<double>::infinity()), condition);
  }
  void mask() {
    const auto shift = static_cast<double>(c.keys - c.queries);
    if (c.mask == Mask::causal || c.mask == Mask::window) keep(g.cmp_ge(row(), key()));
    if (c.mask == Mask::bottom_right) keep(g.cmp_le(key(), g.add(row(), g.constant(shift, DataType::i32))));
    if (c.mask == Mask::window) keep(g.cmp_lt(g.sub(row(), key()), g.constant(70, DataType::i32)));
  }

  Graph finish(bool statistics) {
    const Tensor largest = g.reduce(score, ReductionMode::max, {3});
    const Tensor exponential = g.exp(g.sub(score, largest));
    const Tensor sum = g.reduce(exponential, ReductionMode::add, {3});
    const Tensor v = g.input("v", {c.batch, c.shared_heads, c.keys, c.value}, c.type);
    if (statistics) g.output(g.add(g.log(sum), largest), {.name = "logsumexp", .type = DataType::f32});
    g.output(g.matmul(g.div(exponential, sum), v), {.name = "o", .type = c.type});
    return g.finish();
  }
};

const AttentionCase kCases[] = {
    {1, 1, 1, 128, 128, 64, 64},
    {2, 3, 3, 200, 333, 64, 64},
    {1, 2, 2, 129, 1000, 128, 128},
    {1, 2, 2, 1, 77, 128, 128},
    {1, 4, 2, 300, 300, 64, 64, Mask::causal},
    {2, 4, 1, 257, 257, 128, 128, Mask::causal, DataType::f16},
    {1, 2, 2, 100, 400, 128, 128, Mask::bottom_right},
    {1, 2, 1, 500, 500, 64, 128, Mask::window},
    {1, 2, 2, 190, 270, 192, 128, Mask::causal},
    {1, 1, 1, 260, 290, 256, 256},
    {1, 2, 2, 150, 150, 80, 40, Mask::causal},
    {1, 2, 2, 65, 513, 72, 104, Mask::none, DataType::f16},
};

class AttentionGpu : public testing::TestWithParam<AttentionCase> {};

TEST_P(AttentionGpu, Forward) {
  FUSOR_NEEDS_HOPPER();
  Attention attention(GetParam());
  attention.mask();
  expect_every_config_correct(attention.finish(false), kAttentionOnly, words(GetParam()));
}

TEST_P(AttentionGpu, ForwardWithStatistics) {
  FUSOR_NEEDS_HOPPER();
  Attention attention(GetParam());
  attention.mask();
  expect_every_config_correct(attention.finish(true), kAttentionOnly, words(GetParam()));
}

// Soft-capped, with a bias of keys and a slope of heads.
TEST_P(AttentionGpu, ForwardOfAnyScore) {
  FUSOR_NEEDS_HOPPER();
  Attention attention(GetParam());
  GraphBuilder& g = attention.g;
  const AttentionCase& c = GetParam();
  Tensor& score = attention.score;
  score = g.mul(g.tanh(g.div(score, g.constant(5))), g.constant(5));
  score = g.add(score, g.input("bias", {1, c.heads, c.queries, c.keys}, c.type));
  score = g.add(score, g.mul(g.sub(attention.key(), attention.row()),
                             g.input("slope", {1, c.heads, 1, 1}, DataType::f32)));
  attention.mask();
  expect_every_config_correct(attention.finish(true), kAttentionOnly, words(c));
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionGpu, testing::ValuesIn(kCases));

}  // namespace
}  // namespace fusor
