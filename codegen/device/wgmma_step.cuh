// Owns one wgmma of 16-bit operands, 16 steps of k, in every width that is a multiple of 16, and the
// descriptors of operands that are not swizzled (PTX ISA, "Asynchronous warpgroup level matrix
// instructions").
#pragma once

#include "codegen/device/wgmma.cuh"

// Core matrices of 8 lines of 16 bytes, 128 bytes in a row: those that follow each other along k, or across
// it where lines lie across, are `leading` and `stride` bytes apart as the instruction wants them. They may
// overlap: neighbouring windows of a row do.
FUSOR_DEVICE u64 plain_descriptor(u32 shared, u32 leading_bytes, u32 stride_bytes) {
  return static_cast<u64>((shared & 0x3ffff) >> 4) | static_cast<u64>(leading_bytes >> 4) << 16 |
         static_cast<u64>(stride_bytes >> 4) << 32;
}

// d (64 x kN, fp32) = a (64 x 16) * b (16 x kN), plus d where `accumulate`; d and the transpositions as in
// Wgmma.
template <int kN, int kTransposeA, int kTransposeB>
struct WgmmaStep;

#define FUSOR_WGMMA_STEP(kN, a, b, accumulates, left, right, ...)                                          \
  template <int kTransposeA, int kTransposeB>                                                              \
  struct WgmmaStep<kN, kTransposeA, kTransposeB> {                                                         \
    FUSOR_DEVICE void issue(float (&d)[kN / 2], u64 first, u64 second, int accumulate) {                   \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " accumulates                                         \
                   ", 0;\nwgmma.mma_async.sync.aligned.m64n" #kN FUSOR_WGMMA_SHAPE " {" FUSOR_NUMBERS_##kN \
                   "}, " a ", " b FUSOR_WGMMA_END(left, right) "}"                                         \
                   : __VA_ARGS__                                                                           \
                   : "l"(first), "l"(second), "r"(accumulate), "n"(kTransposeA), "n"(kTransposeB));        \
    }                                                                                                      \
  }

FUSOR_WGMMA_STEP(16, "%8", "%9", "%10", "%11", "%12", FUSOR_SUMS_8(0));
FUSOR_WGMMA_STEP(32, "%16", "%17", "%18", "%19", "%20", FUSOR_SUMS_16(0));
FUSOR_WGMMA_STEP(48, "%24", "%25", "%26", "%27", "%28", FUSOR_SUMS_16(0), FUSOR_SUMS_8(16));
FUSOR_WGMMA_STEP(64, "%32", "%33", "%34", "%35", "%36", FUSOR_SUMS_32(0));
FUSOR_WGMMA_STEP(80, "%40", "%41", "%42", "%43", "%44", FUSOR_SUMS_32(0), FUSOR_SUMS_8(32));
FUSOR_WGMMA_STEP(96, "%48", "%49", "%50", "%51", "%52", FUSOR_SUMS_32(0), FUSOR_SUMS_16(32));
FUSOR_WGMMA_STEP(112, "%56", "%57", "%58", "%59", "%60", FUSOR_SUMS_32(0), FUSOR_SUMS_16(32),
                 FUSOR_SUMS_8(48));
FUSOR_WGMMA_STEP(128, "%64", "%65", "%66", "%67", "%68", FUSOR_SUMS_64(0));
FUSOR_WGMMA_STEP(144, "%72", "%73", "%74", "%75", "%76", FUSOR_SUMS_64(0), FUSOR_SUMS_8(64));
FUSOR_WGMMA_STEP(160, "%80", "%81", "%82", "%83", "%84", FUSOR_SUMS_64(0), FUSOR_SUMS_16(64));
FUSOR_WGMMA_STEP(176, "%88", "%89", "%90", "%91", "%92", FUSOR_SUMS_64(0), FUSOR_SUMS_16(64),
                 FUSOR_SUMS_8(80));
FUSOR_WGMMA_STEP(192, "%96", "%97", "%98", "%99", "%100", FUSOR_SUMS_64(0), FUSOR_SUMS_32(64));
FUSOR_WGMMA_STEP(208, "%104", "%105", "%106", "%107", "%108", FUSOR_SUMS_64(0), FUSOR_SUMS_32(64),
                 FUSOR_SUMS_8(96));
FUSOR_WGMMA_STEP(224, "%112", "%113", "%114", "%115", "%116", FUSOR_SUMS_64(0), FUSOR_SUMS_32(64),
                 FUSOR_SUMS_16(96));
FUSOR_WGMMA_STEP(240, "%120", "%121", "%122", "%123", "%124", FUSOR_SUMS_64(0), FUSOR_SUMS_32(64),
                 FUSOR_SUMS_16(96), FUSOR_SUMS_8(112));
FUSOR_WGMMA_STEP(256, "%128", "%129", "%130", "%131", "%132", FUSOR_SUMS_64(0), FUSOR_SUMS_64(64));
