// Owns the rules and expansions of the causal convolution.
#include "core/ops/causal_conv1d.h"

#include "core/ops/convolution.h"
#include "core/ops/expansion.h"
#include "core/ops/rules.h"

namespace fusor {

namespace {

void expect_causal(const Call& call) {
  refuse_scalars(call);
  const Tensor &x = *call.operand("x"), &w = *call.operand("weight");
  if (x.dims.rank() != 3)
    fail("{}: x {} has rank {}; it takes N, C and time", call.label, to_string(x.dims), x.dims.rank());
  if (w.dims.rank() != 2 || w.dims[0] != x.dims[1])
    fail("{}: weight {} is not C={} of x by the width", call.label, to_string(w.dims), x.dims[1]);
  expect_dims(call, "bias", {x.dims[1]});
  if (call.operand("initial_states") == nullptr) return;
  if (w.dims[1] == 1) fail("{}: a width of 1 has no initial_states", call.label);
  if (call.operand("initial_states")->type != x.type)
    fail("{}: initial_states is {}, x is {}; the types must be equal", call.label,
         to_string(call.operand("initial_states")->type), to_string(x.type));
  expect_dims(call, "initial_states", {x.dims[0], x.dims[1], w.dims[1] - 1});
}

// The convolution whose first result has seen what was before and the first element of x.
struct CausalConv {
  Conv conv;
  int x, w;  // with what was before in front, or padded; [C, 1, width]
  int64_t width;
};

CausalConv causal_conv_of(Expansion& e) {
  const int weight = e.input("weight");
  const Dims w = e.dims(weight);
  const bool has_states = e.has("initial_states");
  Conv conv{.pre_padding = {has_states ? 0 : w[1] - 1}, .post_padding = {0}, .stride = {1}, .dilation = {1}};
  const int x = has_states ? e.concatenate({e.input("initial_states"), e.input("x")}, 2) : e.input("x");
  return {conv, x, e.reshape(weight, {w[0], 1, w[1]}), w[1]};
}

int before_activation(Expansion& e, const CausalConv& causal) {
  const int sum = e.op(causal.conv, {causal.x, causal.w});
  return e.has("bias") ? e.add(sum, e.reshape(e.input("bias"), {e.dims(sum)[1], 1})) : sum;
}

}  // namespace

std::string_view to_string(CausalActivation activation) {
  return activation == CausalActivation::silu ? "silu" : "none";
}

Roles CausalConv1d::roles() const {
  return {
      {{"x"}, {"weight"}, {.name = "bias", .optional = true}, {.name = "initial_states", .optional = true}},
      {{.name = "y", .optional = true}, {.name = "final_states", .optional = true}}};
}

std::vector<Inferred> CausalConv1d::infer(const Call& call) const {
  expect_causal(call);
  const Tensor& x = call.input(0);
  const int64_t width = call.input(1).dims[1];
  if (!call.given(1).empty() && width == 1) fail("{}: a width of 1 has no final_states", call.label);
  const DataType type = real_type(call);
  const Dims states{x.dims[0], x.dims[1], width > 1 ? width - 1 : 1};
  return {in_order_of(call, x.dims, type, x), in_order_of(call, states, type, x)};
}

void CausalConv1d::expand(Expansion& e) const {
  const CausalConv causal = causal_conv_of(e);
  const int sum = before_activation(e, causal);
  e.result("y", activation == CausalActivation::silu ? e.swish(sum) : sum);
  if (!e.wants("final_states")) return;
  const int x = e.input("x");
  const int64_t states = causal.width - 1, time = e.dims(x)[2];
  if (time >= states) {
    e.result("final_states", e.slice(x, 2, time - states, time));
    return;
  }
  Dims zeros = e.dims(x);
  zeros[2] = states - time;
  const int in_front = e.has("initial_states") ? e.slice(e.input("initial_states"), 2, time, states)
                                               : e.cast(e.op(Pointwise{}, {e.constant(0)}, zeros), e.type(x));
  e.result("final_states", e.concatenate({in_front, x}, 2));
}

Roles CausalConv1dBackward::roles() const {
  return {{{"dy"},
           {"x"},
           {"weight"},
           {.name = "bias", .optional = true},
           {.name = "initial_states", .optional = true}},
          {{.name = "dx", .optional = true},
           {.name = "dweight", .optional = true, .own_type = true},
           {.name = "dbias", .optional = true, .own_type = true},
           {.name = "dinitial_states", .optional = true}}};
}

std::vector<Inferred> CausalConv1dBackward::infer(const Call& call) const {
  expect_causal(call);
  const Tensor &x = *call.operand("x"), &w = *call.operand("weight");
  expect_dims(call, "dy", x.dims);
  const Tensor* states = call.operand("initial_states");
  if (!call.given(3).empty() && states == nullptr)
    fail("{}: dinitial_states is asked for, but the operand initial_states is left out", call.label);
  const DataType type = real_type(call);
  return {in_order_of(call, x.dims, type, x), in_row_major(call, w.dims, type),
          in_row_major(call, {x.dims[1]}, type),
          in_order_of(call, states != nullptr ? states->dims : x.dims, type, x)};
}

void CausalConv1dBackward::expand(Expansion& e) const {
  const CausalConv causal = causal_conv_of(e);
  int dsum = e.input("dy");
  if (activation == CausalActivation::silu) dsum = e.swish_bwd(dsum, before_activation(e, causal));
  Conv dgrad = causal.conv, wgrad = causal.conv;
  dgrad.pass = ConvPass::dgrad;
  wgrad.pass = ConvPass::wgrad;
  const int dall = e.op(dgrad, {dsum, causal.w}, e.dims(causal.x));
  const bool has_states = e.has("initial_states");
  const int64_t before = has_states ? causal.width - 1 : 0;
  e.result("dx", has_states ? e.slice(dall, 2, before, e.dims(dall)[2]) : dall);
  if (e.wants("dinitial_states")) e.result("dinitial_states", e.slice(dall, 2, 0, before));
  const Dims w = e.dims(causal.w);
  if (e.wants("dweight")) e.result("dweight", e.reshape(e.op(wgrad, {dsum, causal.x}, w), {w[0], w[2]}));
  if (e.wants("dbias"))
    e.result("dbias", e.reshape(e.reduce_to(ReductionMode::add, e.real(dsum), {1, w[0], 1}), {w[0]}));
}

}  // namespace fusor
