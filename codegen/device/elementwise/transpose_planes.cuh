// Owns the transposing kernel of small planes: a tile is the whole planes of kChannels neighbouring channels.
//
//   NCHW: one run of memory       shared memory, in the run's order             NHWC: channels side by side
//   load_run, store_run    <-->   plane of channel 0 | 1 | ... | pad | ... <--> load_channels, store_channels
//   units of 16 bytes             [kChannels / kVector][plane | 1] units        vectors of kVector channels
//
//   kRunLoads says which side loads; the other side stores through Y. Neither the extent of a plane nor its
//   alignment matters to the run; the padding to an odd number of units keeps channel vectors in other banks.
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"

enum : int {
  kVector = Config::vector,  // 16 bytes of what is staged
  kThreads = Config::threads,
  kChannels = Config::channels,  // of a tile
};
enum : bool { kRunLoads = Config::run_loads };  // the loads run through planes, else the stores
enum : int {
  kPlaneAxis = kRunLoads ? Y::kRank - 2 : Y::kRank - 1,
  kChannelAxis = kRunLoads ? Y::kRank - 1 : Y::kRank - 2,
  kVectors = kChannels / kVector,  // of channels, at one position
  kBatch = 4,                      // loads that a thread has in flight
};
static_assert(kThreads % kVectors == 0, "a thread keeps its channels");

// plane: positions of one; extents: in tiles.

using Element = X0::Stored;
using Unit = Vec<Element, kVector>;

// The planes of kVector channels are as many units as a plane has positions, padded to an odd number, so that
// the same position of other channels lies in other banks.
struct PlaneTile {
  Element* elements;
  const FastDivisor& plane;

  __device__ __forceinline__ Unit& unit(int number) const {
    const int even = -static_cast<int>(~plane.divisor & 1);
    return reinterpret_cast<Unit*>(elements)[number + (static_cast<int>(plane.divide(number)) & even)];
  }
  // The element of a vector's first channel; those of its other channels are a plane apart each.
  __device__ __forceinline__ Element* element(int vector, int position) const {
    return elements + vector * (static_cast<int>(plane.divisor) | 1) * kVector + position;
  }
};

// Units of a tile's run. Elements stay as they are stored until they reach Y.
template <class Corner>
static __device__ __forceinline__ void load_run(const PlaneTile& tile, const Params& p, const Corner& corner,
                                                int units) {
  for (int first = threadIdx.x; first < units; first += kThreads * kBatch) {
    Unit loaded[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      Index at[Y::kRank];
#pragma unroll
      for (int axis = 0; axis < Y::kRank; ++axis) at[axis] = corner[axis];
      at[kPlaneAxis] = (first + i * kThreads) * kVector;
      if (first + i * kThreads < units) loaded[i] = load_whole<kVector>(X0::address(p.x0, at), kVector);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
      if (first + i * kThreads < units) tile.unit(first + i * kThreads) = loaded[i];
  }
}
template <class Corner>
static __device__ __forceinline__ void store_run(const PlaneTile& tile, const Params& p, Corner& at,
                                                 int units) {
#pragma unroll 2
  for (int unit = threadIdx.x; unit < units; unit += kThreads) {
    at[kPlaneAxis] = unit * kVector;
    Y::apply<kVector>(p.y, at, kVector, widen(tile.unit(unit)));
  }
}

// A thread's vector of channels, position by position.
template <class Corner>
static __device__ __forceinline__ void load_channels(const PlaneTile& tile, const Params& p,
                                                     const Corner& corner, int vector) {
  constexpr int kTogether = kThreads / kVectors;
  const int plane = static_cast<int>(p.plane.divisor);
  for (int first = threadIdx.x / kVectors; first < plane; first += kTogether * kBatch) {
    Unit loaded[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      Index at[Y::kRank];
#pragma unroll
      for (int axis = 0; axis < Y::kRank; ++axis) at[axis] = corner[axis];
      at[kPlaneAxis] = first + i * kTogether;
      if (first + i * kTogether < plane) loaded[i] = load_whole<kVector>(X0::address(p.x0, at), kVector);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i * kTogether >= plane) break;
      Element* const to = tile.element(vector, first + i * kTogether);
#pragma unroll
      for (int lane = 0; lane < kVector; ++lane) to[lane * plane] = loaded[i].lane[lane];
    }
  }
}
template <class Corner>
static __device__ __forceinline__ void store_channels(const PlaneTile& tile, const Params& p, Corner& at,
                                                      int vector) {
  const int plane = static_cast<int>(p.plane.divisor);
#pragma unroll 2
  for (int position = threadIdx.x / kVectors; position < plane; position += kThreads / kVectors) {
    const Element* const from = tile.element(vector, position);
    Unit unit;
#pragma unroll
    for (int lane = 0; lane < kVector; ++lane) unit.lane[lane] = from[lane * plane];
    at[kPlaneAxis] = position;
    Y::apply<kVector>(p.y, at, kVector, widen(unit));
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) transpose_planes(const __grid_constant__ Params p) {
  extern __shared__ __align__(16) u8 memory[];
  enter_launch(p);
  const PlaneTile tile{reinterpret_cast<Element*>(memory), p.plane};
  Index corner[Y::kRank];
  coordinates<0, Y::kRank>(blockIdx.x, p.extents, corner);
  corner[kPlaneAxis] = 0;
  corner[kChannelAxis] *= kChannels;
  const Index rest = p.channels - corner[kChannelAxis];
  const int channels = rest < kChannels ? static_cast<int>(rest) : kChannels;
  const int units = channels / kVector * static_cast<int>(p.plane.divisor);
  const int vector = threadIdx.x % kVectors;

  Index mine[Y::kRank];
#pragma unroll
  for (int axis = 0; axis < Y::kRank; ++axis) mine[axis] = corner[axis];
  mine[kChannelAxis] += vector * kVector;
  const bool exists = vector * kVector < channels;
  if constexpr (kRunLoads) {
    load_run(tile, p, corner, units);
    __syncthreads();
    if (exists) store_channels(tile, p, mine, vector);
  } else {
    if (exists) load_channels(tile, p, mine, vector);
    __syncthreads();
    store_run(tile, p, corner, units);
  }
  leave_launch(p);
}
