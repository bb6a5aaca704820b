// Owns what host tests of the tensor cores' index arithmetic share: ldmatrix and the fragments of mma.sync,
// as the PTX ISA describes them.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

namespace fusor::test {

using Registers = std::array<std::array<uint32_t, 4>, 32>;  // of the lanes of a warp

// ldmatrix .x4: lane l of matrix i gets the pairs of bytes 2 (l % 4) and the next of its line l / 4;
// transposed, the pair l / 4 of its lines 2 (l % 4) and the next.
inline Registers load_matrices(const std::vector<uint8_t>& tile, const std::array<int, 32>& lines,
                               bool transposed) {
  const auto pair_at = [&](int byte) {
    uint16_t pair = 0;
    std::memcpy(&pair, &tile.at(static_cast<size_t>(byte)), sizeof pair);
    return uint32_t{pair};
  };
  Registers registers;
  for (size_t lane = 0; lane < 32; ++lane)
    for (size_t i = 0; i < 4; ++i) {
      const size_t slow = lane / 4, fast = lane % 4 * 2;
      const auto pair = [&](size_t f) {
        return transposed ? pair_at(lines.at(8 * i + f) + 2 * static_cast<int>(slow))
                          : pair_at(lines.at(8 * i + slow) + 2 * static_cast<int>(f));
      };
      registers.at(lane).at(i) = pair(fast) | pair(fast + 1) << 16;
    }
  return registers;
}

template <class Element>
Element element(const Registers& registers, int lane, int i) {
  Element value;
  std::memcpy(
      &value,
      reinterpret_cast<const char*>(registers.at(static_cast<size_t>(lane)).data()) + i * sizeof value,
      sizeof value);
  return value;
}

// Element i of lane's a in mma.m16n8k8 (32 bits), mma.m16n8k16 (16 bits) or mma.m16n8k32 (8 bits): its row
// and its k.
struct Place {
  int across, k;
};
template <class Element>
Place place_in_a(int lane, int i) {
  constexpr int kOfRegister = 4 / sizeof(Element);
  const int number = i / kOfRegister;
  return {lane / 4 + number % 2 * 8, lane % 4 * kOfRegister + i % kOfRegister + number / 2 * 4 * kOfRegister};
}
// Element i of lane's b: its column and its k.
template <class Element>
Place place_in_b(int lane, int i) {
  constexpr int kOfRegister = 4 / sizeof(Element);
  return {lane / 4, lane % 4 * kOfRegister + i % kOfRegister + i / kOfRegister * 4 * kOfRegister};
}

}  // namespace fusor::test
