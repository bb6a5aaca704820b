// Owns the maps of ragged operands: a warp for each entry, which settles where the entry begins and how many
// rows it has, and points a map there (PTX ISA, "tensormap.replace", "tensormap.cp_fenceproxy").
//
// Where lengths decide which tiles have anything to do, each block settles, too, where its sequence stands in
// their order (order.cuh): it counts the tiles of sequences with more to do.
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"

struct A;  // where an entry of the first operand begins and ends
struct B;
struct C;
struct D;
struct E;  // how many rows of an entry of the first operand exist, where a mask says so
struct F;
struct G;
struct H;
struct N;  // how many keys and queries of a sequence exist
struct O;  // where an entry of the first result begins and ends
struct Z;

enum : int { kOperands = Config::operands };

template <class Site, class Args>
FUSOR_DEVICE i64 length_of(const Args& args, i64 entries) {
  Index at[Site::kRank] = {};
  at[0] = min(i64(blockIdx.x), entries - 1);
  return Site::template apply<1>(args, at, 1)[0];
}

template <class Site, class Args>
FUSOR_DEVICE void find_bounds(const Args& args, int entry, i64& start, i64& end) {
  Index at[Site::kRank] = {};
  at[0] = entry;
  const auto bounds = Site::template apply<1>(args, at, 1);
  start = bounds.value[0];
  end = bounds.second[0];
}

// How many rows exist, and whether a map says so: all of them are whole and begin where one can.
FUSOR_DEVICE void settle(const RaggedFacts& facts, i64 limit, RaggedEntry& entry) {
  constexpr i64 kUnit = 8;  // elements of 16 bytes
  entry.end = min(entry.end, facts.reach);
  const i64 left = max(entry.end - entry.start, i64(0)), whole = left / facts.stride,
            rest = left - whole * facts.stride;
  const i64 rows = whole + (rest >= facts.span ? 1 : 0);
  entry.rows = max(min(limit, facts.rows), i64(0));
  const bool are_whole = rest == 0 || rest >= facts.span || whole >= entry.rows;
  if (are_whole) entry.rows = min(entry.rows, rows);
  entry.mapped = are_whole && entry.start >= 0 && entry.start % kUnit == 0 && entry.rows > 0;
}

// By a warp.
FUSOR_DEVICE void write_map(const TensorMap& form, const RaggedFacts& facts, const RaggedEntry& entry,
                            TensorMap& shared, RaggedEntry& to) {
  const int lane = threadIdx.x % 32;
  if (lane < 16) shared.words[lane] = form.words[lane];
  __syncwarp();
  if (lane == 0) {
    asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(
                     shared_address(&shared)),
                 "l"(facts.data + entry.start)
                 : "memory");
    asm volatile(
        "tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(shared_address(&shared)),
        "r"(static_cast<u32>(entry.rows))
        : "memory");
  }
  __syncwarp();
  asm volatile(
      "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], "
      "128;" ::"l"(&to.map),
      "r"(shared_address(&shared))
      : "memory");
}

template <class Bounds, class Args>
FUSOR_DEVICE void make_map(const TensorMap& form, const RaggedFacts& facts, const Args& bounds, i64 limit,
                           TensorMap& shared) {
  const int number = blockIdx.x;
  if (number >= facts.entries) return;
  RaggedEntry entry;
  find_bounds<Bounds>(bounds, number, entry.start, entry.end);
  settle(facts, limit, entry);
  RaggedEntry& to = facts.to[number];
  if (threadIdx.x == 0) {
    to.start = entry.start;
    to.end = entry.end;
    to.rows = entry.rows;
    to.mapped = entry.mapped;
  }
  if (entry.mapped) write_map(form, facts, entry, shared, to);
}

