// Owns the second launch of attention_decode where parts of the keys meet in the workspace, a programmatic
// one: it adds up the parts of every row in order. kLanes lanes share the parts of 4 values of a row.
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/tiled/attention/packed_rows.cuh"

enum : int {
  kThreads = 128,
  kLanes = Config::finish_lanes,
  kTogether = kThreads / kLanes,                                   // vectors of a block
  kOfTile = (kRows * Part::kVectors + kTogether - 1) / kTogether,  // blocks
};

extern "C" __global__ void __launch_bounds__(kThreads) decode_finish(const __grid_constant__ Params p) {
  constexpr int kAcross = 32 / kLanes;
  const int block = static_cast<int>(block_number()), number = block / kOfTile;
  const int thread = static_cast<int>(threadIdx.x), first = block % kOfTile * kTogether;
  const RowTile tile(p, number);
  const int vectors = tile.rows() * Part::kVectors;
  if (first >= vectors) return;
  enter_launch();
  const int parts = static_cast<int>(p.rows.parts);
  const Part* const of_tile = p.parts + i64(number) * parts;
  finish_vector<kLanes>(p, tile, parts, first + thread / 32 * kAcross + thread % kAcross, vectors,
                        [&](int part) { return of_tile + part; });
}
