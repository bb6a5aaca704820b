// Owns the check of depthwise convolutions on tensor cores: the device's places in shared memory, run on the
// host, with ldmatrix and mma.sync as the PTX ISA describes them.
#include "tests/backend/engines/warp_matrices.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#define __device__  // NOLINT(bugprone-reserved-identifier): CUDA's word
namespace device {
#include "codegen/device/depthwise/octets.cuh"
}
#undef __device__

namespace fusor {
namespace {

using test::element;
using test::load_matrices;
using test::place_in_a;
using test::place_in_b;
using test::Registers;

using Product = std::array<std::array<int, 8>, 16>;

// The lines that the lanes name, all of them in `bytes` bytes; no matrix meets a bank twice.
std::array<int, 32> lines(int bytes, const auto& line_of_lane) {
  std::array<int, 32> lines;
  for (size_t lane = 0; lane < 32; ++lane) {
    lines.at(lane) = line_of_lane(static_cast<int>(lane));
    EXPECT_LE(lines.at(lane) + 16, bytes);
  }
  for (size_t matrix = 0; matrix < 4; ++matrix) {
    std::set<int> banks;
    for (size_t i = 0; i < 8; ++i) banks.insert(lines.at(8 * matrix + i) / 16 % 8);
    EXPECT_EQ(banks.size(), 8u);
  }
  return lines;
}

Product product(const Registers& a, const Registers& b) {
  Product sums{};
  std::array<std::array<int, 16>, 16> rows{};
  std::array<std::array<int, 8>, 16> columns{};
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 8; ++i) {
      const test::Place place = place_in_a<uint16_t>(lane, i);
      rows.at(static_cast<size_t>(place.across)).at(static_cast<size_t>(place.k)) =
          element<uint16_t>(a, lane, i);
    }
    for (int i = 0; i < 4; ++i) {
      const test::Place place = place_in_b<uint16_t>(lane, i);
      columns.at(static_cast<size_t>(place.k)).at(static_cast<size_t>(place.across)) =
          element<uint16_t>(b, lane, i);
    }
  }
  for (size_t row = 0; row < 16; ++row)
    for (size_t column = 0; column < 8; ++column)
      for (size_t k = 0; k < 16; ++k)
        sums.at(row).at(column) += rows.at(row).at(k) * columns.at(k).at(column);
  return sums;
}

/// A row of small whole numbers in shared memory, whose gradients are multiplied as a warp does it.
template <int kTaps, int kGroups>
class RowCheck {
 public:
  using Row = device::OctetRow<kTaps, kGroups, 4 / kGroups>;

  RowCheck() : bytes_(Row::kBytes) {
    fill<false>(pixels_, Row::kChunks);
    fill<true>(results_, Row::kResultChunks);
  }

  void check_gradients() const {
    for (int warp = 0; warp < 4; ++warp) {
      const Registers b =
          load_matrices(bytes_, lines(Row::kBytes, [&](int lane) { return Row::results(warp, lane); }), true);
      for (int tap = 0; tap < kTaps; ++tap) {
        const Registers a = load_matrices(
            bytes_, lines(Row::kBytes, [&](int lane) { return Row::columns(warp, lane) + tap / 2 * 32; }),
            true);
        check_lanes(warp, tap, product(a, b));
      }
    }
  }

 private:
  using Numbers = std::vector<std::vector<std::array<int, 8 * kGroups>>>;  // of octets, pixels, channels

  template <bool kOfResults>
  void fill(Numbers& numbers, int chunks) {
    numbers.resize(Row::kOctets, std::vector<std::array<int, 8 * kGroups>>(Row::kPixels));
    for (int number = 0; number < chunks; ++number) {
      const typename Row::Chunk chunk = Row::template chunk<kOfResults>(number);
      const int offset = Row::template offset<kOfResults>(chunk);
      EXPECT_TRUE(taken_.insert(offset).second) << "two chunks in one place";
      for (int i = 0; i < 8; ++i) {
        const auto value = static_cast<uint16_t>(random_() % 16);
        numbers.at(static_cast<size_t>(chunk.octet))
            .at(static_cast<size_t>(chunk.pixel))
            .at(static_cast<size_t>(chunk.group * 8 + i)) = value;
        std::memcpy(&bytes_.at(static_cast<size_t>(offset + 2 * i)), &value, sizeof value);
      }
    }
    expect_no_bank_conflict<kOfResults>();
  }

  // Eight lanes that copy neighbours write to all banks.
  template <bool kOfResults>
  static void expect_no_bank_conflict() {
    std::set<int> banks;
    for (int number = 0; number < 8; ++number)
      banks.insert(Row::template offset<kOfResults>(Row::template chunk<kOfResults>(number)) / 16 % 8);
    EXPECT_EQ(banks.size(), 8u);
  }

  // Eight lanes hold a channel by itself each.
  void check_lanes(int warp, int tap, const Product& sums) const {
    std::set<int> channels;
    for (int lane = 0; lane < 32; ++lane) {
      if (!Row::has_gradients(lane)) continue;
      const int channel = Row::channel(lane), i = tap % 2 * 2 + channel % 2;
      channels.insert(channel);
      const auto row = static_cast<size_t>(lane / 4 + i / 2 * 8),
                 column = static_cast<size_t>(lane % 4 * 2 + i % 2);
      EXPECT_EQ(sums.at(row).at(column), gradient(warp, tap, channel))
          << "tap " << tap << ", channel " << channel;
    }
    EXPECT_EQ(channels.size(), 8u);
  }

