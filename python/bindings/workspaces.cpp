// Owns how a stream is read from an object of Python, and which workspace a run on it takes.
#include "workspaces.h"

#include <fmt/format.h>

namespace fusor::python {

Stream stream_of(nb::handle object) {
  if (object.is_none()) return nullptr;
  const auto handle = [](nb::handle number) {
    void* stream = PyLong_AsVoidPtr(number.ptr());
    if (stream == nullptr && PyErr_Occurred() != nullptr) throw nb::python_error();
    return stream;
  };
  if (PyLong_Check(object.ptr())) return handle(object);
  if (nb::hasattr(object, "cuda_stream")) return handle(object.attr("cuda_stream"));
  if (nb::hasattr(object, "__cuda_stream__")) return handle(nb::object(object.attr("__cuda_stream__")()[1]));
  if (nb::hasattr(object, "ptr")) return handle(object.attr("ptr"));
  refuse(
      fmt::format("run: the stream is {}; expected a handle (int) or an object with __cuda_stream__, "
                  "cuda_stream or ptr",
                  nb::repr(object).c_str()));
}

DeviceMemory Workspaces::take(Stream stream) {
  if (bytes_ == 0) return {};
  const std::lock_guard lock(mutex_);
  if (device_.is_cpu()) {
    if (idle_.empty()) return {device_, bytes_};
    DeviceMemory memory = std::move(idle_.back());
    idle_.pop_back();
    return memory;
  }
  // Threads that ended leave theirs behind; freeing waits for the device.
  if (of_stream_.size() >= kMostKept) of_stream_.clear();
  DeviceMemory& memory = of_stream_[{std::this_thread::get_id(), stream}];
  if (memory.get() == nullptr) memory = made();
  return memory;
}

void Workspaces::give_back(DeviceMemory memory) {
  if (bytes_ == 0 || !device_.is_cpu()) return;
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(memory));
}

DeviceMemory Workspaces::made() const {
  try {
    return {device_, bytes_};
  } catch (const Error& error) {
    throw Error(error.kind(),
                fmt::format("{}; it was to be the workspace of this thread and stream: before a capture, "
                            "run once on the stream, or give run() a workspace",
                            error.what()));
  }
}

}  // namespace fusor::python
