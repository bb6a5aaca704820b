// Owns the splitting of axes, and the maps between tensors and the axes that they walk.
#include "backend/planner/fusion/domain.h"

#include <algorithm>

namespace fusor {

int DomainAxis::walked_by(int64_t extent) const {
  if (extent == 1) return 0;
  const auto found = std::find(counts.begin(), counts.end(), extent);
  return found == counts.end() ? -1 : static_cast<int>(found - counts.begin()) + 1;
}

bool Domain::fits(const Dims& tensor) const {
  if (tensor.rank() > logical.rank()) return false;
  for (int i = 0; i < tensor.rank(); ++i)
    if (axis_of(tensor.rank(), i).walked_by(tensor[i]) < 0) return false;
  return true;
}

Domain split_domain(const Dims& dims, std::span<const std::vector<int64_t>> groups) {
  Domain domain{{}, dims, {}};
  for (int i = 0; i < dims.rank(); ++i) {
    DomainAxis axis{domain.dims.rank(), {}};
    for (const int64_t count : groups[static_cast<size_t>(i)]) axis.counts.push_back(count);
    axis.counts.push_back(dims[i]);
    int64_t outer = 1;
    for (const int64_t count : axis.counts) {
      domain.dims.push_back(count / outer);
      outer = count;
    }
    domain.axes.push_back(axis);
  }
  return domain;
}

Domain plain_domain(const Dims& dims) {
  return split_domain(dims, std::vector<std::vector<int64_t>>(static_cast<size_t>(dims.rank())));
}

Strides over_domain(const Domain& domain, const Dims& dims, const Strides& strides) {
  Strides out = Dims::filled(domain.dims.rank(), 0);
  for (int i = 0; i < dims.rank(); ++i)
    for_each_step(domain.axis_of(dims.rank(), i), dims[i],
                  [&](int axis, int64_t elements) { out[axis] = strides[i] * elements; });
  return out;
}

uint32_t axes_between(const Domain& domain, const Dims& from, const Dims& to) {
  uint32_t mask = 0;
  for (int i = 0; i < to.rank(); ++i) {
    const DomainAxis& axis = domain.axis_of(to.rank(), i);
    for (int step = axis.walked_by(to[i]); step < axis.walked_by(from[i]); ++step)
      mask |= 1u << (axis.first + step);
  }
  return mask;
}

}  // namespace fusor
