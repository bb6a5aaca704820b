// Owns Dims: up to eight extents, strides or coordinates, stored inline.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>

#include "core/api.h"

namespace fusor {

inline constexpr int kMaxRank = 8;

/// A short list of int64 with value semantics: extents, strides (elements), paddings or a permutation.
/// Throws Error where more than kMaxRank values are put in.
class FUSOR_API Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<int64_t> values)
      : Dims(std::span<const int64_t>(values.begin(), values.size())) {}
  explicit Dims(std::span<const int64_t> values);
  static Dims filled(int rank, int64_t value);

  int rank() const { return rank_; }
  bool empty() const { return rank_ == 0; }
  int64_t operator[](int axis) const { return values_[axis]; }
  int64_t& operator[](int axis) { return values_[axis]; }
  void push_back(int64_t value);
  void insert(int axis, int64_t value);
  void erase(int axis);

  const int64_t* begin() const { return values_.data(); }
  const int64_t* end() const { return values_.data() + rank_; }
  int64_t* begin() { return values_.data(); }
  int64_t* end() { return values_.data() + rank_; }
  int64_t back() const { return values_[rank_ - 1]; }

  friend bool operator==(const Dims& a, const Dims& b) {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_; ++i)
      if (a.values_[i] != b.values_[i]) return false;
    return true;
  }

 private:
  std::array<int64_t, kMaxRank> values_{};
  int rank_ = 0;
};

/// Elements, not bytes; one per dim; anything on an extent-1 dim.
using Strides = Dims;

/// Where the elements of a fresh tensor lie. nhwc is "channels last" for any number of spatial dims.
enum class Layout : uint8_t { row_major, nchw = row_major, nhwc };

/// Product of the extents; throws Error where it does not fit int64.
FUSOR_API int64_t element_count(const Dims& dims);
/// Packed strides of `dims` in `layout`.
FUSOR_API Strides packed_strides(const Dims& dims, Layout layout = Layout::row_major);
/// Packed strides of `dims` whose axes lie in memory in the same order as `like`'s (same rank).
FUSOR_API Strides packed_strides_like(const Dims& dims, const Dims& like_dims, const Strides& like_strides);
/// Strides with which row-major `to` dims walk the elements of (from, strides), or false where no strides do.
FUSOR_API bool reshape_strides(const Dims& from, const Strides& strides, const Dims& to, Strides& out);
/// One past the furthest element that any coordinate reaches, relative to the first one. Strides are 0 or
/// more.
FUSOR_API int64_t span_elements(const Dims& dims, const Strides& strides);
/// The one stride that walks all axes as if they were one, row-major (0 where there is one element), or
/// nothing.
FUSOR_API std::optional<int64_t> one_stride(const Dims& extents, const Strides& strides);
/// Broadcasts a against b (trailing axes aligned, extent 1 repeats) into `out`. False where they do not fit;
/// `out` then keeps its value.
FUSOR_API bool broadcast_dims(const Dims& a, const Dims& b, Dims& out);
/// "[2, 3, 4]"
FUSOR_API std::string to_string(const Dims& dims);

}  // namespace fusor
