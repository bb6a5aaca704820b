// Tests what is known of values: fillings stay in their ranges, and ops that would make right runs differ are
// refused.
#include "tools/fuzz/values.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "core/convert.h"
#include "frontend/graph_builder.h"
#include "tools/fuzz/random_graph.h"

namespace fusor::fuzz {
namespace {

TEST(Values, FillingsStayInTheirRanges) {
  for (int filling = 0; filling < kFillings; ++filling)
    for (const DataType type : {DataType::f32, DataType::f8_e4m3, DataType::i8, DataType::u8, DataType::b8}) {
      Tensor tensor;
      tensor.name = "x." + std::string(to_string(static_cast<Filling>(filling)));
      tensor.type = type;
      tensor.dims = {500};
      tensor.strides = {1};
      std::vector<std::byte> buffer(static_cast<size_t>(tensor.bytes()));
      fill(tensor, buffer.data(), 7);
      const Values values = values_of(tensor);
      for (int i = 0; i < 500; ++i) {
        EXPECT_GE(load_real(type, buffer.data(), i), values.least) << tensor.name << ' ' << to_string(type);
        EXPECT_LE(load_real(type, buffer.data(), i), values.most) << tensor.name << ' ' << to_string(type);
      }
    }
}

TEST(Values, DistinctNumbersAreAllDifferent) {
  Tensor tensor;
  tensor.name = "x.distinct";
  tensor.type = DataType::i32;
  tensor.dims = {20, 25};
  tensor.strides = {25, 1};
  std::vector<std::byte> buffer(static_cast<size_t>(tensor.bytes()));
  fill(tensor, buffer.data(), 7);
  std::set<int64_t> found;
  for (int i = 0; i < 500; ++i) found.insert(load_int(tensor.type, buffer.data(), i));
  EXPECT_EQ(found.size(), 500U);
  EXPECT_EQ(*found.begin(), 0);
  EXPECT_EQ(static_cast<double>(*found.rbegin()), values_of(tensor).most);
}

// Where two elements go to one place, either may be the last.
TEST(Values, ScattersNeedIndicesThatAreAllDifferent) {
  for (const auto& [name, step, is_right] :
       {std::tuple("at.distinct", 1, true), std::tuple("at.distinct", 0, false),
        std::tuple("at.unit", 1, false)}) {
    GraphBuilder g;
    const Tensor x = g.input("x.unit", {6}, DataType::i4);
    const Tensor at = g.input(name, {6}, DataType::i32, {.strides = Strides{step}});
    g.output(g.scatter(x, at, {9}));
    EXPECT_EQ(is_well_conditioned(g.finish()), is_right) << name << ' ' << step;
  }
}

TEST(Values, AFileSaysItsFillingsByName) {
  EXPECT_EQ(filling_of("x12.positive"), Filling::positive);
  EXPECT_EQ(filling_of("sparse"), Filling::sparse);
  EXPECT_EQ(filling_of("image"), Filling::unit);
}

TEST(Values, LogarithmsReadPositiveNumbersOnly) {
  for (const bool positive : {true, false}) {
    GraphBuilder g;
    const Tensor x = g.input(positive ? "x.positive" : "x.unit", {4}, DataType::f32);
    EXPECT_EQ(is_well_conditioned(g.finish({g.log(x)})), positive);
  }
}

TEST(Values, ComparisonsReadExactValuesOnly) {
  GraphBuilder g;
  const Tensor x = g.input("x", {4}, DataType::f32);
  g.output(g.cmp_gt(x, g.constant(0.3)));
  EXPECT_TRUE(is_well_conditioned(g.finish()));
  GraphBuilder h;
  const Tensor y = h.input("y", {4}, DataType::f32);
  EXPECT_FALSE(is_well_conditioned(h.finish({h.cmp_gt(h.exp(y), h.constant(1))})));
}

TEST(Values, RandomGraphsAreWellConditioned) {
  for (int64_t index = 0; index < 100; ++index)
    EXPECT_TRUE(is_well_conditioned(random_graph(2, index))) << index;
}

}  // namespace
}  // namespace fusor::fuzz
