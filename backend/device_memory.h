// Owns DeviceMemory: memory of a plan's device, for programs that have no allocator of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "backend/executable.h"
#include "core/api.h"
#include "core/device_info.h"

namespace fusor {

/// Memory of the host for the CPU device, else of the GPU, on a multiple of 256 bytes; uninitialised. On a
/// GPU the calling thread gets the primary context of its device where it has no context. Throws
/// Error{missing} where there is no such device, Error{device} where the GPU's memory is exhausted. Copies
/// return when they are done.
class FUSOR_API DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const DeviceInfo& device, int64_t bytes);
  /// Memory of the tensor's bytes, which read() and write() take elements of its type from.
  DeviceMemory(const DeviceInfo& device, const Tensor& tensor);

  void* get() const;
  int64_t bytes() const;
  /// The address that run() takes as its workspace.
  operator Workspace() const { return {get(), bytes()}; }  // NOLINT(google-explicit-constructor)

  /// Copies bytes() bytes from or to the host. copy_to() waits for the stream's work first.
  void copy_from(const void* host) const;
  void copy_to(void* host, Stream stream = nullptr) const;
  /// The same for elements: throws Error{bad_input} where they are not bytes() bytes. In the memory of a
  /// tensor they must be the tensor's: float for fp32, double for fp64, anything else (integers, a type of
  /// your own) of as many bytes; std::byte always.
  template <class Element>
  void write(const std::vector<Element>& elements) const {
    expect_elements(sizeof(Element), kind_of<Element>());
    expect_bytes(static_cast<int64_t>(elements.size() * sizeof(Element)));
    copy_from(elements.data());
  }
  template <class Element>
  std::vector<Element> read(Stream stream = nullptr) const {
    expect_elements(sizeof(Element), kind_of<Element>());
    std::vector<Element> elements(static_cast<size_t>(bytes()) / sizeof(Element));
    expect_bytes(static_cast<int64_t>(elements.size() * sizeof(Element)));
    copy_to(elements.data(), stream);
    return elements;
  }

 private:
  struct Impl;
  enum class ElementKind : uint8_t { floating, byte, other };
  template <class Element>
  static constexpr ElementKind kind_of() {
    if (std::is_floating_point_v<Element>) return ElementKind::floating;
    return std::is_same_v<Element, std::byte> ? ElementKind::byte : ElementKind::other;
  }
  void expect_bytes(int64_t bytes) const;
  void expect_elements(size_t size, ElementKind kind) const;
  std::shared_ptr<Impl> impl_;
};

/// Waits for the stream's work on that device; nothing on the CPU device, whose runs return when they are
/// done.
FUSOR_API void synchronize(const DeviceInfo& device, Stream stream = nullptr);

}  // namespace fusor
