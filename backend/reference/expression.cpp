// Owns the split of an Expr into walks over its domain, the walk when nothing is reduced, and the choice of
// the axis that blocks run along.
#include "backend/reference/expression.h"

#include <algorithm>
#include <vector>

#include "backend/reference/block_evaluator.h"
#include "backend/reference/reduction.h"
#include "backend/reference/sweep.h"
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

// Axes of more than one element that a result is reduced over.
uint32_t reduced_axes(const Expr& expr, const Result& result) {
  uint32_t axes = result.reduced;
  for (int axis = 0; axis < expr.domain.rank(); ++axis)
    if (expr.domain[axis] == 1) axes &= ~(1u << axis);
  return axes;
}

// One walk over the domain has accumulators of one shape: an Expr for each set of axes that results are
// reduced over. What is stored elementwise leaves with the first.
std::vector<Expr> walks_of(const Expr& expr) {
  std::vector<Expr> walks;
  std::vector<uint32_t> axes;
  for (const Result& result : expr.results) {
    if (!result.reduction) continue;
    const uint32_t reduced = reduced_axes(expr, result);
    const auto known = std::ranges::find(axes, reduced);
    if (known != axes.end()) continue;
    axes.push_back(reduced);
    Expr walk = expr;
    std::erase_if(walk.results, [&](const Result& other) {
      return other.reduction ? reduced_axes(expr, other) != reduced : !walks.empty();
    });
    walks.push_back(std::move(walk));
  }
  if (walks.empty()) walks.push_back(expr);
  return walks;
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
  for (const Expr& walk : walks_of(expr)) evaluate_walk(walk, buffers, reading);
}

}  // namespace fusor::reference
