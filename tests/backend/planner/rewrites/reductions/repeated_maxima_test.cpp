// Owns the tests that a softmax of shifted rows does not shift them again.
#include "backend/planner/rewrites/reductions/repeated_maxima.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>

#include "backend/planner/planner.h"
#include "frontend/graph_builder.h"
#include "tests/backend/cpu_run.h"
#include "tests/backend/planner/planned_once.h"

namespace fusor::repeated_maxima_test {
namespace {

int maxima_of(const Graph& graph) {
  return static_cast<int>(std::ranges::count_if(test::planned_once(graph).ops, [](const Op& op) {
    const auto* const reduction = std::get_if<Reduction>(&op.attributes);
    return reduction != nullptr && reduction->mode == ReductionMode::max;
  }));
}

Tensor shifted(GraphBuilder& g, const Tensor& x, DataType type = DataType::f32) {
  return g.sub(x, g.reduce(x, ReductionMode::max, {1}), {.type = type});
}

TEST(RepeatedMaxima, ASoftmaxOfShiftedRowsShiftsThemOnce) {
  for (const DataType type : {DataType::f32, DataType::f16}) {
    GraphBuilder g;
    const Tensor x = g.input("x", {5, 9}, type);
    const Graph graph = g.finish({g.softmax(shifted(g, x), {.axis = 1}).y});
    EXPECT_EQ(maxima_of(graph), 1);
    expect_right_on_cpu(graph);
  }
}

// Rows of infinities and of no numbers have no sums, however often they are shifted.
TEST(RepeatedMaxima, RowsWithoutASumHaveNone) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double odd : {kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN()}) {
    GraphBuilder g;
    const Tensor x = g.input("x", {3, 4}, DataType::f32);
    const Tensor y = g.output(g.softmax(shifted(g, x), {.axis = 1}).y, {.name = "y"});
    const Graph graph = g.finish();
    HostTensors tensors(graph, 3);
    std::vector<double> values(12, -kInfinity);
    for (int i = 0; i < 4; ++i) values[static_cast<size_t>(i)] = 0.5 * i;  // an ordinary row
    values[1] = -kInfinity;
    for (int i = 4; i < 7; ++i) values[static_cast<size_t>(i)] = i;
    values[7] = odd;
    tensors.set(x, values);
    run_on_cpu(graph, tensors, y);
  }
}

// A difference in 16 bits, one that others read, another axis, another maximum.
TEST(RepeatedMaxima, OtherMaximaStay) {
  for (const int kind : {0, 1, 2, 3}) {
    GraphBuilder g;
    const Tensor x = g.input("x", {5, 9}, DataType::f32);
    const Tensor once = shifted(g, kind == 3 ? g.abs(x) : x, kind == 0 ? DataType::f16 : DataType::f32);
    const Tensor twice = g.sub(kind == 3 ? x : once, g.reduce(once, ReductionMode::max, {kind == 2 ? 0 : 1}));
    const Tensor exp = g.exp(twice);
    std::vector<Tensor> results{g.div(exp, g.reduce(exp, ReductionMode::add, {1}))};
    if (kind == 1) results.push_back(g.neg(twice));
    const Graph graph = g.finish(results);
    EXPECT_EQ(maxima_of(graph), 2) << kind;
    expect_right_on_cpu(graph);
  }
}

}  // namespace
}  // namespace fusor::repeated_maxima_test
