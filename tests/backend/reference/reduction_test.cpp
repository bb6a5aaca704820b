// Tests the evaluator's reductions: every mode over rows, columns and both, groups, and the fixed order of
// accumulation.
#include <algorithm>
#include <cstdlib>

#include "tests/backend/reference/host_buffers.h"

namespace fusor {
namespace {

double literal(ReductionMode mode, const std::vector<double>& x) {
  double y = mode == ReductionMode::mul || mode == ReductionMode::mul_no_zeros ? 1 : 0;
  if (mode == ReductionMode::min || mode == ReductionMode::max) y = x.front();
  for (const double v : x) switch (mode) {
      case ReductionMode::add:
      case ReductionMode::avg:
        y += v;
        break;
      case ReductionMode::mul:
        y *= v;
        break;
      case ReductionMode::mul_no_zeros:
        y *= v == 0 ? 1 : v;
        break;
      case ReductionMode::min:
        y = std::fmin(y, v);
        break;
      case ReductionMode::max:
        y = std::fmax(y, v);
        break;
      case ReductionMode::amax:
        y = std::fmax(y, std::fabs(v));
        break;
      case ReductionMode::norm1:
        y += std::fabs(v);
        break;
      case ReductionMode::norm2:
        y += v * v;
        break;
    }
  if (mode == ReductionMode::avg) y /= static_cast<double>(x.size());
  return mode == ReductionMode::norm2 ? std::sqrt(y) : y;
}

struct Shape {
  Dims x, y;
};

// Long rows, long columns, everything, short rows, split axes: each takes another way through the evaluator.
const Shape kShapes[] = {{{3, 1500}, {3, 1}},    {{1500, 70}, {1, 70}},     {{300, 700}, {1, 1}},
                         {{2000, 3}, {2000, 1}}, {{4, 12, 40}, {4, 3, 40}}, {{6, 5, 64}, {2, 5, 8}},
                         {{1, 1}, {1, 1}}};

class EachMode : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Modes, EachMode, testing::Range(0, reduction_mode_count()), [](const auto& tested) {
  return std::string(to_string(static_cast<ReductionMode>(tested.param)));
});

TEST_P(EachMode, AgreesWithALiteralLoop) {
  const auto mode = static_cast<ReductionMode>(GetParam());
  for (const Shape& shape : kShapes)
    for (const Reading reading : {Reading::oracle, Reading::device}) {
      GraphBuilder g;
      const Tensor x = g.input("x", shape.x, DataType::f64);
      const Tensor y = g.output(g.reduce_to(x, mode, shape.y), {.name = "y"});
      const Graph graph = g.finish();
      HostTensors tensors(graph);
      auto values = tensors.get(x);
      const bool product = mode == ReductionMode::mul || mode == ReductionMode::mul_no_zeros;
      if (product)  // near 1, so that long products stay away from 0
        for (size_t i = 0; i < values.size(); ++i) values[i] = i % 7 == 3 ? 0 : 1 + values[i] / 100;
      if (mode == ReductionMode::mul) std::ranges::replace(values, 0.0, -1.0);
      tensors.set(x, values);
      tensors.run(reading);
      const auto got = tensors.get(y);
      std::vector<std::vector<double>> members(got.size());
      for (size_t i = 0; i < values.size(); ++i) {
        size_t rest = i, to = 0, step = 1;
        for (int axis = shape.x.rank() - 1; axis >= 0; --axis) {
          const auto extent = static_cast<size_t>(shape.x[axis]), kept = static_cast<size_t>(shape.y[axis]);
          to += rest % extent / (extent / kept) * step;
          step *= kept;
          rest /= extent;
        }
        members[to].push_back(values[i]);
      }
      for (size_t i = 0; i < got.size(); ++i) {
        const double want = literal(mode, members[i]);
        ASSERT_NEAR(got[i], want, 1e-11 * std::max(1.0, std::fabs(want)))
            << to_string(shape.x) << " element " << i;
      }
    }
}

TEST(Reduction, IntegerSumsWrapInBothReadings) {
  for (const Reading reading : {Reading::oracle, Reading::device}) {
    GraphBuilder g;
    const Tensor x = g.input("x", {3}, DataType::i32);
    const Tensor y = g.output(g.reduce(x, ReductionMode::add), {.name = "y", .type = DataType::i32});
    const Graph graph = g.finish();
    HostTensors tensors(graph);
    tensors.set(x, {2147483647, 2147483647, 3});
    tensors.run(reading);
    EXPECT_EQ(tensors.get(y).front(), 1);
  }
}

TEST(Reduction, MaxPropagatesNaN) {
  GraphBuilder g;
  const Tensor x = g.input("x", {1000}, DataType::f32);
  const Tensor y = g.output(g.reduce(x, ReductionMode::max), {.name = "y"});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  auto values = tensors.get(x);
  values[777] = std::nan("");
  tensors.set(x, values);
  tensors.run(Reading::device);
  EXPECT_TRUE(std::isnan(tensors.get(y).front()));
}

TEST(Reduction, AFusionStoresElementsAndTheirSums) {
  GraphBuilder g;
  const Tensor x = g.input("x", {50, 600}, DataType::f32);
  const Tensor y = g.output(g.mul(x, x), {.name = "y"});
  const Tensor s = g.output(g.reduce(y, ReductionMode::add, {0}), {.name = "s"});
  const Graph graph = g.finish();
  HostTensors fused(graph), apart(graph);
  const std::vector<int> ops = {0, 1};
  fused.run(make_fusion(graph, fold_views(graph), ops), Reading::device);
  apart.run(Reading::device);
  EXPECT_EQ(fused.get(y), apart.get(y));
  EXPECT_EQ(fused.get(s), apart.get(s));
}

// The fusion of all ops of a graph gives what its ops give one by one.
void expect_same_fused(const Graph& graph, const std::vector<Tensor>& outputs) {
  std::vector<int> ops;
  for (int op = 0; op < std::ssize(graph.ops); ++op) ops.push_back(op);
  for (const Reading reading : {Reading::oracle, Reading::device}) {
    HostTensors fused(graph), apart(graph);
    fused.run(make_fusion(graph, fold_views(graph), ops), reading);
    apart.run(reading);
    for (const Tensor& output : outputs) {
      const auto got = fused.get(output), want = apart.get(output);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], want[i], 1e-4 * std::max(1.0, std::fabs(want[i]))) << output.name << " " << i;
    }
  }
}

