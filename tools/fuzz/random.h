// Owns Random: the seeded choices from which graphs are made. Same seed, same choices, on every machine.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace fusor::fuzz {

class Random {
 public:
  explicit Random(uint64_t seed, uint64_t stream = 0)
      : state_(seed * 0x9e3779b97f4a7c15u + stream * 0xd1342543de82ef95u + 1) {}

  uint64_t next() {  // splitmix64
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  int64_t below(int64_t count) {
    const uint64_t drawn = next();
    return count > 0 ? static_cast<int64_t>(drawn % static_cast<uint64_t>(count)) : 0;
  }
  int64_t between(int64_t least, int64_t most) { return least + below(most - least + 1); }
  /// True once in `times` on average.
  bool once_in(int64_t times) { return below(times) == 0; }
  bool percent(int64_t share) { return below(100) < share; }

  template <class T>
  T pick(std::initializer_list<T> from) {
    return from.begin()[below(static_cast<int64_t>(from.size()))];
  }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[static_cast<size_t>(below(static_cast<int64_t>(from.size())))];
  }

 private:
  uint64_t state_;
};

}  // namespace fusor::fuzz
