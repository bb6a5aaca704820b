// Owns the samples' device memory, as a program has it that calls the CUDA driver: fusor is given pointers
// and allocates nothing. The driver is opened at run time, so that the samples build and run where there is
// none.
#pragma once

#include <dlfcn.h>
#include <fusor.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace sample {

/// The few of the driver's functions that copying takes (cuda.h declares them).
class Driver {
 public:
  static const Driver& get() {
    static const Driver driver;
    return driver;
  }
  /// A device's primary context becomes the calling thread's.
  void make_current(int ordinal = 0) const {
    int device = 0;
    void* context = nullptr;
    check(call<int(int*, int)>("cuDeviceGet")(&device, ordinal), "cuDeviceGet");
    check(call<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, device), "cuDevicePrimaryCtxRetain");
    check(call<int(void*)>("cuCtxSetCurrent")(context), "cuCtxSetCurrent");
  }
  uint64_t allocate(size_t bytes) const {
    uint64_t address = 0;
    check(call<int(uint64_t*, size_t)>("cuMemAlloc_v2")(&address, bytes), "cuMemAlloc");
    return address;
  }
  void release(uint64_t address) const { call<int(uint64_t)>("cuMemFree_v2")(address); }
  void copy_to_device(uint64_t to, const void* from, size_t bytes) const {
    check(call<int(uint64_t, const void*, size_t)>("cuMemcpyHtoD_v2")(to, from, bytes), "cuMemcpyHtoD");
  }
  void copy_to_host(void* to, uint64_t from, size_t bytes) const {
    check(call<int(void*, uint64_t, size_t)>("cuMemcpyDtoH_v2")(to, from, bytes), "cuMemcpyDtoH");
  }
  void synchronize() const { check(call<int()>("cuCtxSynchronize")(), "cuCtxSynchronize"); }

  /// A function by its name in the driver.
  template <class Function>
  Function* call(const char* name) const {
    void* function = dlsym(library_, name);
    if (function == nullptr)
      throw fusor::Error(fusor::ErrorKind::missing, std::string("libcuda.so.1 has no ") + name);
    return reinterpret_cast<Function*>(function);
  }

 private:
  Driver() : library_(dlopen("libcuda.so.1", RTLD_NOW)) {
    if (library_ == nullptr) throw fusor::Error(fusor::ErrorKind::missing, "there is no libcuda.so.1");
    check(call<int(unsigned)>("cuInit")(0), "cuInit");
  }
  static void check(int result, const std::string& what) {
    if (result != 0)
      throw fusor::Error(fusor::ErrorKind::device, what + ": CUDA error " + std::to_string(result));
  }

  void* library_;
};

/// Owned device memory, or none.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(size_t bytes)
      : bytes_(bytes), address_(bytes == 0 ? 0 : Driver::get().allocate(bytes)) {}
  DeviceMemory(DeviceMemory&& other) noexcept
      : bytes_(std::exchange(other.bytes_, 0)), address_(std::exchange(other.address_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&&) = delete;
  ~DeviceMemory() {
    if (address_ != 0) Driver::get().release(address_);
  }
  void* get() const { return std::bit_cast<void*>(address_); }
  void copy_from(const void* host) const { Driver::get().copy_to_device(address_, host, bytes_); }
  void copy_to(void* host) const { Driver::get().copy_to_host(host, address_, bytes_); }

 private:
  size_t bytes_ = 0;
  uint64_t address_ = 0;
};

}  // namespace sample
