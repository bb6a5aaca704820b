// Owns the rules and the expansion of ctc_loss: the forward and backward sums over time.
#include "core/ops/ctc_loss.h"

#include <limits>

#include "core/ops/expansion.h"
#include "core/ops/rules.h"

namespace fusor {

namespace {

constexpr int64_t kMostCtcSteps = 1 << 16;

// Paths go through states: a blank, the first label, a blank, ..., the last label, a blank. Numbers of a time
// step are logarithms, [batch, states].
class Paths {
 public:
  Paths(Expansion& e, int64_t blank) : e_(e), blank_(blank) {
    const Dims x = e.dims(e.input("x")), labels = e.dims(e.input("labels"));
    time_ = x[0];
    batch_ = x[1];
    classes_ = x[2];
    states_ = 2 * labels[1] + 1;
    name_states(labels[1]);
    const int all = e.real(e.gather(e.input("x"), e.reshape(label_, {1, batch_, states_}), 2));
    for (int64_t t = 0; t < time_; ++t)
      scores_.push_back(e.reshape(e.slice(all, 0, t, t + 1), {batch_, states_}));
    if (e.has("input_lengths")) input_lengths_ = e.reshape(e.input("input_lengths"), {batch_, 1});
    const int count =
        e.has("label_lengths") ? e.reshape(e.input("label_lengths"), {batch_, 1}) : e.integer(labels[1]);
    const int last = e.mul(count, e.integer(2)), state = e.index({1, states_}, 1);
    is_last_ = e.logical_or(e.cmp_eq(state, last), e.cmp_eq(state, e.sub(last, e.integer(1))));
  }

  // Sums over all beginnings of paths that are in a state at each time, that time's score included.
  void forward() {
    const int state = e_.index({1, states_}, 1);
    int now = e_.binary_select(scores_[0], none(), e_.cmp_lt(state, e_.integer(2)));
    // Where there is no time, paths stay in front of the first label.
    if (in_time(0) >= 0) {
      const int nowhere = e_.binary_select(e_.constant(0), none(), e_.cmp_eq(state, e_.integer(0)));
      now = e_.binary_select(now, nowhere, in_time(0));
    }
    ends_.push_back(now);
    for (int64_t t = 1; t < time_; ++t) {
      const int skipped = e_.binary_select(shifted(now, 2), none(), may_skip_);
      const int next = e_.add(sum(now, shifted(now, 1), skipped), scores_[static_cast<size_t>(t)]);
      now = in_time(t) < 0 ? next : e_.binary_select(next, now, in_time(t));
      ends_.push_back(now);
    }
    const int final = e_.binary_select(now, none(), is_last_);
    const int largest = finite(e_.reduce(ReductionMode::max, final, 1));
    total_ = e_.add(largest, e_.log(e_.reduce(ReductionMode::add, e_.exp(e_.sub(final, largest)), 1)));
  }

  int total() const { return total_; }

  // The share of each state in all paths at each time: [batch, time, states].
  int shares() {
    const int begin = e_.binary_select(e_.constant(0), none(), is_last_);
    // Beyond the last state there are no paths, whatever stands there.
    const int may_be_skipped_to =
        e_.concatenate({e_.slice(may_skip_, 1, 2, states_), e_.slice(may_skip_, 1, 0, 2)}, 1);
    std::vector<int> all(static_cast<size_t>(time_));
    int rest = begin;  // sums over all ends of paths behind that time
    for (int64_t t = time_; t-- > 0;) {
      const auto at = static_cast<size_t>(t);
      if (t + 1 < time_) {
        const int scored = e_.add(rest, scores_[at + 1]);
        const int skipped = e_.binary_select(shifted_back(scored, 2), none(), may_be_skipped_to);
        const int before = sum(scored, shifted_back(scored, 1), skipped);
        rest = in_time(t + 1) < 0 ? before : e_.binary_select(before, begin, in_time(t + 1));
      }
      int share = e_.exp(e_.sub(e_.add(ends_[at], rest), total_));
      int counts = e_.cmp_gt(total_, none());
      if (in_time(t) >= 0) counts = e_.logical_and(counts, in_time(t));
      all[at] = e_.reshape(e_.binary_select(share, e_.constant(0), counts), {batch_, 1, states_});
    }
    return e_.concatenate(all, 1);
  }

  // Whether a state reads a class: 1 or 0, [batch, states, classes].
  int classes() {
    const int is_class = e_.cmp_eq(e_.reshape(label_, {batch_, states_, 1}), e_.index({1, 1, classes_}, 2));
    return e_.binary_select(e_.constant(1), e_.constant(0), is_class);
  }

