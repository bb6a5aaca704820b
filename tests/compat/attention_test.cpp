// Owns the tests of attention as cudnn-frontend sends it: results on the CPU device against plain loops, for
// every value of the numbers that clients hand over in each run.
#include "tests/compat/attention_parts.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fusor::compat_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// All that a client binds, and what comes out by plain loops in double.
struct Tensors {
  AttentionShape c;
  float scale = 0.4F, fill = -kInfinity, one = 1, kept = 1;
  std::vector<int32_t> query_lengths, key_lengths;
  std::vector<float> q, k, v, o, stats, dy, dq, dk, dv, row_sums, sum_of_dq;
  std::vector<double> o_want, stats_want, dq_want, dk_want, dv_want;

  explicit Tensors(const AttentionShape& shape)
      : c(shape),
        q(numbers(of_queries(), 1)),
        k(numbers(of_keys(), 2)),
        v(numbers(of_keys(), 3)),
        o(poison(of_queries())),
        stats(poison(static_cast<size_t>(c.batch * c.heads * c.queries))),
        dy(numbers(of_queries(), 4)),
        dq(poison(of_queries())),
        dk(poison(of_keys())),
        dv(poison(of_keys())),
        row_sums(stats),
        sum_of_dq(of_queries()) {
    for (int64_t b = 0; b < c.batch; ++b) {
      query_lengths.push_back(static_cast<int32_t>(c.queries - 5 * b));
      key_lengths.push_back(static_cast<int32_t>(c.keys - 3 * b));
    }
  }

  size_t of_queries() const { return static_cast<size_t>(c.batch * c.heads * c.queries * c.depth); }
  size_t of_keys() const { return static_cast<size_t>(c.batch * c.key_heads * c.keys * c.depth); }
  size_t query(int64_t b, int64_t h, int64_t s) const {
    return static_cast<size_t>(((b * c.queries + s) * c.heads + h) * c.depth);
  }
  size_t key(int64_t b, int64_t h, int64_t s) const {
    return static_cast<size_t>(((b * c.keys + s) * c.key_heads + h / (c.heads / c.key_heads)) * c.depth);
  }
  size_t row(int64_t b, int64_t h, int64_t s) const {
    return static_cast<size_t>((b * c.queries + s) * c.heads + h);
  }
  bool exists(int64_t b, int64_t s) const {
    return !c.has_lengths || s < query_lengths[static_cast<size_t>(b)];
  }
  // Rows that do not exist may hold anything.
  void spoil() {
    if (!c.has_lengths) return;
    const auto depth = static_cast<size_t>(c.depth);
    for (int64_t b = 0; b < c.batch; ++b)
      for (int64_t h = 0; h < c.heads; ++h) {
        for (int64_t s = query_lengths[static_cast<size_t>(b)]; s < c.queries; ++s)
          for (std::vector<float>* x : {&q, &dy, &o})
            std::fill_n(x->begin() + static_cast<std::ptrdiff_t>(query(b, h, s)), depth, NAN);
        for (int64_t t = key_lengths[static_cast<size_t>(b)]; t < c.keys; ++t)
          for (std::vector<float>* x : {&k, &v})
            std::fill_n(x->begin() + static_cast<std::ptrdiff_t>(key(b, h, t)), depth, NAN);
      }
  }
  bool sees(int64_t b, int64_t s, int64_t t) const {
    const bool within = !c.has_lengths || (s < query_lengths[static_cast<size_t>(b)] &&
                                           t < key_lengths[static_cast<size_t>(b)]);
    const auto at = static_cast<size_t>(b);
    const int64_t shift = c.ends_together ? key_lengths[at] - query_lengths[at] : 0;
    return within && (!c.is_causal || s + shift >= t);
  }

