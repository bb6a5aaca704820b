// Owns the warpgroup matrix instructions of sm_90a: descriptors of operands in shared memory, sums in
// registers with names, and wgmma of every element type in every width that is a multiple of 16 (PTX ISA,
// "Asynchronous warpgroup level matrix instructions").
#pragma once

// Starting address, and the two strides between groups of 8 rows of 128 bytes, all in units of 16 bytes;
// 128-byte swizzle.
FUSOR_DEVICE u64 wgmma_descriptor(u32 shared, u32 leading_bytes, u32 stride_bytes) {
  return static_cast<u64>((shared & 0x3ffff) >> 4) | static_cast<u64>(leading_bytes >> 4) << 16 |
         static_cast<u64>(stride_bytes >> 4) << 32 | 1ull << 62;
}

// The same for lines of 32, 64 or 128 bytes, in groups of 8: a swizzle over the length of a line.
template <int kBytes>
FUSOR_DEVICE u64 line_descriptor(u32 shared) {
  static_assert(kBytes == 32 || kBytes == 64 || kBytes == 128, "TMA swizzles such lines");
  constexpr u64 kSwizzle = kBytes == 128 ? 1 : kBytes == 64 ? 2 : 3;
  return static_cast<u64>((shared & 0x3ffff) >> 4) | 1ull << 16 | static_cast<u64>(8 * kBytes >> 4) << 32 |
         kSwizzle << 62;
}

// The same without a swizzle: core matrices of 8 lines of 16 bytes, 128 bytes in a row. Those that follow
// each other along k, or across it where lines lie across, are `leading` and `stride` bytes apart as the
// instruction wants them. They may overlap: neighbouring windows of a row do.
FUSOR_DEVICE u64 plain_descriptor(u32 shared, u32 leading_bytes, u32 stride_bytes) {
  return static_cast<u64>((shared & 0x3ffff) >> 4) | static_cast<u64>(leading_bytes >> 4) << 16 |
         static_cast<u64>(stride_bytes >> 4) << 32;
}

FUSOR_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
FUSOR_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most kPending groups are in flight.
template <int kPending>
FUSOR_DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// ---- Elements ----
// The sums of an operand's elements. kShort: the tensor cores sum products of fp8 with 13 bits behind the
// point.

template <class Element>
struct WgmmaElement {
  using Sum = float;
  enum : bool { kShort = sizeof(Element) == 1 };
};
template <>
struct WgmmaElement<i8> {
  using Sum = i32;
  enum : bool { kShort = false };
};
template <>
struct WgmmaElement<u8> : WgmmaElement<i8> {};

template <class T>
constexpr bool kIsReal = T(0.5) != T(0);

// ---- Sums ----
// They stay in registers that PTX knows by name, sum<part>_<i>, for as many parts of 64 rows as a kernel
// declares. As operands of each statement, 128 and more values would cost a seventh of compile time. Parts
// are files of their own: each may be as wide as its wgmma.

// Once in a kernel, before all else. Beside the sums: a piece of them.
template <int kParts>
FUSOR_DEVICE void declare_sums() {
  asm volatile(".reg .b32 sum%0_<128>;" ::"n"(kParts - 1));
  if constexpr (kParts > 1)
    declare_sums<kParts - 1>();
  else
    asm volatile(".reg .b32 piece_<32>;");
}

#define FUSOR_EACH_EIGHT(EIGHT)                 \
  EIGHT(0, 1, 2, 3, 4, 5, 6, 7)                 \
  EIGHT(8, 9, 10, 11, 12, 13, 14, 15)           \
  EIGHT(16, 17, 18, 19, 20, 21, 22, 23)         \
  EIGHT(24, 25, 26, 27, 28, 29, 30, 31)         \
  EIGHT(32, 33, 34, 35, 36, 37, 38, 39)         \
  EIGHT(40, 41, 42, 43, 44, 45, 46, 47)         \
  EIGHT(48, 49, 50, 51, 52, 53, 54, 55)         \
  EIGHT(56, 57, 58, 59, 60, 61, 62, 63)         \
  EIGHT(64, 65, 66, 67, 68, 69, 70, 71)         \
  EIGHT(72, 73, 74, 75, 76, 77, 78, 79)         \
  EIGHT(80, 81, 82, 83, 84, 85, 86, 87)         \
  EIGHT(88, 89, 90, 91, 92, 93, 94, 95)         \
  EIGHT(96, 97, 98, 99, 100, 101, 102, 103)     \
  EIGHT(104, 105, 106, 107, 108, 109, 110, 111) \
  EIGHT(112, 113, 114, 115, 116, 117, 118, 119) \
  EIGHT(120, 121, 122, 123, 124, 125, 126, 127)

