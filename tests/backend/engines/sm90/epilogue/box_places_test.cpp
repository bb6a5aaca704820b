// Owns the check of the boxes through which the wgmma engine's results leave and operands of its epilogue
// come: the device's index arithmetic, run on the host, with ldmatrix and stmatrix as the PTX ISA describes
// them and swizzles as the CUDA driver API does.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <set>
#include <vector>

#define __device__  // NOLINT(bugprone-reserved-identifier): CUDA's word
namespace device {
#include "codegen/device/sm90/epilogue/box_places.cuh"
}
#undef __device__

namespace fusor {
namespace {

// Where TMA puts a byte of a block whose lines have so many bytes: bits 4 and up of the address
// are combined with bits 7 and up, as many as number the line's units of 16 bytes.
int swizzled(int at, int line_bytes) {
  const int units = line_bytes == 128 ? 7 : line_bytes == 64 ? 3 : line_bytes == 32 ? 1 : 0;
  return at ^ ((at >> 7) & units) << 4;
}

// Elements are numbered by row and column, as TMA leaves them in a box of one block a line; kJoined rows may
// be one line of TMA's.
template <class Places, int kColumns, bool kAlongColumns, int kJoined>
std::vector<int> filled() {
  std::vector<int> box(Places::kBoxBytes / 2, -1);
  for (int row = 0; row < 64; ++row)
    for (int column = 0; column < kColumns; ++column) {
      const int line = kAlongColumns ? row : column, in_line = kAlongColumns ? column : row;
      const int at = swizzled(line * Places::kLine + in_line * 2, kJoined * Places::kLine);
      EXPECT_EQ(Places::element(row, column), at);
      EXPECT_EQ(box.at(static_cast<size_t>(at) / 2), -1) << "two elements in one place";
      box.at(static_cast<size_t>(at) / 2) = row * 1000 + column;
    }
  return box;
}

// A lane gets elements 2 (lane % 4) and the next of line lane / 4 of each matrix; transposed, those are of
// lines 2 (lane % 4) and the next, element lane / 4. stmatrix writes them to the very same places.
std::array<int, 2> places_of(const std::array<int, 32>& lines, int matrix, int lane, bool transposed) {
  std::array<int, 2> places{};
  const size_t first_line = static_cast<size_t>(matrix) * 8;
  for (int i = 0; i < 2; ++i) {
    const int fast = lane % 4 * 2 + i, slow = lane / 4;
    const int line = transposed ? fast : slow, element = transposed ? slow : fast;
    places.at(static_cast<size_t>(i)) = lines.at(first_line + static_cast<size_t>(line)) + 2 * element;
  }
  return places;
}

template <int kColumns, bool kAlongColumns, int kJoined = 1>
void check_matrices() {
  using Places = device::BoxPlaces<2, kAlongColumns, kColumns, kJoined>;
  const std::vector<int> box = filled<Places, kColumns, kAlongColumns, kJoined>();
  std::set<int> taken;
  for (int warp = 0; warp < 4; ++warp)
    for (int first = 0; first < kColumns; first += 16) {
      std::array<int, 32> lines{};
      for (int lane = 0; lane < 32; ++lane) {
        const int matrix = warp * 16 + Places::matrix_row(lane) * 8;
        lines.at(static_cast<size_t>(lane)) =
            Places::line_of_matrix(lane, kAlongColumns ? matrix + lane % 8 : matrix, first);
      }
      for (int lane = 0; lane < 32; ++lane)
        for (int matrix = 0; matrix < 4; ++matrix) {
          const std::array<int, 2> places = places_of(lines, matrix, lane, !kAlongColumns);
          // As wgmma leaves its sums: rows 8 apart first, then columns 8 apart.
          const int row = warp * 16 + lane / 4 + matrix % 2 * 8,
                    column = first + matrix / 2 * 8 + lane % 4 * 2;
          for (int i = 0; i < 2; ++i) {
            const int place = places.at(static_cast<size_t>(i));
            EXPECT_EQ(box.at(static_cast<size_t>(place) / 2), row * 1000 + column + i);
            EXPECT_TRUE(taken.insert(place).second) << "an element of two threads";
          }
        }
    }
  EXPECT_EQ(taken.size(), size_t{64 * kColumns});
}

// So an operand may be overwritten in its box by the result, thread by thread.
TEST(BoxPlaces, EveryThreadReadsTheElementsOfItsSumsAndNoOthers) {
  check_matrices<64, true>();
  check_matrices<32, true>();
  check_matrices<16, true>();
  check_matrices<32, true, 2>();
  check_matrices<16, true, 2>();
  check_matrices<64, false>();
  check_matrices<32, false>();
  check_matrices<16, false>();
}

TEST(BoxPlaces, WideElementsHaveAPlaceEach) {
  using Columns = device::BoxPlaces<4, true, 32>;
  using Rows = device::BoxPlaces<4, false, 32>;
  static_assert(Columns::kLine == 128 && Rows::kLine == 128 && Rows::kBlockRows == 32);
  std::set<int> of_columns, of_rows;
  for (int row = 0; row < 64; ++row)
    for (int column = 0; column < 32; ++column) {
      EXPECT_TRUE(of_columns.insert(Columns::element(row, column)).second);
      EXPECT_TRUE(of_rows.insert(row / 32 * Rows::kBlockBytes + Rows::element(row % 32, column)).second);
    }
  EXPECT_LT(*of_columns.rbegin(), Columns::kBoxBytes);
  EXPECT_LT(*of_rows.rbegin(), Rows::kBoxBytes);
}

}  // namespace
}  // namespace fusor