  // `is_backward`: a mask takes the place of what is left of a score behind the statistics.
  void expect(bool is_backward) {
    o_want.assign(o.size(), 0);
    dq_want = o_want;
    stats_want.assign(stats.size(), -double{kInfinity});
    dk_want.assign(dk.size(), 0);
    dv_want = dk_want;
    for (int64_t b = 0; b < c.batch; ++b)
      for (int64_t h = 0; h < c.heads; ++h)
        for (int64_t s = 0; s < c.queries; ++s) expect_row(b, h, s, is_backward);
  }
  void expect_row(int64_t b, int64_t h, int64_t s, bool is_backward) {
    if (!exists(b, s)) return;
    const auto keys = static_cast<size_t>(c.keys), depth = static_cast<size_t>(c.depth);
    const size_t at = query(b, h, s);
    std::vector<double> scores(keys);
    double largest = -double{kInfinity}, sum = 0;
    for (size_t t = 0; t < keys; ++t) {
      double score = 0;
      for (size_t d = 0; d < depth; ++d)
        score += double{q[at + d]} * k[key(b, h, static_cast<int64_t>(t)) + d];
      scores[t] = score * scale;
      if (!is_backward && !sees(b, s, static_cast<int64_t>(t))) scores[t] = fill;
      largest = std::max(largest, scores[t]);
    }
    for (const double score : scores) sum += std::exp(score - largest);
    double logarithm = largest + std::log(sum), delta = 0;
    if (is_backward) logarithm = double{stats[row(b, h, s)]};
    stats_want[row(b, h, s)] = logarithm;
    for (size_t d = 0; d < depth; ++d) delta += double{dy[at + d]} * o[at + d];
    for (size_t t = 0; t < keys; ++t) {
      const size_t of_key = key(b, h, static_cast<int64_t>(t));
      if (!sees(b, s, static_cast<int64_t>(t)) && std::isinf(fill)) continue;
      const bool hidden = is_backward && !sees(b, s, static_cast<int64_t>(t));
      const double p = std::exp(hidden ? double{fill} : scores[t] - logarithm);
      double dp = 0;
      for (size_t d = 0; d < depth; ++d) {
        o_want[at + d] += p * v[of_key + d] * kept;
        dp += double{dy[at + d]} * v[of_key + d];
        dv_want[of_key + d] += p * dy[at + d];
      }
      for (size_t d = 0; d < depth; ++d) {
        dq_want[at + d] += p * (dp - delta) * scale * k[of_key + d];
        dk_want[of_key + d] += p * (dp - delta) * scale * q[at + d];
      }
    }
  }

  Pointers pointers() {
    return {{kQ, q.data()},
            {kK, k.data()},
            {kV, v.data()},
            {kO, o.data()},
            {kStats, stats.data()},
            {kDO, dy.data()},
            {kDQ, dq.data()},
            {kDK, dk.data()},
            {kDV, dv.data()},
            {kScale, &scale},
            {kFill, &fill},
            {kOne, &one},
            {kRowSums, row_sums.data()},
            {kSumOfDQ, sum_of_dq.data()},
            {kQueryLengths, query_lengths.data()},
            {kKeyLengths, key_lengths.data()},
            {kKept, &kept}};
  }
};

void expect_near(const std::vector<float>& made, const std::vector<double>& want, const char* name) {
  ASSERT_EQ(made.size(), want.size());
  for (size_t i = 0; i < made.size(); ++i) {
    if (std::isinf(want[i]))
      ASSERT_EQ(made[i], want[i]) << name << " " << i;
    else
      ASSERT_NEAR(made[i], want[i], 2e-4) << name << " " << i;
  }
}

class AttentionInPrimitives : public Client, public ::testing::WithParamInterface<AttentionShape> {};

