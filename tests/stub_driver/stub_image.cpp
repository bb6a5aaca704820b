// Owns the reading of cubins.
#include "tests/stub_driver/stub_image.h"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <sstream>
#include <string_view>

namespace fusor::stub {

namespace {

// Attributes of a kernel lie in its section .nv.info.NAME, each as: format, number, then 16 bits (formats 1
// to 3: the value itself; 4: the length of the value that follows).
constexpr std::string_view kInfoPrefix = ".nv.info.";
constexpr uint8_t kLongFormat = 4;
constexpr uint8_t kParameterBytes = 0x19;

size_t parameter_bytes(const unsigned char* at, size_t size) {
  const unsigned char* const end = at + size;
  while (at + 4 <= end) {
    uint16_t value = 0;
    std::memcpy(&value, at + 2, sizeof value);
    if (at[1] == kParameterBytes) return value;
    at += 4 + (at[0] == kLongFormat ? value : 0);
  }
  return 0;
}

}  // namespace

bool read_image(const void* code, Image& image) {
  const auto* const bytes = static_cast<const unsigned char*>(code);
  if (std::memcmp(bytes, "stub ", 5) == 0) {
    std::istringstream text(static_cast<const char*>(code));
    std::string word;
    std::string name;
    size_t size = 0;
    text >> word >> name >> size;
    image[name] = size;
    return true;
  }
  if (std::memcmp(bytes, ELFMAG, SELFMAG) != 0) return false;
  Elf64_Ehdr header;
  std::memcpy(&header, bytes, sizeof header);
  const auto section = [&](size_t index) {
    Elf64_Shdr found;
    std::memcpy(&found, bytes + header.e_shoff + index * sizeof found, sizeof found);
    return found;
  };
  const char* const names = static_cast<const char*>(code) + section(header.e_shstrndx).sh_offset;
  for (size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr found = section(i);
    const std::string_view name = names + found.sh_name;
    if (name.starts_with(kInfoPrefix))
      image[std::string(name.substr(kInfoPrefix.size()))] =
          parameter_bytes(bytes + found.sh_offset, found.sh_size);
  }
  return !image.empty();
}

}  // namespace fusor::stub
