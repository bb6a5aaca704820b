// Owns the buffers, the poison and the comparison of a run on the GPU.
#include "tests/gpu/device_run.h"

#include <cstring>

#include "tests/support/sample.h"

namespace fusor {

namespace {

constexpr int64_t kGuard = 512;
constexpr auto kPoison = std::byte{0xa7};

bool is_bound(const Tensor& tensor) {
  return tensor.memory == Memory::device || tensor.memory == Memory::host;
}

}  // namespace

DeviceRun::DeviceRun(const Graph& graph, const Plan& plan, uint64_t seed)
    : graph_(graph), executable_(load(plan)) {
  for (size_t i = 0; i < graph_.tensors.size(); ++i) {
    const Tensor& tensor = graph_.tensors[i];
    Buffer buffer;
    buffer.tensor = static_cast<int>(i);
    if (is_bound(tensor)) {
      buffer.written = graph_.producer(static_cast<int>(i)) >= 0;
      buffer.bytes.resize(static_cast<size_t>(tensor.bytes() + 2 * kGuard));
      std::memset(buffer.bytes.data(), static_cast<int>(kPoison), buffer.bytes.size());
      if (!buffer.written) fill_random(tensor, buffer.bytes.data() + kGuard, seed * 1000 + i);
      if (tensor.memory == Memory::device) {
        buffer.device = cuda::DeviceBuffer(static_cast<int64_t>(buffer.bytes.size()));
        cuda::copy_to_device(buffer.device.get(), buffer.bytes.data(),
                             static_cast<int64_t>(buffer.bytes.size()));
      }
    }
    buffers_.push_back(std::move(buffer));
  }
  workspace_ = cuda::DeviceBuffer(std::max<int64_t>(executable_.workspace_bytes(), 256));
}

void DeviceRun::poison(Buffer& buffer) const {
  std::memset(buffer.bytes.data(), static_cast<int>(kPoison), buffer.bytes.size());
  cuda::copy_to_device(buffer.device.get(), buffer.bytes.data(), static_cast<int64_t>(buffer.bytes.size()));
}

void* DeviceRun::device_pointer(const Buffer& buffer) const {
  return static_cast<std::byte*>(buffer.device.get()) + kGuard;
}

std::vector<void*> DeviceRun::slots() const {
  std::vector<void*> pointers(static_cast<size_t>(executable_.slot_count()));
  for (const Buffer& buffer : buffers_) {
    const Tensor& tensor = graph_.tensors[buffer.tensor];
    if (!is_bound(tensor)) continue;
    void* pointer = tensor.memory == Memory::host ? const_cast<std::byte*>(buffer.bytes.data()) + kGuard
                                                  : device_pointer(buffer);
    pointers[executable_.slot(tensor.name)] = pointer;
  }
  return pointers;
}

void DeviceRun::edit(const std::string& tensor, const std::function<void(std::byte*)>& write) {
  Buffer& buffer = buffers_[graph_.find(tensor)];
  write(buffer.bytes.data() + kGuard);
  if (graph_.tensors[buffer.tensor].memory != Memory::device) return;
  cuda::copy_to_device(buffer.device.get(), buffer.bytes.data(), static_cast<int64_t>(buffer.bytes.size()));
}

void DeviceRun::launch(Stream stream) { executable_.run(slots(), workspace_.get(), stream); }

void DeviceRun::run(Stream stream) {
  for (Buffer& buffer : buffers_)
    if (buffer.written) poison(buffer);
  // Garbage that is NaN in every real type: what is read before it is written shows.
  cuda::fill(workspace_.get(), 0xff, workspace_.bytes(), stream);
  launch(stream);
  cuda::synchronize(stream);
  fetch();
}

void DeviceRun::fetch() {
  for (Buffer& buffer : buffers_)
    if (buffer.written)
      cuda::copy_to_host(buffer.bytes.data(), buffer.device.get(), static_cast<int64_t>(buffer.bytes.size()));
}

testing::AssertionResult DeviceRun::gaps_are_untouched() const {
  for (const Buffer& buffer : buffers_) {
    if (!buffer.written) continue;
    const Tensor& tensor = graph_.tensors[buffer.tensor];
    std::vector<bool> used(buffer.bytes.size(), false);
    const int64_t size = byte_size(tensor.type);
    for (int64_t linear = 0; linear < element_count(tensor.dims); ++linear) {
      int64_t rest = linear;
      int64_t at = 0;
      for (int axis = tensor.dims.rank() - 1; axis >= 0; --axis) {
        at += rest % tensor.dims[axis] * tensor.strides[axis];
        rest /= tensor.dims[axis];
      }
      const int64_t first = at / elements_per_byte(tensor.type) * size;
      for (int64_t byte = 0; byte < size; ++byte) used[kGuard + first + byte] = true;
    }
    for (size_t i = 0; i < used.size(); ++i)
      if (!used[i] && buffer.bytes[i] != kPoison)
        return testing::AssertionFailure()
               << "'" << tensor.name << "': byte " << static_cast<int64_t>(i) - kGuard
               << " belongs to no element and was written";
  }
  return testing::AssertionSuccess();
}

VerifyReport DeviceRun::check(uint64_t seed) {
  std::vector<void*> pointers;
  for (Buffer& buffer : buffers_)
    pointers.push_back(buffer.bytes.empty() ? nullptr : buffer.bytes.data() + kGuard);
  return verify(graph_, pointers, seed, executable_.plan().notes);
}

const std::vector<std::byte>& DeviceRun::host(const std::string& tensor) const {
  return buffers_[graph_.find(tensor)].bytes;
}

namespace {

void expect_correct_plan(const Graph& graph, const Plan& plan, const std::string& what) {
  SCOPED_TRACE(what);
  DeviceRun run(graph, plan);
  run.run();
  EXPECT_TRUE(run.gaps_are_untouched());
  const VerifyReport report = run.check();
  EXPECT_TRUE(report.passed()) << what << "\n" << to_string(report);
}

}  // namespace

void expect_correct(const Graph& graph, const std::string& what) {
  expect_correct_plan(graph, build(graph, DeviceInfo::current()), what);
}

void expect_every_candidate_correct(const Graph& graph, const std::string& what,
                                    const PlannerOptions& options) {
  const DeviceInfo device = DeviceInfo::current();
  bool first = true;
  for (const Candidate& candidate : candidates(graph, device, options)) {
    std::string configs = what;
    for (const PlannedFusion& fusion : candidate.fusions) configs += " " + to_string(fusion.config);
    if (first || test::is_sampled(configs, 3))
      expect_correct_plan(graph, build(graph, device, candidate, options), configs);
    first = false;
  }
}

}  // namespace fusor
