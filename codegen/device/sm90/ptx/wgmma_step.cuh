// Owns one wgmma of 16-bit operands, 16 steps of k, in every width that is a multiple of 16, and the
// descriptors of operands that are not swizzled (PTX ISA, "Asynchronous warpgroup level matrix
// instructions").
#pragma once

#include "codegen/device/sm90/ptx/wgmma.cuh"

// Core matrices of 8 lines of 16 bytes, 128 bytes in a row: those that follow each other along k, or across
// it where lines lie across, are `leading` and `stride` bytes apart as the instruction wants them. They may
// overlap: neighbouring windows of a row do.
FUSOR_DEVICE u64 plain_descriptor(u32 shared, u32 leading_bytes, u32 stride_bytes) {
  return static_cast<u64>((shared & 0x3ffff) >> 4) | static_cast<u64>(leading_bytes >> 4) << 16 |
         static_cast<u64>(stride_bytes >> 4) << 32;
}

// A part's sums (64 x kN, fp32) = a (64 x 16) * b (16 x kN), plus what they were where `accumulate`; the
// transpositions as in Wgmma.
template <int kN, int kTransposeA, int kTransposeB>
struct WgmmaStep;

#define FUSOR_WGMMA_STEP(kN)                                                                           \
  template <int kTransposeA, int kTransposeB>                                                          \
  struct WgmmaStep<kN, kTransposeA, kTransposeB> {                                                     \
    template <int kPart>                                                                               \
    FUSOR_DEVICE void issue(u64 a, u64 b, int accumulate) {                                            \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %3, 0;\n" FUSOR_WGMMA_ONE(kN, "%1", "%2", "%4",   \
                                                                               "%5") "}" ::"n"(kPart), \
                   "l"(a), "l"(b), "r"(accumulate), "n"(kTransposeA), "n"(kTransposeB));               \
    }                                                                                                  \
  }

FUSOR_WGMMA_STEP(16);
FUSOR_WGMMA_STEP(32);
FUSOR_WGMMA_STEP(48);
FUSOR_WGMMA_STEP(64);
FUSOR_WGMMA_STEP(80);
FUSOR_WGMMA_STEP(96);
FUSOR_WGMMA_STEP(112);
FUSOR_WGMMA_STEP(128);
FUSOR_WGMMA_STEP(144);
FUSOR_WGMMA_STEP(160);
FUSOR_WGMMA_STEP(176);
FUSOR_WGMMA_STEP(192);
FUSOR_WGMMA_STEP(208);
FUSOR_WGMMA_STEP(224);
FUSOR_WGMMA_STEP(240);
FUSOR_WGMMA_STEP(256);
