// Owns the tests of the elementwise engine on the GPU: every mode, type, odd size and odd stride against the
// oracle.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <set>

#include "backend/engines/list.h"
#include "frontend/graph_builder.h"
#include "tests/backend/engines/elementwise/cases.h"
#include "tests/gpu/device_run.h"
#include "tests/gpu/engines/every_config.h"

namespace fusor {
namespace {

constexpr DataType kTypes[] = {DataType::f64,     DataType::f32,     DataType::f16, DataType::bf16,
                               DataType::f8_e4m3, DataType::f8_e5m2, DataType::i64, DataType::i32,
                               DataType::i8,      DataType::u8,      DataType::b8,  DataType::f4_e2m1,
                               DataType::i4,      DataType::b1};

const std::array<const Engine*, 1> kElementwiseOnly{&elementwise_engine()};

TEST(ElementwiseGpu, EveryModeInFp32AndFp16) {
  FUSOR_NEEDS_GPU();
  for (const DataType type : {DataType::f32, DataType::f16, DataType::f64}) {
    for (int i = 0; i < pointwise_mode_count(); ++i) {
      const auto mode = static_cast<PointwiseMode>(i);
      GraphBuilder g("mode");
      std::vector<Tensor> operands;
      operands.reserve(3);
      for (int k = 0; k < info(mode).inputs; ++k)
        operands.push_back(g.input(fmt::format("x{}", k), {5, 77}, type));
      const Tensor y =
          mode == PointwiseMode::gen_index ? g.gen_index(operands[0], 1) : g.pointwise(mode, operands);
      expect_correct(g.finish({y}), fmt::format("{} {}", to_string(mode), to_string(type)));
    }
  }
}

// Every tensor is larger than such an L2.
TEST(ElementwiseGpu, ResultsThatStayInL2Longest) {
  FUSOR_NEEDS_GPU();
  DeviceInfo device = DeviceInfo::current();
  device.l2_bytes = 1024;
  for (const int64_t columns : {1024, 1003})
    for (const DataType type : {DataType::bf16, DataType::f64, DataType::f8_e4m3}) {
      GraphBuilder g("stays");
      g.output(g.relu(g.add(g.input("x", {67, columns}, type), g.input("bias", {1, columns}, type))),
               {.type = type});
      const Graph graph = g.finish();
      DeviceRun run(graph, build(graph, device));
      run.run();
      EXPECT_TRUE(run.gaps_are_untouched()) << columns << " of " << to_string(type);
      const VerifyReport report = run.check();
      EXPECT_TRUE(report.passed()) << columns << " of " << to_string(type) << "\n" << to_string(report);
    }
}

TEST(ElementwiseGpu, PairsThatLieBetweenEachOther) {
  FUSOR_NEEDS_GPU();
  for (const DataType type : {DataType::f64, DataType::f32, DataType::f16, DataType::bf16, DataType::f8_e4m3})
    for (const DataType angles : {DataType::f32, DataType::bf16})
      for (const Dims& x : {Dims{33, 128}, Dims{5, 4}, Dims{130, 72}, Dims{7, 66}, Dims{3, 2}})
        expect_every_config_correct(elementwise_cases::rotary_pairs(type, x, angles), kElementwiseOnly,
                                    fmt::format("{} {}", to_string(x), to_string(type)));
}

TEST(ElementwiseGpu, TwoPairsOfOneOperand) {
  FUSOR_NEEDS_GPU();
  for (const DataType type : {DataType::f64, DataType::f32, DataType::f16, DataType::i8})
    for (const Dims& x : {Dims{33, 128}, Dims{5, 8}, Dims{7, 67}})
      expect_every_config_correct(elementwise_cases::neighbouring_pairs(type, x), kElementwiseOnly,
                                  fmt::format("{} {}", to_string(x), to_string(type)));
}

TEST(ElementwiseGpu, ScalesConvertToAndFromEveryType) {
  FUSOR_NEEDS_GPU();
  for (const DataType other : kTypes)
    for (const bool to : {false, true}) {
      GraphBuilder g("scales");
      const Tensor x = g.input("x", {3, 131}, to ? other : DataType::f8_e8m0);
      g.output(g.identity(x), {.type = to ? DataType::f8_e8m0 : other});
      expect_correct(g.finish(), fmt::format("{} {}", to ? "from" : "to", to_string(other)));
    }
}

TEST(ElementwiseGpu, EveryPairOfTypesConverts) {
  FUSOR_NEEDS_GPU();
  for (const DataType from : kTypes)
    for (const DataType to : kTypes) {
      GraphBuilder g("convert");
      const Tensor x = g.input("x", {3, 131}, from);
      const Tensor y = g.output(g.identity(x), {.type = to});
      expect_correct(g.finish(), fmt::format("{} -> {}", to_string(from), to_string(to)));
    }
}

TEST(ElementwiseGpu, ChainInEveryType) {
  FUSOR_NEEDS_GPU();
  for (const DataType type : kTypes) {
    if (info(type).kind == NumberKind::boolean) continue;
    for (const int64_t n : {1, 7, 8, 257, 4096, 100003}) {
      GraphBuilder g("chain");
      const Tensor a = g.input("a", {n}, type);
      const Tensor b = g.input("b", {n}, type);
      const Tensor c = g.input("c", {n}, type);
      g.output(g.relu(g.add(g.mul(a, b), c)), {.type = type});
      expect_correct(g.finish(), fmt::format("{} x {}", to_string(type), n));
    }
  }
}

TEST(ElementwiseGpu, ParametersOfActivations) {
  FUSOR_NEEDS_GPU();
  GraphBuilder g("params");
  const Tensor x = g.input("x", {1000}, DataType::f32);
  g.output(g.relu(x, {.lower_clip = -0.5, .upper_clip = 0.4, .lower_clip_slope = 0.1}));
  g.output(g.elu(x, {.elu_alpha = 1.7}));
  g.output(g.softplus(x, {.softplus_beta = 2.5}));
  g.output(g.swish(x, {.swish_beta = 0.7}));
  expect_correct(g.finish(), "parameters");
}

TEST(ElementwiseGpu, BroadcastsOverAnyAxes) {
  FUSOR_NEEDS_GPU();
  const Dims shapes[] = {{1, 1, 1, 1}, {3, 1, 1, 1},  {1, 5, 1, 1}, {1, 1, 7, 1}, {1, 1, 1, 33},
                         {3, 1, 7, 1}, {1, 5, 1, 33}, {33},         {1}};
  for (const Dims& shape : shapes) {
    GraphBuilder g("broadcast");
    const Tensor x = g.input("x", {3, 5, 7, 33}, DataType::f16);
    const Tensor b = g.input("b", shape, DataType::f32);
    expect_correct(g.finish({g.mul(g.add(x, b), x)}), to_string(shape));
  }
}

TEST(ElementwiseGpu, OddStridesAndPaddedRows) {
  FUSOR_NEEDS_GPU();
  const Strides strides[] = {
      {240, 60, 12, 1}, {1, 2, 6, 24}, {500, 101, 13, 2}, {64, 128, 1, 512}, {0, 60, 12, 1}};
  for (const DataType type : {DataType::f32, DataType::bf16, DataType::u8})
    for (const Strides& stride : strides) {
      GraphBuilder g("strides");
      const Tensor x = g.input("x", {2, 3, 4, 5}, type, TensorOptions{.strides = stride});
      const Tensor b = g.input("b", {3, 1, 5}, type);
      g.output(g.sub(x, b), {.type = type, .strides = Strides{300, 100, 20, 3}});
      g.output(g.add(x, b), {.type = type, .strides = Strides{1, 2, 6, 24}});
      expect_correct(g.finish(), fmt::format("{} {}", to_string(type), to_string(stride)));
    }
}

TEST(ElementwiseGpu, RankEight) {
  FUSOR_NEEDS_GPU();
  GraphBuilder g("rank8");
  const Tensor x = g.input("x", {2, 3, 2, 3, 2, 3, 2, 3}, DataType::f32);
  const Tensor b = g.input("b", {1, 3, 1, 3, 1, 3, 1, 3}, DataType::f32);
  const Tensor c = g.input("c", {2, 1, 2, 1, 2, 1, 2, 1}, DataType::f32);
  expect_correct(g.finish({g.add(g.mul(x, b), c)}), "rank 8");
}

TEST(ElementwiseGpu, ScalarsByValueAndConstants) {
  FUSOR_NEEDS_GPU();
  for (const DataType type : {DataType::f32, DataType::f64, DataType::f16, DataType::i32, DataType::i64}) {
    GraphBuilder g("scalars");
    const Tensor x = g.input("x", {1001}, type);
    const Tensor s = g.scalar("s", type);
    g.output(g.add(g.mul(x, s), g.constant(3, is_real(type) ? DataType::f32 : DataType::i32)),
             {.type = type});
    expect_correct(g.finish(), std::string(to_string(type)));
  }
}

TEST(ElementwiseGpu, IndicesAndSelection) {
  FUSOR_NEEDS_GPU();
  GraphBuilder g("mask");
  const Tensor x = g.input("x", {6, 45, 45}, DataType::f16);
  const Tensor keep = g.cmp_ge(g.gen_index(x, 1), g.gen_index(x, 2));
  expect_correct(g.finish({g.binary_select(x, g.constant(-1), keep)}), "causal mask");
}

TEST(ElementwiseGpu, VirtualTypesRoundOnTheWay) {
  FUSOR_NEEDS_GPU();
  for (const DataType type : {DataType::bf16, DataType::f8_e4m3, DataType::f8_e5m2, DataType::i8}) {
    GraphBuilder g("rounding");
    const Tensor x = g.input("x", {999}, DataType::f32);
    const Tensor r = g.mul(x, g.constant(100), {.type = type});
    g.output(g.add(r, x), {.type = DataType::f32});
    expect_correct(g.finish(), std::string(to_string(type)));
  }
}

TEST(ElementwiseGpu, TransposesEveryWay) {
  FUSOR_NEEDS_GPU();
  for (const DataType type : {DataType::u8, DataType::f16, DataType::f32, DataType::f64}) {
    for (const Dims& permutation :
         {Dims{0, 2, 3, 1}, Dims{0, 3, 1, 2}, Dims{3, 2, 1, 0}, Dims{1, 0, 3, 2}, Dims{0, 1, 3, 2}}) {
      for (const Dims& dims :
           {Dims{2, 64, 14, 14}, Dims{3, 65, 13, 7}, Dims{1, 3, 224, 224}, Dims{130, 70, 1, 1}}) {
        GraphBuilder g("transpose");
        const Tensor x = g.input("x", dims, type);
        expect_correct(g.finish({g.transpose(g.relu(x), permutation)}),
                       fmt::format("{} {} by {}", to_string(type), to_string(dims), to_string(permutation)));
      }
    }
  }
}

// Planes of one run, in tiles of one and of several lines of channels; with tails of channels; odd ones.
TEST(ElementwiseGpu, SmallPlanesInEveryWay) {
  FUSOR_NEEDS_GPU();
  const std::array<const Engine*, 1> only{&elementwise_engine()};
  for (const DataType type :
       {DataType::u8, DataType::f8_e4m3, DataType::f16, DataType::bf16, DataType::f32, DataType::f64})
    for (const Dims& dims :
         {Dims{3, 64, 14, 14}, Dims{70, 512, 7, 7}, Dims{2, 80, 14, 14}, Dims{2, 24, 27, 27},
          Dims{1, 64, 56, 56}, Dims{2, 250, 14, 14}, Dims{2, 16, 3, 5, 7}, Dims{2, 196, 16, 16}})
      for (const bool to_last : {true, false}) {
        GraphBuilder g("planes");
        const Tensor x = g.input("x", dims, type, to_last ? Layout::nchw : Layout::nhwc);
        g.output(g.identity(x), {.type = type, .layout = to_last ? Layout::nhwc : Layout::nchw});
        expect_every_config_correct(
            g.finish(), only,
            fmt::format("{} {} {}", to_string(type), to_string(dims), to_last ? "to NHWC" : "to NCHW"));
      }
}

TEST(ElementwiseGpu, SmallPlanesWithOpsOnTheWay) {
  FUSOR_NEEDS_GPU();
  const std::array<const Engine*, 1> only{&elementwise_engine()};
  for (const bool to_last : {true, false})
    for (const DataType to : {DataType::f16, DataType::f32, DataType::f8_e5m2}) {
      GraphBuilder g("planes");
      const Tensor x = g.input("x", {5, 96, 14, 14}, DataType::f16, to_last ? Layout::nchw : Layout::nhwc);
      const Tensor b = g.input("b", {1, 96, 1, 1}, DataType::f32);
      const Layout layout = to_last ? Layout::nhwc : Layout::nchw;
      g.output(g.relu(g.add(x, b)), {.type = to, .layout = layout});
      g.output(g.mul(x, g.constant(2)), {.type = DataType::bf16, .layout = layout});
      expect_every_config_correct(g.finish(), only, fmt::format("{} of two results", to_string(to)));
    }
}

TEST(ElementwiseGpu, TransposeAddsATensorOfTheOtherLayout) {
  FUSOR_NEEDS_GPU();
  GraphBuilder g("layouts");
  const Tensor x = g.input("x", {4, 96, 17, 19}, DataType::f16, Layout::nchw);
  const Tensor z = g.input("z", {4, 96, 17, 19}, DataType::f16, Layout::nhwc);
  const Tensor b = g.input("b", {1, 96, 1, 1}, DataType::f32);
  const Tensor y = g.relu(g.add(g.add(x, z), b));
  g.output(y, {.layout = Layout::nhwc});
  expect_correct(g.finish(), "nchw + nhwc -> nhwc");
}

TEST(ElementwiseGpu, ViewsAndConcatenations) {
  FUSOR_NEEDS_GPU();
  GraphBuilder g("views");
  const Tensor x = g.input("x", {4, 10, 12}, DataType::f16);
  const Tensor z = g.input("z", {4, 6, 12}, DataType::f16);
  const Tensor cut = g.slice(x, {0, 1, 0}, {4, 9, 12}, {1, 2, 1});
  const Tensor joined =
      g.concatenate({g.relu(cut, {.type = DataType::f16}), z, g.neg(cut, {.type = DataType::f16})}, 1);
  const Tensor flat = g.reshape(g.transpose(joined, {0, 2, 1}), {4, 168});
  expect_correct(g.finish({flat}), "slice, concatenate, transpose, reshape");
}

TEST(ElementwiseGpu, CopiesOfPureViews) {
  FUSOR_NEEDS_GPU();
  for (const Dims& dims : {Dims{6, 4}, Dims{24}, Dims{4, 6}, Dims{2, 2, 6}}) {
    GraphBuilder g("reshape");
    const Tensor x = g.input("x", {2, 3, 4}, DataType::f32, TensorOptions{.strides = Strides{1, 2, 6}});
    expect_correct(g.finish({g.reshape(x, dims)}), to_string(dims));
  }
}

TEST(ElementwiseGpu, SixtyFourBitExtents) {
  FUSOR_NEEDS_GPU();
  const int64_t n = (int64_t{1} << 31) + 9;
  GraphBuilder g("large");
  const Tensor x = g.input("x", {n}, DataType::u8);
  const Tensor y = g.output(g.add(x, g.constant(1, DataType::i32)), {.type = DataType::u8});
  const Executable exe = load(build(g.finish(), DeviceInfo::current()));
  const cuda::DeviceBuffer in(n);
  const cuda::DeviceBuffer out(n + 64);
  cuda::fill(in.get(), 41, n, nullptr);
  cuda::fill(out.get(), 0, n + 64, nullptr);
  exe.run({{x, in.get()}, {y, out.get()}});
  cuda::synchronize();
  for (const int64_t at : {int64_t{0}, (int64_t{1} << 31) - 16, n - 16}) {
    std::vector<uint8_t> got(16);
    cuda::copy_to_host(got.data(), static_cast<std::byte*>(out.get()) + at, 16);
    EXPECT_EQ(got, std::vector<uint8_t>(16, 42)) << at;
  }
  std::vector<uint8_t> tail(64);
  cuda::copy_to_host(tail.data(), static_cast<std::byte*>(out.get()) + n, 64);
  EXPECT_EQ(tail, std::vector<uint8_t>(64, 0));
}

}  // namespace
}  // namespace fusor
