// Owns the kernel that stores packed elements, several of which share a byte: every byte is computed and
// stored whole by one thread, so that no two threads write parts of one.
//
//   rows that begin with a byte (kWholeRows)            any other place: rows of 3 elements, say
//
//   memory   |aa|aa|aa|a.|  |bb|bb|bb|b.|               |aa|ab|bb|cc|c.|
//   thread    0  0  1  1     2  2  3  3                  0  0  1  1  2
//   computes  apply<kVector> along the row              the same within a row of neighbours; elsewhere one
//                                                       by one, by coordinates that follow from the place
//
//   Where memory between elements is wide, places are walked in runs: coordinates along the kOuter axes of
//   the longest strides name a run, and no thread looks at what lies between two. A byte in which runs meet
//   is stored by the run of its first element.
//
//   A byte's lanes that belong to no element are zero; bytes without any element stay as they are.
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"

enum : int {
  kVector = Config::vector,  // elements of a thread: whole bytes
  kThreads = Config::threads,
};
enum : bool {
  kWholeRows = Config::whole_rows,
  kWholeStores = Config::whole_stores,  // every vector begins on a multiple of its bytes
  kAdjacent = Config::adjacent,         // along the last axis
};
enum : int {
  kOuter = Config::outer,  // axes from run to run of places
  kLast = Y::kRank - 1,
};

using Stored = Y::Stored;
enum : int {
  kShared = PackedPointer<Stored>::kShared,
  kBytes = kVector / kShared,
};
static_assert(kVector % kShared == 0, "a thread stores whole bytes");

// bytes: the result's; threads: that have elements. Whole rows: extents, the last one in vectors;
// row_extent: elements of a row; strides: bytes between neighbours along an axis but the last. Else first,
// end: the places of the first element and behind the last in the result's memory; pieces: threads of a run;
// strides: elements, from the longest to the shortest, axes of one element in front; extents by axis.

// Bytes of `count` elements.
static __device__ __forceinline__ void store_bytes(u8* to, const Vec<Stored, kVector>& elements, int count) {
  const Vec<u8, kBytes> bytes = packed(elements);
  if constexpr (kWholeStores)
    store_whole(to, bytes, (count + kShared - 1) / kShared);
  else
    store_strided(to, 1, bytes, (count + kShared - 1) / kShared);
}

static __device__ __forceinline__ void visit_row(const Params& p, Index number) {
  Index at[Y::kRank];
  coordinates<0, Y::kRank>(number, p.extents, at);
  Index place = at[kLast] * kBytes;
#pragma unroll
  for (int axis = 0; axis < kLast; ++axis) place += at[axis] * p.strides[axis].divisor;
  at[kLast] *= kVector;
  const Index left = p.row_extent - at[kLast];
  const int count = left < kVector ? static_cast<int>(left) : kVector;
  store_bytes(p.bytes + place, narrow<Stored>(Y::apply<kVector>(p.y, at, count)), count);
}

// The coordinates of the element at `place`, and whether there is one.
static __device__ __forceinline__ bool find(const Params& p, Index place, Index (&at)[Y::kRank]) {
  bool exists = place >= p.first && place < p.end;
  Index left = place - p.first;
#pragma unroll
  for (int axis = 0; axis < Y::kRank; ++axis) {
    Index number = left;
    left = p.strides[axis].split(number);
    at[axis] = number;
    exists = exists && number < p.extents[axis].divisor;
  }
  return exists && left == 0;
}

// Whether the element at `at` is of the run with the coordinates `run`.
static __device__ __forceinline__ bool is_of_run(const Index (&at)[Y::kRank], const Index (&run)[Y::kRank]) {
  bool is = true;
#pragma unroll
  for (int axis = 0; axis < kOuter; ++axis) is = is && at[axis] == run[axis];
  return is;
}

// Stores the byte, if its first element is of the run.
static __device__ __forceinline__ void visit_byte(const Params& p, Index byte, const Index (&run)[Y::kRank]) {
  u32 bits = 0;
  bool exists = false;
#pragma unroll 1
  for (int lane = 0; lane < kShared; ++lane) {
    Index at[Y::kRank];
    if (!find(p, byte * kShared + lane, at)) continue;
    if (!exists && !is_of_run(at, run)) return;
    exists = true;
    const Stored element = narrow<Stored>(Y::apply<1>(p.y, at, 1).lane[0]);
    bits |= static_cast<u32>(element.bits) << lane * kPackedBits<Stored>;
  }
  if (exists) store(p.bytes + byte, static_cast<u8>(bits));
}

// Stores the bytes from `byte` on, if all of their elements are neighbours in one row, and of the run.
static __device__ __forceinline__ bool visit_within_row(const Params& p, Index byte,
                                                        const Index (&run)[Y::kRank]) {
  Index at[Y::kRank];
  if (!find(p, byte * kShared, at) || p.extents[kLast].divisor - at[kLast] < kVector || !is_of_run(at, run))
    return false;
  store_bytes(p.bytes + byte, narrow<Stored>(Y::apply<kVector>(p.y, at, kVector)), kVector);
  return true;
}

static __device__ __forceinline__ void visit_places(const Params& p, Index number) {
  Index run[Y::kRank] = {};
  Index first = p.first;
  if constexpr (kOuter > 0) {
    Index left = number;
    number = p.pieces.split(left);
    coordinates<0, kOuter>(left, p.extents, run);
#pragma unroll
    for (int axis = 0; axis < kOuter; ++axis) first += run[axis] * p.strides[axis].divisor;
  }
  const Index byte = first / kShared + number * kBytes;
  if (kAdjacent && visit_within_row(p, byte, run)) return;
#pragma unroll 1
  for (int i = 0; i < kBytes; ++i) visit_byte(p, byte + i, run);
}

extern "C" __global__ void __launch_bounds__(kThreads) packed_store(const __grid_constant__ Params p) {
  enter_launch(p);
  const Index number = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  if (number >= p.threads) return;
  if constexpr (kWholeRows)
    visit_row(p, number);
  else
    visit_places(p, number);
  leave_launch(p);
}
