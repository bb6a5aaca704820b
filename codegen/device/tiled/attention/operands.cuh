// Owns how threads bring an operand of attention to shared memory: its tile there, and the copies.
#pragma once

#include "codegen/device/tiled/attention/shape.cuh"
#include "codegen/device/tiled/swizzle.cuh"
#include "codegen/device/tiled/warp_mma.cuh"

using Element = Config::ElementA;

// Elements of a line: chunks of a line are exchanged within powers of two of them.
FUSOR_DEVICE constexpr int line_of(int elements) {
  return elements <= 16 ? 16 : elements <= 32 ? 32 : (elements + 63) / 64 * 64;
}

/// Whether a site's address may be null: of elements that are taken through an index.
template <class Site>
FUSOR_DEVICE constexpr auto may_miss(int) -> decltype(Site::kMayMiss) {
  return Site::kMayMiss;
}
template <class Site>
FUSOR_DEVICE constexpr bool may_miss(long) {
  return false;
}

/// An operand in shared memory: kRows of its rows, kElements of the head. It is a factor of a product along
/// the head (q, k) or along its rows (v). kAlongHead: lines run along the head, else across it.
template <class Site_, int kRows, int kElements, bool kAlongHead_, int kWidth_, bool kPlain,
          bool kFactorOfRows>
struct Load {
  using Site = Site_;
  using Tile = OperandTile<kFactorOfRows ? kRows : line_of(kElements),
                           kFactorOfRows ? line_of(kElements) : kRows, 2, kAlongHead_ != kFactorOfRows>;
  enum : bool {
    kAlongHead = kAlongHead_,
    kTransposed = kAlongHead == kFactorOfRows,
    kAsync = kPlain && kWidth_ > 1,
    kMayMiss = may_miss<Site>(0),
  };
  enum : int { kSize = Tile::kSize, kWidth = kWidth_ };
  // Vectors of a line, and of the tile.
  enum : int {
    kOfLine = (kAlongHead ? kElements : kRows) / kWidth,
    kVectors = kOfLine * (kAlongHead ? kRows : kElements),
  };

  /// Where a vector of the tile lies in shared memory.
  FUSOR_DEVICE int place_of(int row, int element) {
    return kFactorOfRows ? Tile::offset(element, row) : Tile::offset(row, element);
  }

  /// Starts the copies of a tile by a warp or a block of kThreads, or passes its elements through the
  /// prologue: of the rows from `first` on, those below `rows`. `kHeadAxis`: where the site has the head's
  /// elements.
  template <int kHeadAxis, int kThreads>
  FUSOR_DEVICE void copy(const typename Site::Args& args, u8* to, const Index (&entry)[kRank], int first,
                         int rows, int elements) {
    Index at[kRank];
#pragma unroll
    for (int axis = 0; axis < kBatch; ++axis) at[axis] = entry[axis];
    const auto find = [&](int vector) {
      const int row = first + row_of(vector);
      const bool inside = row < rows && element_of(vector) < elements;
      at[2 * kBatch + 1 - kHeadAxis] = inside ? row : 0;
      return inside;
    };
    if constexpr (kPlain) {
#pragma unroll(kAsync ? 4 : 1)
      for (int i = thread_of<kThreads>(); i < kVectors; i += kThreads) {
        const bool inside = find(i);
        copy_vector<kHeadAxis>(args, to, at, row_of(i), element_of(i), inside);
      }
    } else {
      // Values of a prologue wait for memory: a warp has several of them under way.
      constexpr int kTogether = kThreads == 32 ? 8 : 1, kTurn = kThreads * kTogether;
      constexpr bool kWhole = kVectors % kTurn == 0;
#pragma unroll 1
      for (int i = thread_of<kThreads>(); i < kVectors; i += kTurn) {
        Vec<Element, kWidth> vectors[kTogether];
#pragma unroll
        for (int turn = 0; turn < kTogether; ++turn) {
          const int vector = i + turn * kThreads;
          if (!kWhole && vector >= kVectors) break;
          const bool inside = find(vector);
          vectors[turn] = computed<kHeadAxis>(args, at, element_of(vector), inside);
        }
#pragma unroll
        for (int turn = 0; turn < kTogether; ++turn) {
          const int vector = i + turn * kThreads;
          if (!kWhole && vector >= kVectors) break;
          store(to, row_of(vector), element_of(vector), vectors[turn]);
        }
      }
    }
  }
  /// For rows that lie anywhere: `find(row, at)` puts the coordinates of a row of the tile into `at`, and
  /// says whether it exists.
  template <int kHeadAxis, int kThreads, class Find>
  FUSOR_DEVICE void copy_found(const typename Site::Args& args, u8* to, int elements, Find&& find) {
    Index at[kRank];
#pragma unroll 1
    for (int i = thread_of<kThreads>(); i < kVectors; i += kThreads) {
      const int row = row_of(i), element = element_of(i);
      copy_vector<kHeadAxis>(args, to, at, row, element, find(row, at) && element < elements);
    }
  }

 private:
  template <int kThreads>
  FUSOR_DEVICE int thread_of() {
    return static_cast<int>(kThreads == 32 ? threadIdx.x % 32 : threadIdx.x);
  }

  /// Where a vector of the tile begins: its first row, and its first element.
  FUSOR_DEVICE int row_of(int vector) { return kAlongHead ? vector / kOfLine : vector % kOfLine * kWidth; }
  FUSOR_DEVICE int element_of(int vector) {
    return kAlongHead ? vector % kOfLine * kWidth : vector / kOfLine;
  }

  FUSOR_DEVICE void store(u8* to, int row, int element, const Vec<Element, kWidth>& vector) {
    *reinterpret_cast<Vec<Element, kWidth>*>(to + place_of(row, element)) = vector;
  }

  /// A vector of what the prologue gives; zeros where there is none.
  template <int kHeadAxis>
  FUSOR_DEVICE Vec<Element, kWidth> computed(const typename Site::Args& args, Index (&at)[kRank], int element,
                                             bool inside) {
    at[kHeadAxis] = inside ? element : 0;
    const Vec<Element, kWidth> vector = narrow<Element>(Site::template apply<kWidth>(args, at, kWidth));
    return inside ? vector : Vec<Element, kWidth>{};
  }

  template <int kHeadAxis>
  FUSOR_DEVICE void copy_vector(const typename Site::Args& args, u8* to, Index (&at)[kRank], int row,
                                int element, bool inside) {
    if constexpr (kPlain) {
      at[kHeadAxis] = inside ? element : 0;
      const auto* const from = Site::address(args, at);
      if constexpr (kMayMiss) inside = inside && from != nullptr;
      if constexpr (kAsync)
        return copy_async<kWidth * 2>(shared_address(to + place_of(row, element)), from, inside);
      Vec<Element, kWidth> vector = {};
      if (!kMayMiss || inside) vector = load_whole<kWidth>(from, kWidth);
      store(to, row, element, inside ? vector : Vec<Element, kWidth>{});
    } else {
      store(to, row, element, computed<kHeadAxis>(args, at, element, inside));
    }
  }
};
