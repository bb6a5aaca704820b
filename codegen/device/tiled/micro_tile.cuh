// Owns a block's tile of a product on the CUDA cores: operand tiles in shared memory, and a micro-tile of
// sums in the registers of each thread.
#pragma once

/// 16 x 16 threads; a main-loop step covers kTileK steps of the product.
enum : int { kLanes = 16, kTileK = 16 };

template <class T, int kWidth>
struct alignas(kWidth * sizeof(T)) Pack {
  T at[kWidth];
};

/// How one side of a tile is dealt out to the lanes along it: packs of up to 16 bytes, round robin, so that
/// the lanes of a warp read adjacent packs.
template <class T, int kExtent>
struct Deal {
  enum : int {
    kItems = kExtent / kLanes,  // of each lane
    kPack = kItems < int(16 / sizeof(T)) ? kItems : int(16 / sizeof(T)),
  };
  using Packed = Pack<T, kPack>;

  /// Position in the side of a lane's item `i`, a multiple of kPack.
  FUSOR_DEVICE int position(int lane, int i) { return i * kLanes + lane * kPack; }
};

/// The two operand tiles of one step: [step][row] and [step][column]. A row of padding spreads the banks.
template <class T, int kTileM, int kTileN>
struct OperandTiles {
  enum : int { kPadding = 16 / sizeof(T) };
  alignas(16) T left[kTileK][kTileM + kPadding];
  alignas(16) T right[kTileK][kTileN + kPadding];
};

template <bool kFirst, class First, class Second>
struct Choose {
  using type = First;
};
template <class First, class Second>
struct Choose<false, First, Second> {
  using type = Second;
};

/// The sums of one thread.
template <class T, int kTileM, int kTileN>
struct MicroTile {
  using Rows = Deal<T, kTileM>;
  using Columns = Deal<T, kTileN>;
  template <bool kAlongN>
  using Side = typename Choose<kAlongN, Columns, Rows>::type;

  T sum[Rows::kItems][Columns::kItems];

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < Rows::kItems; ++i)
#pragma unroll
      for (int j = 0; j < Columns::kItems; ++j) sum[i][j] = T(0);
  }

  /// Adds the product of two operand tiles.
  __device__ void multiply(const OperandTiles<T, kTileM, kTileN>& tiles) {
#pragma unroll 2
    for (int k = 0; k < kTileK; ++k) {
      T left[Rows::kItems], right[Columns::kItems];
      read<false>(tiles.left[k], left);
      read<true>(tiles.right[k], right);
#pragma unroll
      for (int i = 0; i < Rows::kItems; ++i)
#pragma unroll
        for (int j = 0; j < Columns::kItems; ++j) sum[i][j] = multiply_add(left[i], right[j], sum[i][j]);
    }
  }

  /// Writes a pass' share of the sums, neighbouring lines, to shared memory: lines of `kPitch` sums along n
  /// or along m.
  template <bool kAlongN, int kPitch, int kPass, int kPasses>
  __device__ void stage(T* staged) const {
    using Along = Side<kAlongN>;
    using Across = Side<!kAlongN>;
    constexpr int kOfPass = Across::kItems / kPasses, kFirst = kPass * kOfPass;
    static_assert(kOfPass % Across::kPack == 0, "packs stay together");
#pragma unroll
    for (int i = kFirst; i < kFirst + kOfPass; ++i) {
      const int number =
          Across::position(lane<!kAlongN>(), i - i % Across::kPack) + i % Across::kPack - kFirst * kLanes;
      T* const line = staged + number * kPitch;
#pragma unroll
      for (int j = 0; j < Along::kItems; j += Along::kPack) {
        typename Along::Packed pack;
#pragma unroll
        for (int l = 0; l < Along::kPack; ++l) pack.at[l] = kAlongN ? sum[i][j + l] : sum[j + l][i];
        *reinterpret_cast<typename Along::Packed*>(line + Along::position(lane<kAlongN>(), j)) = pack;
      }
    }
  }

 private:
  // The thread's number along n or along m.
  template <bool kAlongN>
  FUSOR_DEVICE int lane() {
    return kAlongN ? threadIdx.x % kLanes : threadIdx.x / kLanes;
  }

  template <bool kAlongN, int kItems>
  FUSOR_DEVICE void read(const T* line, T (&items)[kItems]) {
    using Dealt = Side<kAlongN>;
#pragma unroll
    for (int i = 0; i < kItems; i += Dealt::kPack) {
      const auto pack =
          *reinterpret_cast<const typename Dealt::Packed*>(line + Dealt::position(lane<kAlongN>(), i));
#pragma unroll
      for (int j = 0; j < Dealt::kPack; ++j) items[i + j] = pack.at[j];
    }
  }
};
