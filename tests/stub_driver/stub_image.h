// Owns what the stub driver reads out of a cubin: the names of its kernels and the size of their parameters.
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace fusor::stub {

/// Bytes of parameters by the kernel's name.
using Image = std::map<std::string, size_t>;

/// Reads a cubin (ELF), or for tests without a compiler the text "stub NAME BYTES". False: not an image.
bool read_image(const void* code, Image& image);

}  // namespace fusor::stub
