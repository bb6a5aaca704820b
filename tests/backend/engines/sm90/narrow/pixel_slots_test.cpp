// Owns the check of the slots of pixels that wgmma reads windows from: the device's index arithmetic, run on
// the host, with core matrices read as the PTX ISA describes them.
#include <gtest/gtest.h>

#include <vector>

#define __device__  // NOLINT(bugprone-reserved-identifier): CUDA's word
namespace device {
#include "codegen/device/sm90/narrow/pixel_slots.cuh"
}
#undef __device__

namespace fusor {
namespace {

// Numbers of no pixel.
constexpr int kZero = 0, kNever = -1;

template <int kWindow, int kStride, int kWindows>
void expect_every_window() {
  using Slots = device::PixelSlots<kWindow, kStride, kWindows>;
  SCOPED_TRACE(testing::Message() << kWindow << " pixels, stride " << kStride << ", " << kWindows);
  const auto number = [](int pixel, int channel) { return 1 + pixel * 8 + channel; };

  // Elements of a row: what is never written must never be read.
  std::vector<int> row(Slots::kBytes / 2, kNever);
  if (Slots::kTail)
    for (int i = Slots::kTailAt / 2; i < Slots::kBytes / 2; ++i) row.at(static_cast<size_t>(i)) = kZero;
  for (int pixel = 0; pixel < Slots::kPixels; ++pixel)
    for (const int to : {Slots::slot(pixel), Slots::tail(pixel)}) {
      if (to < 0) continue;
      EXPECT_EQ(to % Slots::kSlotBytes, 0);
      for (int channel = 0; channel < Slots::kSlot; ++channel)
        row.at(static_cast<size_t>(to) / 2 + static_cast<size_t>(channel)) = number(pixel, channel);
    }

  for (int window = 0; window < kWindows; ++window)
    for (int k = 0; k < Slots::kSteps * 16; ++k) {
      const int unit = Slots::unit(k / 8);
      EXPECT_EQ(unit < 0 ? 0 : unit % 16, 0);
      const int found =
          unit < 0 ? kZero : row.at(static_cast<size_t>(unit + window * 16) / 2 + static_cast<size_t>(k) % 8);
      const int pixel = Slots::pixel_of(k);
      const int expected = pixel < kWindow ? number(window * kStride + pixel, Slots::channel_of(k)) : kZero;
      ASSERT_EQ(found, expected) << "window " << window << ", k " << k;
    }
}

TEST(PixelSlots, AWindowMeetsItsPixelsAndNoOthers) {
  expect_every_window<7, 2, 112>();
  expect_every_window<3, 2, 48>();
  expect_every_window<5, 2, 64>();
  expect_every_window<4, 2, 64>();
  expect_every_window<1, 2, 48>();
  expect_every_window<2, 2, 48>();
  expect_every_window<11, 2, 80>();
  expect_every_window<3, 1, 224>();
  expect_every_window<5, 1, 256>();
  expect_every_window<4, 1, 64>();
  expect_every_window<1, 1, 48>();
  expect_every_window<2, 1, 48>();
}

}  // namespace
}  // namespace fusor
