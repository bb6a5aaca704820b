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

#if FUSOR_TYPE == 0
#define FUSOR_WGMMA_TYPE "f16"
#else
#define FUSOR_WGMMA_TYPE "bf16"
#endif

#define FUSOR_SUMS_4(i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define FUSOR_SUMS_16(i) FUSOR_SUMS_4(i), FUSOR_SUMS_4((i) + 4), FUSOR_SUMS_4((i) + 8), FUSOR_SUMS_4((i) + 12)
#define FUSOR_SUMS_32(i) FUSOR_SUMS_16(i), FUSOR_SUMS_16((i) + 16)
#define FUSOR_SUMS_64(i) FUSOR_SUMS_32(i), FUSOR_SUMS_32((i) + 32)
#define FUSOR_SUMS_96(i) FUSOR_SUMS_64(i), FUSOR_SUMS_32((i) + 64)
#define FUSOR_SUMS_128(i) FUSOR_SUMS_64(i), FUSOR_SUMS_64((i) + 64)

// d (64 x kN, fp32) = a (64 x 16) * b (16 x kN), plus d where `accumulate`. An operand is transposed where
// its rows (a) or columns (b) are adjacent in shared memory instead of k. Of d, thread t holds in d[4 j + 2 h
// + c] row 16 (t / 32) + t % 32 / 4 + 8 h, column 8 j + 2 (t % 4) + c.
template <int kN, int kTransposeA, int kTransposeB>
struct Wgmma;

template <int kTransposeA, int kTransposeB>
struct Wgmma<32, kTransposeA, kTransposeB> {
  FUSOR_DEVICE void issue(float (&d)[16], u64 a, u64 b, int accumulate) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32." FUSOR_WGMMA_TYPE "." FUSOR_WGMMA_TYPE
        " "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "%16, %17, p, 1, 1, %19, %20;\n}"
        : FUSOR_SUMS_16(0)
        : "l"(a), "l"(b), "r"(accumulate), "n"(kTransposeA), "n"(kTransposeB));
  }
};

template <int kTransposeA, int kTransposeB>
struct Wgmma<64, kTransposeA, kTransposeB> {
  FUSOR_DEVICE void issue(float (&d)[32], u64 a, u64 b, int accumulate) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." FUSOR_WGMMA_TYPE "." FUSOR_WGMMA_TYPE
        " "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
        "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, p, 1, 1, %35, %36;\n}"
        : FUSOR_SUMS_32(0)
        : "l"(a), "l"(b), "r"(accumulate), "n"(kTransposeA), "n"(kTransposeB));
  }
};

template <int kTransposeA, int kTransposeB>
struct Wgmma<128, kTransposeA, kTransposeB> {
  FUSOR_DEVICE void issue(float (&d)[64], u64 a, u64 b, int accumulate) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." FUSOR_WGMMA_TYPE "." FUSOR_WGMMA_TYPE
        " "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
        "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "
        "%59, %60, %61, %62, %63}, "
        "%64, %65, p, 1, 1, %67, %68;\n}"
        : FUSOR_SUMS_64(0)
        : "l"(a), "l"(b), "r"(accumulate), "n"(kTransposeA), "n"(kTransposeB));
  }
};

template <int kTransposeA, int kTransposeB>
struct Wgmma<192, kTransposeA, kTransposeB> {
  FUSOR_DEVICE void issue(float (&d)[96], u64 a, u64 b, int accumulate) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %98, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n192k16.f32." FUSOR_WGMMA_TYPE "." FUSOR_WGMMA_TYPE
        " "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
        "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "
        "%59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, "
        "%78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, "
        "%96, %97, p, 1, 1, %99, %100;\n}"
        : FUSOR_SUMS_96(0)
        : "l"(a), "l"(b), "r"(accumulate), "n"(kTransposeA), "n"(kTransposeB));
  }
};

template <int kTransposeA, int kTransposeB>
struct Wgmma<256, kTransposeA, kTransposeB> {
  FUSOR_DEVICE void issue(float (&d)[128], u64 a, u64 b, int accumulate) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32." FUSOR_WGMMA_TYPE "." FUSOR_WGMMA_TYPE
        " "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
        "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "
        "%59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, "
        "%78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, "
        "%97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, "
        "%113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
        "%128, %129, p, 1, 1, %131, %132;\n}"
        : FUSOR_SUMS_128(0)
        : "l"(a), "l"(b), "r"(accumulate), "n"(kTransposeA), "n"(kTransposeB));
  }
};