 private:
  int none() { return e_.constant(-std::numeric_limits<double>::infinity()); }
  int filled(int scalar, int64_t columns) { return e_.op(Pointwise{}, {scalar}, {batch_, columns}); }

  void name_states(int64_t most) {
    int labels = e_.input("labels");
    if (e_.type(labels) != DataType::i32) labels = e_.cast(labels, DataType::i32);
    const int is_label = e_.cmp_eq(e_.index({1, 1, 2}, 2), e_.integer(0));
    const int pairs = e_.binary_select(e_.reshape(labels, {batch_, most, 1}), e_.integer(blank_), is_label);
    label_ = e_.concatenate({filled(e_.integer(blank_), 1), e_.reshape(pairs, {batch_, 2 * most})}, 1);
    // A label follows the one before without a blank, unless they are equal.
    const int two_before =
        e_.concatenate({filled(e_.integer(blank_), 2), e_.slice(label_, 1, 0, states_ - 2)}, 1);
    may_skip_ = e_.logical_and(e_.cmp_neq(label_, e_.integer(blank_)), e_.cmp_neq(label_, two_before));
  }

  int in_time(int64_t t) { return input_lengths_ < 0 ? -1 : e_.cmp_gt(input_lengths_, e_.integer(t)); }

  // Each state's predecessors, and successors.
  int shifted(int values, int64_t by) {
    return e_.concatenate({filled(none(), by), e_.slice(values, 1, 0, states_ - by)}, 1);
  }
  int shifted_back(int values, int64_t by) {
    return e_.concatenate({e_.slice(values, 1, by, states_), filled(none(), by)}, 1);
  }

  // Minus infinity, of which no number can be taken, replaced by 0.
  int finite(int value) { return e_.binary_select(value, e_.constant(0), e_.cmp_gt(value, none())); }

  // Logarithm of the sum of three exponentials.
  int sum(int a, int b, int c) {
    const int largest = finite(e_.max(e_.max(a, b), c));
    const auto part = [&](int x) { return e_.exp(e_.sub(x, largest)); };
    return e_.add(largest, e_.log(e_.add(e_.add(part(a), part(b)), part(c))));
  }

  Expansion& e_;
  int64_t blank_, time_ = 0, batch_ = 0, classes_ = 0, states_ = 0;
  int label_ = -1, may_skip_ = -1, is_last_ = -1, input_lengths_ = -1, total_ = -1;
  std::vector<int> scores_, ends_;
};

}  // namespace

std::vector<Inferred> CtcLoss::infer(const Call& call) const {
  refuse_scalars(call);
  const Tensor &x = call.input(0), &labels = call.input(1);
  if (x.dims.rank() != 3)
    fail("{}: x {} has rank {}; it takes time, batch and classes", call.label, to_string(x.dims),
         x.dims.rank());
  if (labels.dims.rank() != 2 || labels.dims[0] != x.dims[1])
    fail("{}: labels {} are not [{}, most labels]", call.label, to_string(labels.dims), x.dims[1]);
  if (x.dims[0] > kMostCtcSteps)
    fail("{}: {} time steps; at most {} are supported", call.label, x.dims[0], kMostCtcSteps);
  if (blank < 0 || blank >= x.dims[2])
    fail("{}: blank {} is none of the {} classes", call.label, blank, x.dims[2]);
  for (const std::string_view role : {"input_lengths", "label_lengths"}) {
    expect_dims(call, role, {x.dims[1]});
    expect_integers(call, role);
  }
  expect_integers(call, "labels");
  const DataType type = real_type(call);
  return {in_row_major(call, {x.dims[1]}, type), in_order_of(call, x.dims, type, x)};
}

void CtcLoss::expand(Expansion& e) const {
  Paths paths(e, blank);
  paths.forward();
  int loss = e.neg(paths.total());
  if (zero_infinity) {
    const int is_possible = e.cmp_lt(loss, e.constant(std::numeric_limits<double>::infinity()));
    loss = e.binary_select(loss, e.constant(0), is_possible);
  }
  if (e.wants("loss")) e.result("loss", e.reshape(loss, e.result_dims("loss")));
  if (!e.wants("dx")) return;
  const int shares = e.matmul(paths.shares(), paths.classes());  // [batch, time, classes]
  e.result("dx", e.neg(e.transpose(shares, {1, 0, 2})));
}

}  // namespace fusor
