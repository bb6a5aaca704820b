// Owns the warp-wide matrix instructions of sm_80 and later, ldmatrix and mma.sync, and that generation's
// asynchronous copies (PTX ISA, "Warp level matrix instructions", "cp.async").
#pragma once

using ElementA = Config::ElementA;
using ElementB = Config::ElementB;
enum : bool { kTf32 = sizeof(ElementA) == 4 };  // fp32, rounded

/// How PTX names an element and the steps of k of one mma.
template <class Element>
struct MmaElement;
template <>
struct MmaElement<f16> {
  static constexpr char kName[] = "f16", kShape[] = "m16n8k16";
};
template <>
struct MmaElement<bf16> {
  static constexpr char kName[] = "bf16", kShape[] = "m16n8k16";
};
template <>
struct MmaElement<float> {
  static constexpr char kName[] = "tf32", kShape[] = "m16n8k8";
};
template <>
struct MmaElement<i8> {
  static constexpr char kName[] = "s8", kShape[] = "m16n8k32";
};
template <>
struct MmaElement<u8> {
  static constexpr char kName[] = "u8", kShape[] = "m16n8k32";
};

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

/// A fragment of 8 columns by 32 bytes of k: the first 16 lanes name one line each. Transposed ones lie
/// across k.
template <bool kTransposed = true>
FUSOR_DEVICE void load_fragment(u32 (&fragment)[2], u32 line) {
  if constexpr (kTransposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(fragment[0]), "=r"(fragment[1])
                 : "r"(line)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(fragment[0]), "=r"(fragment[1])
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

/// sum (16 x 8) += a (16 rows x 32 bytes of k) * b (32 bytes of k x 8 columns).
FUSOR_DEVICE void multiply_add(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.%10.row.col.f32.%11.%12.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
      "%2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "C"(MmaElement<ElementA>::kShape),
        "C"(MmaElement<ElementA>::kName), "C"(MmaElement<ElementB>::kName));
}
FUSOR_DEVICE void multiply_add(i32 (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.%10.row.col.s32.%11.%12.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
      "%2, %3};"
      : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "C"(MmaElement<ElementA>::kShape),
        "C"(MmaElement<ElementA>::kName), "C"(MmaElement<ElementB>::kName));
}
/// The same over 16 bytes of k, of fp16 or bf16: the first two words of a.
FUSOR_DEVICE void multiply_add_half(float (&sum)[4], const u32 (&a)[4], u32 b0) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.%7.%8.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(b0), "C"(MmaElement<ElementA>::kName), "C"(MmaElement<ElementB>::kName));
}

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