  int gradient(int warp, int tap, int channel) const {
    const auto first = static_cast<size_t>(warp / kGroups * 2),
               at = static_cast<size_t>(warp % kGroups * 8 + channel);
    int sum = 0;
    for (size_t octet = first; octet < first + 2; ++octet)
      for (size_t pixel = 0; pixel < 8; ++pixel)
        sum += pixels_.at(octet).at(pixel + static_cast<size_t>(tap)).at(at) *
               results_.at(octet).at(pixel).at(at);
    return sum;
  }

  std::mt19937 random_{1};
  std::vector<uint8_t> bytes_;
  Numbers pixels_, results_;
  std::set<int> taken_;
};

/// Two rows of small whole numbers, multiplied by filters on diagonals: one tap of each, and the last tap of
/// both rows at once.
template <int kTaps, int kGroups>
class PairCheck {
 public:
  using Rows = device::OctetRowPair<kTaps, kGroups, 4 / kGroups>;
  using Row = typename Rows::Row;

  PairCheck() : bytes_(Rows::kBytes) {
    for (int row = 0; row < 2; ++row)
      for (int number = 0; number < Row::kChunks; ++number) {
        const typename Row::Chunk chunk = Row::template chunk<false>(number);
        for (int channel = 0; channel < 8; ++channel) {
          const auto value = static_cast<uint16_t>(pixel(row, chunk, channel));
          std::memcpy(&bytes_.at(static_cast<size_t>(row * Rows::kRowBytes +
                                                     Row::template offset<false>(chunk) + 2 * channel)),
                      &value, sizeof value);
        }
      }
  }

  void check_results() const {
    for (int warp = 0; warp < 4; ++warp) {
      for (int row = 0; row < 2; ++row)
        for (int tap = 0; tap + 1 < kTaps; tap += 2)
          check_products(
              warp, [&](int lane) { return Rows::across(warp, lane) + row * Rows::kRowBytes + tap * 16; },
              {row, tap}, {row, tap + 1});
      check_products(warp, [&](int lane) { return Rows::down(warp, lane); }, {0, kTaps - 1}, {1, kTaps - 1});
    }
  }

 private:
  struct Tap {
    int row, column;
  };

  static int pixel(int row, const typename Row::Chunk& chunk, int channel) {
    return (row * 7 + chunk.octet * 5 + chunk.pixel * 3 + chunk.group * 11 + channel) % 16;
  }
  static int filter(const Tap& tap, int channel) { return 1 + tap.row * 16 + tap.column * 2 + channel % 2; }

  static Registers filters(const Tap& first, const Tap& second) {
    Registers b{};
    for (size_t lane = 0; lane < 32; ++lane) {
      const int number = static_cast<int>(lane), channel = Rows::channel(number);
      if (!Rows::has_filters(number)) continue;
      b.at(lane).at(0) = static_cast<uint32_t>(filter(first, channel)) << (channel % 2 * 16);
      b.at(lane).at(1) = static_cast<uint32_t>(filter(second, channel)) << (channel % 2 * 16);
    }
    return b;
  }

  void check_products(int warp, const auto& line_of_lane, const Tap& first, const Tap& second) const {
    const Product sums =
        product(load_matrices(bytes_, lines(Rows::kBytes, line_of_lane), false), filters(first, second));
    for (int i = 0; i < 16; ++i)
      for (int channel = 0; channel < 8; ++channel) {
        int sum = 0;
        for (const Tap& tap : {first, second})
          sum += filter(tap, channel) *
                 pixel(tap.row, {warp / kGroups * 2 + i / 8, tap.column + i % 8, warp % kGroups}, channel);
        EXPECT_EQ(sums.at(static_cast<size_t>(i)).at(static_cast<size_t>(channel)), sum)
            << "pixel " << i << ", channel " << channel;
      }
  }

  std::vector<uint8_t> bytes_;
};

template <int kTaps>
void check_gradients() {
  RowCheck<kTaps, 4>().check_gradients();
  RowCheck<kTaps, 2>().check_gradients();
  RowCheck<kTaps, 1>().check_gradients();
}

template <int kTaps>
void check_results() {
  PairCheck<kTaps, 4>().check_results();
  PairCheck<kTaps, 2>().check_results();
  PairCheck<kTaps, 1>().check_results();
}

TEST(DepthwiseOctets, SumsOfAChannelByItselfAreGradients) {
  check_gradients<7>();
  check_gradients<6>();
  check_gradients<5>();
  check_gradients<4>();
  check_gradients<3>();
  check_gradients<2>();
}

TEST(DepthwiseOctets, PixelsTimesDiagonalsOfFiltersAreResults) {
  check_results<7>();
  check_results<6>();
  check_results<5>();
  check_results<4>();
  check_results<3>();
  check_results<2>();
}

}  // namespace
}  // namespace fusor
