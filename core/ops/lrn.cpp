// Owns the rules and expansions of the local response normalization.
#include "core/ops/lrn.h"

#include <cmath>

#include "core/ops/expansion.h"
#include "core/ops/rules.h"

namespace fusor {

namespace {

void expect_lrn(const Call& call, const LrnAttributes& op) {
  refuse_scalars(call);
  const Tensor& x = *call.operand("x");
  if (x.dims.rank() < 2)
    fail("{}: x {} has rank {}; it takes N, C and any spatial dims", call.label, to_string(x.dims),
         x.dims.rank());
  if (op.window < 1 || op.window > (1 << 20))
    fail("{}: window {} is outside 1 to 1048576", call.label, op.window);
  for (const double value : {op.alpha, op.beta, op.k})
    if (!std::isfinite(value))
      fail("{}: alpha {}, beta {} and k {} must be finite", call.label, op.alpha, op.beta, op.k);
}

// [N, C, 1, positions].
int planes(Expansion& e, int x) {
  const Dims dims = e.dims(x);
  return e.reshape(x, {dims[0], dims[1], 1, element_count(dims) / dims[0] / dims[1]});
}

// The total of `planes` over the channels from `before` before each on: [N, C, 1, positions].
int over_channels(Expansion& e, int planes, int64_t before, int64_t window, bool squares) {
  const int64_t channels = e.dims(planes)[1];
  const int first = e.sub(e.index({1, channels, 1, 1}, 1), e.integer(before));
  const int taken = e.real(e.gather(planes, e.add(first, e.index({1, 1, window, 1}, 2)), 1));
  return e.reduce(ReductionMode::add, squares ? e.mul(taken, taken) : taken, 2);
}

int base(Expansion& e, const LrnAttributes& op, int planes) {
  const int total = over_channels(e, planes, op.window / 2, op.window, true);
  return e.add(e.mul(total, e.constant(op.alpha / static_cast<double>(op.window))), e.constant(op.k));
}

}  // namespace

std::vector<Inferred> LrnForward::infer(const Call& call) const {
  expect_lrn(call, *this);
  return {in_order_of(call, call.input(0).dims, real_type(call), call.input(0))};
}

void LrnForward::expand(Expansion& e) const {
  const int x = planes(e, e.input("x"));
  const int y = e.mul(x, e.pow(base(e, *this, x), e.constant(-beta)));
  e.reshaped_result("y", y);
}

std::vector<Inferred> LrnBackward::infer(const Call& call) const {
  expect_lrn(call, *this);
  expect_dims(call, "dy", call.input(1).dims);
  return {in_order_of(call, call.input(1).dims, real_type(call), call.input(1))};
}

void LrnBackward::expand(Expansion& e) const {
  const int x = planes(e, e.input("x")), dy = e.real(planes(e, e.input("dy")));
  const int under = base(e, *this, x);
  const int factor = e.pow(under, e.constant(-beta));
  // An element counts in the windows of the channels around it, the mirrored window.
  const int shares = e.div(e.mul(e.mul(dy, x), factor), under);
  const int total = over_channels(e, shares, (window - 1) / 2, window, false);
  const int slope = e.mul(e.mul(x, total), e.constant(2 * alpha * beta / static_cast<double>(window)));
  e.reshaped_result("dx", e.sub(e.mul(dy, factor), slope));
}

}  // namespace fusor
