// Owns the kernel that finds the ranges of the numbers which a mask compares: a warp for each tile of queries
// and each block of keys. It sets the count of tiles that have been asked for to zero, too.
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/sm90/attention/live_blocks.cuh"

struct R;  // the number of a query
struct C;  // the number of a key

enum : int { kRank = R::kRank };

// Finds the range of numbers of the rows along kAxis that begin with `first`: `count` of them, or as many as
// exist.
template <class Site, int kAxis, class P, class Args>
FUSOR_DEVICE void find_range(const P& p, const Args& args, i64 entry, i64 first, i64 count, i64 rows,
                             ValueRange& to) {
  Index at[kRank] = {};
  coordinates<0, kRank - 2>(Index(entry), p.extents, at);
  const i64 end = min(first + count, rows);
  ValueRange range{kLargest<i64>, kLowest<i64>};
#pragma unroll 1
  for (i64 row = first + threadIdx.x % 32; row < end; row += 32) {
    at[kAxis] = Index(row);
    const i64 value = Site::template apply<1>(args, at, 1)[0];
    range.least = min(range.least, value);
    range.most = max(range.most, value);
  }
#pragma unroll
  for (int far = 16; far > 0; far /= 2) {
    range.least = min(range.least, i64(__shfl_xor_sync(0xffffffff, range.least, far)));
    range.most = max(range.most, i64(__shfl_xor_sync(0xffffffff, range.most, far)));
  }
  if (threadIdx.x % 32 == 0) to = range;
}

extern "C" __global__ void __launch_bounds__(128) attention_value_ranges(const __grid_constant__ Params p) {
  enter_launch();
  if (blockIdx.x == 0 && threadIdx.x == 0) *p.taken = 0;
  const i64 tiles = (p.queries + p.tile_q - 1) / p.tile_q, blocks = (p.keys + p.tile_k - 1) / p.tile_k;
  i64 number = i64(blockIdx.x) * 4 + threadIdx.x / 32;
  if (number < p.entries * tiles) {
    find_range<R, kRank - 2>(p, p.r, number / tiles, number % tiles * p.tile_q, p.tile_q, p.queries,
                             p.of_queries[number]);
    return;
  }
  number -= p.entries * tiles;
  if (number < p.entries * blocks)
    find_range<C, kRank - 1>(p, p.c, number / blocks, number % blocks * p.tile_k, p.tile_k, p.keys,
                             p.of_keys[number]);
}
