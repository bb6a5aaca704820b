// Owns the place of pixels of few channels in a row of shared memory from which wgmma reads whole windows.
//
//   stride 2: slots of 4 channels, 8 bytes     | p0 | p1 | p2 | p3 | p4 | p5 | p6 | ...      missing channels
//   window 0 (3 pixels): units of 16 bytes     [ p0   p1 ][ p2   -- ]                        are zero
//   window 1                                             [ p2   p3 ][ p4   -- ]
//   stride 1: slots of 8 channels, 16 bytes    | p0 | p1 | p2 | ...
//
// Windows begin 16 bytes apart, so one unswizzled descriptor reads all windows of a row: core matrices of 8
// windows by 16 bytes that overlap in memory. Nothing is copied for every window.
// The half marked -- would be another window's pixel, perhaps an infinity, and must not be multiplied by
// zero. A tail of the row holds that unit for every window, its second half zero.
#pragma once

/// Rows of pixels under kWindows windows of kWindow pixels, kStride apart. Bytes of a row, from its first.
/// kTails: whole units are multiplied with each other; without, what stands beyond a window is told apart by
/// those who read the sums.
template <int kWindow, int kStride, int kWindows, bool kTails = true>
struct PixelSlots {
  static_assert(kStride == 1 || kStride == 2, "windows begin 16 bytes apart");
  enum : int {
    kUnitBytes = 16,
    kSlot = 8 / kStride,  // channels
    kSlotBytes = kSlot * 2,
    kUnitPixels = kUnitBytes / kSlotBytes,
    kUnits = (kWindow + kUnitPixels - 1) / kUnitPixels,  // of a window
    kSteps = (kUnits + 1) / 2,                           // of 16 in k, likewise
    kPixels = (kWindows - 1) * kStride + kWindow,
  };
  enum : bool { kTail = kTails && kWindow % kUnitPixels != 0 };
  enum : int {
    kTailAt = (kPixels * kSlotBytes + kUnitBytes - 1) / kUnitBytes * kUnitBytes,
    kBytes = kTailAt + (kTail ? kWindows * kUnitBytes : 0),
  };

  static __device__ constexpr int slot(int pixel) { return pixel * kSlotBytes; }
  /// The tail unit of the window whose last pixel this is; negative where there is none.
  static __device__ constexpr int tail(int pixel) {
    const int first = pixel - (kWindow - 1);
    return kTail && first >= 0 && (first & (kStride - 1)) == 0 ? kTailAt + first * (kUnitBytes / kStride)
                                                               : -1;
  }

  /// A unit of the first window; those of the other windows follow. Negative: beyond the last, all zero.
  static __device__ constexpr int unit(int number) {
    if (number >= kUnits) return -1;
    return kTail && number == kUnits - 1 ? kTailAt : number * kUnitBytes;
  }

  /// The pixel of the window (kWindow or more: none) and the channel at `k` of kSteps * 16.
  static __device__ constexpr int pixel_of(int k) { return k / kSlot; }
  static __device__ constexpr int channel_of(int k) { return k % kSlot; }
};
