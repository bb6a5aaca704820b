// Owns the warpgroup products of attention: their sums are values of the program, because a softmax and a
// rescaling run over them between two products (PTX ISA, "Asynchronous warpgroup level matrix
// instructions").
#pragma once

#include "codegen/device/sm90/ptx/tma.cuh"

// Starting address, and the distances between blocks of 64 columns and between groups of 8 rows of 128 bytes,
// in units of 16 bytes; 128-byte swizzle.
FUSOR_DEVICE u64 line_descriptor(const u8* tile, u32 leading_bytes) {
  return static_cast<u64>((shared_address(tile) & 0x3ffff) >> 4) |
         static_cast<u64>(leading_bytes >> 4) << 16 | static_cast<u64>(1024 >> 4) << 32 | 1ull << 62;
}

FUSOR_DEVICE void product_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
FUSOR_DEVICE void product_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
FUSOR_DEVICE void product_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Keeps the compiler from moving reads and writes of sums across a product in flight.
template <int kCount>
FUSOR_DEVICE void pin(float (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(values[i])::"memory");
}

// Descriptors and whether to accumulate reach the instruction through registers that PTX knows by name. Once
// in a kernel, before all else.
FUSOR_DEVICE void declare_products() {
  asm volatile(".reg .b64 product_a_, product_b_;\n.reg .pred product_p_;");
}
FUSOR_DEVICE void name_operands(u64 a, u64 b, int accumulate) {
  asm volatile("mov.b64 product_a_, %0;\nmov.b64 product_b_, %1;\nsetp.ne.b32 product_p_, %2, 0;" ::"l"(a),
               "l"(b), "r"(accumulate));
}
FUSOR_DEVICE void name_operand(u64 b, int accumulate) {
  asm volatile("mov.b64 product_b_, %0;\nsetp.ne.b32 product_p_, %1, 0;" ::"l"(b), "r"(accumulate));
}

// d (64 x kN) = a (64 x 16) * b (16 x kN), plus d where asked to: from shared memory, both in lines along k
// (along_k; begin_along_k for the first step, which reads no earlier sum); or a from registers, b in lines
// across k (across_k). Thread t has in d[4 j + 2 h + c] row 16 (t / 32) + t % 32 / 4 + 8 h, column 8 j + 2 (t
// % 4) + c.
template <class Element, int kN>
struct Product;

#define FUSOR_SUMS_0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define FUSOR_SUMS_1 FUSOR_SUMS_0 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define FUSOR_SUMS_2 FUSOR_SUMS_1 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define FUSOR_SUMS_3 FUSOR_SUMS_2 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define FUSOR_SUMS_4 FUSOR_SUMS_3 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define FUSOR_SUMS_5 FUSOR_SUMS_4 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define FUSOR_SUMS_6 FUSOR_SUMS_5 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define FUSOR_SUMS_7 FUSOR_SUMS_6 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define FUSOR_SUMS_8 FUSOR_SUMS_7 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define FUSOR_SUMS_9 FUSOR_SUMS_8 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define FUSOR_SUMS_10 FUSOR_SUMS_9 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define FUSOR_SUMS_11 FUSOR_SUMS_10 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define FUSOR_SUMS_12 FUSOR_SUMS_11 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define FUSOR_SUMS_13 FUSOR_SUMS_12 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define FUSOR_SUMS_14 FUSOR_SUMS_13 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define FUSOR_SUMS_15 FUSOR_SUMS_14 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define FUSOR_SUM_OPERANDS_0(c) c(d[0]), c(d[1]), c(d[2]), c(d[3]), c(d[4]), c(d[5]), c(d[6]), c(d[7])
#define FUSOR_SUM_OPERANDS_1(c) \
  FUSOR_SUM_OPERANDS_0(c), c(d[8]), c(d[9]), c(d[10]), c(d[11]), c(d[12]), c(d[13]), c(d[14]), c(d[15])
#define FUSOR_SUM_OPERANDS_2(c) \
  FUSOR_SUM_OPERANDS_1(c), c(d[16]), c(d[17]), c(d[18]), c(d[19]), c(d[20]), c(d[21]), c(d[22]), c(d[23])
#define FUSOR_SUM_OPERANDS_3(c) \
  FUSOR_SUM_OPERANDS_2(c), c(d[24]), c(d[25]), c(d[26]), c(d[27]), c(d[28]), c(d[29]), c(d[30]), c(d[31])
#define FUSOR_SUM_OPERANDS_4(c) \
  FUSOR_SUM_OPERANDS_3(c), c(d[32]), c(d[33]), c(d[34]), c(d[35]), c(d[36]), c(d[37]), c(d[38]), c(d[39])
#define FUSOR_SUM_OPERANDS_5(c) \
  FUSOR_SUM_OPERANDS_4(c), c(d[40]), c(d[41]), c(d[42]), c(d[43]), c(d[44]), c(d[45]), c(d[46]), c(d[47])
