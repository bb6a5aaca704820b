// Owns the rules and expansions of softmax and cross-entropy.
#include "core/ops/softmax.h"

#include "core/ops/expansion.h"
#include "core/ops/rules.h"

namespace fusor {

namespace {

Dims reduced(Dims dims, int64_t axis) {
  dims[static_cast<int>(axis)] = 1;
  return dims;
}

// Maximum, exponentials less it, and their sum, with the sink's share.
struct Exponentials {
  int max, shifted, exp, sum;
};

Exponentials exponentials(Expansion& e, int x, int sink, int64_t axis) {
  int max = e.reduce(ReductionMode::max, x, axis);
  if (sink >= 0) max = e.max(max, sink);
  const int shifted = e.sub(x, max);
  const int exp = e.exp(shifted);
  int sum = e.reduce(ReductionMode::add, exp, axis);
  if (sink >= 0) sum = e.add(sum, e.exp(e.sub(sink, max)));
  return {max, shifted, exp, sum};
}

// Rows of labels, and whether each element is at its row's label and each row counts.
void expect_labels(const Call& call, const CrossEntropyAttributes& op) {
  refuse_scalars(call);
  const Tensor& x = *call.operand("x");
  expect_axis(call, op.axis, x);
  expect_integers(call, "labels");
  expect_dims(call, "labels", reduced(x.dims, op.axis));
  if (!(op.label_smoothing >= 0 && op.label_smoothing <= 1))
    fail("{}: label_smoothing {} is outside 0 to 1", call.label, op.label_smoothing);
}

int is_label(Expansion& e, int x, int labels, int64_t axis) {
  return e.cmp_eq(e.index(e.dims(x), axis), labels);
}

// `value`, 0 in rows that are ignored.
int of_counted(Expansion& e, int value, int labels, int64_t ignore_index) {
  return e.binary_select(e.constant(0), value, e.cmp_eq(labels, e.integer(ignore_index)));
}

}  // namespace

// --- softmax -----------------------------------------------------------------------------------------------

Roles Softmax::roles() const {
  return {{{"x"}, {.name = "sink", .optional = true}},
          {{.name = "y", .optional = true},
           {.name = "max", .optional = true, .own_type = true},
           {.name = "sum_exp", .optional = true, .own_type = true},
           {.name = "logsumexp", .optional = true, .own_type = true}}};
}

std::vector<Inferred> Softmax::infer(const Call& call) const {
  refuse_scalars_but(call, {"sink"});
  const Tensor& x = call.input(0);
  expect_axis(call, axis, x);
  const Dims rows = reduced(x.dims, axis);
  expect_broadcast(call, "sink", rows);
  const DataType type = real_type(call);
  const Inferred statistic = in_order_of(call, rows, type, x);
  return {in_order_of(call, x.dims, type, x), statistic, statistic, statistic};
}

void Softmax::expand(Expansion& e) const {
  const auto [max, shifted, exp, sum] = exponentials(e, e.input("x"), e.input("sink"), axis);
  const bool takes_log = log || e.wants("logsumexp");
  const int log_sum = takes_log ? e.log(sum) : -1;
  e.result("y", log ? e.sub(shifted, log_sum) : e.div(exp, sum));
  e.result("max", max);
  e.result("sum_exp", sum);
  if (e.wants("logsumexp")) e.result("logsumexp", e.add(max, log_sum));
}

Roles SoftmaxBackward::roles() const {
  return {{{"dy"}, {"y"}, {.name = "sink", .optional = true}, {.name = "logsumexp", .optional = true}},
          {{.name = "dx", .optional = true}, {.name = "dsink", .optional = true, .own_type = true}}};
}

std::vector<Inferred> SoftmaxBackward::infer(const Call& call) const {
  refuse_scalars_but(call, {"sink"});
  const Tensor& y = call.input(1);
  expect_axis(call, axis, y);
  expect_dims(call, "dy", y.dims);
  const Dims rows = reduced(y.dims, axis);
  expect_broadcast(call, "sink", rows);
  expect_dims(call, "logsumexp", rows);
  if (call.has(2) != call.has(3))
    fail("{}: the gradient of the sink takes both sink and logsumexp; only {} is there", call.label,
         call.has(2) ? "sink" : "logsumexp");
  if (!call.given(1).empty() && !call.has(2))
    fail("{}: dsink is asked for, but the operands sink and logsumexp are left out", call.label);
  const DataType type = real_type(call);
  const Dims& sink = call.has(2) ? call.input(2).dims : rows;
  return {in_order_of(call, y.dims, type, y), in_row_major(call, sink, type)};
}

void SoftmaxBackward::expand(Expansion& e) const {
  const int dy = e.input("dy"), y = e.input("y");
  const int sum = e.reduce(ReductionMode::add, log ? e.real(dy) : e.mul(dy, y), axis);
  e.result("dx", log ? e.sub(dy, e.mul(e.exp(y), sum)) : e.mul(y, e.sub(dy, sum)));
  if (!e.wants("dsink")) return;
  const int sink = e.input("sink");
  const int share = e.mul(e.exp(e.sub(sink, e.input("logsumexp"))), sum);
  Dims dims = e.dims(sink);
  while (dims.rank() < e.dims(y).rank()) dims.insert(0, 1);
  e.result("dsink", e.reshape(e.neg(e.reduce_to(ReductionMode::add, share, dims)), e.dims(sink)));
}

// --- cross-entropy -----------------------------------------------------------------------------------------

Roles CrossEntropy::roles() const {
  return {{{"x"}, {"labels"}},
          {{.name = "loss", .optional = true, .own_type = true},
           {.name = "logsumexp", .optional = true, .own_type = true}}};
}

std::vector<Inferred> CrossEntropy::infer(const Call& call) const {
  expect_labels(call, *this);
  const Tensor& x = call.input(0);
  const Inferred row = in_order_of(call, reduced(x.dims, axis), real_type(call), x);
  return {row, row};
}

void CrossEntropy::expand(Expansion& e) const {
  const int x = e.input("x"), labels = e.input("labels");
  const auto [max, shifted, exp, sum] = exponentials(e, x, -1, axis);
  const int log_sum = e.log(sum);
  // Less the maximum throughout, so that large logits do not cancel; that of the label is taken off behind
  // its pass, which knows no maximum yet.
  const int at_label = e.binary_select(x, e.constant(0), is_label(e, x, labels, axis));
  int picked = e.sub(e.reduce(ReductionMode::add, e.real(at_label), axis), max);
  if (label_smoothing != 0)
    picked = e.add(e.mul(e.constant(1 - label_smoothing), picked),
                   e.mul(e.constant(label_smoothing), e.reduce(ReductionMode::avg, shifted, axis)));
  e.result("loss", of_counted(e, e.sub(log_sum, picked), labels, ignore_index));
  if (e.wants("logsumexp")) e.result("logsumexp", e.add(max, log_sum));
}

Roles CrossEntropyBackward::roles() const {
  return {{{"x"}, {"labels"}, {"dloss"}, {.name = "logsumexp", .optional = true}}, {{"dx"}}};
}

std::vector<Inferred> CrossEntropyBackward::infer(const Call& call) const {
  refuse_scalars_but(call, {"dloss"});
  const Tensor& x = *call.operand("x");
  expect_labels({call.label, call.inputs.first(2), {}, call.roles}, *this);
  expect_broadcast(call, "dloss", reduced(x.dims, axis));
  expect_dims(call, "logsumexp", reduced(x.dims, axis));
  return {in_order_of(call, x.dims, real_type(call), x)};
}

void CrossEntropyBackward::expand(Expansion& e) const {
  const int x = e.input("x"), labels = e.input("labels");
  int y = -1;
  if (e.has("logsumexp")) {
    y = e.exp(e.sub(x, e.input("logsumexp")));
  } else {
    const auto [max, shifted, exp, sum] = exponentials(e, x, -1, axis);
    y = e.div(exp, sum);
  }
  const double classes = static_cast<double>(e.dims(x)[static_cast<int>(axis)]);
  const double elsewhere = label_smoothing / classes;
  const int target = e.binary_select(e.constant(1 - label_smoothing + elsewhere), e.constant(elsewhere),
                                     is_label(e, x, labels, axis));
  // All of the product: a row that does not count may have no finite share.
  e.result("dx", of_counted(e, e.mul(e.sub(y, target), e.input("dloss")), labels, ignore_index));
}

}  // namespace fusor
