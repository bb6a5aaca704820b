// Owns what is made of the values that were gathered.
#include "backend/reference/errors/magnitude.h"

namespace fusor::reference {

Magnitude SizeOf::magnitude() const {
  constexpr double kLarge = 0x1p100;
  Values all = usual_;
  if (usual_.count == 0 || usual_.largest > kLarge) all.take_in(endmost_);
  if (all.count == 0) return {};
  Magnitude size{.largest = all.largest,
                 .rms = std::sqrt(all.squares / static_cast<double>(all.count)),
                 .smallest = all.largest == 0 ? 0 : all.smallest,
                 .lowest = all.lowest,
                 .highest = all.highest};
  size.nonzeros = static_cast<double>(all.count - zeros_);
  if (values_.size() < kMostCounted) size.distinct = static_cast<double>(values_.size());
  return size;
}

LinesOf::LinesOf(const Dims& dims) : rank_(dims.rank()), row_(dims[dims.rank() - 1]) {
  const Strides steps = packed_strides(dims);
  for (int i = 0; i < rank_; ++i)
    if (dims[i] >= kLongLine)
      axes_.push_back({.axis = i,
                       .step = steps[i],
                       .extent = dims[i],
                       .lines = std::vector<Line>(static_cast<size_t>(element_count(dims) / dims[i]))});
}

void LinesOf::begin_row(int64_t element) {
  first_ = element / row_ * row_;
  for (Axis& axis : axes_) axis.first = first_ / (axis.step * axis.extent) * axis.step + first_ % axis.step;
}

void LinesOf::finish(Magnitude& size) const {
  if (size.largest >= kAsGoodAsInfinite) return;
  size.lines.assign(static_cast<size_t>(rank_), 0);
  size.drifts = size.lines;
  for (const Axis& axis : axes_) {
    const auto extent = static_cast<double>(axis.extent);
    for (const Line& line : axis.lines) {
      double& rms = size.lines[static_cast<size_t>(axis.axis)];
      double& drift = size.drifts[static_cast<size_t>(axis.axis)];
      rms = std::max(rms, std::sqrt(line.squares / extent));
      drift = std::max(drift, std::abs(line.sum) / extent);
    }
  }
}

}  // namespace fusor::reference
