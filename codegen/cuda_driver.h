// Owns libcuda: the only place that touches the CUDA driver. Opened at run time with a version ladder; never
// linked.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/device_info.h"
#include "core/lowered.h"
#include "core/tensor_map.h"

namespace fusor::cuda {

/// Whether a driver with at least one device can be used; why not, in words, where it cannot.
bool available(std::string* problem = nullptr);
/// "13.0" and the path it was opened from. Throws Error{missing}.
std::string driver_version();
std::string library_path();
int device_count();
/// What the driver says of device `ordinal`: name, compute capability, SMs, memories, clock. Rates that only
/// a profile knows stay 0.
DeviceInfo describe(int ordinal);
/// The device of the calling thread's context, or 0.
int current_device();

/// Gives the calling thread a context while it lives, where the thread has none: the primary one of its
/// device, which is retained once for all who hold it and released with the last of them.
class ContextScope {
 public:
  ContextScope();
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  /// Keeps the primary context beyond the scope; null where the thread has a context of its own.
  const std::shared_ptr<void>& holder() const { return held_; }

 private:
  std::shared_ptr<void> held_;
};

/// A loaded cubin and one entry of it (cuLibraryLoadData; usable in any context). Unloaded with the last
/// Kernel that was loaded from it.
class Kernel {
 public:
  Kernel() = default;
  /// A cubin is loaded once in a process for all kernels of one `key` (codegen/kernel_cache.h); without a key
  /// for this one alone. Throws Error{device} with the driver's words. Dynamic shared memory above 48 KiB is
  /// allowed here, on the calling thread's device; in its context, if it has one, the kernel is loaded now:
  /// its first launch may be captured. `large_clusters`: of more than 8 blocks, which are not portable.
  /// `name` gives what the driver and profilers are to call the kernel instead of `entry`, and is asked where
  /// the cubin is not loaded yet. It is a wish: a cubin that cannot be given another name keeps its own.
  static Kernel load(const std::string& cubin, const std::string& entry, int64_t shared_bytes,
                     const std::string& key = {}, bool large_clusters = false,
                     const std::function<std::string()>& name = {});
  void* handle() const { return handle_; }

 private:
  std::shared_ptr<void> module_;
  void* handle_ = nullptr;
};

struct LaunchShape {
  std::array<uint32_t, 3> grid{1, 1, 1}, block{1, 1, 1}, cluster{1, 1, 1};
  uint32_t shared_bytes = 0;
  /// The argument block's; 64 with tensor maps. With these, and in cooperative launches, the block has room
  /// to the end of the kernel's parameter, which may be longer by its alignment.
  uint32_t argument_alignment = 8;
  /// All blocks run at once, or the launch fails.
  bool cooperative = false;
  /// May begin before the launch in front of it ends, which its kernel waits for by griddepcontrol.
  bool programmatic = false;
};

/// Blocks of a cluster that every device with clusters allows.
inline constexpr uint32_t kPortableCluster = 8;

/// Launches with one argument block passed by value. Throws Error{device}. Allocates nothing.
void launch(void* kernel, const LaunchShape& shape, const void* arguments, size_t bytes, void* stream);
/// Writes the 128 bytes of a map; they begin on a multiple of 64. Throws Error{device} with the map's
/// numbers.
void encode(const TensorMap& map, void* encoded);
/// Points an encoded map at another address, a multiple of 16.
void repoint(void* encoded, void* address);
/// Sets bytes of device memory, in stream order.
void fill(void* pointer, uint8_t value, int64_t bytes, void* stream);
/// Copies bytes of device memory, in stream order.
void copy(void* to, const void* from, int64_t bytes, void* stream);

/// For the command, the benchmarks and the tests: a context, device memory, copies and timing of their own.
/// make_current() makes device `ordinal`'s primary context the calling thread's, and holds it until the
/// process ends.
void make_current(int ordinal = 0);
/// The stream's work so far is done.
void synchronize(void* stream = nullptr);
/// Whether what the stream is given goes into a CUDA graph.
bool is_capturing(void* stream);
void copy_to_device(void* device, const void* host, int64_t bytes);
void copy_to_host(void* host, const void* device, int64_t bytes);

/// Owned device memory.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(int64_t bytes);
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();
  void* get() const { return pointer_; }
  int64_t bytes() const { return bytes_; }

 private:
  void* pointer_ = nullptr;
  int64_t bytes_ = 0;
};

/// Two events around a region of a stream.
class Timer {
 public:
  Timer();
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  void start(void* stream = nullptr);
  void stop(void* stream = nullptr);
  /// Waits for stop; seconds on the device.
  double seconds();

 private:
  void* begin_ = nullptr;
  void* end_ = nullptr;
};

/// A stream of its own, and capture of it into a graph that can be launched again.
class OwnStream {
 public:
  OwnStream();
  ~OwnStream();
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  void* get() const { return stream_; }
  void begin_capture();
  /// Ends the capture; the returned executable graph is destroyed with the stream.
  void* end_capture();
  void launch_graph(void* graph);

 private:
  void* stream_ = nullptr;
  void* graph_ = nullptr;
};

/// For graphs that somebody else owns: appends the nodes of what `launch` puts on its stream, one behind the
/// other, or gives the nodes that an earlier launch of the same plan appended its parameters. Throws
/// Error{bad_input} for nodes of other kernels, and Error{missing} before CUDA 12.3.
void add_nodes(void* graph, const std::function<void(void* stream)>& launch);
void update_nodes(void* graph, const std::function<void(void* stream)>& launch);

}  // namespace fusor::cuda
