// Owns the check of the classes of a dgrad of a stride: the device's arithmetic, run on the host with the
// argument bytes that the engine writes, against the convolution written as plain loops.
#include "backend/engines/contraction/residue_classes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <set>

#include "backend/engines/sm90/copy/tensor_maps.h"
#include "codegen/text/parameters.h"
#include "tests/backend/engines/conv_products.h"

#define __device__  // NOLINT(bugprone-reserved-identifier): CUDA's word
namespace device {
#include "codegen/device/contraction/residue_classes.cuh"
}
#undef __device__

namespace fusor {
namespace {

using test::Case;
using test::HostDivisor;
using test::linear;
using test::Products;

template <int kSpatial, int kClasses>
void check(const Case& c) {
  using Classes = device::ResidueClasses<kSpatial, kClasses, int64_t, int64_t, HostDivisor>;
  using View = device::Contraction<device::kDgrad, kSpatial, 0, true, false, int64_t, int64_t, HostDivisor>;
  const Contraction contraction = test::dgrad_view(c);
  const ResidueClasses host = residue_classes(contraction);
  ASSERT_EQ(host.count(), kClasses);
  ASSERT_EQ(residue_class_count(contraction), kClasses);
  Parameters p(64);
  contraction.append_to(p);
  ASSERT_EQ(p.block().bytes().size(), sizeof(View));
  host.append_to(p, 1);
  ASSERT_EQ(p.block().bytes().size(), sizeof(View) + sizeof(Classes));
  View view;
  Classes classes;
  std::memcpy(&view, p.block().bytes().data(), sizeof view);
  std::memcpy(&classes, p.block().bytes().data() + sizeof view, sizeof classes);

  Products products;
  std::multiset<int64_t> pixels;
  for (int number = 0; number < kClasses; ++number) {
    const int before = std::max(number - 1, 0);
    EXPECT_LE(classes.classes[number].steps, classes.classes[before].steps);
    for (int64_t row = 0; row < classes.rows + 3; ++row) {
      const auto clamped = classes.template row<true>(view, number, row);
      EXPECT_LT(clamped.lead, c.images);
      for (int i = 0; i < kSpatial; ++i) EXPECT_LT(clamped.at[i], c.x[i]);
      const auto key = classes.template row<false>(view, number, row);
      if (key.lead < 0) continue;
      ASSERT_LT(row, classes.rows);
      const int64_t pixel = linear(key.lead, {key.at, key.at + kSpatial}, c.x);
      pixels.insert(pixel);
      for (int64_t step = 0; step < classes.classes[number].steps; ++step) {
        int64_t at[kSpatial];
        const int64_t tap = classes.split_tap(number, step, at);
        // The loader's way from a row and a tap to a position.
        int64_t rest = row;
        std::vector<int64_t> y(kSpatial);
        bool inside = true;
        for (int i = kSpatial - 1; i >= 0; --i) {
          const auto s = static_cast<size_t>(i);
          const WindowWalk walk = window_walk(contraction, contraction.axes[s]);
          const int64_t offset = at[i] * walk.slope + classes.classes[number].axis[i].origin;
          EXPECT_GE(offset, 0);
          EXPECT_LE(offset, walk.reach);
          y[s] = rest % walk.pixels * walk.stride + walk.lower + offset;
          rest /= walk.pixels;
          inside &= y[s] >= 0 && y[s] < c.y[i];
        }
        if (inside) products.insert({pixel, tap, linear(rest, y, c.y)});
      }
    }
  }
  EXPECT_EQ(products, test::plain_products(c));
  // Every input pixel is one class' row, once.
  EXPECT_EQ(static_cast<int64_t>(pixels.size()), contraction.m);
  EXPECT_EQ(static_cast<int64_t>(std::set<int64_t>(pixels.begin(), pixels.end()).size()), contraction.m);
}

template <int kSpatial, int kClasses = 1>
void check_any(const Case& c) {
  if constexpr (kClasses > 16)
    FAIL() << "too many classes";
  else if (residue_class_count(test::dgrad_view(c)) == kClasses)
    check<kSpatial, kClasses>(c);
  else
    check_any<kSpatial, kClasses + 1>(c);
}

template <int kSpatial>
void check_random(int count) {
  std::mt19937 random(11);
  for (int i = 0; i < count; ++i) {
    const Case c = test::random_case(random, kSpatial, true);
    SCOPED_TRACE(test::to_string(c));
    check_any<kSpatial>(c);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(ResidueClasses, VisitTheProductsOfThePlainLoops) {
  check_random<1>(3000);
  check_random<2>(300);
  check_random<3>(60);
}

TEST(ResidueClasses, AreOfADgradOfAStrideOnly) {
  Case c{.images = 1,
         .x = {8, 8},
         .w = {3, 3},
         .y = {8, 8},
         .options = {.pre_padding = {1, 1}, .post_padding = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}}};
  EXPECT_EQ(residue_class_count(test::dgrad_view(c)), 0);
  c.options.stride = {2, 2};
  c.y = {4, 4};
  const ResidueClasses classes = residue_classes(test::dgrad_view(c));
  ASSERT_EQ(classes.count(), 4);
  EXPECT_EQ(classes.rows, 16);
  EXPECT_EQ(classes.taps(), 9);
  EXPECT_EQ(classes.classes.front().taps, 4);
  EXPECT_EQ(classes.classes.back().taps, 1);
}

TEST(ResidueClasses, OfAUnitStrideAreOne) {
  for (const int64_t step : {1, 3, -1, -3}) {
    const AxisClasses all = axis_classes({.input = 9, .output = 9, .window = 3, .step = step, .start = -2});
    ASSERT_EQ(all.classes.size(), 1u);
    EXPECT_EQ(all.positions, 9);
    EXPECT_EQ(all.tap_step, 1);
    EXPECT_EQ(all.slope, -step);
    EXPECT_EQ(all.reach, 2 * std::abs(step));
    EXPECT_EQ(all.lower + all.classes[0].origin, 2);
  }
}

}  // namespace
}  // namespace fusor
