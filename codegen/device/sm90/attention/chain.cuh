// Owns how launches that share buffers of the workspace follow each other without a gap: the blocks of one
// begin where those of the launch in front have ended, and wait for that launch alone whose data they read,
// or whose data they overwrite.
//
//   launches   K0  K1  S0  K2  S1  K3  S2  ...    Ki: backward_keys of chunk i    Si: backward_spilled of it
//   buffer     0   1   0   2   1   0   2          Si waits for Ki, K3 for S0: both began long before
//
// A launch begins when all blocks of the one in front have begun, so whoever is waited for is running. The
// first waits for what was in front of all of them; what follows the last begins when that has ended.
#pragma once

#include "codegen/device/base/launch.cuh"
#include "codegen/device/base/types.cuh"

// counters: launches that are done, and behind it the warps of each launch that are done. own: the launch's
// number; warps: as many as it has; before: the launch that it waits for, which has `awaited` warps, 0: none;
// others: launches that the last one waits for before it ends, so that what follows it follows all of them.
struct Chain {
  u32* counters;
  i64 own, warps, before, awaited, others;
};

FUSOR_DEVICE void wait_for_count(const u32* counter, i64 count) {
  u32 seen;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
  } while (seen < static_cast<u32>(count));
}

// Bulk copies are another proxy than the counters' loads and stores.
FUSOR_DEVICE void fence_copies() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// By all threads, in front of a barrier of the block.
template <class P>
FUSOR_DEVICE void enter_chain(const P& p) {
  if constexpr (!Config::chained) {
    enter_launch();
  } else {
    if (p.chain.own == 0) wait_for_launch_before();
    if (p.chain.others == 0) let_next_launch_begin();
    if (threadIdx.x != 0) return;
    if (p.chain.awaited > 0) wait_for_count(p.chain.counters + 1 + p.chain.before, p.chain.awaited);
    fence_copies();
  }
}

FUSOR_DEVICE void leave(const Chain& chain) {
  __syncwarp();
  if (threadIdx.x % 32 != 0) return;
  fence_copies();
  __threadfence();
  if (atomicAdd(chain.counters + 1 + chain.own, 1u) + 1 == static_cast<u32>(chain.warps)) {
    __threadfence();
    atomicAdd(chain.counters, 1u);
  }
  if (chain.others > 0) wait_for_count(chain.counters, chain.others);
}

// By each warp that reads or writes what launches share, or stores results, at its end.
template <class P>
FUSOR_DEVICE void leave_chain(const P& p) {
  if constexpr (Config::chained) leave(p.chain);
}
