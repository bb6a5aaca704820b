// Owns the tests of wgrad over planes of positions: which wgrads are, and the products that the kernel makes
// of the boxes it copies: the device's walk, run on the host with the argument bytes and the maps that the
// engine writes, against the oracle.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "backend/build.h"
#include "backend/engines/contraction/product.h"
#include "backend/engines/list.h"
#include "backend/engines/repack/rewrites/pack_layouts.h"
#include "backend/engines/sm90/copy/tensor_maps.h"
#include "tests/backend/devices.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/compiled_kernels.h"
#include "tests/backend/engines/conv_products.h"
#include "tests/backend/engines/launch_facts.h"
#include "tests/backend/engines/wgrad_graph.h"
#include "tests/backend/planner/whole_fusion.h"
#include "tests/backend/reference/host_buffers.h"

#define __device__  // NOLINT(bugprone-reserved-identifier): CUDA's word
namespace device {
#include "codegen/device/contraction/product.cuh"
#include "codegen/device/sm90/load/plane_walk.cuh"
#include "codegen/device/sm90/pipeline/tile_order.cuh"
}  // namespace device
#undef __device__

namespace fusor::planes_test {
namespace {

using test::config_value;
using test::fusion_of;
using test::HostDivisor;

using test::h200;

struct Case {
  Dims x{2, 64, 9, 8}, w{24, 64, 3, 3};
  ConvOptions options{.padding = {1, 1}};
  DataType type = DataType::f32;
  Layout layout = Layout::nchw;
  DataType result = DataType::f32;
};

Graph graph_of(const Case& c) {
  return test::wgrad_graph(c.x, c.w, c.options, {.type = c.type, .result = c.result, .layout = c.layout});
}

std::string rule(const Case& c) {
  const Support support = test::supports(wgmma_engine(), fusion_of(graph_of(c)), h200());
  return support ? "" : support.refusal->rule;
}
std::string repacked_rule(const Case& c) {
  const Support support = test::supports(wgmma_repacked_engine(), fusion_of(graph_of(c)), h200());
  return support ? "" : support.refusal->rule;
}

// --- The kernel on the host ---

struct HostWalk {
  HostDivisor pixels, window;
  int64_t stride, lower, slope, origin;
};
template <int kSpatial>
struct HostArguments {
  device::Contraction<device::kWgrad, kSpatial, 0, true, true, int64_t, int64_t, HostDivisor, true> problem;
  device::TileOrder<int64_t, int64_t, HostDivisor> order;
  int64_t steps, steps_of_part;
  int64_t batched_a, batched_b;
  HostDivisor channel_blocks;
  int64_t first_channels, second_channels;
  HostWalk walk[kSpatial];
};

// With the coordinates of a walk.
struct Copied : test::CopiedTensor {
  using CopiedTensor::at;
  using CopiedTensor::CopiedTensor;
  template <int kAxes>
  double at(const int (&position)[kAxes], int64_t along, int64_t plane, int64_t image) const {
    std::vector<int64_t> whole;
    for (int i = kAxes; i-- > 0;) whole.push_back(position[i]);
    whole[0] += along;
    whole.push_back(plane);
    whole.push_back(image);
    return at(whole);
  }
};

struct Run {
  const Launch& launch;
  std::vector<void*> operands;

