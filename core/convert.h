// Owns the host's conversions between stored elements and numbers, bit for bit what the device does: round to
// nearest even; fp8, fp4 and integers saturate; NaN becomes 0 in integers and the largest number in fp4;
// bool8 and bool1 are "not zero".
#pragma once

#include <cstdint>

#include "core/data_type.h"
#include "core/tensor.h"

namespace fusor {

/// The element `index` of a packed array as a double (integers beyond 2^53 lose bits: see load_int).
double load_real(DataType type, const void* data, int64_t index);
int64_t load_int(DataType type, const void* data, int64_t index);
void store_real(DataType type, void* data, int64_t index, double value);
void store_int(DataType type, void* data, int64_t index, int64_t value);
/// `value` rounded to `type` and back.
double round_to(DataType type, double value);
int64_t round_to(DataType type, int64_t value);
/// Distance from 1 to the next number of a real type; 0 for integers.
double epsilon(DataType type);
/// The distance from `value` to the next number of the type, away from zero; below the least normal number,
/// that of subnormal ones; 1 for integers and booleans. `value` is finite.
double unit_in_last_place(DataType type, double value);
/// The largest number of a type that is not infinite.
double largest_number(DataType type);
/// Bulk conversions between packed arrays of `type` and floats, for the CPU device's inner loops.
void load_floats(DataType type, const void* data, int64_t count, float* out);
void store_floats(DataType type, void* data, int64_t count, const float* values);

}  // namespace fusor
