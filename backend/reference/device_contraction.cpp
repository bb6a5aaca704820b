// Owns the CPU device's matrix products, batched and broadcast, and the way to its convolutions.
#include "backend/reference/contraction.h"
#include "backend/reference/convolution.h"
#include "backend/reference/matrix_product.h"
#include "backend/reference/sweep.h"
#include "core/environment.h"
#include "core/parallel.h"

namespace fusor::reference {

namespace {

constexpr int64_t kTile = 256;

// Which matrix of `dims` the result's batch coordinate `at` uses, broadcasting.
int64_t matrix_of(const Dims& dims, const Dims& at, int result_batch_rank) {
  const int rank = dims.rank() - 2;
  int64_t index = 0;
  for (int i = 0; i < rank; ++i)
    index = index * dims[i] + (dims[i] == 1 ? 0 : at[i + result_batch_rank - rank]);
  return index;
}

template <class S>
void multiply_batches(const Contraction& shape, const S* a, const S* b, S* c) {
  const int batch_rank = shape.c.rank() - 2;
  const Dims batch_dims(std::span<const int64_t>(shape.c.begin(), static_cast<size_t>(batch_rank)));
  const int64_t m = shape.c[batch_rank], n = shape.c[batch_rank + 1], k = shape.a.back();
  const int64_t row_tiles = ceil_div(m, kTile), column_tiles = ceil_div(n, kTile);
  parallel_for(element_count(batch_dims) * row_tiles * column_tiles, environment::threads(),
               [&](int64_t task) {
                 const int64_t row = task % row_tiles * kTile;
                 const int64_t column = task / row_tiles % column_tiles * kTile;
                 const int64_t batch = task / row_tiles / column_tiles;
                 Dims at = Dims::filled(batch_rank, 0);
                 unravel(batch, batch_dims, at.begin());
                 const int64_t rows = std::min(kTile, m - row), columns = std::min(kTile, n - column);
                 multiply<S>({a + matrix_of(shape.a, at, batch_rank) * m * k + row * k, rows, k, k},
                             {b + matrix_of(shape.b, at, batch_rank) * k * n + column, k, columns, n},
                             {c + batch * m * n + row * n + column, rows, columns, n});
               });
}

}  // namespace

void device_contraction(const Contraction& shape, const void* a, const void* b, void* c) {
  with_held(shape.compute(), [&]<class S>(S) {
    const S* from_a = static_cast<const S*>(a);
    const S* from_b = static_cast<const S*>(b);
    S* to = static_cast<S*>(c);
    if (std::holds_alternative<Conv>(shape.attributes))
      convolve(shape, from_a, from_b, to);
    else
      multiply_batches(shape, from_a, from_b, to);
  });
}

}  // namespace fusor::reference
