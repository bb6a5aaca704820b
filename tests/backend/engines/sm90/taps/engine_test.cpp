// Owns the tests of the wgmma_taps engine that need no GPU: its refusals, its choice, that its kernels
// compile, and the products that the kernel makes: its walk, its rings, its loads and its masks, run on the
// host with the argument bytes and the maps that the engine writes, against the oracle.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <set>

#include "backend/build.h"
#include "backend/engines/contraction/product.h"
#include "backend/engines/list.h"
#include "core/ceil_div.h"
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
#include "codegen/device/sm90/taps/tap_walk.cuh"
}  // namespace device
#undef __device__

namespace fusor {
namespace {

using test::config_value;
using test::fusion_of;
using test::HostDivisor;

using test::h200;

struct Case {
  Dims x{2, 64, 12, 20}, w{64, 64, 3, 3};
  ConvOptions options{.padding = {1, 1}};
  DataType type = DataType::f32;
  Layout layout = Layout::nchw;
  Precision precision = Precision::allow_tf32;
};

Graph graph_of(const Case& c) {
  return test::wgrad_graph(c.x, c.w, c.options,
                           {.type = c.type, .result = c.type, .layout = c.layout, .precision = c.precision});
}

std::string rule(const Case& c, const char* device = "H200") {
  const Support support =
      test::supports(wgmma_taps_engine(), fusion_of(graph_of(c)), DeviceInfo::named(device));
  return support ? "" : support.refusal->rule;
}

// --- The kernel on the host ---

struct Copied : test::CopiedTensor {
  using CopiedTensor::CopiedTensor;

  // The box at (position, channel, image), zero outside.
  std::vector<double> box(int64_t position, int64_t channel, int64_t image) const {
    std::vector<double> values;
    EXPECT_EQ(position * byte_size(map.type) % 16, 0) << "where TMA begins to read";
    for (int64_t line = channel; line < channel + map.box[1]; ++line)
      for (int64_t column = position; column < position + map.box[0]; ++column)
        values.push_back(at(std::array{column, line, image}));
    return values;
  }
};

struct HostConsumer {
  int64_t first, column;
};
struct HostParams {
  device::TapWalk<int64_t, int64_t, HostDivisor> walk;
  HostDivisor blocks_n, blocks_m;
  int64_t tiles, input_channels, filters;
  HostConsumer consumers[3];  // as many as there are
};

constexpr int kPlaces = 64;  // more than any ring has: those that are not loaded hold nothing

// The lanes of one load of one warp must meet in no bank: words of shared memory, 32 banks.
void expect_no_conflict(const std::vector<int64_t>& words) {
  std::set<int64_t> banks;
  for (const int64_t word : words) banks.insert(word % 32);
  ASSERT_EQ(banks.size(), words.size());
}

// One block of the kernel. Sums go to partials like store_taps() puts them.
struct HostBlock {
  const Launch& launch;
  const HostParams& p;
  const Copied &dy, &x;
  std::vector<double>& partials;
  int taps, tap_step, filters, masked, rows, columns, of_row, line;
  bool tail;
  int64_t pieces;  // of the ring

  HostBlock(const Launch& launch_, const HostParams& p_, const Copied& dy_, const Copied& x_,
            std::vector<double>& partials_)
      : launch(launch_), p(p_), dy(dy_), x(x_), partials(partials_) {
    const auto value = [&](const char* name) { return static_cast<int>(config_value(*launch.source, name)); };
    taps = value("taps"), tap_step = value("tap_step"), filters = value("tile_n"), masked = value("masked");
    rows = value("window_h"), columns = value("window_w"), line = value("piece_line");
    of_row = (columns + taps - 1) / taps;
    tail = value("tail") != 0;
    pieces = value("pieces");
  }

  void run(int64_t number) {
    const int part = static_cast<int>(number / p.tiles);
    int64_t rest = number % p.tiles;
    HostDivisor blocks_n = p.blocks_n, blocks_m = p.blocks_m;
    const int64_t n = blocks_n.split(rest), m = blocks_m.split(rest);
    const int64_t filter = rest * p.filters + m * filters, channel = rest * p.input_channels + n * 64;
    const int consumers = rows * of_row;
    // [consumer][tap][channel][filter]
    std::vector<double> sums(static_cast<size_t>(consumers * taps * 64 * filters));
    const int end = p.walk.first_step(part + 1);
    for (int begin = p.walk.first_step(part); begin < end;) {
      const device::StepRun run = p.walk.run(begin, end);
      begin += run.last - run.first;
      for (int consumer = 0; consumer < consumers; ++consumer)
        add(run, consumer, filter, channel,
            &sums[static_cast<size_t>(int64_t{consumer} * taps * 64 * filters)]);
    }
    store(number, sums);
  }

