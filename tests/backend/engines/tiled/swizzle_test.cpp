// Owns the check of the tensor cores' operand tiles: the device's index arithmetic, run on the host, with
// ldmatrix and mma.sync as the PTX ISA describes them.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "tests/backend/engines/warp_matrices.h"

#define __device__  // NOLINT(bugprone-reserved-identifier): CUDA's word
namespace device {
#include "codegen/device/tiled/swizzle.cuh"
}
#undef __device__

namespace fusor {
namespace {

using test::element;
using test::load_matrices;
using test::Place;
using test::place_in_a;
using test::place_in_b;
using test::Registers;

template <class Tile, class Element, int kSteps, int kExtent, bool kLinesAlongK>
class TileCheck {
 public:
  TileCheck() : bytes_(Tile::kSize) {
    std::mt19937 random(1);
    for (auto& line : values_)
      for (Element& value : line) value = static_cast<Element>(random());
    for (int across = 0; across < kExtent; ++across)
      for (int step = 0; step < kSteps; ++step) {
        const int offset = Tile::offset(across, step);
        EXPECT_TRUE(taken_.insert(offset).second) << "two elements in one place";
        std::memcpy(&bytes_.at(static_cast<size_t>(offset)), &values_[across][step], sizeof(Element));
      }
  }

  template <bool kRows>
  void check_fragments() const {
    constexpr int kFragmentSteps = 32 / sizeof(Element);
    for (int first = 0; first < kExtent; first += 16)
      for (int step = 0; step < kSteps; step += kFragmentSteps) check_fragment<kRows>(first, step);
  }

 private:
  template <bool kRows>
  void check_fragment(int first, int step) const {
    const Registers registers =
        Tile::kByElement ? elements<kRows>(first, step) : matrices<kRows>(first, step);
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < static_cast<int>(16 / sizeof(Element)); ++i) {
        // Two blocks of 8 columns, two registers each, or one of 16 rows.
        constexpr int kOfBlock = 8 / sizeof(Element);
        const Place place = kRows ? place_in_a<Element>(lane, i) : place_in_b<Element>(lane, i % kOfBlock);
        const int across = first + place.across + (kRows ? 0 : i / kOfBlock * 8);
        EXPECT_EQ(element<Element>(registers, lane, i), values_[across][step + place.k]);
      }
  }

  template <bool kRows>
  Registers matrices(int first, int step) const {
    std::array<int, 32> lines;
    for (size_t lane = 0; lane < 32; ++lane)
      lines.at(lane) = Tile::template fragment<kRows>(static_cast<int>(lane), first, step);
    expect_no_bank_conflict(lines);
    return load_matrices(bytes_, lines, !kLinesAlongK);
  }

  // Each register of all lanes comes from 32 different banks.
  template <bool kRows>
  Registers elements(int first, int step) const {
    Registers registers;
    for (size_t i = 0; i < 4; ++i) {
      std::set<int> banks;
      for (size_t lane = 0; lane < 32; ++lane) {
        const int byte =
            Tile::template element<kRows>(static_cast<int>(lane), static_cast<int>(i), first, step);
        banks.insert(byte / 4 % 32);
        std::memcpy(&registers.at(lane).at(i), &bytes_.at(static_cast<size_t>(byte)), 4);
      }
      EXPECT_EQ(banks.size(), 32u);
    }
    return registers;
  }

  // The eight lines of each matrix lie in different sixteenths of the 128 bytes of all banks.
  static void expect_no_bank_conflict(const std::array<int, 32>& lines) {
    for (size_t matrix = 0; matrix < 4; ++matrix) {
      std::set<int> banks;
      for (size_t i = 0; i < 8; ++i) {
        EXPECT_EQ(lines.at(8 * matrix + i) % 16, 0);
        banks.insert(lines.at(8 * matrix + i) / 16 % 8);
      }
      EXPECT_EQ(banks.size(), 8u);
    }
  }

  Element values_[kExtent][kSteps];
  std::vector<uint8_t> bytes_;
  std::set<int> taken_;
};

template <class Element, int kSteps, int kExtent, bool kLinesAlongK>
void check() {
  using Tile = device::OperandTile<kSteps, kExtent, sizeof(Element), kLinesAlongK>;
  const TileCheck<Tile, Element, kSteps, kExtent, kLinesAlongK> tile;
  tile.template check_fragments<true>();
  tile.template check_fragments<false>();
}

TEST(OperandTile, GivesMmaItsFragmentsOfLinesAlongK) {
  check<uint16_t, 32, 64, true>();
  check<uint16_t, 64, 128, true>();
}

TEST(OperandTile, GivesMmaItsFragmentsOfLinesAcrossK) {
  check<uint16_t, 32, 32, false>();
  check<uint16_t, 32, 64, false>();
  check<uint16_t, 64, 128, false>();
  check<uint16_t, 64, 256, false>();
}

TEST(OperandTile, GivesMmaItsFragmentsOfBytes) {
  check<uint8_t, 64, 32, true>();
  check<uint8_t, 128, 128, true>();
}

TEST(OperandTile, GivesMmaItsFragmentsOfWords) {
  check<uint32_t, 16, 32, true>();
  check<uint32_t, 32, 128, true>();
  check<uint32_t, 16, 32, false>();
  check<uint32_t, 32, 64, false>();
  check<uint32_t, 32, 256, false>();
}

TEST(OperandTile, SumsOfAWarpCoverABlockOnce) {
  std::set<std::pair<int, int>> places;
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      const int row = device::sum_row(lane, i), column = device::sum_column(lane, i);
      EXPECT_TRUE(row < 16 && column < 8);
      EXPECT_TRUE(places.insert({row, column}).second);
    }
  // mma.sync: c0 and c1 are neighbours in a row, c2 and c3 eight rows below.
  EXPECT_EQ(device::sum_row(5, 0), 1);
  EXPECT_EQ(device::sum_column(5, 1), 3);
  EXPECT_EQ(device::sum_row(5, 2), 9);
}

}  // namespace
}  // namespace fusor
