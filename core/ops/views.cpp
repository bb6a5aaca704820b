// Owns the rules of views.
#include "core/ops/views.h"

#include <algorithm>

#include "core/dims.h"
#include "core/ops/rules.h"

namespace fusor {

void Slice::fill_omitted(int rank) {
  if (step.empty()) step = Dims::filled(rank, 1);
}

namespace {

// Whether some axis shows the same elements again: it has no place in an order.
bool repeats_elements(const Tensor& x) {
  for (int axis = 0; axis < x.dims.rank(); ++axis)
    if (x.dims[axis] != 1 && x.strides[axis] == 0) return true;
  return false;
}

}  // namespace

std::vector<Inferred> Reshape::infer(const Call& call) const {
  refuse_scalars(call);
  const Tensor& x = call.input(0);
  if (call.given().empty()) fail("{}: the dims of the result are missing", call.label);
  expect_extents(call, {"dims", call.given()});
  expect_addressable(call, call.given());
  if (element_count(call.given()) != element_count(x.dims))
    fail("{}: '{}' {} has {} elements, dims {} have {}", call.label, x.name, to_string(x.dims),
         element_count(x.dims), to_string(call.given()), element_count(call.given()));
  // Channels that lie last stay last.
  Tensor shown = x;
  shown.dims = call.given();
  if (repeats_elements(x) || !reshape_strides(x.dims, x.strides, shown.dims, shown.strides))
    return {in_row_major(call, shown.dims, x.type)};
  for (int axis = shown.dims.rank() - 1; axis >= 0; --axis)
    if (shown.dims[axis] == 1)
      shown.strides[axis] = axis + 1 < shown.dims.rank() ? shown.strides[axis + 1] * shown.dims[axis + 1] : 1;
  return {in_order_of(call, shown.dims, x.type, shown)};
}

std::vector<Inferred> Transpose::infer(const Call& call) const {
  refuse_scalars(call);
  const Tensor& x = call.input(0);
  Dims sorted = permutation;
  std::sort(sorted.begin(), sorted.end());
  bool permutes = sorted.rank() == x.dims.rank();
  for (int i = 0; i < sorted.rank(); ++i) permutes = permutes && sorted[i] == i;
  if (!permutes)
    fail("{}: {} is not a permutation of the {} axes of '{}'", call.label, to_string(permutation),
         x.dims.rank(), x.name);
  Dims dims;
  for (int64_t axis : permutation) dims.push_back(x.dims[static_cast<int>(axis)]);
  return {in_row_major(call, dims, x.type)};
}

std::vector<Inferred> Slice::infer(const Call& call) const {
  refuse_scalars(call);
  const Tensor& x = call.input(0);
  expect_entries(call, "start", start, x.dims.rank(), "axes");
  expect_entries(call, "limit", limit, x.dims.rank(), "axes");
  expect_entries(call, "step", step, x.dims.rank(), "axes");
  Dims dims;
  for (int i = 0; i < x.dims.rank(); ++i) {
    if (start[i] < 0 || start[i] >= limit[i] || limit[i] > x.dims[i])
      fail("{}: axis {}: start {} and limit {} do not keep 0 <= start < limit <= {}", call.label, i, start[i],
           limit[i], x.dims[i]);
    if (step[i] < 1) fail("{}: axis {}: step {} is less than 1", call.label, i, step[i]);
    dims.push_back((limit[i] - start[i] - 1) / step[i] + 1);
  }
  return {in_order_of(call, dims, x.type, x)};
}

}  // namespace fusor
