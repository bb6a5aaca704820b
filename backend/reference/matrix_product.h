// Owns the one use of Eigen: products of row-major blocks, on one thread.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <type_traits>

namespace fusor::reference {

/// What Eigen multiplies for numbers stored as S: integers as unsigned ones, whose overflow wraps.
template <class S>
struct ProductOf {
  using Type = S;
};
template <>
struct ProductOf<int32_t> {
  using Type = uint32_t;
};
template <>
struct ProductOf<int64_t> {
  using Type = uint64_t;
};

/// A block of a row-major matrix: `pitch` elements from row to row.
template <class S>
struct MatrixBlock {
  S* data;
  int64_t rows, columns, pitch;

  auto map() const {
    using Value = typename ProductOf<std::remove_const_t<S>>::Type;
    using Matrix = Eigen::Matrix<Value, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    using Element = std::conditional_t<std::is_const_v<S>, const Value, Value>;
    using Mapped = std::conditional_t<std::is_const_v<S>, const Matrix, Matrix>;
    return Eigen::Map<Mapped, 0, Eigen::OuterStride<>>(reinterpret_cast<Element*>(data), rows, columns,
                                                       Eigen::OuterStride<>(pitch));
  }
};

/// c = a b
template <class S>
void multiply(const MatrixBlock<const S>& a, const MatrixBlock<const S>& b, const MatrixBlock<S>& c) {
  c.map().noalias() = a.map() * b.map();
}
/// c += a^T b
template <class S>
void add_transposed_product(const MatrixBlock<const S>& a, const MatrixBlock<const S>& b,
                            const MatrixBlock<S>& c) {
  c.map().noalias() += a.map().transpose() * b.map();
}

}  // namespace fusor::reference