TEST_P(AttentionInPrimitives, GivesWhatLoopsGive) {
  Tensors t(GetParam());
  t.spoil();
  run(AttentionOps(t.c).forward(), t.pointers());
  t.expect(false);
  expect_near(t.o, t.o_want, "o");
  expect_near(t.stats, t.stats_want, "stats");
  t.spoil();
  run(AttentionOps(t.c).backward(), t.pointers());
  t.expect(true);
  expect_near(t.dq, t.dq_want, "dq");
  expect_near(t.dk, t.dk_want, "dk");
  expect_near(t.dv, t.dv_want, "dv");
}

std::vector<AttentionShape> shapes() {
  std::vector<AttentionShape> list;
  for (const int64_t key_heads : {4, 2, 1})
    for (const bool is_causal : {false, true})
      for (const bool has_lengths : {false, true})
        list.push_back({.key_heads = key_heads,
                        .queries = 20,
                        .keys = is_causal ? 20 : 23,
                        .type = CUDNN_DATA_FLOAT,
                        .is_causal = is_causal,
                        .has_lengths = has_lengths});
  list.push_back({.key_heads = 2,
                  .queries = 20,
                  .keys = 20,
                  .type = CUDNN_DATA_FLOAT,
                  .has_lengths = true,
                  .ends_together = true});
  return list;
}
INSTANTIATE_TEST_SUITE_P(Shapes, AttentionInPrimitives, ::testing::ValuesIn(shapes()));

class GivenNumbers : public Client {
 protected:
  static std::string text_of(const Part& plan) {
    const int64_t size = plan.count(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR);
    std::string text(static_cast<size_t>(size), ' ');
    int64_t count = 0;
    EXPECT_CUDNN(cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                          CUDNN_TYPE_CHAR, size, &count, text.data()));
    return text;
  }
  // A plan of that text, not finalized.
  Part with_text(const std::string& text) {
    Part plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
             std::vector<char>(text.begin(), text.end()))
        .one(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle);
    return plan;
  }
};

// One plan for all values: scales of any sign, masks that put any number in place of a score.
TEST_F(GivenNumbers, MayBeOthersInEachRun) {
  Tensors t({.queries = 12, .keys = 12, .type = CUDNN_DATA_FLOAT});
  const Part forward = plan_of(
      heuristics(operation_graph(handle, AttentionOps(t.c).forward()).finalize(), CUDNN_HEUR_MODE_A).front());
  const Part backward =
      plan_of(heuristics(operation_graph(handle, AttentionOps(t.c).backward()).finalize(), CUDNN_HEUR_MODE_A)
                  .front());
  struct Given {
    float scale, fill;
  };
  for (const Given given : {Given{0.3F, -kInfinity},
                            {-0.3F, -kInfinity},
                            {0.3F, -1.5F},
                            {0, -kInfinity},
                            {0.2F, std::numeric_limits<float>::lowest()},
                            {-0.2F, 0.5F},
                            {0.3F, -kInfinity}}) {
    t.scale = given.scale;
    t.fill = given.fill;
    ASSERT_CUDNN(execute(handle, forward, t.pointers()));
    t.expect(false);
    expect_near(t.o, t.o_want, "o");
    ASSERT_CUDNN(execute(handle, backward, t.pointers()));
    t.expect(true);
    expect_near(t.dq, t.dq_want, "dq");
    expect_near(t.dk, t.dk_want, "dk");
    expect_near(t.dv, t.dv_want, "dv");
  }
}

// Probabilities that dropout keeps may be multiplied by any number.
TEST_F(GivenNumbers, MayBeOthersForWhatDropoutKeeps) {
  Tensors t({.queries = 12, .keys = 12, .type = CUDNN_DATA_FLOAT, .has_dropout = true});
  const Part plan = plan_of(
      heuristics(operation_graph(handle, AttentionOps(t.c).forward()).finalize(), CUDNN_HEUR_MODE_A).front());
  EXPECT_NE(text_of(plan).find("positive " + std::to_string(kKept)), std::string::npos);
  for (const float kept : {1.25F, -2.0F, 0.0F, 1.25F}) {
    t.kept = kept;
    ASSERT_CUDNN(execute(handle, plan, t.pointers()));
    t.expect(false);
    expect_near(t.o, t.o_want, "o");
  }
}

