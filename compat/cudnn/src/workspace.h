// Owns where a plan's workspace begins inside of what a client lends.
#pragma once

#include <cstddef>
#include <memory>

namespace fusor::cudnn {

inline constexpr size_t kWorkspaceAlignment = 256;

/// The first multiple of 256 at or behind the pointer.
inline void* aligned(void* pointer) {
  size_t room = 2 * kWorkspaceAlignment;
  return pointer == nullptr ? nullptr : std::align(kWorkspaceAlignment, 1, pointer, room);
}

}  // namespace fusor::cudnn
