// Tests interpolation beyond the golden cases: places that 32 bits do not count.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/backend/cpu_run.h"

namespace fusor {
namespace {

// Audio of 16 kHz at 44.1 kHz. The oracle evaluates the same expansion: this is compared with the formula.
TEST(Resample, NearestFindsItsElementsInLongLines) {
  constexpr int64_t kFrom = 160000, kTo = 441000;
  GraphBuilder g;
  const Tensor x = g.input("x", {1, 1, kFrom}, DataType::f32);
  const Tensor y = g.output(g.resample_fwd(x, {.mode = ResampleMode::nearest, .output_size = {kTo}}).y);
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  std::vector<double> values(kFrom);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  tensors.set(x, values);
  run_on_cpu(graph, tensors);
  const std::vector<double> got = tensors.get(y);
  for (int64_t i = 0; i < kTo; ++i)
    ASSERT_EQ(got[static_cast<size_t>(i)], static_cast<double>(i * kFrom / kTo)) << i;
}

TEST(Resample, BilinearOfTheSameSizeCopiesLongLines) {
  constexpr int64_t kElements = 70000;
  GraphBuilder g;
  const Tensor x = g.input("x", {1, 1, kElements}, DataType::f32);
  const Tensor y = g.output(
      g.resample_fwd(x, {.mode = ResampleMode::bilinear, .output_size = {kElements}, .align_corners = true})
          .y);
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  std::vector<double> values(kElements);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 1000);
  tensors.set(x, values);
  run_on_cpu(graph, tensors);
  EXPECT_EQ(tensors.get(y), values);
}

}  // namespace
}  // namespace fusor
