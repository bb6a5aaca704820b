// Owns the placing of guarded buffers and the look at what a run left in them.
#include "tools/fuzz/guarded_buffers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tools/fuzz/values.h"

namespace fusor::fuzz {

namespace {

constexpr int64_t kGuard = 256;
constexpr auto kGuardByte = std::byte{0xa5}, kPoison = std::byte{0xff};
constexpr int64_t kWorkspaceAlignment = 256;

/// Bytes of the tensor's span that belong to an element, or to several.
std::vector<bool> element_bytes(const Tensor& tensor) {
  std::vector<bool> mine(static_cast<size_t>(tensor.bytes()), false);
  const int64_t width = byte_size(tensor.type), count = element_count(tensor.dims);
  for (int64_t element = 0; element < count; ++element) {
    int64_t place = 0, rest = element;
    for (int axis = tensor.dims.rank() - 1; axis >= 0; --axis) {
      place += rest % tensor.dims[axis] * tensor.strides[axis];
      rest /= tensor.dims[axis];
    }
    std::fill_n(mine.begin() + place / elements_per_byte(tensor.type) * width, width, true);
  }
  return mine;
}

}  // namespace

GuardedBuffer::GuardedBuffer(int64_t bytes, int64_t alignment) : bytes_(bytes) {
  memory_.assign(static_cast<size_t>(bytes + 2 * kGuard + 4 * std::max<int64_t>(alignment, kGuard)),
                 kGuardByte);
  const auto start = reinterpret_cast<uintptr_t>(memory_.data());
  const auto twice = 2 * static_cast<uintptr_t>(alignment);
  // An odd multiple of the alignment, so that nothing can rely on more.
  const uintptr_t first = (start + kGuard + twice - 1) / twice * twice + static_cast<uintptr_t>(alignment);
  offset_ = static_cast<int64_t>(first - start);
  std::fill_n(get(), bytes, kPoison);
}

void GuardedBuffer::mirror() {
  const auto alignment = reinterpret_cast<uintptr_t>(get()) & (~reinterpret_cast<uintptr_t>(get()) + 1);
  // The device's pointer keeps the same remainder, as far as allocations of the driver (256 bytes) go.
  const auto wanted = static_cast<int64_t>(std::min<uintptr_t>(alignment, 256));
  std::vector<std::byte> placed(memory_.size() + 1024, kGuardByte);
  const int64_t offset = 512 + (wanted < 256 ? wanted : 0);
  std::copy_n(get(), bytes_, placed.data() + offset);
  memory_ = std::move(placed);
  offset_ = offset;
  device_ = cuda::DeviceBuffer(static_cast<int64_t>(memory_.size()));
  cuda::copy_to_device(device_.get(), memory_.data(), device_.bytes());
}

void* GuardedBuffer::bound() const {
  return device_.get() == nullptr ? get() : static_cast<std::byte*>(device_.get()) + offset_;
}

void GuardedBuffer::fetch() {
  if (device_.get() != nullptr) cuda::copy_to_host(memory_.data(), device_.get(), device_.bytes());
}

bool GuardedBuffer::guards_hold() const {
  const auto is_guard = [](std::byte each) { return each == kGuardByte; };
  return std::all_of(memory_.begin(), memory_.begin() + offset_, is_guard) &&
         std::all_of(memory_.begin() + offset_ + bytes_, memory_.end(), is_guard);
}

GuardedBuffers::GuardedBuffers(const Graph& graph, bool on_gpu, int64_t workspace_bytes, uint64_t seed)
    : graph_(graph), on_gpu_(on_gpu) {
  if (on_gpu) cuda::make_current();
  buffers_.resize(graph.tensors.size());
  inputs_.resize(graph.tensors.size());
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& tensor = graph.tensors[i];
    pointers_.push_back(nullptr);
    if (tensor.memory != Memory::device && tensor.memory != Memory::host) continue;
    GuardedBuffer& buffer = buffers_[i] = GuardedBuffer(tensor.bytes(), tensor.alignment);
    const bool is_input = graph.producer(static_cast<int>(i)) < 0;
    // By uid, which stays when a graph is shrunk.
    if (is_input) fill(tensor, buffer.get(), seed + static_cast<uint64_t>(tensor.uid));
    if (on_gpu && tensor.memory == Memory::device) buffer.mirror();
    if (is_input) inputs_[i].assign(buffer.get(), buffer.get() + buffer.bytes());
    pointers_.back() = buffer.get();
    bindings_.emplace_back(tensor, buffer.bound());
  }
  if (workspace_bytes == 0) return;
  workspace_ = GuardedBuffer(workspace_bytes, kWorkspaceAlignment);
  if (on_gpu) workspace_.mirror();
}

void GuardedBuffers::fetch() {
  for (GuardedBuffer& buffer : buffers_) buffer.fetch();
  workspace_.fetch();
}

std::string GuardedBuffers::damage() const {
  if (workspace_.bytes() > 0 && !workspace_.guards_hold()) return "bytes around the workspace were written";
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const GuardedBuffer& buffer = buffers_[i];
    const Tensor& tensor = graph_.tensors[i];
    if (buffer.bytes() == 0) continue;
    if (!buffer.guards_hold()) return fmt::format("bytes around tensor '{}' were written", tensor.name);
    if (!inputs_[i].empty()) {
      if (!std::equal(inputs_[i].begin(), inputs_[i].end(), buffer.get()))
        return fmt::format("input '{}' was written", tensor.name);
      continue;
    }
    const std::vector<bool> mine = element_bytes(tensor);
    for (int64_t at = 0; at < buffer.bytes(); ++at)
      if (!mine[static_cast<size_t>(at)] && buffer.get()[at] != kPoison)
        return fmt::format("byte {} of output '{}', which is no element's, was written", at, tensor.name);
  }
  return {};
}

}  // namespace fusor::fuzz
