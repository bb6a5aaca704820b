// Owns the roles of a block of sm_90a: which warpgroups load and which consume, what registers each may have,
// and what all do before they part.
//
//   thread 0          Kernel::init, barriers; Kernel::load_ahead (kLoadsAhead)
//   thread 32         Kernel::prefetch of maps
//   all threads       Kernel::clear, __syncthreads
//
//   warpgroups 0 ..   loaders     registers released    Kernel::load(p, shared)
//   the others        consumers   registers claimed     Kernel::consume(p, shared, number of the consumer)
#pragma once

#include "codegen/device/base/launch.cuh"
#include "codegen/device/sm90/ptx/tma.cuh"

enum : int { kWarpgroup = 128 };

// Registers a thread: a multiple of 8 for each role, of the 64 K of an SM that a block starts with in equal
// shares.
template <int kLoaders, int kConsumers, int kOfLoader>
struct RegisterBudget {
  enum : int {
    kWarpgroups = kLoaders + kConsumers,
    kLoader = kOfLoader,
    kAll = 65536 / kWarpgroup / kWarpgroups / 8 * 8 * kWarpgroups,
    kConsumer = (kAll - kLoaders * kOfLoader) / kConsumers / 8 * 8,
  };
  static_assert(kConsumer <= 255 / 8 * 8 + 8 && kOfLoader >= 24);
};

// A kernel is a struct of static functions - load, consume, init, prefetch, clear - beside its Shared and
// these numbers:
//   kLoaders, kConsumers     warpgroups of each role
//   kLoaderRegisters         a thread; 0: all keep what they start with (several blocks an SM)
//   kLoadsAhead              whether load_ahead() copies, before the wait, what no launch in front writes
//   kClusterBlocks           blocks of a cluster; where there are several, clear() writes nothing
//   kMeetsAtEnd              whether others of the cluster may read this block's memory when its threads end
template <class Kernel, class Params>
FUSOR_DEVICE void run_roles(const Params& p) {
  using Budget = RegisterBudget<Kernel::kLoaders, Kernel::kConsumers,
                                (Kernel::kLoaderRegisters > 0 ? Kernel::kLoaderRegisters : 24)>;
  extern __shared__ __align__(1024) u8 memory[];
  auto& shared = *reinterpret_cast<typename Kernel::Shared*>(memory);
  if (threadIdx.x == 0) {
    Kernel::init(p, shared);
    fence_barriers();
    if constexpr (Kernel::kLoadsAhead)
      if (p.turn == kReadsAhead) Kernel::load_ahead(p, shared);
  }
  if constexpr (Kernel::kClusterBlocks > 1) arrive_at_cluster();
  if (threadIdx.x == 32) Kernel::prefetch(p);
  Kernel::clear(shared);
  if (waits_for_turn(p)) wait_for_end_before();
  let_next_launch_begin();  // there are few blocks
  if constexpr (Kernel::kClusterBlocks > 1)
    wait_for_cluster();
  else
    __syncthreads();
  // The compiler must know that all lanes agree: then descriptors stay in uniform registers. Behind the wait,
  // which lanes might leave apart as far as it knows.
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / kWarpgroup, 0);
  if (warpgroup / Kernel::kLoaders == 0) {
    if constexpr (Kernel::kLoaderRegisters > 0) release_registers<Budget::kLoader>();
    Kernel::load(p, shared);
  } else {
    if constexpr (Kernel::kLoaderRegisters > 0) claim_registers<Budget::kConsumer>();
    Kernel::consume(p, shared, warpgroup - Kernel::kLoaders);
    leave_launch(p);  // by loaders it would take what the compiler knows of the one thread that copies
  }
  if constexpr (Kernel::kMeetsAtEnd) {
    __syncwarp();
    synchronise_cluster();  // behind all reads of the others' memory
  }
}

template <class Kernel>
constexpr int kThreadsOf = (Kernel::kLoaders + Kernel::kConsumers) * kWarpgroup;
