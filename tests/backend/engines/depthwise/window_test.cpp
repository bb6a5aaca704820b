// Owns the check of the sliding-window view: the device's index arithmetic, run on the host with the argument
// bytes that the depthwise engine writes, against convolutions written as plain loops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>
#include <tuple>

#include "backend/engines/list.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/host_divisor.h"
#include "tests/backend/engines/launch_facts.h"
#include "tests/backend/engines/tiled/cases.h"

#define __device__  // NOLINT(bugprone-reserved-identifier): CUDA's word
namespace device {
#include "codegen/device/depthwise/window.cuh"
}
#undef __device__

namespace fusor {
namespace {

using direct_cases::fusion_of;
using test::HostDivisor;

constexpr int kStrip = 4;

template <bool kStridedGradient, int kRows>
using HostWindow = device::SlidingWindow<kStridedGradient, kRows, kStrip, int64_t, int64_t, HostDivisor>;

/// What a launch says of its window: it comes first among the arguments.
template <class Window>
Window window_of(const Fusion& fusion, int rows) {
  EngineConfig config{"depthwise", 1, {{"vector", 1}, {"strip", kStrip}, {"rows", rows}}};
  const Lowered lowered = test::lower(depthwise_engine(), fusion, config, direct_cases::h200());
  const std::span<const std::byte> bytes = test::own_arguments(std::get<Launch>(lowered.steps[0]));
  EXPECT_GE(bytes.size(), sizeof(Window));
  Window window;
  std::memcpy(&window, bytes.data(), sizeof window);
  return window;
}

struct AxisCase {
  int64_t window, stride, dilation, before, after, input;
  ConvMode mode;

