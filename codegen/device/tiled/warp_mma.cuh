// Owns the warp-wide matrix instructions of sm_80 and later, ldmatrix and mma.sync, and that generation's
// asynchronous copies (PTX ISA, "Warp level matrix instructions", "cp.async").
#pragma once

/// Elements of operands by their number in the config.
template <int kElement>
struct ElementOf;
template <>
struct ElementOf<0> {
  using type = f16;
};
template <>
struct ElementOf<1> {
  using type = bf16;
};
template <>
struct ElementOf<2> {
  using type = i8;
};
template <>
struct ElementOf<3> {
  using type = u8;
};
template <>
struct ElementOf<4> {
  using type = float;  // rounded to tf32
};
static constexpr bool kTf32 = FUSOR_A_ELEMENT == 4;
using ElementA = ElementOf<FUSOR_A_ELEMENT>::type;
using ElementB = ElementOf<FUSOR_B_ELEMENT>::type;

/// A fragment of 16 rows or columns by 32 bytes of k: each lane names one line of 16 bytes.
template <bool kTransposed>
FUSOR_DEVICE void load_fragment(u32 (&fragment)[4], u32 line) {
  if constexpr (kTransposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
                 : "r"(line)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
                 : "r"(line)
                 : "memory");
}

FUSOR_DEVICE u32 load_shared(u32 from) {
  u32 word;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
  return word;
}

/// The nearest number of 10 bits behind the point: the tensor cores would cut the others off.
FUSOR_DEVICE u32 round_to_tf32(u32 x) {
  u32 rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(x)));
  return rounded;
}

// sum (16 x 8) += a (16 rows x 32 bytes of k) * b (32 bytes of k x 8 columns).
#define FUSOR_MMA(shape, result, a_type, b_type)                                    \
  asm("mma.sync.aligned." shape ".row.col." result "." a_type "." b_type "." result \
      " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"            \
      : FUSOR_SUM(sum[0]), FUSOR_SUM(sum[1]), FUSOR_SUM(sum[2]), FUSOR_SUM(sum[3])  \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))

FUSOR_DEVICE void multiply_add(Sum (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if FUSOR_A_ELEMENT < 2 || FUSOR_A_ELEMENT == 4
#define FUSOR_SUM(x) "+f"(x)
#if FUSOR_A_ELEMENT == 0
  FUSOR_MMA("m16n8k16", "f32", "f16", "f16");
#elif FUSOR_A_ELEMENT == 1
  FUSOR_MMA("m16n8k16", "f32", "bf16", "bf16");
#else
  FUSOR_MMA("m16n8k8", "f32", "tf32", "tf32");
#endif
#else
#define FUSOR_SUM(x) "+r"(x)
#if FUSOR_A_ELEMENT == 2 && FUSOR_B_ELEMENT == 2
  FUSOR_MMA("m16n8k32", "s32", "s8", "s8");
#elif FUSOR_A_ELEMENT == 2
  FUSOR_MMA("m16n8k32", "s32", "s8", "u8");
#elif FUSOR_B_ELEMENT == 2
  FUSOR_MMA("m16n8k32", "s32", "u8", "s8");
#else
  FUSOR_MMA("m16n8k32", "s32", "u8", "u8");
#endif
#endif
}
#undef FUSOR_SUM
#undef FUSOR_MMA

/// Copies kBytes from global to shared memory asynchronously, or clears them. The bytes may be read after
/// wait_for_copies() and a barrier.
template <int kBytes>
FUSOR_DEVICE void copy_async(u32 to, const void* from, bool inside) {
  const int bytes = inside ? kBytes : 0;
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(kBytes),
                 "r"(bytes));
}
/// Closes the group of this thread's copies since the last.
FUSOR_DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most kPending of this thread's groups are in flight.
template <int kPending>
FUSOR_DEVICE void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
