// Owns the tests of pointwise convolutions as matmuls: which are, in which layouts, and that nothing else
// changes.
#include "backend/engines/contraction/pointwise_convolution.h"
#include "tests/backend/devices.h"
#include "tests/backend/engines/ask.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "backend/engines/contraction/product.h"
#include "backend/engines/list.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tests/backend/engines/contraction/rewritten.h"
#include "tests/backend/planner/whole_fusion.h"
#include "tests/backend/reference/host_buffers.h"

namespace fusor::pointwise_convolution_test {
namespace {

using test::h200;

using test::fusion_of;

constexpr ConvPass kPasses[] = {ConvPass::fprop, ConvPass::dgrad, ConvPass::wgrad};

struct Case {
  ConvPass pass = ConvPass::fprop;
  Dims x{2, 64, 8, 8}, w{72, 64, 1, 1};
  Layout pixels = Layout::nhwc, result = Layout::nhwc;
  bool fused = true;  // bias, residual and relu
};

Graph graph_of(const Case& c, const ConvOptions& options = {}) {
  GraphBuilder g("pointwise");
  Dims y = c.x;
  y[1] = c.w[0];
  const Tensor first = g.input("first", c.pass == ConvPass::fprop ? c.x : y, DataType::f16, c.pixels);
  const Tensor second = g.input("second", c.pass == ConvPass::wgrad ? c.x : c.w, DataType::f16,
                                c.pass == ConvPass::wgrad ? c.pixels : Layout::nchw);
  Tensor result = c.pass == ConvPass::fprop   ? g.conv_fprop(first, second, options)
                  : c.pass == ConvPass::dgrad ? g.conv_dgrad(first, second, c.x, options)
                                              : g.conv_wgrad(first, second, c.w, options);
  if (c.fused) {
    Dims per_channel = Dims::filled(result.dims.rank(), 1);
    per_channel[1] = result.dims[1];
    result = g.add(result, g.input("bias", per_channel, DataType::f32));
    result = g.relu(g.add(result, g.input("residual", result.dims, DataType::f16, c.result)));
  }
  g.output(result, {.name = "result", .type = DataType::f16, .layout = c.result});
  return g.finish();
}

void expect_the_same(const Case& c) {
  SCOPED_TRACE(testing::Message() << to_string(c.pass) << to_string(c.x) << static_cast<int>(c.pixels)
                                  << static_cast<int>(c.result));
  const Graph graph = graph_of(c);
  const Fusion fusion = fusion_of(graph);
  const auto matmul = as_matmul(fusion);
  ASSERT_TRUE(matmul);
  expect_same_bytes(graph, fusion, *matmul);
}

TEST(PointwiseConvolution, IsTheSameAsAMatmul) {
  for (const ConvPass pass : kPasses)
    for (const Dims& spatial : {Dims{5}, Dims{3, 5}, Dims{2, 3, 2}, Dims{1, 1}})
      for (const int64_t images : {1, 3}) {
        Case c{.pass = pass, .x = {images, 6}, .w = {10, 6}};
        for (const int64_t extent : spatial) {
          c.x.push_back(extent);
          c.w.push_back(1);
        }
        expect_the_same(c);
        if (pass == ConvPass::wgrad) continue;
        c.result = Layout::nchw;
        expect_the_same(c);
        c.pixels = Layout::nchw;
        expect_the_same(c);
        c.result = Layout::nhwc;
        expect_the_same(c);
      }
}

// Batch, rows, columns, steps.
std::vector<int64_t> extents(const Case& c) {
  const auto matmul = as_matmul(fusion_of(graph_of(c)));
  if (!matmul) return {};
  const Contraction view = contraction_of(*matmul).value();
  return {view.entries, view.m, view.n, view.k};
}

TEST(PointwiseConvolution, ColumnsLieSideBySideInTheResult) {
  using testing::ElementsAre;
  EXPECT_THAT(extents({}), ElementsAre(1, 128, 72, 64));
  EXPECT_THAT(extents({.pixels = Layout::nchw, .result = Layout::nchw}), ElementsAre(2, 72, 64, 64));
  EXPECT_THAT(extents({.pixels = Layout::nchw}), ElementsAre(2, 64, 72, 64));
  EXPECT_THAT(extents({.pass = ConvPass::dgrad}), ElementsAre(1, 128, 64, 72));
  EXPECT_THAT(extents({.pass = ConvPass::dgrad, .pixels = Layout::nchw, .result = Layout::nchw}),
              ElementsAre(2, 64, 64, 72));
  EXPECT_THAT(extents({.pass = ConvPass::wgrad}), ElementsAre(1, 72, 64, 128));
}

TEST(PointwiseConvolution, WindowsStridesPaddingAndGroupsAreNone) {
  const auto is_matmul = [](const Case& c, const ConvOptions& options = {}) {
    return as_matmul(fusion_of(graph_of(c, options))).has_value();
  };
  EXPECT_TRUE(is_matmul({}));
  EXPECT_FALSE(is_matmul({.w = {72, 64, 3, 3}, .fused = false}));
  EXPECT_FALSE(is_matmul({.w = {72, 64, 3, 3}}, {.padding = {1, 1}}));
  EXPECT_FALSE(is_matmul({.fused = false}, {.stride = {2, 2}}));
  EXPECT_FALSE(is_matmul({.fused = false}, {.padding = {1, 1}}));
  EXPECT_FALSE(is_matmul({.w = {72, 32, 1, 1}}));
  EXPECT_FALSE(is_matmul({.pass = ConvPass::wgrad, .pixels = Layout::nchw})) << "two steps of k";
}

TEST(PointwiseConvolution, OneValueAnImageKeepsTheConvolution) {
  GraphBuilder g("squeeze");
  const Tensor x = g.input("x", {2, 64, 8, 8}, DataType::f16, Layout::nhwc);
  const Tensor y = g.conv_fprop(x, g.input("w", {64, 64, 1, 1}, DataType::f16));
  g.output(g.mul(y, g.input("scale", {2, 64, 1, 1}, DataType::f16)), {.layout = Layout::nhwc});
  const Fusion fusion = fusion_of(g.finish());
  EXPECT_FALSE(as_matmul(fusion));
  EXPECT_TRUE(test::supports(wgmma_engine(), fusion, h200()));
}

// Rows of entries that share weights, beside a gate that broadcasts along every second axis of them.
Graph gated_rows(const Dims& x, int64_t columns, bool transposed) {
  GraphBuilder g("gated rows");
  const int64_t k = x[x.rank() - 1];
  const Tensor rows = g.input("x", x, DataType::f16);
  const Tensor w = transposed ? g.transpose(g.input("w", {columns, k}, DataType::f16), {1, 0})
                              : g.input("w", {k, columns}, DataType::f16);
  Dims gate = x;
  gate[x.rank() - 1] = columns;
  for (int axis = 1; axis + 1 < x.rank(); axis += 2) gate[axis] = 1;
  return g.finish({g.mul(g.matmul(rows, w), g.input("gate", gate, DataType::f16))});
}

TEST(PointwiseConvolution, RowsOfEntriesThatShareWeightsAreItsPixels) {
  for (const Dims& x : {Dims{2, 5, 16}, Dims{3, 2, 5, 16}, Dims{2, 2, 2, 3, 16}})
    for (const bool transposed : {false, true}) {
      const Graph graph = gated_rows(x, 24, transposed);
      const Fusion fusion = fusion_of(graph);
      const auto convolution = as_pointwise_convolution(fusion);
      ASSERT_TRUE(convolution);
      expect_same_bytes(graph, fusion, *convolution);
      const Contraction view = contraction_of(*convolution).value();
      EXPECT_TRUE(view.is_pointwise());
      EXPECT_EQ(view.op, transposed ? ContractionOp::fprop : ContractionOp::dgrad);
      EXPECT_EQ(view.m, element_count(x) / 16);
    }
}

TEST(PointwiseConvolution, OtherMatmulsAreNone) {
  const auto of_product = [](const Dims& x, const Dims& w, bool transposed = false) {
    GraphBuilder g("matmul");
    const Tensor rows = g.input("x", x, DataType::f16);
    const Tensor y =
        g.matmul(transposed ? g.transpose(rows, {0, 2, 1}) : rows, g.input("w", w, DataType::f16));
    return as_pointwise_convolution(
               fusion_of(g.finish({g.mul(y, g.input("gate", {2, 1, 24}, DataType::f16))})))
        .has_value();
  };
  EXPECT_TRUE(of_product({2, 5, 16}, {16, 24}));
  EXPECT_FALSE(of_product({2, 5, 16}, {2, 16, 24})) << "weights of each entry";
  EXPECT_FALSE(of_product({1, 5, 16}, {2, 16, 24})) << "rows of all entries";
  EXPECT_FALSE(of_product({2, 64, 16}, {16, 24})) << "whole tiles of rows";
  EXPECT_FALSE(of_product({2, 16, 5}, {16, 24}, true)) << "rows that lie along k";
  EXPECT_FALSE(as_pointwise_convolution(fusion_of(gated_rows({2, 2, 2, 2, 3, 16}, 24, false))))
      << "four axes";
}

int64_t config_value(const KernelSource& source, const char* name) {
  return std::ranges::find(source.config, name, &ConfigValue::name)->number();
}

TEST(PointwiseConvolution, WgmmaCopiesBothLayoutsAsBoxes) {
  for (const Layout layout : {Layout::nhwc, Layout::nchw})
    for (const ConvPass pass : {ConvPass::fprop, ConvPass::dgrad}) {
      const Fusion fusion =
          fusion_of(graph_of({.pass = pass, .x = {4, 64, 28, 28}, .pixels = layout, .result = layout}));
      ASSERT_TRUE(test::supports(wgmma_engine(), fusion, h200()));
      for (const EngineCandidate& candidate : test::candidates(wgmma_engine(), fusion, h200())) {
        const Lowered lowered = test::lower(wgmma_engine(), fusion, candidate.config, h200());
        const Launch& launch = std::get<Launch>(lowered.steps.front());
        EXPECT_EQ(config_value(*launch.source, "op"), static_cast<int64_t>(ContractionOp::matmul));
        // Maps of the operands, and of the result and the residual, unless threads add up parts.
        EXPECT_EQ(launch.arguments.maps().size(), candidate.config.knob("split", 1) > 1 ? 2u : 4u);
        for (const TensorMap& map : launch.arguments.maps()) EXPECT_FALSE(map.window);
      }
    }
}

// --- What TMA reads, step by step ---

// An element of a map: zero outside.
double element(const TensorMap& map, const std::byte* tensor, const std::array<int64_t, 3>& at) {
  for (int i = 0; i < 3; ++i)
    if (at[static_cast<size_t>(i)] >= map.dims[i]) return 0;
  return load_real(map.type, tensor + at[1] * map.stride_bytes[0] + at[2] * map.stride_bytes[1], at[0]);
}

// One operand in the order of its tiles, like Loader of codegen/device/sm90/load/boxes.cuh.
struct TileReader {
  const TensorMap& map;
  const std::byte* tensor;
  bool across_adjacent;