  void add(const device::StepRun& run, int consumer, int64_t filter, int64_t channel, double* sums) {
    std::vector<std::vector<double>> ring(kPlaces);
    const HostConsumer& mine = p.consumers[consumer];
    int come = p.walk.first_piece(run.first), kept = come;
    const int first_place = come;
    device::InputPlace<kPlaces> place;
    place.begin(run.first * 32 + static_cast<int>(mine.first), come, first_place % kPlaces);
    std::vector<device::OutputColumns> of_lane(4);
    for (int lane = 0; lane < 4; ++lane)
      of_lane[static_cast<size_t>(lane)].begin(p.walk, run.first * 32 + lane);
    for (int step = run.first; step < run.last; ++step) {
      for (; come <= p.walk.last_piece(step); ++come)
        ring[static_cast<size_t>(come % kPlaces)] = x.box(p.walk.piece_begins(come), channel, run.image);
      ASSERT_LE(come - kept, pieces) << "a ring that holds what a step needs";
      const std::vector<double> outputs = dy.box(step * 32, filter, run.image);
      for (int eight = 0; eight < 2 * p.walk.halves(step); ++eight, place.advance()) {
        const auto& piece = ring[static_cast<size_t>(place.place)];
        ASSERT_FALSE(piece.empty()) << "a piece that has not come, or has gone";
        multiply(piece, outputs, place.offset, step, eight, static_cast<int>(mine.column), of_lane, sums);
        for (device::OutputColumns& one : of_lane) one.advance();
      }
      const int needed = step + 1 < run.last ? p.walk.first_piece(step + 1) : come;
      for (; kept < needed; ++kept) ring[static_cast<size_t>(kept % kPlaces)].clear();
    }
  }

  // Like load_eight(), lane by lane, and the wgmma of every tap.
  void multiply(const std::vector<double>& piece, const std::vector<double>& outputs, int offset, int step,
                int eight, int column, const std::vector<device::OutputColumns>& of_lane,
                double* sums) const {
    const int64_t outputs_line = dy.map.box[0];
    for (int tap = 0; tap < taps; ++tap)
      for (int i = 0; i < 2; ++i)
        for (int half = 0; half < 2; ++half)
          for (int warp = 0; warp < 4; ++warp) {
            std::vector<int64_t> words;
            for (int lane = 0; lane < 32; ++lane) {
              const int row = warp * 16 + lane / 4 + 8 * half;
              const int64_t word = row * line + lane % 4 + offset + 4 * i + tap * tap_step;
              ASSERT_LT(offset + lane % 4 + 4 * i + tap * tap_step, line) << "inside the piece";
              words.push_back(word);
              const int left = static_cast<int>(p.walk.positions) - step * 32 - lane % 4 - eight * 8;
              bool meets = !tail || 4 * i < left;
              if ((masked >> tap & 1) != 0)
                meets = meets && of_lane[static_cast<size_t>(lane % 4)].meets(
                                     i, column + tap * tap_step, static_cast<unsigned>(p.walk.width));
              const double input = meets ? piece[static_cast<size_t>(word)] : 0;
              const int64_t k = eight * 8 + lane % 4 + 4 * i;
              for (int f = 0; f < filters; ++f)
                sums[(tap * 64 + row) * filters + f] +=
                    input * outputs[static_cast<size_t>(f * outputs_line + k)];
            }
            expect_no_conflict(words);
          }
  }

