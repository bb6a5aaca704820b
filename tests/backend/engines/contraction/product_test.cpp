// Owns the check of the matrix-product view: the device's index arithmetic, run on the host with the argument
// bytes that the engines write, against convolutions and products written as plain loops.
#include "backend/engines/contraction/product.h"

#include <gtest/gtest.h>

#include <random>
#include <span>

#include "backend/planner/planner.h"
#include "codegen/text/parameters.h"
#include "frontend/graph_builder.h"
#include "tests/backend/engines/conv_products.h"

#define __device__  // NOLINT(bugprone-reserved-identifier): CUDA's word
namespace device {
#include "codegen/device/contraction/product.cuh"
}
#undef __device__

namespace fusor {
namespace {

using test::HostDivisor;

struct Values {
  Dims dims;
  std::vector<int64_t> values;

  explicit Values(const Dims& dims_) : dims(dims_), values(static_cast<size_t>(element_count(dims_)), 0) {}
  void fill(std::mt19937& random) {
    for (int64_t& value : values) value = static_cast<int64_t>(random() % 19) - 9;
  }
  int64_t& at(std::span<const int64_t> coordinates) {
    int64_t index = 0;
    EXPECT_EQ(static_cast<int>(coordinates.size()), dims.rank());
    for (size_t axis = 0; axis < coordinates.size(); ++axis) {
      const int i = static_cast<int>(axis);
      EXPECT_GE(coordinates[axis], 0);
      EXPECT_LT(coordinates[axis], dims[i]);
      index = index * dims[i] + coordinates[axis];
    }
    return values.at(static_cast<size_t>(index));
  }
};

// What a kernel does with the view, one element at a time.
template <class View>
void run_view(const View& view, int64_t entries, Values& first, Values& second, Values& result) {
  for (int64_t entry = 0; entry < entries; ++entry)
    for (int64_t m = 0; m < view.m; ++m)
      for (int64_t n = 0; n < view.n; ++n) {
        int64_t sum = 0;
        for (int64_t k = 0; k < view.k; ++k) {
          int64_t at_first[View::kAxes], at_second[View::kAxes];
          const auto step = view.step(k, view.k);
          const bool inside_first = view.first_operand(entry, view.row(m), step, at_first);
          const bool inside_second = view.second_operand(entry, view.column(n), step, at_second);
          if (inside_first && inside_second) sum += first.at(at_first) * second.at(at_second);
        }
        int64_t at[View::kAxes];
        view.result(entry, m, n, at);
        result.at(at) += sum + 1000000;  // an element that is written twice, or never, differs
      }
}

template <int kOp, int kSpatial, int kBatch, bool kChannelsFastest, bool kUnitStride>
void run_with(const Contraction& view, Values& first, Values& second, Values& result) {
  using View = device::Contraction<kOp, kSpatial, kBatch, kChannelsFastest, kUnitStride, int64_t, int64_t,
                                   HostDivisor>;
  Parameters p(64);
  view.append_to(p);
  ASSERT_EQ(p.block().bytes().size(), sizeof(View));
  View arguments;
  std::memcpy(&arguments, p.block().bytes().data(), sizeof arguments);
  run_view(arguments, view.entries, first, second, result);
}

template <int kOp, int kSpatial>
void run_convolution(const Contraction& view, Values& first, Values& second, Values& result) {
  if (view.channels_fastest && view.has_unit_stride())
    run_with<kOp, kSpatial, 0, true, true>(view, first, second, result);
  else if (view.channels_fastest)
    run_with<kOp, kSpatial, 0, true, false>(view, first, second, result);
  else if (view.has_unit_stride())
    run_with<kOp, kSpatial, 0, false, true>(view, first, second, result);
  else
    run_with<kOp, kSpatial, 0, false, false>(view, first, second, result);
}

template <int kOp>
void run_any_rank(const Contraction& view, Values& first, Values& second, Values& result) {
  switch (view.axes.size()) {
    case 1:
      return run_convolution<kOp, 1>(view, first, second, result);
    case 2:
      return run_convolution<kOp, 2>(view, first, second, result);
    default:
      return run_convolution<kOp, 3>(view, first, second, result);
  }
}

struct ConvolutionCase {
  Dims x, w, y;
  ConvOptions options;
  Layout layout = Layout::row_major;
};

ConvolutionCase random_case(std::mt19937& random, int spatial) {
  const auto between = [&](int64_t low, int64_t high) { return test::random_between(random, low, high); };
  ConvolutionCase c;
  const int64_t groups = between(1, 3), channels = between(1, 3), outputs = between(1, 3);
  c.x = {between(1, 2), groups * channels};
  c.w = {groups * outputs, channels};
  c.y = {c.x[0], c.w[0]};
  for (int i = 0; i < spatial; ++i) {
    const int64_t window = between(1, 3), dilation = between(1, 2), stride = between(1, 3);
    const int64_t before = between(0, 2), after = between(0, 2), spare = between(0, 3);
    test::ConvAxis{window, dilation, stride, before, after, spare}.append_to(c.x, c.w, c.y, c.options);
  }
  c.options.mode = random() % 2 == 0 ? ConvMode::cross_correlation : ConvMode::convolution;
  c.layout = random() % 2 == 0 ? Layout::row_major : Layout::nhwc;
  return c;
}

// Steps `coordinates` through `dims`, the last fastest; false after the last.
bool next(Dims& coordinates, const Dims& dims) {
  for (int i = dims.rank() - 1; i >= 0; --i) {
    if (++coordinates[i] < dims[i]) return true;
    coordinates[i] = 0;
  }
  return false;
}

// Calls meet(x's coordinates, w's, y's) for every product that the convolution adds up.
template <class Meet>
void for_each_product(const ConvolutionCase& c, const Meet& meet) {
  const int spatial = c.x.rank() - 2;
  const int64_t groups = c.x[1] / c.w[1];
  Dims y = Dims::filled(c.y.rank(), 0);
  do {
    Dims w = Dims::filled(c.w.rank(), 0);
    w[0] = y[1];
    Dims w_dims = c.w;
    w_dims[0] = 1;
    Dims tap = Dims::filled(c.w.rank(), 0);
    do {
      for (int i = 1; i < w.rank(); ++i) w[i] = tap[i];
      Dims x{y[0], y[1] / (c.w[0] / groups) * c.w[1] + w[1]};
      bool inside = true;
      for (int i = 0; i < spatial; ++i) {
        const bool mirrored = c.options.mode == ConvMode::convolution;
        const int64_t offset = mirrored ? c.w[2 + i] - 1 - w[2 + i] : w[2 + i];
        x.push_back(y[2 + i] * c.options.stride[i] - c.options.pre_padding[i] +
                    offset * c.options.dilation[i]);
        inside &= x[2 + i] >= 0 && x[2 + i] < c.x[2 + i];
      }
      if (inside) meet(x, w, y);
    } while (next(tap, w_dims));
  } while (next(y, c.y));
}

Fusion only_op(const Graph& graph) { return make_fusion(graph, fold_views(graph), std::vector<int>{0}); }

Values marked(const Dims& dims) {
  Values values(dims);
  for (int64_t& value : values.values) value = 1000000;
  return values;
}

void check(const ConvolutionCase& c, ConvPass pass, std::mt19937& random) {
  Values x(c.x), w(c.w), y(c.y);
  x.fill(random), w.fill(random), y.fill(random);
  GraphBuilder g;
  if (pass == ConvPass::fprop) {
    Values expected = marked(c.y), got(c.y);
    for_each_product(
        c, [&](const Dims& ix, const Dims& iw, const Dims& iy) { expected.at(iy) += x.at(ix) * w.at(iw); });
    const Tensor out = g.conv_fprop(g.input("x", c.x, DataType::f32, c.layout),
                                    g.input("w", c.w, DataType::f32, c.layout), c.options);
    run_any_rank<device::kFprop>(contraction_of(only_op(g.finish({out}))).value(), x, w, got);
    EXPECT_EQ(got.values, expected.values);
  } else if (pass == ConvPass::dgrad) {
    Values expected = marked(c.x), got(c.x);
    for_each_product(
        c, [&](const Dims& ix, const Dims& iw, const Dims& iy) { expected.at(ix) += y.at(iy) * w.at(iw); });
    const Tensor out = g.conv_dgrad(g.input("dy", c.y, DataType::f32, c.layout),
                                    g.input("w", c.w, DataType::f32, c.layout), c.x, c.options);
    run_any_rank<device::kDgrad>(contraction_of(only_op(g.finish({out}))).value(), y, w, got);
    EXPECT_EQ(got.values, expected.values);
  } else {
    Values expected = marked(c.w), got(c.w);
    for_each_product(
        c, [&](const Dims& ix, const Dims& iw, const Dims& iy) { expected.at(iw) += y.at(iy) * x.at(ix); });
    const Tensor out = g.conv_wgrad(g.input("dy", c.y, DataType::f32, c.layout),
                                    g.input("x", c.x, DataType::f32, c.layout), c.w, c.options);
    run_any_rank<device::kWgrad>(contraction_of(only_op(g.finish({out}))).value(), y, x, got);
    EXPECT_EQ(got.values, expected.values);
  }
}

class ConvolutionView : public testing::TestWithParam<ConvPass> {};

TEST_P(ConvolutionView, VisitsTheProductsOfThePlainLoops) {
  std::mt19937 random(7);
  for (int spatial = 1; spatial <= 3; ++spatial)
    for (int i = 0; i < 60; ++i) {
      const ConvolutionCase c = random_case(random, spatial);
      SCOPED_TRACE(testing::Message() << "x " << to_string(c.x) << " w " << to_string(c.w) << " case " << i);
      check(c, GetParam(), random);
      if (HasFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(Passes, ConvolutionView,
                         testing::Values(ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad),
                         [](const auto& instance) { return std::string(to_string(instance.param)); });

TEST(MatmulView, VisitsTheBatchInRowMajorOrder) {
  std::mt19937 random(3);
  GraphBuilder g;
  const Dims a_dims{2, 1, 3, 5}, b_dims{2, 3, 5, 4}, c_dims{2, 3, 3, 4};
  const Graph graph =
      g.finish({g.matmul(g.input("a", a_dims, DataType::f32), g.input("b", b_dims, DataType::f32))});
  const Contraction view = contraction_of(only_op(graph)).value();
  EXPECT_EQ(view.batch, (Dims{2, 3}));
  Values a({2, 3, 3, 5}), b(b_dims), got(c_dims), expected = marked(c_dims);
  a.fill(random), b.fill(random);
  run_with<device::kMatmul, 0, 2, true, true>(view, a, b, got);
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t j = 0; j < 3; ++j)
      for (int64_t m = 0; m < 3; ++m)
        for (int64_t n = 0; n < 4; ++n)
          for (int64_t k = 0; k < 5; ++k)
            expected.at(Dims{i, j, m, n}) += a.at(Dims{i, j, m, k}) * b.at(Dims{i, j, k, n});
  EXPECT_EQ(got.values, expected.values);
}

TEST(MatmulView, GivesBroadcastOperandsTheResultsBatch) {
  GraphBuilder g;
  const Tensor c = g.matmul(g.input("a", {7, 5}, DataType::f32), g.input("b", {2, 1, 5, 4}, DataType::f32));
  const Fusion fusion = only_op(g.finish({c}));
  const Contraction view = contraction_of(fusion).value();
  const Expr a = over_batch(operand_site(fusion, 0, 0), view.batch);
  EXPECT_EQ(a.domain, (Dims{2, 1, 7, 5}));
  EXPECT_EQ(a.nodes[0].access.strides, (Strides{0, 0, 5, 1}));
}

TEST(MatmulView, LetsAnExtentOfOneRepeat) {
  GraphBuilder g;
  // Rows that lie apart are no rows of one product.
  const Tensor a = g.input("a", {3, 7, 5}, DataType::f32, {.strides = Strides{64, 5, 1}});
  const Tensor c = g.matmul(a, g.input("b", {1, 5, 4}, DataType::f32));
  const Fusion fusion = only_op(g.finish({c}));
  const Expr b = over_batch(operand_site(fusion, 0, 1), contraction_of(fusion).value().batch);
  EXPECT_EQ(b.domain, (Dims{3, 5, 4}));
  EXPECT_EQ(b.nodes[0].access.strides, (Strides{0, 4, 1}));
}

}  // namespace
}  // namespace fusor