  double operator()(int64_t across, int64_t k, int64_t outer) const {
    if (map.dims[2] == 1) outer = 0;
    return across_adjacent ? element(map, tensor, {across, k, outer})
                           : element(map, tensor, {k, across, outer});
  }
};

// The product that the kernel would make, against the oracle's: packed results [entry][row][column].
void expect_boxes_make_the_product(const Case& c) {
  SCOPED_TRACE(testing::Message() << to_string(c.pass) << to_string(c.x) << static_cast<int>(c.pixels));
  const Graph graph = graph_of(c);
  const Fusion given = fusion_of(graph);
  const auto matmul = as_matmul(given);
  const Fusion& fusion = matmul ? *matmul : given;
  const Contraction view = contraction_of(fusion).value();
  ASSERT_TRUE(test::supports(wgmma_engine(), given, h200()));
  const EngineConfig config{"wgmma", wgmma_engine().revision(), {}};
  const Lowered lowered = test::lower(wgmma_engine(), given, config, h200());
  const Launch& launch = std::get<Launch>(lowered.steps.front());

  const HostTensors tensors(graph);
  tensors.run(given, Reading::oracle);
  const auto reader = [&](size_t i, const char* adjacent) {
    const Patch& patch = launch.arguments.patches()[i];
    const auto tensor = static_cast<size_t>(fusion.operands[static_cast<size_t>(patch.index)].tensor);
    const auto* bytes = static_cast<const std::byte*>(tensors.pointers()[tensor]) + patch.byte_offset;
    return TileReader{launch.arguments.maps()[i], bytes, config_value(*launch.source, adjacent) != 0};
  };
  const TileReader a = reader(0, "a_rows_adjacent"), b = reader(1, "b_columns_adjacent");
  const bool planes = view.op == ContractionOp::wgrad;
  const int64_t positions = a.map.dims[0], blocks = (positions + 63) / 64;
  const int64_t steps = planes ? blocks * a.map.dims[2] : (view.k + 63) / 64;
  const std::vector<double> results = tensors.get(graph.tensors.back());
  for (int64_t entry = 0; entry < view.entries; ++entry)
    for (int64_t row = 0; row < view.m; ++row)
      for (int64_t column = 0; column < view.n; ++column) {
        double sum = 0;
        for (int64_t step = 0; step < steps; ++step)
          for (int64_t i = 0; i < 64; ++i) {
            const int64_t k = (planes ? step % blocks : step) * 64 + i;
            const int64_t outer = planes ? step / blocks : entry;
            sum += a(row, k, outer) * b(column, k, outer);
          }
        const double expected = results[static_cast<size_t>((entry * view.m + row) * view.n + column)];
        ASSERT_NEAR(sum, expected, 2e-3 * std::max(1.0, std::abs(expected)))
            << entry << " " << row << " " << column;
      }
}

TEST(PointwiseConvolution, BoxesMakeTheProduct) {
  for (const ConvPass pass : kPasses)
    for (const Layout layout : {Layout::nhwc, Layout::nchw})
      for (const Dims& spatial : {Dims{6, 12}, Dims{136}}) {
        Case c{.pass = pass, .x = {3, 72}, .w = {24, 72}, .pixels = layout, .result = layout, .fused = false};
        if (pass == ConvPass::wgrad) c.result = Layout::nhwc;
        for (const int64_t extent : spatial) {
          c.x.push_back(extent);
          c.w.push_back(1);
        }
        expect_boxes_make_the_product(c);
      }
}

TEST(PointwiseConvolution, PlanesAreSummedImageByImage) {
  const auto launch_of = [](const Case& c) {
    const Fusion fusion = fusion_of(graph_of(c));
    const EngineConfig config{"wgmma", wgmma_engine().revision(), {}};
    return std::get<Launch>(test::lower(wgmma_engine(), fusion, config, h200()).steps.front());
  };
  const Case planes{.pass = ConvPass::wgrad, .x = {5, 64, 28, 28}, .pixels = Layout::nchw, .fused = false};
  const Launch launch = launch_of(planes);
  EXPECT_EQ(config_value(*launch.source, "op"), static_cast<int64_t>(ContractionOp::wgrad));
  EXPECT_EQ(launch.arguments.maps().at(0).dims, (Dims{784, 72, 5}));
  EXPECT_EQ(launch.arguments.maps().at(1).dims, (Dims{784, 64, 5}));
  // 13 steps an image, the last of 16 positions.
  const Fusion fusion = fusion_of(graph_of(planes));
  const std::vector<Knob> knobs = test::knobs(wgmma_engine(), fusion, h200());
  EXPECT_EQ(std::ranges::find(knobs, "split", &Knob::name)->values.back(), 65);
  // A line of 49 positions is no multiple of 16 bytes.
  const Fusion odd = fusion_of(
      graph_of({.pass = ConvPass::wgrad, .x = {5, 64, 7, 7}, .pixels = Layout::nchw, .fused = false}));
  EXPECT_EQ(test::supports(wgmma_engine(), odd, h200()).refusal->rule, "adjacent-channels");
  EXPECT_TRUE(test::supports(wgmma_repacked_engine(), odd, h200()));
}

std::vector<int64_t> knob_values(const Fusion& fusion, const char* name) {
  const std::vector<Knob> knobs = test::knobs(wgmma_engine(), fusion, h200());
  return std::ranges::find(knobs, name, &Knob::name)->values;
}

TEST(PointwiseConvolution, WgmmaKeepsTheConvolutionWhereOnlyThatCanBeCopied) {
  // Images of 7 x 7 pixels are 98 bytes long in every channel of the result, which threads store.
  const Fusion mixed = fusion_of(graph_of({.x = {2, 64, 7, 7}, .result = Layout::nchw}));
  EXPECT_TRUE(test::supports(wgmma_engine(), mixed, h200()));
  const Fusion short_planes =
      fusion_of(graph_of({.x = {2, 64, 7, 7}, .pixels = Layout::nchw, .result = Layout::nchw}));
  EXPECT_EQ(knob_values(short_planes, "loader"), (std::vector<int64_t>{1})) << "as a matmul, by threads";
  EXPECT_TRUE(test::supports(wgmma_repacked_engine(), short_planes, h200()));
  // One tap has no blocks of channels to keep apart.
  EXPECT_TRUE(test::supports(
      wgmma_engine(), fusion_of(graph_of({.pass = ConvPass::wgrad, .x = {2, 72, 8, 8}, .w = {40, 72, 1, 1}})),
      h200()));
}

// The others' are those of a matmul.
TEST(PointwiseConvolution, KernelsOfPlanesCompileCleanly) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  const Fusion fusion = fusion_of(graph_of({.pass = ConvPass::wgrad,
                                            .x = {32, 64, 28, 28},
                                            .w = {256, 64, 1, 1},
                                            .pixels = Layout::nchw,
                                            .fused = false}));
  std::vector<test::KernelCase> kernels;
  test::add_kernels(wgmma_engine(), "planes", fusion, h200(), kernels);
  test::expect_all_compiled(kernels);
}

}  // namespace
}  // namespace fusor::pointwise_convolution_test
