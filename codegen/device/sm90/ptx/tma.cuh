// Owns sm_90's asynchronous copies and what they signal: barriers in shared memory (mbarrier), tensor copies
// (TMA) in and out, clusters, and the register budgets of warpgroups (PTX ISA, "Asynchronous copy",
// "mbarrier", "setmaxnreg").
#pragma once

#include "codegen/device/sm90/pipeline/map_entry.cuh"

struct alignas(64) TensorMap {
  u64 words[16];
};

// ---- Clusters ----

FUSOR_DEVICE u32 cluster_rank() {
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// All threads of all blocks meet, and see what each has written before.
FUSOR_DEVICE void synchronise_cluster() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
// The same in two steps, without a word on what was written but for barriers that fence_barriers() follows:
// waiting for writes of the whole GPU takes half a microsecond.
FUSOR_DEVICE void arrive_at_cluster() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
FUSOR_DEVICE void wait_for_cluster() {
  __syncwarp();
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}

// ---- Barriers ----

// Counts arrivals and bytes; its phase flips when all have arrived.
struct Barrier {
  u64 word;

  __device__ void init(u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&word)), "r"(arrivals)
                 : "memory");
  }
  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&word)) : "memory");
  }
  // Arrives at the same barrier of another block of the cluster.
  __device__ void arrive_at(u32 rank) {
    asm volatile(
        "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(shared_address(&word)),
        "r"(rank)
        : "memory");
  }
  __device__ void arrive_and_expect(u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&word)),
                 "r"(bytes)
                 : "memory");
  }
  // Adds to the bytes of this phase without arriving.
  __device__ void expect(u32 bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&word)),
                 "r"(bytes)
                 : "memory");
  }
  // Waits until the phase of this parity is over.
  __device__ void wait(u32 parity) {
    asm volatile(
        "{\n.reg .pred done;\nAGAIN:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra AGAIN;\n}" ::"r"(shared_address(&word)),
        "r"(parity)
        : "memory");
  }
};

// Makes initialised barriers visible to TMA and to the cluster.
FUSOR_DEVICE void fence_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// Waits until `threads` threads have arrived at this named barrier (1 to 15).
FUSOR_DEVICE void wait_for_threads(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Arrives there without waiting.
FUSOR_DEVICE void arrive_for_threads(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// ---- Copies to shared memory ----

FUSOR_DEVICE void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Copies bytes that lie one behind the other; their number and both places are multiples of 16.
FUSOR_DEVICE void copy_bytes(void* shared, const void* from, int bytes, Barrier& barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(shared)),
      "l"(from), "r"(bytes), "r"(shared_address(&barrier.word))
      : "memory");
}
// Copies a box at (c0, c1, c2) of a 3-D map to shared memory; its bytes arrive at the barrier.
FUSOR_DEVICE void copy_box(void* shared, const TensorMap& map, Barrier& barrier, int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, "
      "%5}], [%2];" ::"r"(shared_address(shared)),
      "l"(&map), "r"(shared_address(&barrier.word)), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}
// Copies a box to every block of the cluster that `blocks` has a bit for: to the same place in each, its
// bytes arriving at each one's barrier.
FUSOR_DEVICE void copy_box_to(u16 blocks, void* shared, const TensorMap& map, Barrier& barrier, int c0,
                              int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(shared)),
      "l"(&map), "r"(shared_address(&barrier.word)), "r"(c0), "r"(c1), "r"(c2), "h"(blocks)
      : "memory");
}

// Both of a 5-D map, whose last axes are those of a batch.
template <int kBatch>
FUSOR_DEVICE void copy_box(void* shared, const TensorMap& map, Barrier& barrier, int c0, int c1,
                           const MapEntry<kBatch>& entry) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, "
      "%5, %6, %7}], [%2];" ::"r"(shared_address(shared)),
      "l"(&map), "r"(shared_address(&barrier.word)), "r"(c0), "r"(c1), "r"(entry.at[2]), "r"(entry.at[1]),
      "r"(entry.at[0])
      : "memory");
}
template <int kBatch>
FUSOR_DEVICE void copy_box_to(u16 blocks, void* shared, const TensorMap& map, Barrier& barrier, int c0,
                              int c1, const MapEntry<kBatch>& entry) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(shared_address(shared)),
      "l"(&map), "r"(shared_address(&barrier.word)), "r"(c0), "r"(c1), "r"(entry.at[2]), "r"(entry.at[1]),
      "r"(entry.at[0]), "h"(blocks)
      : "memory");
}

// Copies a box of a map of planes: from `at` of plane `plane` in image `image`. Axes of a plane are outermost
// first, as everywhere.
FUSOR_DEVICE void copy_planes(void* shared, const TensorMap& map, Barrier& barrier, const int (&at)[1],
                              int plane, int image) {
  copy_box(shared, map, barrier, at[0], plane, image);
}
FUSOR_DEVICE void copy_planes(void* shared, const TensorMap& map, Barrier& barrier, const int (&at)[2],
                              int plane, int image) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, "
      "%5, %6}], [%2];" ::"r"(shared_address(shared)),
      "l"(&map), "r"(shared_address(&barrier.word)), "r"(at[1]), "r"(at[0]), "r"(plane), "r"(image)
      : "memory");
}
FUSOR_DEVICE void copy_planes(void* shared, const TensorMap& map, Barrier& barrier, const int (&at)[3],
                              int plane, int image) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, "
      "%5, %6, %7}], [%2];" ::"r"(shared_address(shared)),
      "l"(&map), "r"(shared_address(&barrier.word)), "r"(at[2]), "r"(at[1]), "r"(at[0]), "r"(plane),
      "r"(image)
      : "memory");
}

