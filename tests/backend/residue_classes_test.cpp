// Owns the check of the classes of a dgrad of a stride: the device's arithmetic, run on the host with the
// argument bytes that the engine writes, against the convolution written as plain loops.
#include "backend/engines/residue_classes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <set>

#include "backend/engines/tensor_maps.h"
#include "backend/planner.h"
#include "frontend/graph_builder.h"

#define __device__  // NOLINT(bugprone-reserved-identifier): CUDA's word
namespace device {
#include "codegen/device/residue_classes.cuh"
}
#undef __device__

namespace fusor {
namespace {

// The fields of codegen/device/types.cuh's divisor, with the processor's own division.
struct HostDivisor {
  int64_t divisor, multiplier, shift;
  int64_t split(int64_t& n) const {
    const int64_t remainder = n % divisor;
    n /= divisor;
    return remainder;
  }
};

// One channel everywhere: what classes are about is pixels and taps.
struct Case {
  int64_t images = 1;
  Dims x, w, y;  // spatial
  ConvOptions options;
};

Dims with_channels(int64_t lead, const Dims& spatial) {
  Dims dims{lead, 1};
  for (const int64_t extent : spatial) dims.push_back(extent);
  return dims;
}

Contraction view_of(const Case& c) {
  GraphBuilder g;
  const Tensor dx = g.conv_dgrad(g.input("dy", with_channels(c.images, c.y), DataType::f32),
                                 g.input("w", with_channels(1, c.w), DataType::f32),
                                 with_channels(c.images, c.x), c.options);
  const Graph graph = g.finish({dx});
  return contraction_of(make_fusion(graph, fold_views(graph), std::vector<int>{0})).value();
}

int64_t linear(int64_t lead, const std::vector<int64_t>& at, const Dims& dims) {
  for (size_t i = 0; i < at.size(); ++i) lead = lead * dims[static_cast<int>(i)] + at[i];
  return lead;
}

// Row-major, taken apart.
std::vector<int64_t> split(int64_t index, const Dims& dims) {
  std::vector<int64_t> at(static_cast<size_t>(dims.rank()));
  for (int i = dims.rank() - 1; i >= 0; --i) {
    at[static_cast<size_t>(i)] = index % dims[i];
    index /= dims[i];
  }
  return at;
}

// A product that is added up: input pixel, tap and output pixel.
using Products = std::multiset<std::array<int64_t, 3>>;

Products plain_products(const Case& c) {
  Products products;
  for (int64_t image = 0; image < c.images; ++image)
    for (int64_t pixel = 0; pixel < element_count(c.y); ++pixel)
      for (int64_t tap = 0; tap < element_count(c.w); ++tap) {
        const std::vector<int64_t> y = split(pixel, c.y), w = split(tap, c.w);
        std::vector<int64_t> x(y.size());
        bool inside = true;
        for (size_t s = 0; s < x.size(); ++s) {
          const int i = static_cast<int>(s);
          const bool mirrored = c.options.mode == ConvMode::convolution;
          const int64_t place = mirrored ? c.w[i] - 1 - w[s] : w[s];
          x[s] = y[s] * c.options.stride[i] - c.options.pre_padding[i] + place * c.options.dilation[i];
          inside &= x[s] >= 0 && x[s] < c.x[i];
        }
        if (inside) products.insert({linear(image, x, c.x), tap, linear(image, y, c.y)});
      }
  return products;
}

template <int kSpatial, int kClasses>
void check(const Case& c) {
  using Classes = device::ResidueClasses<kSpatial, kClasses, int64_t, int64_t, HostDivisor>;
  using View = device::Contraction<device::kDgrad, kSpatial, 0, true, false, int64_t, int64_t, HostDivisor>;
  const Contraction contraction = view_of(c);
  const ResidueClasses host = residue_classes(contraction);
  ASSERT_EQ(host.count(), kClasses);
  ASSERT_EQ(residue_class_count(contraction), kClasses);
  ArgumentBlock block;
  contraction.write_arguments(block, 64);
  ASSERT_EQ(block.bytes().size(), sizeof(View));
  host.write_arguments(block, 1, 64);
  ASSERT_EQ(block.bytes().size(), sizeof(View) + sizeof(Classes));
  View view;
  Classes classes;
  std::memcpy(&view, block.bytes().data(), sizeof view);
  std::memcpy(&classes, block.bytes().data() + sizeof view, sizeof classes);

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
  EXPECT_EQ(products, plain_products(c));
  // Every input pixel is one class' row, once.
  EXPECT_EQ(static_cast<int64_t>(pixels.size()), contraction.m);
  EXPECT_EQ(static_cast<int64_t>(std::set<int64_t>(pixels.begin(), pixels.end()).size()), contraction.m);
}

template <int kSpatial, int kClasses = 1>
void check_any(const Case& c) {
  if constexpr (kClasses > 16)
    FAIL() << "too many classes";
  else if (residue_class_count(view_of(c)) == kClasses)
    check<kSpatial, kClasses>(c);
  else
    check_any<kSpatial, kClasses + 1>(c);
}

Case random_case(std::mt19937& random, int spatial) {
  const auto between = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  Case c;
  c.images = between(1, 2);
  for (int i = 0; i < spatial; ++i) {
    const int64_t window = between(1, spatial == 3 ? 3 : 7), dilation = between(1, 6);
    const int64_t stride =
        spatial == 3 ? between(i == 0 ? 2 : 1, 2) : between(i == 0 ? 2 : 1, spatial == 2 ? 4 : 9);
    const int64_t before = between(0, 6), after = between(0, 6);
    const int64_t covered = dilation * (window - 1) + 1;
    const int64_t input = std::max<int64_t>(1, covered - before - after) + between(0, 4);
    c.x.push_back(input);
    c.w.push_back(window);
    c.y.push_back((input + before + after - covered) / stride + 1);
    c.options.pre_padding.push_back(before);
    c.options.post_padding.push_back(after);
    c.options.stride.push_back(stride);
    c.options.dilation.push_back(dilation);
  }
  c.options.mode = random() % 2 == 0 ? ConvMode::cross_correlation : ConvMode::convolution;
  return c;
}

template <int kSpatial>
void check_random(int count) {
  std::mt19937 random(11);
  for (int i = 0; i < count; ++i) {
    const Case c = random_case(random, kSpatial);
    SCOPED_TRACE(testing::Message() << "x " << to_string(c.x) << " w " << to_string(c.w) << " stride "
                                    << to_string(c.options.stride) << " dilation "
                                    << to_string(c.options.dilation) << " padding "
                                    << to_string(c.options.pre_padding) << " case " << i);
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
  EXPECT_EQ(residue_class_count(view_of(c)), 0);
  c.options.stride = {2, 2};
  c.y = {4, 4};
  const ResidueClasses classes = residue_classes(view_of(c));
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