TEST_F(GivenNumbers, MayBeOthersForTheOp) {
  Tensors t({.key_heads = 2, .queries = 12, .keys = 12, .type = CUDNN_DATA_FLOAT, .is_causal = false});
  const Part plan = plan_of(
      heuristics(operation_graph(handle, AttentionOps(t.c).forward_as_one()).finalize(), CUDNN_HEUR_MODE_A)
          .front());
  for (const float scale : {0.4F, -0.4F, 0.0F}) {
    t.scale = scale;
    ASSERT_CUDNN(execute(handle, plan, t.pointers()));
    t.expect(false);
    expect_near(t.o, t.o_want, "o");
  }
}

// A mask may put a number in place of scores that does not hide them. Rows behind a length are 0 all the
// same.
TEST_F(GivenNumbers, LeaveRowsBehindLengthsAlone) {
  for (const float fill : {-kInfinity, -1e9F, -2.0F}) {
    Tensors t({.queries = 20, .keys = 20, .type = CUDNN_DATA_FLOAT, .is_causal = false, .has_lengths = true});
    t.fill = fill;
    run(AttentionOps(t.c).forward(), t.pointers());
    for (int64_t b = 0; b < t.c.batch; ++b)
      for (int64_t s = t.query_lengths[static_cast<size_t>(b)]; s < t.c.queries; ++s)
        for (int64_t h = 0; h < t.c.heads; ++h) EXPECT_EQ(t.o[t.query(b, h, s)], 0) << fill << " row " << s;
  }
}

// Values that come through an op keep their lengths.
TEST_F(GivenNumbers, HideWhatLiesBehindLengthsOfMadeValues) {
  for (const bool is_copied : {false, true}) {
    Tensors t({.queries = 20,
               .keys = 20,
               .type = CUDNN_DATA_FLOAT,
               .is_causal = false,
               .has_lengths = true,
               .has_copied_values = is_copied});
    t.spoil();
    run(AttentionOps(t.c).forward(), t.pointers());
    t.expect(false);
    expect_near(t.o, t.o_want, "o");
  }
}

// Values behind a length are hidden from the attention, and from nothing else that reads them.
TEST_F(GivenNumbers, LeaveValuesToOtherOps) {
  Tensors t({.queries = 20, .keys = 20, .type = CUDNN_DATA_FLOAT, .is_causal = false, .has_lengths = true});
  std::vector<Part> ops = AttentionOps(t.c).forward();
  const std::vector<int64_t> dims{t.c.batch, t.c.key_heads, t.c.keys, t.c.depth},
      strides{t.c.keys * t.c.key_heads * t.c.depth, t.c.depth, t.c.key_heads * t.c.depth, 1};
  constexpr int64_t kLargest = 51;
  ops.push_back(reduction(CUDNN_REDUCE_TENSOR_AMAX, tensor(kV, dims, {.strides = strides}),
                          tensor(kLargest, {1, 1, 1, 1})));
  t.v.back() = 100;
  float largest = 0;
  Pointers pointers = t.pointers();
  pointers.emplace(kLargest, &largest);
  run(ops, pointers);
  EXPECT_EQ(largest, 100);
}

// A text that presumes something of what is no scalar would be read through a pointer of the device.
TEST_F(GivenNumbers, OfABrokenTextAreRefused) {
  Tensors t({.queries = 12, .keys = 12, .type = CUDNN_DATA_FLOAT});
  const Part plan = plan_of(
      heuristics(operation_graph(handle, AttentionOps(t.c).forward()).finalize(), CUDNN_HEUR_MODE_A).front());
  std::string text = text_of(plan);
  const std::string presumed = "\npositive " + std::to_string(int64_t{kScale});
  const size_t at = text.find(presumed);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, presumed.size(), "\npositive " + std::to_string(int64_t{kQ}));
  EXPECT_NE(cudnnBackendFinalize(with_text(text).get()), CUDNN_STATUS_SUCCESS);
}

