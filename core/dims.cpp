// Owns the arithmetic of extents and strides.
#include "core/dims.h"

#include <algorithm>
#include <numeric>

#include "core/fail.h"

namespace fusor {

Dims::Dims(std::span<const int64_t> values) {
  if (values.size() > static_cast<size_t>(kMaxRank)) {
    constexpr size_t kShown = 16;
    fail("a tensor has up to {} dims; got {}: [{}{}]", kMaxRank, values.size(),
         fmt::join(values.first(std::min(values.size(), kShown)), ", "),
         values.size() > kShown ? ", ..." : "");
  }
  rank_ = static_cast<int>(values.size());
  std::copy(values.begin(), values.end(), values_.begin());
}

Dims Dims::filled(int rank, int64_t value) {
  Dims dims;
  for (int i = 0; i < rank; ++i) dims.push_back(value);
  return dims;
}

void Dims::push_back(int64_t value) {
  if (rank_ == kMaxRank) fail("a tensor has up to {} dims; got {}", kMaxRank, rank_ + 1);
  values_[rank_++] = value;
}

void Dims::insert(int axis, int64_t value) {
  push_back(0);
  std::copy_backward(begin() + axis, end() - 1, end());
  values_[axis] = value;
}

void Dims::erase(int axis) {
  std::copy(begin() + axis + 1, end(), begin() + axis);
  --rank_;
}

int64_t element_count(const Dims& dims) {
  int64_t count = 1;
  for (int64_t extent : dims)
    if (__builtin_mul_overflow(count, extent, &count))
      fail("dims {} have more than 2^63 - 1 elements", to_string(dims));
  return count;
}

namespace {

// Packs `dims` with the axes of `order` from the slowest to the fastest.
Strides packed_in_order(const Dims& dims, std::span<const int> order) {
  Strides strides = Dims::filled(dims.rank(), 1);
  int64_t step = 1;
  for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
    strides[*axis] = step;
    step *= dims[*axis];
  }
  return strides;
}

}  // namespace

Strides packed_strides(const Dims& dims, Layout layout) {
  std::array<int, kMaxRank> order{};
  const int rank = dims.rank();
  std::iota(order.begin(), order.begin() + rank, 0);
  if (layout == Layout::nhwc && rank > 2)
    std::rotate(order.begin() + 1, order.begin() + 2, order.begin() + rank);
  return packed_in_order(dims, {order.data(), static_cast<size_t>(rank)});
}

Strides packed_strides_like(const Dims& dims, const Dims& like_dims, const Strides& like_strides) {
  std::array<int, kMaxRank> order{};
  const int rank = dims.rank();
  std::iota(order.begin(), order.begin() + rank, 0);
  // An extent-1 axis has no place of its own in memory; its stride still tells nchw from nhwc. Among equal
  // strides it is the faster one, as packing puts it.
  std::stable_sort(order.begin(), order.begin() + rank, [&](int a, int b) {
    const int64_t stride_a = std::abs(like_strides[a]);
    const int64_t stride_b = std::abs(like_strides[b]);
    return stride_a != stride_b ? stride_a > stride_b : like_dims[a] > 1 && like_dims[b] == 1;
  });
  return packed_in_order(dims, {order.data(), static_cast<size_t>(rank)});
}

bool reshape_strides(const Dims& from, const Strides& strides, const Dims& to, Strides& out) {
  // Axes of extent 1 take no part; the rest is matched in runs of equal element count.
  Dims old_dims;
  Strides old_strides;
  for (int i = 0; i < from.rank(); ++i) {
    if (from[i] == 1) continue;
    old_dims.push_back(from[i]);
    old_strides.push_back(strides[i]);
  }
  out = Dims::filled(to.rank(), 0);
  int old_begin = 0;
  int new_begin = 0;
  while (new_begin < to.rank()) {
    if (to[new_begin] == 1) {
      ++new_begin;
      continue;
    }
    int old_end = old_begin + 1;
    int new_end = new_begin + 1;
    int64_t old_count = old_dims[old_begin];
    int64_t new_count = to[new_begin];
    while (old_count != new_count) {
      if (old_count < new_count)
        old_count *= old_dims[old_end++];
      else
        new_count *= to[new_end++];
    }
    for (int i = old_begin; i + 1 < old_end; ++i)
      if (old_strides[i] != old_strides[i + 1] * old_dims[i + 1]) return false;
    int64_t step = old_strides[old_end - 1];
    for (int i = new_end - 1; i >= new_begin; --i) {
      out[i] = step;
      step *= to[i];
    }
    old_begin = old_end;
    new_begin = new_end;
  }
  return true;
}

int64_t span_elements(const Dims& dims, const Strides& strides) {
  int64_t last = 0;
  for (int i = 0; i < dims.rank(); ++i)
    if (strides[i] > 0) last += (dims[i] - 1) * strides[i];
  return last + 1;
}

std::optional<int64_t> one_stride(const Dims& extents, const Strides& strides) {
  int64_t stride = 0;
  int64_t inner = 1;  // elements inside of `axis`
  for (int axis = extents.rank() - 1; axis >= 0; --axis) {
    if (extents[axis] == 1) continue;
    if (inner == 1)
      stride = strides[axis];
    else if (strides[axis] != stride * inner)
      return std::nullopt;
    inner *= extents[axis];
  }
  return stride;
}

bool broadcast_dims(const Dims& a, const Dims& b, Dims& out) {
  const int rank = std::max(a.rank(), b.rank());
  Dims dims = Dims::filled(rank, 1);
  for (int i = 0; i < rank; ++i) {
    const int ia = i - (rank - a.rank());
    const int ib = i - (rank - b.rank());
    const int64_t ea = ia < 0 ? 1 : a[ia];
    const int64_t eb = ib < 0 ? 1 : b[ib];
    if (ea != eb && ea != 1 && eb != 1) return false;
    dims[i] = ea == 1 ? eb : ea;
  }
  out = dims;
  return true;
}

std::string to_string(const Dims& dims) {
  return fmt::format("[{}]", fmt::join(dims.begin(), dims.end(), ", "));
}

}  // namespace fusor
