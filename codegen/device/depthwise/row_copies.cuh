// Owns how rows of octets come into shared memory for tensor cores: which octet a number names, and one chunk
// of every row (octets.cuh). Params has `octets` of a row and `columns`, the octets of all images.
#pragma once

#include "codegen/device/depthwise/octets.cuh"
#include "codegen/device/tiled/warp_mma.cuh"

struct Octet {
  Index image, first;  // result
  bool exists;

  __device__ __forceinline__ Octet(const Params& p, Index number) {
    exists = number < Index(p.columns);
    if (!exists) number = 0;
    first = p.octets.split(number) * 8;
    image = number;
  }
};

/// One chunk of every row, of x or dy: a thread copies it row by row.
template <class Site>
struct ChunkOfRows {
  const typename Site::Stored* first;  // in row 0
  Index row;                           // the next one
  bool inside;

  __device__ __forceinline__ void begin(const typename Site::Args& args, Index image, Index channel, Index at,
                                        Index next_row, bool exists) {
    const Index place[5] = {image, exists ? channel : Index(0), 0, 0, exists ? at : Index(0)};
    first = Site::address(args, place);
    row = next_row;
    inside = exists;
  }
  static __device__ __forceinline__ Index pitch(const typename Site::Args& args) {
    const Index origin[5] = {}, below[5] = {0, 0, 0, 1, 0};
    return Index(Site::address(args, below) - Site::address(args, origin));
  }
  __device__ __forceinline__ void copy(u32 to, Index rows, Index pitch) const {
    const bool holds = inside && row >= 0 && row < rows;
    copy_async<16>(to, holds ? first + row * pitch : first, holds);
  }
};