// The sums of kN columns, float or i32; no wgmma may be under way. sums[4 j + 2 h + c] of thread t is
//   row 16 (t / 32) + t % 32 / 4 + 8 h,   column 8 j + 2 (t % 4) + c
template <int kPart, int kN, class Sum>
FUSOR_DEVICE void read_sums(Sum (&sums)[kN / 2]) {
#define FUSOR_READ_AS(constraint, a, b, c, d, e, f, g, h)                                            \
  asm volatile("mov.b32 %0, sum%8_" #a ";\nmov.b32 %1, sum%8_" #b ";\nmov.b32 %2, sum%8_" #c         \
               ";\nmov.b32 %3, sum%8_" #d ";\nmov.b32 %4, sum%8_" #e ";\nmov.b32 %5, sum%8_" #f      \
               ";\nmov.b32 %6, sum%8_" #g ";\nmov.b32 %7, sum%8_" #h ";"                             \
               : constraint(sums[a]), constraint(sums[b]), constraint(sums[c]), constraint(sums[d]), \
                 constraint(sums[e]), constraint(sums[f]), constraint(sums[g]), constraint(sums[h])  \
               : "n"(kPart));
#define FUSOR_READ(a, b, c, d, e, f, g, h)      \
  if constexpr (a < kN / 2 && kIsReal<Sum>)     \
    FUSOR_READ_AS("=f", a, b, c, d, e, f, g, h) \
  else if constexpr (a < kN / 2)                \
  FUSOR_READ_AS("=r", a, b, c, d, e, f, g, h)
  FUSOR_EACH_EIGHT(FUSOR_READ)
#undef FUSOR_READ
#undef FUSOR_READ_AS
}

// move_sums copies kCount sums of a part, from kFirst on, to the piece's registers, from kTo on; read_piece
// reads kCount of the piece's registers, from kFrom on.
template <int kPart, int kFirst, int kTo, int kCount>
FUSOR_DEVICE void move_sums() {
  asm volatile(
      "mov.b32 piece_%9, sum%0_%1;\nmov.b32 piece_%10, sum%0_%2;\nmov.b32 piece_%11, sum%0_%3;\n"
      "mov.b32 piece_%12, sum%0_%4;\nmov.b32 piece_%13, sum%0_%5;\nmov.b32 piece_%14, sum%0_%6;\n"
      "mov.b32 piece_%15, sum%0_%7;\nmov.b32 piece_%16, sum%0_%8;" ::"n"(kPart),
      "n"(kFirst), "n"(kFirst + 1), "n"(kFirst + 2), "n"(kFirst + 3), "n"(kFirst + 4), "n"(kFirst + 5),
      "n"(kFirst + 6), "n"(kFirst + 7), "n"(kTo), "n"(kTo + 1), "n"(kTo + 2), "n"(kTo + 3), "n"(kTo + 4),
      "n"(kTo + 5), "n"(kTo + 6), "n"(kTo + 7));
  if constexpr (kCount > 8) move_sums<kPart, kFirst + 8, kTo + 8, kCount - 8>();
}
template <int kFrom, int kCount, class Sum>
FUSOR_DEVICE void read_piece(Sum* sums) {
#define FUSOR_READ_AS(constraint)                                                                      \
  asm volatile(                                                                                        \
      "mov.b32 %0, piece_%8;\nmov.b32 %1, piece_%9;\nmov.b32 %2, piece_%10;\nmov.b32 %3, piece_%11;\n" \
      "mov.b32 %4, piece_%12;\nmov.b32 %5, piece_%13;\nmov.b32 %6, piece_%14;\nmov.b32 %7, piece_%15;" \
      : constraint(sums[0]), constraint(sums[1]), constraint(sums[2]), constraint(sums[3]),            \
        constraint(sums[4]), constraint(sums[5]), constraint(sums[6]), constraint(sums[7])             \
      : "n"(kFrom), "n"(kFrom + 1), "n"(kFrom + 2), "n"(kFrom + 3), "n"(kFrom + 4), "n"(kFrom + 5),    \
        "n"(kFrom + 6), "n"(kFrom + 7))
  if constexpr (kIsReal<Sum>)
    FUSOR_READ_AS("=f");
  else
    FUSOR_READ_AS("=r");
#undef FUSOR_READ_AS
  if constexpr (kCount > 8) read_piece<kFrom + 8, kCount - 8>(sums + 8);
}