  Copied copied(size_t i) const { return {launch, i, operands}; }
};

using Results = std::map<std::vector<int64_t>, double>;

// Tile by tile like load_planes() and multiply(): sums of every element of the result, by its coordinates.
template <int kSpatial, int kAxes>
Results product_of(const Run& run) {
  const KernelSource& source = *run.launch.source;
  const bool swapped = config_value(source, "swapped") != 0;
  const Copied outputs = run.copied(swapped ? 1 : 0), inputs = run.copied(swapped ? 0 : 1);
  const int64_t across = config_value(source, swapped ? "tile_n" : "tile_m"),
                taps = config_value(source, swapped ? "tile_m" : "tile_n"),
                block = config_value(source, "channel_block");
  const auto rows = static_cast<int>(config_value(source, "plane_rows"));
  const auto line = static_cast<int>(box_line(inputs.map.type));
  const int rank = inputs.map.box.rank();
  EXPECT_EQ(outputs.map.box[0], line);
  EXPECT_EQ(inputs.map.box[0], line);
  EXPECT_EQ(outputs.map.box[rank - 2], across);
  EXPECT_EQ(inputs.map.box[rank - 2], block);
  EXPECT_EQ(element_count(inputs.map.box), line * block);
  EXPECT_EQ(taps % block, 0);

  HostArguments<kSpatial> p;
  std::memcpy(&p, test::own_arguments(run.launch).data() + 2 * kTensorMapBytes, sizeof p);
  EXPECT_TRUE(rows == 1 || taps == p.walk[0].window.divisor * block);
  Results results;
  for (int64_t entry = 0; entry < p.order.entries; ++entry)
    for (int64_t column = 0; column < p.problem.n; column += taps) {
      device::PlaneTap<kSpatial> first_tap;
      first_tap.begin(p, column / block);
      device::PlaneStep<kAxes> step;
      step.begin(p, int64_t{0});
      std::vector<double> sums(static_cast<size_t>(p.problem.m * taps));
      for (int64_t k = 0; k < p.steps; ++k, step.advance(p)) {
        device::PlaneStep<kAxes> anew;
        anew.begin(p, k);
        EXPECT_EQ(anew.image, step.image);
        EXPECT_EQ(anew.block, step.block);
        // [row][filter][position]
        int position[kAxes];
        step.first_position(p, line, rows, position);
        std::vector<double> a, b;
        for (int row = 0; row < rows; ++row, position[0] += static_cast<int>(p.walk[0].stride))
          for (int64_t m = 0; m < p.problem.m; ++m)
            for (int i = 0; i < line; ++i)
              a.push_back(outputs.at(position, i, m + entry * p.first_channels, step.image));
        // [block][channel][position]
        device::PlaneTap<kSpatial> tap = first_tap;
        for (int64_t i = 0; i < taps / block + rows - 1; ++i) {
          if (rows == 1 || i == 0) {
            step.first_position(p, line, rows, position);
            tap.move(p, position);
          }
          for (int64_t c = 0; c < block; ++c)
            for (int j = 0; j < line; ++j)
              b.push_back(inputs.at(position, j, c + tap.channel_block * block + entry * p.second_channels,
                                    step.image));
          if (rows == 1)
            tap.advance(p);
          else
            position[0] += static_cast<int>(p.walk[0].stride);
        }
        for (int64_t row = 0; row < rows; ++row)
          for (int64_t m = 0; m < p.problem.m; ++m)
            for (int64_t n = 0; n < taps; ++n)
              for (int i = 0; i < line; ++i)
                sums[static_cast<size_t>(m * taps + n)] +=
                    a[static_cast<size_t>((row * p.problem.m + m) * line + i)] *
                    b[static_cast<size_t>((row * block + n) * line + i)];
      }
      for (int64_t m = 0; m < p.problem.m; ++m)
        for (int64_t n = 0; n < taps; ++n) {
          const auto key = p.problem.column(column + n);
          if (key.lead < 0) continue;
          int64_t at[kSpatial + 2];
          p.problem.result(entry, m, column + n, at);
          EXPECT_TRUE(results
                          .emplace(std::vector<int64_t>(at, at + kSpatial + 2),
                                   sums[static_cast<size_t>(m * taps + n)])
                          .second);
        }
    }
  return results;
}

Results product_of(const Run& run, int spatial) {
  const bool flat = config_value(*run.launch.source, "flat_planes") != 0;
  if (spatial == 1) return product_of<1, 1>(run);
  if (spatial == 2) return flat ? product_of<2, 1>(run) : product_of<2, 2>(run);
  return flat ? product_of<3, 1>(run) : product_of<3, 3>(run);
}

// Every shape of a tile among the candidates, once.
std::vector<EngineConfig> shapes_of(const Fusion& fusion) {
  std::vector<EngineConfig> shapes;
  std::set<std::vector<int64_t>> known;
  for (const EngineCandidate& candidate : test::candidates(wgmma_engine(), fusion, h200())) {
    const EngineConfig& config = candidate.config;
    if (known
            .insert({config.knob("swap", 0), config.knob("rows", 1),
                     config.knob(config.knob("swap", 0) != 0 ? "tile_m" : "tile_n", 0)})
            .second)
      shapes.push_back(config);
  }
  return shapes;
}

struct Expected {
  bool flat = false;
  bool packed = false;
};

void expect_the_product(const Case& c, const Expected& expected) {
  SCOPED_TRACE(testing::Message() << to_string(c.x) << to_string(c.w) << to_string(c.type));
  const Graph graph = graph_of(c);
  const Fusion given = fusion_of(graph);
  const HostTensors tensors(graph);
  tensors.run(given, Reading::oracle);
  const std::vector<double> dw = tensors.get(graph.tensors.back());
  Run run{Launch{}, {}};
  std::vector<void*> operands;
  for (const Operand& operand : given.operands)
    operands.push_back(tensors.pointers()[static_cast<size_t>(operand.tensor)]);
  ASSERT_EQ(test::supports(wgmma_engine(), given, h200()).refusal.has_value(), expected.packed);
  Repacked repacked;
  repacked.core = given;
  std::vector<std::vector<std::byte>> scratch;
  if (expected.packed) {
    ASSERT_TRUE(test::supports(wgmma_repacked_engine(), given, h200()));
    repacked = pack_layouts(given, contraction_of(given).value(), {{true, true}}, ResultPath::direct);
    EXPECT_EQ(repacked.zeroed, (std::vector<int>{0, 1}));
    for (const int64_t bytes : repacked.scratch) {
      scratch.emplace_back(static_cast<size_t>(bytes), std::byte{0});
      operands.push_back(scratch.back().data());
    }
    evaluate(repacked.loads, operands, Reading::oracle);
  }
  const std::vector<EngineConfig> shapes = shapes_of(repacked.core);
  ASSERT_FALSE(shapes.empty());
  for (const EngineConfig& config : shapes) {
    SCOPED_TRACE(to_string(config));
    const Lowered lowered = test::lower(wgmma_engine(), repacked.core, config, h200());
    const Launch& launch = std::get<Launch>(lowered.steps.front());
    EXPECT_EQ(config_value(*launch.source, "flat_planes") != 0, expected.flat);
    const Results results = product_of(Run{launch, operands}, c.x.rank() - 2);
    ASSERT_EQ(std::ssize(results), element_count(c.w));
    for (const auto& [at, sum] : results) {
      int64_t linear = 0;
      for (int i = 0; i < c.w.rank(); ++i) linear = linear * c.w[i] + at[static_cast<size_t>(i)];
      const double wanted = dw[static_cast<size_t>(linear)];
      ASSERT_NEAR(sum, wanted, 1e-4 * std::max(1.0, std::abs(wanted))) << linear;
    }
  }
}

TEST(WgmmaPlanes, RowsMakeTheProduct) {
  expect_the_product({.w = {24, 64, 3, 1}, .options = {.padding = {1, 0}}}, {});
  expect_the_product({.x = {2, 20, 5, 40}, .w = {24, 20, 3, 1}, .options = {.padding = {1, 0}}}, {});
  expect_the_product(
      {.x = {1, 64, 7, 8}, .w = {8, 64, 3, 3}, .options = {.padding = {1, 4}, .dilation = {1, 4}}}, {});
  expect_the_product({.x = {1, 40, 12, 12},
                      .w = {24, 40, 3, 2},
                      .options = {.pre_padding = {2, 0}, .post_padding = {1, 8}, .dilation = {2, 8}}},
                     {});
  expect_the_product({.x = {1, 64, 11, 36},
                      .w = {8, 64, 2, 3},
                      .options = {.padding = {0, 4}, .dilation = {3, 4}, .mode = ConvMode::convolution}},
                     {});
}

TEST(WgmmaPlanes, RowsOfEveryTypeAndRankMakeTheProduct) {
  expect_the_product({.x = {2, 24, 6, 16},
                      .w = {16, 24, 3, 3},
                      .options = {.padding = {1, 8}, .dilation = {1, 8}},
                      .type = DataType::f16},
                     {});
  expect_the_product({.x = {2, 16, 4, 3, 8},
                      .w = {8, 16, 3, 2, 1},
                      .options = {.pre_padding = {1, 1, 0}, .post_padding = {1, 0, 0}}},
                     {});
  expect_the_product({.x = {3, 24, 40},
                      .w = {16, 24, 4},
                      .options = {.pre_padding = {4}, .post_padding = {8}, .dilation = {4}}},
                     {.flat = true});
}

TEST(WgmmaPlanes, BytesMakeTheProduct) {
  expect_the_product({.x = {2, 32, 6, 16},
                      .w = {16, 32, 3, 1},
                      .options = {.padding = {1, 0}},
                      .type = DataType::i8,
                      .result = DataType::i32},
                     {});
}

TEST(WgmmaPlanes, GroupsMakeTheProduct) {
  expect_the_product({.x = {2, 48, 4, 8}, .w = {24, 16, 3, 1}, .options = {.padding = {1, 0}}}, {});
}

TEST(WgmmaPlanes, PackedPlanesMakeTheProduct) {
  expect_the_product({.x = {2, 24, 14, 14}, .w = {16, 24, 3, 1}, .options = {.padding = {1, 0}}},
                     {.flat = true, .packed = true});
  expect_the_product({.x = {2, 20, 7, 7}, .w = {17, 20, 1, 1}, .options = {}},
                     {.flat = true, .packed = true});
  expect_the_product({.x = {1, 64, 7, 9},
                      .w = {8, 64, 3, 2},
                      .options = {.pre_padding = {0, 4}, .post_padding = {2, 0}, .dilation = {2, 4}},
                      .layout = Layout::nhwc},
                     {.flat = true, .packed = true});
  expect_the_product({.x = {1, 16, 4, 5, 3}, .w = {8, 16, 3, 2, 1}, .options = {.padding = {1, 1, 0}}},
                     {.flat = true, .packed = true});
  expect_the_product({.x = {1, 16, 4, 57}, .w = {8, 16, 3, 1}, .options = {.padding = {1, 0}}},
                     {.flat = false, .packed = true});
}

TEST(WgmmaPlanes, RefusesWhatHasNoPlanes) {
  const Dims column{64, 64, 3, 1};
  const ConvOptions padded{.padding = {1, 0}};
  EXPECT_EQ(rule({.w = column, .options = padded}), "");
  EXPECT_EQ(rule({.w = column, .options = padded, .type = DataType::f16}), "");
  EXPECT_EQ(rule({.x = {2, 64, 9, 9}, .w = column, .options = padded}), "16-byte-lines");
  EXPECT_EQ(repacked_rule({.x = {2, 64, 9, 9}, .w = column, .options = padded}), "");
  EXPECT_EQ(rule({.w = column, .options = padded, .layout = Layout::nhwc}), "adjacent-k");
  EXPECT_EQ(repacked_rule({.w = column, .options = padded, .layout = Layout::nhwc}), "");
  const Case strided{.x = {2, 64, 17, 16}, .options = {.padding = {1, 1}, .stride = {2, 2}}};
  EXPECT_EQ(rule(strided), "unit-stride");
  EXPECT_EQ(repacked_rule(strided), "") << "as phases";
  const Case sparse{.x = {2, 64, 17, 16}, .options = {.stride = {2, 2}, .dilation = {2, 2}}};
  EXPECT_EQ(repacked_rule(sparse), "unit-stride") << "taps of one phase";
}

// TMA reads from multiples of 16 bytes: 4 positions of fp32, 8 of halves, 16 of bytes.
TEST(WgmmaPlanes, RefusesTapsOffSuchMultiples) {
  EXPECT_EQ(rule({}), "aligned-taps");
  EXPECT_EQ(rule({.options = {.padding = {1, 2}, .dilation = {1, 2}}}), "aligned-taps");
  EXPECT_EQ(rule({.options = {.padding = {1, 4}, .dilation = {1, 4}}}), "");
  EXPECT_EQ(rule({.options = {.padding = {1, 4}, .dilation = {1, 4}, .mode = ConvMode::convolution}}), "");
  EXPECT_EQ(rule({.w = {24, 64, 3, 1}, .options = {.padding = {1, 2}}}), "aligned-taps");
  const ConvOptions by_four{.padding = {1, 4}, .dilation = {1, 4}},
      by_eight{.padding = {1, 8}, .dilation = {1, 8}};
  EXPECT_EQ(rule({.options = by_four, .type = DataType::f16}), "adjacent-channels");
  EXPECT_EQ(rule({.options = by_eight, .type = DataType::f16}), "");
  EXPECT_EQ(repacked_rule({.type = DataType::f16}), "");
  EXPECT_EQ(rule({.x = {2, 128, 9, 16},
                  .w = {16, 128, 3, 3},
                  .options = by_eight,
                  .type = DataType::i8,
                  .result = DataType::i32}),
            "aligned-taps");
}

// 16 bits may be copied to channels that lie side by side, or not at all.
TEST(WgmmaPlanes, HalvesHaveBothWays) {
  const Fusion fusion = fusion_of(graph_of(
      {.x = {8, 64, 16, 16}, .w = {64, 64, 3, 1}, .options = {.padding = {1, 0}}, .type = DataType::f16}));
  EXPECT_TRUE(test::supports(wgmma_engine(), fusion, h200()));
  ASSERT_TRUE(test::supports(wgmma_repacked_engine(), fusion, h200()));
  const EngineConfig config{"wgmma_repacked", wgmma_repacked_engine().revision(), {}};
  const Lowered lowered = test::lower(wgmma_repacked_engine(), fusion, config, h200());
  const auto is_product = [](const Step& step) {
    const auto* launch = std::get_if<Launch>(&step);
    return launch != nullptr && launch->entry == "wgmma_contraction";
  };
  const auto product = std::ranges::find_if(lowered.steps, is_product);
  ASSERT_NE(product, lowered.steps.end());
  EXPECT_TRUE(std::get<Launch>(*product).arguments.maps()[1].window) << "im2col";
}

TEST(WgmmaPlanes, KernelsCompileCleanly) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  std::vector<test::KernelCase> kernels;
  const auto add = [&](const char* name, const Case& c, const Engine& engine) {
    test::add_kernels(engine, name, fusion_of(graph_of(c)), h200(), kernels);
  };
  add("rows", {.x = {128, 64, 56, 56}, .w = {64, 64, 3, 1}, .options = {.padding = {1, 0}}}, wgmma_engine());
  add("wide rows", {.x = {32, 64, 28, 28}, .w = {256, 64, 3, 1}, .options = {.padding = {1, 0}}},
      wgmma_engine());
  add("flat", {.x = {128, 256, 14, 14}, .w = {256, 256, 3, 1}, .options = {.padding = {1, 0}}},
      wgmma_repacked_engine());
  add("3-D",
      {.x = {8, 64, 8, 16, 16},
       .w = {64, 64, 3, 3, 1},
       .options = {.padding = {1, 1, 0}},
       .type = DataType::bf16},
      wgmma_engine());
  test::expect_distinct_compiled(std::move(kernels));
}

}  // namespace
}  // namespace fusor::planes_test
