// Owns what is made of the values that were gathered.
#include "backend/reference/errors/magnitude.h"

#include <utility>

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

SlicesOf::SlicesOf(const Dims& dims)
    : dims_(dims), row_(dims[dims.rank() - 1]), columns_(static_cast<size_t>(row_)) {
  for (int axis = 0; axis < dims.rank() - 1; ++axis) slices_.emplace_back(static_cast<size_t>(dims[axis]));
}

void SlicesOf::end_row(int64_t next_element) {
  int64_t index = first_ / row_;
  for (int axis = dims_.rank() - 2; axis >= 0; --axis) {
    Hash& slice = slices_[static_cast<size_t>(axis)][static_cast<size_t>(index % dims_[axis])];
    slice.take_in(of_row_.value);
    slice.varies = slice.varies || of_row_.varies;
    index /= dims_[axis];
  }
  first_ = next_element / row_ * row_;
  of_row_ = {};
}

// Slices of one number, such as zeros, are equal by chance.
double SlicesOf::most_equal(std::vector<Hash> slices) {
  std::erase_if(slices, [](const Hash& slice) { return !slice.varies; });
  std::ranges::sort(slices, {}, &Hash::value);
  int64_t most = 1, equal = 1;
  for (size_t i = 1; i < slices.size(); ++i) {
    equal = slices[i].value == slices[i - 1].value ? equal + 1 : 1;
    most = std::max(most, equal);
  }
  return static_cast<double>(most);
}

void SlicesOf::finish(Magnitude& size) {
  constexpr int64_t kFewest = 8;  // elements of a slice that another one does not equal by chance
  end_row(first_);
  slices_.push_back(std::move(columns_));
  const int64_t elements = element_count(dims_);
  for (int axis = 0; axis < dims_.rank(); ++axis)
    size.copies.push_back(
        elements / dims_[axis] >= kFewest ? most_equal(std::move(slices_[static_cast<size_t>(axis)])) : 1);
}

}  // namespace fusor::reference
