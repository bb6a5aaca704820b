// Owns the warpgroup matrix instructions of sm_90a: descriptors of operands in shared memory, and wgmma in
// the widths that kernels use (PTX ISA, "Asynchronous warpgroup level matrix instructions").
#pragma once

// Starting address, and the two strides between groups of 8 rows of 128 bytes, all in units of 16 bytes;
// 128-byte swizzle.
FUSOR_DEVICE u64 wgmma_descriptor(u32 shared, u32 leading_bytes, u32 stride_bytes) {
  return static_cast<u64>((shared & 0x3ffff) >> 4) | static_cast<u64>(leading_bytes >> 4) << 16 |
         static_cast<u64>(stride_bytes >> 4) << 32 | 1ull << 62;
}

FUSOR_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
FUSOR_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until at most kPending groups are under way.
template <int kPending>
FUSOR_DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// d (64 x kN, in fp32 or int32) = a * b, of 64 rows and kN columns by 128 bytes of k, plus d where
// `accumulate`: four wgmma, each 32 bytes of k, for which the descriptors move on by kStepA and kStepB. An
// operand is transposed where its rows (a) or columns (b) are adjacent in shared memory instead of k: of 16
// bits only. Of d, thread t holds in d[4 j + 2 h + c] row 16 (t / 32) + t % 32 / 4 + 8 h, column 8 j + 2 (t %
// 4) + c. One asm statement: every one costs the compiler the passing of all of d.
template <int kN, int kTransposeA, int kTransposeB, int kStepA, int kStepB>
struct Wgmma;

// The operands' elements by their number in the config.
#if FUSOR_TYPE == 0
#define FUSOR_WGMMA_SHAPE "k16.f32.f16.f16"
#elif FUSOR_TYPE == 1
#define FUSOR_WGMMA_SHAPE "k16.f32.bf16.bf16"
#elif FUSOR_TYPE == 2
#define FUSOR_WGMMA_SHAPE "k8.f32.tf32.tf32"
#elif FUSOR_TYPE == 3 && FUSOR_TYPE_B == 3
#define FUSOR_WGMMA_SHAPE "k32.s32.s8.s8"
#elif FUSOR_TYPE == 3
#define FUSOR_WGMMA_SHAPE "k32.s32.s8.u8"
#elif FUSOR_TYPE == 4 && FUSOR_TYPE_B == 3
#define FUSOR_WGMMA_SHAPE "k32.s32.u8.s8"
#elif FUSOR_TYPE == 4
#define FUSOR_WGMMA_SHAPE "k32.s32.u8.u8"
#elif FUSOR_TYPE == 5 && FUSOR_TYPE_B == 5
#define FUSOR_WGMMA_SHAPE "k32.f32.e4m3.e4m3"
#elif FUSOR_TYPE == 5
#define FUSOR_WGMMA_SHAPE "k32.f32.e4m3.e5m2"
#elif FUSOR_TYPE_B == 5
#define FUSOR_WGMMA_SHAPE "k32.f32.e5m2.e4m3"
#else
#define FUSOR_WGMMA_SHAPE "k32.f32.e5m2.e5m2"
#endif
#if FUSOR_TYPE < 2
static constexpr int kElementBytes = 2;
#define FUSOR_WGMMA_END(left, right) ", p, 1, 1, " left ", " right ";\n"
#elif FUSOR_TYPE == 2
static constexpr int kElementBytes = 4;
#define FUSOR_WGMMA_END(left, right) ", p, 1, 1;\n"
#elif FUSOR_TYPE < 5
static constexpr int kElementBytes = 1;
#define FUSOR_WGMMA_END(left, right) ", p;\n"
#else
static constexpr int kElementBytes = 1;
#define FUSOR_WGMMA_END(left, right) ", p, 1, 1;\n"
#endif
// Of fp8, the tensor cores sum with 13 bits behind the point.
static constexpr bool kShortSums = FUSOR_TYPE >= 5;
#if FUSOR_TYPE < 3 || FUSOR_TYPE >= 5
using Sum = float;
#define FUSOR_SUM(x) "+f"(x)
#else
using Sum = i32;
#define FUSOR_SUM(x) "+r"(x)
#endif

// The text of an instruction: the numbers of its sums, eight at a time, and the sums themselves.
#define FUSOR_NUMBERS_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define FUSOR_NUMBERS_32 FUSOR_NUMBERS_16 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define FUSOR_NUMBERS_48 FUSOR_NUMBERS_32 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define FUSOR_NUMBERS_64 FUSOR_NUMBERS_48 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define FUSOR_NUMBERS_80 FUSOR_NUMBERS_64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define FUSOR_NUMBERS_96 FUSOR_NUMBERS_80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define FUSOR_NUMBERS_112 FUSOR_NUMBERS_96 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define FUSOR_NUMBERS_128 FUSOR_NUMBERS_112 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define FUSOR_NUMBERS_144 FUSOR_NUMBERS_128 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define FUSOR_NUMBERS_160 FUSOR_NUMBERS_144 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define FUSOR_NUMBERS_176 FUSOR_NUMBERS_160 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define FUSOR_NUMBERS_192 FUSOR_NUMBERS_176 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define FUSOR_NUMBERS_208 FUSOR_NUMBERS_192 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define FUSOR_NUMBERS_224 FUSOR_NUMBERS_208 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define FUSOR_NUMBERS_240 FUSOR_NUMBERS_224 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define FUSOR_NUMBERS_256 FUSOR_NUMBERS_240 ", %120, %121, %122, %123, %124, %125, %126, %127"

