// Owns the stores by threads of full boxes of the tensor-core contraction of sm_90a: line by line, where the
// lines of a tile are no neighbours, or in units of neighbouring pixels, where channels lie apart.
#pragma once

#include "codegen/device/sm90/epilogue/boxes.cuh"
#include "codegen/device/sm90/epilogue/places.cuh"

// The first result as lines of channels, one a pixel.
struct ResultLines {
  Out* first;
  i64 stride;
};
// Or as planes of channels, the positions of an image side by side; channels and images are as far apart.
struct ResultPlanes {
  Out* first;
  i64 channel, image;
};
template <StorePath kPath>
struct TargetOf {
  using type = TensorMap;
};
template <>
struct TargetOf<StorePath::lines> {
  using type = ResultLines;
};
template <>
struct TargetOf<StorePath::planes> {
  using type = ResultPlanes;
};
using Target = TargetOf<store_path()>::type;

template <class Grid>
struct Scatterer {
  const ResultPlaces<Grid> places;
  const int warp;  // in the warpgroup

  // A thread for every 16 bytes of a line. When the next box is sent, all have read this one.
  __device__ void store(const ResultLines& lines, const Tile& tile, int first_row, int column,
                        const u8* box) const {
    constexpr int kUnit = 16 / int(sizeof(Out)), kLines = kAlongColumns ? 16 : kBoxColumns;
    constexpr int kUnits = Box<Out>::kLine / 16, kTogether = (kAlongColumns ? 32 : kWarpgroup) / kUnits;
    const Problem& problem = places.problem;
    constexpr int kBatch = kLines / kTogether < 4 ? kLines / kTogether : 4;
    meet_at_box();
    const int thread = kAlongColumns ? lane() : threadIdx.x % kWarpgroup, unit = threadIdx.x % kUnits;
    const int mine = (kAlongColumns ? warp * 16 : 0) + thread / kUnits;
    Out* const first = lines.first + tile.entry * problem.n;
#pragma unroll 1
    for (int from = mine; from < mine + kLines; from += kBatch * kTogether) {
      Out* to[kBatch];  // null: no pixel
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int line = from + i * kTogether;
        const Key pixel =
            places.grid.template row<false>(problem, tile, (kAlongColumns ? first_row : column) + line);
        to[i] = pixel.lead < 0 ? nullptr : first + number(pixel, pixel.lead) * lines.stride;
      }
#pragma unroll
      for (int block = 0; block < kBoxColumns; block += Box<Out>::kBlockColumns) {
        const int channel = (kAlongColumns ? column + block : first_row) + unit * kUnit;
        if (channel >= static_cast<int>(problem.n)) break;
        const u8* const at = box + block / Box<Out>::kBlockColumns * Box<Out>::kBlockBytes;
        Vec<Out, kUnit> units[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i)
          units[i] = *reinterpret_cast<const Vec<Out, kUnit>*>(
              at + Box<Out>::place(from + i * kTogether, unit * 16));
#pragma unroll
        for (int i = 0; i < kBatch; ++i)
          if (to[i]) *reinterpret_cast<Vec<Out, kUnit>*>(to[i] + channel) = units[i];
      }
    }
  }

  // Units of pixels that never straddle two images. A thread has the same ones of every line: it finds their
  // place once.
  __device__ void store(const ResultPlanes& planes, const Tile& tile, int first_row, int column,
                        const u8* box) const {
    static_assert(Box<Out>::kLine == 128);
    using Unit = Vec<Out, Config::unit>;
    constexpr int kUnits = 128 / int(sizeof(Unit)), kThreads = kAlongColumns ? 32 : kWarpgroup;
    constexpr int kOfLine = kUnits < kThreads ? kUnits : kThreads, kTogether = kThreads / kOfLine;
    constexpr int kLines = kAlongColumns ? 16 : kBoxColumns;
    constexpr int kBatch = kLines / kTogether < 4 ? kLines / kTogether : 4;
    const Problem& problem = places.problem;
    meet_at_box();
    const int thread = threadIdx.x % kThreads, line = (kAlongColumns ? warp * 16 : 0) + thread / kOfLine;
    const int pixels = kAlongColumns ? column : first_row;
    const int channel = (kAlongColumns ? first_row : column) + line;
#pragma unroll 1
    for (int unit = thread % kOfLine; unit < kUnits; unit += kOfLine) {
      const Key pixel = places.grid.template row<false>(problem, tile, pixels + unit * Config::unit);
      if (pixel.lead < 0) continue;
      Out* to = planes.first + pixel.lead * planes.image + number(pixel, 0) +
                (tile.entry * problem.n + channel) * planes.channel;
#pragma unroll 1
      for (int first = 0; first < kLines; first += kBatch * kTogether) {
        Unit units[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i)
          units[i] = *reinterpret_cast<const Unit*>(
              box + Box<Out>::place(line + first + i * kTogether, unit * int(sizeof(Unit))));
#pragma unroll
        for (int i = 0; i < kBatch; ++i, to += kTogether * planes.channel)
          if (channel + first + i * kTogether < static_cast<int>(problem.n))
            store_whole<Config::unit>(to, units[i], Config::unit);
      }
    }
  }

 private:
  FUSOR_DEVICE int lane() { return threadIdx.x % 32; }

  // A pixel's number in its image; or among those of all images, `images` of which lie before its own.
  __device__ i64 number(const Key& pixel, i64 images) const {
    i64 at = images;
#pragma unroll
    for (int axis = 0; axis < kSpatial; ++axis) {
      const auto& extents = places.problem.axis[axis];
      at = at * (kOp == kFprop ? extents.output : extents.input).divisor + pixel.at[axis];
    }
    return at;
  }
};