#define FUSOR_SUM_OPERANDS_6(c) \
  FUSOR_SUM_OPERANDS_5(c), c(d[48]), c(d[49]), c(d[50]), c(d[51]), c(d[52]), c(d[53]), c(d[54]), c(d[55])
#define FUSOR_SUM_OPERANDS_7(c) \
  FUSOR_SUM_OPERANDS_6(c), c(d[56]), c(d[57]), c(d[58]), c(d[59]), c(d[60]), c(d[61]), c(d[62]), c(d[63])
#define FUSOR_SUM_OPERANDS_8(c) \
  FUSOR_SUM_OPERANDS_7(c), c(d[64]), c(d[65]), c(d[66]), c(d[67]), c(d[68]), c(d[69]), c(d[70]), c(d[71])
#define FUSOR_SUM_OPERANDS_9(c) \
  FUSOR_SUM_OPERANDS_8(c), c(d[72]), c(d[73]), c(d[74]), c(d[75]), c(d[76]), c(d[77]), c(d[78]), c(d[79])
#define FUSOR_SUM_OPERANDS_10(c) \
  FUSOR_SUM_OPERANDS_9(c), c(d[80]), c(d[81]), c(d[82]), c(d[83]), c(d[84]), c(d[85]), c(d[86]), c(d[87])
#define FUSOR_SUM_OPERANDS_11(c) \
  FUSOR_SUM_OPERANDS_10(c), c(d[88]), c(d[89]), c(d[90]), c(d[91]), c(d[92]), c(d[93]), c(d[94]), c(d[95])
#define FUSOR_SUM_OPERANDS_12(c) \
  FUSOR_SUM_OPERANDS_11(c), c(d[96]), c(d[97]), c(d[98]), c(d[99]), c(d[100]), c(d[101]), c(d[102]), c(d[103])
#define FUSOR_SUM_OPERANDS_13(c)                                                                         \
  FUSOR_SUM_OPERANDS_12(c), c(d[104]), c(d[105]), c(d[106]), c(d[107]), c(d[108]), c(d[109]), c(d[110]), \
      c(d[111])
#define FUSOR_SUM_OPERANDS_14(c)                                                                         \
  FUSOR_SUM_OPERANDS_13(c), c(d[112]), c(d[113]), c(d[114]), c(d[115]), c(d[116]), c(d[117]), c(d[118]), \
      c(d[119])
#define FUSOR_SUM_OPERANDS_15(c)                                                                         \
  FUSOR_SUM_OPERANDS_14(c), c(d[120]), c(d[121]), c(d[122]), c(d[123]), c(d[124]), c(d[125]), c(d[126]), \
      c(d[127])
#define FUSOR_WORDS_0 "{%8, %9, %10, %11}"
#define FUSOR_WORDS_1 "{%16, %17, %18, %19}"
#define FUSOR_WORDS_2 "{%24, %25, %26, %27}"
#define FUSOR_WORDS_3 "{%32, %33, %34, %35}"
#define FUSOR_WORDS_4 "{%40, %41, %42, %43}"
#define FUSOR_WORDS_5 "{%48, %49, %50, %51}"
#define FUSOR_WORDS_6 "{%56, %57, %58, %59}"
#define FUSOR_WORDS_7 "{%64, %65, %66, %67}"
#define FUSOR_WORDS_8 "{%72, %73, %74, %75}"
#define FUSOR_WORDS_9 "{%80, %81, %82, %83}"
#define FUSOR_WORDS_10 "{%88, %89, %90, %91}"
#define FUSOR_WORDS_11 "{%96, %97, %98, %99}"
#define FUSOR_WORDS_12 "{%104, %105, %106, %107}"
#define FUSOR_WORDS_13 "{%112, %113, %114, %115}"
#define FUSOR_WORDS_14 "{%120, %121, %122, %123}"
#define FUSOR_WORDS_15 "{%128, %129, %130, %131}"

#define FUSOR_PRODUCT(Element, name, kN, kLast)                                                             \
  template <>                                                                                               \
  struct Product<Element, kN> {                                                                             \
    FUSOR_DEVICE void begin_along_k(float (&d)[kN / 2], u64 a, u64 b) {                                     \
      name_operands(a, b, 0);                                                                               \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #kN "k16.f32." name "." name " {" FUSOR_SUMS_##kLast \
                   "}, product_a_, product_b_, product_p_, 1, 1, 0, 0;"                                     \
                   : FUSOR_SUM_OPERANDS_##kLast("=f"));                                                     \
    }                                                                                                       \
    FUSOR_DEVICE void along_k(float (&d)[kN / 2], u64 a, u64 b, int accumulate) {                           \
      name_operands(a, b, accumulate);                                                                      \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #kN "k16.f32." name "." name " {" FUSOR_SUMS_##kLast \
                   "}, product_a_, product_b_, product_p_, 1, 1, 0, 0;"                                     \
                   : FUSOR_SUM_OPERANDS_##kLast("+f"));                                                     \
    }                                                                                                       \
    FUSOR_DEVICE void across_k(float (&d)[kN / 2], const u32 (&a)[4], u64 b, int accumulate) {              \
      name_operand(b, accumulate);                                                                          \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #kN "k16.f32." name "." name " {" FUSOR_SUMS_##kLast \
                   "}, " FUSOR_WORDS_##kLast ", product_b_, product_p_, 1, 1, 1;"                           \
                   : FUSOR_SUM_OPERANDS_##kLast("+f")                                                       \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]));                                           \
    }                                                                                                       \
  };
