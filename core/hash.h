// Owns Hasher: the one 128-bit hash, for keys of structures and checksums of files (not against an
// adversary).
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace fusor {

/// Two 64-bit lanes, each a chain of invertible mixing steps (the finaliser of Steele et al. 2014,
/// "SplitMix"). Values are told apart by their order and strings also by their length, so add("ab").add("c")
/// differs from add("abc").
class Hasher {
 public:
  template <class Value>
  requires std::integral<Value> || std::is_enum_v<Value> Hasher& add(Value value) {
    add_word(static_cast<uint64_t>(value));
    return *this;
  }

  Hasher& add(double value) {
    add_word(std::bit_cast<uint64_t>(value));
    return *this;
  }

  Hasher& add(std::span<const std::byte> bytes) {
    add_word(bytes.size());
    size_t at = 0;
    for (; at + sizeof(uint64_t) <= bytes.size(); at += sizeof(uint64_t))
      add_tail(bytes.subspan(at, sizeof(uint64_t)));
    if (at < bytes.size()) add_tail(bytes.subspan(at));
    return *this;
  }

  Hasher& add(std::string_view text) { return add(std::as_bytes(std::span(text.data(), text.size()))); }

  /// 32 hex digits of what was added so far.
  std::string hex() const {
    static constexpr char kDigits[] = "0123456789abcdef";
    const uint64_t words[2] = {mix(first_ + std::rotl(second_, 32)), mix(second_ ^ mix(first_))};
    std::string text;
    text.reserve(32);
    for (uint64_t word : words)
      for (int shift = 60; shift >= 0; shift -= 4) text.push_back(kDigits[(word >> shift) & 15]);
    return text;
  }

 private:
  static uint64_t mix(uint64_t word) {
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    return word ^ (word >> 31);
  }

  void add_word(uint64_t word) {
    first_ = mix(first_ ^ word) + 0x9e3779b97f4a7c15;
    second_ = mix(second_ + std::rotl(word, 23)) ^ 0xd1b54a32d192ed03;
  }

  // Up to eight bytes; the length was added before, so zeros behind the end are unambiguous.
  void add_tail(std::span<const std::byte> bytes) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), bytes.size());
    add_word(word);
  }

  uint64_t first_ = 0x243f6a8885a308d3;
  uint64_t second_ = 0x13198a2e03707344;
};

}  // namespace fusor
