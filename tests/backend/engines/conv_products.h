// Owns what tests of a convolution's arithmetic share: random cases, and the products that the plain loops
// add up.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "backend/engines/contraction/product.h"
#include "backend/planner/planner.h"
#include "core/attributes.h"
#include "frontend/graph_builder.h"
#include "tests/backend/engines/host_divisor.h"

namespace fusor::test {

// One channel everywhere: what classes are about is pixels and taps.
struct Case {
  int64_t images = 1;
  Dims x, w, y;  // spatial
  ConvOptions options;
};

inline Dims with_lead(int64_t lead, int64_t channels, const Dims& spatial) {
  Dims dims{lead, channels};
  for (const int64_t extent : spatial) dims.push_back(extent);
  return dims;
}

inline Contraction view_of(const Graph& graph) {
  return contraction_of(make_fusion(graph, fold_views(graph), std::vector<int>{0})).value();
}
inline Contraction dgrad_view(const Case& c) {
  GraphBuilder g;
  const Tensor dx =
      g.conv_dgrad(g.input("dy", with_lead(c.images, 1, c.y), DataType::f32),
                   g.input("w", with_lead(1, 1, c.w), DataType::f32), with_lead(c.images, 1, c.x), c.options);
  return view_of(g.finish({dx}));
}
inline Contraction fprop_view(const Case& c, int64_t channels = 1) {
  GraphBuilder g;
  const Tensor y = g.conv_fprop(g.input("x", with_lead(c.images, channels, c.x), DataType::f32),
                                g.input("w", with_lead(1, channels, c.w), DataType::f32), c.options);
  return view_of(g.finish({y}));
}

inline int64_t linear(int64_t lead, const std::vector<int64_t>& at, const Dims& dims) {
  for (size_t i = 0; i < at.size(); ++i) lead = lead * dims[static_cast<int>(i)] + at[i];
  return lead;
}

// Row-major, taken apart.
inline std::vector<int64_t> split(int64_t index, const Dims& dims) {
  std::vector<int64_t> at(static_cast<size_t>(dims.rank()));
  for (int i = dims.rank() - 1; i >= 0; --i) {
    at[static_cast<size_t>(i)] = index % dims[i];
    index /= dims[i];
  }
  return at;
}

// A product that is added up: input pixel, tap and output pixel.
using Products = std::multiset<std::array<int64_t, 3>>;

inline Products plain_products(const Case& c) {
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

inline int64_t random_between(std::mt19937& random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
}

/// One spatial axis; the input has so many pixels more than its first output needs.
struct ConvAxis {
  int64_t window, dilation, stride, before, after, spare;

  void append_to(Dims& x, Dims& w, Dims& y, ConvOptions& options) const {
    const int64_t covered = dilation * (window - 1) + 1;
    const int64_t input = std::max<int64_t>(1, covered - before - after) + spare;
    x.push_back(input);
    w.push_back(window);
    y.push_back((input + before + after - covered) / stride + 1);
    options.pre_padding.push_back(before);
    options.post_padding.push_back(after);
    options.stride.push_back(stride);
    options.dilation.push_back(dilation);
  }
};

/// `strided`: the first axis has a stride above 1, others may.
inline Case random_case(std::mt19937& random, int spatial, bool strided, int64_t most_taps = 7) {
  const auto between = [&](int64_t low, int64_t high) { return random_between(random, low, high); };
  Case c;
  c.images = between(1, 2);
  for (int i = 0; i < spatial; ++i) {
    const int64_t window = between(1, spatial == 3 ? 3 : most_taps), dilation = between(1, 6);
    const int64_t stride = !strided       ? 1
                           : spatial == 3 ? between(i == 0 ? 2 : 1, 2)
                                          : between(i == 0 ? 2 : 1, spatial == 2 ? 4 : 9);
    const int64_t before = between(0, 6), after = between(0, 6), spare = between(0, 4);
    ConvAxis{window, dilation, stride, before, after, spare}.append_to(c.x, c.w, c.y, c.options);
  }
  c.options.mode = random() % 2 == 0 ? ConvMode::cross_correlation : ConvMode::convolution;
  return c;
}

inline std::string to_string(const Case& c) {
  return fmt::format("x {} w {} stride {} dilation {} padding {} and {}", to_string(c.x), to_string(c.w),
                     to_string(c.options.stride), to_string(c.options.dilation),
                     to_string(c.options.pre_padding), to_string(c.options.post_padding));
}

}  // namespace fusor::test
