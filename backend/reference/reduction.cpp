// Owns accumulators, their fixed order of combination, and how they are finished.
#include "backend/reference/reduction.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "backend/reference/block_evaluator.h"
#include "backend/reference/host_math.h"
#include "backend/reference/sweep.h"
#include "core/environment.h"
#include "core/parallel.h"

namespace fusor::reference {

namespace {

// Blocks that one accumulator takes in before it becomes a partial result: keeps chains of fp32 sums short
// and gives long reductions work for all threads.
constexpr int64_t kStepsPerChunk = 128;

template <class S>
struct Extremes {
  static S lowest() {
    return std::is_floating_point_v<S> ? -std::numeric_limits<S>::infinity() : std::numeric_limits<S>::min();
  }
  static S highest() {
    return std::is_floating_point_v<S> ? std::numeric_limits<S>::infinity() : std::numeric_limits<S>::max();
  }
};

// A reduction is a join of terms: `first` is neutral, `term` maps an element, `join` is associative but for
// rounding.
template <ReductionMode kMode, class S>
struct Fold {
  using T = Arithmetic<S>;
  static S first() {
    switch (kMode) {
      case ReductionMode::mul:
      case ReductionMode::mul_no_zeros:
        return S(1);
      case ReductionMode::min:
        return Extremes<S>::highest();
      case ReductionMode::max:
        return Extremes<S>::lowest();
      default:
        return S(0);
    }
  }
  static T term(T x) {
    switch (kMode) {
      case ReductionMode::amax:
      case ReductionMode::norm1:
        return HostMath::abs(x);
      case ReductionMode::norm2:
        return x * x;
      case ReductionMode::mul_no_zeros:
        return x == T(0) ? T(1) : x;
      default:
        return x;
    }
  }
  static T join(T a, T b) {
    switch (kMode) {
      case ReductionMode::mul:
      case ReductionMode::mul_no_zeros:
        return a * b;
      case ReductionMode::min:
        return HostMath::min(a, b);
      case ReductionMode::max:
      case ReductionMode::amax:
        return HostMath::max(a, b);
      default:
        return a + b;
    }
  }
  static S joined(S a, S b) { return stored(join(T(a), T(b))); }
  static S taken_in(S accumulator, S x) { return stored(join(T(accumulator), term(T(x)))); }
};

// Calls visit.operator()<Fold>() for the mode, in the held type.
template <class Visit>
void with_fold(ReductionMode mode, DataType held, Visit&& visit) {
  with_held(held, [&]<class S>(S) {
    switch (mode) {
      case ReductionMode::add:
        return visit(Fold<ReductionMode::add, S>{}, S{});
      case ReductionMode::mul:
        return visit(Fold<ReductionMode::mul, S>{}, S{});
      case ReductionMode::min:
        return visit(Fold<ReductionMode::min, S>{}, S{});
      case ReductionMode::max:
        return visit(Fold<ReductionMode::max, S>{}, S{});
      case ReductionMode::amax:
        return visit(Fold<ReductionMode::amax, S>{}, S{});
      case ReductionMode::avg:
        return visit(Fold<ReductionMode::avg, S>{}, S{});
      case ReductionMode::norm1:
        return visit(Fold<ReductionMode::norm1, S>{}, S{});
      case ReductionMode::norm2:
        return visit(Fold<ReductionMode::norm2, S>{}, S{});
      case ReductionMode::mul_no_zeros:
        return visit(Fold<ReductionMode::mul_no_zeros, S>{}, S{});
    }
  });
}

// All values into one accumulator. Eight chains side by side: vectors for the machine, shorter chains for
// rounding.
template <class F, class S>
void fold_row(const S* values, int64_t count, S& accumulator) {
  constexpr int kLanes = 8;
  S lanes[kLanes];
  std::fill(lanes, lanes + kLanes, F::first());
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = F::taken_in(lanes[lane], values[i + lane]);
  for (; i < count; ++i) lanes[0] = F::taken_in(lanes[0], values[i]);
  S sum = lanes[0];
  for (int lane = 1; lane < kLanes; ++lane) sum = F::joined(sum, lanes[lane]);
  accumulator = F::joined(accumulator, sum);
}

template <class F, class S>
void fold_columns(const S* values, int64_t count, S* accumulators) {
  for (int64_t i = 0; i < count; ++i) accumulators[i] = F::taken_in(accumulators[i], values[i]);
}

// Turns joined terms into the result, in place. `reduced`: elements behind each.
template <class S>
void finish(const Reduction& reduction, int64_t reduced, int64_t count, S* values) {
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_floating_point_v<S>) {
      if (reduction.mode == ReductionMode::avg) values[i] /= static_cast<S>(reduced);
      if (reduction.mode == ReductionMode::norm2) values[i] = std::sqrt(values[i]);
    } else if (reduction.compute == DataType::i32) {
      values[i] = static_cast<S>(static_cast<int32_t>(values[i]));
    }
  }
}

