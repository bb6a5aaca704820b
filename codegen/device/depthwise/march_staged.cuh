// Owns depthwise fprop and dgrad of small planes by marching over shared memory: rows of few pixels lie too
// far apart for lanes to load and store them one by one.
//
//   128 threads = width (planes of one image) x lanes (all strips of a plane); a block takes `steps` images
//
//   A ─► prologue ─► planes[width][rows][pitch], fp32, zeros around     threads: a row each
//   lanes march as in depthwise/march.cuh ─► results[width][rows][row]
//   results ─► Y                                                        threads: neighbours, kAlong each
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/depthwise/ring.cuh"

// images: all; steps: of a block; rows: of a strip; stage: what lies in shared memory.

enum : int { kRead = Config::read };  // neighbours of a plane that one access of shared memory reads

/// Columns of a strip, from a plane in shared memory.
struct StagedLines {
  const float* columns;  // the strip's first column in row 0
  Index pitch;
  const float* row;

  __device__ __forceinline__ void fetch(const Index (&at)[5]) { row = columns + at[3] * pitch; }
  __device__ __forceinline__ void take(Line<kColumns>& line, bool inside) const {
    using Piece = Vec<float, kRead>;
#pragma unroll
    for (int i = 0; i < kColumns; i += kRead) {
      Piece piece = {};
      if (inside) piece = *reinterpret_cast<const Piece*>(row + i);
#pragma unroll
      for (int v = 0; v < kRead; ++v)
        if (i + v < kColumns) line.at[i + v][0] = piece[v];
    }
  }
};

/// The block's shared memory behind the filters, and its channels.
struct Block {
  float *planes, *results;
  Index first, channels;
};

FUSOR_DEVICE void clear_planes(const Params& p, const Block& block) {
  const int end = int(p.channels.width.divisor * Index(p.stage.plane));
  for (int i = int(threadIdx.x); i < end; i += int(blockDim.x)) block.planes[i] = 0.0f;
}

FUSOR_DEVICE void load_planes(const Params& p, const Block& block, Index image) {
  const Index positions = Index(p.window.axis[2].positions);
  const Index rows = block.channels * p.stage.lines.divisor;
#pragma unroll 1
  for (Index i = threadIdx.x; i < rows; i += Index(blockDim.x)) {
    Index channel = i;
    const Index row = p.stage.lines.split(channel);
    Index at[5] = {image, block.first + channel, 0, row};
    float* const to =
        block.planes + channel * Index(p.stage.plane) + row * Index(p.stage.pitch) - Index(p.stage.first);
#pragma unroll 4
    for (Index x = 0; x < positions; x += kLoad) {
      at[4] = x;
      const auto values = A::apply<kLoad>(p.a, at, kLoad);
#pragma unroll
      for (int v = 0; v < kLoad; ++v) to[x + v] = static_cast<float>(values[v]);
    }
  }
}

FUSOR_DEVICE void store_planes(const Params& p, const Block& block, Index image) {
  const Index count = block.channels * p.stage.rows.divisor * p.stage.accesses.divisor;
#pragma unroll 2
  for (Index i = threadIdx.x; i < count; i += Index(blockDim.x)) {
    Index channel = i;
    const Index x = p.stage.accesses.split(channel) * kAlong;
    const Index row = p.stage.rows.split(channel);
    const Index at[5] = {image, block.first + channel, 0, row, x};
    const float* const from =
        block.results + channel * Index(p.stage.results) + row * Index(p.window.axis[2].results) + x;
    Vec<float, kAlong> values;
#pragma unroll
    for (int v = 0; v < kAlong; ++v) values[v] = from[v];
    Y::apply<kAlong>(p.y, at, kAlong, values);
  }
}

FUSOR_DEVICE void make_strip(const Params& p, const Filters& filters, const Block& block, Index column,
                             Index strip) {
  const Index row_results = Index(p.window.axis[2].results);
  Window::AxisRun runs[3];
  Index from[5] = {};
  if (!p.window.locate(strip, runs, from[0], Index(p.rows))) return;
  const auto lines = [&] {
    const float* const plane = block.planes + column * Index(p.stage.plane);
    return StagedLines{plane + (runs[2].position - Index(p.stage.first)), Index(p.stage.pitch), nullptr};
  };
  float* const results = block.results + column * Index(p.stage.results);
  march_down(p.window, Index(p.rows), filters, runs, from, lines,
             [&](const Index(&to)[5], const Line<kStrip>& sums) {
#pragma unroll
               for (int i = 0; i < kStrip; ++i)
                 if (!Config::tails || runs[2].result + i < row_results)
                   results[to[3] * row_results + runs[2].result + i] = sums.at[i][0];
             });
}

extern "C" __global__ void __launch_bounds__(kThreads, Config::blocks)
    depthwise_march_staged(const __grid_constant__ Params p) {
  extern __shared__ Filters::Pack shared_filters[];
  enter_launch();
  Index image = block_number();
  const Index tile = p.channels.tiles.split(image);
  Index lane;
  const Index column = column_of_thread(p.channels, lane);
  Block block;
  block.first = tile * p.channels.width.divisor;
  block.channels = Index(p.channels.vectors) - block.first;
  if (block.channels > p.channels.width.divisor) block.channels = p.channels.width.divisor;
  block.planes = reinterpret_cast<float*>(shared_filters) + Index(p.stage.begin);
  block.results = block.planes + p.channels.width.divisor * Index(p.stage.plane);
  const Filters filters(shared_filters, p.window.taps(), column);
  if (column < block.channels)
    filters.stage(p.window, p.b, block.first + column, lane, Index(p.channels.lanes));
  clear_planes(p, block);
  image *= Index(p.steps);
#pragma unroll 1
  for (Index step = 0; step < Index(p.steps) && image < Index(p.images); ++step, ++image) {
    __syncthreads();
    load_planes(p, block, image);
    __syncthreads();
    if (column < block.channels) make_strip(p, filters, block, column, lane);
    __syncthreads();
    store_planes(p, block, image);
  }
}