template <int kPart, int kN>
FUSOR_DEVICE void clear_sums() {
#define FUSOR_CLEAR(a, b, c, d, e, f, g, h)                                                    \
  if constexpr (a < kN / 2)                                                                    \
    asm volatile("mov.b32 sum%0_" #a ", 0;\nmov.b32 sum%0_" #b ", 0;\nmov.b32 sum%0_" #c       \
                 ", 0;\nmov.b32 sum%0_" #d ", 0;\nmov.b32 sum%0_" #e ", 0;\nmov.b32 sum%0_" #f \
                 ", 0;\nmov.b32 sum%0_" #g ", 0;\nmov.b32 sum%0_" #h ", 0;" ::"n"(kPart));
  FUSOR_EACH_EIGHT(FUSOR_CLEAR)
#undef FUSOR_CLEAR
}
#undef FUSOR_EACH_EIGHT

// ---- The instruction ----
// The names of the sums of part %0, for each width.
#define FUSOR_SUMS_16 "sum%0_0, sum%0_1, sum%0_2, sum%0_3, sum%0_4, sum%0_5, sum%0_6, sum%0_7"
#define FUSOR_SUMS_32 \
  FUSOR_SUMS_16 ", sum%0_8, sum%0_9, sum%0_10, sum%0_11, sum%0_12, sum%0_13, sum%0_14, sum%0_15"
#define FUSOR_SUMS_48 \
  FUSOR_SUMS_32 ", sum%0_16, sum%0_17, sum%0_18, sum%0_19, sum%0_20, sum%0_21, sum%0_22, sum%0_23"
#define FUSOR_SUMS_64 \
  FUSOR_SUMS_48 ", sum%0_24, sum%0_25, sum%0_26, sum%0_27, sum%0_28, sum%0_29, sum%0_30, sum%0_31"
#define FUSOR_SUMS_80 \
  FUSOR_SUMS_64 ", sum%0_32, sum%0_33, sum%0_34, sum%0_35, sum%0_36, sum%0_37, sum%0_38, sum%0_39"
#define FUSOR_SUMS_96 \
  FUSOR_SUMS_80 ", sum%0_40, sum%0_41, sum%0_42, sum%0_43, sum%0_44, sum%0_45, sum%0_46, sum%0_47"
#define FUSOR_SUMS_112 \
  FUSOR_SUMS_96 ", sum%0_48, sum%0_49, sum%0_50, sum%0_51, sum%0_52, sum%0_53, sum%0_54, sum%0_55"
#define FUSOR_SUMS_128 \
  FUSOR_SUMS_112 ", sum%0_56, sum%0_57, sum%0_58, sum%0_59, sum%0_60, sum%0_61, sum%0_62, sum%0_63"
#define FUSOR_SUMS_144 \
  FUSOR_SUMS_128 ", sum%0_64, sum%0_65, sum%0_66, sum%0_67, sum%0_68, sum%0_69, sum%0_70, sum%0_71"
#define FUSOR_SUMS_160 \
  FUSOR_SUMS_144 ", sum%0_72, sum%0_73, sum%0_74, sum%0_75, sum%0_76, sum%0_77, sum%0_78, sum%0_79"
#define FUSOR_SUMS_176 \
  FUSOR_SUMS_160 ", sum%0_80, sum%0_81, sum%0_82, sum%0_83, sum%0_84, sum%0_85, sum%0_86, sum%0_87"
#define FUSOR_SUMS_192 \
  FUSOR_SUMS_176 ", sum%0_88, sum%0_89, sum%0_90, sum%0_91, sum%0_92, sum%0_93, sum%0_94, sum%0_95"
#define FUSOR_SUMS_208 \
  FUSOR_SUMS_192 ", sum%0_96, sum%0_97, sum%0_98, sum%0_99, sum%0_100, sum%0_101, sum%0_102, sum%0_103"
#define FUSOR_SUMS_224 \
  FUSOR_SUMS_208 ", sum%0_104, sum%0_105, sum%0_106, sum%0_107, sum%0_108, sum%0_109, sum%0_110, sum%0_111"
#define FUSOR_SUMS_240 \
  FUSOR_SUMS_224 ", sum%0_112, sum%0_113, sum%0_114, sum%0_115, sum%0_116, sum%0_117, sum%0_118, sum%0_119"
#define FUSOR_SUMS_256 \
  FUSOR_SUMS_240 ", sum%0_120, sum%0_121, sum%0_122, sum%0_123, sum%0_124, sum%0_125, sum%0_126, sum%0_127"

// One instruction: a is a descriptor, or registers in braces.
#define FUSOR_WGMMA_ONE(kN, shape, a, b, end) \
  "wgmma.mma_async.sync.aligned.m64n" #kN shape " {" FUSOR_SUMS_##kN "}, " a ", " b end ";\n"
#define FUSOR_WGMMA_BEGIN "{\n.reg .pred p;\nsetp.ne.b32 p, %3, 0;\n"
#define FUSOR_WGMMA_NEXT(kN, shape, end) \
  "add.s64 a, a, %6;\nadd.s64 b, b, %7;\n" FUSOR_WGMMA_ONE(kN, shape, "a", "b", end)

// The sums of a part (64 x kN) = a (64 rows) * b (kN columns), plus what they were where `accumulate`.
// Operands of 16 bits may be transposed: their rows (a) or columns (b) are adjacent in shared memory instead
// of k.
template <int kN, class A, class B, int kTransposeA, int kTransposeB>
struct Wgmma;

// A kernel's generated header declares what it uses (codegen/text/wgmma_instruction): the width, the
// elements, how PTX names steps, sums and elements, and what follows the operands - whether sums are added
// to, the signs of real operands, and of 16 bits which are transposed - where a has a descriptor, and where
// it is in registers.
//   issue           32 bytes of k
//   issue_line      128 bytes, four instructions between which the descriptors advance by kStepA and kStepB
//   a from registers, 32 bytes of k, or 64: for TF32, thread t holds in a[4 i + 2 u + h] row 16 (t / 32) + t
//   % 32 / 4 + 8 h, element 8 i + 4 u + t % 4 of k; of 16 bits, the pair of elements 16 i + 8 u + 2 (t % 4).
//   Nothing may change there before wgmma_wait.
#define FUSOR_WGMMA(kN, A, B, shape, end, end_of_registers)                                                    \
  template <int kTransposeA, int kTransposeB>                                                                  \
  struct Wgmma<kN, A, B, kTransposeA, kTransposeB> {                                                           \
    template <int kPart>                                                                                       \
    FUSOR_DEVICE void issue(u64 a, u64 b, int accumulate) {                                                    \
      asm volatile(FUSOR_WGMMA_BEGIN FUSOR_WGMMA_ONE(kN, shape, "%4", "%5", end) "}" ::"n"(kPart),             \
                   "n"(kTransposeA), "n"(kTransposeB), "r"(accumulate), "l"(a), "l"(b));                       \
    }                                                                                                          \
    template <int kPart, int kStepA, int kStepB>                                                               \
    FUSOR_DEVICE void issue_line(u64 a, u64 b, int accumulate) {                                               \
      asm volatile(FUSOR_WGMMA_BEGIN ".reg .b64 a, b;\nmov.b64 a, %4;\nmov.b64 b, %5;\n" FUSOR_WGMMA_ONE(      \
                       kN, shape, "a", "b", end) "setp.eq.u32 p, 0, 0;\n" FUSOR_WGMMA_NEXT(kN, shape, end)     \
                       FUSOR_WGMMA_NEXT(kN, shape, end) FUSOR_WGMMA_NEXT(kN, shape, end) "}" ::"n"(kPart),     \
                   "n"(kTransposeA), "n"(kTransposeB), "r"(accumulate), "l"(a), "l"(b), "n"(kStepA),           \
                   "n"(kStepB));                                                                               \
    }                                                                                                          \
    template <int kPart>                                                                                       \
    FUSOR_DEVICE void issue(const u32 (&a)[4], u64 b, int accumulate) {                                        \
      asm volatile(FUSOR_WGMMA_BEGIN FUSOR_WGMMA_ONE(kN, shape, "{%5, %6, %7, %8}", "%4",                      \
                                                     end_of_registers) "}" ::"n"(kPart),                       \
                   "n"(kTransposeA), "n"(kTransposeB), "r"(accumulate), "l"(b), "r"(a[0]), "r"(a[1]),          \
                   "r"(a[2]), "r"(a[3]));                                                                      \
    }                                                                                                          \
    template <int kPart>                                                                                       \
    FUSOR_DEVICE void issue(const u32 (&a)[8], u64 b, int accumulate) {                                        \
      asm volatile(FUSOR_WGMMA_BEGIN                                                                         \
                   ".reg .b64 b;\nmov.b64 b, %4;\n" FUSOR_WGMMA_ONE(kN, shape, "{%5, %6, %7, %8}", "b",      \
                                                                    end_of_registers)                        \
                       "setp.eq.u32 p, 0, 0;\nadd.s64 b, b, 2;\n" FUSOR_WGMMA_ONE(                           \
                           kN, shape, "{%9, %10, %11, %12}", "b", end_of_registers) "}" ::"n"(kPart),        \
                   "n"(kTransposeA), "n"(kTransposeB), "r"(accumulate), "l"(b), "r"(a[0]), "r"(a[1]),        \
                   "r"(a[2]), "r"(a[3]), "r"(a[4]), "r"(a[5]), "r"(a[6]), "r"(a[7])); \
    }                                                                                                          \
  };
