// Owns sm_90's asynchronous copies and what they signal: barriers in shared memory (mbarrier), tensor copies
// (TMA), and the register budgets of warpgroups (PTX ISA, "Asynchronous copy", "mbarrier", "setmaxnreg").
#pragma once

struct alignas(64) TensorMap {
  u64 words[16];
};

FUSOR_DEVICE u32 shared_address(const void* pointer) {
  u32 address;
  asm("{ .reg .u64 wide; cvta.to.shared.u64 wide, %1; cvt.u32.u64 %0, wide; }"
      : "=r"(address)
      : "l"(pointer));
  return address;
}

// Counts arrivals and bytes; its phase flips when all have come.
struct Barrier {
  u64 word;

  __device__ void init(u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&word)), "r"(arrivals)
                 : "memory");
  }
  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&word)) : "memory");
  }
  __device__ void arrive_and_expect(u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&word)),
                 "r"(bytes)
                 : "memory");
  }
  // Until the phase of this parity is over.
  __device__ void wait(u32 parity) {
    asm volatile(
        "{\n.reg .pred done;\nAGAIN:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra AGAIN;\n}" ::"r"(shared_address(&word)),
        "r"(parity)
        : "memory");
  }
};

// Makes initialised barriers visible to the copy engine.
FUSOR_DEVICE void fence_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

FUSOR_DEVICE void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Copies a box at (c0, c1, c2) of a 3-D map to shared memory; its bytes arrive at the barrier.
FUSOR_DEVICE void copy_box(void* shared, const TensorMap& map, Barrier& barrier, int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, "
      "%5}], [%2];" ::"r"(shared_address(shared)),
      "l"(&map), "r"(shared_address(&barrier.word)), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}

template <int kRegisters>
FUSOR_DEVICE void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
FUSOR_DEVICE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
