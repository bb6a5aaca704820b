// Owns the walk over an Expr's domain when nothing is reduced, and the choice of
// the axis that blocks run along.
#include "backend/reference/expression.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "backend/reference/block_evaluator.h"
#include "backend/reference/reduction.h"
#include "backend/reference/sweep.h"
#include "backend/reference/walks.h"
#include "core/environment.h"
#include "core/parallel.h"

namespace fusor::reference {

namespace {

void evaluate_elementwise(const Expr& expr, std::span<const Buffer> buffers, Reading reading) {
  const int axis = block_axis(expr.domain);
  const Sweep sweep(expr.domain, ~0u, axis);
  const int64_t per_task = std::max<int64_t>(1, kTaskElements / std::min(kBlock, expr.domain[axis]));
  parallel_for(ceil_div(sweep.count(), per_task), environment::threads(), [&](int64_t task) {
    BlockEvaluator blocks(expr, buffers, reading, axis);
    const int64_t end = std::min(sweep.count(), (task + 1) * per_task);
    for (int64_t block = task * per_task; block < end; ++block) {
      Dims at = Dims::filled(expr.domain.rank(), 0);
      sweep.place(block, at);
      const int64_t count = std::min(kBlock, expr.domain[axis] - at[axis]);
      blocks.evaluate(at, count);
      blocks.store_elementwise(at, count);
    }
  });
}

void evaluate_walk(const Expr& expr, std::span<const Buffer> buffers, Reading reading) {
  Expr merged = merge_axes(expr);
  if (merged.has_reduction())
    evaluate_reductions(merged, buffers, reading);
  else
    evaluate_elementwise(merged, buffers, reading);
}

}  // namespace

int block_axis(const Dims& domain) {
  const int last = domain.rank() - 1;
  constexpr int64_t kLongEnough = 32;
  if (domain[last] >= kLongEnough) return last;
  return static_cast<int>(std::max_element(domain.begin(), domain.end()) - domain.begin());
}

Sweep::Sweep(const Dims& domain, uint32_t axes, int block_axis) : axes_(axes), block_axis_(block_axis) {
  for (int i = 0; i < domain.rank(); ++i) {
    if ((axes >> i & 1) == 0) {
      extents_.push_back(1);
    } else {
      extents_.push_back(i == block_axis ? ceil_div(domain[i], kBlock) : domain[i]);
    }
  }
  count_ = element_count(extents_);
}

void Sweep::place(int64_t index, Dims& at) const {
  for (int i = extents_.rank() - 1; i >= 0; --i) {
    if ((axes_ >> i & 1) == 0) continue;
    at[i] = index % extents_[i];
    index /= extents_[i];
    if (i == block_axis_) at[i] *= kBlock;
  }
}

void evaluate_expression(const Expr& expr, std::span<const Buffer> buffers, Reading reading) {
  const Walks walks = walks_of(expr, static_cast<int>(buffers.size()), reading);
  std::vector<Buffer> all(buffers.begin(), buffers.end());
  std::vector<std::unique_ptr<std::byte[]>> totals;
  for (const Totals& room : walks.totals) {
    const auto bytes = static_cast<size_t>(room.elements * byte_size(room.type));
    totals.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
    all.push_back({room.type, totals.back().get()});
  }
  for (const Expr& walk : walks.exprs) evaluate_walk(walk, all, reading);
}

}  // namespace fusor::reference
