// Owns the place of pixels of few channels in a row of shared memory from which wgmma reads whole windows.
//
// A pixel takes a slot: 8 channels where neighbouring windows begin at neighbouring pixels, 4 where they
// begin at every second one; the channels that do not exist are zero. Then windows begin 16 bytes apart, and
// a row of a window is a run of slots: an operand of core matrices - 8 windows by 16 bytes, a unit - that
// overlap in memory. Nothing is copied for every window.
//
// Where the window's width is odd, the second half of its last unit of 4-channel slots would be the next
// window's pixel. A tail of the row holds that unit for every window by itself, the second half zero, so that
// no number of another window is multiplied, be it by zero.
#pragma once

/// Rows of pixels under kWindows windows of kWindow pixels, kStride apart. Bytes of a row, from its first.
/// kTails: whole units are multiplied with each other; without, what stands beyond a window is told apart by
/// those who read the sums.
template <int kWindow, int kStride, int kWindows, bool kTails = true>
struct PixelSlots {
  static_assert(kStride == 1 || kStride == 2, "windows begin 16 bytes apart");
  static constexpr int kUnitBytes = 16;
  static constexpr int kSlot = 8 / kStride, kSlotBytes = kSlot * 2;  // channels
  static constexpr int kUnitPixels = kUnitBytes / kSlotBytes;
  static constexpr int kUnits = (kWindow + kUnitPixels - 1) / kUnitPixels;  // of a window
  static constexpr int kSteps = (kUnits + 1) / 2;                           // of 16 in k, likewise
  static constexpr int kPixels = (kWindows - 1) * kStride + kWindow;
  static constexpr bool kTail = kTails && kWindow % kUnitPixels != 0;
  static constexpr int kTailAt = (kPixels * kSlotBytes + kUnitBytes - 1) / kUnitBytes * kUnitBytes;
  static constexpr int kBytes = kTailAt + (kTail ? kWindows * kUnitBytes : 0);

  static __device__ constexpr int slot(int pixel) { return pixel * kSlotBytes; }
  /// Of the window that the pixel is the last of: its unit in the tail; negative where there is none.
  static __device__ constexpr int tail(int pixel) {
    const int first = pixel - (kWindow - 1);
    return kTail && first >= 0 && (first & (kStride - 1)) == 0 ? kTailAt + first * (kUnitBytes / kStride)
                                                               : -1;
  }

  /// Of the first window: those of the others follow each other. Negative: beyond the last, all zero.
  static __device__ constexpr int unit(int number) {
    if (number >= kUnits) return -1;
    return kTail && number == kUnits - 1 ? kTailAt : number * kUnitBytes;
  }

  /// What of the window stands at `k` of kSteps * 16: a pixel, or kWindow and more; and a channel.
  static __device__ constexpr int pixel_of(int k) { return k / kSlot; }
  static __device__ constexpr int channel_of(int k) { return k % kSlot; }
};
