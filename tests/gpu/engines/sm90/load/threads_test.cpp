// Owns the GPU tests of operands that the wgmma engine has threads load: matmuls and pointwise convolutions
// whose lines, starts or batch entries TMA cannot address.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/gpu/device_run.h"
#include "tests/gpu/engines/sm90/wgmma/cases.h"
#include "tests/gpu/same_bits.h"

namespace fusor {
namespace {

using namespace wgmma_cases;

// Candidates with operands by threads alone: other candidates have their tests.
void expect_loaders_correct(const Graph& graph, const std::string& what) {
  int loaders = 0;
  for (const Candidate& candidate :
       candidates(graph, DeviceInfo::current(), PlannerOptions{.engine_list = kWgmmaOnly})) {
    if (candidate.fusions.front().config.knob("loader", 0) == 0) continue;
    expect_config_correct(graph, candidate, kWgmmaOnly, what);
    ++loaders;
  }
  EXPECT_GT(loaders, 0) << what;
}

Tensor operand(GraphBuilder& g, const char* name, const Dims& dims, DataType type, const Strides& strides,
               int64_t alignment = 16) {
  TensorOptions options;
  options.alignment = alignment;
  options.strides = strides;
  return g.input(name, dims, type, options);
}

// Every one of the last two axes may be adjacent.
Strides matrix_strides(int64_t rows, int64_t columns, bool transposed) {
  return transposed ? Strides{1, rows} : Strides{columns, 1};
}

TEST(WgmmaLoaderGpu, EveryTransposeOfOddExtents) {
  FUSOR_NEEDS_HOPPER();
  for (const bool a : {false, true})
    for (const bool b : {false, true})
      for (const DataType type : {DataType::bf16, DataType::f16}) {
        GraphBuilder g("matmul");
        const Tensor left = operand(g, "a", {515, 1001}, type, matrix_strides(515, 1001, a));
        const Tensor right = operand(g, "b", {1001, 777}, type, matrix_strides(1001, 777, b));
        g.output(g.matmul(left, right), {.type = type});
        expect_loaders_correct(g.finish(), fmt::format("{} {} {}", a, b, to_string(type)));
      }
}

// Tails of every width, and steps of k that hardly exist.
TEST(WgmmaLoaderGpu, OddExtentsOfEverySize) {
  FUSOR_NEEDS_HOPPER();
  for (const Dims& mnk :
       {Dims{1, 1, 1}, Dims{3, 5, 7}, Dims{17, 33, 63}, Dims{65, 127, 65}, Dims{129, 257, 129},
        Dims{255, 9, 191}, Dims{9, 255, 193}, Dims{1001, 777, 515}, Dims{63, 65, 1}})
    for (const bool across : {false, true}) {
      GraphBuilder g("matmul");
      const Tensor a =
          operand(g, "a", {mnk[0], mnk[2]}, DataType::bf16, matrix_strides(mnk[0], mnk[2], across), 2);
      const Tensor b =
          operand(g, "b", {mnk[2], mnk[1]}, DataType::bf16, matrix_strides(mnk[2], mnk[1], !across), 2);
      g.output(g.matmul(a, b), {.type = DataType::f32});
      expect_loaders_correct(g.finish(), fmt::format("{} {}", to_string(mnk), across));
    }
}

// Lines that are aligned, but begin 2, 4 or 8 bytes behind where TMA could begin.
TEST(WgmmaLoaderGpu, StartsOfEveryAlignment) {
  FUSOR_NEEDS_HOPPER();
  for (const int64_t begin : {1, 2, 3, 4, 7})
    for (const bool across : {false, true}) {
      GraphBuilder g("sliced");
      const Tensor whole = g.input("a", {264, 328}, DataType::bf16, TensorOptions{.alignment = 2});
      const Tensor rows = g.slice(whole, {0, begin}, {264, begin + 200});
      const Tensor a = across ? g.transpose(rows, {1, 0}) : rows;
      const Tensor b = g.input("b", {across ? 264 : 200, 136}, DataType::bf16);
      g.output(g.matmul(a, b), {.type = DataType::bf16});
      expect_loaders_correct(g.finish(), fmt::format("from {} on, {}", begin, across));
    }
}

// Distances in multiples of 4 and 8 bytes.
TEST(WgmmaLoaderGpu, LinesOfEveryGrain) {
  FUSOR_NEEDS_HOPPER();
  for (const int64_t k : {1001, 1002, 1004}) {
    GraphBuilder g("matmul");
    const Tensor a = g.input("a", {300, k}, DataType::bf16);
    const Tensor b = g.input("b", {k, 260}, DataType::bf16, TensorOptions{.strides = Strides{1, k}});
    g.output(g.matmul(a, b), {.type = DataType::bf16});
    expect_loaders_correct(g.finish(), fmt::format("k = {}", k));
  }
}

// One operand comes by TMA.
TEST(WgmmaLoaderGpu, BesideTheCopyEngine) {
  FUSOR_NEEDS_HOPPER();
  for (const bool first : {false, true})
    for (const bool across : {false, true}) {
      GraphBuilder g("mixed");
      const int64_t m = 300, n = 200, k = 328, odd_m = m + (first ? 1 : 4), odd_n = n + (first ? 0 : 1),
                    a_line = k + (first ? 1 : 0), b_line = k + (first ? 0 : 1);
      const Tensor a =
          operand(g, "a", {m, k}, DataType::bf16, across ? Strides{1, odd_m} : Strides{a_line, 1});
      const Tensor b =
          operand(g, "b", {k, n}, DataType::bf16, across ? Strides{odd_n, 1} : Strides{1, b_line});
      const Tensor bias = g.input("bias", {1, n}, DataType::f32);
      g.output(g.relu(g.add(g.matmul(a, b), bias)), {.type = DataType::bf16});
      expect_loaders_correct(g.finish(), fmt::format("{} {}", first, across));
    }
}

TEST(WgmmaLoaderGpu, ElementsOfEveryType) {
  FUSOR_NEEDS_HOPPER();
  for (const DataType type : {DataType::f16, DataType::bf16, DataType::f32, DataType::i8, DataType::u8,
                              DataType::f8_e4m3, DataType::f8_e5m2})
    for (const int64_t k : {129, 333, 1001}) {
      GraphBuilder g("typed", type == DataType::f32 ? Precision::allow_tf32 : Precision::allow_short_sums);
      const Tensor a = g.input("a", {515, k}, type);
      const Tensor b = g.input("b", {k, 261}, type, TensorOptions{.strides = Strides{1, k}});
      const bool integers = type == DataType::i8 || type == DataType::u8;
      g.output(g.matmul(a, b), {.type = integers ? DataType::i32 : DataType::f32});
      expect_loaders_correct(g.finish(), fmt::format("{} k = {}", to_string(type), k));
    }
}

TEST(WgmmaLoaderGpu, BatchesAndBroadcasts) {
  FUSOR_NEEDS_HOPPER();
  for (const bool a_batched : {false, true})
    for (const bool b_batched : {false, true})
      for (const int64_t k : {197, 200}) {
        const int64_t m = 131, n = k == 200 ? 136 : 67;
        GraphBuilder g("batched");
        // Entries that are an odd number of elements apart, even where their lines are not.
        const int64_t a_entry = m * k + 1, b_entry = k * n + 3;
        const Tensor a = a_batched ? operand(g, "a", {3, m, k}, DataType::bf16, {a_entry, k, 1})
                                   : operand(g, "a", {1, m, k}, DataType::bf16, {m * k, k, 1}, 2);
        const Tensor b = b_batched ? operand(g, "b", {3, k, n}, DataType::bf16, {b_entry, n, 1})
                                   : operand(g, "b", {1, k, n}, DataType::bf16, {k * n, n, 1}, 2);
        g.output(g.matmul(a, b), {.type = DataType::bf16});
        expect_loaders_correct(g.finish(), fmt::format("{} {} {}", a_batched, b_batched, k));
      }
}

// Blocks take several tiles each, and the ring goes round between them in any phase.
TEST(WgmmaLoaderGpu, ManyTilesOfABlock) {
  FUSOR_NEEDS_HOPPER();
  for (const int64_t k : {67, 201, 519}) {
    GraphBuilder g("tiles");
    const Tensor a = g.input("a", {2305, k}, DataType::bf16);
    const Tensor b = g.input("b", {k, 2561}, DataType::bf16);
    const Tensor bias = g.input("bias", {1, 2561}, DataType::bf16);
    g.output(g.relu(g.add(g.matmul(a, b), bias)), {.type = DataType::bf16});
    expect_loaders_correct(g.finish(), fmt::format("k = {}", k));
  }
}

TEST(WgmmaLoaderGpu, PartsOfK) {
  FUSOR_NEEDS_HOPPER();
  GraphBuilder g("parts");
  const Tensor a = g.input("a", {130, 8191}, DataType::f16);
  const Tensor b = g.input("b", {8191, 99}, DataType::f16);
  g.output(g.gelu(g.matmul(a, b)), {.type = DataType::f16});
  expect_loaders_correct(g.finish(), "k of 8191");
}

TEST(WgmmaLoaderGpu, GatedPairs) {
  FUSOR_NEEDS_HOPPER();
  for (const bool across : {false, true})
    for (const bool saves : {false, true})
      for (const auto& kn : {Dims{201, 137}, Dims{136, 333}, Dims{333, 136}}) {
        const int64_t k = kn[0], n = kn[1];
        GraphBuilder g("gated_pair");
        const Tensor x = g.input("x", {390, k}, DataType::bf16);
        const auto product = [&](const std::string& name) {
          const Tensor w = operand(g, name.c_str(), {k, n}, DataType::bf16, matrix_strides(k, n, !across), 2);
          const Tensor y = g.add(g.matmul(x, w), g.input(name + "_bias", {1, n}, DataType::bf16));
          return saves ? g.output(y, {.name = name + "_saved", .type = DataType::bf16}) : y;
        };
        const Tensor gate = product("gate"), up = product("up");
        g.output(g.mul(g.swish(gate), up), {.type = DataType::bf16});
        expect_loaders_correct(g.finish(), fmt::format("{} {} {} {}", across, saves, k, n));
      }
}

TEST(WgmmaLoaderGpu, EpiloguesWithOperandsResultsAndReductions) {
  FUSOR_NEEDS_HOPPER();
  GraphBuilder g("gradient");
  const Tensor a = g.input("a", {520, 1001}, DataType::bf16), b = g.input("b", {1001, 392}, DataType::bf16);
  const Tensor dy = g.gelu_bwd(g.matmul(a, b), g.input("z", {520, 392}, DataType::bf16));
  const Tensor y = g.output(dy, {.name = "y", .type = DataType::bf16});
  g.output(g.reduce(y, ReductionMode::add, {0}), {.name = "sums", .type = DataType::f32});
  expect_loaders_correct(g.finish(), "a bias' gradient");
  GraphBuilder two("two");
  const Tensor pre =
      two.matmul(two.input("a", {520, 1001}, DataType::bf16), two.input("b", {1001, 392}, DataType::bf16));
  two.output(pre, {.name = "pre", .type = DataType::bf16});
  const Tensor residual = two.input("residual", {520, 392}, DataType::bf16);
  two.output(two.add(two.gelu(pre), residual), {.name = "y", .type = DataType::bf16});
  expect_loaders_correct(two.finish(), "two results and a residual");
}

TEST(WgmmaLoaderGpu, PointwiseConvolutionsOfOddChannelsAndPlanes) {
  FUSOR_NEEDS_HOPPER();
  for (const Layout layout : {Layout::nhwc, Layout::nchw})
    for (const ConvCase& c :
         {ConvCase{{3, 67, 14, 14}, {45, 67, 1, 1}, {}}, ConvCase{{5, 64, 7, 7}, {72, 64, 1, 1}, {}},
          ConvCase{{2, 33, 9, 5}, {130, 33, 1, 1}, {}}}) {
      GraphBuilder g("fprop");
      const Tensor y =
          g.conv_fprop(g.input("x", c.x, DataType::f16, layout), g.input("w", c.w, DataType::f16));
      const Tensor bias = g.input("bias", {1, c.w[0], 1, 1}, DataType::f16);
      g.output(g.relu(g.add(y, bias)), {.type = DataType::f16, .layout = layout});
      const Graph graph = g.finish();
      if (layout == Layout::nhwc && c.w[1] == 64) continue;  // TMA takes it
      expect_loaders_correct(graph, "pointwise fprop " + words(c));
      GraphBuilder back("dgrad");
      const Tensor dy = back.input("dy", output_dims(c), DataType::bf16, layout);
      const Tensor dx = back.conv_dgrad(dy, back.input("w", c.w, DataType::bf16), c.x);
      back.output(dx, {.type = DataType::bf16, .layout = layout});
      expect_loaders_correct(back.finish(), "pointwise dgrad " + words(c));
    }
}

// Operands that TMA takes as well: threads load them where the knob asks for it.
TEST(WgmmaLoaderGpu, AlignedOperandsForTheAsking) {
  FUSOR_NEEDS_HOPPER();
  for (const bool across : {false, true})
    for (const auto& [swap, ping_pong] : {std::pair{0, 0}, {0, 1}, {1, 0}, {1, 1}}) {
      GraphBuilder g("aligned");
      const Tensor a = operand(g, "a", {520, 328}, DataType::bf16, matrix_strides(520, 328, across));
      const Tensor b = operand(g, "b", {328, 264}, DataType::bf16, matrix_strides(328, 264, !across));
      g.output(g.matmul(a, b), {.type = DataType::bf16});
      const Graph graph = g.finish();
      Candidate candidate =
          candidates(graph, DeviceInfo::current(), PlannerOptions{.engine_list = kWgmmaOnly}).front();
      EngineConfig config{"wgmma", wgmma_engine().revision(), {}};
      config.set("swap", swap);
      config.set("ping_pong", ping_pong);
      config.set("tile_m", 128);
      config.set("tile_n", 128);
      config.set("loader", 1);
      candidate.fusions.front().config = config;
      expect_config_correct(graph, candidate, kWgmmaOnly, fmt::format("{}", across));
    }
}

TEST(WgmmaLoaderGpu, SameBitsInEveryRun) {
  FUSOR_NEEDS_HOPPER();
  GraphBuilder g("again");
  const Tensor a = g.input("a", {1001, 777}, DataType::bf16), b = g.input("b", {777, 515}, DataType::bf16);
  g.output(g.matmul(a, b), {.name = "y", .type = DataType::f32});
  expect_same_bits_of_every_config(g.finish(), kWgmmaOnly);
}

}  // namespace
}  // namespace fusor
