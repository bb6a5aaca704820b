// Owns the rules of convolutions.
#include "core/ops/convolution.h"

#include <algorithm>
#include <array>
#include <limits>

#include "core/ops/rules.h"

namespace fusor {

namespace {

void expect_conv_lists(const Call& call, const Conv& op, int spatial) {
  struct List {
    std::string_view name;
    const Dims& values;
    int64_t least;
  };
  const std::array lists{List{"pre_padding", op.pre_padding, 0}, List{"post_padding", op.post_padding, 0},
                         List{"stride", op.stride, 1}, List{"dilation", op.dilation, 1}};
  for (const List& list : lists) {
    expect_entries(call, list.name, list.values, spatial, "spatial dims");
    for (int64_t value : list.values)
      if (value < list.least || value > std::numeric_limits<int32_t>::max())
        fail("{}: {} {} has an entry outside {} to 2147483647", call.label, list.name, to_string(list.values),
             list.least);
  }
}

void expect_channels(const Call& call, const Conv& op, const NamedDims& x, const NamedDims& w) {
  const int64_t c = x.dims[1];
  const int64_t c_per_group = w.dims[1];
  if (c % c_per_group != 0)
    fail("{}: {} has C={}, {} expects C={} or a multiple of it", call.label, x.name, c, w.name, c_per_group);
  const int64_t groups = conv_groups(op, x.dims, w.dims);
  if (op.groups != 0 && op.groups != groups)
    fail("{}: groups is {}, but C={} of {} and C={} of {} make {}", call.label, op.groups, c, x.name,
         c_per_group, w.name, groups);
  if (w.dims[0] % groups != 0)
    fail("{}: K={} of {} is not divisible by the {} groups (C={} of {} / C={} of {})", call.label, w.dims[0],
         w.name, groups, c, x.name, c_per_group, w.name);
}

/// Dims of y in the forward direction, after checking all that the three passes have in common.
Dims forward_dims(const Call& call, const Conv& op, const NamedDims& x, const NamedDims& w) {
  const int rank = x.dims.rank();
  if (rank < 3 || rank > 5)
    fail("{}: {} {} has rank {}; a convolution takes N, C and 1 to 3 spatial dims", call.label, x.name,
         to_string(x.dims), rank);
  if (w.dims.rank() != rank)
    fail("{}: {} {} and {} {} have different ranks", call.label, x.name, to_string(x.dims), w.name,
         to_string(w.dims));
  expect_extents(call, x);
  expect_extents(call, w);
  expect_conv_lists(call, op, rank - 2);
  expect_channels(call, op, x, w);
  Dims y{x.dims[0], w.dims[0]};
  for (int i = 0; i < rank - 2; ++i) {
    const int64_t padded = x.dims[i + 2] + op.pre_padding[i] + op.post_padding[i];
    const int64_t window = w.dims[i + 2];
    // Divided, not multiplied: the dilated window of an untrusted file may not fit int64.
    if (window - 1 > (padded - 1) / op.dilation[i])
      fail("{}: spatial dim {}: a window of {} with dilation {} does not fit the padded extent {}",
           call.label, i, window, op.dilation[i], padded);
    y.push_back((padded - op.dilation[i] * (window - 1) - 1) / op.stride[i] + 1);
  }
  return y;
}

/// The backward passes are told their result's dims: in the forward direction these must give dy.
void expect_dy(const Call& call, const NamedDims& x, const NamedDims& w, const Dims& forward) {
  const Dims& dy = call.input(0).dims;
  if (forward != dy)
    fail("{}: {} {} and {} {} give y {} in the forward direction, dy is {}", call.label, x.name,
         to_string(x.dims), w.name, to_string(w.dims), to_string(forward), to_string(dy));
}

}  // namespace

std::string_view to_string(ConvPass pass) {
  return pass == ConvPass::fprop ? "fprop" : pass == ConvPass::dgrad ? "dgrad" : "wgrad";
}

std::string_view to_string(ConvMode mode) {
  return mode == ConvMode::convolution ? "convolution" : "cross_correlation";
}

int64_t conv_groups(const Conv& /*conv*/, const Dims& x, const Dims& w) { return x[1] / w[1]; }

std::string_view Conv::kind() const {
  return pass == ConvPass::fprop ? "conv_fprop" : pass == ConvPass::dgrad ? "conv_dgrad" : "conv_wgrad";
}

Roles Conv::roles() const {
  if (pass == ConvPass::fprop) return {{{"x"}, {"w"}}, {{"y"}}};
  if (pass == ConvPass::dgrad) return {{{"dy"}, {"w"}}, {{"dx"}}};
  return {{{"dy"}, {"x"}}, {{"dw"}}};
}

std::vector<Conv> Conv::kinds() {
  std::vector<Conv> kinds(3);
  kinds[1].pass = ConvPass::dgrad;
  kinds[2].pass = ConvPass::wgrad;
  return kinds;
}

void Conv::fill_omitted(int rank) {
  const int spatial = std::max(rank - 2, 0);
  pre_padding = or_filled(pre_padding, spatial, 0);
  post_padding = or_filled(post_padding, spatial, 0);
  stride = or_filled(stride, spatial, 1);
  dilation = or_filled(dilation, spatial, 1);
}

std::vector<Inferred> Conv::infer(const Call& call) const {
  refuse_scalars(call);
  expect_compute(call, compute);
  const Tensor& first = call.input(0);
  const Dims& second = call.input(1).dims;
  if (pass == ConvPass::fprop)
    return {in_order_of(call, forward_dims(call, *this, {"x", first.dims}, {"w", second}), compute, first)};
  const bool dgrad = pass == ConvPass::dgrad;
  const NamedDims x{dgrad ? "dx" : "x", dgrad ? call.given() : second};
  const NamedDims w{dgrad ? "w" : "dw", dgrad ? second : call.given()};
  expect_dy(call, x, w, forward_dims(call, *this, x, w));
  return {in_order_of(call, call.given(), compute, first)};
}

}  // namespace fusor
