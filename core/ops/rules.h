// Owns the checks that the rules of several families share.
#pragma once

#include <initializer_list>
#include <string_view>

#include "core/fail.h"
#include "core/ops/family.h"

namespace fusor {

/// Dims under the name of their role in the op: "x", "dw".
struct NamedDims {
  std::string_view name;
  const Dims& dims;
};

void refuse_scalars(const Call& call);
/// By-value scalars are taken by these roles only.
void refuse_scalars_but(const Call& call, std::initializer_list<std::string_view> roles);
/// Refuses an operand that would have to be repeated along more than axes of extent 1 to have these dims.
void expect_broadcast(const Call& call, std::string_view role, const Dims& dims);
/// An operand of exactly these dims.
void expect_dims(const Call& call, std::string_view role, const Dims& dims);
void expect_integers(const Call& call, std::string_view role);
/// fp64 where an operand is, else fp32: what composites compute in.
DataType real_type(const Call& call);
void expect_compute(const Call& call, DataType compute);
void expect_real_compute(const Call& call, DataType compute);
void expect_extents(const Call& call, const NamedDims& named);
/// A list attribute has one entry for each of `count` axes.
void expect_entries(const Call& call, std::string_view list_name, const Dims& list, int count,
                    std::string_view axes);
/// The list, or where it is empty, `count` times the value.
Dims or_filled(const Dims& list, int count, int64_t value);
void expect_axis(const Call& call, int64_t axis, const Tensor& x);
/// Refuses results whose span no pointer arithmetic could hold, whatever their type.
void expect_addressable(const Call& call, const Dims& dims);

/// The result with these dims, in the memory order of `like`, or row-major.
Inferred in_order_of(const Call& call, const Dims& dims, DataType type, const Tensor& like);
Inferred in_row_major(const Call& call, const Dims& dims, DataType type);

}  // namespace fusor
