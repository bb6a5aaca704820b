// Owns Domain: the axes over which a site of a fusion works, and the way in which tensors map on them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/dims.h"

namespace fusor {

/// A tensor axis in the domain of a site. Grouped reductions split it: into as many elements as the fewest
/// groups have, then what the next finer ones add, and at last the elements of a group.
struct DomainAxis {
  int first = 0;  ///< the first of the domain's axes that stand for it
  Dims counts;    ///< its elements after each of these axes: each divides the next, the last is its extent

  /// The number of its domain axes that a tensor of `extent` there walks; -1 where it is none of the counts.
  int walked_by(int64_t extent) const;
};

/// The domain of a site.
struct Domain {
  Dims dims;     ///< the domain's axes
  Dims logical;  ///< the tensor axes they stand for
  std::vector<DomainAxis> axes;

  /// The domain axis of a tensor of that rank (trailing axes aligned).
  const DomainAxis& axis_of(int rank, int axis) const {
    return axes[static_cast<size_t>(axis + logical.rank() - rank)];
  }
  /// Whether the tensor has all elements of each axis, one, or one a group.
  bool fits(const Dims& tensor) const;
};

/// `groups[i]`: the numbers of groups into which axis i is split, in ascending order.
Domain split_domain(const Dims& dims, std::span<const std::vector<int64_t>> groups);
/// The domain whose axes are those of the tensor, none split.
Domain plain_domain(const Dims& dims);

/// Calls visit(domain axis, elements of the tensor axis that a step along it passes) for the domain axes that
/// a tensor of `extent` there walks.
template <class Visit>
void for_each_step(const DomainAxis& axis, int64_t extent, Visit&& visit) {
  const int walked = axis.walked_by(extent);
  for (int i = 0; i < walked; ++i) visit(axis.first + i, extent / axis.counts[i]);
}

/// Strides over the domain for a tensor of `dims` that broadcasts into it (trailing axes aligned).
Strides over_domain(const Domain& domain, const Dims& dims, const Strides& strides);

/// The domain axes, as a mask, that a reduction of `from` to `to` runs over.
uint32_t axes_between(const Domain& domain, const Dims& from, const Dims& to);

}  // namespace fusor
