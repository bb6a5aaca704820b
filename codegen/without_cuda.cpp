// Owns the answers of a build without the CUDA headers: nothing is available, and every call says why.
#ifndef FUSOR_WITH_CUDA

#include "codegen/cuda_driver.h"
#include "codegen/nvrtc.h"
#include "core/fail.h"

namespace fusor {

namespace {

constexpr const char* kProblem = "this build of fusor was made without the CUDA headers (cuda.h, nvrtc.h)";

bool say_why(std::string* problem) {
  if (problem != nullptr) *problem = kProblem;
  return false;
}

[[noreturn]] void refuse() { fail(ErrorKind::missing, "{}", kProblem); }

}  // namespace

namespace nvrtc {

bool available(std::string* problem) { return say_why(problem); }
std::string version() { refuse(); }
std::string library_path() { refuse(); }
std::vector<int> targets() { refuse(); }
Compilation compile(std::string_view, const std::string&, const std::string&) { refuse(); }
Compilation compile_alone(const std::string&, const std::vector<std::string>&) { refuse(); }

}  // namespace nvrtc

namespace cuda {

bool available(std::string* problem) { return say_why(problem); }
std::string driver_version() { refuse(); }
std::string library_path() { refuse(); }
int device_count() { refuse(); }
DeviceInfo describe(int) { refuse(); }
int current_device() { refuse(); }
ContextScope::ContextScope() { refuse(); }
ContextScope::~ContextScope() = default;
Kernel Kernel::load(const std::string&, const std::string&, int64_t, const std::string&, bool,
                    const std::function<std::string()>&) {
  refuse();
}
void launch(void*, const LaunchShape&, const void*, size_t, void*) { refuse(); }
void encode(const TensorMap&, void*) { refuse(); }
void repoint(void*, void*) { refuse(); }
void fill(void*, uint8_t, int64_t, void*) { refuse(); }
void copy(void*, const void*, int64_t, void*) { refuse(); }
void make_current(int) { refuse(); }
void add_nodes(void*, const std::function<void(void*)>&) { refuse(); }
void update_nodes(void*, const std::function<void(void*)>&) { refuse(); }
void synchronize(void*) { refuse(); }
void copy_to_device(void*, const void*, int64_t) { refuse(); }
void copy_to_host(void*, const void*, int64_t) { refuse(); }
DeviceBuffer::DeviceBuffer(int64_t) { refuse(); }
DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept = default;
DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept = default;
DeviceBuffer::~DeviceBuffer() = default;
Timer::Timer() { refuse(); }
Timer::~Timer() = default;
void Timer::start(void*) {}
void Timer::stop(void*) {}
double Timer::seconds() { return 0; }
OwnStream::OwnStream() { refuse(); }
OwnStream::~OwnStream() = default;
void OwnStream::begin_capture() {}
void* OwnStream::end_capture() { return nullptr; }
void OwnStream::launch_graph(void*) {}

}  // namespace cuda

}  // namespace fusor

#endif  // FUSOR_WITH_CUDA
