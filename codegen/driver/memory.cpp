// Owns device memory: what fills, copies and holds it.
#include "codegen/cuda_driver.h"

#ifdef FUSOR_WITH_CUDA

#include "codegen/driver/table.h"

namespace fusor::cuda {

namespace {

// Fills and copies take the calling thread's context, a launch the stream's: these take the stream's too, and
// on the default stream that of device 0 where the thread has none.
template <class Call>
CUresult in_context_for(CUstream stream, Call call) {
  CUresult result = call();
  const bool other_context = result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_INVALID_HANDLE;
  if (!other_context) return result;
  if (stream == nullptr) return adopt_context() ? call() : result;
  CUcontext context = nullptr;
  result = driver().cuStreamGetCtx(stream, &context);
  if (result == CUDA_SUCCESS) result = driver().cuCtxPushCurrent_v2(context);
  if (result != CUDA_SUCCESS) return result;
  result = call();
  driver().cuCtxPopCurrent_v2(&context);
  return result;
}

}  // namespace

void fill(void* pointer, uint8_t value, int64_t bytes, void* stream) {
  const CUstream in = static_cast<CUstream>(stream);
  const CUresult result = in_context_for(
      in, [&] { return driver().cuMemsetD8Async(address(pointer), value, static_cast<size_t>(bytes), in); });
  check(result, "set {} bytes of device memory", bytes);
}

void copy(void* to, const void* from, int64_t bytes, void* stream) {
  const CUstream in = static_cast<CUstream>(stream);
  const CUresult result = in_context_for(in, [&] {
    return driver().cuMemcpyDtoDAsync_v2(address(to), address(from), static_cast<size_t>(bytes), in);
  });
  check(result, "copy {} bytes of device memory", bytes);
}

void copy_to_device(void* device, const void* host, int64_t bytes) {
  check(driver().cuMemcpyHtoD_v2(address(device), host, static_cast<size_t>(bytes)),
        "copy {} bytes to the device", bytes);
}

void copy_to_host(void* host, const void* device, int64_t bytes) {
  check(driver().cuMemcpyDtoH_v2(host, address(device), static_cast<size_t>(bytes)),
        "copy {} bytes to the host", bytes);
}

DeviceBuffer::DeviceBuffer(int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  const BesideCaptures beside;
  CUdeviceptr pointer = 0;
  check(driver().cuMemAlloc_v2(&pointer, static_cast<size_t>(bytes)), "allocate {} bytes of device memory",
        bytes);
  pointer_ = std::bit_cast<void*>(pointer);
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : pointer_(std::exchange(other.pointer_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(pointer_, other.pointer_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (pointer_ == nullptr) return;
  const BesideCaptures beside;
  driver().cuMemFree_v2(address(pointer_));
}

}  // namespace fusor::cuda

#endif  // FUSOR_WITH_CUDA
