// Owns the check of operand tiles that threads load for the wgmma engine: the device's index arithmetic, run
// on the host, brings every byte to where TMA would put it, from any start.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <set>
#include <vector>

#define __device__  // NOLINT(bugprone-reserved-identifier): CUDA's word
namespace device {
#include "codegen/device/sm90/load/unit_places.cuh"
}
#undef __device__

namespace fusor {
namespace {

constexpr int kThreads = 128, kLineBytes = 128;

// Where TMA puts a byte of a box whose lines have 128 bytes: bits 4 to 6 of the address are
// combined with bits 7 to 9.
int swizzled(int at) { return at ^ ((at >> 7) & 7) << 4; }

// The byte of a tile whose lines run along k: line `line` of the operand; across it, boxes of 128 bytes by
// kSteps lines, one behind the other.
template <bool kAcross, int kSteps>
int copied_to(int line, int byte) {
  if (!kAcross) return swizzled(line * kLineBytes + byte);
  return byte / kLineBytes * kSteps * kLineBytes + swizzled(line * kLineBytes + byte % kLineBytes);
}

template <bool kAcross, int kSteps>
void check_places(int lines_of_tile) {
  using Places = device::UnitPlaces<kAcross, kSteps, kThreads>;
  std::set<int> taken;
  for (int thread = 0; thread < kThreads; ++thread)
    for (int pass = 0; pass < lines_of_tile / Places::kLinesOfPass; ++pass) {
      const int line = Places::line(thread) + Places::lines_on(pass);
      const int byte = Places::byte(thread) + Places::bytes_on(pass);
      const int place = Places::place(thread, pass);
      EXPECT_EQ(place, (copied_to<kAcross, kSteps>(line, byte)));
      EXPECT_TRUE(taken.insert(place).second) << "two units in one place";
      EXPECT_EQ(place, Places::place(thread, 0) + pass * Places::kLinesOfPass * kLineBytes);
      // A loader moves on by whole blocks.
      const int block = pass / Places::kPassesOfBlock * Places::kPassesOfBlock;
      EXPECT_EQ(Places::lines_on(pass), Places::lines_on(block) + Places::lines_on(pass - block));
      EXPECT_EQ(Places::bytes_on(pass), Places::bytes_on(block) + Places::bytes_on(pass - block));
    }
  EXPECT_EQ(taken.size(), static_cast<size_t>(lines_of_tile) * Places::kUnits);
}

TEST(UnitPlaces, AreThoseOfTheCopyEngine) {
  for (int lines = 16; lines <= 256; lines += 16) {
    check_places<false, 64>(lines);
    check_places<false, 32>(lines);
    check_places<false, 128>(lines);
  }
  for (const int lines : {64, 128, 192, 256}) check_places<true, 64>(lines);
}

template <int kGrain>
void check_cuts() {
  std::array<uint8_t, 32> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) bytes.at(i) = static_cast<uint8_t>(37 * i + 11);
  for (int shift = 0; shift < 16; shift += kGrain)
    for (int kept = -8; kept <= 24; ++kept) {
      unsigned words[8];
      std::memcpy(words, bytes.data(), sizeof words);
      device::move_down<kGrain>(words, shift);
      for (int i = 0; i < 4; ++i) words[i] = device::first_bytes(words[i], kept - 4 * i);
      std::array<uint8_t, 16> cut{}, expected{};
      std::memcpy(cut.data(), words, cut.size());
      for (int i = 0; i < std::clamp(kept, 0, 16); ++i)
        expected.at(static_cast<size_t>(i)) = bytes.at(static_cast<size_t>(shift) + static_cast<size_t>(i));
      EXPECT_EQ(cut, expected) << "from " << shift << ", " << kept << " bytes";
    }
}

TEST(UnitPlaces, UnitsAreCutOutAnywhere) {
  check_cuts<1>();
  check_cuts<2>();
  check_cuts<4>();
  check_cuts<8>();
}

}  // namespace
}  // namespace fusor