// Copies a column of pixels of an im2col map: `channel` on, from the pixel whose window begins at `at` in
// image `image`, with the tap `offset`. Spatial axes are outermost first, as everywhere.
FUSOR_DEVICE void copy_pixels(void* shared, const TensorMap& map, Barrier& barrier, int channel,
                              const int (&at)[1], int image, const u16 (&offset)[1]) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
      "%4, %5}], [%2], {%6};" ::"r"(shared_address(shared)),
      "l"(&map), "r"(shared_address(&barrier.word)), "r"(channel), "r"(at[0]), "r"(image), "h"(offset[0])
      : "memory");
}
FUSOR_DEVICE void copy_pixels(void* shared, const TensorMap& map, Barrier& barrier, int channel,
                              const int (&at)[2], int image, const u16 (&offset)[2]) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
      "%4, %5, %6}], [%2], {%7, %8};" ::"r"(shared_address(shared)),
      "l"(&map), "r"(shared_address(&barrier.word)), "r"(channel), "r"(at[1]), "r"(at[0]), "r"(image),
      "h"(offset[1]), "h"(offset[0])
      : "memory");
}
FUSOR_DEVICE void copy_pixels(void* shared, const TensorMap& map, Barrier& barrier, int channel,
                              const int (&at)[3], int image, const u16 (&offset)[3]) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
      "%4, %5, %6, %7}], [%2], {%8, %9, %10};" ::"r"(shared_address(shared)),
      "l"(&map), "r"(shared_address(&barrier.word)), "r"(channel), "r"(at[2]), "r"(at[1]), "r"(at[0]),
      "r"(image), "h"(offset[2]), "h"(offset[1]), "h"(offset[0])
      : "memory");
}

// The same to every block of the cluster that `blocks` has a bit for, as copy_box_to().
FUSOR_DEVICE void copy_pixels_to(u16 blocks, void* shared, const TensorMap& map, Barrier& barrier,
                                 int channel, const int (&at)[1], int image, const u16 (&offset)[1]) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%3, %4, %5}], [%2], {%6}, %7;" ::"r"(shared_address(shared)),
      "l"(&map), "r"(shared_address(&barrier.word)), "r"(channel), "r"(at[0]), "r"(image), "h"(offset[0]),
      "h"(blocks)
      : "memory");
}
FUSOR_DEVICE void copy_pixels_to(u16 blocks, void* shared, const TensorMap& map, Barrier& barrier,
                                 int channel, const int (&at)[2], int image, const u16 (&offset)[2]) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8}, %9;" ::"r"(shared_address(shared)),
      "l"(&map), "r"(shared_address(&barrier.word)), "r"(channel), "r"(at[1]), "r"(at[0]), "r"(image),
      "h"(offset[1]), "h"(offset[0]), "h"(blocks)
      : "memory");
}
FUSOR_DEVICE void copy_pixels_to(u16 blocks, void* shared, const TensorMap& map, Barrier& barrier,
                                 int channel, const int (&at)[3], int image, const u16 (&offset)[3]) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2], {%8, %9, %10}, %11;" ::"r"(shared_address(shared)),
      "l"(&map), "r"(shared_address(&barrier.word)), "r"(channel), "r"(at[2]), "r"(at[1]), "r"(at[0]),
      "r"(image), "h"(offset[2]), "h"(offset[1]), "h"(offset[0]), "h"(blocks)
      : "memory");
}

// ---- Copies from shared memory ----

// Four 8 x 8 matrices of 16-bit elements; of each, a lane has elements 2 (lane % 4) and the next of line lane
// / 4. Lane 8 i + j gives the place of line j of matrix i; transposed, lines are what columns were.
template <bool kTransposed>
FUSOR_DEVICE void store_matrices(void* shared, u32 a, u32 b, u32 c, u32 d) {
  if constexpr (kTransposed)
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     shared_address(shared)),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
  else
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(shared)),
        "r"(a), "r"(b), "r"(c), "r"(d)
        : "memory");
}

// Such matrices, as store_matrices() leaves them.
template <bool kTransposed>
FUSOR_DEVICE void load_matrices(u32 (&words)[4], const void* shared) {
  if constexpr (kTransposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(shared_address(shared))
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(shared_address(shared))
                 : "memory");
}

// Makes this thread's writes to shared memory visible to TMA and wgmma.
FUSOR_DEVICE void fence_shared_writes() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
FUSOR_DEVICE void store_box(const TensorMap& map, const void* shared, int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map),
      "r"(shared_address(shared)), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}
template <int kBatch>
FUSOR_DEVICE void store_box(const TensorMap& map, const void* shared, int c0, int c1,
                            const MapEntry<kBatch>& entry) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(
          &map),
      "r"(shared_address(shared)), "r"(c0), "r"(c1), "r"(entry.at[2]), "r"(entry.at[1]), "r"(entry.at[0])
      : "memory");
}
// Bytes that lie one behind the other; their number and both places are multiples of 16.
FUSOR_DEVICE void store_bytes(void* to, const void* shared, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(shared)), "r"(bytes)
               : "memory");
}
FUSOR_DEVICE void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Waits until this thread's stores, but for the last kPending groups, have read their shared memory.
template <int kPending>
FUSOR_DEVICE void wait_for_stores() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Waits until this thread's stores are where they go.
FUSOR_DEVICE void finish_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// ---- Registers ----

template <int kRegisters>
FUSOR_DEVICE void release_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
FUSOR_DEVICE void claim_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