  int64_t output() const { return (input + before + after - dilation * (window - 1) - 1) / stride + 1; }
};

AxisCase random_axis(std::mt19937& random) {
  const auto between = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  AxisCase c{between(1, 6),        between(1, 6), between(1, 6), between(0, 5), between(0, 5), 0,
             ConvMode::convolution};
  if (random() % 2 == 0) c.mode = ConvMode::cross_correlation;
  c.input = std::max<int64_t>(1, c.dilation * (c.window - 1) + 1 - c.before - c.after) + between(0, 20);
  return c;
}

ConvOptions options_of(std::initializer_list<AxisCase> axes) {
  ConvOptions options;
  for (const AxisCase& c : axes) {
    options.pre_padding.push_back(c.before);
    options.post_padding.push_back(c.after);
    options.stride.push_back(c.stride);
    options.dilation.push_back(c.dilation);
    options.mode = c.mode;
  }
  return options;
}

Fusion convolution(std::initializer_list<AxisCase> axes, ConvPass pass, Layout layout = Layout::nhwc) {
  GraphBuilder g;
  Dims x{2, 3}, y{2, 3}, w{3, 1};
  for (const AxisCase& c : axes) x.push_back(c.input), y.push_back(c.output()), w.push_back(c.window);
  const Tensor filter = g.input("w", w, DataType::f32);
  const ConvOptions options = options_of(axes);
  const Tensor result = pass == ConvPass::fprop
                            ? g.conv_fprop(g.input("x", x, DataType::f32, layout), filter, options)
                            : g.conv_dgrad(g.input("dy", y, DataType::f32, layout), filter, x, options);
  return fusion_of(g.finish({g.output(result, {.layout = layout})}));
}

/// A number of the config with which the engine makes a convolution.
int64_t value_of(const Fusion& fusion, std::string_view name) {
  EngineConfig config{"depthwise", 1, {{"vector", 1}, {"strip", kStrip}, {"rows", 1}}};
  const Lowered lowered = test::lower(depthwise_engine(), fusion, config, direct_cases::h200());
  return test::config_value(*std::get<Launch>(lowered.steps[0]).source, name);
}

using Meeting = std::tuple<int64_t, int64_t, int64_t>;  // result, stored tap, position

std::multiset<Meeting> plain_meetings(const AxisCase& c, ConvPass pass) {
  std::multiset<Meeting> meetings;
  for (int64_t output = 0; output < c.output(); ++output)
    for (int64_t tap = 0; tap < c.window; ++tap) {
      const int64_t offset = c.mode == ConvMode::convolution ? c.window - 1 - tap : tap;
      const int64_t input = output * c.stride - c.before + offset * c.dilation;
      if (input < 0 || input >= c.input) continue;
      meetings.insert(pass == ConvPass::fprop ? Meeting{output, tap, input} : Meeting{input, tap, output});
    }
  return meetings;
}

// What a kernel does along one axis.
template <class Axis>
std::multiset<Meeting> meetings_of(const Axis& axis, int length) {
  std::multiset<Meeting> meetings;
  for (int64_t number = 0; number < axis.runs.divisor; ++number) {
    const device::Run<int64_t> run = axis.run(number, length);
    for (int64_t column = 0; column < (length - 1) * axis.advance + axis.taps; ++column) {
      const int64_t position = run.position + column * axis.column_step;
      if (!axis.has_position(position)) continue;
      for (int i = 0; i < length; ++i) {
        const int64_t tap = axis.tap(run, column, i), result = run.result + i * axis.spacing.divisor;
        if (tap < axis.window.divisor && result < axis.results)
          meetings.insert({result, axis.stored(tap), position});
      }
    }
  }
  return meetings;
}

void check(const AxisCase& c, ConvPass pass) {
  const Fusion fusion = convolution({c}, pass);
  const std::multiset<Meeting> met =
      pass == ConvPass::dgrad && c.stride > 1
          ? meetings_of(window_of<HostWindow<true, 1>>(fusion, 1).axis[2], kStrip)
          : meetings_of(window_of<HostWindow<false, 1>>(fusion, 1).axis[2], kStrip);
  EXPECT_EQ(met, plain_meetings(c, pass))
      << to_string(pass) << " window " << c.window << " stride " << c.stride << " dilation " << c.dilation
      << " padding " << c.before << ", " << c.after << " input " << c.input;
}

TEST(DepthwiseWindow, MeetsThePositionsOfThePlainLoops) {
  std::mt19937 random(5);
  for (int i = 0; i < 400; ++i) {
    const AxisCase c = random_axis(random);
    check(c, ConvPass::fprop);
    check(c, ConvPass::dgrad);
    if (HasFailure()) return;
  }
}

// An axis of one pixel, one result and one tap is no identity where that tap lies on padding.
TEST(DepthwiseWindow, OneTapMayMeetPaddingAlone) {
  for (const ConvMode mode : {ConvMode::cross_correlation, ConvMode::convolution}) {
    const AxisCase c{
        .window = 1, .stride = 2, .dilation = 1, .before = 1, .after = 0, .input = 1, .mode = mode};
    ASSERT_EQ(c.output(), 1);
    check(c, ConvPass::fprop);
    check(c, ConvPass::dgrad);
  }
}

// Every result of every image is in one strip once.
template <class Window>
void expect_all_results_once(const Window& window, int64_t images, int64_t rows = 2) {
  std::multiset<std::tuple<int64_t, int64_t, int64_t, int64_t>> results;
  int64_t strips = images;
  for (const auto& axis : window.axis) strips *= axis.runs.divisor;
  for (int64_t strip = 0; strip < strips; ++strip) {
    device::Run<int64_t> runs[3];
    int64_t image = -1;
    if (!window.locate(strip, runs, image, rows)) continue;
    for (int row = 0; row < rows; ++row)
      for (int i = 0; i < kStrip; ++i) {
        const int64_t y = runs[1].result + row * window.axis[1].spacing.divisor;
        const int64_t x = runs[2].result + i * window.axis[2].spacing.divisor;
        if (y < window.axis[1].results && x < window.axis[2].results)
          results.insert({image, runs[0].result, y, x});
      }
  }
  const auto count =
      static_cast<size_t>(images * window.axis[0].results * window.axis[1].results * window.axis[2].results);
  EXPECT_EQ(results.size(), count);
  EXPECT_EQ(std::set(results.begin(), results.end()).size(), count);
}

TEST(DepthwiseWindow, StripsCoverEveryResultOnce) {
  std::mt19937 random(9);
  for (int i = 0; i < 60; ++i) {
    AxisCase c[3] = {random_axis(random), random_axis(random), random_axis(random)};
    for (AxisCase& axis : c) axis.mode = ConvMode::cross_correlation;
    expect_all_results_once(
        window_of<HostWindow<false, 2>>(convolution({c[0], c[1], c[2]}, ConvPass::fprop), 2), 2);
    c[0].stride = 2;
    expect_all_results_once(
        window_of<HostWindow<true, 2>>(convolution({c[0], c[1], c[2]}, ConvPass::dgrad), 2), 2);
    // Strips that are marched down.
    c[1] = c[2] = {3, 1 + i % 2, 1 + i % 3, 1, 2, 20 + i, ConvMode::cross_correlation};
    expect_all_results_once(window_of<HostWindow<false, 1>>(convolution({c[1], c[2]}, ConvPass::fprop), 5), 2,
                            5);
    if (HasFailure()) return;
  }
}

// Gradients of strides in planes: runs are neighbouring results, whose phases take turns.
std::multiset<Meeting> meetings_of_neighbours(const AxisCase& c, const Fusion& fusion) {
  const auto window = window_of<HostWindow<true, 1>>(fusion, 1);
  const auto& axis = window.axis[2];
  const int64_t phase = value_of(fusion, "phase"), length = (kStrip + c.stride - 1) / c.stride * c.stride;
  EXPECT_EQ(value_of(fusion, "phases"), c.stride);
  std::multiset<Meeting> meetings;
  for (int64_t number = 0; number < axis.runs.divisor; ++number) {
    const device::Run<int64_t> run = axis.run_of_neighbours(number, length);
    for (int64_t i = 0; i < length && run.result + i < axis.results; ++i)
      for (int64_t tap = 0; tap < c.window; ++tap) {
        const int64_t position = run.position + (i + tap + phase) / c.stride;
        if ((i + tap + phase) % c.stride == 0 && axis.has_position(position))
          meetings.insert({run.result + i, axis.stored(tap), position});
      }
  }
  return meetings;
}

TEST(DepthwiseWindow, NeighboursMeetThePositionsOfThePlainLoops) {
  std::mt19937 random(11);
  for (int i = 0; i < 300; ++i) {
    AxisCase c = random_axis(random);
    c.stride = std::max<int64_t>(c.stride, 2);
    c.dilation = 1;
    if (c.input + c.before + c.after < c.window || c.output() < 2 || c.input < 2) continue;
    const Fusion fusion = convolution({c}, ConvPass::dgrad, Layout::nchw);
    EXPECT_EQ(meetings_of_neighbours(c, fusion), plain_meetings(c, ConvPass::dgrad))
        << "window " << c.window << " stride " << c.stride << " padding " << c.before << ", " << c.after
        << " input " << c.input;
    if (HasFailure()) return;
  }
}

// --- loads ---

// What SlidingLoads says of a line of kCount neighbours: each of them is held by one lane of one load, and a
// load lies within the axis or beyond it, or one element before the other where it is read instead.
template <int kLength, int kBefore, int kCount>
void check_loads(int64_t first, int64_t end) {
  const device::SlidingLoads<kCount, kCount, kLength, kBefore, int64_t> loads{first, 1, 1};
  std::multiset<int> held;
  for (int i = 0; i < loads.kLoads; ++i) {
    const int64_t position = loads.position(i), read = loads.clamped(i, end);
    EXPECT_EQ(position % kLength, 0);
    EXPECT_EQ(read % kLength, 0);
    EXPECT_GE(read, 0);
    EXPECT_LE(read + kLength, end);
    EXPECT_EQ(read == position, position >= 0 && position < end);
    for (int v = 0; v < kLength; ++v) {
      const int element = loads.element(i, v);
      if (element < 0 || element >= kCount) continue;
      held.insert(element);
      EXPECT_EQ(first + element, position + v);
    }
  }
  EXPECT_EQ(held.size(), size_t{kCount});
  EXPECT_EQ(std::set(held.begin(), held.end()).size(), size_t{kCount});
}

TEST(DepthwiseWindow, LoadsOfNeighboursHoldEachElementOnce) {
  for (int64_t multiple = -4; multiple < 12; ++multiple) {
    check_loads<8, 7, 10>(multiple * 8 + 7, 56);
    check_loads<8, 0, 8>(multiple * 8, 56);
    check_loads<4, 3, 10>(multiple * 4 + 3, 28);
    check_loads<4, 2, 17>(multiple * 4 + 2, 4);
    check_loads<2, 1, 16>(multiple * 2 + 1, 14);
    check_loads<2, 0, 6>(multiple * 2, 2);
  }
}

// The launch's numbers of planes: strips begin `lead` elements behind a multiple of `load`.
TEST(DepthwiseWindow, StripsOfPlanesBeginBehindMultiples) {
  int wide = 0;
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    AxisCase c = random_axis(random);
    c.dilation = 1 + i % 2;
    c.input = (1 + i % 9) * 8;
    if (c.input + c.before + c.after < c.dilation * (c.window - 1) + 1) continue;
    const ConvPass pass = i % 3 == 0 ? ConvPass::dgrad : ConvPass::fprop;
    const Fusion fusion = convolution({c}, pass, Layout::nchw);
    const int64_t load = value_of(fusion, "load"), lead = value_of(fusion, "lead");
    if (load == 1) continue;
    ++wide;
    const auto axis = window_of<HostWindow<false, 1>>(fusion, 1).axis[2];
    EXPECT_EQ(axis.positions % load, 0);
    const int64_t length = (kStrip + c.stride - 1) / c.stride * c.stride;
    for (int64_t number = 0; number < axis.runs.divisor; ++number) {
      const auto run = value_of(fusion, "strided_gradient") != 0 ? axis.run_of_neighbours(number, length)
                                                                 : axis.run(number, kStrip);
      EXPECT_EQ((run.position - lead) % load, 0);
    }
  }
  EXPECT_GT(wide, 50);
}

}  // namespace
}  // namespace fusor
