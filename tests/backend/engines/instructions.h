// Owns the reading of a kernel's machine code: what it loads before it waits for the launch in front.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace fusor::test {

/// Instructions of sm_90, by the lowest 12 of their 128 bits, as nvdisasm names them.
enum class Opcode : uint64_t { ldg = 0x981, ldgsts = 0xfae, acqbulk = 0x82e };

namespace elf {

template <class T>
T read(std::string_view bytes, uint64_t at) {
  T value{};
  if (at + sizeof(T) <= bytes.size()) std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

/// The contents of the sections whose names begin with ".text." of a 64-bit ELF file.
inline std::vector<std::string_view> texts(std::string_view file) {
  constexpr uint64_t kHeaders = 0x28, kHeaderBytes = 0x3a, kCount = 0x3c, kNames = 0x3e;  // of the file
  constexpr uint64_t kName = 0x00, kOffset = 0x18, kSize = 0x20;                          // of a section
  const uint64_t headers = read<uint64_t>(file, kHeaders), bytes = read<uint16_t>(file, kHeaderBytes);
  const auto header = [&](uint64_t section) { return headers + section * bytes; };
  const uint64_t names = read<uint64_t>(file, header(read<uint16_t>(file, kNames)) + kOffset);
  std::vector<std::string_view> found;
  for (uint64_t i = 0; i < read<uint16_t>(file, kCount); ++i) {
    const uint64_t name = names + read<uint32_t>(file, header(i) + kName);
    const uint64_t begin = read<uint64_t>(file, header(i) + kOffset);
    const uint64_t size = read<uint64_t>(file, header(i) + kSize);
    if (name < file.size() && file.substr(name).starts_with(".text.") && begin + size <= file.size())
      found.push_back(file.substr(begin, size));
  }
  return found;
}

}  // namespace elf

/// Loads of global memory into registers or, by threads, into shared memory that stand in front of a kernel's
/// first wait for the launch in front of it; 0 where nothing waits.
inline int loads_before_wait(std::string_view cubin) {
  constexpr uint64_t kBytes = 16, kMask = 0xfff;
  for (const std::string_view text : elf::texts(cubin)) {
    int loads = 0;
    for (uint64_t at = 0; at < text.size(); at += kBytes) {
      const auto opcode = static_cast<Opcode>(elf::read<uint64_t>(text, at) & kMask);
      if (opcode == Opcode::acqbulk) return loads;
      if (opcode == Opcode::ldg || opcode == Opcode::ldgsts) ++loads;
    }
  }
  return 0;
}

}  // namespace fusor::test