#define FUSOR_PRODUCTS(kN, kLast)      \
  FUSOR_PRODUCT(f16, "f16", kN, kLast) \
  FUSOR_PRODUCT(bf16, "bf16", kN, kLast)
FUSOR_PRODUCTS(16, 0)
FUSOR_PRODUCTS(32, 1)
FUSOR_PRODUCTS(48, 2)
FUSOR_PRODUCTS(64, 3)
FUSOR_PRODUCTS(80, 4)
FUSOR_PRODUCTS(96, 5)
FUSOR_PRODUCTS(112, 6)
FUSOR_PRODUCTS(128, 7)
FUSOR_PRODUCTS(144, 8)
FUSOR_PRODUCTS(160, 9)
FUSOR_PRODUCTS(176, 10)
FUSOR_PRODUCTS(192, 11)
FUSOR_PRODUCTS(208, 12)
FUSOR_PRODUCTS(224, 13)
FUSOR_PRODUCTS(240, 14)
FUSOR_PRODUCTS(256, 15)

// 8-bit elements: d (64 x kN) = a (64 x 32) * b (32 x kN), plus d where asked to; b in lines along k in any
// case. begin_ ... reads no earlier sum. A word of `a` from registers is four neighbours along k.
#define FUSOR_PRODUCT_OF_BYTES(Element, name, kN, kLast)                                                    \
  template <>                                                                                               \
  struct Product<Element, kN> {                                                                             \
    FUSOR_DEVICE void begin_along_k(float (&d)[kN / 2], u64 a, u64 b) {                                     \
      name_operands(a, b, 0);                                                                               \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #kN "k32.f32." name "." name " {" FUSOR_SUMS_##kLast \
                   "}, product_a_, product_b_, product_p_, 1, 1;"                                           \
                   : FUSOR_SUM_OPERANDS_##kLast("=f"));                                                     \
    }                                                                                                       \
    FUSOR_DEVICE void along_k(float (&d)[kN / 2], u64 a, u64 b, int accumulate) {                           \
      name_operands(a, b, accumulate);                                                                      \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #kN "k32.f32." name "." name " {" FUSOR_SUMS_##kLast \
                   "}, product_a_, product_b_, product_p_, 1, 1;"                                           \
                   : FUSOR_SUM_OPERANDS_##kLast("+f"));                                                     \
    }                                                                                                       \
    FUSOR_DEVICE void begin_from_registers(float (&d)[kN / 2], const u32 (&a)[4], u64 b) {                  \
      name_operand(b, 0);                                                                                   \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #kN "k32.f32." name "." name " {" FUSOR_SUMS_##kLast \
                   "}, " FUSOR_WORDS_##kLast ", product_b_, product_p_, 1, 1;"                              \
                   : FUSOR_SUM_OPERANDS_##kLast("=f")                                                       \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]));                                           \
    }                                                                                                       \
    FUSOR_DEVICE void from_registers(float (&d)[kN / 2], const u32 (&a)[4], u64 b) {                        \
      name_operand(b, 1);                                                                                   \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #kN "k32.f32." name "." name " {" FUSOR_SUMS_##kLast \
                   "}, " FUSOR_WORDS_##kLast ", product_b_, product_p_, 1, 1;"                              \
                   : FUSOR_SUM_OPERANDS_##kLast("+f")                                                       \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]));                                           \
    }                                                                                                       \
  };
FUSOR_PRODUCT_OF_BYTES(f8_e4m3, "e4m3", 32, 1)
FUSOR_PRODUCT_OF_BYTES(f8_e4m3, "e4m3", 64, 3)
FUSOR_PRODUCT_OF_BYTES(f8_e4m3, "e4m3", 96, 5)
FUSOR_PRODUCT_OF_BYTES(f8_e4m3, "e4m3", 128, 7)
FUSOR_PRODUCT_OF_BYTES(f8_e5m2, "e5m2", 32, 1)
FUSOR_PRODUCT_OF_BYTES(f8_e5m2, "e5m2", 64, 3)
FUSOR_PRODUCT_OF_BYTES(f8_e5m2, "e5m2", 96, 5)
FUSOR_PRODUCT_OF_BYTES(f8_e5m2, "e5m2", 128, 7)
