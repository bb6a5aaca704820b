// Owns the check of resident windows: the device's grid, run on the host with the argument bytes that the
// engine writes, and the lines of its taps, against the convolution written as plain loops.
#include "backend/engines/sm90/wgmma/resident_window.h"
#include "codegen/text/parameters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <set>

#include "tests/backend/engines/conv_products.h"

#define __device__  // NOLINT(bugprone-reserved-identifier): CUDA's word
namespace device {
#include "codegen/device/contraction/padded_grid.cuh"
}
#undef __device__

namespace fusor {
namespace {

using test::Case;
using test::HostDivisor;
using test::linear;
using test::Products;

// The position in the operand that TMA reads for a line, or nothing where that is padding.
struct Line {
  int64_t image;
  std::vector<int64_t> at;
  bool inside;
};
Line line_at(const ResidentWindow& window, int64_t line, int64_t layer, const Dims& operand, int64_t images) {
  Line found{0, std::vector<int64_t>(window.axes.size()), true};
  for (size_t i = window.axes.size(); i-- > 0;) {
    const WindowWalk& walk = window.axes[i].positions;
    found.at[i] = line % walk.pixels + walk.lower;
    if (i == 0 && window.layers > 1) found.at[i] += layer * walk.slope + walk.origin;
    line /= walk.pixels;
    found.inside &= found.at[i] >= 0 && found.at[i] < operand[static_cast<int>(i)];
  }
  found.image = line;
  found.inside &= line < images;
  return found;
}

template <int kSpatial>
void check(const Case& c, bool dgrad, bool shares_columns = true) {
  using Grid = device::PaddedGrid<kSpatial, int64_t, int64_t, HostDivisor>;
  const Contraction view = dgrad ? test::dgrad_view(c) : test::fprop_view(c);
  const auto window = resident_window(view, shares_columns);
  ASSERT_TRUE(window);
  Parameters p(64);
  window->append_grid(p);
  ASSERT_EQ(p.block().bytes().size(), sizeof(Grid));
  Grid grid;
  std::memcpy(&grid, p.block().bytes().data(), sizeof grid);
  const Dims &result = dgrad ? c.x : c.y, &operand = dgrad ? c.y : c.x;
  Products products;
  std::set<int64_t> pixels;
  for (int64_t position = 0; position < grid.count + 2; ++position) {
    const auto clamped = grid.template row<true>(0, 0, position);
    EXPECT_LT(clamped.lead, c.images);
    for (int i = 0; i < kSpatial; ++i) EXPECT_LT(clamped.at[i], result[i]);
    const auto key = grid.template row<false>(0, 0, position);
    if (key.lead < 0) continue;
    const int64_t pixel = linear(key.lead, {key.at, key.at + kSpatial}, result);
    EXPECT_TRUE(pixels.insert(pixel).second) << "a pixel twice";
    const int64_t taps = std::ssize(window->lines);
    for (int64_t tap = 0; tap < window->layers * taps; ++tap) {
      const int64_t lines = window->lines[static_cast<size_t>(tap % taps)];
      EXPECT_GE(lines, 0);
      EXPECT_LE(lines, window->reach);
      const Line line = line_at(*window, position + lines, tap / taps, operand, c.images);
      if (!line.inside) continue;
      const int64_t other = linear(line.image, line.at, operand);
      products.insert({dgrad ? pixel : other, tap, dgrad ? other : pixel});
    }
  }
  EXPECT_EQ(std::ssize(pixels), view.m);
  EXPECT_EQ(products, test::plain_products(c));
}

template <int kSpatial>
void check_random(int count) {
  std::mt19937 random(5);
  for (int i = 0; i < count; ++i) {
    const Case c = test::random_case(random, kSpatial, false, 3);
    SCOPED_TRACE(test::to_string(c));
    check<kSpatial>(c, false);
    check<kSpatial>(c, true, i % 2 == 0);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(ResidentWindow, MeetsTheProductsOfThePlainLoops) {
  check_random<1>(1000);
  check_random<2>(300);
}

TEST(ResidentWindow, ThreeAxesComeInLayers) {
  Case c{
      .images = 2,
      .x = {4, 5, 6},
      .w = {3, 3, 3},
      .y = {4, 5, 6},
      .options = {
          .pre_padding = {1, 1, 1}, .post_padding = {1, 1, 1}, .stride = {1, 1, 1}, .dilation = {1, 1, 1}}};
  EXPECT_EQ(resident_window(test::fprop_view(c))->layers, 3);
  EXPECT_EQ(resident_window(test::fprop_view(c))->reach, 2 * 7 + 2);
  check<3>(c, false);
  check<3>(c, true);
  c.options = {
      .pre_padding = {0, 1, 0}, .post_padding = {2, 0, 1}, .stride = {1, 1, 1}, .dilation = {2, 1, 1}};
  c.y = {2, 4, 5};
  check<3>(c, false);
  check<3>(c, true);
  c.w = {2, 2, 2};
  c.y = {4, 5, 6};
  EXPECT_EQ(resident_window(test::fprop_view(c))->layers, 1) << "eight taps";
}

TEST(ResidentWindow, IsOfUnitStridesFewTapsAndOneLineOfChannels) {
  Case c{.images = 2,
         .x = {8, 8},
         .w = {3, 3},
         .y = {8, 8},
         .options = {.pre_padding = {1, 1}, .post_padding = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}}};
  const auto window = resident_window(test::fprop_view(c));
  ASSERT_TRUE(window);
  // A row of padding and a column are shared.
  EXPECT_EQ(window->count, 2 * 9 * 9);
  EXPECT_EQ(window->reach, 20);
  EXPECT_EQ(resident_window(test::fprop_view(c), false)->count, 2 * 9 * 10);
  EXPECT_FALSE(resident_window(test::fprop_view(c, 65)));
  c.images = int64_t{1} << 24;
  EXPECT_TRUE(resident_window(test::fprop_view(c)));
  c.images = int64_t{7} << 22;
  EXPECT_FALSE(resident_window(test::fprop_view(c))) << "2.4 billion positions of 1.9 billion pixels";
  c.images = 2;
  c.options.stride = {2, 1};
  c.y = {4, 8};
  EXPECT_FALSE(resident_window(test::fprop_view(c)));
  c.options = {.pre_padding = {2, 2}, .post_padding = {2, 2}, .stride = {1, 1}, .dilation = {1, 1}};
  c.w = {5, 5};
  c.y = {8, 8};
  EXPECT_FALSE(resident_window(test::fprop_view(c)));
}

}  // namespace
}  // namespace fusor