// Operands from the first on have the maps a, b, ..., and their lengths, as far as Config::lengths has a bit
// for them, the sites E, F, ...
template <class P>
FUSOR_DEVICE void make_maps(const P& p, TensorMap* shared) {
  i64 limit = p.facts_a.rows;
  if constexpr (Config::lengths & 1) limit = length_of<E>(p.e, p.facts_a.entries);
  make_map<A>(p.map_a, p.facts_a, p.a, limit, shared[0]);
  if constexpr (kOperands > 1) {
    limit = p.facts_b.rows;
    if constexpr (Config::lengths & 2) limit = length_of<F>(p.f, p.facts_b.entries);
    make_map<B>(p.map_b, p.facts_b, p.b, limit, shared[1]);
  }
  if constexpr (kOperands > 2) {
    limit = p.facts_c.rows;
    if constexpr (Config::lengths & 4) limit = length_of<G>(p.g, p.facts_c.entries);
    make_map<C>(p.map_c, p.facts_c, p.c, limit, shared[2]);
  }
  if constexpr (kOperands > 3) {
    limit = p.facts_d.rows;
    if constexpr (Config::lengths & 8) limit = length_of<H>(p.h, p.facts_d.entries);
    make_map<D>(p.map_d, p.facts_d, p.d, limit, shared[3]);
  }
}

// The rows of a result of which an entry has any element: tiles write them, whatever lengths say.
template <class Bounds, class Args>
FUSOR_DEVICE i64 rows_of_result(const Args& args, const ResultReach& result, int sequence) {
  i64 start, end;
  find_bounds<Bounds>(args, sequence, start, end);
  end = min(end, result.reach);
  return end > start && result.stride > 0 ? (end - start + result.stride - 1) / result.stride : 0;
}

// The tiles of a sequence that have anything to do, and how much the longest of them has.
template <class Lengths, class FirstResult, class SecondResult, class P>
FUSOR_DEVICE void find_tiles(const P& p, int sequence, int& tiles, int& most) {
  Index at[Lengths::kRank] = {};
  at[0] = sequence;
  int keys, queries;
  find_lengths<Lengths>(p, at, keys, queries);
  most = Config::order_by_keys ? queries : keys;
  i64 rows = max(p.order.least, i64(Config::order_by_keys ? keys : queries));
  if constexpr (Config::order_results > 0)
    rows = max(rows, rows_of_result<FirstResult>(p.o, p.result_a, sequence));
  if constexpr (Config::order_results > 1)
    rows = max(rows, rows_of_result<SecondResult>(p.z, p.result_b, sequence));
  tiles = static_cast<int>((min(rows, p.order.rows) + p.order.tile - 1) / p.order.tile);
}

// By a warp, for sequence blockIdx.x.
template <class P>
FUSOR_DEVICE void place_in_order(const P& p) {
  const int sequences = static_cast<int>(p.order.sequences), heads = static_cast<int>(p.order.heads),
            mine = blockIdx.x;
  if (mine >= sequences) return;
  int tiles, most;
  find_tiles<N, O, Z>(p, mine, tiles, most);
  int place = 0, first = 0, items = 0;
#pragma unroll 1
  for (int other = threadIdx.x; other < sequences; other += 32) {
    int its_tiles, its_most;
    find_tiles<N, O, Z>(p, other, its_tiles, its_most);
    const bool before = its_most > most || (its_most == most && other < mine);
    place += before;
    first += before ? its_tiles * heads : 0;
    items += its_tiles * heads;
  }
  place = __reduce_add_sync(0xffffffff, place);
  first = __reduce_add_sync(0xffffffff, first);
  items = __reduce_add_sync(0xffffffff, items);
  if (mine == 0) p.order.to->taken[threadIdx.x] = 0;
  if (threadIdx.x != 0) return;
  p.order.to->runs[place] = {first, mine, tiles, 0};
  if (mine == 0) p.order.to->items = items;
}

extern "C" __global__ void __launch_bounds__(32) attention_ragged_maps(const __grid_constant__ Params p) {
  __shared__ alignas(128) TensorMap shared[kOperands];
  enter_launch(p);
  make_maps(p, shared);
  if constexpr (Config::ordered) place_in_order(p);
  leave_launch(p);
}
