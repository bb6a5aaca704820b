// Owns the names of the element types of core/dtype.def on the device: struct Config may mention them, so
// they come before it, and depend on nothing.
#pragma once

using i8 = signed char;
using u8 = unsigned char;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};
struct f8_e4m3 {
  u8 bits;
};
struct f8_e5m2 {
  u8 bits;
};
struct f8_e8m0 {
  u8 bits;
};
struct b8 {
  u8 bits;
};
// Packed in memory, where several share a byte; here each has a byte of its own, in its lowest bits.
struct f4_e2m1 {
  u8 bits;
};
struct i4 {
  u8 bits;
};
struct b1 {
  u8 bits;
};