// The walk over the domain: kept coordinates outside, reduced ones inside, in chunks.
class ReductionSweep {
 public:
  ReductionSweep(const Expr& expr, std::span<const Buffer> buffers, Reading reading)
      : expr_(expr),
        buffers_(buffers),
        reading_(reading),
        axis_(block_axis(expr.domain)),
        mask_(reduced_mask(expr)),
        kept_(expr.domain, ~mask_, axis_),
        steps_(expr.domain, mask_, axis_),
        rows_((mask_ >> axis_ & 1) != 0),
        lanes_(rows_ ? 1 : kBlock),
        chunks_(ceil_div(steps_.count(), kStepsPerChunk)) {
    for (const Store& store : expr.stores)
      if (const Node* const total = reduction_of(expr, store)) totals_.push_back({&store, total});
    for (int i = 0; i < expr.domain.rank(); ++i)
      if (mask_ >> i & 1) reduced_ *= expr.domain[i];
  }

  void run() {
    if (chunks_ > 1) partials_.resize(static_cast<size_t>(kept_.count() * chunks_) * accumulator_bytes());
    const int64_t tasks = kept_.count() * chunks_;
    const int64_t work = std::min(kStepsPerChunk, steps_.count()) * std::min(kBlock, expr_.domain[axis_]);
    const int64_t per_task = std::max<int64_t>(1, kTaskElements / work);
    parallel_for(ceil_div(tasks, per_task), environment::threads(), [&](int64_t span) {
      BlockEvaluator blocks(expr_, buffers_, reading_, axis_);
      std::vector<std::byte> own(accumulator_bytes());
      const int64_t end = std::min(tasks, (span + 1) * per_task);
      for (int64_t task = span * per_task; task < end; ++task) {
        std::byte* accumulators = chunks_ > 1 ? partial(task) : own.data();
        take_in(blocks, task / chunks_, task % chunks_, accumulators);
        if (chunks_ == 1) store(task, accumulators);
      }
    });
    if (chunks_ > 1)
      parallel_for(kept_.count(), environment::threads(), [&](int64_t kept) { combine(kept); });
  }

 private:
  static uint32_t reduced_mask(const Expr& expr) {
    for (const Node& node : expr.nodes)
      if (node.kind == Node::Kind::reduce) return node.over;
    return 0;
  }

  DataType held(size_t reduction) const {
    return held_type(totals_[reduction].node->reduction.compute, reading_);
  }
  size_t accumulator_bytes() const { return totals_.size() * static_cast<size_t>(lanes_) * 8; }
  std::byte* partial(int64_t task) {
    return partials_.data() + static_cast<size_t>(task) * accumulator_bytes();
  }
  std::byte* lanes_of(std::byte* accumulators, size_t reduction) const {
    return accumulators + reduction * static_cast<size_t>(lanes_) * 8;
  }