TEST(Reduction, OneFusionSumsRowsAndColumns) {
  GraphBuilder g;
  const Tensor x = g.input("x", {64, 96}, DataType::f32);
  const Tensor rows = g.output(g.reduce(x, ReductionMode::add, {1}), {.name = "rows"});
  const Tensor columns = g.output(g.reduce(x, ReductionMode::add, {0}), {.name = "columns"});
  expect_same_fused(g.finish(), {rows, columns});
}

TEST(Reduction, OneFusionSumsRowsAndColumnsOfAMatmul) {
  GraphBuilder g;
  const Tensor a = g.input("a", {64, 32}, DataType::f32), b = g.input("b", {32, 96}, DataType::f32);
  const Tensor y = g.output(g.relu(g.matmul(a, b)), {.name = "y"});
  const Tensor rows = g.output(g.reduce(y, ReductionMode::add, {1}), {.name = "rows"});
  const Tensor columns = g.output(g.reduce(y, ReductionMode::max, {0}), {.name = "columns"});
  const Tensor all = g.output(g.reduce(y, ReductionMode::add), {.name = "all"});
  expect_same_fused(g.finish(), {y, rows, columns, all});
}

TEST(Reduction, TheNumberOfThreadsChangesNoBit) {
  const std::string before = std::getenv("FUSOR_THREADS") ? std::getenv("FUSOR_THREADS") : "";
  for (const Shape& shape : kShapes) {
    GraphBuilder g;
    const Tensor x = g.input("x", shape.x, DataType::f32);
    const Tensor y = g.output(g.reduce_to(x, ReductionMode::add, shape.y), {.name = "y"});
    const Graph graph = g.finish();
    std::vector<double> first;
    for (const char* threads : {"1", "2", "7"}) {
      setenv("FUSOR_THREADS", threads, 1);
      HostTensors tensors(graph);
      tensors.run(Reading::device);
      if (first.empty()) first = tensors.get(y);
      EXPECT_EQ(tensors.get(y), first) << to_string(shape.x) << " with " << threads;
    }
  }
  if (before.empty())
    unsetenv("FUSOR_THREADS");
  else
    setenv("FUSOR_THREADS", before.c_str(), 1);
}

TEST(Reduction, LongFloatSumsStayAccurate) {
  GraphBuilder g;
  const Tensor x = g.input("x", {1 << 22}, DataType::f32);
  const Tensor y = g.output(g.reduce(x, ReductionMode::add), {.name = "y"});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(x, std::vector<double>(1 << 22, 0.1));
  tensors.run(Reading::device);
  EXPECT_NEAR(tensors.get(y).front() / (0.1f * double{1 << 22}), 1, 2e-6);
}

}  // namespace
}  // namespace fusor
