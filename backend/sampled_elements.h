// Owns which elements of a large result `verify` checks.
#pragma once

#include <cstdint>
#include <vector>

#include "core/dims.h"

namespace fusor {

/// A number that `seed` and `counter` make (splitmix64).
uint64_t random_number(uint64_t seed, uint64_t counter);

/// Row-major indices of `size` elements, or of all there are: random lines along `axis`, and on each up to
/// 256 random elements. A line goes along the axis whose elements are made of the same operands - channels of
/// a convolution, columns of a matmul - so that chains of contractions stay cheap: elements strewn evenly
/// would need nearly everything that lies one contraction back. Of a result with one axis, which holds many
/// such lines one behind the other, a line is 512 neighbours.
std::vector<int64_t> sampled_elements(const Dims& dims, int axis, int64_t size, uint64_t seed);

}  // namespace fusor
