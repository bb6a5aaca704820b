// Owns DeviceMemory's two kinds of memory.
#include "backend/device_memory.h"

#include <cstring>
#include <new>
#include <string>

#include "codegen/cuda_driver.h"
#include "core/fail.h"
#include "core/words.h"

namespace fusor {

namespace {

constexpr std::align_val_t kAlignment{256};

struct Free {
  void operator()(void* memory) const { ::operator delete(memory, kAlignment); }
};

// Leaves the context that the thread has, of whatever kind.
void have_context() {
  const bool has_none = cuda::ContextScope().holder() != nullptr;
  if (has_none) cuda::make_current();
}

}  // namespace

struct DeviceMemory::Impl {
  int64_t bytes = 0;
  std::string tensor;  // "" where the memory is no tensor's
  DataType type = DataType::u8;
  std::unique_ptr<void, Free> host;
  cuda::DeviceBuffer device;
  bool on_gpu = false;
};

DeviceMemory::DeviceMemory(const DeviceInfo& device, int64_t bytes) : impl_(std::make_shared<Impl>()) {
  if (bytes < 0) fail("device memory: {} bytes were asked for", bytes);
  impl_->bytes = bytes;
  impl_->on_gpu = !device.is_cpu();
  if (impl_->on_gpu) {
    have_context();
    impl_->device = cuda::DeviceBuffer(bytes);
    return;
  }
  impl_->host.reset(::operator new(static_cast<size_t>(bytes), kAlignment, std::nothrow));
  if (!impl_->host) fail(ErrorKind::missing, "there are no {} bytes of memory", bytes);
}

DeviceMemory::DeviceMemory(const DeviceInfo& device, const Tensor& tensor)
    : DeviceMemory(device, tensor.bytes()) {
  impl_->tensor = tensor.name;
  impl_->type = tensor.type;
}

void* DeviceMemory::get() const {
  if (!impl_) return nullptr;
  return impl_->on_gpu ? impl_->device.get() : impl_->host.get();
}

int64_t DeviceMemory::bytes() const { return impl_ ? impl_->bytes : 0; }

void DeviceMemory::expect_bytes(int64_t bytes) const {
  if (bytes != this->bytes())
    fail("device memory: {} bytes of elements, the memory has {}", bytes, this->bytes());
}

void DeviceMemory::expect_elements(size_t size, ElementKind kind) const {
  if (!impl_ || impl_->tensor.empty() || kind == ElementKind::byte) return;
  const DataType type = impl_->type;
  const bool is_floating = kind == ElementKind::floating;
  if (static_cast<int64_t>(size) == byte_size(type) && (!is_floating || is_real(type))) return;
  fail("device memory: tensor '{}' is {}, {} an element; got {} of {}", impl_->tensor, to_string(type),
       words::count(static_cast<size_t>(byte_size(type)), "byte"),
       !is_floating            ? "elements"
       : size == sizeof(float) ? "float"
                               : "double",
       words::count(size, "byte"));
}

void DeviceMemory::copy_from(const void* host) const {
  if (bytes() == 0) return;
  if (impl_->on_gpu) {
    have_context();
    cuda::copy_to_device(get(), host, bytes());
  } else {
    std::memcpy(get(), host, static_cast<size_t>(bytes()));
  }
}

void DeviceMemory::copy_to(void* host, Stream stream) const {
  if (bytes() == 0) return;
  if (impl_->on_gpu) {
    have_context();
    cuda::synchronize(stream);
    cuda::copy_to_host(host, get(), bytes());
  } else {
    std::memcpy(host, get(), static_cast<size_t>(bytes()));
  }
}

void synchronize(const DeviceInfo& device, Stream stream) {
  if (device.is_cpu()) return;
  have_context();
  cuda::synchronize(stream);
}

}  // namespace fusor
