// Owns blocks of values between steps: the type in which each reading holds them, and their ways in and out
// of memory.
#pragma once

#include <cstdint>
#include <span>

#include "backend/reference/reference.h"
#include "core/data_type.h"
#include "core/fail.h"

namespace fusor::reference {

/// Elements of one block: what a node computes at once.
inline constexpr int64_t kBlock = 512;

/// How a reading holds values of `type`: fp64, fp32, int64 or int32.
inline DataType held_type(DataType type, Reading reading) {
  if (reading == Reading::device) return carrier(type);
  return is_real(type) ? DataType::f64 : DataType::i64;
}

/// Calls visit(T{}) with the C++ type of a held type.
template <class Visit>
decltype(auto) with_held(DataType held, Visit&& visit) {
  switch (held) {
    case DataType::f64:
      return visit(double{});
    case DataType::f32:
      return visit(float{});
    case DataType::i64:
      return visit(int64_t{});
    case DataType::i32:
      return visit(int32_t{});
    default:
      fail(ErrorKind::internal, "{} holds no values between steps", to_string(held));
  }
}

/// Values of held type `from` as held type `to`; blocks of any length, not overlapping unless equal types.
void convert_block(DataType from, const void* values, DataType to, int64_t count, void* out);
/// Values of held type `from` rounded to `type` in one step and held as `held`. By way of `held` a bool8
/// would see 0.3 as 0, and an fp16 would be rounded twice. Not overlapping unless in place with equal types.
void convert_rounded(DataType from, const void* values, DataType type, DataType held, int64_t count,
                     void* out);
/// Rounds values of held type `held` to `type`, in place.
void round_block(DataType type, DataType held, int64_t count, void* values);
/// Up to kBlock elements data[first + i * stride] of `type`, as `held`, which can hold them exactly.
void load_block(DataType type, const void* data, int64_t first, int64_t stride, int64_t count, DataType held,
                void* out);
/// Elements data[elements[i]] of `type` for those that are `inside`, zeros for the others.
void load_scattered(DataType type, const void* data, std::span<const int64_t> elements,
                    std::span<const bool> inside, DataType held, void* out);
/// The way back: values of any held type, converted to `type`.
void store_block(DataType held, const void* values, int64_t count, DataType type, void* data, int64_t first,
                 int64_t stride);
/// The same to data[elements[i]], for those that are `inside`.
void store_scattered(DataType held, const void* values, DataType type, void* data,
                     std::span<const int64_t> elements, std::span<const bool> inside);

}  // namespace fusor::reference
