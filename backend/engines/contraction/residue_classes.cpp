// Owns which taps meet which input positions of a dgrad of a stride.
#include "backend/engines/contraction/residue_classes.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "codegen/text/parameters.h"
#include "core/ceil_div.h"

namespace fusor {

namespace {

// Remainders that some input position has.
int64_t remainders(const WindowAxis& axis) { return std::min(axis.stride, axis.input); }

}  // namespace

AxisClasses axis_classes(const WindowAxis& axis) {
  const int64_t stride = axis.stride, common = std::gcd(stride, std::abs(axis.step));
  AxisClasses all;
  all.positions = ceil_div(axis.input, stride);
  all.tap_step = stride / common;
  all.slope = -axis.step / common;
  int64_t lowest = std::numeric_limits<int64_t>::max(), highest = std::numeric_limits<int64_t>::min();
  for (int64_t remainder = 0; remainder < remainders(axis); ++remainder) {
    AxisClass own;
    own.remainder = remainder;
    // input = output * stride + tap * step + start
    const auto distance = [&](int64_t tap) { return remainder - tap * axis.step - axis.start; };
    const int64_t candidates = std::min(axis.window, all.tap_step);
    while (own.first_tap < candidates && distance(own.first_tap) % stride != 0) ++own.first_tap;
    if (own.first_tap < candidates) {
      own.taps = ceil_div(axis.window - own.first_tap, all.tap_step);
      own.origin = distance(own.first_tap) / stride;
      const int64_t last = own.origin + (own.taps - 1) * all.slope;
      lowest = std::min({lowest, own.origin, last});
      highest = std::max({highest, own.origin, last});
    } else {
      own.first_tap = 0;
    }
    all.classes.push_back(own);
  }
  if (lowest > highest) return all;  // no tap meets any position
  all.lower = lowest;
  all.reach = highest - lowest;
  for (AxisClass& own : all.classes) own.origin = own.taps > 0 ? own.origin - lowest : 0;
  return all;
}

int64_t residue_class_count(const Contraction& view) {
  if (view.op != ContractionOp::dgrad || view.has_unit_stride()) return 0;
  int64_t count = 1;
  for (const WindowAxis& axis : view.axes) count *= remainders(axis);
  return count;
}

ResidueClasses residue_classes(const Contraction& view) {
  ResidueClasses all;
  all.rows = view.m;
  all.classes.emplace_back();
  for (const WindowAxis& axis : view.axes) {
    all.axes.push_back(axis_classes(axis));
    all.rows = all.rows / axis.input * all.axes.back().positions;
    for (int64_t& step : all.tap_steps) step *= axis.window;
    all.tap_steps.push_back(all.axes.back().tap_step);
    std::vector<ResidueClass> finer;
    for (const ResidueClass& coarse : all.classes)
      for (const AxisClass& own : all.axes.back().classes) {
        ResidueClass& next = finer.emplace_back(coarse);
        next.taps *= own.taps;
        next.first_tap = next.first_tap * axis.window + own.first_tap;
        next.axes.push_back(own);
      }
    all.classes = std::move(finer);
  }
  std::ranges::stable_sort(all.classes, std::ranges::greater(), &ResidueClass::taps);
  return all;
}

int64_t ResidueClasses::taps() const {
  int64_t taps = 0;
  for (const ResidueClass& one : classes) taps += one.taps;
  return taps;
}

void ResidueClasses::append_to(Parameters& p, int64_t channel_blocks) const {
  p.wide("rows", rows);
  p.array("axis", "Axis", std::ssize(axes), [&](size_t i) {
    p.divisor("positions", axes[i].positions);
    p.wide("tap_step", tap_steps[i]);
  });
  p.array("classes", "Class", std::ssize(classes), [&](size_t i) {
    const ResidueClass& one = classes[i];
    p.wide("steps", one.taps * channel_blocks);
    p.wide("first_tap", one.first_tap);
    p.array("axis", "ClassAxis", std::ssize(one.axes), [&](size_t axis) {
      p.wide("remainder", one.axes[axis].remainder);
      p.wide("taps", std::max<int64_t>(one.axes[axis].taps, 1));
      p.wide("origin", one.axes[axis].origin);
    });
  });
}

}  // namespace fusor
