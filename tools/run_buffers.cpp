// Owns the filling and copying of a run's memory.
#include "tools/run_buffers.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "backend/verify.h"
#include "core/fail.h"
#include "core/words.h"
#include "tools/print.h"

namespace fusor::command {

namespace {

constexpr int kPoison = 0xff;
constexpr int64_t kWorkspaceAlignment = 256;

bool is_bound(const Tensor& tensor) {
  return tensor.memory == Memory::device || tensor.memory == Memory::host;
}

void expect_memory(const Graph& graph, int64_t workspace_bytes) {
  const int64_t available = DeviceInfo::cpu().memory_bytes;
  double needed = static_cast<double>(workspace_bytes);
  for (const Tensor& tensor : graph.tensors)
    if (is_bound(tensor)) needed += static_cast<double>(tensor.bytes());
  if (needed > static_cast<double>(available))
    fail(ErrorKind::missing, "the tensors of '{}' take {:.1f} GiB, this machine has {}", graph.name,
         needed / (1 << 30), words::bytes(available));
}

/// Random values of which a large tensor repeats a part: no matter how large, it takes a second at most. The
/// period is prime, so that no rows or tiles are alike.
void fill_repeating(const Tensor& tensor, void* buffer, uint64_t seed) {
  constexpr int64_t kPeriod = 16'777'213;
  const int64_t width = byte_size(tensor.type);
  const int64_t count = tensor.bytes() / width;
  if (tensor.is_scalar() || count <= kPeriod) return fill_random(tensor, buffer, seed);
  Tensor piece = tensor;
  piece.dims = {kPeriod * elements_per_byte(tensor.type)};
  piece.strides = {1};
  fill_random(piece, buffer, seed);
  auto* bytes = static_cast<std::byte*>(buffer);
  for (int64_t at = kPeriod; at < count; at += kPeriod)
    std::memcpy(bytes + at * width, bytes, static_cast<size_t>(std::min(kPeriod, count - at) * width));
}

}  // namespace

HostBuffer::HostBuffer(int64_t bytes, int64_t alignment) {
  const auto step = static_cast<size_t>(std::max<int64_t>(alignment, 64));
  const size_t whole = (static_cast<size_t>(bytes) + step - 1) / step * step;
  memory_.reset(std::aligned_alloc(step, whole));
  if (!memory_) throw std::bad_alloc();
  std::memset(memory_.get(), kPoison, whole);
}

void HostBuffer::Free::operator()(void* memory) const { std::free(memory); }

RunBuffers::RunBuffers(const Graph& graph, bool on_gpu, int64_t workspace_bytes, uint64_t seed)
    : on_gpu_(on_gpu) {
  expect_memory(graph, on_gpu ? 0 : workspace_bytes);
  if (on_gpu_) cuda::make_current();
  std::vector<bool> written(graph.tensors.size(), false);
  for (const Op& op : graph.ops)
    for (const int output : op.outputs)
      if (output >= 0) written[static_cast<size_t>(output)] = true;  // optional results may be left out
  for (size_t i = 0; i < graph.tensors.size(); ++i) add(graph.tensors[i], written[i], seed + i);
  if (workspace_bytes == 0) return;
  HostBuffer poisoned(workspace_bytes, kWorkspaceAlignment);
  if (on_gpu_) {
    device_workspace_ = cuda::DeviceBuffer(workspace_bytes);
    cuda::copy_to_device(device_workspace_.get(), poisoned.get(), workspace_bytes);
  } else {
    host_workspace_ = std::move(poisoned);
  }
}

void RunBuffers::add(const Tensor& tensor, bool is_output, uint64_t seed) {
  const bool bound = is_bound(tensor);
  const bool mirrored = on_gpu_ && tensor.memory == Memory::device;
  buffers_.push_back(bound ? HostBuffer(tensor.bytes(), tensor.alignment) : HostBuffer());
  mirrors_.push_back(mirrored ? cuda::DeviceBuffer(tensor.bytes()) : cuda::DeviceBuffer());
  is_output_.push_back(is_output);
  bytes_.push_back(tensor.bytes());
  void* host = buffers_.back().get();
  pointers_.push_back(host);
  if (!bound) return;
  if (!is_output) fill_repeating(tensor, host, seed);
  if (mirrored) cuda::copy_to_device(mirrors_.back().get(), host, tensor.bytes());
  bindings_.emplace_back(tensor, mirrored ? mirrors_.back().get() : host);
}

void RunBuffers::send(size_t tensor) {
  if (mirrors_[tensor].get() != nullptr)
    cuda::copy_to_device(mirrors_[tensor].get(), pointers_[tensor], bytes_[tensor]);
}

void RunBuffers::poison_outputs() {
  for (size_t i = 0; i < mirrors_.size(); ++i) {
    if (!is_output_[i] || pointers_[i] == nullptr) continue;
    std::memset(pointers_[i], kPoison, static_cast<size_t>(bytes_[i]));
    if (mirrors_[i].get() != nullptr) cuda::copy_to_device(mirrors_[i].get(), pointers_[i], bytes_[i]);
  }
}

void RunBuffers::fetch_outputs() {
  for (size_t i = 0; i < mirrors_.size(); ++i)
    if (is_output_[i] && mirrors_[i].get() != nullptr)
      cuda::copy_to_host(pointers_[i], mirrors_[i].get(), mirrors_[i].bytes());
}

}  // namespace fusor::command