  void store(int64_t number, const std::vector<double>& sums) const {
    const int64_t window = int64_t{rows} * columns, part = number * 64 * window * filters;
    for (int consumer = 0; consumer < rows * of_row; ++consumer)
      for (int tap = 0; tap < taps; ++tap) {
        int row = consumer / of_row, column = consumer % of_row * taps + tap;
        if (column >= columns) continue;
        if (config_value(*launch.source, "mirrored_h") != 0) row = rows - 1 - row;
        if (config_value(*launch.source, "mirrored_w") != 0) column = columns - 1 - column;
        for (int channel = 0; channel < 64; ++channel)
          for (int filter = 0; filter < filters; ++filter)
            partials[static_cast<size_t>(part + (channel * window + row * columns + column) * filters +
                                         filter)] =
                sums[static_cast<size_t>(((int64_t{consumer} * taps + tap) * 64 + channel) * filters +
                                         filter)];
      }
  }
};

// Like split_finish: the sum of all parts at every element of the result, in the order of the filter.
template <int kSpatial, bool kChannelsFastest>
std::vector<double> finished(const Launch& finish, const std::vector<double>& partials, const Dims& w) {
  struct {
    device::Contraction<device::kWgrad, kSpatial, 0, kChannelsFastest, true, int64_t, int64_t, HostDivisor>
        problem;
    int64_t tiles;
    HostDivisor along_n, along_m;
    int64_t splits;
  } p;
  std::memcpy(&p, test::own_arguments(finish).data(), sizeof p);
  const int64_t tile_m = config_value(*finish.source, "tile_m"),
                tile_n = config_value(*finish.source, "tile_n");
  EXPECT_EQ(config_value(*finish.source, "y_along_n"), 0);
  std::vector<double> result(static_cast<size_t>(element_count(w)), NAN);
  for (int64_t tile = 0; tile < p.tiles; ++tile)
    for (int64_t position = 0; position < tile_m * tile_n; ++position) {
      const int64_t n = tile % p.along_n.divisor, m = tile / p.along_n.divisor % p.along_m.divisor;
      const int64_t row = m * tile_m + position % tile_m, column = n * tile_n + position / tile_m;
      if (row >= p.problem.m || column >= p.problem.n) continue;
      double sum = 0;
      for (int64_t part = 0; part < p.splits; ++part)
        sum += partials[static_cast<size_t>((part * p.tiles + tile) * tile_m * tile_n + position)];
      int64_t at[kSpatial + 2], linear = 0;
      p.problem.result(tile / (p.along_n.divisor * p.along_m.divisor), row, column, at);
      for (int i = 0; i < w.rank(); ++i) linear = linear * w[i] + at[i];
      EXPECT_TRUE(std::isnan(result[static_cast<size_t>(linear)])) << "stored once";
      result[static_cast<size_t>(linear)] = sum;
    }
  return result;
}

std::vector<double> finished(const Launch& finish, const std::vector<double>& partials, const Dims& w) {
  const bool channels_fastest = config_value(*finish.source, "channels_fastest") != 0;
  if (w.rank() == 3) return finished<1, false>(finish, partials, w);
  return channels_fastest ? finished<2, true>(finish, partials, w) : finished<2, false>(finish, partials, w);
}

void expect_the_product(const Case& c) {
  SCOPED_TRACE(testing::Message() << to_string(c.x) << to_string(c.w));
  const Graph graph = graph_of(c);
  const Fusion fusion = fusion_of(graph);
  ASSERT_EQ(rule(c), "");
  const HostTensors tensors(graph);
  tensors.run(fusion, Reading::oracle);
  const std::vector<double> wanted = tensors.get(graph.tensors.back());
  std::vector<void*> operands;
  for (const Operand& operand : fusion.operands)
    operands.push_back(tensors.pointers()[static_cast<size_t>(operand.tensor)]);
  const std::vector<Knob> knobs = test::knobs(wgmma_taps_engine(), fusion, h200());
  for (const int64_t tile : knobs.at(0).values)
    for (const int64_t split : {int64_t{1}, knobs.at(1).values.back() / 2 + 1}) {
      EngineConfig config{"wgmma_taps", wgmma_taps_engine().revision(), {}};
      config.set("tile_n", tile);
      config.set("split", split);
      SCOPED_TRACE(to_string(config));
      const Lowered lowered = test::lower(wgmma_taps_engine(), fusion, config, h200());
      const Launch& launch = std::get<Launch>(lowered.steps.at(0));
      const Launch& finish = std::get<Launch>(lowered.steps.at(1));
      HostParams p{};
      const std::span<const std::byte> bytes = test::own_arguments(launch);
      const size_t left = bytes.size() - 2 * kTensorMapBytes - sizeof(int64_t);
      ASSERT_EQ(left, sizeof p - (3 - static_cast<size_t>(config_value(*launch.source, "consumers"))) *
                                     sizeof(HostConsumer));
      std::memcpy(&p, bytes.data() + 2 * kTensorMapBytes, left);
      const Copied dy(launch, 0, operands), x(launch, 1, operands);
      EXPECT_EQ(dy.map.box, (Dims{32, tile, 1}));
      EXPECT_EQ(x.map.box, (Dims{config_value(*launch.source, "piece_line"), 64, 1}));
      std::vector<double> partials(static_cast<size_t>(lowered.scratch.at(0) / 4), NAN);
      HostBlock block(launch, p, dy, x, partials);
      for (int64_t number = 0; number < launch.grid[0]; ++number) block.run(number);
      const std::vector<double> result = finished(finish, partials, c.w);
      for (size_t i = 0; i < wanted.size(); ++i)
        ASSERT_NEAR(result[i], wanted[i], 1e-4 * std::max(1.0, std::abs(wanted[i]))) << i;
    }
}

TEST(WgmmaTaps, WindowsMakeTheProduct) {
  expect_the_product({.x = {2, 20, 14, 14}, .w = {24, 20, 3, 3}});
  expect_the_product({.x = {1, 20, 8, 36}, .w = {40, 20, 3, 3}});
  expect_the_product({.x = {3, 8, 7, 4}, .w = {8, 8, 3, 3}});
  expect_the_product(
      {.x = {1, 8, 5, 56}, .w = {8, 8, 2, 3}, .options = {.pre_padding = {1, 1}, .post_padding = {0, 1}}});
}

TEST(WgmmaTaps, RowsAndColumnsOfTapsMakeTheProduct) {
  expect_the_product({.x = {2, 8, 6, 10}, .w = {8, 8, 1, 3}, .options = {.padding = {0, 1}}});
  expect_the_product({.x = {2, 8, 6, 10}, .w = {8, 8, 1, 7}, .options = {.padding = {0, 3}}});
  expect_the_product({.x = {2, 8, 10, 6}, .w = {8, 8, 3, 1}, .options = {.padding = {1, 0}}});
  expect_the_product({.x = {2, 8, 100}, .w = {8, 8, 9}, .options = {.padding = {4}}});
  expect_the_product({.x = {2, 8, 100}, .w = {8, 8, 5}, .options = {}});
}

TEST(WgmmaTaps, PaddingDilationAndMirroredWindowsMakeTheProduct) {
  expect_the_product({.x = {2, 8, 9, 12}, .w = {8, 8, 3, 3}, .options = {.padding = {0, 1}}});
  expect_the_product({.x = {2, 8, 9, 12}, .w = {8, 8, 3, 3}, .options = {.padding = {5, 1}}});
  expect_the_product(
      {.x = {2, 8, 9, 12}, .w = {8, 8, 3, 3}, .options = {.pre_padding = {0, 2}, .post_padding = {4, 0}}});
  expect_the_product(
      {.x = {1, 8, 12, 20}, .w = {8, 8, 3, 3}, .options = {.padding = {2, 5}, .dilation = {2, 5}}});
  expect_the_product(
      {.x = {2, 8, 9, 12}, .w = {8, 8, 3, 3}, .options = {.padding = {1, 1}, .mode = ConvMode::convolution}});
}

TEST(WgmmaTaps, BlocksAndGroupsMakeTheProduct) {
  expect_the_product({.x = {1, 70, 4, 8}, .w = {72, 70, 3, 3}});
  expect_the_product({.x = {1, 40, 4, 8}, .w = {36, 20, 3, 3}});
  expect_the_product({.x = {1, 1, 6, 10}, .w = {3, 1, 3, 3}});
}

// --- Rules ---

TEST(WgmmaTaps, TakesPlanesOfFp32OnHopperOnly) {
  EXPECT_EQ(rule({}), "");
  EXPECT_EQ(rule({}, "H100"), "");
  EXPECT_EQ(rule({}, "A100"), "sm-90");
  EXPECT_EQ(rule({.precision = Precision::exact}), "16-bit-operands");
  EXPECT_EQ(rule({.type = DataType::f16}), "fp32-operands");
  EXPECT_EQ(rule({.layout = Layout::nhwc}), "whole-planes");
  EXPECT_EQ(rule({.x = {2, 64, 7, 7}}), "16-byte-lines");
}

TEST(WgmmaTaps, TakesWindowsThatItsConsumersShareOut) {
  EXPECT_EQ(rule({.w = {64, 64, 1, 9}, .options = {.padding = {0, 4}}}), "");
  EXPECT_EQ(rule({.w = {64, 64, 1, 11}, .options = {.padding = {0, 5}}}), "window-taps");
  EXPECT_EQ(rule({.w = {64, 64, 5, 5}, .options = {.padding = {2, 2}}}), "window-taps");
  EXPECT_EQ(rule({.w = {64, 64, 5, 1}, .options = {.padding = {2, 0}}}), "window-taps");
  EXPECT_EQ(rule({.w = {64, 64, 1, 1}, .options = {}}), "several-taps");
  EXPECT_EQ(rule({.options = {}}), "equal-rows");
  EXPECT_EQ(rule({.x = {2, 64, 12, 21}, .options = {.padding = {1, 1}, .stride = {2, 2}}}), "unit-stride");
  EXPECT_EQ(rule({.x = {2, 64, 4, 8, 8}, .w = {64, 64, 3, 3, 3}, .options = {.padding = {1, 1, 1}}}),
            "spatial-axes");
  EXPECT_EQ(rule({.x = {2, 64, 12, 400}}), "resident-window");
  GraphBuilder g("fprop", Precision::allow_tf32);
  g.output(g.conv_fprop(g.input("x", {2, 64, 8, 8}, DataType::f32),
                        g.input("w", {64, 64, 3, 3}, DataType::f32), {.padding = {1, 1}}));
  EXPECT_EQ(test::supports(wgmma_taps_engine(), fusion_of(g.finish()), h200()).refusal->rule, "wgrad");
}

const Case kWide{.x = {128, 64, 56, 56}, .w = {64, 64, 3, 3}};
const Case kDeep{.x = {128, 256, 14, 14}, .w = {256, 256, 3, 3}};
const Case kRow{.x = {32, 64, 17, 20}, .w = {200, 64, 1, 3}, .options = {.padding = {0, 1}}};
const Case kColumns{.x = {32, 64, 224, 224}, .w = {40, 64, 2, 2}, .options = {.post_padding = {1, 1}}};
const Case kLine{.x = {32, 64, 1000}, .w = {64, 64, 5}, .options = {.padding = {2}}};

TEST(WgmmaTaps, CandidatesAreSettingsThatFitTheDevice) {
  for (const Case& c : {kWide, kDeep, kRow, kColumns, kLine}) {
    const Fusion fusion = fusion_of(graph_of(c));
    ASSERT_EQ(rule(c), "");
    const std::vector<Knob> knobs = test::knobs(wgmma_taps_engine(), fusion, h200());
    const auto candidates = test::candidates(wgmma_taps_engine(), fusion, h200());
    ASSERT_FALSE(candidates.empty());
    for (const EngineCandidate& candidate : candidates) {
      for (const auto& [name, value] : candidate.config.knobs) {
        const auto knob = std::ranges::find(knobs, name, &Knob::name);
        ASSERT_NE(knob, knobs.end()) << name;
        EXPECT_THAT(knob->values, testing::Contains(value)) << to_string(candidate.config);
      }
      const Lowered lowered = test::lower(wgmma_taps_engine(), fusion, candidate.config, h200());
      EXPECT_LE(std::get<Launch>(lowered.steps.at(0)).shared_bytes, h200().shared_per_block);
      EXPECT_EQ(lowered.scratch.at(0), candidate.work.scratch_bytes);
    }
  }
}

TEST(WgmmaTaps, IsChosenForWindowsOfThreeByThree) {
  for (const Case& c : {kWide, kDeep})
    EXPECT_EQ(build(graph_of(c), h200()).fusions.front().config.engine, "wgmma_taps") << to_string(c.x);
}

TEST(WgmmaTaps, ExtentsAreNoPartOfTheKernel) {
  const auto structure = [](const Case& c) {
    const Fusion fusion = fusion_of(graph_of(c));
    EngineConfig config{"wgmma_taps", wgmma_taps_engine().revision(), {}};
    config.set("tile_n", 64);
    const Lowered lowered = test::lower(wgmma_taps_engine(), fusion, config, h200());
    return structure_hash(*std::get<Launch>(lowered.steps.at(0)).source);
  };
  EXPECT_EQ(structure(kWide), structure({.x = {16, 130, 28, 56}, .w = {192, 130, 3, 3}}));
  EXPECT_NE(structure(kWide), structure({.x = {16, 130, 29, 56}, .w = {192, 130, 3, 3}})) << "a tail";
}

TEST(WgmmaTaps, KernelsCompileCleanly) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  std::vector<test::KernelCase> kernels;
  for (const Case& c : {kWide, kDeep, kRow, kColumns, kLine})
    test::add_kernels(wgmma_taps_engine(), to_string(c.x), fusion_of(graph_of(c)), h200(), kernels);
  test::expect_distinct_compiled(std::move(kernels));
}

}  // namespace
}  // namespace fusor