// A scale may be of any type of real numbers.
TEST_F(GivenNumbers, MayHaveOtherTypes) {
  const double as_double = -0.5;
  const uint16_t as_half = 0xb800, as_bfloat = 0xbf00;
  struct Given {
    cudnnDataType_t type;
    const void* value;
  };
  for (const Given given : {Given{CUDNN_DATA_DOUBLE, &as_double},
                            {CUDNN_DATA_HALF, &as_half},
                            {CUDNN_DATA_BFLOAT16, &as_bfloat}}) {
    Tensors t({.queries = 12, .keys = 12, .type = CUDNN_DATA_FLOAT, .is_causal = false});
    Pointers pointers = t.pointers();
    pointers[kScale] = const_cast<void*>(given.value);
    run(AttentionOps(t.c).forward_as_one(given.type), pointers);
    t.scale = -0.5F;
    t.expect(false);
    expect_near(t.o, t.o_want, "o");
  }
}

// Matmuls and an exponential that are no attention: all that the client asks for is written.
TEST_F(GivenNumbers, AreNotLookedForInOtherGraphs) {
  const auto square = [](int64_t uid, bool is_virtual = false) {
    return tensor(uid, {1, 4, 4}, {.is_virtual = is_virtual});
  };
  const Part hidden = square(10), exponential = square(11, true), second = square(12),
             total = tensor(14, {1, 1, 4});
  auto x = numbers(16, 1), a = numbers(16, 2), b = numbers(16, 3), c = numbers(16, 4);
  auto first_made = poison(16), second_made = poison(16), y = poison(16), sums = poison(4);
  run({matmul(square(1), square(2), hidden), unary(CUDNN_POINTWISE_EXP, hidden, exponential),
       matmul(exponential, square(3), second), reduction(CUDNN_REDUCE_TENSOR_ADD, second, total),
       matmul(second, square(4), square(13))},
      {{1, x.data()},
       {2, a.data()},
       {3, b.data()},
       {4, c.data()},
       {10, first_made.data()},
       {12, second_made.data()},
       {13, y.data()},
       {14, sums.data()}});
  const auto times = [](const std::vector<float>& m, const std::vector<float>& n, size_t i, size_t j) {
    double sum = 0;
    for (size_t k = 0; k < 4; ++k) sum += double{m[4 * i + k]} * n[4 * k + j];
    return sum;
  };
  std::vector<float> exponentials = first_made;
  for (float& value : exponentials) value = std::exp(value);
  for (size_t i = 0; i < 4; ++i)
    for (size_t j = 0; j < 4; ++j) {
      EXPECT_NEAR(first_made[4 * i + j], times(x, a, i, j), 1e-5);
      EXPECT_NEAR(second_made[4 * i + j], times(exponentials, b, i, j), 1e-4);
      EXPECT_NEAR(y[4 * i + j], times(second_made, c, i, j), 1e-4);
    }
}

// A client gives one workspace for both plans.
TEST_F(GivenNumbers, NeedNoMoreWorkspaceThanIsAskedFor) {
  const auto planned = [&](int64_t length) {
    AttentionOps ops({.queries = length, .keys = length, .type = CUDNN_DATA_FLOAT});
    return plan_of(heuristics(operation_graph(handle, ops.forward()).finalize(), CUDNN_HEUR_MODE_A).front());
  };
  const auto workspace_of = [](const Part& plan) {
    return plan.ask<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64);
  };
  const Part small = planned(12), large = planned(120);
  ASSERT_GT(workspace_of(large), workspace_of(small));
  // The small plan beside the plan for all values of the large one.
  const std::string of_small = text_of(small), of_large = text_of(large), mark = "\ngeneral ";
  const size_t begin = of_large.find(mark);
  ASSERT_NE(begin, std::string::npos);
  const Part mixed = with_text(of_small.substr(0, of_small.find(mark)) +
                               of_large.substr(begin, of_large.rfind("\n{") - begin) +
                               of_small.substr(of_small.rfind("\n{")))
                         .finalize();
  EXPECT_GE(workspace_of(mixed), workspace_of(large));
}

