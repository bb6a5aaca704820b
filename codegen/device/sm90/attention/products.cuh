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
// (along_k); or a from registers, b in lines across k (across_k). Thread t has in d[4 j + 2 h + c] row
// 16 (t / 32) + t % 32 / 4 + 8 h, column 8 j + 2 (t % 4) + c.
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
#define FUSOR_SUM_OPERANDS_0 \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
#define FUSOR_SUM_OPERANDS_1                                                                        \
  FUSOR_SUM_OPERANDS_0, "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), \
      "+f"(d[14]), "+f"(d[15])
#define FUSOR_SUM_OPERANDS_2                                                                          \
  FUSOR_SUM_OPERANDS_1, "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), \
      "+f"(d[22]), "+f"(d[23])
#define FUSOR_SUM_OPERANDS_3                                                                          \
  FUSOR_SUM_OPERANDS_2, "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), \
      "+f"(d[30]), "+f"(d[31])
#define FUSOR_SUM_OPERANDS_4                                                                          \
  FUSOR_SUM_OPERANDS_3, "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), \
      "+f"(d[38]), "+f"(d[39])
#define FUSOR_SUM_OPERANDS_5                                                                          \
  FUSOR_SUM_OPERANDS_4, "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), \
      "+f"(d[46]), "+f"(d[47])
#define FUSOR_SUM_OPERANDS_6                                                                          \
  FUSOR_SUM_OPERANDS_5, "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), \
      "+f"(d[54]), "+f"(d[55])
#define FUSOR_SUM_OPERANDS_7                                                                          \
  FUSOR_SUM_OPERANDS_6, "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), \
      "+f"(d[62]), "+f"(d[63])
#define FUSOR_SUM_OPERANDS_8                                                                          \
  FUSOR_SUM_OPERANDS_7, "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), \
      "+f"(d[70]), "+f"(d[71])
#define FUSOR_SUM_OPERANDS_9                                                                          \
  FUSOR_SUM_OPERANDS_8, "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), \
      "+f"(d[78]), "+f"(d[79])
#define FUSOR_SUM_OPERANDS_10                                                                         \
  FUSOR_SUM_OPERANDS_9, "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), \
      "+f"(d[86]), "+f"(d[87])
#define FUSOR_SUM_OPERANDS_11                                                                          \
  FUSOR_SUM_OPERANDS_10, "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), \
      "+f"(d[94]), "+f"(d[95])
#define FUSOR_SUM_OPERANDS_12                                                                            \
  FUSOR_SUM_OPERANDS_11, "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), \
      "+f"(d[102]), "+f"(d[103])
#define FUSOR_SUM_OPERANDS_13                                                                                \
  FUSOR_SUM_OPERANDS_12, "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), \
      "+f"(d[110]), "+f"(d[111])
#define FUSOR_SUM_OPERANDS_14                                                                                \
  FUSOR_SUM_OPERANDS_13, "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), \
      "+f"(d[118]), "+f"(d[119])
#define FUSOR_SUM_OPERANDS_15                                                                                \
  FUSOR_SUM_OPERANDS_14, "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), \
      "+f"(d[126]), "+f"(d[127])
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
    FUSOR_DEVICE void along_k(float (&d)[kN / 2], u64 a, u64 b, int accumulate) {                           \
      name_operands(a, b, accumulate);                                                                      \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #kN "k16.f32." name "." name " {" FUSOR_SUMS_##kLast \
                   "}, product_a_, product_b_, product_p_, 1, 1, 0, 0;"                                     \
                   : FUSOR_SUM_OPERANDS_##kLast);                                                           \
    }                                                                                                       \
    FUSOR_DEVICE void across_k(float (&d)[kN / 2], const u32 (&a)[4], u64 b, int accumulate) {              \
      name_operand(b, accumulate);                                                                          \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #kN "k16.f32." name "." name " {" FUSOR_SUMS_##kLast \
                   "}, " FUSOR_WORDS_##kLast ", product_b_, product_p_, 1, 1, 1;"                           \
                   : FUSOR_SUM_OPERANDS_##kLast                                                             \
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
