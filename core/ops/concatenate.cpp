// Owns the rules of the concatenation.
#include "core/ops/concatenate.h"

#include "core/ops/rules.h"

namespace fusor {

std::vector<Inferred> Concatenate::infer(const Call& call) const {
  refuse_scalars(call);
  const Tensor& first = call.input(0);
  expect_axis(call, axis, first);
  const int along = static_cast<int>(axis);
  Dims dims = first.dims;
  for (const Tensor* next : call.inputs.subspan(1)) {
    if (next->type != first.type)
      fail("{}: '{}' is {}, '{}' is {}; the types must be equal", call.label, first.name,
           to_string(first.type), next->name, to_string(next->type));
    Dims others = next->dims;
    if (others.rank() == dims.rank()) others[along] = first.dims[along];
    if (others != first.dims)
      fail("{}: '{}' {} and '{}' {} may differ in axis {} alone", call.label, first.name,
           to_string(first.dims), next->name, to_string(next->dims), axis);
    dims[along] += next->dims[along];
    expect_addressable(call, dims);
  }
  return {in_order_of(call, dims, first.type, first)};
}

}  // namespace fusor
