// Owns the question how an operand that broadcasts looks in another shape of what it broadcasts to.
#pragma once

#include <optional>

#include "core/dims.h"

namespace fusor {

/// Dims that broadcast to `from`, as ones that broadcast to `to`, row-major dims of as many elements; nothing
/// where axes that change are broadcast in part. [6, 49, 49] beside [1024, 6, 49, 49] is [1, 1, 6, 49, 49]
/// beside [64, 16, 6, 49, 49].
std::optional<Dims> reshaped(Dims given, const Dims& from, const Dims& to);

}  // namespace fusor
