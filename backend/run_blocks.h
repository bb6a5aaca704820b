// Owns the memory that a run lays its pointers out in: the stack for most plans, blocks made at load for
// plans of very many tensors. A run allocates nothing either way.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>

namespace fusor {

/// Blocks for runs that happen at once; where all are taken, a run waits for one.
class RunBlocks {
 public:
  /// One run's room: a pointer and a number for each tensor that is bound.
  struct Block {
    void** pointers = nullptr;
    int* order = nullptr;
  };

  /// Up to so many tensors fit on a run's stack.
  static constexpr size_t kOnStack = 256;

  explicit RunBlocks(size_t slots) : slots_(slots) {
    if (slots <= kOnStack) return;
    pointers_ = std::make_unique<void*[]>(kBlocks * slots);
    orders_ = std::make_unique<int[]>(kBlocks * slots);
  }

  /// A block while it lives.
  class Taken {
   public:
    explicit Taken(RunBlocks& blocks) : blocks_(blocks) {
      if (blocks.slots_ <= kOnStack) {
        block_ = {stack_pointers_.data(), stack_order_.data()};
        return;
      }
      index_ = blocks.take();
      block_ = {blocks.pointers_.get() + index_ * blocks.slots_,
                blocks.orders_.get() + index_ * blocks.slots_};
    }
    ~Taken() {
      if (blocks_.slots_ > kOnStack) blocks_.taken_.fetch_and(~(1u << index_), std::memory_order_release);
    }
    Taken(const Taken&) = delete;
    Taken& operator=(const Taken&) = delete;
    const Block& get() const { return block_; }

   private:
    RunBlocks& blocks_;
    size_t index_ = 0;
    Block block_;
    std::array<void*, kOnStack> stack_pointers_;  // not initialised: runs are short
    std::array<int, kOnStack> stack_order_;
  };

 private:
  static constexpr size_t kBlocks = 8;

  size_t take() {
    while (true) {
      const unsigned free = ~taken_.load(std::memory_order_relaxed) & ((1u << kBlocks) - 1);
      if (free == 0) {
        std::this_thread::yield();
        continue;
      }
      const auto index = static_cast<size_t>(std::countr_zero(free));
      if ((taken_.fetch_or(1u << index, std::memory_order_acquire) >> index & 1) == 0) return index;
    }
  }

  size_t slots_;
  std::unique_ptr<void*[]> pointers_;
  std::unique_ptr<int[]> orders_;
  std::atomic<unsigned> taken_{0};
};

}  // namespace fusor