  Dims place(int64_t kept) const {
    Dims at = Dims::filled(expr_.domain.rank(), 0);
    kept_.place(kept, at);
    return at;
  }
  int64_t kept_lanes(const Dims& at) const {
    return rows_ ? 1 : std::min(kBlock, expr_.domain[axis_] - at[axis_]);
  }

  void take_in(BlockEvaluator& blocks, int64_t kept, int64_t chunk, std::byte* accumulators) {
    for (size_t r = 0; r < totals_.size(); ++r)
      with_fold(totals_[r].node->reduction.mode, held(r), [&]<class F, class S>(F, S) {
        S* lanes = reinterpret_cast<S*>(lanes_of(accumulators, r));
        std::fill(lanes, lanes + lanes_, F::first());
      });
    Dims at = place(kept);
    const int64_t end = std::min(steps_.count(), (chunk + 1) * kStepsPerChunk);
    for (int64_t step = chunk * kStepsPerChunk; step < end; ++step) {
      steps_.place(step, at);
      const int64_t count = std::min(kBlock, expr_.domain[axis_] - at[axis_]);
      blocks.evaluate(at, count);
      blocks.store_elementwise(at, count);
      for (size_t r = 0; r < totals_.size(); ++r) take_in_block(blocks, r, count, lanes_of(accumulators, r));
    }
  }

  void take_in_block(BlockEvaluator& blocks, size_t r, int64_t count, std::byte* accumulators) const {
    const void* values = blocks.value_as(totals_[r].node->args[0], held(r), count);
    with_fold(totals_[r].node->reduction.mode, held(r), [&]<class F, class S>(F, S) {
      S* lanes = reinterpret_cast<S*>(accumulators);
      if (rows_)
        fold_row<F>(static_cast<const S*>(values), count, *lanes);
      else
        fold_columns<F>(static_cast<const S*>(values), count, lanes);
    });
  }

  void combine(int64_t kept) {
    std::byte* first = partial(kept * chunks_);
    for (int64_t chunk = 1; chunk < chunks_; ++chunk)
      for (size_t r = 0; r < totals_.size(); ++r)
        with_fold(totals_[r].node->reduction.mode, held(r), [&]<class F, class S>(F, S) {
          S* sum = reinterpret_cast<S*>(lanes_of(first, r));
          const S* next = reinterpret_cast<const S*>(lanes_of(partial(kept * chunks_ + chunk), r));
          for (int64_t i = 0; i < lanes_; ++i) sum[i] = F::joined(sum[i], next[i]);
        });
    store(kept, first);
  }

  void store(int64_t kept, std::byte* accumulators) const {
    const Dims at = place(kept);
    const int64_t count = kept_lanes(at);
    for (size_t r = 0; r < totals_.size(); ++r) {
      const Store* store = totals_[r].store;
      const Node* total = totals_[r].node;
      std::byte* lanes = lanes_of(accumulators, r);
      with_held(held(r),
                [&]<class S>(S) { finish(total->reduction, reduced_, count, reinterpret_cast<S*>(lanes)); });
      const Buffer& buffer = buffers_[static_cast<size_t>(store->access.operand)];
      store_block(held(r), lanes, count, store->type, buffer.data, element_at(store->access, at),
                  step_along(store->access, axis_));
    }
  }

  const Expr& expr_;
  std::span<const Buffer> buffers_;
  Reading reading_;
  int axis_;
  uint32_t mask_;
  Sweep kept_, steps_;
  bool rows_;  // blocks run along a reduced axis: one accumulator takes in a whole block
  int64_t lanes_, chunks_;
  int64_t reduced_ = 1;
  struct Total {
    const Store* store;
    const Node* node;
  };
  std::vector<Total> totals_;
  std::vector<std::byte> partials_;
};

}  // namespace

void evaluate_reductions(const Expr& expr, std::span<const Buffer> buffers, Reading reading) {
  ReductionSweep(expr, buffers, reading).run();
}

}  // namespace fusor::reference