#define FUSOR_SUMS_8(i)                                                                 \
  FUSOR_SUM(d[i]), FUSOR_SUM(d[(i) + 1]), FUSOR_SUM(d[(i) + 2]), FUSOR_SUM(d[(i) + 3]), \
      FUSOR_SUM(d[(i) + 4]), FUSOR_SUM(d[(i) + 5]), FUSOR_SUM(d[(i) + 6]), FUSOR_SUM(d[(i) + 7])
#define FUSOR_SUMS_16(i) FUSOR_SUMS_8(i), FUSOR_SUMS_8((i) + 8)
#define FUSOR_SUMS_32(i) FUSOR_SUMS_16(i), FUSOR_SUMS_16((i) + 16)
#define FUSOR_SUMS_64(i) FUSOR_SUMS_32(i), FUSOR_SUMS_32((i) + 32)

#define FUSOR_WGMMA_ONE(kN, a, b, left, right)                                                     \
  "wgmma.mma_async.sync.aligned.m64n" #kN FUSOR_WGMMA_SHAPE " {" FUSOR_NUMBERS_##kN "}, " a ", " b \
  FUSOR_WGMMA_END(left, right)
#define FUSOR_WGMMA_NEXT(kN, step_a, step_b, left, right) \
  "add.s64 a, a, " step_a ";\nadd.s64 b, b, " step_b ";\n" FUSOR_WGMMA_ONE(kN, "a", "b", left, right)

// What follows the sums: the operands a and b, whether to accumulate, the transpositions, the steps.
#define FUSOR_WGMMA_WIDTH(kN, first_a, first_b, accumulates, left, right, step_a, step_b, ...)              \
  template <int kTransposeA, int kTransposeB, int kStepA, int kStepB>                                       \
  struct Wgmma<kN, kTransposeA, kTransposeB, kStepA, kStepB> {                                              \
    FUSOR_DEVICE void issue(Sum (&d)[kN / 2], u64 a, u64 b, int accumulate) {                               \
      asm volatile(                                                                                         \
          "{\n.reg .pred p;\n.reg .b64 a, b;\nsetp.ne.b32 p, " accumulates ", 0;\nmov.b64 a, " first_a      \
          ";\nmov.b64 b, " first_b                                                                          \
          ";\n" FUSOR_WGMMA_ONE(kN, "a", "b", left, right) "setp.eq.u32 p, 0, 0;\n" FUSOR_WGMMA_NEXT(       \
              kN, step_a, step_b, left, right) FUSOR_WGMMA_NEXT(kN, step_a, step_b, left, right)            \
              FUSOR_WGMMA_NEXT(kN, step_a, step_b, left, right) "}"                                         \
          : __VA_ARGS__                                                                                     \
          : "l"(a), "l"(b), "r"(accumulate), "n"(kTransposeA), "n"(kTransposeB), "n"(kStepA), "n"(kStepB)); \
    }                                                                                                       \
  }

FUSOR_WGMMA_WIDTH(16, "%8", "%9", "%10", "%11", "%12", "%13", "%14", FUSOR_SUMS_8(0));
FUSOR_WGMMA_WIDTH(32, "%16", "%17", "%18", "%19", "%20", "%21", "%22", FUSOR_SUMS_16(0));
FUSOR_WGMMA_WIDTH(64, "%32", "%33", "%34", "%35", "%36", "%37", "%38", FUSOR_SUMS_32(0));
FUSOR_WGMMA_WIDTH(96, "%48", "%49", "%50", "%51", "%52", "%53", "%54", FUSOR_SUMS_32(0), FUSOR_SUMS_16(32));
FUSOR_WGMMA_WIDTH(128, "%64", "%65", "%66", "%67", "%68", "%69", "%70", FUSOR_SUMS_64(0));
FUSOR_WGMMA_WIDTH(160, "%80", "%81", "%82", "%83", "%84", "%85", "%86", FUSOR_SUMS_64(0), FUSOR_SUMS_16(64));
FUSOR_WGMMA_WIDTH(192, "%96", "%97", "%98", "%99", "%100", "%101", "%102", FUSOR_SUMS_64(0),
                  FUSOR_SUMS_32(64));
FUSOR_WGMMA_WIDTH(224, "%112", "%113", "%114", "%115", "%116", "%117", "%118", FUSOR_SUMS_64(0),
                  FUSOR_SUMS_32(64), FUSOR_SUMS_16(96));
FUSOR_WGMMA_WIDTH(256, "%128", "%129", "%130", "%131", "%132", "%133", "%134", FUSOR_SUMS_64(0),
                  FUSOR_SUMS_64(64));
