// Owns the choice of random lines of a result, and of elements on them.
#include "backend/sampled_elements.h"

#include <algorithm>

namespace fusor {

namespace {

constexpr int64_t kOfLine = 256, kNeighbours = 512;

}  // namespace

uint64_t random_number(uint64_t seed, uint64_t counter) {
  uint64_t z = seed * 0x9e3779b97f4a7c15u + (counter + 1) * 0xd1342543de82ef95u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::vector<int64_t> sampled_elements(const Dims& dims, int axis, int64_t size, uint64_t seed) {
  const int64_t count = element_count(dims), wanted = std::min(size, count);
  const int64_t extent = dims.rank() == 1 ? std::min(kNeighbours, dims[0]) : dims[axis];
  const int64_t line = std::min(kOfLine, extent);
  const int64_t step = packed_strides(dims)[axis];
  uint64_t counter = 0;
  const auto random = [&](int64_t below) {
    return static_cast<int64_t>(random_number(seed, counter++) % static_cast<uint64_t>(below));
  };
  std::vector<int64_t> elements;
  while (static_cast<int64_t>(elements.size()) < wanted) {
    const int64_t start = random(count);
    const int64_t along = start / step % dims[axis];
    // The last line of neighbours ends with the axis.
    const int64_t first =
        start - along * step + std::min(along / extent * extent, dims[axis] - extent) * step;
    for (int64_t i = 0; i < line; ++i) elements.push_back(first + random(extent) * step);
  }
  elements.resize(static_cast<size_t>(wanted));
  return elements;
}

}  // namespace fusor