// A mask's number that a client sees is the one that it handed over: in masked scores, and in what is left of
// them behind their maximum.
TEST_F(GivenNumbers, AreSeenInMaskedScores) {
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  const auto square = [](int64_t uid, bool is_virtual) {
    return tensor(uid, {1, 4, 4}, {.is_virtual = is_virtual});
  };
  for (const bool is_masked_seen : {true, false}) {
    const Part scores = square(10, true), masked = square(11, !is_masked_seen),
               again = square(12, is_masked_seen), exponentials = square(13, true);
    const auto where = [&](const Part& x, int64_t number, const Part& condition, const Part& y) {
      Part op(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
      return op
          .child(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                 pointwise(CUDNN_POINTWISE_BINARY_SELECT).finalize())
          .child(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)
          .child(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, tensor(number, {1, 1, 1}, {.by_value = true}))
          .child(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, condition)
          .child(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y)
          .finalize();
    };
    auto q = numbers(16, 1), k = numbers(16, 2), v = numbers(16, 3), seen = poison(16), y = poison(16);
    std::vector<float> kept(16, 1), kept_again = kept;
    kept[5] = kept_again[10] = 0;
    float lowest = kLowest, other = kLowest;
    run({matmul(square(1, false), square(2, false), scores), where(scores, 20, square(4, false), masked),
         where(masked, 21, square(5, false), again), unary(CUDNN_POINTWISE_EXP, again, exponentials),
         matmul(exponentials, square(3, false), square(14, false))},
        {{1, q.data()},
         {2, k.data()},
         {3, v.data()},
         {4, kept.data()},
         {5, kept_again.data()},
         {is_masked_seen ? 11 : 12, seen.data()},
         {14, y.data()},
         {20, &lowest},
         {21, &other}});
    EXPECT_EQ(seen[5], kLowest) << is_masked_seen;
    EXPECT_EQ(is_masked_seen ? kLowest : seen[10], kLowest);
  }
}

// Strides that no product with a number of heads fits are refused, whatever they mean.
TEST_F(GivenNumbers, OfHeadsWithHugeStridesAreRefused) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  const auto heads = [](int64_t uid, int64_t count, bool is_virtual) {
    return tensor(uid, {1, count, 8, 8}, {.strides = {kHuge, kHuge, 8, 1}, .is_virtual = is_virtual});
  };
  const Part graph =
      operation_graph(handle, {matmul(heads(1, 8, false), heads(2, 2, false), heads(3, 8, true)),
                               unary(CUDNN_POINTWISE_EXP, heads(3, 8, true), heads(4, 8, false))});
  EXPECT_NE(cudnnBackendFinalize(graph.get()), CUDNN_STATUS_SUCCESS);
}

// The plan's text says for which value it was made.
TEST_F(GivenNumbers, MayBeOthersForAPlanOfText) {
  Tensors t({.queries = 12, .keys = 12, .type = CUDNN_DATA_FLOAT});
  const Part plan = plan_of(
      heuristics(operation_graph(handle, AttentionOps(t.c).forward()).finalize(), CUDNN_HEUR_MODE_A).front());
  const Part loaded = with_text(text_of(plan)).finalize();
  for (const float fill : {-kInfinity, 1.0F}) {
    t.fill = fill;
    t.scale = -t.scale;
    ASSERT_CUDNN(execute(handle, loaded, t.pointers()));
    t.expect(false);
    expect_near(t.o, t.o_want, "o");
  }
}

}  // namespace
}  // namespace fusor::compat_test
